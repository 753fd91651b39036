"""Help pages: usage with LAYER..., arguments without Python's types, whole sentences."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    """Command whose help names its arguments as their metavars do."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The pieces behind the command's name, such as ``[OPTIONS] LAYER...``."""
        return ["[OPTIONS]", *map(_usage, self._parameters(ctx, "argument"))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options."""
        arguments = [(_usage(argument), argument.help or "")
                     for argument in self._parameters(ctx, "argument")]
        options = [record for option in self._parameters(ctx, "option")
                   if (record := option.get_help_record(ctx)) is not None]
        for title, records in (("Arguments", arguments), ("Options", options)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def _parameters(self, ctx: Any, kind: str) -> list[Any]:
        return [one for one in self.get_params(ctx) if one.param_type_name == kind]


class Group(TyperGroup):
    """Group of commands whose help shows the first sentence of each as a whole."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a line or more for each command."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(limit=200))
                                for name, command in commands.items() if command is not None])


def _usage(argument: Any) -> str:
    """An argument as usage shows it: in brackets where it may be left out."""
    name = (argument.metavar or argument.name.upper()).strip("[].")
    name += "..." if argument.nargs == -1 else ""
    return name if argument.required else f"[{name}]"
