"""The file that `dscore validate` reads: one configuration at the top, or [[configuration]]s."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dscore import api
from dscore.core import catalog
from dscore.core.device import Device
from dscore.core.errors import SpecError, require_one_of
from dscore.core.plan import RULES, Rules
from dscore.core.problem import ConvProblem
from dscore.solving.verdict import Verdict

Found = TypeVar("Found")
_OPTIONS = ("layer", "problem", "device", "block_n", "rules", "masked")


@dataclass(frozen=True)
class Defaults:
    """What a configuration that does not say so is judged on."""

    device: str
    rules: Rules


def judged(path: str, defaults: Defaults) -> list[Verdict]:
    """The verdict of each configuration of a file.

    Raises SpecError naming the file, the configuration and the key that does not fit.
    """
    table = catalog.load_toml(path)
    if "configuration" not in table:
        return [_judged(table, path, "", defaults)]
    entries = table.pop("configuration")
    if table:
        raise SpecError(f"{path}: {next(iter(table))} stands beside [[configuration]]; "
                        "move it into each")
    if not isinstance(entries, list) or not entries:
        raise SpecError(f"{path}: configuration must be [[configuration]] tables")
    return [_judged(entry, path, f"configuration[{at}]", defaults)
            for at, entry in enumerate(entries)]


def _judged(entry: Any, path: str, where: str, defaults: Defaults) -> Verdict:
    if not isinstance(entry, dict):
        raise SpecError(f"{path}: {where} must be a table, got {entry!r}")
    try:
        return _verdict(entry, Path(path).parent, defaults)
    except SpecError as error:
        # An error that begins with a key continues the path to it.
        text = str(error).removeprefix("tiling: ")
        key = re.split("[ :]", text)[0]
        joint = "." if key in _OPTIONS or key in entry else ": "
        raise SpecError(f"{path}: {where + joint if where else ''}{text}") from None


def _verdict(entry: dict[str, Any], folder: Path, defaults: Defaults) -> Verdict:
    problem = _problem(entry)
    tiling = {key: value for key, value in entry.items() if key not in _OPTIONS}
    if not tiling:
        raise SpecError("no field of a tiling is given, such as wave_w")
    block_n = entry.get("block_n", 1)
    return api.validate(
        problem, tiling, _device(entry.get("device", defaults.device), folder),
        require_one_of(entry.get("rules", defaults.rules), "rules", RULES), block_n,
        require_one_of(entry.get("masked", False), "masked", (True, False)))


def _problem(entry: dict[str, Any]) -> ConvProblem:
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
    if isinstance(name, str) and name.lower().endswith(".toml") and (folder / name).exists():
        name = folder / name
    return _named("device", api.device_of, name)


def _named(key: str, find: Callable[[Any], Found], name: Any) -> Found:
    try:
        return find(name)
    except SpecError as error:
        raise SpecError(f"{key}: {error}") from None
