"""Pointwise convolution and its input gradient as products of matrices by the instructions of
Hopper's warpgroups, each product as three of TF32."""

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
)
from dscore.algorithms.columns import Count, ceil_div, floor_div, remainder
from dscore.algorithms.gemm import CLUSTER_LIMIT, LEAST_SPLIT_CHANNELS, MOST_STAGES
from dscore.algorithms.gemm.tiling import sizes_of, turned, vectors_of
from dscore.algorithms.refusal import require_kind
from dscore.algorithms.warpgroup_tf32 import cost
from dscore.algorithms.warpgroup_tf32.space import columns_of
from dscore.algorithms.warpgroup_tf32.tiling import (
    INSTRUCTION_ROWS,
    MOST_COLUMNS,
    WarpgroupTf32Shape,
    WarpgroupTf32Tiling,
    shape_of,
)
from dscore.core.device import Device
from dscore.core.numerics import ACCUMULATOR
from dscore.core.plan import Plan, Violation
from dscore.core.problem import ConvProblem

# Registers that nvcc takes beside sums, operands and what is fetched (docs/registers.md), by the
# eights of a slice's step, which it unrolls: usually, and more at most.
_NVCC, _NVCC_MORE = (24, 34, 48), 36


def _held(shape: WarpgroupTf32Shape) -> Count:
    """Registers of all sums, those of a step where there are several, of the operands of a batch or
    two in two parts, of those that are read, and of the filters of the next step.
    """
    parts = np.where(shape.eights > 1, 16, 8)
    return shape.sums * np.where(shape.steps > 1, 2, 1) + (parts + 4) * shape.rows + shape.fetched


def _beside_instructions(case: Case) -> Count:
    """Channels and pixels of a warpgroup that its instructions leave over, or cannot take."""
    t = case.tiling
    return (remainder(t.group_c, 8) + remainder(t.group_p, INSTRUCTION_ROWS)
            + np.maximum(t.group_c - MOST_COLUMNS, 0)
            + np.maximum(t.group_p - 2 * INSTRUCTION_ROWS, 0))


# Of tiles in whole warpgroups and instructions, slices and clusters.
GROUP_LIMITS = (
    Limit("E-TILE", "part warpgroups", "", "",
          lambda c: (remainder(c.tiling.tile_c, c.tiling.group_c)
                     + remainder(c.tiling.tile_p, c.tiling.group_p), 0),
          lambda c: "group_c divides tile_c, group_p tile_p"),
    Limit("E-FRAGMENT", "part instructions", "", "", lambda c: (_beside_instructions(c), 0),
          lambda c: f"8 to {MOST_COLUMNS} channels in eights x {INSTRUCTION_ROWS} or "
          f"{2 * INSTRUCTION_ROWS} pixels"),
    Limit("E-SLICE", "channels left", "", "",
          lambda c: (remainder(c.tiling.step_c, 8 * c.tiling.slices), 0),
          lambda c: "step_c by slices, in eights"),
    CLUSTER_LIMIT,
)


class WarpgroupTf32(Algorithm):
    """Pixels of all images, counted through, by filters."""

    name = "warpgroup_tf32"
    tiling = WarpgroupTf32Tiling
    operations = ("conv", "input_gradient")
    limits = (
        *GROUP_LIMITS,
        Limit("E-STAGES", "stages", "", "",
              lambda c: (np.where(c.tiling.stages < 3, MOST_STAGES + 1, c.tiling.stages),
                         MOST_STAGES), lambda c: "3 or more, by asynchronous copies"),
        Limit("E-STEPS", "last step", "", "",
              lambda c: ((c.tiling.cluster - 1) * shape_of(c.problem, c.tiling).steps + 1,
                         ceil_div(sizes_of(c.problem).depth, c.tiling.step_c)),
              lambda c: "each block of a cluster has steps"),
        Limit("E-SPLIT", "warpgroups", "", "",
              lambda c: (1, int(c.algorithm.suits(c.device)
                                and sizes_of(c.problem).depth >= LEAST_SPLIT_CHANNELS)),
              lambda c: f"of sm_90, with {LEAST_SPLIT_CHANNELS} summed channels or more"),
    )
    spaces = (SpaceGenerator(True, columns_of),)
    compared = True  # small layers gemm takes faster
    weights = cost.WEIGHTS

    def suits(self, device: Device) -> bool:
        return device.warpgroups and "tf32" in device.matrix_types

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        return require_kind(problem, self.name, "pointwise")

    def chain(self, problem: ConvProblem, t: Any) -> int:
        steps = ceil_div(ceil_div(sizes_of(problem).depth, t.step_c), t.cluster)
        return int(t.step_c // t.slices + steps + t.slices + t.cluster)

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        shape = shape_of(problem, t)
        blocks = t.cluster * shape.channel_tiles * shape.pixel_tiles
        depth_lane = floor_div(shape.steps * t.step_c, t.slices)
        return Footprint(
            threads=shape.waves * 32, waves=shape.waves,
            lds_bytes=ACCUMULATOR.bytes * np.maximum(shape.ring + t.stages * shape.buffer,
                                                     shape.joined),
            registers=_held(shape) + COMPILER_REGISTERS, blocks=blocks,
            utilisation=problem.macs / (blocks * t.tile_c * t.tile_p * (shape.steps * t.step_c)),
            fmas=shape.sums * depth_lane,
            # Of filters, the units read what lanes do not hold.
            operand_loads=(t.group_p / 128 + t.group_c / 32) * depth_lane)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        shape = shape_of(problem, t)
        rest = np.where(shape.eights > 2, _NVCC[2], np.where(shape.eights > 1, _NVCC[1], _NVCC[0]))
        return _held(shape) + rest

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        wanted = self.registers(problem, t, device)
        if any(problem.padding) or problem.spec.stride != (1, 1):
            # Each pixel has an address of its own, in each step that a compiler unrolls.
            return np.full_like(wanted, device.registers_per_simd_lane)
        # Sums that blocks of a cluster hand over, and what is read of another block's.
        joined = np.where(t.cluster > 1, 3 * shape_of(problem, t).sums + _NVCC[0], 0)
        return np.maximum(wanted + _NVCC_MORE, joined)

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        sizes = sizes_of(problem)
        return bool(sizes.channels % t.tile_c or sizes.depth % t.step_c or sizes.pixels % t.tile_p)

    def work(self, case: Case, grids: Count) -> Work:
        return cost.work(case)

    def traffic(self, case: Case) -> dict[str, Count]:
        return cost.named(case)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        return (t.tile_c, t.tile_p, t.group_c, t.group_p, t.slices, t.step_c, t.stages, t.cluster,
                *vectors_of(plan.problem), int(shape_of(plan.problem, t).buffers))

    def image_arguments(self, plan: Plan) -> str:
        buffers = int(shape_of(plan.problem, plan.tiling).buffers)
        return "_v{}x{}_b{}".format(*vectors_of(plan.problem), buffers)

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        t: Any = plan.tiling
        pixel = row * sizes_of(plan.problem).width + column
        inside = pixel % t.tile_p
        # A wavefront has a fourth of its warpgroup's pixels.
        return pixel // t.tile_p % 2, inside // (t.group_p // 4)

    def caption(self, plan: Plan) -> list[str]:
        t: Any = plan.tiling
        shape = shape_of(plan.problem, t)
        summed = "output" if turned(plan.problem) else "input"
        sharing = f", {t.slices} sharing the {summed} channels" * (t.slices > 1)
        cluster = f"{t.cluster} (sharing the steps) x " * (t.cluster > 1)
        return [f"a warpgroup (4 wavefronts): {t.group_c} channels x {t.group_p} pixels{sharing}",
                f"a block: {t.tile_c} channels x {t.tile_p} pixels, counted through all images; "
                f"{t.step_c} {summed} channels a step",
                f"the grid: {cluster}{shape.channel_tiles} (channels) x {shape.pixel_tiles} "
                "(pixels) blocks"]
