"""Pieces of memory that the lanes of a block move as vectors: to its LDS, and from there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dscore.algorithms.base import VECTOR_BYTES
from dscore.backends.reference.machine import (
    Addresses,
    Blocks,
    Bools,
    Floats,
    Ints,
    Tensor,
    lane_ids,
)


class Piece:
    """A block's elements of a tensor, side by side in memory, and those of LDS that hold them.

    Vectors begin at multiples of their size: the first up to one element less before the piece. An
    element is known by its index in memory, in LDS as well.
    """

    def __init__(self, blocks: Blocks, name: str, span: int) -> None:
        self.blocks, self.name, self.span = blocks, name, span
        element = blocks.plan.problem.spec.element
        self.vector, self.lds = VECTOR_BYTES // element.bytes, blocks.lds_of(element)
        first = blocks.lds_tile(name, span, element)
        self.at = first + self.lds.shape[1] * lane_ids(blocks.count, 1, 1)

    def place(self, first: Ints, end: Ints) -> None:
        """Set where the piece of each block begins and ends."""
        self.first, self.end = first, end
        self.start = first // self.vector * self.vector

    @property
    def elements(self) -> int:
        """Elements of all blocks' pieces."""
        return int(np.maximum(self.end - self.first, 0).sum())

    def copy(self, memory: npt.NDArray[Any], what: Tensor) -> None:
        """The piece from global *memory* to LDS, and zeros behind it in its last vector."""
        for at in self._vectors():
            block, wave, lane = np.nonzero(self.start + at < self.end)
            index = self.start[block, 0] + at[wave, lane, None] + lane_ids(1, self.vector)
            values = np.empty(index.shape, dtype=np.float32)
            self.blocks.load(values, memory, Addresses(index, index < self.end[block, 0]), what)
            self._put(values, Addresses(index - self.start[block, 0]), self.at[block, 0])
            if self.blocks.trace is not None:
                self.blocks.trace.vectors_loaded += lane.size

    def read(self, out: Floats, index: Ints, lanes: Bools, operand: bool = False) -> None:
        """Each of *lanes* reads element *index* from LDS; the others get zero."""
        self._get(out, Addresses(index - self.start, lanes), operand)

    def write(self, values: Floats, index: Ints, lanes: Bools) -> None:
        """Each of *lanes* writes element *index* to LDS."""
        self._put(values, Addresses(index - self.start, lanes))

    def store(self, memory: npt.NDArray[Any]) -> None:
        """The piece from LDS to global *memory*: element by element where a vector leaves it."""
        value = np.empty(self.blocks.shape, dtype=np.float32)
        for at in self._vectors():
            first = self.start + at
            for index in (first + element for element in range(self.vector)):
                lanes = (index >= self.first) & (index < self.end)
                self.read(value, index, lanes)
                self.blocks.store(memory, Addresses(index, lanes), value)
            if self.blocks.trace is not None:
                whole = (first >= self.first) & (first + self.vector <= self.end)
                self.blocks.trace.vectors_stored += int(np.count_nonzero(whole))

    def _vectors(self) -> Iterator[Ints]:
        """Beginnings of the lanes' vectors, from the start on: consecutive ones in each pass."""
        thread = lane_ids(*self.blocks.shape[1:])
        for first in range(0, self.span // self.vector, thread.size):
            yield (first + thread) * self.vector

    def _get(self, out: Floats, at: Addresses, operand: bool = False) -> None:
        """Lanes read the words at *at*; masked ones get zero."""
        at.require_within(self.span, 0, self.name)
        out[...] = self.lds.reshape(-1)[self.at + at.index]
        if at.masked is not None:
            np.copyto(out, out.dtype.type(0), where=at.masked)
        if self.blocks.trace is not None:
            self.blocks.trace.lds_reads += at.count
            self.blocks.trace.operands += at.count * operand

    def _put(self, values: Floats, at: Addresses, of_block: Ints | None = None) -> None:
        """Lanes write *values* to the words at *at*; *of_block* is where their blocks' ones begin.
        """
        at.require_within(self.span, 0, self.name)
        live = slice(None) if at.masked is None else ~at.masked
        index = at.index + (self.at if of_block is None else of_block)
        self.lds.reshape(-1)[index[live]] = values[live]
        if self.blocks.trace is not None:
            self.blocks.trace.lds_writes += at.count
