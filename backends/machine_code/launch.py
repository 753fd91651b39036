"""Launch of a kernel: its blocks, as many together as suit the host's memory, to their ends."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dscore.backends.machine_code.lds import Lds
from dscore.backends.machine_code.memory import GlobalMemory, Window
from dscore.backends.machine_code.objects import Descriptor
from dscore.backends.machine_code.translation import BasicBlock
from dscore.backends.machine_code.waves import LANES, Array, Bools, Fault, Waves
from dscore.core.errors import LaunchError

# Wavefronts that run together: enough that NumPy's own cost is small, few enough for caches.
_WAVES_TOGETHER = 512
# Basic blocks that wavefronts of one batch may enter; no kernel of dscore comes near.
_MOST_STEPS = 5_000_000
# Times that wavefronts look at memory that does not change: they sleep after they look the last
# time, too, and may wait for several things one after the other.
_MOST_LOOKS = 16


@dataclass(frozen=True)
class Grid:
    """Blocks of a launch, and threads of each."""

    blocks: int
    threads: int

    @property
    def waves(self) -> int:
        """Wavefronts of a block."""
        return -(-self.threads // LANES)


@dataclass(frozen=True)
class Program:
    """Translated kernel: its basic blocks, and what the hardware sets up for it."""

    blocks: Sequence[BasicBlock]
    descriptor: Descriptor

    def run(self, grid: Grid, arrays: Sequence[tuple[str, Array, bool | None]], kernarg: bytes,
            blocks: Sequence[int] | None = None) -> None:
        """Run *blocks*, or all, on *arrays* (name, array, written to; None: read and written).

        *kernarg* follows the addresses of the arrays. Raises LaunchError that says which
        instruction did what it must not do.
        """
        memory = global_memory(arrays, kernarg, self.descriptor.kernarg_bytes)
        numbers = np.arange(grid.blocks) if blocks is None else np.asarray(blocks, dtype=np.intp)
        together = max(1, _WAVES_TOGETHER // grid.waves)
        for first in range(0, numbers.size, together):
            # A missing value or an infinite one is data, and sums of integers wrap.
            with np.errstate(all="ignore"):
                Batch(self, grid, numbers[first:first + together], memory).run()


def global_memory(arrays: Sequence[tuple[str, Array | None, bool | None]], rest: bytes,
                  kernarg_bytes: int) -> GlobalMemory:
    """Windows of the operands, and behind them the one of the arguments, which hold addresses."""
    addresses: list[int] = []
    windows: list[Window] = []
    for name, array, writable in arrays:
        addresses.append(0 if array is None else GlobalMemory.base(len(windows)))
        if array is not None:
            windows.append(Window(name, array, writable is not False, shared=writable is None))
    data = struct.pack(f"<{len(addresses)}Q", *addresses) + rest
    words = np.frombuffer(data.ljust(-(-kernarg_bytes // 4) * 4, b"\0"), dtype=np.uint32)
    return GlobalMemory([*windows, Window("the kernel's arguments", words, False)])


class Batch(Waves):
    """Blocks that run together. Wavefronts are ordered by their number in the block, then by block.

    Of the wavefronts that may go on, those at the lowest address do, all of them together; so that
    wavefronts which took different ways meet again.
    """

    def __init__(self, program: Program, grid: Grid, numbers: Array, memory: GlobalMemory) -> None:
        descriptor, blocks = program.descriptor, numbers.size
        super().__init__(grid.waves * blocks, descriptor.vgprs)
        self.program, self.memory = program, memory
        self.shared = Lds(blocks, descriptor.lds_bytes, grid.waves, memory.part)
        self.blocks = np.tile(np.arange(blocks, dtype=np.int32), grid.waves)
        self.wave_of_block = np.repeat(np.arange(grid.waves, dtype=np.int32), blocks)
        self.wave_numbers = (numbers[self.blocks] * grid.waves + self.wave_of_block).astype(
            np.int32)
        self._set_up(descriptor, grid, numbers)
        self._at = np.zeros(self.count, dtype=np.int64)
        self._held: Bools = np.zeros(self.count, dtype=np.bool_)
        self.asleep: Bools = np.zeros(self.count, dtype=np.bool_)  # which poll memory
        self._changes, self._looks = -1, 0  # of memory, when all slept; how often since

    def _set_up(self, descriptor: Descriptor, grid: Grid, numbers: Array) -> None:
        """Registers as a wavefront finds them (AMDGPUUsage, "Initial Kernel Execution State")."""
        thread = self.wave_of_block[:, None] * LANES + np.arange(LANES, dtype=np.int32)
        self.v[0] = thread
        there = np.packbits(thread < grid.threads, axis=1, bitorder="little").view(np.uint64)[:, 0]
        self.v_written[0] = there
        for name, first in descriptor.user_sgprs:
            # Others stay poisoned: dscore's kernels have no use for them.
            if name == "kernarg_segment_ptr":
                self.s64[:, first // 2] = GlobalMemory.base(len(self.memory.windows) - 1)
                self.s_written[first:first + 2] = True
        self.s[:, descriptor.system_sgprs] = numbers[self.blocks]
        self.s_written[descriptor.system_sgprs] = True
        self.begin(there)

    def run(self) -> None:
        """Run all wavefronts to their ends; LaunchError for what a kernel must not do."""
        blocks, end = self.program.blocks, len(self.program.blocks)
        for _ in range(_MOST_STEPS):
            ready = np.where(self._held | self.asleep, end, self._at)
            lowest, members = self._next(ready)
            if lowest == end:
                if self._held.any() and self._release(end):
                    continue
                if not self.asleep.any():
                    return
                self._wake()
                continue
            group = True if members.all() else members
            if group is not True or self.group is not True:
                self.select(group)
            self._execute(blocks[lowest], lowest + 1, end)
        raise LaunchError("the kernel does not end")

    def _next(self, ready: Array) -> tuple[int, Bools]:
        """The basic block to be executed next, and the wavefronts that do, of those at *ready*."""
        lowest = int(ready.min())
        return lowest, ready == lowest

    def _execute(self, block: BasicBlock, following: int, end: int) -> None:
        at = 0
        try:
            for at, step in enumerate(block.steps):  # noqa: B007  names a fault's instruction
                step(self)
            at = len(block.steps) - 1
            self._leave(block, following, end)
        except Fault as fault:
            where = block.instructions[at] if block.instructions else "the end of a basic block"
            raise LaunchError(f"machine code at {where}: it {fault}") from None

    def _leave(self, block: BasicBlock, following: int, end: int) -> None:
        kind, taken = block.leave
        if kind == "end":
            np.copyto(self._at, end, where=self.group)
        elif kind == "branch":
            goes = block.target if taken is None else np.where(taken(self), block.target,
                                                               following)
            np.copyto(self._at, goes, where=self.group)
        else:
            np.copyto(self._at, following, where=self.group)
            if kind == "barrier":
                self._arrive()

    def _arrive(self) -> None:
        """Hold the group at a barrier, which orders only what has been waited for."""
        if (self.lds.outstanding() & self.group).any():
            raise Fault("comes to s_barrier with accesses of LDS that no s_waitcnt lgkmcnt covers")
        self._held |= self.group

    def _wake(self) -> None:
        """Let those that poll look again; LaunchError where nothing has changed since."""
        changed = self.memory.changes != self._changes
        self._looks = 1 if changed else self._looks + 1
        if self._looks > _MOST_LOOKS:
            raise LaunchError("blocks wait for one another: they poll memory that no wavefront "
                              "will change")
        self._changes = self.memory.changes
        self.asleep[:] = False

    def _release(self, end: int) -> bool:
        """Let blocks go on of which every wavefront is at a barrier, or has ended; whether any.

        The hardware lets wavefronts of a block meet at different barriers, and leaves out those
        that have ended. What kernels are written in does not, so that either is a fault here.
        """
        blocks = self.shared.barriers.size
        places = self._at.reshape(-1, blocks)
        released = ~self.asleep.reshape(-1, blocks).any(axis=0)
        if (places != places[0])[:, released].any():
            raise LaunchError("wavefronts of one block wait at s_barrier for others that are at "
                              "another one, or have ended")
        released &= places[0] != end
        self.shared.barriers[released] += 1
        self._held &= ~np.tile(released, places.shape[0])
        return bool(released.any())
