"""What products of filters with planes have in common: how both come to a block by way of LDS, and
how results leave (hip_src/plane_gemm, hip_src/pixel_gemm, hip_src/image_gemm)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from dscore.algorithms.base import BARRIER_BYTES
from dscore.backends.reference.lockstep import LockstepKernel, batches
from dscore.backends.reference.machine import (
    Addresses,
    Blocks,
    Bools,
    Floats,
    Ints,
    Operands,
    lane_ids,
)
from dscore.core.plan import Plan
from dscore.core.trace import Trace


class PlaneProduct(LockstepKernel, ABC):
    """A product of filters with planes of x, or of the output's gradient, in NCHW.

    *shape* is the geometry of the plan's tiling: `m` channels of results, `k` summed ones, and
    whether the filters lie `along` these.
    """

    blocks: Blocks  # that run at present
    tiles: int  # blocks of the grid, or its clusters

    def __init__(self, plan: Plan, operands: Operands, shape: Any) -> None:
        super().__init__(plan, operands)
        self.shape, self.element = shape, self.problem.spec.element
        self.planes = "x" if self.problem.operation == "conv" else "gradient"

    @abstractmethod
    def allocate(self, blocks: Blocks) -> None:
        """Registers and LDS of blocks."""

    @abstractmethod
    def run(self, block: Ints) -> None:
        """The blocks numbered *block*."""

    def run_all(self, trace: Trace | None) -> None:
        """All blocks of the plan, as many together as fit memory."""
        for blocks, first in batches(self.plan, self.tiles, trace, self.allocate):
            self.blocks = blocks
            self.run(first + lane_ids(blocks.count, 1))

    def filters(self, first: Ints, count: int, step: int, to: int, kept: bool = False) -> Floats:
        """A step's filters of *count* channels from *first* on, by the summed ones."""
        shape = self.shape
        summed = step * self.t.step + lane_ids(self.t.step)
        of = first.reshape(-1, 1, 1) + lane_ids(count, 1)
        at = of * shape.k + summed if shape.along else summed * shape.m + of
        return self.brought("w", at, (of < shape.m) & (summed < shape.k), to, kept)

    def brought(self, name: str, at: Ints, held: Bools, to: int, kept: bool = False) -> Floats:
        """What lies at addresses of an operand, zeros where none are *held*, as LDS has it from
        element *to* on. What is *kept* there was brought before."""
        at, held = np.broadcast_arrays(at, held)
        count = at.shape[0]
        words = lane_ids(at.size // count)
        tile = np.empty((count, words.size), np.float32)
        if not kept:
            self.blocks.load(tile, self.operands[name],
                             Addresses(at.reshape(count, -1), held.reshape(count, -1)),
                             "filters" if name == "w" else "inputs")
            self.blocks.lds_write(to, tile, words, self.element)
        self.blocks.lds_read(tile, Addresses(words), to, element=self.element)
        return tile.reshape(at.shape)

    def store(self, sums: Floats, channel: Ints, image: Ints, pixel: Ints, held: Bools) -> None:
        """The epilogue, and the stores of those results of a tile that are *held*."""
        at = Addresses(*np.broadcast_arrays(
            (image * self.shape.m + channel) * self.shape.area + pixel, held))
        if self.problem.operation == "conv":
            sums = self.epilogue(self.blocks, sums, np.broadcast_to(channel, sums.shape), at)
        self.blocks.store(self.out, at, sums)


class KeptPlaneProduct(PlaneProduct):
    """The same with the filters of a step in a buffer of the ring, beside its planes, or with all
    filters in LDS of their own, where they stay for all tiles of a block (`kept`)."""

    def allocate_ring(self, blocks: Blocks) -> None:
        """The ring of buffers, and what is kept."""
        t, shape, size = self.t, self.shape, self.element.bytes
        self.stage = int(shape.plane_bytes + (0 if t.kept else shape.filter_bytes)) // size
        blocks.lds_tile("the ring of buffers", t.stages * self.stage, self.element)
        self.kept = blocks.lds_tile("what is kept", int(shape.kept * shape.filter_bytes) // size,
                                    self.element)

    def allocate_barriers(self, blocks: Blocks, count: int) -> None:
        """So many barriers, behind all else."""
        blocks.lds_tile("barriers", count * BARRIER_BYTES // self.element.bytes, self.element)

    @abstractmethod
    def planes_of(self, step: int, to: int) -> Floats:
        """A step's planes, by way of LDS from element *to* on."""

    def each_step(self, tile: int, first: Ints, count: int) -> Iterator[tuple[Floats, Floats]]:
        """Planes, and filters of *count* channels from *first* on, of each step of a block's tile
        numbered *tile*; the ring's turns run on from tile to tile."""
        t, shape, size = self.t, self.shape, self.element.bytes
        for step in range(int(shape.steps)):
            ring = (tile * int(shape.steps) + step) % t.stages * self.stage
            planes = self.planes_of(step, ring)
            to = (self.kept + step * int(shape.filter_bytes) // size if t.kept
                  else ring + int(shape.plane_bytes) // size)
            yield planes, self.filters(first, count, step, to, kept=t.kept and tile > 0)
