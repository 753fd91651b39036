"""The model of Jia et al. 2020, sections 5.2 to 5.4, by which mappings are chosen.

Where all kinds of tasks run at a time, what they compute and what they move overlap (Eq. 9);
kernels one after the other do so only within a kind (Eq. 8). Tasks that follow too soon upon their
parents wait (Eq. 10); so do all at the beginning and at the end, where one kind is left alone. What
is read again from the L2 cache is not moved: transformed tiles while the rounds that the workspace
holds fit in there, filters once for the `groups` task groups of a round (section 5.4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dscore.algorithms.base import Case, Work
from dscore.algorithms.columns import Count, ceil_div
from dscore.algorithms.winograd.registers import resident
from dscore.algorithms.winograd.tiling import shape_of, splits, workspace_of
from dscore.core.numerics import ACCUMULATOR
from dscore.ops import compulsory_bytes

# Clocks of a wavefront: of an instruction of the matrix units, of a word of operands that it reads
# and splits in two, of a multiply-add; instructions of a channel of a wavefront's tiles that is
# transformed; clocks that a block waits one after another, for each step of a product and for its
# first data, for each turn of a transform and for each task. Bytes for a byte between L2 and
# compute units, and for one of memory that is passed on. Fitted to timings on one NVIDIA H200
# (docs/model.md); that of a multiply-add is an estimate.
WEIGHTS = {"product": 4.84, "split": 0.986, "fma": 1.1, "input": 382.0, "output": 22.8,
           "filter": 5.22, "step": 555.0, "fill": 108.0, "turn": 1300.0, "task": 6930.0,
           "loaded": 0.371, "passed": 0.698, "share": 1.23, "rounded": 2.76, "lone": 0.922,
           "first": 497.0, "serial": 0.148, "launch": 3550.0, "block": 0.0, "memory": 0.0,
           "norm": 1.36}
# Part of the L2 cache that holds what is passed on: the rest holds inputs and outputs passing by.
_PART_OF_L2 = 0.6


@dataclass(frozen=True)
class Tasks:
    """All tasks of a kind: how many, how many of their blocks are resident on a compute unit; the
    clocks of all their wavefronts' instructions and matrix units, and those that one of them waits;
    bytes from and to the L2 cache, and memory.
    """

    count: Count
    resident: Count
    issue: Count
    products: Count
    wait: Count
    l2_bytes: Count
    memory_bytes: Count

    def parts(self, case: Case) -> list[Count]:
        """Seconds that these keep each unit of the device busy."""
        device = case.device
        simds = device.compute_units * device.simds_per_cu * device.clock_hz
        issue = device.wavefront * device.simds_per_cu / device.fp32_lanes_per_cu
        # A block that is alone on its unit has nothing to do while it waits for a step.
        busy = 1 + case.weights["lone"] / self.resident**2
        return [busy * (self.issue * issue + self.products) / simds,
                case.weights["loaded"] * self.l2_bytes / device.bandwidth,
                self.memory_bytes / device.bandwidth]

    def alone(self, case: Case) -> Count:
        """Clocks of a task beside as many others as are resident."""
        device = case.device
        beside = np.minimum(self.resident, ceil_div(self.count, device.compute_units))
        each = (self.issue + self.products) / (self.count * device.simds_per_cu)
        return self.wait + case.weights["serial"] * beside * each

    def seconds(self, case: Case) -> Count:
        """Time of a kernel of these tasks alone."""
        device = case.device
        cus, rounded = device.compute_units, case.weights["rounded"]
        uneven = 1 + rounded * (ceil_div(self.count, cus) * cus / self.count - 1)
        rounds = np.maximum(self.count / (self.resident * cus), 1)
        rounds = rounds + rounded * (np.ceil(rounds) - rounds)
        computed, *moved = self.parts(case)
        return _norm(case, uneven * computed, *moved,
                     rounds * self.alone(case) / device.clock_hz)


def _norm(case: Case, *parts: Count) -> Count:
    power = case.weights["norm"]
    stacked = np.stack([np.asarray(part, np.float64) for part in np.broadcast_arrays(*parts)])
    return (stacked**power).sum(axis=0) ** (1 / power)


def tasks_of(case: Case) -> tuple[Tasks, Tasks, Tasks, Tasks]:
    """Filters, inputs, products and outputs of a case."""
    problem, t, weight, device = case.problem, case.tiling, case.weights, case.device
    shape, spec, wavefront = shape_of(problem, t), problem.spec, device.wavefront
    channels, tiles = shape.k_blocks * t.tile_k, shape.task_groups * t.tile_t
    plane = ACCUMULATOR.bytes * shape.planes
    filters = plane * channels * shape.depth * np.minimum(shape.filter_tasks, 1)
    inputs, products = plane * tiles * shape.depth, plane * tiles * channels
    kept, reread = _kept(case, filters, inputs, products)
    multiplied = shape.planes * tiles * channels * shape.depth
    read = spec.element.bytes * problem.batch * spec.in_channels * problem.height * problem.width
    written = spec.element.bytes * problem.batch * spec.out_channels * (
        problem.out_height * problem.out_width)
    weights_read = compulsory_bytes(problem) - read - written
    split, threads = splits(t), shape.waves * wavefront
    transforming, multiplying = resident(problem, t, device)
    steps = t.planes * (shape.depth // t.step)
    words = multiplied / (t.wave_k * t.wave_t) * (t.wave_k + t.wave_t) / wavefront
    issue = np.where(split, weight["split"] * words, weight["fma"] * multiplied / wavefront)
    groups = shape.task_groups

    def turns(channels: Count) -> Count:
        return weight["turn"] * ceil_div(channels * t.tile_t, threads)

    return (
        Tasks(np.maximum(shape.filter_tasks, 1), transforming,
              weight["filter"] * (filters / plane) / wavefront, 0.0,
              weight["turn"] * ceil_div(t.input_channels * t.tile_k, threads),
              filters + weights_read, weights_read + kept[0] * filters),
        Tasks(groups * shape.input_tasks, transforming,
              weight["input"] * tiles * shape.depth / wavefront, 0.0, turns(t.input_channels),
              inputs + read * (t.outputs + 2) ** 2 / t.outputs**2, read + kept[1] * inputs),
        Tasks(groups * shape.product_tasks, multiplying, issue,
              np.where(split, weight["product"] * 3 * multiplied / 1024, 0.0),
              weight["fill"] + weight["step"] * steps,
              inputs * shape.k_blocks + filters * groups + products,
              kept[0] * filters * reread + kept[1] * inputs + kept[2] * products),
        Tasks(groups * shape.output_tasks, transforming,
              weight["output"] * tiles * channels / wavefront, 0.0, turns(t.output_channels),
              products + written, written + kept[2] * products))


def _kept(case: Case, filters: Count, inputs: Count,
          products: Count) -> tuple[tuple[Count, Count, Count], Count]:
    """Shares of filters, inputs and products that leave the L2 cache on their way, and how often
    all filters come back."""
    t, device, weight = case.tiling, case.device, case.weights["passed"]
    room, workspace = _PART_OF_L2 * device.l2_bytes, workspace_of(case.problem, t)

    def left(held: Count) -> Count:
        return weight * np.clip((held - room) / np.maximum(held, 1), 0.0, 1.0)

    ring = left(workspace.inputs + workspace.products)
    # A round's sets of filters, each read by all of its task groups (reuse (M - 1)/M).
    rounds = np.where(t.fused, shape_of(case.problem, t).rounds, 1)
    absent = np.clip((filters + np.minimum(workspace.inputs + workspace.products, room) - room)
                     / np.maximum(filters, 1), 0.0, 1.0)
    fused: Any = np.asarray(t.fused)
    return ((np.where(fused, absent, left(filters + inputs)),
             np.where(fused, ring, left(inputs)),
             np.where(fused, ring, left(products))),
            np.where(fused, np.maximum(rounds * absent, 1), 1))


def _fused_seconds(case: Case, kinds: tuple[Tasks, ...]) -> Count:
    """Time of the persistent kernel: all kinds at once, and what is alone at both ends."""
    t, device, weight = case.tiling, case.device, case.weights
    shape = shape_of(case.problem, t)
    blocks = np.minimum(t.blocks, case.block_n * device.compute_units)
    parts = [sum(columns) for columns in zip(*(kind.parts(case) for kind in kinds), strict=True)]
    busy = sum(kind.count * (weight["task"] + kind.alone(case)) for kind in kinds)
    # The first round's inputs and the last one's outputs with nothing beside them (Eq. 10).
    part = np.minimum(t.groups / shape.task_groups, 1.0)
    filters, inputs, products, outputs = kinds
    alone = filters.seconds(case) + weight["share"] * (
        part * t.lead * inputs.seconds(case) + part * t.lag * outputs.seconds(case)
        + products.alone(case) / device.clock_hz)
    # Of a round that is shorter than what runs at a time, some tasks wait for the rest of it.
    round_tasks = t.groups * (shape.input_tasks + shape.product_tasks + shape.output_tasks)
    distance = (np.minimum(np.minimum(t.lead, t.lag), t.spare) - 1) * round_tasks
    short = np.clip(1 - distance / blocks, 0.0, 1.0)
    together = _norm(case, *parts, busy / blocks / device.clock_hz)
    return alone + together * (1 + short**2)


def work(case: Case) -> Work:
    """The work of a case: of all its kernels, in the seconds of the launch."""
    kinds, device = tasks_of(case), case.device
    apart = sum(kind.seconds(case) for kind in kinds)
    launches = 3 * case.weights["launch"] / device.clock_hz
    seconds = np.where(case.tiling.fused, _fused_seconds(case, kinds), apart + launches)
    return Work(issue=0.0, products=0.0, lds=0.0, lines=0.0, waits=0.0, fill_bytes=0.0,
                l2_bytes=0.0, saved_seconds=-seconds)
