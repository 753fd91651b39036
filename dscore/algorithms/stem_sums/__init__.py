"""Weight gradient of the first layer of a network: a dense convolution of images of up to four
channels in NHWC, of 16 bits, on NVIDIA's matrix units."""

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
from dscore.algorithms.stem import beside_first_layers
from dscore.algorithms.stem.tiling import EIGHT, FOUR, PIECE, copy_of, has_units, unit_registers
from dscore.algorithms.stem_sums import cost
from dscore.algorithms.stem_sums.space import columns_of
from dscore.algorithms.stem_sums.tiling import (
    FRAGMENT,
    StemSumsTiling,
    fragments_of,
    shape_of,
)
from dscore.algorithms.tap_sums import MOST_SLICES
from dscore.algorithms.tap_sums.tiling import parts_bytes, parts_launches
from dscore.core.device import Device
from dscore.core.plan import Launch, Plan, Violation
from dscore.core.problem import ConvProblem

# Registers of a thread for the units of a tile's pixels on their way, with the place of each.
_MOST_UNIT_REGISTERS, _UNIT_PLACE = 72, 3
# Registers that nvcc takes beside sums, fragments and units, and for each fragment of sums, as it
# reads those of pixels early; at most (docs/registers.md).
_NVCC, _NVCC_EARLY, _NVCC_MOST, _NVCC_MOST_EARLY = 28, 1, 48, 2


class StemSums(Algorithm):
    """Products of pieces of 16 pixels with the gradient, whose sums stay in registers."""

    name = "stem_sums"
    tiling = StemSumsTiling
    operations = ("weight_gradient",)
    elements, layouts = ("float16", "bfloat16"), ("nhwc",)
    limits = (
        Limit("E-MATRIX", "matrix units", "", "",
              lambda c: (1, int(has_units(c.device, c.problem.spec.dtype))),
              lambda c: "of NVIDIA, of the element type"),
        Limit("E-TILE", "part wavefronts", "", "",
              lambda c: (remainder(c.tiling.tile_m, c.tiling.wave_m), 0),
              lambda c: "wave_m divides tile_m"),
        Limit("E-FRAGMENT", "part fragments", "", "",
              lambda c: (remainder(c.tiling.tile_w, PIECE)
                         + remainder(c.tiling.wave_m, FRAGMENT), 0),
              lambda c: f"{FRAGMENT} channels x {PIECE} pixels"),
        Limit("E-TURNS", "registers of pixels on their way", "", "",
              lambda c: (_on_way(c.problem, c.tiling), _MOST_UNIT_REGISTERS),
              lambda c: "the pixels of a tile come at once"),
        Limit("E-SLICES", "slices", "", "",
              lambda c: (c.tiling.slices, np.minimum(shape_of(c.problem, c.tiling).units,
                                                     MOST_SLICES)),
              lambda c: f"blocks that share the images' tiles, at most {MOST_SLICES}"),
    )
    spaces = (SpaceGenerator(True, columns_of),)
    weights = cost.WEIGHTS

    def suits(self, device: Device) -> bool:
        return any(has_units(device, name) for name in self.elements)

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        wrong, dilation = beside_first_layers(problem, self.name), problem.spec.dilation[1]
        if dilation > 1:
            wrong += (Violation("E-DILATION", f"dilation over the columns of {self.name}", dilation,
                                1),)
        return wrong

    def arithmetic(self, problem: ConvProblem, t: Any) -> Any:
        return "matrix16"

    def chain(self, problem: ConvProblem, t: Any) -> int:
        # A wavefront's pixels, and the sums that are added to its own.
        shape = shape_of(problem, t)
        pieces = shape.unit_slices * ceil_div(shape.pieces, t.waves_p)
        return int(pieces * PIECE + t.waves_p + t.slices)

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        shape, depth = shape_of(problem, t), fragments_of(problem) * EIGHT
        blocks = shape.channel_tiles * t.slices
        pixels = shape.unit_slices * shape.pieces * PIECE
        return Footprint(
            threads=shape.waves * wavefront, waves=shape.waves, lds_bytes=shape.lds_bytes,
            registers=_held(problem, t) + COMPILER_REGISTERS, blocks=blocks,
            utilisation=problem.macs / (blocks * pixels * t.tile_m * depth),
            fmas=pixels / t.waves_p * t.wave_m * depth / wavefront,
            # Matrix units take their operands from all of a wavefront's lanes together.
            operand_loads=pixels / t.waves_p * (t.wave_m + depth) / wavefront)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        return _held(problem, t) + _NVCC + _NVCC_EARLY * fragments_of(problem)

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        return _held(problem, t) + _NVCC_MOST + _NVCC_MOST_EARLY * fragments_of(problem)

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        return bool(problem.out_height % t.tile_h or problem.out_width % t.tile_w
                    or problem.spec.out_channels % t.tile_m
                    or shape_of(problem, t).units % t.slices)

    def workspace_bytes(self, problem: ConvProblem, t: Any) -> int:
        return parts_bytes(problem, t.slices)

    def further_launches(self, problem: ConvProblem, t: Any) -> tuple[Launch, ...]:
        return parts_launches(problem, t.slices)

    def work(self, case: Case, grids: Count) -> Work:
        return cost.work(case)

    def traffic(self, case: Case) -> dict[str, Count]:
        return cost.named(case)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        return (t.tile_h, t.tile_w, t.tile_m, t.wave_m, t.waves_p, t.slices,
                plan.problem.spec.in_channels, copy_of(plan.problem), plan.device.wavefront)

    def image_arguments(self, plan: Plan) -> str:
        return f"_c{plan.problem.spec.in_channels}_v{copy_of(plan.problem)}"

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        t: Any = plan.tiling
        piece = row % t.tile_h * (t.tile_w // PIECE) + column % t.tile_w // PIECE
        return checker(row, t.tile_h, column, t.tile_w), piece % t.waves_p

    def caption(self, plan: Plan) -> list[str]:
        t: Any = plan.tiling
        shape = shape_of(plan.problem, t)
        return [f"a wavefront: {t.wave_m} channels x {PIECE} pixels of a row of the gradient at a "
                "time, all taps",
                f"a block: {t.tile_m} channels x {t.tile_h} rows x {t.tile_w} columns at a time, "
                f"{shape.unit_slices} times",
                f"the grid: {shape.channel_tiles} (channels) x {t.slices} (slices) blocks"]


def _on_way(problem: ConvProblem, t: Any) -> Count:
    """Registers of the units of a tile's pixels on their way to LDS."""
    return shape_of(problem, t).turns * (unit_registers(problem) + _UNIT_PLACE)


def _held(problem: ConvProblem, t: Any) -> Count:
    """Registers of a lane's sums, of fragments of the gradient and of two of pixels, and of the
    pixels on their way."""
    shape, fragments = shape_of(problem, t), fragments_of(problem)
    return FOUR * shape.fragments_m * (fragments + 1) + FOUR + _on_way(problem, t)
