"""Dense convolutions of float32 as implicit products of matrices by the instructions of Hopper's
warpgroups, each product as three of TF32."""

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
from dscore.algorithms.columns import Count, floor_div, remainder
from dscore.algorithms.gemm import MOST_STAGES
from dscore.algorithms.implicit_gemm.product import ImplicitProduct
from dscore.algorithms.implicit_gemm.tiling import (
    table_bytes,
    taps_of,
    under_tile,
    vectors_of,
)
from dscore.algorithms.implicit_warpgroup import cost
from dscore.algorithms.implicit_warpgroup.space import columns_of
from dscore.algorithms.implicit_warpgroup.tiling import (
    ImplicitWarpgroupShape,
    ImplicitWarpgroupTiling,
    shape_of,
)
from dscore.algorithms.warpgroup_tf32 import GROUP_LIMITS
from dscore.core.device import Device
from dscore.core.numerics import ACCUMULATOR
from dscore.core.plan import Plan, Violation
from dscore.core.problem import ConvProblem

# With fewer channels an instruction's eight are mostly empty.
LEAST_CHANNELS = 16
# Batches of products of a turn, which a compiler unrolls.
MOST_BATCHES = 27
# Registers that nvcc takes beside sums, operands and places (docs/registers.md): usually, and more
# at most.
_NVCC, _NVCC_MORE = 26, 56


def _held(shape: ImplicitWarpgroupShape) -> Count:
    """Registers of all sums, those of a step, of the operands of two batches in two parts, of those
    that are read, of the places of pixels, and of a vector of filters in two parts.
    """
    return 2 * shape.sums + 22 * shape.rows + 12


class ImplicitWarpgroup(ImplicitProduct):
    """Unfolded images by filters, the pixels of all images counted through."""

    name = "implicit_warpgroup"
    tiling = ImplicitWarpgroupTiling
    unit = "a warpgroup (4 wavefronts)"
    compared = True
    limits = (
        *GROUP_LIMITS,
        Limit("E-STAGES", "stages", "", "",
              lambda c: (np.where(c.tiling.stages < np.where(
                  c.tiling.rows < c.problem.spec.kernel[0], 2, 3), MOST_STAGES + 1,
                  c.tiling.stages), MOST_STAGES),
              lambda c: "3 or more, 2 of filters in several turns, by asynchronous copies"),
        Limit("E-TURNS", "rows of filters", "", "",
              lambda c: (remainder(c.problem.spec.kernel[0], c.tiling.rows) + np.maximum(
                  shape_of(c.problem, c.tiling).batches - MOST_BATCHES, 0), 0),
              lambda c: f"rows divide the kernel's, {MOST_BATCHES} batches of eight channels of a "
              "tap at most"),
        Limit("E-PATCH", "under a tile", "", "",
              lambda c: (under_tile(c.problem, c.tiling.tile_p), c.tiling.patch),
              lambda c: "patch has all elements of a channel under tile_p pixels"),
        Limit("E-STEPS", "last step", "", "",
              lambda c: ((c.tiling.cluster - 1) * shape_of(c.problem, c.tiling).steps + 1,
                         shape_of(c.problem, c.tiling).all_steps),
              lambda c: "each block of a cluster has steps"),
        Limit("E-SPLIT", "warpgroups", "", "",
              lambda c: (1, int(c.algorithm.suits(c.device))), lambda c: "of sm_90"),
    )
    spaces = (SpaceGenerator(True, columns_of),)
    weights = cost.WEIGHTS

    def suits(self, device: Device) -> bool:
        return device.warpgroups and "tf32" in device.matrix_types

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        spec = problem.spec
        if spec.kind == "dense" and spec.in_channels >= LEAST_CHANNELS:
            return ()
        return (Violation("E-KIND", f"layer of {self.name}", f"{spec.kind} of {spec.in_channels} "
                          "input channels", f"dense of {LEAST_CHANNELS} or more"),)

    def shape(self, problem: ConvProblem, t: Any, wavefront: int) -> Any:
        return shape_of(problem, t)

    def own_tile(self, t: Any) -> tuple[int, int]:
        return t.group_c, t.group_p

    def chain(self, problem: ConvProblem, t: Any) -> int:
        steps = shape_of(problem, t).steps
        return int(t.step_c // t.slices * taps_of(problem) + steps + t.slices + t.cluster)

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        shape = shape_of(problem, t)
        blocks = t.cluster * shape.channel_tiles * shape.pixel_tiles
        depth = shape.steps * t.step_c * taps_of(problem)
        depth_lane = floor_div(depth, t.slices)
        return Footprint(
            threads=shape.waves * 32, waves=shape.waves,
            lds_bytes=np.maximum(ACCUMULATOR.bytes * (shape.ring + t.stages * shape.buffer)
                                 + table_bytes(t), ACCUMULATOR.bytes * shape.joined),
            registers=_held(shape) + COMPILER_REGISTERS, blocks=blocks,
            utilisation=problem.macs / (blocks * t.tile_c * t.tile_p * depth),
            fmas=shape.sums * depth_lane,
            # Of filters, the units read what lanes do not hold.
            operand_loads=(t.group_p / 128 + t.group_c / 32) * depth_lane)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        return _held(shape_of(problem, t)) + _NVCC

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        # Sums that blocks of a cluster hand over, and what is read of another block's.
        joined = np.where(t.cluster > 1, 3 * shape_of(problem, t).sums + _NVCC, 0)
        return np.maximum(self.registers(problem, t, device) + _NVCC_MORE, joined)

    def work(self, case: Case, grids: Count) -> Work:
        return cost.work(case)

    def traffic(self, case: Case) -> dict[str, Count]:
        return cost.named(case)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        return (t.tile_c, t.tile_p, t.group_c, t.group_p, t.slices, t.step_c, t.rows, t.stages,
                t.patch, t.cluster, *vectors_of(plan.problem))

    def image_arguments(self, plan: Plan) -> str:
        return "_v{}x{}".format(*vectors_of(plan.problem))

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        t: Any = plan.tiling
        pixel = row * plan.problem.out_width + column
        # A wavefront has a fourth of its warpgroup's pixels.
        return pixel // t.tile_p % 2, pixel % t.tile_p // (t.group_p // 4)
