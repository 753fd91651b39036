"""Dense 3x3 convolution by Winograd's minimal filtering, all of its tasks in one persistent kernel
or a kernel for each kind of them (Jia et al. 2020)."""

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
from dscore.algorithms.columns import Count
from dscore.algorithms.winograd import cost, registers
from dscore.algorithms.winograd.space import columns_of
from dscore.algorithms.winograd.tiling import (
    ALIGNMENT_BYTES,
    CHUNK,
    PERMUTED,
    WinogradShape,
    WinogradTiling,
    counter_bytes,
    lds_bytes,
    ring_bytes,
    shape_of,
    splits,
    vectors_of,
    workspace_of,
)
from dscore.core.device import Device
from dscore.core.numerics import PlanArithmetic
from dscore.core.plan import Launch, Plan, Violation
from dscore.core.problem import ConvProblem
from dscore.core.winograd import TILES, has_tiles, tile_of

MOST_STAGES = 16
# Kernels count tasks, and a round's tasks times those of a task group, with 32-bit integers.
_MOST_TASKS = 2**31 - 1

def _tiles(case: Case) -> tuple[int, ...]:
    """The m that there are, or the one that the filter was transformed for."""
    transformed = tile_of(case.problem.spec.filter)
    return (transformed,) if transformed else TILES


def _shape(case: Case) -> WinogradShape:
    return shape_of(case.problem, case.tiling)


def _fragment_k(case: Case) -> Count:
    return np.where(splits(case.tiling), 16, case.tiling.lanes_k)


def _fragment_t(case: Case) -> Count:
    return np.where(splits(case.tiling), 16, case.tiling.lanes_t)


def _other_lanes(case: Case) -> Count:
    t = case.tiling
    other = np.abs(t.lanes_k * t.lanes_t - case.device.wavefront)
    return other + np.where(splits(t), np.abs(t.lanes_k - 8), 0)


def _products_at_most(case: Case) -> Count:
    shape, t = _shape(case), case.tiling
    each = np.maximum(shape.input_tasks, shape.output_tasks)
    return np.maximum(shape.tasks, t.groups * each * shape.product_tasks)


class Winograd(Algorithm):
    """Tiles of 4x4 or 2x2 outputs, transformed so that a product of matrices sums their channels.
    """

    name = "winograd"
    tiling = WinogradTiling
    limits = (
        Limit("E-OUTPUTS", "tile outputs", "", "",
              lambda c: (np.min([np.abs(c.tiling.outputs - m) for m in _tiles(c)], axis=0), 0),
              lambda c: "outputs is " + " or ".join(map(str, _tiles(c)))),
        Limit("E-TILE", "block wavefronts", "", "",
              lambda c: (c.tiling.tile_k % c.tiling.wave_k + c.tiling.tile_t % c.tiling.wave_t
                         + c.tiling.tile_k % PERMUTED + c.tiling.tile_t % PERMUTED, 0),
              lambda c: f"wave_k divides tile_k, wave_t tile_t; these are {PERMUTED}s"),
        Limit("E-FRAGMENT", "block fragments", "", "",
              lambda c: (c.tiling.wave_k % _fragment_k(c) + c.tiling.wave_t % _fragment_t(c), 0),
              lambda c: f"{_fragment_k(c)} output channels x {_fragment_t(c)} tiles"),
        Limit("E-LANES", "lanes left", "", "", lambda c: (_other_lanes(c), 0),
              lambda c: f"lanes_k x lanes_t is {c.device.wavefront}; of tf32x3 8 x 4"),
        Limit("E-SLICE", "channels left", "", "",
              lambda c: (c.tiling.step % np.where(splits(c.tiling), 16, CHUNK)
                         + c.tiling.input_channels % CHUNK, 0),
              lambda c: "step and input_channels in fours (step of tf32x3: sixteens)"),
        Limit("E-DIV-P", "planes left", "", "",
              lambda c: ((c.tiling.outputs + 2) ** 2 % c.tiling.planes, 0),
              lambda c: "planes divides (outputs + 2)²"),
        Limit("E-STAGES", "stages", "", "",
              lambda c: (np.where(c.tiling.stages < 2, MOST_STAGES + 1, c.tiling.stages),
                         MOST_STAGES if c.device.asynchronous_copies else 2),
              lambda c: "more than 2 need asynchronous copies"),
        Limit("E-SPLIT", "tf32x3", "", "",
              lambda c: (1 * splits(c.tiling), int("tf32" in c.device.matrix_types)),
              lambda c: "matrix units of TF32"),
        Limit("E-TASKS", "tasks", "", "", lambda c: (_products_at_most(c), _MOST_TASKS),
              lambda c: "also a round's of a kind by the products of a task group"),
        # What the block of the first kernel has, DEVICE_LIMITS judge.
        Limit("E-LDS-PRODUCT", "product's LDS", "B", "",
              lambda c: (ring_bytes(c.problem, c.tiling), c.device.lds_bytes_per_block),
              legality=False),
        Limit("E-WORKSPACE", "workspace", "B", "",
              lambda c: (workspace_of(c.problem, c.tiling).bytes,
                         c.device.memory_bytes // 2),
              lambda c: "half of the device's memory", legality=False, hardware=True),
    )
    spaces = (SpaceGenerator(True, columns_of),)
    permission = "winograd"
    filters = ("plain", "winograd2", "winograd4")
    weights = cost.WEIGHTS

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        spec = problem.spec
        if spec.groups > 1:
            return (Violation("E-GROUPS", f"groups of {self.name}", spec.groups, 1),)
        if has_tiles(spec.kernel, spec.stride, spec.dilation):
            return ()
        shape = (f"{spec.kernel[0]}x{spec.kernel[1]}, stride {spec.stride[0]}x{spec.stride[1]}, "
                 f"dilation {spec.dilation[0]}x{spec.dilation[1]}")
        return (Violation("E-KERNEL", f"kernel of {self.name}", shape,
                          "3x3, stride 1x1, dilation 1x1"),)

    def arithmetic(self, problem: ConvProblem, t: Any) -> PlanArithmetic:
        if t.outputs == 4:
            return "winograd4" if t.computes("plain") else "winograd4_tf32x3"
        return "winograd2" if t.computes("plain") else "winograd2_tf32x3"

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        shape = shape_of(problem, t)
        threads = shape.waves * wavefront
        first = shape.task_groups * shape.input_tasks if tile_of(problem.spec.filter) else (
            shape.filter_tasks)
        blocks = np.where(t.fused, np.minimum(t.blocks, shape.tasks), first)
        made = shape.planes * shape.task_groups * t.tile_t * shape.k_blocks * t.tile_k
        # Matrix units take their operands from all of a wavefront's lanes together.
        read = np.where(splits(t), (t.wave_k + t.wave_t) / wavefront,
                        t.wave_k / t.lanes_k + t.wave_t / t.lanes_t)
        fmas = made * shape.depth / (blocks * threads)
        return Footprint(
            threads=threads, waves=shape.waves,
            lds_bytes=lds_bytes(problem, t),
            registers=np.maximum(registers.summed(shape, t), registers.transformed(t))
            + COMPILER_REGISTERS,
            blocks=blocks,
            utilisation=shape.planes * shape.tiles * problem.spec.out_channels
            * problem.spec.in_channels / (made * shape.depth),
            fmas=fmas, operand_loads=fmas * read / shape.sums)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        return registers.wanted(problem, t, device)

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        return registers.most(problem, t, device)

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        shape = shape_of(problem, t)
        return bool(problem.out_height % t.outputs or problem.out_width % t.outputs
                    or shape.tiles % t.tile_t or problem.spec.out_channels % t.tile_k
                    or problem.spec.in_channels % t.step)

    def workspace_bytes(self, problem: ConvProblem, t: Any) -> int:
        return int(workspace_of(problem, t).bytes)

    def cleared_bytes(self, problem: ConvProblem, t: Any) -> int:
        counters = int(counter_bytes(shape_of(problem, t), t))
        return counters + ALIGNMENT_BYTES if counters else 0

    def further_launches(self, problem: ConvProblem, t: Any) -> tuple[Launch, ...]:
        if t.fused:
            return ()
        shape = shape_of(problem, t)
        threads = int(shape.waves) * t.lanes_k * t.lanes_t
        groups = int(shape.task_groups)
        inputs = Launch(groups * int(shape.input_tasks), threads, 0)
        return (*(() if tile_of(problem.spec.filter) else (inputs,)),
                Launch(groups * int(shape.product_tasks), threads, int(ring_bytes(problem, t))),
                Launch(groups * int(shape.output_tasks), threads, 0))

    def work(self, case: Case, grids: Count) -> Work:
        return cost.work(case)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        return (t.outputs, t.tile_k, t.tile_t, t.wave_k, t.wave_t, t.lanes_k, t.step, t.stages,
                t.planes, t.input_channels, t.output_channels, t.groups, t.lead, t.lag, t.spare,
                t.blocks, int(t.fused), int(t.arithmetic == "tf32x3"),
                int(tile_of(plan.problem.spec.filter) > 0), *vectors_of(plan.problem),
                plan.device.wavefront)

    def image_arguments(self, plan: Plan) -> str:
        packed = "_packed" if tile_of(plan.problem.spec.filter) else ""
        return "_v{}x{}".format(*vectors_of(plan.problem)) + packed

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        t: Any = plan.tiling
        tile = row // t.outputs * -(-plan.problem.out_width // t.outputs) + column // t.outputs
        return tile // t.tile_t % 2, tile % t.tile_t // t.wave_t

    def caption(self, plan: Plan) -> list[str]:
        return []
