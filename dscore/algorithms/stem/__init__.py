"""The first layer of a network: a dense convolution of images of up to four channels in NHWC, of 16
bits and int8, on NVIDIA's matrix units."""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.algorithms.base import (
    COMPILER_REGISTERS,
    Algorithm,
    Case,
    Footprint,
    Limit,
    SpaceGenerator,
    Work,
    checker,
)
from dscore.algorithms.columns import Count, ceil_div, remainder
from dscore.algorithms.stem import cost
from dscore.algorithms.stem.space import columns_of
from dscore.algorithms.stem.tiling import (
    EIGHT,
    FOUR,
    PIECE,
    StemTiling,
    copy_of,
    half_taps,
    has_units,
    shape_of,
    steps_of,
    unit_registers,
)
from dscore.core.device import Device
from dscore.core.numerics import WORD_BYTES
from dscore.core.plan import Plan, Violation
from dscore.core.problem import ConvProblem

# Rows and columns of filters: beyond it a wavefront's hardly fit in registers.
MOST_TAPS = 8
# Registers of the place of a unit of pixels on its way.
_UNIT_PLACE = 3
# Registers that nvcc takes beside filters, sums, channels' values and pixels; at most, and beside
# the elements of filters, of which it reads many before it joins the first (docs/registers.md).
_NVCC, _NVCC_MOST, _NVCC_ELEMENTS = 24, 56, 10
# More of these where floats become integers on their way.
_NVCC_FLOATS = 36


def _turns(case: Case) -> Count:
    """Times that a thread waits for pixels of a tile."""
    shape = shape_of(case.problem, case.tiling)
    return ceil_div(shape.turns, shape.together)


def beside_first_layers(problem: ConvProblem, name: str) -> tuple[Violation, ...]:
    """What the algorithm *name*, of first layers or their gradients, does not take of a layer."""
    spec = problem.spec
    if spec.groups > 1 or spec.kind == "pointwise":
        return (Violation("E-KIND", f"layer of {name}", spec.kind, "dense"),)
    wrong = [Violation("E-CHANNELS", f"input channels of {name}", spec.in_channels, FOUR)] * (
        spec.in_channels > FOUR)
    wrong += [Violation("E-TAPS", f"a side of the filter of {name}", max(spec.kernel),
                        MOST_TAPS)] * (max(spec.kernel) > MOST_TAPS)
    wrong += [Violation("E-VECTOR", f"output channels of {name}", spec.out_channels,
                        f"a multiple of {EIGHT}")] * (spec.out_channels % EIGHT > 0)
    return tuple(wrong)


class Stem(Algorithm):
    """Pieces of 16 pixels of a row by filters that stay in registers."""

    name = "stem"
    tiling = StemTiling
    elements, layouts = ("float16", "bfloat16", "int8"), ("nhwc",)
    quantises = True
    limits = (
        Limit("E-MATRIX", "matrix units", "", "",
              lambda c: (1, int(has_units(c.device, c.problem.spec.dtype))),
              lambda c: "of NVIDIA, of the element type"),
        Limit("E-TILE", "part wavefronts", "", "",
              lambda c: (remainder(c.tiling.tile_n, c.tiling.wave_n), 0),
              lambda c: "wave_n divides tile_n"),
        Limit("E-FRAGMENT", "part fragments", "", "",
              lambda c: (remainder(c.tiling.tile_w, PIECE) + remainder(c.tiling.wave_n, EIGHT), 0),
              lambda c: f"{EIGHT} channels x {PIECE} pixels"),
        Limit("E-REPEAT", "turns", "", "",
              lambda c: (np.where(c.tiling.repeat > 1, _turns(c), 1), 1),
              lambda c: "of several tiles the pixels of each come at once"),
    )
    spaces = (SpaceGenerator(True, columns_of),)
    weights = cost.WEIGHTS

    def suits(self, device: Device) -> bool:
        return any(has_units(device, name) for name in self.elements)

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        return beside_first_layers(problem, self.name)

    def arithmetic(self, problem: ConvProblem, t: Any) -> Any:
        return "sum" if problem.spec.element.exact else "matrix16"

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        shape = shape_of(problem, t)
        blocks = shape.channel_tiles * shape.column_tiles * shape.row_blocks * problem.batch
        depth = steps_of(problem) * 2 * half_taps(problem) * FOUR
        pieces = t.repeat * shape.pieces / t.waves_p
        return Footprint(
            threads=shape.waves * wavefront, waves=shape.waves, lds_bytes=shape.lds_bytes,
            registers=_held(problem, t) + COMPILER_REGISTERS, blocks=blocks,
            utilisation=problem.macs / (blocks * t.repeat * t.tile_h * t.tile_w * t.tile_n
                                        * depth),
            fmas=pieces * shape.columns * FOUR * depth,
            # Matrix units take their operands from all of a wavefront's lanes together.
            operand_loads=(pieces * PIECE + shape.columns * EIGHT) * depth / wavefront)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        return _held(problem, t) + _NVCC

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        shape = shape_of(problem, t)
        elements = 2 * steps_of(problem) * shape.columns * half_taps(problem)
        # Of all units on their way what is written to LDS, too.
        units = shape.together * (unit_registers(problem) + _UNIT_PLACE
                                  + shape.unit_bytes // WORD_BYTES)
        floats = _NVCC_FLOATS * (problem.spec.in_dtype is not None)
        return floats + np.maximum(
            _held(problem, t) + np.maximum(_NVCC_MOST, elements + _NVCC_ELEMENTS),
            units + _NVCC_MOST)

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        return bool(problem.out_height % (t.tile_h * t.repeat) or problem.out_width % t.tile_w
                    or problem.spec.out_channels % t.tile_n)

    def work(self, case: Case, grids: Count) -> Work:
        return cost.work(case)

    def traffic(self, case: Case) -> dict[str, Count]:
        return cost.named(case)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        return (t.tile_h, t.tile_w, t.tile_n, t.wave_n, t.waves_p, t.repeat,
                plan.problem.spec.in_channels, copy_of(plan.problem), plan.device.wavefront)

    def image_arguments(self, plan: Plan) -> str:
        return f"_c{plan.problem.spec.in_channels}_v{copy_of(plan.problem)}"

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        t: Any = plan.tiling
        piece = row % t.tile_h * (t.tile_w // PIECE) + column % t.tile_w // PIECE
        return checker(row, t.tile_h * t.repeat, column, t.tile_w), piece % t.waves_p

    def caption(self, plan: Plan) -> list[str]:
        t: Any = plan.tiling
        shape = shape_of(plan.problem, t)
        return [f"a wavefront: {t.wave_n} channels x {PIECE} pixels of a row at a time",
                f"a block: {t.tile_n} channels x {t.tile_h} rows x {t.tile_w} columns"
                f"{f', {t.repeat} times' * (t.repeat > 1)}",
                f"the grid: {shape.channel_tiles} (channels) x {shape.column_tiles} (columns) x "
                f"{shape.row_blocks} (rows) x {plan.problem.batch} (images) blocks"]


def _held(problem: ConvProblem, t: Any) -> Count:
    """Registers of filters, a piece's sums, what results need of their channels, and a fragment of
    pixels; or of units on their way to LDS, where these are more. Of several tiles of both."""
    shape, exact = shape_of(problem, t), problem.spec.element.exact
    # Of bytes a multiplier and what a sum begins with, of each of a lane's channels.
    of_channels = 2 * shape.columns * (2 if exact else int(problem.spec.bias))
    multiplied = 2 * steps_of(problem) * shape.columns + 4 * shape.columns + of_channels + FOUR
    units = (unit_registers(problem) + _UNIT_PLACE) * shape.together
    return np.where(t.repeat > 1, multiplied + units, np.maximum(multiplied, units + of_channels))
