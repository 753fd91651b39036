"""Pointwise convolution and its gradients as products of matrices whose operands lie in either
order of their axes: of NHWC, of NCHW in 16 bits, and of images of one pixel; of floats and int8."""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.algorithms.base import (
    COMPILER_REGISTERS,
    VECTOR_BYTES,
    Algorithm,
    Case,
    Footprint,
    Limit,
    SpaceGenerator,
    Work,
)
from dscore.algorithms.columns import (
    Count,
    ceil_div,
    floor_div,
    power_of_two_within,
    remainder,
)
from dscore.algorithms.gemm import CLUSTER_LIMIT, LEAST_SPLIT_CHANNELS, MOST_STAGES
from dscore.algorithms.gemm_universal import cost
from dscore.algorithms.gemm_universal.space import columns_of
from dscore.algorithms.gemm_universal.tiling import (
    TURNED,
    GemmUniversalTiling,
    channels_last,
    fragment_of,
    gathered,
    lds_bytes,
    on_units,
    shape_of,
    sizes_of,
    splits,
    streams,
    turned,
    vectors_of,
)
from dscore.algorithms.refusal import require_kind
from dscore.algorithms.registers import roomy
from dscore.algorithms.split_k import MOST_PARTS
from dscore.algorithms.split_k.tiling import SUM_THREADS, sum_rows
from dscore.core.device import MATRIX_WAVEFRONT, Device
from dscore.core.numerics import ACCUMULATOR, FLOATS, WORD_BYTES
from dscore.core.plan import Launch, Plan, Violation
from dscore.core.problem import MAX_ELEMENTS, ConvProblem
from dscore.core.spec import LAYOUTS

# The kernel that adds parts takes at most so many elements at a time.
MOST_ADDED = 4
# Registers that a compiler takes beside sums, operands and what is fetched (docs/registers.md).
_HIPCC, _NVCC, _NVCC_LEAST = 48, 48, 90
# What it takes at most in place of these: where elements move one by one, or joins read ahead.
_HIPCC_MOST, _NVCC_MOST = 84, 94
# What hipcc takes beyond, of a step of so many channels, whose loops it unrolls.
_LONG_STEP, _HIPCC_LONG = 256, 32


def _fragment_m(case: Case) -> Count:
    return np.where(on_units(case.tiling), 16, case.tiling.lanes_m)


def _fragment_n(case: Case) -> Count:
    columns, beside = 8 if case.device.wavefront == MATRIX_WAVEFRONT else 16, 1
    if turned(case.problem):
        columns, beside = 2 * columns if columns == 8 else TURNED * columns, TURNED
    return np.where(on_units(case.tiling), columns, beside * np.maximum(
        floor_div(case.device.wavefront, case.tiling.lanes_m), 1))


def _fragment_k(case: Case) -> Count:
    return fragment_of(case.problem.spec.element, case.tiling)


def _lanes(case: Case) -> Count:
    t = case.tiling
    return np.where(on_units(t) & (t.lanes_m != 8), case.device.wavefront + 1, t.lanes_m)


def _unaligned(case: Case) -> Count:
    """Elements by which rows of tiles miss whole vectors."""
    t, sizes = case.tiling, sizes_of(case.problem)
    most = VECTOR_BYTES // case.problem.spec.element.bytes
    return (remainder(t.step, most) * (sizes.along_a or sizes.along_b)
            + remainder(t.tile_m, most) * (not sizes.along_a) + remainder(t.tile_n, most))


def _stages(case: Case) -> tuple[Count, int]:
    return case.tiling.stages, MOST_STAGES if case.device.asynchronous_copies else 2


def _most_parts(case: Case) -> int:
    # The elements of the workspace are counted in 32 bits, as those of an operand are.
    spec = case.problem.spec
    if case.problem.operation != "weight_gradient":
        return 1
    return min(MOST_PARTS, MAX_ELEMENTS // (spec.in_channels * spec.out_channels))


def _unmatched(case: Case) -> Count:
    """Whether a tiling's matrix units are not the device's, or not for elements of the type."""
    t, element, types = case.tiling, case.problem.spec.element, case.device.matrix_types
    tf32 = ("tf32" in types and element == ACCUMULATOR
            and sizes_of(case.problem).k >= LEAST_SPLIT_CHANNELS)
    unit = np.asarray(t.arithmetic) == ("matrix8" if element.exact else "matrix16")
    return np.where(splits(t), 1 - tf32, 1 * (on_units(t) & (
        np.logical_not(unit) | (element.name not in types))))


def _unrepeatable(case: Case) -> Count:
    """Whether a block takes several tiles of rows that cannot follow one another."""
    t = case.tiling
    whole = (t.step >= sizes_of(case.problem).k) & (t.stages > 1) & (
        t.slices * t.cluster * t.parts == 1)
    return (t.repeat > 1) & np.logical_not(whole & streams(case.problem))


def _rounds_scaled(case: Case) -> Count:
    """Whether x times its scale, which lies in LDS, would be rounded though sums are not to err."""
    spec = case.problem.spec
    short = spec.element != ACCUMULATOR and not spec.element.exact
    return 1 * (spec.scaled and short) * (1 - 1 * on_units(case.tiling))


class GemmUniversal(Algorithm):
    """Rows by columns of a result, of operands whose rows are summed or are those of results."""

    name = "gemm_universal"
    tiling = GemmUniversalTiling
    operations = ("conv", "input_gradient", "weight_gradient")
    elements = (*FLOATS, "int8")
    layouts = LAYOUTS
    limits = (
        Limit("E-TILE", "part wavefronts", "", "",
              lambda c: (remainder(c.tiling.tile_m, c.tiling.wave_m)
                         + remainder(c.tiling.tile_n, c.tiling.wave_n), 0),
              lambda c: "wave_m divides tile_m, wave_n tile_n"),
        Limit("E-FRAGMENT", "part fragments", "", "",
              lambda c: (remainder(c.tiling.wave_m, _fragment_m(c))
                         + remainder(c.tiling.wave_n, _fragment_n(c)), 0),
              lambda c: f"{_fragment_m(c)} rows x {_fragment_n(c)} columns"),
        Limit("E-LANES", "lanes_m", "", "",
              lambda c: (_lanes(c), power_of_two_within(c.tiling.lanes_m, c.device.wavefront)),
              lambda c: "a power of two; 8 on matrix units"),
        Limit("E-SLICE", "elements left", "", "",
              lambda c: (remainder(c.tiling.step, c.tiling.slices * _fragment_k(c)), 0),
              lambda c: f"step by slices, in fragments of {_fragment_k(c)}"),
        Limit("E-VECTOR", "elements left", "", "", lambda c: (_unaligned(c), 0),
              lambda c: "rows of tiles in vectors of 16 bytes"),
        Limit("E-STAGES", "stages", "", "", _stages,
              lambda c: "more than 2 need asynchronous copies"),
        CLUSTER_LIMIT,
        Limit("E-PARTS", "parts", "", "", lambda c: (c.tiling.parts, _most_parts(c)),
              lambda c: "of a weight gradient; each has a result of its own in the workspace"),
        Limit("E-SPLIT", "matrix units", "", "", lambda c: (_unmatched(c), 0),
              lambda c: "matrix units of the element type; tf32x3: of TF32, "
              f"{LEAST_SPLIT_CHANNELS} summed elements or more"),
        Limit("E-REPEAT", "repeat", "", "", lambda c: (1 * _unrepeatable(c), 0),
              lambda c: "tiles of pixels, all summed elements in a step, two stages or more, no "
              "slices or cluster"),
        Limit("E-SCALE", "plain", "", "", lambda c: (_rounds_scaled(c), 0),
              lambda c: "x times its scale is rounded to its type, which matrix16 allows"),
    )
    spaces = (SpaceGenerator(True, columns_of),)
    weights = cost.WEIGHTS
    own_weights = {"input_gradient": cost.INPUT_GRADIENT,  # noqa: RUF012
                   "weight_gradient": cost.WEIGHT_GRADIENT, "int8": cost.BYTES}

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        if not channels_last(problem) and problem.spec.element == ACCUMULATOR:
            return (Violation("E-LAYOUT", f"layout of {self.name}", "nchw",
                              "nhwc; nchw of elements of 16 or 8 bits, or of images of one pixel"),)
        return require_kind(problem, self.name, "pointwise")

    def chain(self, problem: ConvProblem, t: Any) -> int:
        steps = ceil_div(ceil_div(sizes_of(problem).k, t.step), t.parts * t.cluster)
        # Of three TF32 products a step is summed apart; of 16 bits, whose results are rounded more
        # coarsely, all of a block's steps in one sum.
        products = ceil_div(t.step, t.slices)
        return int((products + steps if splits(t) else products * steps)
                   + t.slices + t.cluster + t.parts)

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        shape = shape_of(problem, t, wavefront)
        tiles = shape.blocks_m * shape.tiles_n
        depth = t.repeat * floor_div(shape.steps * t.step, t.slices)
        blocks = t.parts * t.cluster * tiles
        # Matrix units take their operands from all of a wavefront's lanes together.
        read = np.where(on_units(t), (t.wave_m + t.wave_n) / wavefront,
                        t.wave_m / t.lanes_m + t.wave_n * t.lanes_m / wavefront)
        return Footprint(
            threads=shape.waves * wavefront, waves=shape.waves,
            lds_bytes=lds_bytes(problem, t, shape),
            registers=shape.sums + _held_registers(problem, t, shape) + COMPILER_REGISTERS,
            blocks=blocks,
            utilisation=problem.macs / (blocks * t.repeat * t.tile_m * t.tile_n
                                        * (shape.steps * t.step)),
            fmas=shape.sums * depth, operand_loads=read * depth)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        shape = shape_of(problem, t, device.wavefront)
        rest = _NVCC if device.vendor == "nvidia" else _HIPCC
        return shape.sums + _held_registers(problem, t, shape) + rest

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        wanted = self.registers(problem, t, device)
        if gathered(problem) or 1 in vectors_of(problem)[:2]:
            # Each pixel has an address of its own, in each step that a compiler unrolls.
            return np.full_like(wanted, device.registers_per_simd_lane)
        if device.vendor != "nvidia":
            long = np.asarray(t.step) >= _LONG_STEP
            return wanted + _HIPCC_MOST * roomy(device) + _HIPCC_LONG * long
        return np.maximum(wanted + _NVCC_MOST - _NVCC, _NVCC_LEAST)

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        sizes = sizes_of(problem)
        return bool(sizes.m % t.tile_m or sizes.n % t.tile_n or sizes.k % t.step)

    def workspace_bytes(self, problem: ConvProblem, t: Any) -> int:
        weights = problem.spec.out_channels * problem.spec.in_channels
        return int(ACCUMULATOR.bytes * t.parts * weights) if t.parts > 1 else 0

    def further_launches(self, problem: ConvProblem, t: Any) -> tuple[Launch, ...]:
        if t.parts == 1:
            return ()
        width, rows = min(vectors_of(problem)[2], MOST_ADDED), sum_rows(t.parts)
        vectors = problem.spec.out_channels * problem.spec.in_channels // width
        bytes_ = ACCUMULATOR.bytes * width * SUM_THREADS if rows > 1 else 0
        return (Launch(ceil_div(vectors, SUM_THREADS // rows), SUM_THREADS, bytes_),)

    def work(self, case: Case, grids: Count) -> Work:
        return cost.work(case)

    def traffic(self, case: Case) -> dict[str, Count]:
        return cost.named(case)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        return (t.tile_m, t.tile_n, t.wave_m, t.wave_n, t.lanes_m, t.slices, t.step, t.stages,
                t.cluster, t.parts, t.repeat, int(t.staged), f"dscore::Products::{t.arithmetic}",
                *vectors_of(plan.problem),
                int(gathered(plan.problem)), int(channels_last(plan.problem)),
                f"DSCORE_{plan.problem.spec.layout.upper()}", plan.device.wavefront)

    def image_arguments(self, plan: Plan) -> str:
        return ("_v{}x{}x{}".format(*vectors_of(plan.problem)) + "_g" * gathered(plan.problem)
                + "_planes" * (not channels_last(plan.problem)))

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        t: Any = plan.tiling
        if plan.problem.operation == "weight_gradient":
            return 0, 0
        of_input = plan.problem.operation == "input_gradient"
        pixel = row * (plan.problem.width if of_input else plan.problem.out_width) + column
        if not channels_last(plan.problem):
            return pixel // t.tile_n % 2, pixel % t.tile_n // t.wave_n
        waves_n = t.tile_n // t.wave_n
        return pixel // (t.tile_m * t.repeat) % 2, pixel % t.tile_m // t.wave_m * waves_n

    def caption(self, plan: Plan) -> list[str]:
        t: Any = plan.tiling
        shape = shape_of(plan.problem, t, plan.device.wavefront)
        m, n, k = {"conv": ("pixels", "channels", "input channels"),
                   "input_gradient": ("pixels", "channels", "output channels"),
                   "weight_gradient": ("output channels", "input channels", "pixels")}[
                       plan.problem.operation]
        if not (channels_last(plan.problem) or k == "pixels"):
            m, n = n, m
        sharing = f", {t.slices} sharing the {k} of a step" * (t.slices > 1)
        shares = "".join(f" x {count} ({what})" for count, what in (
            (t.cluster, "sharing the steps"), (t.parts, f"parts of the {k}")) if count > 1)
        return [f"a wavefront: {t.wave_m} {m} x {t.wave_n} {n}{sharing}",
                f"a block: {t.tile_m} {m} x {t.tile_n} {n}"
                + f", {t.repeat} times" * (t.repeat > 1) + f"; {t.step} {k} a step",
                f"the grid: {shape.tiles_n} ({n}) x {shape.blocks_m} ({m}){shares} blocks"]


def _held_registers(problem: ConvProblem, t: Any, shape: Any) -> Count:
    """Registers of a thread's operands, of what it fetches, as rings of two are filled by itself,
    and of a step's sums."""
    fetched = np.where((t.stages == 2) & (t.repeat == 1), shape.fetched, 0)
    return np.where(splits(t), shape.sums, 0) + sum(
        ceil_div(problem.spec.element.bytes * count, WORD_BYTES)
        for count in (shape.operands_a, shape.operands_b, fetched))
