"""Means over the pixels of images, a few channels by a block (hip_src/direct/mean.hpp)."""

from __future__ import annotations

import numpy as np

from dscore.algorithms.columns import ceil_div
from dscore.algorithms.direct.mean import lanes_of, vector_of
from dscore.backends.reference.lockstep import LockstepKernel, batches, require_launch
from dscore.backends.reference.machine import (
    Addresses,
    Blocks,
    Floats,
    Ints,
    Operands,
    lane_ids,
    split,
)
from dscore.backends.reference.tap_sums import ascending
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.core.trace import Trace

# Neighbouring parts of a block that are added first, where there are many.
_RUN = 16


def run_mean(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the means of x to the operand out; block of the cluster fastest, then channel tile,
    image. Blocks of the same rank in their clusters run together.
    """
    kernel = (_OfVectors if plan.problem.spec.layout == "nhwc" else _OfPlanes)(plan, operands)
    for blocks, first in batches(plan, kernel.clusters, trace, kernel.allocate):
        tile, image = split(first + lane_ids(blocks.count, 1, 1), kernel.tiles)
        place = image, tile * kernel.tile
        kernel.store(*place, ascending([
            kernel.sum(*place, rank) for rank in range(kernel.t.cluster)]))


def means_of(problem: ConvProblem, operands: Operands, sums: Floats) -> Floats:
    """The means by the sums of all pixels."""
    area = problem.height * problem.width
    if not problem.spec.element.exact:
        return sums / np.float32(area)
    differences = sums - np.int32(area) * operands["zero_point"]
    means: Floats = differences.astype(np.float32) * operands["multiplier"]
    return means


class _Means(LockstepKernel):
    """What both layouts share: sums of a thread, the mean of a sum, the store."""

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands)
        self.vector = vector_of(self.problem)
        self.channels = self.problem.spec.in_channels
        self.area = self.problem.height * self.problem.width
        self.element = self.problem.spec.element.sums
        self.lanes = int(lanes_of(self.problem, self.t.thread_c, self.wavefront))
        self.waves = self.t.threads // self.wavefront
        self.tile = self.t.thread_c * (self.vector if self.layout.last else 1)
        self.tiles = ceil_div(self.channels, self.tile)
        self.clusters = self.problem.batch * self.tiles
        require_launch(plan, self.clusters * self.t.cluster, self.t.threads)
        self.thread = lane_ids(1, self.waves, self.wavefront)

    def allocate(self, blocks: Blocks) -> None:
        """Registers: sums, the elements of a vector; LDS: the sums of wavefronts, or of parts."""
        self.blocks = blocks
        self.sums = blocks.registers("sums", self.vector if self.layout.last else self.t.thread_c)
        self.values = blocks.registers("a vector", self.vector)
        self.held = blocks.lds_tile("sums", self.sums.shape[0] * (
            self.t.threads // self.lanes if self.layout.last else self.waves), self.element)

    def add(self, sums: Floats, address: Ints, there: np.ndarray) -> None:
        """Load a vector and add its elements, each to sums of its own where there are as many."""
        for i in range(self.vector):
            at = Addresses(address + i, there)
            self.blocks.load(self.values[i], self.operands["x"], at, "inputs", operand=True)
            to = sums[i] if len(sums) == self.vector and self.layout.last else sums[0]
            np.add(to, self.values[i], out=to, where=there)

    def joined(self, parts: int, channels: int, first: int = 0) -> Floats:
        """The *parts* of the sums in LDS from *first* on added, of so many *channels*."""
        total, part = (np.empty((self.blocks.count, channels), self.element.numpy)
                       for _ in range(2))
        for number in range(parts):
            at = Addresses((first + number) * channels + lane_ids(channels))
            self.blocks.lds_read(part if number else total, at, self.held, operand=False,
                                 element=self.element)
            if number:
                np.add(total, part, out=total)
        return total

    def store(self, image: Ints, first: Ints, sums: Floats) -> None:
        """Store the means of the channels from *first* on."""
        channel = first[:, 0] + lane_ids(1, sums.shape[1])
        self.blocks.store(self.out, Addresses(image[:, 0] * self.channels + channel,
                                              channel < self.channels),
                          means_of(self.problem, self.operands, sums))


class _OfPlanes(_Means):
    def sum(self, image: Ints, first: Ints, rank: int) -> Floats:
        """The sums of these blocks' planes, of which each has one block."""
        vectors, count = self.area // self.vector, self.t.thread_c
        self.blocks.begin()
        self.sums.fill(0)
        for start in range(0, vectors, self.t.threads):
            at = start + self.thread
            for c in range(count):
                there = (at < vectors) & (first + c < self.channels)
                plane = (image * self.channels + first + c) * self.area
                self.add(self.sums[c:c + 1], plane + at * self.vector, there)
        by = self.wavefront // 2
        while by:
            np.add(self.sums, self.blocks.shfl_down(self.sums, by, self.wavefront), out=self.sums)
            by //= 2
        self.blocks.lds_write(self.held, np.moveaxis(self.sums[..., 0], 0, -1).reshape(
            self.blocks.count, -1), element=self.element)
        return self.joined(self.waves, count)


class _OfVectors(_Means):
    def sum(self, image: Ints, first: Ints, rank: int) -> Floats:
        """The sums of the vectors of channels, of the pixels that the blocks of *rank* have."""
        parts = max(self.t.threads // self.t.thread_c, 1)
        self.blocks.begin()
        column, part = self.thread % self.t.thread_c, self.thread // self.t.thread_c
        channel = first + column * self.vector
        self.sums.fill(0)
        for start in range(rank * parts, self.area, self.t.cluster * parts):
            pixel = start + part
            there = (pixel < self.area) & (channel < self.channels)
            self.add(self.sums, (image * self.area + pixel) * self.channels + channel, there)
        sums = self.sums if self.lanes == 1 else self.of_columns()
        self.blocks.lds_write(self.held, np.moveaxis(sums, 0, -1).reshape(self.blocks.count, -1),
                              element=self.element)
        if parts >= 4 * _RUN and not self.element.exact:
            runs = [self.joined(min(_RUN, parts - at), self.tile, at)
                    for at in range(0, parts, _RUN)]
            self.blocks.lds_write(self.held, np.concatenate(runs, axis=1))
            parts = len(runs)
        return self.joined(parts // self.lanes, self.tile)

    def of_columns(self) -> Floats:
        """The sums of the lanes of a wavefront that have the same channels, each in the first of
        these; in the kernel all of them have a share, which are the same integers."""
        by = self.wavefront // 2
        while by >= self.t.thread_c:
            np.add(self.sums, self.blocks.shfl_down(self.sums, by, self.wavefront), out=self.sums)
            by //= 2
        return self.sums[..., :self.t.thread_c]
