"""Pointwise convolution of 16 bits in NCHW on small planes, and its input gradient, as products of
whole images by filters on Hopper's warpgroups, or of parts of their planes."""

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
from dscore.algorithms.columns import Count, ceil_div, once_for_each, remainder
from dscore.algorithms.image_gemm import cost
from dscore.algorithms.image_gemm.space import (
    MOST_GROUPS,
    MOST_ROWS,
    MOST_SUMS,
    columns_of,
)
from dscore.algorithms.image_gemm.tiling import (
    DEPTH,
    PAIR,
    ImageGemmTiling,
    run_of,
    shape_of,
    sums_of,
)
from dscore.algorithms.planes import PlaneAlgorithm
from dscore.algorithms.warpgroup_gemm.tiling import MOST_BOX, ROW, ROWS
from dscore.core.device import Device
from dscore.core.plan import Plan, Violation
from dscore.core.problem import ConvProblem

MOST_STAGES = 8
_EIGHT = 8
# Pixels of a plane: of more, sums of whole images leave no registers, and plane_gemm is faster.
MOST_AREA = 256
# Registers of pixels, of two turns of reading; that nvcc takes beside, and at most
# (docs/registers.md).
_WORDS, _BESIDE, _MOST_BESIDE = 32, 28, 56


def _runless(case: Case) -> Count:
    """1 for a step whose planes no box brings."""
    def each(steps: Count) -> Count:
        return np.array([run_of(case.problem, int(step)) == 0 for step in steps], np.int64)

    steps = case.tiling.step
    return once_for_each(each, steps) if np.ndim(steps) else each([steps])[0]


def _most_parts(case: Case) -> Count:
    """Parts of a plane that have pixels; one where planes have no kernel in parts, as a block takes
    several images or tiles, or as second planes begin elsewhere than in the middle of a vector."""
    t, shape = case.tiling, shape_of(case.problem, case.tiling)
    whole = (t.images * t.repeat > 1) | (shape.area % _EIGHT != _EIGHT // 2)
    return np.where(whole, 1, ceil_div(shape.area, shape.part))


def _run(plan: Plan) -> int:
    """Elements of a row of the boxes that a plan's planes come by."""
    t: Any = plan.tiling
    return ROW if t.parts > 1 else run_of(plan.problem, t.step)


def _stages(case: Case) -> Count:
    """Buffers of the ring; too many where a slice has no two of its own, as it waits for its next
    step before it lets go of one."""
    t, steps = case.tiling, shape_of(case.problem, case.tiling).steps
    few = (t.stages < 2 * t.slices) & (t.stages < steps * t.repeat)
    alone = (remainder(t.stages, t.slices) != 0) | few
    return np.where(alone, MOST_STAGES + 1, t.stages)


class ImageGemm(PlaneAlgorithm):
    """Pixels of whole images by channels, 64 pixels by the matrix units of a warpgroup."""

    name = "image_gemm"
    tiling = ImageGemmTiling
    limits = (
        Limit("E-WARPGROUPS", "warpgroups", "", "",
              lambda c: (1, int(c.device.warpgroups)),
              lambda c: "matrix units that read LDS, and copies of spans, of sm_90"),
        Limit("E-TILE", "part columns", "", "",
              lambda c: (remainder(c.tiling.tile_n, _EIGHT), 0),
              lambda c: f"channels of an instruction, by {_EIGHT}"),
        Limit("E-BOX", "a tile's side", "", "",
              lambda c: (np.maximum(c.tiling.tile_n, c.tiling.step), MOST_BOX),
              lambda c: "of a box, and of an instruction's columns"),
        Limit("E-SLICE", "elements left", "", "", lambda c: (remainder(c.tiling.step, DEPTH), 0),
              lambda c: f"a step in whole instructions, of {DEPTH} channels"),
        Limit("E-GROUPS", "warpgroups of a block", "", "",
              lambda c: (c.tiling.groups * c.tiling.slices, MOST_GROUPS)),
        Limit("E-IDLE", "warpgroups of a slice", "", "",
              lambda c: (c.tiling.groups, shape_of(c.problem, c.tiling).instructions),
              lambda c: f"each has pixels, {ROWS} or fewer"),
        Limit("E-RUN", "boxes without rows", "", "",
              lambda c: (np.where(c.tiling.parts > 1, 0, _runless(c)), 0),
              lambda c: f"the planes of a step in up to {MOST_BOX} rows of as many elements, of "
              "which those of an image are a multiple"),
        Limit("E-PARTS", "parts of a plane", "", "",
              lambda c: (c.tiling.parts, _most_parts(c)),
              lambda c: "each has pixels; several where a block has one tile of one image, and "
              f"{_EIGHT // 2} pixels are left of a plane by {_EIGHT}"),
        Limit("E-REPEAT", "repeat", "", "",
              lambda c: (np.where(c.tiling.slices * c.tiling.cluster > 1, c.tiling.repeat, 1), 1),
              lambda c: "slices and clusters have one tile of images"),
        Limit("E-CLUSTER", "cluster", "", "",
              lambda c: (c.tiling.cluster, c.device.cluster_blocks),
              lambda c: "blocks that share the steps of an image"),
        Limit("E-SLICES", "slices", "", "",
              lambda c: (c.tiling.slices,
                         shape_of(c.problem, c.tiling).all_steps // c.tiling.cluster),
              lambda c: "each has a step, in each block of a cluster"),
        Limit("E-STAGES", "stages", "", "",
              lambda c: (_stages(c), MOST_STAGES),
              lambda c: "as many for each slice, two or more but where there is one step of each"),
        Limit("E-ROWS", "instructions of a warpgroup", "", "",
              lambda c: (shape_of(c.problem, c.tiling).rows, MOST_ROWS),
              lambda c: f"that have {ROWS} pixels each, of which a lane holds its own"),
        Limit("E-SUMS", "sums of a lane", "", "",
              lambda c: (sums_of(shape_of(c.problem, c.tiling).rows, c.tiling), MOST_SUMS)),
    )
    spaces = (SpaceGenerator(True, columns_of),)
    weights = cost.WEIGHTS

    def unfit_planes(self, area: int) -> tuple[Violation, ...]:
        if area <= MOST_AREA:
            return ()
        return (Violation("E-AREA", f"pixels of a plane of {self.name}", str(area),
                          f"{MOST_AREA}: a block has whole images"),)

    def chain(self, problem: ConvProblem, t: Any) -> int:
        shape = shape_of(problem, t)
        return int(ceil_div(shape.steps, t.slices) * t.step + t.slices + t.cluster)

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        shape = shape_of(problem, t)
        blocks = t.cluster * shape.tiles_n * shape.blocks_i
        sums = sums_of(shape.rows, t)
        depth = shape.steps * t.step * t.repeat / t.slices
        return Footprint(
            threads=shape.waves * wavefront, waves=shape.waves, lds_bytes=shape.lds_bytes,
            registers=sums + COMPILER_REGISTERS, blocks=blocks,
            utilisation=problem.macs / (blocks * t.repeat * t.groups * shape.rows * ROWS
                                        * t.tile_n * (shape.steps * t.step)),
            fmas=sums * depth,
            # The units read filters for all lanes of a warpgroup.
            operand_loads=(ROWS * shape.rows + t.tile_n) / (ROWS * PAIR) * depth)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        return sums_of(shape_of(problem, t).rows, t) + _WORDS + _BESIDE

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        return sums_of(shape_of(problem, t).rows, t) + _WORDS + _MOST_BESIDE

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        shape = shape_of(problem, t)
        return bool(shape.m % t.tile_n or t.images * shape.area % (t.parts * ROWS * t.groups)
                    or problem.batch % t.images or shape.k % t.step)

    def work(self, case: Case, grids: Count) -> Work:
        return cost.work(case)

    def traffic(self, case: Case) -> dict[str, Count]:
        return cost.named(case)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        return (t.tile_n, t.images, t.groups, t.slices, t.step, t.stages, t.repeat, t.cluster,
                t.parts, shape_of(plan.problem, t).area, _run(plan),
                f"DSCORE_{plan.problem.spec.layout.upper()}",
                plan.device.wavefront)

    def image_arguments(self, plan: Plan) -> str:
        t: Any = plan.tiling
        return f"_a{shape_of(plan.problem, t).area}_r{_run(plan)}"

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        # One block has all pixels of an image, or of a part: of 32 pairs a wavefront has eight.
        t: Any = plan.tiling
        part, pixel = divmod(row * plan.problem.out_width + column,
                             int(shape_of(plan.problem, t).part))
        pair = pixel // PAIR
        group = pair // (ROWS // PAIR) % t.groups
        return part, group * 4 + pair % (ROWS // PAIR) // _EIGHT

    def caption(self, plan: Plan) -> list[str]:
        t: Any = plan.tiling
        shape = shape_of(plan.problem, t)
        summed = "input channels" if shape.along else "output channels"
        shares = f"; {t.slices} slices share the steps" * (t.slices > 1)
        return [f"a warpgroup: {shape.rows} x {ROWS} pixels x {t.tile_n} channels",
                f"a block: {t.images} (images) x {shape.part} pixels x {t.tile_n} channels"
                + f", {t.repeat} times" * (t.repeat > 1) + f"; {t.step} {summed} a step{shares}",
                f"the grid: {shape.tiles_n} (channels) x {shape.blocks_i} (images)"
                f"{f' x {t.cluster} (sharing the steps)' * (t.cluster > 1)} blocks"]
