"""Tasks of Winograd's convolution as values, and their order by Algorithm 1 of Jia et al. 2020.

The paper writes a table of tasks before the launch. Here the task of a number follows from the
number (`TaskMapping.task`), as in hip_src/winograd/mapping.hpp, so that nothing is to be written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from dscore.algorithms.columns import ceil_div
from dscore.algorithms.winograd.tiling import shape_of
from dscore.core.problem import ConvProblem

Kind = Literal["filter", "input", "product", "output"]


class Task(NamedTuple):
    """One task: *part* is its number among those of its kind in the task group.

    All filter tasks are in group 0.
    """

    kind: Kind
    group: int
    part: int


class Wait(NamedTuple):
    """What a task waits for: that so many tasks of a kind have ended, of a task group."""

    kind: Kind
    group: int
    tasks: int


@dataclass(frozen=True)
class TaskMapping:
    """The order of tasks: Algorithm 1, with what it leaves open decided.

    In the paper's letters: `filter_tasks` N_F, `task_groups` N_G; of a group `input_tasks` S_I,
    `product_tasks` S_G, `output_tasks` S_O; `groups` M. `lead` and `lag` are D_IG and D_GO in
    rounds of M task groups. In a round each set of filters is multiplied by the inputs of M task
    groups before the next set is; M·S_I/S_G input tasks and M·S_O/S_G output tasks go before and
    after these products, rounded so that each round has whole groups of them. The last round has
    the groups that are left.

    A slot of the workspace is used again: inputs wait for the products of the group that had the
    slot before, `input_slots` groups earlier, and products for its outputs, `product_slots` groups
    earlier.

    >>> mapping = TaskMapping(2, 2, 1, 2, 1, groups=1, lead=1, lag=1, input_slots=2,
    ...                       product_slots=2)
    >>> " ".join(f"{task.kind[0]}{task.group}{task.part}" for task in mapping)
    'f00 f01 i00 p00 i10 p01 p10 p11 o00 o10'
    """

    filter_tasks: int
    task_groups: int
    input_tasks: int
    product_tasks: int
    output_tasks: int
    groups: int
    lead: int
    lag: int
    input_slots: int
    product_slots: int

    def __len__(self) -> int:
        return self.filter_tasks + self.task_groups * (
            self.input_tasks + self.product_tasks + self.output_tasks)

    @property
    def rounds(self) -> int:
        """Rounds of `groups` task groups."""
        return int(ceil_div(self.task_groups, self.groups))

    @property
    def input_distance(self) -> int:
        """D_IG: tasks before the first product, after the filters."""
        return self.input_tasks * self._groups_before(self.lead)

    @property
    def output_distance(self) -> int:
        """D_GO: tasks between the first product and the first output."""
        return self.start(min(self.lag, self.rounds)) - self.start(0)

    def _groups_before(self, round_: int) -> int:
        return min(max(round_, 0) * self.groups, self.task_groups)

    def start(self, round_: int) -> int:
        """Number of the first task of a round."""
        inputs = max(self._groups_before(round_ + self.lead), self._groups_before(self.lead))
        return (self.filter_tasks + self.input_tasks * inputs
                + self.product_tasks * self._groups_before(round_)
                + self.output_tasks * self._groups_before(round_ - self.lag))

    def _of_round(self, round_: int) -> tuple[int, int, int]:
        """Input, product (of one set of filters) and output tasks of a round."""
        before = self._groups_before
        return (self.input_tasks * (before(round_ + self.lead + 1) - before(round_ + self.lead)),
                before(round_ + 1) - before(round_),
                self.output_tasks * (before(round_ - self.lag + 1) - before(round_ - self.lag)))

    def __iter__(self) -> Iterator[Task]:
        """All tasks by the loops of Algorithm 1."""
        inputs = iter(self._all("input", self.input_tasks))
        outputs = iter(self._all("output", self.output_tasks))
        yield from (Task("filter", 0, part) for part in range(self.filter_tasks))
        yield from (next(inputs) for _ in range(self.input_distance))
        for round_ in range(self.rounds):
            of_inputs, products, of_outputs = self._of_round(round_)
            for j in range(self.product_tasks):
                yield from (next(inputs) for _ in range(self._share(of_inputs, j)))
                yield from (Task("product", self._groups_before(round_) + i, j)
                            for i in range(products))
                yield from (next(outputs) for _ in range(self._share(of_outputs, j)))
        yield from outputs

    def _all(self, kind: Kind, each: int) -> list[Task]:
        return [Task(kind, group, part) for group in range(self.task_groups)
                for part in range(each)]

    def _share(self, tasks: int, j: int) -> int:
        return (j + 1) * tasks // self.product_tasks - j * tasks // self.product_tasks

    def task(self, number: int) -> Task:
        """The task of a number, without those before it."""
        if number < self.filter_tasks:
            return Task("filter", 0, number)
        if number < self.start(0):
            return self._nth("input", self.input_tasks, number - self.filter_tasks)
        if number >= self.start(self.rounds):
            left = number - self.start(self.rounds)
            return self._nth("output", self.output_tasks,
                             self.output_tasks * self._groups_before(self.rounds - self.lag) + left)
        round_ = next(r for r in range(self.rounds) if number < self.start(r + 1))
        return self._in_round(round_, number - self.start(round_))

    def _nth(self, kind: Kind, each: int, number: int) -> Task:
        return Task(kind, number // each, number % each)

    def _in_round(self, round_: int, at: int) -> Task:
        inputs, products, outputs = self._of_round(round_)

        def before(j: int) -> int:
            return (j * inputs // self.product_tasks + j * products
                    + j * outputs // self.product_tasks)

        j = at * self.product_tasks // before(self.product_tasks)
        while before(j) > at:
            j -= 1
        while before(j + 1) <= at:
            j += 1
        at -= before(j)
        share = self._share(inputs, j)
        if at < share:
            first = self.input_tasks * self._groups_before(round_ + self.lead)
            return self._nth("input", self.input_tasks,
                             first + j * inputs // self.product_tasks + at)
        at -= share
        if at < products:
            return Task("product", self._groups_before(round_) + at, j)
        first = self.output_tasks * self._groups_before(round_ - self.lag)
        return self._nth("output", self.output_tasks,
                         first + j * outputs // self.product_tasks + at - products)

    def waits(self, task: Task) -> tuple[Wait, ...]:
        """What has to end before *task*: its parents, and the readers of the slot it writes to."""
        kind, group, _ = task
        waits: list[Wait] = []
        if kind == "input" and group >= self.input_slots:
            waits.append(Wait("product", group - self.input_slots, self.product_tasks))
        if kind == "product":
            waits += [Wait("filter", 0, self.filter_tasks), Wait("input", group, self.input_tasks)]
            if group >= self.product_slots:
                waits.append(Wait("output", group - self.product_slots, self.output_tasks))
        if kind == "output":
            waits.append(Wait("product", group, self.product_tasks))
        return tuple(waits)


def mapping_of(problem: ConvProblem, t: Any) -> TaskMapping:
    """The order of the tasks of one tiling."""
    shape = shape_of(problem, t)
    sizes = (shape.filter_tasks, shape.task_groups, shape.input_tasks, shape.product_tasks,
             shape.output_tasks, t.groups, t.lead, t.lag, shape.input_slots, shape.product_slots)
    return TaskMapping(*map(int, sizes))
