"""Weight gradient of a pointwise convolution: a product of matrices whose long sums over the pixels
of all images are split over blocks, and added in a fixed order."""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.algorithms.base import (
    COMPILER_REGISTERS,
    VECTOR_BYTES,
    Algorithm,
    Case,
    Footprint,
    Limit,
    SpaceGenerator,
    Work,
)
from dscore.algorithms.columns import (
    Count,
    ceil_div,
    floor_div,
    power_of_two_within,
    remainder,
)
from dscore.algorithms.gemm import CLUSTER_LIMIT, STAGES_LIMIT, held_registers
from dscore.algorithms.refusal import require_kind
from dscore.algorithms.registers import roomy
from dscore.algorithms.split_k import cost
from dscore.algorithms.split_k.space import columns_of
from dscore.algorithms.split_k.tiling import (
    SUM_THREADS,
    SplitKTiling,
    pieces,
    pixels_of,
    shape_of,
    splits,
    sum_rows,
    vectors_of,
)
from dscore.core.device import Device
from dscore.core.numerics import ACCUMULATOR
from dscore.core.plan import Launch, Plan, Violation
from dscore.core.problem import MAX_ELEMENTS, ConvProblem

MOST_PARTS = 1024
# As in gemm: what three TF32 products for one leave out is at most half of what the sum may err.
LEAST_SPLIT_PIXELS = 16
# Registers that a compiler takes beside sums, operands and what is fetched (docs/registers.md):
# hipcc at most, nvcc usually. It takes up to 34 more, 12 beside sums of a step, and up to 96 for a
# kernel at all.
_HIPCC, _NVCC, _NVCC_MORE, _NVCC_BESIDE, _NVCC_LEAST = 28, 40, 34, 12, 96
# What hipcc takes beyond where there are registers for it; and of whole planes, whose loops it
# unrolls, one for so many pixels of a step.
_ROOMY, _PLANE_PIXELS = 16, 5


def _fragment_o(case: Case) -> Count:
    return np.where(splits(case.tiling), 16, case.tiling.lanes_o)


def _fragment_i(case: Case) -> Count:
    return np.where(splits(case.tiling), 8, np.maximum(
        floor_div(case.device.wavefront, case.tiling.lanes_o), 1))


def _together(t: Any) -> Count:
    return np.where(t.planes, 1, np.where(splits(t), 8, 4))


def _admits_planes(case: Case) -> Count:
    problem, t = case.problem, case.tiling
    most = VECTOR_BYTES // problem.spec.element.bytes
    area = problem.out_height * problem.out_width
    return 1 * ((t.step == t.slices * area) & (t.tile_o % most == 0) & (t.tile_i % most == 0)
                & pieces(problem))


def _lanes(case: Case) -> Count:
    t = case.tiling
    return np.where(splits(t) & (t.lanes_o != 8), case.device.wavefront + 1, t.lanes_o)


def _admits_split(case: Case) -> int:
    # Parts of two TF32 hold what an accumulator does, and no more.
    return int("tf32" in case.device.matrix_types and case.problem.spec.element == ACCUMULATOR
               and pixels_of(case.problem) >= LEAST_SPLIT_PIXELS)


def _most_parts(case: Case) -> int:
    # The elements of the workspace are counted in 32 bits, as those of an operand are.
    spec = case.problem.spec
    return min(MOST_PARTS, MAX_ELEMENTS // (spec.in_channels * spec.out_channels))


class SplitK(Algorithm):
    """Output channels by input channels, the pixels of all images summed through."""

    name = "split_k"
    tiling = SplitKTiling
    operations = ("weight_gradient",)
    limits = (
        Limit("E-TILE", "part wavefronts", "", "",
              lambda c: (remainder(c.tiling.tile_o, c.tiling.wave_o)
                         + remainder(c.tiling.tile_i, c.tiling.wave_i), 0),
              lambda c: "wave_o divides tile_o, wave_i tile_i"),
        Limit("E-FRAGMENT", "part fragments", "", "",
              lambda c: (remainder(c.tiling.wave_o, _fragment_o(c))
                         + remainder(c.tiling.wave_i, _fragment_i(c)), 0),
              lambda c: f"{_fragment_o(c)} output channels x {_fragment_i(c)} input channels"),
        Limit("E-LANES", "lanes_o", "", "",
              lambda c: (_lanes(c), power_of_two_within(c.tiling.lanes_o, c.device.wavefront)),
              lambda c: "a power of two; 8 for tf32x3"),
        Limit("E-SLICE", "pixels left", "", "",
              lambda c: (remainder(c.tiling.step, c.tiling.slices * _together(c.tiling)), 0),
              lambda c: "step by slices, in eights (plain: fours; planes: any)"),
        Limit("E-PLANES", "planes", "", "",
              lambda c: (1 * c.tiling.planes, _admits_planes(c)),
              lambda c: "a step of an image of each slice, stride 1, no padding, channels by "
              "vectors"),
        Limit("E-VECTOR", "channels left", "", "",
              lambda c: (c.tiling.tile_i % vectors_of(c.problem)[2], 0),
              lambda c: "tile_i by vectors of the result"),
        STAGES_LIMIT,
        Limit("E-PARTS", "parts", "", "",
              lambda c: (c.tiling.parts, _most_parts(c)),
              lambda c: "each has a result of its own in the workspace"),
        CLUSTER_LIMIT,
        Limit("E-SPLIT", "tf32x3", "", "",
              lambda c: (1 * splits(c.tiling), _admits_split(c)),
              lambda c: f"matrix units of TF32, {LEAST_SPLIT_PIXELS} summed pixels or more"),
    )
    spaces = (SpaceGenerator(True, columns_of),)
    weights = cost.WEIGHTS

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        return require_kind(problem, self.name, "pointwise")

    def chain(self, problem: ConvProblem, t: Any) -> int:
        steps = ceil_div(ceil_div(pixels_of(problem), t.step), t.parts * t.cluster)
        return int(ceil_div(t.step, t.slices) + steps + t.slices + t.cluster + t.parts)

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        shape, element = shape_of(problem, t, wavefront), problem.spec.element.bytes
        depth_lane = floor_div(shape.steps * t.step, t.slices)
        # Matrix units take their operands from all of a wavefront's lanes together.
        read = np.where(splits(t), (t.wave_o + t.wave_i) / wavefront,
                        t.wave_o / t.lanes_o + t.wave_i * t.lanes_o / wavefront)
        return Footprint(
            threads=shape.waves * wavefront, waves=shape.waves,
            lds_bytes=np.maximum(element * t.stages * shape.buffer + shape.barriers,
                                 ACCUMULATOR.bytes * shape.joined),
            registers=shape.sums + held_registers(problem, t, shape) + COMPILER_REGISTERS,
            blocks=t.parts * t.cluster * shape.tiles,
            utilisation=problem.macs / (shape.tiles * t.tile_o * t.tile_i
                                        * (shape.all_steps * t.step)),
            fmas=shape.sums * depth_lane, operand_loads=read * depth_lane)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        shape = shape_of(problem, t, device.wavefront)
        rest = _NVCC if device.vendor == "nvidia" else _HIPCC
        return shape.sums + held_registers(problem, t, shape) + rest

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        wanted = self.registers(problem, t, device)
        if any(problem.padding) or problem.spec.stride != (1, 1):
            # Each pixel has an address of its own, as in gemm.
            return np.full_like(wanted, device.registers_per_simd_lane)
        if device.vendor != "nvidia":
            return wanted + _ROOMY * roomy(device) + np.where(
                t.planes, ceil_div(t.step, _PLANE_PIXELS), 0)
        beside = shape_of(problem, t, device.wavefront).step_sums > 0
        return np.maximum(wanted + np.where(beside, _NVCC_BESIDE, _NVCC_MORE), _NVCC_LEAST)

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        return bool(problem.spec.out_channels % t.tile_o or problem.spec.in_channels % t.tile_i
                    or pixels_of(problem) % t.step)

    def workspace_bytes(self, problem: ConvProblem, t: Any) -> int:
        weights = problem.spec.out_channels * problem.spec.in_channels
        return int(ACCUMULATOR.bytes * t.parts * weights) if t.parts > 1 else 0

    def further_launches(self, problem: ConvProblem, t: Any) -> tuple[Launch, ...]:
        if t.parts == 1:
            return ()
        width, rows = vectors_of(problem)[2], sum_rows(t.parts)
        vectors = problem.spec.out_channels * problem.spec.in_channels // width
        lds_bytes = ACCUMULATOR.bytes * width * SUM_THREADS if rows > 1 else 0
        return (Launch(ceil_div(vectors, SUM_THREADS // rows), SUM_THREADS, lds_bytes),)

    def work(self, case: Case, grids: Count) -> Work:
        return cost.work(case)

    def traffic(self, case: Case) -> dict[str, Count]:
        return cost.named(case)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        return (t.tile_o, t.tile_i, t.wave_o, t.wave_i, t.lanes_o, t.slices, t.step, t.stages,
                t.parts, t.cluster, int(t.planes), int(t.arithmetic == "tf32x3"),
                *vectors_of(plan.problem, t.planes), plan.device.wavefront)

    def image_arguments(self, plan: Plan) -> str:
        t: Any = plan.tiling
        return "_v{}x{}x{}".format(*vectors_of(plan.problem, t.planes))

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        return 0, 0

    def caption(self, plan: Plan) -> list[str]:
        t: Any = plan.tiling
        shape = shape_of(plan.problem, t, plan.device.wavefront)
        sharing = f", {t.slices} sharing the pixels of a step" * (t.slices > 1)
        return [f"a wavefront: {t.wave_o} output channels x {t.wave_i} input channels{sharing}",
                f"a block: {t.tile_o} output channels x {t.tile_i} input channels; {t.step} pixels "
                + ("a step, whole images" if t.planes else "a step, counted through all images"),
                f"the grid: {shape.tiles} (channels) x {t.parts * t.cluster} (parts of the pixels) "
                "blocks"]
