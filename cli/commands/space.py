"""`dscore space`: every tiling that fits a layer, ranked by the cost model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from dscore.cli import options
from dscore.cli.inputs import layers_of
from dscore.cli.show.json import Record, print_json, problem_record
from dscore.cli.show.text import counted, print_note, print_table, print_text
from dscore.core.errors import InfeasibleError, require_int, require_one_of

if TYPE_CHECKING:
    from dscore.core.catalog import NamedProblem
    from dscore.core.device import Device
    from dscore.core.plan import Rules
    from dscore.solving.solver import Space

_DEFAULT_TOP = 10
_SPARE = ("threads", "LDS B", "regs", "blocks\nper CU")
_SPARE_OF_MANY = ("legal", "space", "problem")
_USE = ("threads", "waves", "lds_bytes", "registers", "block_n", "seconds")


def space(
    layers: options.Layers,
    device: options.DeviceName = None,
    rules: options.RulesName = "hardware",
    masked: Annotated[bool | None, typer.Option(
        "--masked/--exact", show_default=False,
        help="Tiles that may reach past the output (masked), or that divide it (exact).  "
             "[default: exact if any fits]")] = None,
    algorithm: options.Algorithm = None,
    arithmetic: options.Arithmetic = "sum",
    top: Annotated[int | None, typer.Option(
        "--top", metavar="N", show_default=False,
        help="Show the best N tilings.  [default: 10; with --json all]")] = None,
    batch: options.Batch = None,
    json: options.Json = False,
) -> None:
    """List the tilings that fit, best first by the cost model.

    One layer gives a table of its best tilings. Several layers give a line each, and the sums;
    with --top they give a table each.

    \b
    dscore space P13
    dscore space P1-P45 --rules paper
    dscore space n1c3h13w13_o7k1 --masked --top 3 --json
    dscore space P28 --algorithm channel_distribution
    """
    from dscore import api
    from dscore.algorithms.registry import names

    if top is not None:
        require_int(top, "--top")
    if algorithm is not None:
        require_one_of(algorithm, "--algorithm", names())
    target, assumed = api.assumed_device() if device is None else (api.device_of(device), "")
    spaces = [(layer, _space_of(layer, target, rules, masked, algorithm))
              for layer in layers_of(layers, batch, arithmetic)]
    if assumed and not json:
        print_note(f"assumed device: {assumed}\n\n")
    if json:
        records = [_record(layer, space, target, rules, top) for layer, space in spaces]
        # Without indentation: tens of thousands of tilings are read by programs.
        print_json(records[0] if len(records) == 1 else records, indent=None)
    elif len(spaces) == 1 or top is not None:
        for layer, space in spaces:
            _show(layer, space, target, top or _DEFAULT_TOP)
    else:
        _summarise(spaces, target, rules)
    if any(isinstance(space, InfeasibleError) for _, space in spaces):
        raise typer.Exit(1)


def _space_of(layer: NamedProblem, device: Device, rules: str, masked: bool | None,
              algorithm: str | None) -> Space | InfeasibleError:
    """The space of a layer, or why there is none."""
    from dscore import api

    try:
        return api.solve(layer.problem, device, cast("Rules", rules), masked, algorithm)
    except InfeasibleError as error:
        return error


def _tilings(space: Space, top: int | None) -> list[Record]:
    """The tilings of *space* with what they use, best first; the *top* best, or all."""
    import numpy as np

    footprint, count = space.case.footprint, len(space)
    order = space.ranked()[:top]
    columns: dict[str, Any] = {
        **vars(space.case.tiling), "threads": footprint.threads, "waves": footprint.waves,
        "lds_bytes": footprint.lds_bytes, "registers": footprint.registers,
        "block_n": space.block_n, "seconds": space.costs.seconds}
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
            "tilings": _tilings(space, top)}


def _kind(space: Space) -> str:
    return f"{'masked' if space.masked else 'exact'} {space.algorithm.name}"


def _show(layer: NamedProblem, space: Space | InfeasibleError, device: Device, top: int) -> None:
    """One layer: the counts, and a table of the best."""
    if isinstance(space, InfeasibleError):
        print_text(f"{layer.name}: {space}\n\n")
        return
    name = "" if layer.name == problem_record(layer.problem)["problem"] else f"{layer.name}: "
    print_note(f"{name}{layer.problem}\non {device}, {space.rules} rules\n"
               f"{counted(space.legal, 'legal tiling')}, {len(space):,} valid ({_kind(space)})")
    if space.note:
        print_note(f"note: {space.note.rstrip('; ')}")
    best = _tilings(space, top)
    print_note(f"\nthe best {len(best)} by the cost model\n\n")
    heads = (">threads", ">LDS B", ">regs", ">blocks\nper CU", ">µs")
    cells = [(str(row["threads"]), f"{row['lds_bytes']:,}", str(row["registers"]),
              str(row["block_n"]), f"{row['seconds'] * 1e6:,.2f}") for row in best]
    tilings = [{name: value for name, value in row.items() if name not in _USE} for row in best]
    print_table(*_widest_fitting(tilings, heads, cells), spare=_SPARE)
    print()


def _widest_fitting(tilings: list[Record], heads: tuple[str, ...],
                    cells: Sequence[tuple[str, ...]]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: a column a field of the tiling, else its name, and behind it *cells*."""
    from dscore.algorithms.registry import tiling_from
    from dscore.cli.show.layout import columns_of, total
    from dscore.cli.show.screen import columns

    fields = list(tilings[0])
    table = ([*(f">{name}" for name in fields), *heads],
             [[*(str(tiling[name]) for name in fields), *cell]
              for tiling, cell in zip(tilings, cells, strict=True)])
    if total(columns_of(*table)) <= columns():
        return table
    return (["tiling", *heads], [[tiling_from(tiling).name, *cell]
                                 for tiling, cell in zip(tilings, cells, strict=True)])


def _summarise(spaces: list[tuple[NamedProblem, Space | InfeasibleError]], device: Device,
               rules: str) -> None:
    """Many layers: a line each, and the sums."""
    print_note(f"tilings on {device}, {rules} rules\n\n")
    print_table(("layer", "problem", ">legal", ">valid", "space", "best by the cost model", ">µs"),
                [_summary(layer, space) for layer, space in spaces], spare=_SPARE_OF_MANY)
    fitting = [space for _, space in spaces if not isinstance(space, InfeasibleError)]
    legal, valid = sum(space.legal for space in fitting), sum(map(len, fitting))
    print_note(f"\n{counted(len(spaces), 'layer')}: {legal:,} legal tilings, {valid:,} valid")


def _summary(layer: NamedProblem, space: Space | InfeasibleError) -> tuple[str, ...]:
    if isinstance(space, InfeasibleError):
        return (layer.name, str(layer.problem), "", "0", "nothing fits", "", "")
    best = int(space.ranked()[0])
    return (layer.name, str(layer.problem), f"{space.legal:,}", f"{len(space):,}",
            "masked" if space.masked else "exact", space[best].name,
            f"{float(space.costs.seconds[best]) * 1e6:,.2f}")
