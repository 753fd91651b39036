"""Pointwise convolution of 16 bits in NCHW on planes of whole vectors, and its input gradient, as
products of pixels by filters on Hopper's warpgroups, whose operands come to LDS by the copy
engine."""

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
from dscore.algorithms.columns import Count, ceil_div, remainder
from dscore.algorithms.pixel_gemm import cost
from dscore.algorithms.pixel_gemm.space import columns_of
from dscore.algorithms.pixel_gemm.tiling import DEPTH, EIGHT, PixelGemmTiling, shape_of
from dscore.algorithms.planes import PlaneAlgorithm
from dscore.algorithms.warpgroup_gemm.tiling import MOST_BOX, ROWS
from dscore.core.device import Device
from dscore.core.plan import Plan, Violation
from dscore.core.problem import ConvProblem

MOST_STAGES = 8
# Registers that nvcc takes beside the sums, for what is added to results as well, and at most
# (docs/registers.md). Where it has them, it reads all that is added before the first result.
_BESIDE, _ADDED, _MOST_BESIDE = 28, 36, 68


class PixelGemm(PlaneAlgorithm):
    """Pixels of planes by channels, 64 pixels by the matrix units of a warpgroup."""

    name = "pixel_gemm"
    tiling = PixelGemmTiling
    limits = (
        Limit("E-WARPGROUPS", "warpgroups", "", "",
              lambda c: (1, int(c.device.warpgroups)),
              lambda c: "matrix units that read LDS, and boxes of tensors, of sm_90"),
        Limit("E-TILE", "part warpgroups", "", "",
              lambda c: (remainder(c.tiling.tile_p, ROWS) + remainder(c.tiling.tile_n, EIGHT), 0),
              lambda c: f"{ROWS} pixels of a warpgroup; channels by eights"),
        Limit("E-BOX", "a tile's side", "", "",
              lambda c: (np.maximum(np.maximum(c.tiling.tile_p, c.tiling.tile_n), c.tiling.step),
                         MOST_BOX),
              lambda c: "of a box, and of an instruction's columns"),
        Limit("E-SLICE", "elements left", "", "", lambda c: (remainder(c.tiling.step, DEPTH), 0),
              lambda c: f"a step in whole instructions, of {DEPTH} channels"),
        Limit("E-STAGES", "stages", "", "", lambda c: (c.tiling.stages, MOST_STAGES)),
    )
    spaces = (SpaceGenerator(True, columns_of),)
    weights = cost.WEIGHTS

    def unfit_planes(self, area: int) -> tuple[Violation, ...]:
        if area % EIGHT == 0:
            return ()
        return (Violation("E-AREA", f"pixels of a plane of {self.name}", str(area),
                          f"a multiple of {EIGHT}: a box begins at a multiple of 16 bytes"),)

    def chain(self, problem: ConvProblem, t: Any) -> int:
        return int(shape_of(problem, t).steps * t.step + 1)

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        shape = shape_of(problem, t)
        blocks = shape.tiles_n * shape.blocks_p
        depth = shape.steps * t.step * t.repeat
        return Footprint(
            threads=shape.waves * wavefront, waves=shape.waves, lds_bytes=shape.lds_bytes,
            registers=t.tile_n // 2 + COMPILER_REGISTERS, blocks=blocks,
            utilisation=problem.macs / (blocks * t.repeat * t.tile_p * t.tile_n
                                        * (shape.steps * t.step)),
            fmas=t.tile_n // 2 * depth,
            # The units read both operands for all lanes of a warpgroup.
            operand_loads=(ROWS + t.tile_n) / (ROWS * 2) * depth)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        return t.tile_n // 2 + _BESIDE + _ADDED * (problem.spec.residual is not None)

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        read_ahead = t.tile_n * 3 // 4 if problem.spec.residual is not None else 0
        return t.tile_n // 2 + read_ahead + _MOST_BESIDE

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        shape = shape_of(problem, t)
        runs = problem.batch * ceil_div(shape.area, ROWS)
        return bool(shape.m % t.tile_n or shape.area % ROWS or runs % shape.groups
                    or shape.k % t.step)

    def work(self, case: Case, grids: Count) -> Work:
        return cost.work(case)

    def traffic(self, case: Case) -> dict[str, Count]:
        return cost.named(case)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        return (t.tile_p, t.tile_n, t.step, t.stages, t.repeat,
                int(shape_of(plan.problem, t).kept),
                f"DSCORE_{plan.problem.spec.layout.upper()}", plan.device.wavefront)

    def image_arguments(self, plan: Plan) -> str:
        kept = int(shape_of(plan.problem, plan.tiling).kept)
        return f"_{kept}_steps" * (kept > 0)

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        # A wavefront has sixteen of a warpgroup's pixels, in all channels.
        pixel = row * plan.problem.out_width + column
        tile_p = plan.tiling.as_dict()["tile_p"]
        return pixel // tile_p % 2, pixel % tile_p // 16

    def caption(self, plan: Plan) -> list[str]:
        t: Any = plan.tiling
        shape = shape_of(plan.problem, t)
        summed = "input channels" if shape.along else "output channels"
        return [f"a warpgroup: {ROWS} pixels x {t.tile_n} channels",
                f"a block: {t.tile_p} pixels x {t.tile_n} channels"
                + f", {t.repeat} times" * (t.repeat > 1) + f"; {t.step} {summed} a step"
                + ", all of whose filters stay" * t.kept,
                f"the grid: {shape.tiles_n} (channels) x {shape.blocks_p} (pixels) blocks"]
