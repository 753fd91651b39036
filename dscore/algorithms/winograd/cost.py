"""The model of Jia et al. 2020, sections 5.2 to 5.4, by which mappings are chosen.

Where all kinds of tasks run at a time, what they compute and what they move overlap (Eq. 9);
kernels one after the other do so only within a kind (Eq. 8). Tasks that follow too soon upon their
parents wait (Eq. 10); so do all at the beginning and at the end, where one kind is left alone. What
is read again from the L2 cache is not moved: transformed tiles while the rounds that the workspace
holds fit in there, filters once for the `groups` task groups of a round (section 5.4).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dscore.algorithms.base import Case, Work
from dscore.algorithms.columns import Count
from dscore.algorithms.winograd.tiling import (
    WinogradShape,
    shape_of,
    splits,
    workspace_of,
)
from dscore.core.device import Device
from dscore.core.numerics import ACCUMULATOR
from dscore.ops import compulsory_bytes

# Clocks of a wavefront: of an instruction of the matrix units and its share of splitting operands
# in two, of a multiply-add; instructions of a tile's channel that is transformed on the way in or
# out; clocks that a block is idle for each task; bytes for a byte between L2 and compute units.
# Fitted to 60 timings of three layers at batch 64 on one NVIDIA H200; that of a multiply-add is an
# estimate (docs/model.md).
WEIGHTS = {"product": 16.1, "split": 0.378, "fma": 1.1, "input": 344.0, "output": 321.0,
           "task": 1200.0, "loaded": 0.855, "first": 1940.0, "serial": 0.0, "block": 197.0,
           "memory": 0.612, "norm": 0.944}
# Part of the L2 cache that holds what is passed on: the rest holds inputs and outputs passing by.
_PART_OF_L2 = 0.6
_LAUNCH_CLOCKS = 2000.0  # from the end of a kernel to the work of the next


@dataclass(frozen=True)
class WinogradWork:
    """Work of all tasks of a kind, in clocks of a wavefront and in bytes."""

    issue: Count
    products: Count
    l2_bytes: Count
    memory_bytes: Count

    def seconds(self, device: Device, loaded: float, alone: Count = 1.0) -> Count:
        """Time of a kernel of these tasks; *alone*: of the device that is at work."""
        simds = device.compute_units * device.simds_per_cu * device.clock_hz * alone
        issue = self.issue * (device.wavefront * device.simds_per_cu / device.fp32_lanes_per_cu)
        return np.maximum(
            np.maximum(issue, self.products) / simds,
            np.maximum(loaded * self.l2_bytes, self.memory_bytes) / device.bandwidth)


@dataclass(frozen=True)
class WinogradTraffic:
    """Work of each kind of tasks, and of the whole."""

    filters: WinogradWork
    inputs: WinogradWork
    products: WinogradWork
    outputs: WinogradWork

    @property
    def kinds(self) -> tuple[WinogradWork, ...]:
        """One after the other."""
        return self.filters, self.inputs, self.products, self.outputs

    def total(self, name: str) -> Count:
        """Sum of a field of all kinds."""
        return sum(getattr(kind, name) for kind in self.kinds)


def traffic_of(case: Case) -> WinogradTraffic:
    """The traffic of a case: of the persistent kernel, or of one kernel after the other."""
    problem, t, weight = case.problem, case.tiling, case.weights
    shape, spec, wavefront = shape_of(problem, t), problem.spec, case.device.wavefront
    channels, tiles = shape.k_blocks * t.tile_k, shape.task_groups * t.tile_t
    plane = ACCUMULATOR.bytes * shape.planes
    filters = plane * channels * shape.depth
    inputs, products = plane * tiles * shape.depth, plane * tiles * channels
    passed, reread = _passed_on(case, inputs, products)
    multiplied = shape.planes * tiles * channels * shape.depth
    issue = np.where(
        splits(t), weight["split"] * shape.operands / shape.sums * multiplied / 16,
        weight["fma"] * multiplied / wavefront)
    images = compulsory_bytes(problem) - spec.element.bytes * spec.out_channels * (
        9 * spec.in_channels)
    outputs = spec.element.bytes * problem.batch * spec.out_channels * (
        problem.out_height * problem.out_width)
    tile_reads = (t.outputs + 2) ** 2 / t.outputs**2
    return WinogradTraffic(
        WinogradWork(weight["input"] * channels * shape.depth / wavefront, 0.0, filters, filters),
        WinogradWork(weight["input"] * tiles * shape.depth / wavefront, 0.0,
                     inputs + tile_reads * (images - outputs), images - outputs + passed * inputs),
        WinogradWork(issue, np.where(splits(t), weight["product"] * 3 * multiplied / 1024, 0.0),
                     inputs * shape.k_blocks + filters * shape.task_groups + products,
                     passed * (inputs + products) + reread * filters),
        WinogradWork(weight["output"] * tiles * channels / wavefront, 0.0, products + outputs,
                     outputs + passed * products))


def _passed_on(case: Case, inputs: Count, products: Count) -> tuple[Count, Count]:
    """Share of what is passed on that leaves the L2 cache, and how often all filters come back."""
    t, device = case.tiling, case.device
    room, workspace = _PART_OF_L2 * device.l2_bytes, workspace_of(case.problem, t)
    held = np.where(t.fused, workspace.inputs + workspace.products, np.maximum(inputs, products))
    passed = np.clip((held - room) / np.maximum(held, 1), 0.0, 1.0)
    # A round's sets of filters, each read by all of its task groups (reuse (M - 1)/M).
    rounds = np.where(t.fused, shape_of(case.problem, t).rounds, 1)
    absent = np.clip((workspace.filters + np.minimum(held, room) - room)
                     / np.maximum(workspace.filters, 1), 0.0, 1.0)
    return passed, 1 + absent * (rounds - 1)


def _waiting(case: Case, shape: WinogradShape, traffic: WinogradTraffic) -> Count:
    """Seconds of Eq. 10: tasks that follow too soon, and the kinds that are left alone at both
    ends."""
    t, device, loaded = case.tiling, case.device, case.weights["loaded"]
    resident = np.minimum(t.blocks, case.block_n * device.compute_units)
    round_tasks = t.groups * (shape.input_tasks + shape.product_tasks + shape.output_tasks)
    # The first round's inputs, the last one's outputs, and the filters, with nothing beside them.
    part = np.minimum(t.groups / shape.task_groups, 1.0)
    alone = sum(share * kind.seconds(device, loaded) for share, kind in (
        (1.0, traffic.filters), (part * t.lead, traffic.inputs), (part * t.lag, traffic.outputs)))
    # What the blocks of a compute unit do overlaps; alone there, a block does one thing at a time.
    apart = sum(kind.seconds(device, loaded) for kind in traffic.kinds)
    together = WinogradWork(*(traffic.total(one.name) for one in fields(WinogradWork)))
    beside = np.minimum(case.block_n, np.maximum(t.blocks / device.compute_units, 1))
    alone += np.maximum(apart - together.seconds(device, loaded), 0.0) / beside
    # Of a round that is shorter than what runs at a time, some tasks wait for the rest of it.
    distance = np.minimum(np.minimum(t.lead, t.lag), t.spare) * round_tasks
    short = np.clip(1 - distance / resident, 0.0, 1.0)
    return alone + short**2 * apart


def work(case: Case) -> Work:
    """The work of a case."""
    t, weight, device = case.tiling, case.weights, case.device
    shape, traffic = shape_of(case.problem, t), traffic_of(case)
    fused: Any = np.asarray(t.fused)
    waves = case.footprint.blocks * case.footprint.waves
    tasks = weight["task"] * shape.tasks / case.footprint.blocks
    apart = sum(kind.seconds(device, weight["loaded"]) for kind in traffic.kinds)
    launches = 3 * _LAUNCH_CLOCKS / device.clock_hz
    spilled = traffic.total("memory_bytes") - compulsory_bytes(case.problem)
    return Work(
        issue=np.where(fused, traffic.total("issue") / waves, 0.0),
        products=np.where(fused, traffic.total("products") / waves, 0.0), lds=0.0, lines=0.0,
        waits=np.where(fused, tasks / np.maximum(case.block_n, 1), 0.0), fill_bytes=0.0,
        l2_bytes=np.where(fused, np.maximum(weight["loaded"] * traffic.total("l2_bytes"),
                                            spilled + compulsory_bytes(case.problem)), 0.0),
        saved_seconds=-np.where(fused, _waiting(case, shape, traffic), apart + launches))
