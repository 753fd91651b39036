"""Instructions that reach memory (Vega ISA, 8 to 11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dscore.backends.machine_code import lane_ops
from dscore.backends.machine_code.disassembly import Instruction
from dscore.backends.machine_code.lane_ops import offset_of, require
from dscore.backends.machine_code.operands import Operand, UnknownError, parse, reader
from dscore.backends.machine_code.waves import Array, Words

Handler = Callable[[Any, Instruction], None]

_WIDTHS = {"dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4, "dwordx8": 8, "dwordx16": 16}
_LDS_WIDTHS = {"b32": 1, "b64": 2, "b96": 3, "b128": 4}
_BLOCK = 64  # elements that the two-address forms of ds_*2st64 count by


def translate(t: Any, instruction: Instruction) -> bool:
    """Add an instruction to the translator *t*; False where it is none of these."""
    handler = _HANDLERS.get(instruction.opcode)
    if handler is not None:
        handler(t, instruction)
    return handler is not None


def executing(m: Any, values: Array) -> Array:
    """Values of the lanes that execute, on one axis."""
    full = np.broadcast_to(values, (m.count, 64))
    return full.reshape(-1) if m.lanes is True else full[m.lanes]


def held(m: Any, source: Operand) -> Words:
    """What the executing lanes hold in registers, over (registers, lanes)."""
    return np.stack([executing(m, m.v[register]) for register in source.registers])


def deliver(m: Any, first: int, values: Words) -> None:
    """Put what the executing lanes loaded into registers from *first* on."""
    for word, value in enumerate(values):
        if m.lanes is True:
            m.v[first + word] = value.reshape(m.count, 64)
        else:
            m.v[first + word][m.lanes] = value


def address_of(instruction: Instruction, vector: str, base: str, offset: int,
             t: Any) -> Callable[[Any], Array]:
    """Function of the lanes' addresses: of 64 bits, or an offset of 32 to a scalar base."""
    if base == "off":
        at = require(parse(vector), "v", 2)
        read = reader(at, "d", True)
        t.reads(at)
        return lambda m: read(m) + np.uint64(offset % 2**64)
    at, start = require(parse(vector), "v", 1), require(parse(base), "s", 2)
    read, read_base = reader(at, "u", True), reader(start, "d", True)
    t.reads(at, start)
    return lambda m: read_base(m) + read(m).astype(np.uint64) + np.uint64(offset % 2**64)


def _global_load(words: int) -> Handler:
    """GLOBAL_LOAD_DWORD and wider (Vega ISA, 9.1 and 12.17)."""
    def handle(t: Any, instruction: Instruction) -> None:
        target, vector, base = instruction.operands
        # glc: past the L1 cache, which the interpreter does not have.
        offset = offset_of(instruction, {"offset", "glc"})
        to = require(parse(target), "v", words)
        address = address_of(instruction, vector, base, offset, t)
        registers = slice(to.first, to.first + words)
        t.overwrites(to)

        def step(m: Any) -> None:
            addresses = executing(m, address(m))
            if addresses.size:
                deliver(m, to.first, m.memory.load(addresses, 4 * words))
            m.vector_memory.issue(m.group, registers)
        t.add(step)
        t.wrote(to, loading=True)
    return handle


def _global_store(words: int) -> Handler:
    """GLOBAL_STORE_DWORD and wider."""
    def handle(t: Any, instruction: Instruction) -> None:
        vector, source, base = instruction.operands
        offset = offset_of(instruction, {"offset"})
        data = require(parse(source), "v", words)
        address = address_of(instruction, vector, base, offset, t)
        t.reads(data)

        def step(m: Any) -> None:
            addresses = executing(m, address(m))
            if addresses.size:
                m.memory.store(addresses, 4 * words, held(m, data),
                               executing(m, m.wave_numbers[:, None]))
            m.vector_memory.issue(m.group)
        t.add(step)
    return handle


def _atomic_add(t: Any, instruction: Instruction) -> None:
    """GLOBAL_ATOMIC_ADD; with glc it delivers what was there before (Vega ISA, 12.17)."""
    *target, vector, source, base = instruction.operands
    offset = offset_of(instruction, {"offset", "glc"})
    if bool(target) != ("glc" in instruction.modifiers):
        raise UnknownError("an atomic operation that delivers without glc, or has it for nothing")
    data = require(parse(source), "v", 1)
    address = address_of(instruction, vector, base, offset, t)
    to = [require(parse(one), "v", 1) for one in target]
    registers = slice(to[0].first, to[0].first + 1) if to else None
    t.reads(data)
    t.overwrites(*to)

    def step(m: Any) -> None:
        addresses = executing(m, address(m))
        if addresses.size:
            before = m.memory.add(addresses, executing(m, m.v[data.first]))
            for one in to:
                deliver(m, one.first, before[None])
        m.vector_memory.issue(m.group, registers)
    t.add(step)
    t.wrote(*to, loading=True)


def _scalar_load(words: int) -> Handler:
    """S_LOAD_DWORD and wider: addresses in bytes, whose last two bits are left out (12.6).

    An offset that the instruction holds is signed, one in a register is not.
    """
    def handle(t: Any, instruction: Instruction) -> None:
        offset_of(instruction, set())
        target, base, offset = (parse(text) for text in instruction.operands)
        require(target, "s", words)
        require(base, "s", 2)
        read = reader(base, "d", False)
        read_offset = reader(offset, "d" if offset.kind == "c" else "u", False)
        registers = slice(target.first, target.first + words)
        t.reads(base, offset)
        t.overwrites(target)

        def step(m: Any) -> None:
            every = np.broadcast_to(read(m) + np.uint64(read_offset(m)), (m.count,))
            addresses = every if m.group is True else every[m.group]
            values = m.memory.load(addresses, 4 * words).T
            if m.group is True:
                m.s[:, registers] = values
            else:
                m.s[m.group, registers] = values
            m.scalar_memory.issue(m.group, registers)
        t.add(step)
        t.wrote(target, loading=True)
    return handle


def lds_places(t: Any, instruction: Instruction, address: str, pair: int) -> list[
        Callable[[Any], Array]]:
    """Functions of the lanes' byte offsets in LDS: one, or two that count by *pair* bytes."""
    at = require(parse(address), "v", 1)
    t.reads(at)
    if pair:
        offset_of(instruction, {"offset0", "offset1"})
        offsets = [int(instruction.modifiers.get(f"offset{n}", "0"), 0) * pair for n in (0, 1)]
    else:
        offsets = [offset_of(instruction, {"offset"})]
    return [_at(at.first, offset) for offset in offsets]


def _at(register: int, offset: int) -> Callable[[Any], Array]:
    # The sum has 32 bits, so that an offset may bring a negative address back.
    return lambda m: (m.v[register] + np.uint32(offset)).astype(np.int64)


def _lds_read(words: int, pair: int = 0) -> Handler:
    """DS_READ_B32 and wider; with *pair*, two of them (Vega ISA, 11.3 and 12.13)."""
    def handle(t: Any, instruction: Instruction) -> None:
        target, address = instruction.operands
        places = lds_places(t, instruction, address, pair)
        to = require(parse(target), "v", words * len(places))
        registers = slice(to.first, to.first + to.count)
        t.overwrites(to)

        def step(m: Any) -> None:
            offsets = [executing(m, place(m)) for place in places]
            if offsets[0].size:
                who = executing(m, m.blocks[:, None]), executing(m, m.wave_of_block[:, None])
                loaded = [m.shared.read(*who, at, 4 * words) for at in offsets]
                for n, values in enumerate(loaded):
                    deliver(m, to.first + n * words, values)
            m.lds.issue(m.group, registers)
        t.add(step)
        t.wrote(to, loading=True)
    return handle


def _lds_write(words: int, pair: int = 0) -> Handler:
    """DS_WRITE_B32 and wider; with *pair*, two of them."""
    def handle(t: Any, instruction: Instruction) -> None:
        address, *sources = instruction.operands
        places = lds_places(t, instruction, address, pair)
        if len(sources) != len(places):
            raise UnknownError(f"{len(sources)} sources of {instruction.opcode}")
        data = [require(parse(source), "v", words) for source in sources]
        t.reads(*data)

        def step(m: Any) -> None:
            for place, source in zip(places, data, strict=True):
                offsets = executing(m, place(m))
                if offsets.size:
                    m.shared.write(executing(m, m.blocks[:, None]),
                                   executing(m, m.wave_of_block[:, None]), offsets, 4 * words,
                                   held(m, source))
            m.lds.issue(m.group)
        t.add(step)
    return handle


_HANDLERS: dict[str, Handler] = {

    **{f"global_load_{name}": _global_load(words) for name, words in _WIDTHS.items() if words < 5},
    **{f"global_store_{name}": _global_store(words) for name, words in _WIDTHS.items()
       if words < 5},
    **{f"s_load_{name}": _scalar_load(words) for name, words in _WIDTHS.items() if words != 3},
    **{f"ds_read_{name}": _lds_read(words) for name, words in _LDS_WIDTHS.items()},
    **{f"ds_write_{name}": _lds_write(words) for name, words in _LDS_WIDTHS.items()},
    **{f"ds_{way}2{stride}_{name}": handler(words, 4 * words * (_BLOCK if stride else 1))
       for way, handler in (("read", _lds_read), ("write", _lds_write))
       for stride in ("", "st64") for name, words in (("b32", 1), ("b64", 2))},
    "global_atomic_add": _atomic_add,
    **lane_ops.HANDLERS,
}
