"""Products of matrices whose tiles pass through a ring of LDS buffers (hip_src/support/ring.hpp),
and whose sums slices and the blocks of a cluster hold in part (hip_src/support/joined_sums.hpp)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from dscore.backends.reference.lockstep import LockstepKernel, batches
from dscore.backends.reference.machine import Addresses, Blocks, Floats, Ints, lane_ids
from dscore.core.plan import Plan
from dscore.core.trace import Trace


class RingKernel(LockstepKernel, ABC):
    """Kernel whose lanes multiply the tiles of one step after the other.

    It sets `lanes` (with `sums` and `multiply`), `shape` (with `sums` and `steps`, of one block of
    a cluster), `steps` (of all of them), `buffer` (words), and with each batch `blocks` and `ring`.
    """

    lanes: Any
    shape: Any
    steps: int
    buffer: int
    blocks: Blocks
    ring: int
    joined: Floats  # the sums of all slices, and of the cluster's blocks so far

    @abstractmethod
    def fetch(self, step: int) -> None:
        """Global memory to where the tiles are on their way."""

    @abstractmethod
    def put(self, step: int) -> None:
        """The tiles on their way to the step's buffer."""

    def accumulate(self, rank: int) -> None:
        """The steps of the blocks of *rank*; a barrier parts each from the next."""
        self.lanes.sums.fill(0)
        each = int(self.shape.steps)
        steps = range(self.steps)[rank * each:(rank + 1) * each]
        for step in self._fetched(steps) if self.t.stages == 2 else self._copied(steps):
            self.lanes.multiply(self.at(step))

    def at(self, step: int) -> int:
        """The first word of a step's buffer."""
        first: int = self.ring + step % self.t.stages * self.buffer
        return first

    def _fetched(self, steps: range) -> Iterator[int]:
        """Steps in LDS: the next one is fetched while one is multiplied, and put after it."""
        self._copy(steps[:1])
        for step in steps[1:]:
            self.fetch(step)
            yield step - 1
            self.put(step)
        yield from steps[-1:]

    def _copied(self, steps: range) -> Iterator[int]:
        """Steps in LDS, to which they are copied stages - 1 steps ahead: here at once.

        With one stage a step is copied when its turn comes.
        """
        ahead = self.t.stages - 1
        self._copy(steps[:ahead])
        for at, step in enumerate(steps):
            self._copy(steps[at + ahead:at + ahead + 1])
            yield step

    def _copy(self, steps: range) -> None:
        for step in steps:
            self.fetch(step)
            self.put(step)

    def join(self, rank: int) -> None:
        """Add the slices' sums to the first one's, and these of every rank to the first one's."""
        shape = (self.blocks.count, int(self.shape.sums), self.t.slices, -1)
        slices = self.lanes.sums.reshape(shape).swapaxes(1, 2)
        first = slices[:, 0].copy()
        self._add(first, slices[:, 1:])
        if rank == 0:
            self.joined = first
        else:
            self._add(self.joined, first[:, None])

    def _add(self, sums: Floats, others: Floats) -> None:
        """Add each of *others* (block, other, sum, lane) to *sums*, through LDS."""
        if others.size:
            self.blocks.lds_write(self.ring, others.reshape(self.blocks.count, -1))
        part, at = np.empty_like(sums), Addresses(lane_ids(*sums.shape[1:]))
        for other in range(others.shape[1]):
            self.blocks.lds_read(part, at, self.ring + other * at.count, operand=False)
            np.add(sums, part, out=sums)


class Tiled(Protocol):
    """Kernel of a ring whose blocks have a tile each, `tiles` in all."""

    t: Any
    tiles: int

    def allocate(self, blocks: Blocks) -> None:
        """Registers and LDS of a batch of blocks."""

    def place(self, tile: Ints) -> None:
        """Addresses for the outputs numbered *tile*."""

    def accumulate(self, rank: int) -> None:
        """As RingKernel does."""

    def join(self, rank: int) -> None:
        """As RingKernel does."""

    def finish(self) -> None:
        """Store the results."""


def run_tiles(plan: Plan, kernel: Tiled, trace: Trace | None) -> None:
    """All tiles of *kernel*; blocks of the same rank in their clusters run together."""
    for blocks, first in batches(plan, kernel.tiles, trace, kernel.allocate):
        kernel.place(first + lane_ids(blocks.count, 1))
        for rank in range(kernel.t.cluster):
            blocks.begin()
            kernel.accumulate(rank)
            kernel.join(rank)
        kernel.finish()
