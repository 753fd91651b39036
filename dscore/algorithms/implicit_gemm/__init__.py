"""Dense and grouped convolutions as products of matrices, without a copy of the unfolded images, in
register tiles, plain or on matrix units."""

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
from dscore.algorithms.columns import Count, ceil_div, floor_div, remainder
from dscore.algorithms.gemm import (
    CLUSTER_LIMIT,
    LANES_LIMIT,
    LEAST_SPLIT_CHANNELS,
    MOST_STAGES,
    TILE_LIMIT,
    fragment_c,
)
from dscore.algorithms.implicit_gemm import cost
from dscore.algorithms.implicit_gemm.product import ImplicitProduct
from dscore.algorithms.implicit_gemm.space import columns_of
from dscore.algorithms.implicit_gemm.tiling import (
    ImplicitGemmShape,
    ImplicitGemmTiling,
    shape_of,
    slides,
    splits,
    table_bytes,
    taps_of,
    under_tile,
    vectors_of,
)
from dscore.algorithms.registers import roomy
from dscore.core.device import Device
from dscore.core.numerics import ACCUMULATOR
from dscore.core.plan import Plan, Violation
from dscore.core.problem import ConvProblem

# Of a depthwise layer: row_reuse holds the taps of smaller kernels in registers.
LEAST_DEPTHWISE_TAPS = 128
LEAST_SPLIT_PRODUCTS = LEAST_SPLIT_CHANNELS  # each is a channel of gemm's sums
# Registers that a compiler takes beside sums, operands, places and what is fetched
# (docs/registers.md): usually; and hipcc at most, also where there are more of them.
_HIPCC, _NVCC, _HIPCC_MOST, _ROOMY = 44, 60, 76, 112
# Taps whose operands hipcc holds at once, and registers of a filter's vector on its way.
_HIPCC_TAPS, _HIPCC_FILTER = 3, 2


def _held(problem: ConvProblem, t: Any, shape: ImplicitGemmShape, taps: int = 1) -> Count:
    """Registers of a thread's sums of a step, its operands of some taps, and the places of its
    pixels; and of what it fetches, which a ring of two holds while it multiplies.
    """
    fetched = np.where(t.stages == 2, shape.fetched, 0)
    elements = taps * shape.operands + fetched
    return shape.step_sums + shape.places + problem.spec.element.registers * elements


def _fragment_p(case: Case) -> Count:
    return np.where(splits(case.tiling), 16, np.maximum(
        floor_div(case.device.wavefront, case.tiling.lanes_c), 1))


def _vector_left(case: Case) -> Count:
    return case.tiling.step_c * taps_of(case.problem) % vectors_of(case.problem)[1]


def _admits_split(case: Case) -> int:
    # Parts of two TF32 hold what an accumulator does, and no more.
    return int("tf32" in case.device.matrix_types and case.problem.spec.element == ACCUMULATOR
               and case.problem.spec.products >= LEAST_SPLIT_PRODUCTS)


def _slides(plan: Plan) -> bool:
    return bool(slides(plan.problem, plan.tiling, plan.device.wavefront))


class ImplicitGemm(ImplicitProduct):
    """Filters by unfolded images, the pixels of all images counted through."""

    name = "implicit_gemm"
    tiling = ImplicitGemmTiling
    limits = (
        TILE_LIMIT,
        Limit("E-FRAGMENT", "part fragments", "", "",
              lambda c: (remainder(c.tiling.wave_c, fragment_c(c))
                         + remainder(c.tiling.wave_p, _fragment_p(c)), 0),
              lambda c: f"{fragment_c(c)} channels x {_fragment_p(c)} pixels"),
        LANES_LIMIT,
        Limit("E-SLICE", "channels left", "", "",
              lambda c: (remainder(c.tiling.step_c,
                                   c.tiling.slices * np.where(splits(c.tiling), 4, 1)), 0),
              lambda c: "step_c by slices, in fours for tf32x3"),
        Limit("E-VECTOR", "elements left", "", "", lambda c: (_vector_left(c), 0),
              lambda c: "a filter's elements of a step by vectors of them"),
        Limit("E-PATCH", "under a tile", "", "",
              lambda c: (under_tile(c.problem, c.tiling.tile_p), c.tiling.patch),
              lambda c: "patch has all elements of a channel under tile_p pixels"),
        Limit("E-STAGES", "stages", "", "",
              lambda c: (c.tiling.stages, MOST_STAGES if c.device.asynchronous_copies else 2),
              lambda c: "more than 2 need asynchronous copies"),
        CLUSTER_LIMIT,
        Limit("E-SPLIT", "tf32x3", "", "",
              lambda c: (1 * splits(c.tiling), _admits_split(c)),
              lambda c: f"matrix units of TF32, {LEAST_SPLIT_PRODUCTS} summed products or more"),
    )
    spaces = (SpaceGenerator(True, columns_of),)
    weights = cost.WEIGHTS

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        kind = problem.spec.kind
        large = kind == "depthwise" and taps_of(problem) >= LEAST_DEPTHWISE_TAPS
        if large or kind in ("dense", "grouped"):
            return ()
        return (Violation("E-KIND", f"layer of {self.name}", kind, "dense, grouped, or depthwise "
                          f"of {LEAST_DEPTHWISE_TAPS} taps or more"),)

    def shape(self, problem: ConvProblem, t: Any, wavefront: int) -> Any:
        return shape_of(problem, t, wavefront)

    def chain(self, problem: ConvProblem, t: Any) -> int:
        steps = ceil_div(ceil_div(problem.spec.group_in, t.step_c), t.cluster)
        return int(t.step_c // t.slices * taps_of(problem) + steps + t.slices + t.cluster)

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        shape, element = shape_of(problem, t, wavefront), problem.spec.element.bytes
        tiles = problem.spec.groups * shape.channel_tiles * shape.pixel_tiles
        depth = shape.steps * t.step_c * taps_of(problem)
        depth_lane = floor_div(depth, t.slices)
        # Matrix units take their operands from all of a wavefront's lanes together.
        read = np.where(splits(t), (t.wave_c + t.wave_p) / wavefront,
                        t.wave_c / t.lanes_c + t.wave_p * t.lanes_c / wavefront)
        return Footprint(
            threads=shape.waves * wavefront, waves=shape.waves,
            lds_bytes=np.maximum(element * t.stages * shape.buffer + table_bytes(t),
                                 ACCUMULATOR.bytes * shape.joined),
            registers=shape.sums + _held(problem, t, shape) + COMPILER_REGISTERS,
            blocks=t.cluster * tiles,
            utilisation=problem.macs / (t.cluster * tiles * t.tile_c * t.tile_p * depth),
            fmas=shape.sums * depth_lane, operand_loads=read * depth_lane)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        shape = shape_of(problem, t, device.wavefront)
        if device.vendor == "nvidia":
            return shape.sums + _held(problem, t, shape) + _NVCC
        filters = np.where(t.stages == 2, shape.filter_vectors, 0)
        return (shape.sums + _held(problem, t, shape, _HIPCC_TAPS) + _HIPCC_FILTER * filters
                + _HIPCC)

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        wanted = self.registers(problem, t, device)
        if device.vendor == "nvidia":  # whose compiler takes what is there
            return np.full_like(wanted, device.registers_per_simd_lane)
        return wanted + (_ROOMY if roomy(device) else _HIPCC_MOST) - _HIPCC

    def work(self, case: Case, grids: Count) -> Work:
        return cost.work(case)

    def traffic(self, case: Case) -> dict[str, Count]:
        return cost.named(case)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        return (t.tile_c, t.tile_p, t.wave_c, t.wave_p, t.lanes_c, t.slices, t.step_c, t.stages,
                t.patch, t.cluster, int(t.arithmetic == "tf32x3"), int(_slides(plan)),
                *vectors_of(plan.problem), plan.device.wavefront)

    def image_arguments(self, plan: Plan) -> str:
        return "_v{}x{}".format(*vectors_of(plan.problem)) + "_slides" * _slides(plan)
