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

from dscore import api
from dscore.algorithms.base import COMPILER_REGISTERS
from dscore.algorithms.channel_distribution.tiling import ChannelDistributionTiling
from dscore.algorithms.channel_distribution.tiling import shape_of as distribution_shape
from dscore.algorithms.columns import ceil_div
from dscore.algorithms.gemm.tiling import GemmTiling
from dscore.algorithms.gemm.tiling import shape_of as gemm_shape
from dscore.algorithms.implicit_gemm.tiling import ImplicitGemmTiling
from dscore.algorithms.implicit_gemm.tiling import shape_of as implicit_gemm_shape
from dscore.algorithms.registry import algorithm_of, running, tiling_from
from dscore.algorithms.row_reuse.tiling import RowReuseTiling
from dscore.algorithms.row_reuse.tiling import shape_of as row_reuse_shape
from dscore.building.ahead_of_time import build
from dscore.building.codegen import KernelSource
from dscore.building.compilers import find_compiler
from dscore.building.toolchain import target
from dscore.core import catalog
from dscore.core.device import Device
from dscore.core.plan import Plan
from dscore.core.tiling import Tiling
from dscore.core.token import parse_problem

MARKER = "<!-- What follows is written by docs/registers.py. -->"
PAGE = Path(__file__).with_name("registers.md")
Row = dict[str, Any]
SEED, CHUNK = 7, 4
# Kernels whose registers are fitted apart, in the order in which random tilings are drawn.
FAMILIES = ("channel_distribution", "gemm", "row_reuse, registers", "row_reuse, lds")


def family_of(tiling: Tiling) -> str:
    """The algorithm of a tiling; row reuse by where the rows come from ("both" is through LDS)."""
    if not isinstance(tiling, RowReuseTiling):
        return tiling.algorithm
    return f"row_reuse, {'registers' if tiling.staging == 'registers' else 'lds'}"


def drawn(device: Device, count: int) -> Iterator[tuple[str, str, Plan]]:
    """First-ranked plans of all layers, then random ones: as many of each family."""
    layers = catalog.find("D1-D30") + catalog.find("P1-P45")
    for layer in layers:
        yield "first", layer.name, api.plan_for(layer.problem, device)
    algorithms = {family: family.partition(",")[0] for family in FAMILIES}
    spaces: dict[str, list[Any]] = {name: [
        (layer, api.solve(layer.problem, device, algorithm=name)) for layer in layers
        if name in [one.name for one in running(layer.problem)]]
        for name in algorithms.values()}
    random, seen = np.random.default_rng(SEED), set()
    for family in itertools.islice(itertools.cycle(FAMILIES), count):
        among = spaces[algorithms[family]]
        while True:
            layer, space = among[int(random.integers(len(among)))]
            plan = space.plan(int(random.integers(len(space))))
            if family_of(plan.tiling) == family and plan.name not in seen:
                break
        seen.add(plan.name)
        yield "random", layer.name, plan


def measure(name: str, device: str, path: str, count: str = "400", sizes: str = "fixed") -> None:
    """Append a row for each kernel to the file."""
    built_for, plans = target(name), list(drawn(catalog.device(device), int(count)))
    version = find_compiler(built_for.kind).version
    with open(path, "a") as file:
        for at in range(0, len(plans), CHUNK):
            part = plans[at:at + CHUNK]
            kernels = [KernelSource(plan, sizes) for *_, plan in part]  # type: ignore[arg-type]
            built = build(kernels, built_for, jobs=1)
            for (sample, layer, plan), kernel in zip(part, kernels, strict=True):
                compared = built.kernels[kernel.name]
                report = compared.reported
                assert report is not None, kernel.name
                file.write(json.dumps({
                    "target": name, "device": device, "compiler": version, "sample": sample,
                    "layer": layer, "problem": plan.token, "tiling": plan.tiling.as_json(),
                    "threads": plan.use.threads, "lds": plan.use.lds_bytes,
                    "predicted": plan.use.registers, "reported": report.registers,
                    "reported_lds": report.lds_bytes, "lds_exact": compared.lds_exact,
                    "spills": report.spills, "scratch": report.scratch_bytes,
                    "waves": report.occupancy_waves}) + "\n")
            print(f"{name}: {at + len(part)} of {len(plans)}", file=sys.stderr)


def features(row: Row) -> tuple[str, tuple[int, int, int]]:
    """The family of a kernel, and the results, the operands and the rest that a thread holds."""
    problem, tiling = parse_problem(row["problem"]), tiling_from(row["tiling"])
    wavefront, family = catalog.device(row["device"]).wavefront, family_of(tiling)
    if isinstance(tiling, ChannelDistributionTiling):
        shape = distribution_shape(problem, tiling, wavefront)
        threads = shape.wave_n * wavefront
        buffered = ceil_div(shape.input_tile, threads) + ceil_div(shape.filter_tile, threads)
        return family, (int(tiling.wave_w * shape.thread_c),
                        int(tiling.wave_w + shape.thread_c), int(buffered))
    if isinstance(tiling, GemmTiling):
        tile = gemm_shape(problem, tiling, wavefront)
        return family, (int(tile.sums), int(tile.operands),
                        int(tile.fetched) if tiling.stages == 2 else 0)
    if isinstance(tiling, RowReuseTiling):
        walk, taps = row_reuse_shape(problem, tiling), problem.spec.kernel
        return family, (int(walk.live_rows * tiling.thread_w), int(walk.columns),
                        taps[0] * taps[1])
    if isinstance(tiling, ImplicitGemmTiling):
        block = implicit_gemm_shape(problem, tiling, wavefront)
        return family, (int(block.sums), int(block.operands + block.places),
                        int(block.fetched) if tiling.stages == 2 else 0)
    thread_c = tiling.as_dict()["thread_c"]
    return family, (thread_c, thread_c, 1)


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
    kernels: dict[str, list[tuple[tuple[int, int, int], int]]] = {}
    for row in rows:
        family, values = features(row)
        if not row["spills"] and not row["scratch"]:
            kernels.setdefault(family, []).append((values, row["reported"]))
    return {family: (np.array([values for values, _ in pairs], float),
                     np.array([reported for _, reported in pairs], float))
            for family, pairs in sorted(kernels.items())}


def fit(values: Any, reported: Any) -> list[str]:
    """Least squares: coefficients, then quantiles of what they leave."""
    columns = np.c_[values, np.ones(len(values))]
    weights, *_ = np.linalg.lstsq(columns, reported, rcond=None)
    return [f"{weight:.2f}" for weight in weights] + quantiles(reported - columns @ weights)


def bound(values: Any, reported: Any) -> tuple[int, int, float]:
    """The whole k and c for which results + operands + k * rest + c covers all, with least slack.
    """
    def tried(k: int) -> tuple[float, int, int]:
        base = values[:, 0] + values[:, 1] + k * values[:, 2]
        c = int(np.ceil((reported - base).max()))
        return float((base + c - reported).mean()), k, c
    slack, k, c = min(tried(k) for k in range(5))
    return k, c, slack


def wanted(row: Row) -> int:
    """Registers that the compiler is predicted to want for the kernel."""
    tiling = tiling_from(row["tiling"])
    return int(algorithm_of(tiling).registers(parse_problem(row["problem"]), tiling,
                                              catalog.device(row["device"])))


def first_ranked(rows: list[Row]) -> str:
    """The table of the plans ranked first."""
    return table("layer | tiling | > threads | > LDS B | > reported | > Eq. 6 | > wanted "
                 "| > reported | > spills | > scratch B | > waves per SIMD", [
                     [row["layer"], tiling_from(row["tiling"]).name, row["threads"], row["lds"],
                      row["reported_lds"], row["predicted"], wanted(row),
                      row["reported"], row["spills"], row["scratch"],
                      "" if row["waves"] is None else row["waves"]]
                     for row in rows if row["sample"] == "first"])


def of_target(name: str, rows: list[Row]) -> str:
    """The section on one target."""
    first = [row for row in rows if row["sample"] == "first"]
    exact = sum(row["lds_exact"] for row in rows)
    by_family = families(rows)
    bad = [[row["layer"], tiling_from(row["tiling"]).name, row["sample"], row["threads"],
            row["predicted"], row["reported"], row["spills"], row["scratch"]]
           for row in rows if row["spills"] or row["scratch"]]
    low = "> min | > 5 % | > median | > 95 % | > max"
    fits = [[family, len(values[1]), *fit(*values)] for family, values in by_family.items()]
    bounds = [[family, *bound(*values)[:2], f"{bound(*values)[2]:.0f}"]
              for family, values in by_family.items()]
    kept = sum(row["reported"] <= wanted(row) for row in rows)
    return "\n".join([
        f"## {name}, planned for {rows[0]['device']}\n",
        f"{rows[0]['compiler']}. {len(rows)} kernels, LDS as predicted in {exact} of them, "
        f"no more registers than wanted in {kept}. "
        "The table has the reported registers less those of Eq. 6, of kernels that do not spill; "
        f"*constant* would cover them all in place of the paper's {COMPILER_REGISTERS}:\n",
        table(f"kernels | {low} | > within | > constant",
              [["first-ranked", *spread(first)], ["all", *spread(rows)]]),
        "Reported registers fitted by least squares as a·results + b·operands + c·rest + d, and "
        "the quantiles of what the fit leaves:\n",
        table(f"family | > kernels | > a | > b | > c | > d | {low}", fits),
        "The smallest whole numbers k and c for which results + operands + k·rest + c covers every "
        "kernel:\n",
        table("family | > k | > c | > mean slack", bounds),
        "Kernels that spill or keep an array in scratch memory, although the hardware rules call "
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
