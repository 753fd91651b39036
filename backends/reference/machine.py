"""The machine that the reference algorithms run on: registers, LDS, lanes and shuffles as arrays.

A register is an array over (blocks, wavefronts, lanes); a register file puts the register's number
before these axes, so that one instruction of all lanes is one contiguous NumPy operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dscore.algorithms.base import COMPILER_REGISTERS
from dscore.core.errors import LaunchError
from dscore.core.plan import Plan
from dscore.core.trace import Trace

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]
Tensor = Literal["inputs", "filters", "biases", "residuals", "scales"]
Operands = Mapping[str, Floats]  # flat, by their names in dscore.ops

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


def require_launch(plan: Plan, blocks: int, threads: int) -> None:
    """LaunchError where the plan's grid is not the one that the tiling covers the output with."""
    for what, planned, needed in (("blocks", plan.launch.blocks, blocks),
                                  ("threads of a block", plan.launch.threads, threads),
                                  ("threads of its resource use", plan.use.threads, threads)):
        if planned != needed:
            raise LaunchError(f"{plan.name}: the plan launches {planned} {what}, the tiling needs "
                              f"{needed}; take them from its algorithm's case")


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

    def require_within(self, size: int, offset: int, what: str) -> None:
        """LaunchError where a lane would leave *what*; NumPy's own check costs a copy."""
        if self.count and not (self.low + offset >= 0 and self.high + offset < size):
            raise LaunchError(f"a lane would access elements {self.low + offset} to "
                              f"{self.high + offset} of {what}, which has {size}")


class Blocks:
    """Blocks that run together: their register file and their LDS, of the planned sizes.

    Both are filled with NaN by :meth:`begin`, so that what an algorithm has not written shows.
    """

    def __init__(self, plan: Plan, count: int, trace: Trace | None) -> None:
        self.plan, self.count, self.trace = plan, count, trace
        wavefront = plan.device.wavefront
        self.shape = (count, -(-plan.use.threads // wavefront), wavefront)
        self._registers: list[Floats] = []
        self._registers_used = self._words_used = 0
        self.lds = np.empty((count, plan.use.lds_bytes // 4), dtype=np.float32)

    @classmethod
    def at_a_time(cls, plan: Plan) -> int:
        """Number of blocks of *plan* that run together."""
        registers = max(plan.use.registers - COMPILER_REGISTERS, 1)
        return max(1, CHUNK_BYTES // (4 * plan.use.threads * registers + plan.use.lds_bytes))

    def registers(self, name: str, count: int, shape: tuple[int, ...] | None = None) -> Floats:
        """*count* registers of every lane.

        *shape* is that of one register, where it differs from (blocks, wavefronts, lanes): an axis
        of 1 stands for lanes that all hold the same value.
        """
        limit = self.plan.use.registers - COMPILER_REGISTERS
        self._registers_used += count
        if self._registers_used > limit:
            raise LaunchError(
                f"{self.plan.name}: {name} takes {count} registers per thread, which makes "
                f"{self._registers_used}, but of the planned {self.plan.use.registers} the kernel "
                f"has {limit} ({COMPILER_REGISTERS} are the compiler's)")
        file = np.empty((count, *(shape or self.shape)), dtype=np.float32)
        self._registers.append(file)
        return file

    def lds_tile(self, name: str, words: int) -> int:
        """The first word of a tile of *words* float32 in LDS."""
        first = self._words_used
        self._words_used += words
        if self._words_used > self.lds.shape[1]:
            raise LaunchError(
                f"{self.plan.name}: {name} takes {4 * words} bytes of LDS, which makes "
                f"{4 * self._words_used}, but the plan has {self.plan.use.lds_bytes}")
        return first

    def begin(self) -> None:
        """Poison what a block finds on entry."""
        self.lds.fill(np.nan)
        for file in self._registers:
            file.fill(np.nan)

    def load(self, out: Floats, memory: Floats, at: Addresses, what: Tensor, advance: int = 0,
             operand: bool = False, lanes: int = 1) -> None:
        """Load from global *memory*, with zero for masked lanes.

        *advance* is what the base pointer has moved by; *lanes* is how many lanes hold each
        element of *out*.
        """
        at.require_within(memory.size, advance, what)
        if at.count:
            # Clipping never acts: the addresses are checked, and a masked one is 0.
            np.take(memory[advance:], at.index, out=out, mode="clip")
        if at.masked is not None:
            np.copyto(out, np.float32(0), where=at.masked)
        if self.trace is not None:
            loaded = at.count * lanes
            self.trace.count_loads(what, loaded, operand)

    def store(self, memory: Floats, at: Addresses, values: Floats) -> None:
        """Store *values* to global *memory* from the lanes that have an address."""
        at.require_within(memory.size, 0, "out")
        if at.masked is None:
            memory[at.index] = values
        else:
            live = ~at.masked
            memory[at.index[live]] = values[live]
        if self.trace is not None:
            self.trace.elements_stored += at.count

    def lds_read(self, out: Floats, at: Addresses, offset: int,
                 lanes: Bools | None = None, operand: bool = True) -> None:
        """Each lane reads the word at its address plus *offset*; only *lanes* are counted."""
        at.require_within(self.lds.shape[1], offset, "LDS")
        np.take(self.lds, at.index + offset, axis=1, out=out, mode="clip")
        if self.trace is not None:
            read = out.size if lanes is None else int(np.count_nonzero(lanes))
            self.trace.lds_reads += read
            self.trace.operands += read * operand

    def lds_read_apart(self, out: Floats, at: Addresses, offset: int) -> None:
        """As `lds_read`, where each block has addresses of its own, along the first axis."""
        at.require_within(self.lds.shape[1], offset, "LDS")
        block = self.lds.shape[1] * lane_ids(self.count, *[1] * (at.index.ndim - 1))
        np.take(self.lds, block + (at.index + offset), out=out, mode="clip")
        if self.trace is not None:
            self.trace.lds_reads += out.size
            self.trace.operands += out.size

    def lds_write(self, first: int, values: Floats, words: Ints | None = None) -> None:
        """Threads write *values*, of shape (blocks, threads), to *words* counted from *first*.

        Without *words*, consecutive threads write to consecutive words.
        """
        count = values.shape[1]
        last = first + (count if words is None else int(words.max()) + 1) - 1
        if last >= self.lds.shape[1]:
            raise LaunchError(f"{self.plan.name}: a lane would write word {last} of "
                              f"{self.lds.shape[1]} in LDS")
        self.lds[:, slice(first, last + 1) if words is None else first + words] = values
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


def activate(sums: Floats, activation: str | None) -> Floats:
    """The activation of *sums* in place, every operation rounded to float32; a NaN stays one.

    silu rests on NumPy's exp, so that other implementations agree with it to a few roundings only.
    """
    if activation in ("relu", "relu6"):
        np.maximum(sums, np.float32(0), out=sums)
    if activation == "relu6":
        np.minimum(sums, np.float32(6), out=sums)
    if activation == "silu":
        # exp overflows to inf for a large negative sum, and the quotient is -0, as it should.
        np.divide(sums, np.float32(1) + np.exp(-sums), out=sums)
    if activation == "hardswish":
        gate = np.clip(sums + np.float32(3), np.float32(0), np.float32(6))
        np.divide(sums * gate, np.float32(6), out=sums)
    return sums


def batches(plan: Plan, total: int, trace: Trace | None,
            allocate: Callable[[Blocks], None]) -> Iterator[tuple[Blocks, int]]:
    """The blocks of a grid of *total*, as many together as fit memory, and the first's number.

    *allocate* is called on blocks before they first run.
    """
    blocks = None
    for first, count in chunks(total, Blocks.at_a_time(plan)):
        if blocks is None or blocks.count != count:
            blocks = Blocks(plan, count, trace)
            allocate(blocks)
        yield blocks, first


class LockstepKernel:
    """Kernel of a plan on its operands: the base of the algorithms' kernels."""

    def __init__(self, plan: Plan, operands: Operands) -> None:
        self.plan, self.problem, self.wavefront = plan, plan.problem, plan.device.wavefront
        self.t: Any = plan.tiling
        self.operands, self.out = operands, operands["out"]

    def epilogue(self, blocks: Blocks, sums: Floats, channel: Ints, at: Addresses) -> Floats:
        """*sums* with the bias of each lane's output *channel*, the residual and the activation.

        *at* is where the lanes store them. In place.
        """
        spec = self.problem.spec
        if spec.bias:
            mask = None if at.masked is None else ~at.masked
            np.add(sums, self._loaded(blocks, "bias", "biases", Addresses(channel, mask)),
                   out=sums)
        if spec.residual == "before":
            np.add(sums, self._loaded(blocks, "residual", "residuals", at), out=sums)
        activate(sums, spec.activation)
        if spec.residual == "after":
            np.add(sums, self._loaded(blocks, "residual", "residuals", at), out=sums)
        return sums

    def scaled(self, blocks: Blocks, values: Floats, at: Addresses, advance: int = 0) -> None:
        """Multiply *values* of x in place by the scales *at* their images and channels."""
        if self.problem.spec.scaled:
            np.multiply(values, self._loaded(blocks, "scale", "scales", at, advance), out=values)

    def _loaded(self, blocks: Blocks, name: str, what: Tensor, at: Addresses,
                advance: int = 0) -> Floats:
        values = np.empty(at.index.shape, dtype=np.float32)
        blocks.load(values, self.operands[name], at, what, advance)
        return values
