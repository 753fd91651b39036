"""Winograd's convolution (hip_src/winograd) as tasks on a workspace, and blocks that run them.

Order of additions: of a transform, the even and the odd part of a pair of rows each from the first
element on, then both; of products, as hip_src/winograd/product.hpp says; an output's first column,
then pairs, then the last. Products are rounded before they are added. All of the workspace is NaN
at first, so that what no task has written shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dscore.algorithms.winograd.tasks import Kind, Task, TaskMapping, mapping_of
from dscore.algorithms.winograd.tiling import WinogradTiling, shape_of
from dscore.backends.reference.gemm_lanes import halves
from dscore.backends.reference.lockstep import activate, require_launch
from dscore.backends.reference.machine import Floats, Ints, Operands, inside, lane_ids
from dscore.core.errors import LaunchError
from dscore.core.plan import Plan
from dscore.core.trace import Trace
from dscore.core.winograd import Matrix, tile_of, transforms


def run(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the convolution of *plan* to the operand out: one block takes all tasks."""
    tasks = WinogradTasks(plan, operands, trace)
    Blocks(tasks.mapping, tasks.execute, 1).run()


class Blocks:
    """Resident blocks that obtain, check, execute and update (Jia et al. 2020, section 6).

    *choose* takes a list of blocks that can go on and gives the one that does, for one step: to its
    next task's number, through its execution, or to the count that it has ended.
    """

    def __init__(self, mapping: TaskMapping, execute: Callable[[Task], None], resident: int,
                 choose: Callable[[Sequence[int]], int] = lambda blocks: blocks[0]) -> None:
        self.mapping, self.execute, self.choose = mapping, execute, choose
        self.ended: dict[tuple[Kind, int], int] = {}
        self._numbers = iter(range(len(mapping)))
        self._steps = [self._block() for _ in range(resident)]
        self._waits: list[Task | None] = [None] * resident

    def run(self) -> None:
        """Run all tasks; LaunchError where every block waits for another."""
        going = {block: self._steps[block] for block in range(len(self._steps))}
        while going:
            able = [block for block in going if self._may(self._waits[block])]
            if not able:
                waiting = ", ".join(str(self._waits[block]) for block in going)
                raise LaunchError(f"blocks wait for one another: {waiting}")
            block = self.choose(able)
            try:
                self._waits[block] = next(going[block])
            except StopIteration:
                del going[block]

    def _may(self, task: Task | None) -> bool:
        return task is None or all(self.ended.get((wait.kind, wait.group), 0) == wait.tasks
                                   for wait in self.mapping.waits(task))

    def _block(self) -> Iterator[Task | None]:
        """Steps of a block, each giving the task that the next one must wait for."""
        for number in self._numbers:
            task = self.mapping.task(number)
            yield task
            self.execute(task)
            yield None
            self.ended[task.kind, task.group] = self.ended.get((task.kind, task.group), 0) + 1


class WinogradTasks:
    """The tasks of a plan, on its operands and a workspace."""

    def __init__(self, plan: Plan, operands: Operands, trace: Trace | None = None) -> None:
        assert isinstance(plan.tiling, WinogradTiling)
        self.plan, self.problem, self.t = plan, plan.problem, plan.tiling
        self.operands, self.trace = operands, trace or Trace()
        _require_lanes(plan, self.t)
        self.shape, self.mapping = shape_of(self.problem, self.t), mapping_of(self.problem, self.t)
        _require_plan(plan, self.mapping)
        t, depth, planes = self.t, int(self.shape.depth), int(self.shape.planes)
        channels = int(self.shape.k_blocks) * t.tile_k
        self.filters = np.full((planes, channels, depth), np.nan, np.float32)  # U
        if tile_of(self.problem.spec.filter):
            self._take_filters()
        self.inputs = np.full((int(self.shape.input_slots), planes, depth, t.tile_t), np.nan,
                              np.float32)  # V
        self.products = np.full((int(self.shape.product_slots), planes, channels, t.tile_t),
                                np.nan, np.float32)  # M
        self.bt, self.g, self.at = map(_rounded, transforms(t.outputs))

    def _take_filters(self) -> None:
        """U as it was packed: by plane, four of input channels and output channel."""
        planes, fours, outs, four = self.problem.spec.w_shape
        w = self.operands["w"].reshape(planes, fours, outs, four)
        self.filters[...] = 0
        self.filters[:, :outs, :fours * four] = np.moveaxis(w, 2, 1).reshape(planes, outs, -1)
        self.trace.count_loads("filters", w.size, False)

    def execute(self, task: Task) -> None:
        """Run one task."""
        run_task: dict[Kind, Callable[[int, int], None]] = {
            "filter": lambda group, part: self.transform_filters(part),
            "input": self.transform_inputs, "product": self.multiply,
            "output": self.transform_products}
        run_task[task.kind](task.group, task.part)

    def transform_filters(self, part: int) -> None:
        """U = G w Gᵀ of tile_k output channels by input_channels; zero where there are none."""
        t, spec = self.t, self.problem.spec
        block, first = divmod(part, int(self.shape.input_tasks))
        k = block * t.tile_k + lane_ids(t.tile_k, 1)
        c = self._channels(first)
        there = (k < spec.out_channels) & (c < spec.in_channels)
        at = np.where(there, (k * spec.in_channels + c) * 9, 0)
        w = np.where(there, self.operands["w"][at + lane_ids(9, 1, 1)], np.float32(0))
        self.trace.count_loads("filters", 9 * int(np.count_nonzero(there)), False)
        columns = [_rows(self.g, w[column::3]) for column in range(3)]
        u = [_rows(self.g, [column[row] for column in columns]) for row in range(t.outputs + 2)]
        self.filters[:, k, c] = np.concatenate(u)

    def _channels(self, part: int) -> Ints:
        """Input channels of a task."""
        t, first = self.t, part * self.t.input_channels
        return first + lane_ids(min(t.input_channels, int(self.shape.depth) - first))

    def _tiles(self, group: int) -> tuple[Any, Ints, Ints, Ints]:
        """Of a group's tiles: which there are; their images, first rows and first columns."""
        tile, t = group * self.t.tile_t + lane_ids(self.t.tile_t), self.t
        row, column = np.divmod(tile, int(self.shape.columns))
        image, row = np.divmod(row, int(self.shape.rows))
        return tile < int(self.shape.tiles), image, row * t.outputs, column * t.outputs

    def transform_inputs(self, group: int, part: int) -> None:
        """V = Bᵀ d B of a task group's tiles by input_channels."""
        problem, side = self.problem, self.t.outputs + 2
        there, image, row, column = self._tiles(group)
        c = self._channels(part)[:, None]
        row = row - problem.padding[0] + lane_ids(side, 1, 1, 1)
        column = column - problem.padding[2] + lane_ids(side, 1, 1)
        held = (there & (c < problem.spec.in_channels) & inside(row, problem.height)
                & inside(column, problem.width))
        at = (image * problem.spec.in_channels + c) * problem.height + row
        at = at * problem.width + column
        d = np.where(held, self.operands["x"][np.where(held, at, 0)], np.float32(0))
        self.trace.count_loads("inputs", int(np.count_nonzero(held)), False)
        rows = _rows(self.bt, d)
        v = [_rows(self.bt, one) for one in rows]
        self.inputs[group % len(self.inputs), :, c[:, 0]] = np.moveaxis(np.concatenate(v), 1, 0)

    def multiply(self, group: int, part: int) -> None:
        """M: for each of the task's planes, filters [channel][input channel] times inputs."""
        t, k_blocks = self.t, int(self.shape.k_blocks)
        planes, block = divmod(part, k_blocks)
        of_task = slice(planes * t.planes, (planes + 1) * t.planes)
        channels = slice(block * t.tile_k, (block + 1) * t.tile_k)
        u = self.filters[of_task, channels]
        v = self.inputs[group % len(self.inputs), of_task]
        sums = np.zeros((t.planes, t.tile_k, t.tile_t), np.float32)
        for c, a, b in (_plain if t.arithmetic == "plain" else _split)(u, v):
            sums += a[:, :, c, None] * b[:, None, c]
        self.products[group % len(self.products), of_task, channels] = sums
        self._count_products(sums.size)

    def _count_products(self, sums: int) -> None:
        t, trace, depth = self.t, self.trace, int(self.shape.depth)
        trace.fmas += sums * depth * (3 if t.arithmetic == "tf32x3" else 1)
        trace.lds_writes += t.planes * depth * (t.tile_k + t.tile_t)
        # With plain arithmetic, lanes of a row, or column, read the same.
        lanes_k, lanes_t = (t.lanes_k, t.lanes_t) if t.arithmetic == "plain" else (1, 1)
        reads = t.planes * depth * (t.tile_k * (t.tile_t // t.wave_t) * lanes_t
                                    + t.tile_t * (t.tile_k // t.wave_k) * lanes_k)
        trace.lds_reads += reads
        trace.operands += reads

    def transform_products(self, group: int, part: int) -> None:
        """Outputs Aᵀ m A of a task group's tiles by output_channels."""
        problem, spec, t = self.problem, self.problem.spec, self.t
        there, image, row, column = self._tiles(group)
        first = part * t.output_channels
        k = first + lane_ids(min(t.output_channels, spec.out_channels - first), 1)
        side = t.outputs + 2
        m = self.products[group % len(self.products)][:, k[:, 0]].reshape(side, side, k.size, -1)
        columns = [_column(self.at, m[:, j]) for j in range(side)]
        y = np.stack([_column(self.at, [one[i] for one in columns]) for i in range(t.outputs)])
        row, column = row + lane_ids(t.outputs, 1, 1, 1), column + lane_ids(t.outputs, 1, 1)
        held = np.broadcast_to(
            there & (row < problem.out_height) & (column < problem.out_width), y.shape)
        at = ((image * spec.out_channels + k) * problem.out_height + row) * problem.out_width
        to = np.broadcast_to(at + column, y.shape)[held]
        self.operands["out"][to] = self._epilogue(y[held], np.broadcast_to(k, y.shape)[held], to)
        self.trace.elements_stored += to.size

    def _epilogue(self, sums: Floats, k: Ints, to: Ints) -> Floats:
        spec = self.problem.spec
        if spec.bias:
            self.trace.count_loads("biases", k.size, False)
            sums = sums + self.operands["bias"][k]
        if spec.residual:
            self.trace.count_loads("residuals", to.size, False)
        if spec.residual == "before":
            sums = sums + self.operands["residual"][to]
        activate(sums, spec.activation)
        return sums + self.operands["residual"][to] if spec.residual == "after" else sums


def _plain(u: Floats, v: Floats) -> Iterator[tuple[int, Floats, Floats]]:
    """Channels in the order of their addition, with the operands that are multiplied."""
    yield from ((c, u, v) for c in range(u.shape[2]))


def _split(u: Floats, v: Floats) -> Iterator[tuple[int, Floats, Floats]]:
    """The same of matrix units: eight channels at a time, the small parts' products first."""
    (big_u, small_u), (big_v, small_v) = halves(u), halves(v)
    for sixteen in range(0, u.shape[2], 16):
        for half in (0, 2):
            eight = [sixteen + 4 * lane + half + one for one in (0, 1) for lane in range(4)]
            for a, b in ((small_u, big_v), (big_u, small_v), (big_u, big_v)):
                yield from ((c, a, b) for c in eight)


def _rounded(matrix: Matrix) -> Floats:
    return np.array([[float(number) for number in row] for row in matrix], np.float32)


def _sum(row: Floats, values: Any, first: int, by: int) -> Any:
    """Sum of elements first, first + by, … of a row times values, those of zero left out."""
    terms = [values[i] if row[i] == 1 else row[i] * values[i]
             for i in range(first, len(row), by) if row[i] != 0]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _rows(matrix: Floats, values: Any) -> Any:
    """A matrix of an even number of rows times a column: first, pairs, last."""
    made = [_sum(matrix[0], values, 0, 1)]
    for row in range(1, len(matrix) - 1, 2):
        even, odd = _sum(matrix[row], values, 0, 2), _sum(matrix[row], values, 1, 2)
        made += [even + odd, even - odd]
    return np.stack([*made, _sum(matrix[-1], values, 0, 1)])


def _column(matrix: Floats, values: Any) -> Any:
    """Aᵀ times a column: its first element, what pairs hold, its last."""
    pairs = range(1, matrix.shape[1] - 1, 2)
    joined = ([values[i] + values[i + 1] for i in pairs],
              [values[i] - values[i + 1] for i in pairs])
    return np.stack([_sum(
        np.array([of_row[0], *of_row[1:-1:2], of_row[-1]]),
        [values[0], *joined[number % 2], values[matrix.shape[1] - 1]], 0, 1)
        for number, of_row in enumerate(matrix)])


def _require_plan(plan: Plan, mapping: TaskMapping) -> None:
    """LaunchError where the plan's grid or LDS is not the tiling's."""
    t = plan.tiling
    assert isinstance(t, WinogradTiling)
    threads = t.tile_k // t.wave_k * (t.tile_t // t.wave_t) * plan.device.wavefront
    first = mapping.filter_tasks or mapping.task_groups * mapping.input_tasks
    blocks = min(t.blocks, len(mapping)) if t.fused else first
    require_launch(plan, blocks, threads)
    barrier = 4 if t.stages > 2 and not tile_of(plan.problem.spec.filter) else 0
    lds_bytes = (4 * t.stages * (t.step * (t.tile_k + t.tile_t) + barrier) + 32) * t.fused
    if plan.use.lds_bytes < lds_bytes:
        raise LaunchError(f"{plan.name}: the ring and two tasks take {lds_bytes} bytes of LDS, but "
                          f"the plan has {plan.use.lds_bytes}")


def _require_lanes(plan: Plan, t: WinogradTiling) -> None:
    """LaunchError where the kernel does not exist, by the assertions of hip_src/winograd."""
    tf32, wavefront = t.arithmetic == "tf32x3", plan.device.wavefront
    unit_k, unit_t = (16, 16) if tf32 else (t.lanes_k, t.lanes_t)
    for wrong, what in (
            (t.outputs not in (2, 4), "a tile has 2x2 or 4x4 outputs"),
            (t.tile_k % t.wave_k or t.tile_t % t.wave_t, "a tile is not of whole wavefronts"),
            (t.tile_k % 8 or t.tile_t % 8, "a tile is not of eights of rows"),
            (t.stages < 2, "the ring has one buffer, which needs two at least"),
            (t.step % (16 if tf32 else 4) or t.input_channels % 4,
             "step and input_channels must be of whole fours (step of tf32x3: sixteens)"),
            ((t.outputs + 2) ** 2 % t.planes, "planes must divide (outputs + 2)²"),
            (t.lanes_k * t.lanes_t != wavefront or (tf32 and t.lanes_k != 8),
             f"lanes_k x lanes_t must be the wavefront {wavefront}, of tf32x3 8 x 4"),
            (t.wave_k % unit_k or t.wave_t % unit_t, "a wavefront's tile must be of whole "
             f"fragments of {unit_k} output channels x {unit_t} tiles")):
        if wrong:
            raise LaunchError(f"{plan.name}: {what}")
