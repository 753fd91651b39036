"""Sums over images and outputs for each tap: the weight gradient of depthwise layers."""

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
from dscore.algorithms.columns import Count, ceil_div
from dscore.algorithms.early_start import AHEAD_LIMIT
from dscore.algorithms.gemm import CLUSTER_LIMIT
from dscore.algorithms.refusal import require_kind
from dscore.algorithms.registers import roomy
from dscore.algorithms.tap_sums import cost
from dscore.algorithms.tap_sums.space import columns_of
from dscore.algorithms.tap_sums.tiling import (
    TapSumsTiling,
    blocks,
    parts_bytes,
    parts_launches,
    row_vectors,
    shape_of,
)
from dscore.core.device import Device
from dscore.core.numerics import FLOATS
from dscore.core.plan import Launch, Plan, Violation
from dscore.core.problem import ConvProblem

# Registers that a compiler takes beside sums and rows; rows that it reads early, and what it takes
# at most above these; more where hipcc has more than a thread can name. Of 40 random kernels for
# each of gfx906, gfx90a and sm_90 about the least that none exceeded.
_HIPCC, _NVCC = 24, 40
_HIPCC_EARLY, _NVCC_EARLY, _ROOMY_EARLY, _ROOMY, _FEW_TAPS = (2, 4), (6, 40), 8, 8, 24
# A thread's rows are unrolled (row_reuse has these numbers' reasons).
MOST_UNROLLED_ROWS = 32
MOST_UNROLLED_COLUMNS = 256
MOST_UNROLLED_FMAS = 2048
# The loads of the launch that adds the slices are unrolled.
MOST_SLICES = 256


class TapSums(Algorithm):
    """A thread sums the products of its taps over rows of x, each of which it reads once."""

    name = "tap_sums"
    tiling = TapSumsTiling
    operations = ("weight_gradient",)
    elements = FLOATS
    limits = (
        Limit("E-SPAN", "columns left", "", "",
              lambda c: (np.maximum(c.problem.out_width - c.tiling.lanes_w * c.tiling.thread_w, 0),
                         0),
              lambda c: "a block takes whole rows"),
        Limit("E-SPAN-H", "rows left", "", "",
              lambda c: (np.where(c.tiling.planes > 1, np.maximum(
                  c.problem.out_height - c.tiling.lanes_h * c.tiling.thread_h, 0), 0), 0),
              lambda c: "several planes are whole"),
        Limit("E-SLICES", "slices", "", "",
              lambda c: (c.tiling.slices * c.tiling.cluster,
                         np.minimum(shape_of(c.problem, c.tiling).units,
                                    MOST_SLICES * c.tiling.cluster)),
              lambda c: f"blocks that share images and rows; slices at most {MOST_SLICES}"),
        CLUSTER_LIMIT,
        AHEAD_LIMIT,
        Limit("E-TAPS", "taps", "", "",
              lambda c: (c.tiling.taps_h * c.tiling.taps_w, c.problem.spec.products),
              lambda c: "a tile of the filter"),
        Limit("E-ROWS", "unrolled rows", "", "",
              lambda c: (shape_of(c.problem, c.tiling).rows, MOST_UNROLLED_ROWS),
              legality=False, hardware=True),
        Limit("E-COLUMNS", "unrolled columns", "", "",
              lambda c: (_reach(c.problem, c.tiling), MOST_UNROLLED_COLUMNS),
              legality=False, hardware=True),
        Limit("E-CODE", "unrolled FMAs", "", "",
              lambda c: (_unrolled(c.tiling), MOST_UNROLLED_FMAS), legality=False, hardware=True),
    )
    spaces = (SpaceGenerator(True, columns_of),)
    weights = cost.WEIGHTS

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        return require_kind(problem, self.name, "depthwise")

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        shape, taps = shape_of(problem, t), t.taps_h * t.taps_w
        waves, grid = ceil_div(shape.threads, wavefront), blocks(problem, t)
        fmas = _unrolled(t) * shape.unit_slices
        gradients = t.thread_h * t.thread_w
        return Footprint(
            threads=waves * wavefront, waves=waves, lds_bytes=shape.lds_bytes,
            registers=taps + shape.held + shape.live_rows * t.thread_w + COMPILER_REGISTERS,
            blocks=grid, utilisation=problem.macs / (grid * waves * wavefront * fmas), fmas=fmas,
            operand_loads=(shape.rows * shape.held + gradients) * shape.unit_slices)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        shape = shape_of(problem, t)
        return (t.taps_h * t.taps_w + shape.held + shape.live_rows * t.thread_w
                + (_NVCC if device.vendor == "nvidia" else _HIPCC))

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        shape = shape_of(problem, t)
        rows, margin = _NVCC_EARLY if device.vendor == "nvidia" else _HIPCC_EARLY
        if roomy(device):
            rows, margin = _ROOMY_EARLY, margin + _ROOMY
        early = np.minimum(shape.rows, rows) * (shape.held + t.thread_w)
        if device.vendor != "nvidia":  # of many taps hipcc holds the sums a second time in part
            margin = margin + np.maximum(t.taps_h * t.taps_w - _FEW_TAPS, 0)
        return self.registers(problem, t, device) + margin + early

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        shape = shape_of(problem, t)
        return bool(problem.out_height % (t.lanes_h * t.thread_h)
                    or problem.out_width % (t.lanes_w * t.thread_w)
                    or problem.spec.out_channels % t.planes or problem.batch % t.images
                    or shape.units % (t.slices * t.cluster) or shape.threads % wavefront
                    or problem.spec.kernel[0] % t.taps_h or problem.spec.kernel[1] % t.taps_w)

    def workspace_bytes(self, problem: ConvProblem, t: Any) -> int:
        return parts_bytes(problem, t.slices)

    def further_launches(self, problem: ConvProblem, t: Any) -> tuple[Launch, ...]:
        return parts_launches(problem, t.slices)

    def work(self, case: Case, grids: Count) -> Work:
        return cost.work(case, grids)

    def traffic(self, case: Case) -> dict[str, Count]:
        return cost.named(case)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        return (t.thread_h, t.thread_w, t.lanes_h, t.lanes_w, t.planes, t.images, t.slices,
                t.stages, t.taps_h, t.taps_w, t.cluster, int(t.ahead), *_spans(plan),
                *_vectors(plan), plan.device.wavefront)

    def image_arguments(self, plan: Plan) -> str:
        return "_e{}x{}_v{}o{}x{}".format(*_spans(plan), *_vectors(plan))

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        t: Any = plan.tiling
        rows, columns = t.lanes_h * t.thread_h, t.lanes_w * t.thread_w
        lane = row % rows // t.thread_h * t.lanes_w + column % columns // t.thread_w
        return checker(row, rows, column, columns), lane // plan.device.wavefront

    def caption(self, plan: Plan) -> list[str]:
        problem, t = plan.problem, plan.tiling
        assert isinstance(t, TapSumsTiling)
        shape = shape_of(problem, t)
        channels = ceil_div(problem.spec.out_channels, t.planes)
        return [f"a lane: {t.thread_h} rows x {t.thread_w} columns of the gradient, "
                f"{t.taps_h}x{t.taps_w} taps",
                f"a block: {t.lanes_h * t.thread_h} rows x {t.lanes_w * t.thread_w} columns x "
                f"{t.planes} channels of {t.images} images at a time, {shape.unit_slices} times",
                f"the grid: {channels} (channels) x {t.slices * t.cluster} (slices) x "
                f"{shape.tap_tiles} (tiles of the filter) blocks"]



def _unrolled(t: Any) -> Count:
    """FMAs of a thread for one unit."""
    return t.thread_h * t.thread_w * t.taps_h * t.taps_w


def _reach(problem: ConvProblem, t: Any) -> Count:
    """Columns of x from a thread's first to its last."""
    return (t.thread_w - 1) * problem.spec.stride[1] + (t.taps_w - 1) * problem.spec.dilation[1] + 1


def _spans(plan: Plan) -> tuple[int, int]:
    """Elements of LDS for the rows of one image."""
    shape = shape_of(plan.problem, plan.tiling)
    return int(shape.span_x), int(shape.span_g)


def _vectors(plan: Plan) -> tuple[int, int, int]:
    """Columns of a vector of x, the first that one begins with, and those of the gradient."""
    loaded, gradient = (int(v) for v in row_vectors(plan.problem, plan.tiling))
    return loaded, plan.problem.padding[2] % loaded, gradient
