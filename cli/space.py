"""`dscore space`: every tiling that fits a layer, ranked, in columns from the solver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import typer

from dscore import api
from dscore.algorithms.registry import tiling_from
from dscore.cli.inputs import layers_of
from dscore.cli.output import counted, print_json, print_table, print_text
from dscore.cli.records import Record, problem_record
from dscore.core.catalog import NamedProblem
from dscore.core.device import Device
from dscore.core.errors import InfeasibleError, require_int
from dscore.core.plan import Rules
from dscore.solving.solver import Space

DEFAULT_TOP = 10
# Of a tiling, that a table of 100 columns has room for.
_MOST_FIELDS = 7
_USE = ("threads", "waves", "lds_bytes", "registers", "block_n", "seconds")


@dataclass(frozen=True)
class Asked:
    """Which space of a layer."""

    rules: str
    masked: bool | None
    algorithm: str | None

    def of(self, layer: NamedProblem, device: Device) -> Space | InfeasibleError:
        """The space, or why there is none."""
        try:
            return api.solve(layer.problem, device, cast(Rules, self.rules), self.masked,
                             self.algorithm)
        except InfeasibleError as nothing:
            return nothing


def run(layers: list[str], device: str, asked: Asked, top: int | None, batch: int | None,
        json: bool) -> None:
    """Print the spaces; exit 1 where a layer has none."""
    if top is not None:
        require_int(top, "--top")
    target, rules = api.device_of(device), asked.rules
    spaces = [(layer, asked.of(layer, target)) for layer in layers_of(layers, batch)]
    if json:
        records = [_record(layer, space, target, rules, top) for layer, space in spaces]
        # Without indentation: tens of thousands of tilings are read by programs.
        print_json(records[0] if len(records) == 1 else records, indent=None)
    elif len(spaces) == 1 or top is not None:
        for layer, space in spaces:
            _show(layer, space, target, top or DEFAULT_TOP)
    else:
        _summarise(spaces, target, rules)
    if any(isinstance(space, InfeasibleError) for _, space in spaces):
        raise typer.Exit(1)


def tilings(space: Space, top: int | None) -> list[Record]:
    """The tilings of *space* with what they use, best first; the *top* best, or all."""
    foot, count = space.case.footprint, len(space)
    order = space.ranked()[:top]
    columns: dict[str, Any] = {
        **vars(space.case.tiling), "threads": foot.threads, "waves": foot.waves,
        "lds_bytes": foot.lds_bytes, "registers": foot.registers, "block_n": space.block_n,
        "seconds": space.costs.seconds}
    ranked = [np.broadcast_to(column, (count,))[order].tolist() for column in columns.values()]
    return [dict(zip(columns, values, strict=True)) for values in zip(*ranked, strict=True)]


def _record(layer: NamedProblem, space: Space | InfeasibleError, device: Device, rules: str,
            top: int | None) -> Record:
    head = {"layer": layer.name, **problem_record(layer.problem), "device": device.name,
            "rules": rules}
    if isinstance(space, InfeasibleError):
        return {**head, "algorithm": None, "masked": None, "legal": None, "valid": 0,
                "note": str(space), "tilings": []}
    return {**head, "algorithm": space.algorithm.name, "masked": space.masked,
            "legal": space.legal, "valid": len(space), "note": space.note,
            "tilings": tilings(space, top)}


def _kind(space: Space) -> str:
    return f"{'masked' if space.masked else 'exact'} {space.algorithm.name}"


def _show(layer: NamedProblem, space: Space | InfeasibleError, device: Device, top: int) -> None:
    """One layer: the counts, and a table of the best."""
    if isinstance(space, InfeasibleError):
        print_text(f"{layer.name}: {space}\n\n")
        return
    name = "" if layer.name == problem_record(layer.problem)["problem"] else f"{layer.name}: "
    print(f"{name}{layer.problem}")
    print(f"on {device}, {space.rules} rules")
    print(f"{counted(space.legal, 'legal tiling')}, {len(space):,} valid ({_kind(space)})")
    if space.note:
        print(f"note: {space.note.rstrip('; ')}")
    best = tilings(space, top)
    print(f"\nthe best {len(best)} by the cost model\n")
    heads, cells = _tiling_columns([{name: value for name, value in row.items()
                                     if name not in _USE} for row in best])
    print_table((*heads, ">threads", ">LDS B", ">regs", ">blocks\nper CU", ">µs"),
                [(*cell, str(row["threads"]), f"{row['lds_bytes']:,}", str(row["registers"]),
                  str(row["block_n"]), f"{row['seconds'] * 1e6:,.2f}")
                 for cell, row in zip(cells, best, strict=True)])
    print()


def _tiling_columns(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Headings and cells: a column a field, or where these pass the width the tiling's name."""
    fields = list(rows[0])
    if len(fields) > _MOST_FIELDS:
        return ["tiling"], [[tiling_from(row).name] for row in rows]
    # Seven fields fit the width only with broken headings.
    broken = len(fields) > _MOST_FIELDS - 1
    heads = [f">{name.replace('_', '_' + chr(10)) if broken else name}" for name in fields]
    return heads, [[str(row[name]) for name in fields] for row in rows]


def _summarise(spaces: list[tuple[NamedProblem, Space | InfeasibleError]], device: Device,
               rules: str) -> None:
    """Many layers: a line each, and the sums."""
    print(f"tilings on {device}, {rules} rules\n")
    print_table(("layer", "problem", ">legal", ">valid", "space", "best by the cost model", ">µs"),
                [_summary(layer, space) for layer, space in spaces])
    found = [space for _, space in spaces if isinstance(space, Space)]
    legal, valid = sum(space.legal for space in found), sum(map(len, found))
    print(f"\n{counted(len(spaces), 'layer')}: {legal:,} legal tilings, {valid:,} valid")


def _summary(layer: NamedProblem, space: Space | InfeasibleError) -> tuple[str, ...]:
    if isinstance(space, InfeasibleError):
        return (layer.name, str(layer.problem), "", "0", "nothing fits", "", "")
    best = int(space.ranked()[0])
    return (layer.name, str(layer.problem), f"{space.legal:,}", f"{len(space):,}",
            "masked" if space.masked else "exact", space[best].name,
            f"{float(space.costs.seconds[best]) * 1e6:,.2f}")
