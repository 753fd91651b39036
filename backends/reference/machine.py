"""The machine that the reference algorithms run on: registers, LDS, lanes and shuffles as arrays.

A register is an array over (blocks, wavefronts, lanes); a register file puts the register's number
before these axes, so that one instruction of all lanes is one contiguous NumPy operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dscore.algorithms.base import COMPILER_REGISTERS
from dscore.algorithms.columns import ceil_div
from dscore.core.errors import LaunchError
from dscore.core.numerics import ACCUMULATOR, WORD_BYTES, Element
from dscore.core.plan import Plan
from dscore.core.trace import Trace

Floats = npt.NDArray[Any]  # of float32, or of int32 for layers of int8
Ints = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]
Tensor = Literal["inputs", "filters", "biases", "residuals", "scales", "multipliers", "tables"]
Operands = Mapping[str, npt.NDArray[Any]]  # flat, by their names in dscore.ops

# Registers, LDS and addresses of the blocks that run together: what a core's L2 cache holds.
CHUNK_BYTES = 1 << 20


def lane_ids(*shape: int) -> Ints:
    """Numbers 0, 1, … in *shape*, the last axis fastest."""
    return np.arange(int(np.prod(shape)), dtype=np.intp).reshape(shape)


def inside(position: Ints, size: int) -> Bools:
    """Mask of the rows or columns that lie in the image."""
    return (position >= 0) & (position < size)


def split(ids: Ints, *sizes: int) -> list[Ints]:
    """The coordinates of *ids* in a grid of *sizes*, fastest first; the last one is unbounded."""
    parts = []
    for size in sizes:
        ids, part = np.divmod(ids, size)
        parts.append(part)
    return [*parts, ids]


def chunks(total: int, at_a_time: int) -> Iterator[tuple[int, int]]:
    """(first, count) of consecutive runs of at most *at_a_time*."""
    for first in range(0, total, at_a_time):
        yield first, min(at_a_time, total - first)


class Addresses:
    """Addresses of the lanes, in elements; a lane that is masked off has none."""

    __slots__ = ("count", "high", "index", "low", "masked")

    def __init__(self, index: Ints, mask: Bools | None = None) -> None:
        self.masked: Bools | None = None
        self.count = index.size
        if mask is not None:
            index, mask = np.broadcast_arrays(index, mask)
            self.count = int(np.count_nonzero(mask))
            if self.count < index.size:
                self.masked = ~mask
                index = np.where(mask, index, 0)
        self.index = index
        self.low, self.high = (int(index.min()), int(index.max())) if self.count else (0, -1)

    @property
    def live(self) -> Bools:
        """The lanes that have an address."""
        return np.ones(self.index.shape, np.bool_) if self.masked is None else ~self.masked

    def require_within(self, size: int, offset: int, what: str) -> None:
        """LaunchError where a lane would leave *what*; NumPy's own check costs a copy."""
        if self.count and not (self.low + offset >= 0 and self.high + offset < size):
            raise LaunchError(f"a lane would access elements {self.low + offset} to "
                              f"{self.high + offset} of {what}, which has {size}")


def _take(memory: npt.NDArray[Any], index: Ints, out: Floats, axis: int | None = None) -> None:
    """Fill *out* with elements of *memory*, whose addresses are checked: clipping never acts."""
    if memory.dtype == out.dtype:
        np.take(memory, index, axis=axis, out=out, mode="clip")
    else:
        out[...] = np.take(memory, index, axis=axis, mode="clip")


class Blocks:
    """Blocks that run together: their register file and their LDS, of the planned sizes.

    Both are filled with NaN by :meth:`begin`, so that what an algorithm has not written shows. A
    register holds a float32, or elements side by side, whose values are float32 here as well; of a
    layer of int8 all of these are int32. LDS holds elements of their own types: what is written
    there is rounded to them.
    """

    def __init__(self, plan: Plan, count: int, trace: Trace | None) -> None:
        self.plan, self.count, self.trace = plan, count, trace
        self.sums = plan.problem.spec.element.sums
        wavefront = plan.device.wavefront
        self.shape = (count, -(-plan.use.threads // wavefront), wavefront)
        self._registers: list[Floats] = []
        self._registers_used = self._bytes_used = 0
        self.lds = np.empty((count, ceil_div(plan.use.lds_bytes, WORD_BYTES)), dtype=np.float32)

    @classmethod
    def at_a_time(cls, plan: Plan) -> int:
        """Number of blocks of *plan* that run together."""
        registers = max(plan.use.registers - COMPILER_REGISTERS, 1)
        return max(1, CHUNK_BYTES // (4 * plan.use.threads * registers + plan.use.lds_bytes))

    def registers(self, name: str, count: int, shape: tuple[int, ...] | None = None,
                  packed: Element = ACCUMULATOR) -> Floats:
        """*count* values in registers of every lane.

        *shape* is that of one register, where it differs from (blocks, wavefronts, lanes): an axis
        of 1 stands for lanes that all hold the same value. *packed* is the type that a register
        holds them in, of which one may hold several.
        """
        limit = self.plan.use.registers - COMPILER_REGISTERS
        taken = ceil_div(count * packed.bytes, WORD_BYTES)
        self._registers_used += taken
        if self._registers_used > limit:
            raise LaunchError(
                f"{self.plan.name}: {name} takes {taken} registers per thread, which makes "
                f"{self._registers_used}, but of the planned {self.plan.use.registers} the kernel "
                f"has {limit} ({COMPILER_REGISTERS} are the compiler's)")
        file = np.empty((count, *(shape or self.shape)), dtype=self.sums.numpy)
        self._registers.append(file)
        return file

    def lds_tile(self, name: str, count: int, element: Element = ACCUMULATOR) -> int:
        """The first of *count* elements of a tile in LDS, counted in elements of its type."""
        first: int = ceil_div(self._bytes_used, element.bytes)
        self._bytes_used = (first + count) * element.bytes
        if self._bytes_used > self.plan.use.lds_bytes:
            raise LaunchError(
                f"{self.plan.name}: {name} takes {element.bytes * count} bytes of LDS, which makes "
                f"{self._bytes_used}, but the plan has {self.plan.use.lds_bytes}")
        return first

    def lds_of(self, element: Element) -> npt.NDArray[Any]:
        """LDS of the blocks as elements of a type, a row for each."""
        return self.lds.view(element.numpy)

    def begin(self) -> None:
        """Poison what a block finds on entry."""
        self.lds.view(np.uint8).fill(0xFF)  # a NaN of every type
        for file in self._registers:
            file.fill(self.sums.poison)

    def load(self, out: Floats, memory: npt.NDArray[Any], at: Addresses, what: Tensor,
             advance: int = 0, operand: bool = False, lanes: int = 1) -> None:
        """Load from global *memory* of any type, with zero for masked lanes.

        *advance* is what the base pointer has moved by; *lanes* is how many lanes hold each
        element of *out*.
        """
        at.require_within(memory.size, advance, what)
        if at.count:
            _take(memory[advance:], at.index, out)
        if at.masked is not None:
            np.copyto(out, out.dtype.type(0), where=at.masked)
        if self.trace is not None:
            loaded = at.count * lanes
            self.trace.count_loads(what, loaded, operand)

    def store(self, memory: npt.NDArray[Any], at: Addresses, values: Floats) -> None:
        """Store *values*, rounded to the type of global *memory*, from lanes that have an address.
        """
        at.require_within(memory.size, 0, "out")
        if at.masked is None:
            memory[at.index] = values
        else:
            live = ~at.masked
            memory[at.index[live]] = values[live]
        if self.trace is not None:
            self.trace.elements_stored += at.count

    def lds_read(self, out: Floats, at: Addresses, offset: int, lanes: Bools | None = None,
                 operand: bool = True, element: Element = ACCUMULATOR) -> None:
        """Each lane reads the element at its address plus *offset*; only *lanes* are counted."""
        lds = self.lds_of(element)
        at.require_within(lds.shape[1], offset, "LDS")
        _take(lds, at.index + offset, out, axis=1)
        if self.trace is not None:
            read = out.size if lanes is None else int(np.count_nonzero(lanes))
            self.trace.lds_reads += read
            self.trace.operands += read * operand

    def lds_read_apart(self, out: Floats, at: Addresses, offset: int,
                       element: Element = ACCUMULATOR) -> None:
        """As `lds_read`, where each block has addresses of its own, along the first axis."""
        lds = self.lds_of(element)
        at.require_within(lds.shape[1], offset, "LDS")
        block = lds.shape[1] * lane_ids(self.count, *[1] * (at.index.ndim - 1))
        _take(lds, block + (at.index + offset), out)
        if self.trace is not None:
            self.trace.lds_reads += out.size
            self.trace.operands += out.size

    def lds_write(self, first: int, values: Floats, words: Ints | None = None,
                  element: Element = ACCUMULATOR) -> None:
        """Threads write *values*, of shape (blocks, threads), to *words* counted from *first*:
        to elements of a type, which they are rounded to.

        Without *words*, consecutive threads write to consecutive ones.
        """
        count, lds = values.shape[1], self.lds_of(element)
        last = first + (count if words is None else int(words.max()) + 1) - 1
        if last >= lds.shape[1]:
            raise LaunchError(f"{self.plan.name}: a lane would write word {last} of "
                              f"{lds.shape[1]} in LDS")
        lds[:, slice(first, last + 1) if words is None else first + words] = values
        if self.trace is not None:
            self.trace.lds_writes += values.size

    def fma(self, sums: Floats, a: Floats, b: Floats, product: Floats,
            lanes: Bools | None = None, predicated: bool = False) -> None:
        """``sums += a * b``, the product rounded before it is added.

        *lanes* are counted, and only these are added to where *predicated*.
        """
        np.multiply(a, b, out=product)
        if predicated:
            assert lanes is not None
            np.add(sums, product, out=sums, where=lanes)
        else:
            np.add(sums, product, out=sums)
        if self.trace is not None:
            self.trace.fmas += product.size if lanes is None else int(np.count_nonzero(
                np.broadcast_to(lanes, product.shape)))

    def shfl_down(self, values: Floats, by: int, width: int,
                  lanes: Bools | None = None) -> Floats:
        """The value of the lane *by* further on in the segment of *width*; past its end one's own.

        The lanes are the last axis.
        """
        lane = np.arange(values.shape[-1])
        source = np.where(lane % width + by < width, lane + by, lane)
        if self.trace is not None:
            self.trace.shuffles += values.size if lanes is None else int(np.count_nonzero(lanes))
        return np.take(values, source, axis=-1)
