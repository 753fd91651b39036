"""Pointwise convolution and its input gradient as products of matrices, in register tiles, plain or
on matrix units."""

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
from dscore.algorithms.columns import Count, ceil_div, floor_div, power_of_two_within, remainder
from dscore.algorithms.gemm import cost
from dscore.algorithms.gemm.space import columns_of
from dscore.algorithms.gemm.tiling import (
    GemmTiling,
    shape_of,
    sizes_of,
    splits,
    turned,
    vectors_of,
)
from dscore.algorithms.refusal import require_kind
from dscore.algorithms.registers import roomy
from dscore.core.device import Device
from dscore.core.numerics import ACCUMULATOR
from dscore.core.plan import Plan, Violation
from dscore.core.problem import ConvProblem

MOST_STAGES = 16
# Each product of three TF32 ones errs by up to 8 * 2**-24 before it is added (docs/bounds.md): from
# 16 products on that is at most half of what their sum may err in float32.
LEAST_SPLIT_CHANNELS = 16  # summed
# Registers that a compiler takes beside sums, operands and what is fetched (docs/registers.md):
# no kernel of hipcc's without spills exceeded it; 86 in 100 of nvcc's keep it: what it takes
# beyond, it takes because it is there.
_HIPCC, _NVCC = 56, 60
# What nvcc takes at most in place of 60, for a kernel at all, and beside the sums of a cluster,
# which it reads from all blocks before it adds the first.
_NVCC_MOST, _NVCC_LEAST, _NVCC_JOINED = 72, 90, 4
# And of filters turned, in vectors and in single elements, which it reads early.
_NVCC_TURNED, _NVCC_SINGLE = 104, 108
# What hipcc takes at most in place of 56 where there are registers for it, and of filters turned.
_ROOMY, _ROOMY_TURNED = 88, 136

# Of products of matrices by a ring of LDS buffers: implicit_gemm has these, split_k the first.
STAGES_LIMIT = Limit("E-STAGES", "stages", "", "",
                     lambda c: (np.where(c.tiling.stages < 2, MOST_STAGES + 1, c.tiling.stages),
                                MOST_STAGES if c.device.asynchronous_copies else 2),
                     lambda c: "more than 2 need asynchronous copies")
CLUSTER_LIMIT = Limit("E-CLUSTER", "cluster", "", "",
                      lambda c: (c.tiling.cluster, c.device.cluster_blocks))


TILE_LIMIT = Limit("E-TILE", "part wavefronts", "", "",
                   lambda c: (remainder(c.tiling.tile_c, c.tiling.wave_c)
                              + remainder(c.tiling.tile_p, c.tiling.wave_p), 0),
                   lambda c: "wave_c divides tile_c, wave_p tile_p")
LANES_LIMIT = Limit("E-LANES", "lanes_c", "", "",
                    lambda c: (_lanes(c), power_of_two_within(c.tiling.lanes_c,
                                                              c.device.wavefront)),
                    lambda c: "a power of two; 8 for tf32x3")


def held_registers(problem: ConvProblem, t: Any, shape: Any) -> Count:
    """Registers of a thread's sums of a step, operands, and of what it fetches: rings of two are
    filled by itself.
    """
    fetched = np.where(t.stages == 2, shape.fetched, 0)
    return shape.step_sums + problem.spec.element.registers * (shape.operands + fetched)


def fragment_c(case: Case) -> Count:
    return np.where(splits(case.tiling), 8, case.tiling.lanes_c)


def _fragment_p(case: Case) -> Count:
    return np.where(splits(case.tiling), 16, 4 * np.maximum(
        floor_div(case.device.wavefront, case.tiling.lanes_c), 1))


def _lanes(case: Case) -> Count:
    t = case.tiling
    return np.where(splits(t) & (t.lanes_c != 8), case.device.wavefront + 1, t.lanes_c)


def _admits_split(case: Case) -> int:
    # Parts of two TF32 hold what an accumulator does, and no more.
    return int("tf32" in case.device.matrix_types and case.problem.spec.element == ACCUMULATOR
               and sizes_of(case.problem).depth >= LEAST_SPLIT_CHANNELS)


class Gemm(Algorithm):
    """Filters by pixels, the pixels of all images counted through."""

    name = "gemm"
    tiling = GemmTiling
    operations = ("conv", "input_gradient")
    limits = (
        TILE_LIMIT,
        Limit("E-FRAGMENT", "part fragments", "", "",
              lambda c: (remainder(c.tiling.wave_c, fragment_c(c))
                         + remainder(c.tiling.wave_p, _fragment_p(c)), 0),
              lambda c: f"{fragment_c(c)} channels x {_fragment_p(c)} pixels"),
        LANES_LIMIT,
        Limit("E-SLICE", "channels left", "", "",
              lambda c: (remainder(c.tiling.step_c,
                                   c.tiling.slices * np.where(splits(c.tiling), 8, 4)), 0),
              lambda c: "step_c by slices, in eights (plain: fours)"),
        Limit("E-VECTOR", "channels left", "", "",
              lambda c: (c.tiling.tile_c % vectors_of(c.problem)[1] * turned(c.problem), 0),
              lambda c: "tile_c by vectors of filters, of an input gradient"),
        STAGES_LIMIT,
        CLUSTER_LIMIT,
        Limit("E-SPLIT", "tf32x3", "", "",
              lambda c: (1 * splits(c.tiling), _admits_split(c)),
              lambda c: f"matrix units of TF32, {LEAST_SPLIT_CHANNELS} summed channels or more"),
    )
    spaces = (SpaceGenerator(True, columns_of),)
    weights = cost.WEIGHTS
    own_weights = {"input_gradient": cost.INPUT_GRADIENT}  # noqa: RUF012

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        return require_kind(problem, self.name, "pointwise")

    def chain(self, problem: ConvProblem, t: Any) -> int:
        steps = ceil_div(ceil_div(sizes_of(problem).depth, t.step_c), t.cluster)
        return int(t.step_c // t.slices + steps + t.slices + t.cluster)

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        shape, element = shape_of(problem, t, wavefront), problem.spec.element.bytes
        blocks = t.cluster * shape.channel_tiles * shape.pixel_tiles
        depth_lane = floor_div(shape.steps * t.step_c, t.slices)
        # Matrix units take their operands from all of a wavefront's lanes together.
        read = np.where(splits(t), (t.wave_c + t.wave_p) / wavefront,
                        t.wave_c / t.lanes_c + t.wave_p * t.lanes_c / wavefront)
        return Footprint(
            threads=shape.waves * wavefront, waves=shape.waves,
            lds_bytes=np.maximum(element * t.stages * shape.buffer,
                                 ACCUMULATOR.bytes * shape.joined),
            registers=shape.sums + held_registers(problem, t, shape) + COMPILER_REGISTERS,
            blocks=blocks,
            utilisation=problem.macs / (blocks * t.tile_c * t.tile_p * (shape.steps * t.step_c)),
            fmas=shape.sums * depth_lane, operand_loads=read * depth_lane)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        shape = shape_of(problem, t, device.wavefront)
        rest = _NVCC if device.vendor == "nvidia" else _HIPCC
        return shape.sums + held_registers(problem, t, shape) + rest

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        wanted = self.registers(problem, t, device)
        if any(problem.padding) or problem.spec.stride != (1, 1):
            # Each pixel has an address of its own, in each step that a compiler unrolls.
            return np.full_like(wanted, device.registers_per_simd_lane)
        if device.vendor != "nvidia":
            return self._most_of_hipcc(problem, t, device) if roomy(device) else wanted
        shape = shape_of(problem, t, device.wavefront)
        # 168 for 128 sums, 204 for 160, all there are from 192 on.
        joined = np.where(t.cluster > 1, shape.sums * t.cluster * 4 // 3 + _NVCC_JOINED, 0)
        most = _NVCC_MOST if not turned(problem) else np.where(
            splits(t) & (t.wave_c % 16 == 8), _NVCC_SINGLE, _NVCC_TURNED)
        return np.maximum(np.maximum(wanted + most - _NVCC, _NVCC_LEAST), joined)

    def _most_of_hipcc(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        """Where there are registers for it, hipcc reads the sums of all slices at once."""
        joined = np.where(t.slices > 1, shape_of(problem, t, device.wavefront).sums
                          * (t.slices - 1), 0)
        rest = _ROOMY_TURNED if turned(problem) else _ROOMY
        return np.maximum(self.registers(problem, t, device) + rest - _HIPCC, joined + rest)

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        sizes = sizes_of(problem)
        return bool(sizes.channels % t.tile_c or sizes.depth % t.step_c or sizes.pixels % t.tile_p)

    def work(self, case: Case, grids: Count) -> Work:
        return cost.work(case)

    def traffic(self, case: Case) -> dict[str, Count]:
        return cost.named(case)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        return (t.tile_c, t.tile_p, t.wave_c, t.wave_p, t.lanes_c, t.slices, t.step_c, t.stages,
                t.cluster, int(t.arithmetic == "tf32x3"), *vectors_of(plan.problem),
                plan.device.wavefront)

    def image_arguments(self, plan: Plan) -> str:
        return "_v{}x{}".format(*vectors_of(plan.problem))

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        t: Any = plan.tiling
        pixel = row * sizes_of(plan.problem).width + column
        return pixel // t.tile_p % 2, pixel % t.tile_p // t.wave_p

    def caption(self, plan: Plan) -> list[str]:
        t: Any = plan.tiling
        shape = shape_of(plan.problem, t, plan.device.wavefront)
        summed = "output" if turned(plan.problem) else "input"
        sharing = f", {t.slices} sharing the {summed} channels" * (t.slices > 1)
        cluster = f"{t.cluster} (sharing the steps) x " * (t.cluster > 1)
        return [f"a wavefront: {t.wave_c} channels x {t.wave_p} pixels{sharing}",
                f"a block: {t.tile_c} channels x {t.tile_p} pixels, counted through all images; "
                f"{t.step_c} {summed} channels a step",
                f"the grid: {cluster}{shape.channel_tiles} (channels) x {shape.pixel_tiles} "
                "(pixels) blocks"]
