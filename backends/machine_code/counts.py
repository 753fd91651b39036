"""Counts of executed machine code: instructions by kind, clocks of LDS, lines of global memory.

Some blocks of a launch are run with a counting step before each instruction that reaches memory
and at the head of each basic block. A program that nobody counts has none of these steps.

Rules, of which a measurement of hardware may know better:

* LDS has 32 banks of 4 bytes and serves half a wavefront in a clock: lanes 0 to 31, then 32 to 63.
  Different words in one bank cost a clock each, lanes at the same word share it (AMD Accelerated
  Parallel Processing, OpenCL Programming Guide, 6.2, of GCN; the Vega ISA, 11, has the same 32
  banks). Of accesses of 8 bytes a clock takes a quarter of the wavefront, as that section says, and
  of 16 bytes an eighth, which goes beyond it: as many lanes as take all banks.
* Lines of global memory are 64 bytes, those of gfx906's L1 and L2 cache. A wavefront's load or
  store touches the distinct lines that its executing lanes' bytes lie in.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dscore.backends.machine_code.disassembly import Instruction
from dscore.backends.machine_code.launch import Batch, Grid, Program, global_memory
from dscore.backends.machine_code.lds import Lds
from dscore.backends.machine_code.memory import GlobalMemory
from dscore.backends.machine_code.translation import BasicBlock
from dscore.backends.machine_code.waves import LANES, Array, Bools, Words

BANKS = 32
LINE_BYTES = 64
_WORDS = 1 << 16  # more than LDS has, a multiple of the banks
_LINES = 1 << 40  # more than addresses of `GlobalMemory` reach
# Blocks of a grid that are counted: enough for those at its edges to have their share.
SAMPLED_BLOCKS = 12
# Kinds of instructions by their opcodes, of which the first that matches counts.
_KINDS = tuple((kind, re.compile(pattern)) for kind, pattern in (
    ("LDS reads", "ds_read"), ("LDS writes", "ds_write"), ("lane permutes", "ds_"),
    ("global loads", "global_load"), ("global stores", "global_store"),
    ("scalar loads", "s_load"), ("waits", "s_waitcnt"), ("no-ops", "s_nop"),
    ("barriers", "s_barrier"), ("branches", "s_c?branch"), ("ends", "s_endpgm"),
    ("scalar ALU", "s_"), ("vector ALU", "v_")))
_MULTIPLY_ADD = re.compile("v_(fma|fmac|mac|mad|fma_mix)_f32")
_REACHES_MEMORY = re.compile("ds_|global_|s_load|s_waitcnt")


def kind_of(opcode: str) -> str:
    """The kind that an instruction is counted as.

    >>> kind_of("v_fmac_f32_e32"), kind_of("s_cbranch_scc1"), kind_of("ds_bpermute_b32")
    ('vector ALU', 'branches', 'lane permutes')
    """
    return next(kind for kind, pattern in _KINDS if pattern.match(opcode))


@dataclass
class MachineCounts:
    """Counts over the wavefronts of some blocks of a launch; `per_wave` divides by these.

    `counts` has executed instructions by kind (`multiply-adds` are some of `vector ALU`), and:
    `LDS words read` by a lane, on average over all 64; `LDS clocks`, of which `bank conflicts` are
    those beyond what as many lanes at distinct banks take; `lines loaded` and `lines stored`;
    `waits for memory` and `waits for LDS`, those at which an operation was still underway, as if
    none came before it is waited for.
    """

    blocks: int  # counted
    grid_blocks: int
    waves: int  # of the counted blocks
    counts: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def per_wave(self) -> dict[str, float]:
        """Counts of a wavefront, on average over the counted blocks."""
        return {name: count / self.waves for name, count in self.counts.items()}


def count(program: Program, grid: Grid, arrays: Sequence[tuple[str, Array, bool]], kernarg: bytes,
          blocks: int = SAMPLED_BLOCKS) -> MachineCounts:
    """Counts of *blocks* blocks spread evenly over the grid, which write their results.

    Arguments and errors are those of `Program.run`.
    """
    numbers = np.unique(np.linspace(0, grid.blocks - 1, min(blocks, grid.blocks)).astype(np.int64))
    counted = MachineCounts(numbers.size, grid.blocks, numbers.size * grid.waves)
    memory = global_memory(arrays, kernarg, program.descriptor.kernarg_bytes)
    counting = Program([_counting(block) for block in program.blocks], program.descriptor)
    with np.errstate(all="ignore"):
        _CountingBatch(counting, grid, numbers, memory, counted.counts).run()
    return counted


def _counting(block: BasicBlock) -> BasicBlock:
    """A basic block that counts its own instructions, and says which one reaches memory."""
    executed, steps, instructions = Counter(_ending(block)), [], []
    last: Instruction | None = None
    for step, instruction in zip(block.steps, block.instructions, strict=True):
        if instruction is not last:
            last = instruction
            executed[kind_of(instruction.opcode)] += 1
            executed["multiply-adds"] += bool(_MULTIPLY_ADD.match(instruction.opcode))
            if _REACHES_MEMORY.match(instruction.opcode):
                steps.append(_announce(instruction))
                instructions.append(instruction)
        steps.append(step)
        instructions.append(instruction)
    steps.append(lambda m: m.note(executed))
    instructions += block.instructions[-1:]
    return BasicBlock(steps, instructions, block.leave, block.target)


def _ending(block: BasicBlock) -> list[str]:
    """The kind of the instruction that a basic block ends with, which is none of its steps."""
    return {"branch": ["branches"], "barrier": ["barriers"], "end": ["ends"]}.get(
        block.leave.kind, [])


def _announce(instruction: Instruction) -> Callable[[Any], None]:
    return lambda m: m.announce(instruction)


class _CountingBatch(Batch):
    """Blocks that count what they do."""

    def __init__(self, program: Program, grid: Grid, numbers: Array, memory: GlobalMemory,
                 counts: dict[str, float]) -> None:
        super().__init__(program, grid, numbers, _CountingMemory(memory, self))
        self.counts = counts
        self.shared = _CountingLds(self, numbers.size, program.descriptor.lds_bytes, grid.waves,
                                   memory.part)
        self.opcode = ""

    @property
    def executing(self) -> tuple[Array, Array]:
        """Wavefront and lane of each executing lane, in the order of an access's addresses."""
        lanes: Bools = np.broadcast_to(self.lanes, (self.count, LANES))
        waves, numbers = np.nonzero(lanes)
        return waves, numbers

    def note(self, executed: Counter[str]) -> None:
        """Count the instructions of a basic block for the wavefronts that execute it."""
        waves = self._members()
        for kind, count in executed.items():
            self.counts[kind] += count * waves

    def _members(self) -> int:
        return self.count if self.group is True else int(np.count_nonzero(self.group))

    def announce(self, instruction: Instruction) -> None:
        """Take note of the instruction that follows, and of what a wait is for."""
        self.opcode = instruction.opcode
        if self.opcode != "s_waitcnt":
            return
        text = instruction.operands[0]
        for name, kind, counters in (("vmcnt", "memory", (self.vector_memory,)),
                                     ("lgkmcnt", "LDS", (self.lds, self.scalar_memory))):
            left = re.search(rf"{name}\((\d+)\)", text)
            if left:
                underway = sum(one.issued - one.done for one in counters) > int(left[1])
                self.counts[f"waits for {kind}"] += int(np.count_nonzero(underway & self.group))


class _CountingMemory(GlobalMemory):
    """Global memory that counts the lines which loads and stores of vectors touch."""

    def __init__(self, memory: GlobalMemory, batch: _CountingBatch) -> None:
        super().__init__(memory.windows)
        self.batch = batch

    def load(self, addresses: Array, size: int) -> Words:
        if self.batch.opcode.startswith("global_"):
            self._count("lines loaded", addresses, size)
        return super().load(addresses, size)

    def store(self, addresses: Array, size: int, words: Words, waves: Array) -> None:
        self._count("lines stored", addresses, size)
        super().store(addresses, size, words, waves)

    def _count(self, what: str, addresses: Array, size: int) -> None:
        waves, _ = self.batch.executing
        ends = [waves * _LINES + (addresses + np.uint64(byte)).astype(np.int64) // LINE_BYTES
                for byte in {0, size - 1}]
        self.batch.counts[what] += np.unique(np.concatenate(ends)).size


class _CountingLds(Lds):
    """LDS that counts its clocks."""

    def __init__(self, batch: _CountingBatch, *arguments: int) -> None:
        super().__init__(*arguments)
        self.batch = batch

    def read(self, blocks: Array, waves: Array, offsets: Array, size: int) -> Words:
        self._count(offsets, max(size // 4, 1))
        self.batch.counts["LDS words read"] += offsets.size * max(size // 4, 1) / LANES
        return super().read(blocks, waves, offsets, size)

    def write(self, blocks: Array, waves: Array, offsets: Array, size: int, words: Words) -> None:
        self._count(offsets, len(words))
        super().write(blocks, waves, offsets, size, words)

    def _count(self, offsets: Array, words: int) -> None:
        clocks, least = lds_clocks(*self.batch.executing, offsets, words)
        self.batch.counts["LDS clocks"] += clocks
        self.batch.counts["bank conflicts"] += clocks - least


def lds_clocks(waves: Array, lanes: Array, offsets: Array, words: int) -> tuple[int, int]:
    """Clocks that LDS takes for one instruction, and the least that so many lanes could take.

    *waves* and *lanes* say whose the byte *offsets* are, each of an access of *words* words.

    >>> lane = np.arange(64)
    >>> lds_clocks(0 * lane, lane, 4 * lane, 1), lds_clocks(0 * lane, lane, 8 * lane, 1)
    ((2, 2), (4, 2))
    """
    together = BANKS // (4 if words == 3 else words)  # lanes of a clock
    groups = waves * (LANES // together) + lanes // together
    word = (offsets // 4)[:, None] + np.arange(words)
    # Lanes at one word share it.
    asked = np.unique(groups[:, None] * _WORDS + word)
    meeting = np.bincount(asked // _WORDS * BANKS + asked % BANKS,
                          minlength=(int(groups.max()) + 1) * BANKS)
    most = meeting.reshape(-1, BANKS).max(axis=1)
    return int(most.sum()), int(np.count_nonzero(most))
