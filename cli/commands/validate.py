"""`dscore validate`: the verdicts on a file's configurations.

The file holds one configuration at its top, or many as [[configuration]] tables.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from dscore.cli import options
from dscore.cli.show.json import print_json, verdict_record
from dscore.cli.show.screen import prose_columns, screen
from dscore.cli.show.text import print_note
from dscore.core.errors import SpecError, did_you_mean, require_one_of, shown

if TYPE_CHECKING:
    from dscore.core.device import Device
    from dscore.core.plan import Rules
    from dscore.core.problem import ConvProblem
    from dscore.solving.verdict import Verdict

_Value = TypeVar("_Value")
_OPTIONS = ("layer", "problem", "device", "block_n", "rules", "masked")


def validate(
    file: Annotated[str, typer.Argument(
        metavar="FILE.toml", show_default=False,
        help="The file with the configurations.")],
    device: options.DeviceName = None,
    rules: options.RulesName = "hardware",
    json: options.Json = False,
) -> None:
    """Judge tilings of your own.

    It shows each limit that is broken or more than half used, and with -v all. If one is broken,
    it also shows tilings nearby that would fit. The file holds one configuration, or many as
    [[configuration]] tables, with these keys:

    \b
    layer = "P28"            # or problem = "n1c320h7w7_o1280k1"
    wave_w = 1               # the fields of a tiling
    wave_c = 64
    repeat_w = 1
    repeat_c = 4
    group_c = 16
    block_n = 2              # optional: blocks on a compute unit
    device = "z100sm"        # optional, else --device; a .toml is sought beside this file
    rules = "paper"          # optional, else --rules
    masked = true            # optional: tiles may reach past the output

    Ends with 1 if a configuration is invalid.
    """
    from dscore.core.plan import RULES

    verdicts = _verdicts(file, _Defaults(device, require_one_of(rules, "rules", RULES)))
    valid = sum(verdict.ok for verdict in verdicts)
    if json:
        print_json([verdict_record(verdict) for verdict in verdicts])
    else:
        for verdict in verdicts:
            print(verdict.text(prose_columns(), every_limit=screen.verbose), end="\n\n")
        print_note(f"{valid} of {len(verdicts)} configurations are valid")
    if valid < len(verdicts):
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Defaults:
    """Device and rules of a configuration that states none."""

    device: str | None
    rules: Rules


def _verdicts(path: str, defaults: _Defaults) -> list[Verdict]:
    """The verdict of each configuration of a file.

    Raises SpecError naming the file, the configuration and the key that does not fit.
    """
    from dscore.core.toml import load_toml

    if not os.path.exists(path):
        raise SpecError(f"{path}: there is no such file; `dscore validate --help` shows what it "
                        "holds, and `dscore explain LAYER --tiling FIELD=VALUE,...` needs none")
    table = load_toml(path)
    if "configuration" not in table:
        return [_named_verdict(table, path, "", defaults)]
    entries = table.pop("configuration")
    if table:
        raise SpecError(f"{path}: {_key(next(iter(table)))} stands beside [[configuration]]; "
                        "move it into each")
    if not isinstance(entries, list) or not entries:
        raise SpecError(f"{path}: configuration must be [[configuration]] tables")
    return [_named_verdict(entry, path, f"configuration[{at}]", defaults)
            for at, entry in enumerate(entries)]


def _named_verdict(entry: Any, path: str, where: str, defaults: _Defaults) -> Verdict:
    if not isinstance(entry, dict):
        raise SpecError(f"{path}: {where} must be a table, got {shown(entry)}")
    try:
        return _verdict(entry, Path(path).parent, defaults)
    except SpecError as error:
        # An error that begins with a key continues the path to it.
        text = str(error).removeprefix("tiling: ")
        key = re.split("[ :]", text)[0]
        joint = "." if key in _OPTIONS or key in entry else ": "
        raise SpecError(f"{path}: {where + joint if where else ''}{text}") from None


def _key(key: str) -> str:
    """A key as TOML writes it: bare, or between quotation marks."""
    return key if re.fullmatch("[A-Za-z0-9_-]{1,100}", key) else shown(key)


def _verdict(entry: dict[str, Any], folder: Path, defaults: _Defaults) -> Verdict:
    from dscore import api
    from dscore.core.plan import RULES

    problem = _problem(entry)
    tiling = {key: value for key, value in entry.items() if key not in _OPTIONS}
    if not tiling:
        raise SpecError("no field of a tiling is given, such as wave_w")
    _require_no_slip(tiling)
    block_n = entry.get("block_n", 1)
    return api.validate(
        problem, tiling, _device(entry.get("device", defaults.device), folder),
        require_one_of(entry.get("rules", defaults.rules), "rules", RULES), block_n,
        require_one_of(entry.get("masked", False), "masked", (True, False)))


def _require_no_slip(tiling: dict[str, Any]) -> None:
    """Raise SpecError for a key that no tiling has, and that comes close to an option."""
    from dscore.algorithms import registry

    known = {field.name for name in registry.names()
             for field in fields(registry.algorithm(name).tiling)}
    for key in tiling.keys() - known - {"algorithm"}:
        if meant := did_you_mean(key, (*_OPTIONS, "algorithm", "configuration")):
            raise SpecError(f"unknown key {key!r}{meant}")


def _problem(entry: dict[str, Any]) -> ConvProblem:
    from dscore import api

    given = [key for key in ("layer", "problem") if key in entry]
    if not given:
        raise SpecError("layer (or problem) is missing")
    if len(given) == 2:
        raise SpecError("problem stands beside layer; keep one")
    key = given[0]
    if not isinstance(entry[key], str):
        raise SpecError(f"{key} must be a text, such as \"P13\", got {entry[key]!r}")
    return _named(key, api.problem_of, entry[key])


def _device(name: Any, folder: Path) -> Device:
    """A device by name, or by its file, which is sought beside the configuration's."""
    from dscore import api

    if isinstance(name, str) and name.lower().endswith(".toml") and os.path.exists(folder / name):
        name = folder / name
    return _named("device", api.device_of, name)


def _named(key: str, find: Callable[[Any], _Value], name: Any) -> _Value:
    try:
        return find(name)
    except SpecError as error:
        raise SpecError(f"{key}: {error}") from None
