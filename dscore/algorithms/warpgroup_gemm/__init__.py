"""Pointwise convolution of 16 bits and int8 in NHWC, and gradients of the former, as products of
matrices by Hopper's warpgroups, whose operands come to LDS by the copy engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.algorithms.base import (
    COMPILER_REGISTERS,
    Algorithm,
    Case,
    Footprint,
    SpaceGenerator,
    Work,
)
from dscore.algorithms.columns import Count
from dscore.algorithms.early_start import spread_lds_bytes
from dscore.algorithms.gemm_universal import MOST_ADDED
from dscore.algorithms.refusal import require_kind
from dscore.algorithms.split_k.tiling import SUM_THREADS, sum_rows
from dscore.algorithms.warpgroup_gemm import cost
from dscore.algorithms.warpgroup_gemm.limits import LIMITS, unmapped, unstored
from dscore.algorithms.warpgroup_gemm.space import columns_of
from dscore.algorithms.warpgroup_gemm.tiling import ROWS, WAVES, WarpgroupGemmTiling, shape_of
from dscore.core.device import MATRIX_WAVEFRONT, Device
from dscore.core.numerics import ACCUMULATOR, WORD_BYTES
from dscore.core.plan import Launch, Plan, Violation
from dscore.core.problem import ConvProblem

# Registers that nvcc takes beside the sums and rows, and at most (docs/registers.md).
_BESIDE, _MOST_BESIDE = 28, 80
_OF_SPAN = 8  # at most, for where a lane's rows lie
_OF_SCALES = 28  # at most, for four bytes at a time and their factors


class WarpgroupGemm(Algorithm):
    """Rows by columns of a result, 64 rows by the matrix units of a warpgroup."""

    name = "warpgroup_gemm"
    tiling = WarpgroupGemmTiling
    operations = ("conv", "input_gradient", "weight_gradient")
    elements = ("float16", "bfloat16", "int8")
    layouts = ("nhwc",)
    limits = LIMITS
    spaces = (SpaceGenerator(True, columns_of),)
    compared = True  # small layers gemm_universal takes faster
    weights = cost.WEIGHTS
    own_weights = {"weight_gradient": cost.WEIGHT_GRADIENT,  # noqa: RUF012
                   "int8": cost.BYTES}

    def suits(self, device: Device) -> bool:
        return device.warpgroups

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        if kind := require_kind(problem, self.name, "pointwise"):
            return kind
        return unmapped(problem, self.name, scales=True, spans=True) or unstored(problem)

    def chain(self, problem: ConvProblem, t: Any) -> int:
        return int(shape_of(problem, t).steps * t.step + t.parts + t.cluster)

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        shape = shape_of(problem, t)
        blocks = t.cluster * shape.tiles_n * shape.blocks_m * t.parts
        depth, sums = shape.steps * t.step * t.repeat, _sums(t)
        return Footprint(
            threads=shape.waves * wavefront, waves=shape.waves, lds_bytes=shape.lds_bytes,
            registers=sums + COMPILER_REGISTERS, blocks=blocks,
            utilisation=problem.macs / (blocks * t.repeat * t.tile_m * t.tile_n
                                        * (shape.steps * t.step)),
            fmas=sums * depth,
            # The units read both operands for all lanes of a warpgroup.
            operand_loads=(ROWS + t.tile_n) / (ROWS * 2) * depth)

    def arithmetic(self, problem: ConvProblem, t: Any) -> Any:
        return "sum" if problem.spec.element.exact else "matrix16"

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        return _sums(t) + _rows(problem, t) + _BESIDE

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        scaled = problem.spec.element.exact and problem.spec.scaled
        return (_sums(t) + _rows(problem, t) + _MOST_BESIDE + _OF_SPAN * t.spans
                + _OF_SCALES * scaled)

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        sizes = shape_of(problem, t).sizes
        return bool(sizes.m % t.tile_m or sizes.n % t.tile_n or sizes.k % t.step)

    def workspace_bytes(self, problem: ConvProblem, t: Any) -> int:
        weights = problem.spec.out_channels * problem.spec.in_channels
        return int(ACCUMULATOR.bytes * t.parts * weights) if t.parts > 1 else 0

    def further_launches(self, problem: ConvProblem, t: Any) -> tuple[Launch, ...]:
        if t.parts == 1:
            return ()
        rows = sum_rows(t.parts)
        vectors = problem.spec.out_channels * problem.spec.in_channels // MOST_ADDED
        bytes_ = ACCUMULATOR.bytes * MOST_ADDED * SUM_THREADS if rows > 1 else 0
        return (Launch(-(-vectors // (SUM_THREADS // rows)), SUM_THREADS, bytes_),)

    def work(self, case: Case, grids: Count) -> Work:
        return cost.work(case, grids)

    def traffic(self, case: Case) -> dict[str, Count]:
        return cost.named(case)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        shape = shape_of(plan.problem, t)
        return (t.tile_m, t.tile_n, t.step, t.stages, t.repeat, int(shape.kept), t.parts,
                t.cluster, int(shape.span), int(shape.images), int(shape.factors),
                int(t.banked),
                f"DSCORE_{plan.problem.spec.layout.upper()}", plan.device.wavefront)

    def asked_lds_bytes(self, plan: Plan, behind: bool) -> int:
        # Of 16 bits layers by themselves lose by it (docs/benchmark_notes.md).
        return spread_lds_bytes(plan) if behind or plan.problem.spec.element.exact else 0

    def image_arguments(self, plan: Plan) -> str:
        shape = shape_of(plan.problem, plan.tiling)
        counted = {"steps": shape.kept, "images": shape.images, "factors": shape.factors,
                   "span": shape.span}
        return "".join(f"_{int(count)}_{of}" for of, count in counted.items() if count)

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        t: Any = plan.tiling
        if plan.problem.operation == "weight_gradient":
            return 0, 0
        of_input = plan.problem.operation == "input_gradient"
        pixel = row * (plan.problem.width if of_input else plan.problem.out_width) + column
        return pixel // t.tile_m % 2, pixel % t.tile_m // (ROWS // 4)

    def caption(self, plan: Plan) -> list[str]:
        t: Any = plan.tiling
        shape = shape_of(plan.problem, t)
        m, n, k = {"conv": ("pixels", "channels", "input channels"),
                   "input_gradient": ("pixels", "channels", "output channels"),
                   "weight_gradient": ("output channels", "input channels", "pixels")}[
                       plan.problem.operation]
        shares = (f" x {t.cluster} (sharing the steps)" * (t.cluster > 1)
                  + f" x {t.parts} (parts of the {k})" * (t.parts > 1))
        return [f"a warpgroup: {ROWS} {m} x {t.tile_n} {n}",
                f"a block: {t.tile_m} {m} x {t.tile_n} {n}" + f", {t.repeat} times" * (t.repeat > 1)
                + f"; {t.step} {k} a step" + ", all of whose columns stay" * t.kept
                + "; rows as one span" * t.spans + "; a table in each bank" * t.banked,
                f"the grid: {shape.tiles_n} ({n}) x {shape.blocks_m} ({m}){shares} blocks"]


def _rows(problem: ConvProblem, t: Any) -> Count:
    """Words of the rows that a lane has in registers: of a span's one step; scaled, of two."""
    elements = t.step * ROWS // (WAVES * MATRIX_WAVEFRONT)
    words = elements * problem.spec.element.bytes // WORD_BYTES
    return words * np.where(t.spans, 1, 2 * problem.spec.scaled)


def _sums(t: Any) -> Count:
    """Of a lane of a warpgroup."""
    return t.tile_n * ROWS // 128
