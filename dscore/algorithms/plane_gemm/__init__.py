"""Pointwise convolution of 16 bits in NCHW, and its input gradient, as products of filters by
planes on Hopper's warpgroups, whose operands come to LDS by the copy engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.algorithms.base import (
    COMPILER_REGISTERS,
    Case,
    Footprint,
    Limit,
    SpaceGenerator,
    Work,
)
from dscore.algorithms.columns import Count, remainder
from dscore.algorithms.plane_gemm import cost
from dscore.algorithms.plane_gemm.space import columns_of
from dscore.algorithms.plane_gemm.tiling import (
    EIGHT,
    MOST_MOVERS,
    PlaneGemmTiling,
    apart_of,
    result_pixels,
    shape_of,
)
from dscore.algorithms.planes import PlaneAlgorithm
from dscore.algorithms.warpgroup_gemm.tiling import MOST_BOX, ROWS
from dscore.core.device import Device
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem

MOST_STAGES = 8
# Registers that nvcc takes beside the sums and the filters of a step, with several tiles as well,
# and at most (docs/registers.md).
_BESIDE, _REPEATED, _MOST_BESIDE = 28, 20, 80


def _least_step(problem: ConvProblem) -> int:
    """Summed channels of the tiles of LDS that planes of all boxes fill."""
    return EIGHT * apart_of(problem.out_height * problem.out_width)


class PlaneGemm(PlaneAlgorithm):
    """Channels by pixels of planes, 64 channels by the matrix units of a warpgroup."""

    name = "plane_gemm"
    tiling = PlaneGemmTiling
    limits = (
        Limit("E-WARPGROUPS", "warpgroups", "", "",
              lambda c: (1, int(c.device.warpgroups)),
              lambda c: "matrix units that read LDS, and boxes of tensors, of sm_90"),
        Limit("E-TILE", "part warpgroups", "", "",
              lambda c: (remainder(c.tiling.tile_m, ROWS) + remainder(c.tiling.tile_p, EIGHT), 0),
              lambda c: f"{ROWS} channels of a warpgroup; pixels by eights"),
        Limit("E-BOX", "a tile's side", "", "",
              lambda c: (np.maximum(np.maximum(c.tiling.tile_m, c.tiling.tile_p * c.tiling.images),
                                    c.tiling.step), MOST_BOX),
              lambda c: "of a box, and of the columns of a lane's sums"),
        Limit("E-IMAGES", "images", "", "",
              lambda c: (np.where(shape_of(c.problem, c.tiling).whole, 1, c.tiling.images), 1),
              lambda c: "of parts of planes; tiles of whole planes may have several"),
        Limit("E-SLICE", "elements left", "", "",
              lambda c: (remainder(c.tiling.step, _least_step(c.problem)), 0),
              lambda c: f"a step in whole tiles of LDS, of {_least_step(c.problem)} channels"),
        Limit("E-STAGES", "stages", "", "", lambda c: (c.tiling.stages, MOST_STAGES)),
        Limit("E-MOVERS", "movers", "", "", lambda c: (c.tiling.movers, MOST_MOVERS),
              lambda c: "wavefronts beside those that multiply"),
    )
    spaces = (SpaceGenerator(True, columns_of),)
    weights = cost.WEIGHTS

    def chain(self, problem: ConvProblem, t: Any) -> int:
        return int(shape_of(problem, t).steps * t.step + 1)

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        shape = shape_of(problem, t)
        blocks = shape.tiles_m * shape.blocks_p
        depth, sums = shape.steps * t.step * t.repeat, _sums(t)
        return Footprint(
            threads=shape.waves * wavefront, waves=shape.waves, lds_bytes=shape.lds_bytes,
            registers=sums + COMPILER_REGISTERS, blocks=blocks,
            utilisation=problem.macs / (blocks * t.repeat * t.tile_m * t.images * t.tile_p
                                        * (shape.steps * t.step)),
            fmas=sums * depth,
            # The units read planes for all lanes of a warpgroup.
            operand_loads=(ROWS + t.images * t.tile_p) / (ROWS * 2) * depth)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        return _sums(t) + t.step // 4 + _BESIDE + _REPEATED * (t.repeat > 1)

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        return _sums(t) + t.step // 4 + _MOST_BESIDE

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        shape = shape_of(problem, t)
        return bool(shape.m % t.tile_m or shape.area % t.tile_p or problem.batch % t.images
                    or shape.k % t.step)

    def work(self, case: Case, grids: Count) -> Work:
        return cost.work(case)

    def traffic(self, case: Case) -> dict[str, Count]:
        return cost.named(case)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        shape = shape_of(plan.problem, t)
        return (t.tile_m, t.tile_p, t.images, t.step, t.stages, t.repeat, int(shape.kept),
                t.movers, shape.vector, str(bool(shape.whole)).lower(),
                int(result_pixels(t.tile_p)),
                f"DSCORE_{plan.problem.spec.layout.upper()}", plan.device.wavefront)

    def image_arguments(self, plan: Plan) -> str:
        shape = shape_of(plan.problem, plan.tiling)
        kept = f"_{int(shape.kept)}_steps" * (int(shape.kept) > 0)
        return f"{kept}_v{shape.vector}{'_whole' * bool(shape.whole)}"

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        # All wavefronts of a warpgroup have a part of each pixel's channels.
        pixel = row * plan.problem.out_width + column
        return pixel // plan.tiling.as_dict()["tile_p"] % 2, 0

    def caption(self, plan: Plan) -> list[str]:
        t: Any = plan.tiling
        shape = shape_of(plan.problem, t)
        summed = "input channels" if shape.along else "output channels"
        return [f"a warpgroup: {ROWS} channels x {t.images} x {t.tile_p} pixels",
                f"a block: {t.tile_m} channels x {t.images} (images) x {t.tile_p} pixels"
                + f", {t.repeat} times" * (t.repeat > 1) + f"; {t.step} {summed} a step"
                + ", all of whose filters stay" * t.kept,
                f"the grid: {shape.tiles_m} (channels) x {shape.blocks_p} (pixels) blocks"]


def _sums(t: Any) -> Count:
    """Of a lane of a warpgroup."""
    return t.images * t.tile_p * ROWS // 128
