"""The file that `dscore validate` reads: one configuration at the top, or [[configuration]]s."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dscore import api, catalog
from dscore.errors import SpecError, require_one_of
from dscore.plan import RULES, Rules
from dscore.verdict import Verdict

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
    try:
        if not isinstance(entry, dict):
            raise SpecError(f"must be a table, got {entry!r}")
        return _verdict(entry, Path(path).parent, defaults)
    except SpecError as error:
        # An error that begins with a key continues the path to it.
        key = str(error).partition(" ")[0]
        joint = "." if key in entry or key in _OPTIONS else ": "
        raise SpecError(f"{path}: {where + joint if where else ''}{error}") from None


def _verdict(entry: dict[str, Any], folder: Path, defaults: Defaults) -> Verdict:
    tiling = {key: value for key, value in entry.items() if key not in _OPTIONS}
    if not tiling:
        raise SpecError("no field of a tiling is given, such as wave_w")
    return api.validate(
        _problem(entry), tiling, _device(entry.get("device", defaults.device), folder),
        require_one_of(entry.get("rules", defaults.rules), "rules", RULES),
        entry.get("block_n", 1),
        require_one_of(entry.get("masked", False), "masked", (True, False)))


def _problem(entry: dict[str, Any]) -> str:
    given = [key for key in ("layer", "problem") if key in entry]
    if len(given) != 1:
        raise SpecError("layer and problem are both given; keep one" if given else
                        "layer (or problem) is missing")
    text = entry[given[0]]
    if not isinstance(text, str):
        raise SpecError(f"{given[0]} must be a text, such as \"P13\", got {text!r}")
    return text


def _device(named: Any, folder: Path) -> Any:
    """A device's name, or its file, which is sought beside the configuration's."""
    if isinstance(named, str) and named.lower().endswith(".toml"):
        beside = folder / named
        return beside if beside.exists() else named
    return named
