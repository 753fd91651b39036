"""Measures predicted against reported registers, and writes the tables of docs/registers.md.

    python docs/registers.py measure gfx906 z100sm rows.jsonl [random tilings, 400] [any|fixed]
    python docs/registers.py measure sm_90 h200 rows.jsonl
    python docs/registers.py report rows.jsonl

`measure` compiles one kernel at a time for each of D1-D30 and P1-P45 as ranked first, and random
tilings that the hardware rules call valid, and appends to the file; it needs no GPU. `report`
replaces what follows the marker in docs/registers.md.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dscore import api, catalog, solver
from dscore.backends.building import build
from dscore.backends.codegen import KernelSource
from dscore.backends.toolchain import find_compiler, target
from dscore.device import Device
from dscore.geometry import ceil_div, depthwise_shape, matrix_shape, pointwise_shape
from dscore.notation import parse_problem
from dscore.plan import Plan
from dscore.registers import compiled_registers
from dscore.resources import COMPILER_REGISTERS
from dscore.tiling import DepthwiseTiling, MatrixTiling, PointwiseTiling, Tiling, tiling_from

MARKER = "<!-- What follows is written by docs/registers.py. -->"
PAGE = Path(__file__).with_name("registers.md")
Row = dict[str, Any]
SEED, CHUNK = 7, 4
# The algorithm by which each family of kernels runs, as dscore.registers tells them apart.
ALGORITHMS = {"pointwise": PointwiseTiling.algorithm, "matrix": MatrixTiling.algorithm,
              "registers": DepthwiseTiling.algorithm, "lds": DepthwiseTiling.algorithm}


def family_of(tiling: Tiling) -> str:
    """The family of a tiling: what passes its results through LDS passes its rows, too."""
    if isinstance(tiling, DepthwiseTiling):
        return "registers" if tiling.staging == "registers" else "lds"
    return next((family for family, algorithm in ALGORITHMS.items()
                 if algorithm == tiling.algorithm), "direct")


def drawn(device: Device, count: int) -> Iterator[tuple[str, str, Plan]]:
    """First-ranked plans of all layers, then random ones: as many of each family."""
    layers = catalog.find("D1-D30") + catalog.find("P1-P45")
    for layer in layers:
        yield "first", layer.name, api.plan_for(layer.problem, device)
    spaces: dict[str, list[Any]] = {algorithm: [
        (layer, api.solve(layer.problem, device, algorithm=algorithm)) for layer in layers
        if algorithm in solver.algorithms(layer.problem)] for algorithm in ALGORITHMS.values()}
    random, seen = np.random.default_rng(SEED), set()
    for family in itertools.islice(itertools.cycle(ALGORITHMS), count):
        among = spaces[ALGORITHMS[family]]
        while True:
            layer, space = among[int(random.integers(len(among)))]
            plan = space.plan(int(random.integers(len(space))))
            if family_of(plan.tiling) == family and plan.name not in seen:
                break
        seen.add(plan.name)
        yield "random", layer.name, plan


def measure(name: str, device: str, path: str, count: str = "400", sizes: str = "fixed") -> None:
    """Append a row for each kernel to the file."""
    aim, wanted = target(name), list(drawn(catalog.device(device), int(count)))
    version = find_compiler(aim.kind).version
    with open(path, "a") as file:
        for at in range(0, len(wanted), CHUNK):
            part = wanted[at:at + CHUNK]
            kernels = [KernelSource(plan, sizes) for *_, plan in part]  # type: ignore[arg-type]
            built = build(kernels, aim, jobs=1)
            for (sample, layer, plan), kernel in zip(part, kernels, strict=True):
                compared = built.kernels[kernel.name]
                said = compared.reported
                assert said is not None, kernel.name
                file.write(json.dumps({
                    "target": name, "device": device, "compiler": version, "sample": sample,
                    "layer": layer, "problem": plan.token, "tiling": plan.tiling.as_dict(),
                    "threads": plan.use.threads, "lds": plan.use.lds_bytes,
                    "predicted": plan.use.registers, "reported": said.registers,
                    "reported_lds": said.lds_bytes, "lds_exact": compared.lds_exact,
                    "spills": said.spills, "scratch": said.scratch_bytes,
                    "waves": said.occupancy_waves}) + "\n")
            print(f"{name}: {at + len(part)} of {len(wanted)}", file=sys.stderr)


def features(row: Row) -> tuple[str, tuple[int, int, int]]:
    """The family, and its results, operands and what else a thread holds."""
    problem, tiling = parse_problem(row["problem"]), tiling_from(row["tiling"])
    wavefront = catalog.device(row["device"]).wavefront
    if isinstance(tiling, PointwiseTiling):
        shape = pointwise_shape(problem, tiling, wavefront)
        threads = shape.wave_n * wavefront
        buffered = ceil_div(shape.input_tile, threads) + ceil_div(shape.filter_tile, threads)
        return "pointwise", (int(tiling.wave_w * shape.thread_c),
                             int(tiling.wave_w + shape.thread_c), int(buffered))
    if isinstance(tiling, MatrixTiling):
        tile = matrix_shape(problem, tiling, wavefront)
        return "matrix", (int(tile.sums), int(tile.operands),
                          int(tile.fetched) if tiling.stages == 2 else 0)
    if isinstance(tiling, DepthwiseTiling):
        walk, taps = depthwise_shape(problem, tiling), problem.spec.kernel
        return (f"depthwise, {family_of(tiling)}",
                (int(walk.live_rows * tiling.thread_w), int(walk.columns), taps[0] * taps[1]))
    return "direct", (tiling.thread_c, tiling.thread_c, 1)


def table(heads: str, rows: list[list[Any]]) -> str:
    """A Markdown table; a column whose head begins with > is aligned to the right."""
    names = heads.split("|")
    lines = ["| " + " | ".join(name.strip(" >") for name in names) + " |",
             "|" + "|".join("---:" if ">" in name else "---" for name in names) + "|"]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"


def quantiles(values: Any) -> list[str]:
    return [f"{value:.0f}" for value in np.quantile(values, [0, .05, .5, .95, 1])]


def spread(rows: list[Row]) -> list[Any]:
    """How far the compiler is from the prediction, and the constant that would cover all."""
    over = np.array([row["reported"] - row["predicted"] for row in rows if not row["spills"]])
    return [*quantiles(over), f"{(over <= 0).sum()} of {len(over)}",
            over.max() + COMPILER_REGISTERS]


def families(rows: list[Row]) -> dict[str, tuple[Any, Any]]:
    """Features and reported registers of the kernels that do not spill, by family."""
    held: dict[str, list[tuple[tuple[int, int, int], int]]] = {}
    for row in rows:
        family, found = features(row)
        if not row["spills"] and not row["scratch"]:
            held.setdefault(family, []).append((found, row["reported"]))
    return {family: (np.array([found for found, _ in pairs], float),
                     np.array([reported for _, reported in pairs], float))
            for family, pairs in sorted(held.items())}


def fit(found: Any, reported: Any) -> list[str]:
    """Least squares: coefficients, then quantiles of what they leave."""
    columns = np.c_[found, np.ones(len(found))]
    weights, *_ = np.linalg.lstsq(columns, reported, rcond=None)
    return [f"{weight:.2f}" for weight in weights] + quantiles(reported - columns @ weights)


def bound(found: Any, reported: Any) -> tuple[int, int, float]:
    """The whole k and c for which results + operands + k * rest + c covers all, with least slack.
    """
    def tried(k: int) -> tuple[float, int, int]:
        base = found[:, 0] + found[:, 1] + k * found[:, 2]
        c = int(np.ceil((reported - base).max()))
        return float((base + c - reported).mean()), k, c
    slack, k, c = min(tried(k) for k in range(5))
    return k, c, slack


def most(row: Row) -> int:
    """Registers that the model of dscore.registers allows the kernel."""
    tiling = tiling_from(row["tiling"])
    return int(compiled_registers(parse_problem(row["problem"]), catalog.device(row["device"]),
                                  type(tiling), tiling))


def first_ranked(rows: list[Row]) -> str:
    """The table of the plans ranked first."""
    return table("layer | tiling | > threads | > LDS B | > reported | > Eq. 6 | > at most "
                 "| > reported | > spills | > scratch B | > waves per SIMD", [
                     [row["layer"], tiling_from(row["tiling"]).name, row["threads"], row["lds"],
                      row["reported_lds"], row["predicted"], most(row),
                      row["reported"], row["spills"], row["scratch"],
                      "" if row["waves"] is None else row["waves"]]
                     for row in rows if row["sample"] == "first"])


def of_target(name: str, rows: list[Row]) -> str:
    """The section on one target."""
    first = [row for row in rows if row["sample"] == "first"]
    exact = sum(row["lds_exact"] for row in rows)
    held = families(rows)
    bad = [[row["layer"], tiling_from(row["tiling"]).name, row["sample"], row["threads"],
            row["predicted"], row["reported"], row["spills"], row["scratch"]]
           for row in rows if row["spills"] or row["scratch"]]
    low = "> min | > 5 % | > median | > 95 % | > max"
    fits = [[family, len(values[1]), *fit(*values)] for family, values in held.items()]
    bounds = [[family, *bound(*values)[:2], f"{bound(*values)[2]:.0f}"]
              for family, values in held.items()]
    kept = sum(row["reported"] <= most(row) for row in rows)
    return "\n".join([
        f"## {name}, planned for {rows[0]['device']}\n",
        f"{rows[0]['compiler']}. {len(rows)} kernels, LDS as predicted in {exact} of them, "
        f"registers within the model's bound in {kept}. "
        "Reported registers less those of Eq. 6, where nothing spills; *constant* is what in place "
        f"of the paper's {COMPILER_REGISTERS} would cover them all:\n",
        table(f"kernels | {low} | > within | > constant",
              [["first-ranked", *spread(first)], ["all", *spread(rows)]]),
        "Registers fitted as a·results + b·operands + c·rest + d by least squares, and the "
        "quantiles of what that leaves:\n",
        table(f"family | > kernels | > a | > b | > c | > d | {low}", fits),
        "The smallest whole numbers for which results + operands + k·rest + c is never below:\n",
        table("family | > k | > c | > mean slack", bounds),
        "Kernels that spill, or keep an array in scratch memory, although the hardware rules call "
        "their plans valid:\n",
        table("layer | tiling | sample | > threads | > predicted | > reported | > spills "
              "| > scratch B", bad) if bad else "none\n",
        "First-ranked plans:\n", first_ranked(rows)])


def report(*paths: str) -> None:
    """Write the tables behind the page's marker."""
    rows = [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]
    targets = dict.fromkeys(row["target"] for row in rows)
    head = PAGE.read_text().partition(MARKER)[0]
    parts = [of_target(name, [row for row in rows if row["target"] == name]) for name in targets]
    PAGE.write_text(head + MARKER + "\n\n" + "\n".join(parts))


if __name__ == "__main__":
    {"measure": measure, "report": report}[sys.argv[1]](*sys.argv[2:])
