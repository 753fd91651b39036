"""Loads and stores of 8 and 16 bits, of global memory and of LDS (Vega ISA, 9 to 11 and 12.17).

A load extends what it read to a register by zeros or by its sign; one of D16 goes to the lower or
the upper half of the register, whose other half stays. A store takes the lowest bits of a register,
or of its upper half.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dscore.backends.machine_code.disassembly import Instruction
from dscore.backends.machine_code.lane_ops import Handler, offset_of, require
from dscore.backends.machine_code.memory_ops import (
    address_of,
    deliver,
    executing,
    held,
    lds_places,
)
from dscore.backends.machine_code.operands import parse
from dscore.backends.machine_code.waves import Words

_HALF = np.uint32(16)
_LOW = np.uint32(0xFFFF)


class _Access(NamedTuple):
    """What is loaded or stored: *size* bytes, and which half of a register is theirs, if one."""

    size: int
    signed: bool = False
    half: str = ""  # "low" or "high" where the other half of the register stays


def translate(t: Any, instruction: Instruction) -> bool:
    """Add an instruction to the translator *t*; False where it is none of these."""
    handler = _HANDLERS.get(instruction.opcode)
    if handler is not None:
        handler(t, instruction)
    return handler is not None


def _extended(values: Words, access: _Access) -> Words:
    """A register of what was read."""
    if not access.signed:
        return values
    up = np.uint32(32 - 8 * access.size)
    words: Words = ((values << up).view(np.int32) >> up.astype(np.int32)).view(np.uint32)
    return words


def _deliver(m: Any, register: int, values: Words, access: _Access) -> None:
    """Put what the executing lanes loaded into a register."""
    words = _extended(values, access)
    if access.half:
        before = executing(m, m.v[register])
        words = (before & _LOW | words << _HALF if access.half == "high"
                 else before & ~_LOW | words & _LOW)
    deliver(m, register, words)


def _stored(m: Any, source: Any, access: _Access) -> Words:
    words = held(m, source)
    return words >> _HALF if access.half == "high" else words


def _global_load(access: _Access) -> Handler:
    def handle(t: Any, instruction: Instruction) -> None:
        target, vector, base = instruction.operands
        to = require(parse(target), "v", 1)
        address = address_of(instruction, vector, base, offset_of(instruction, {"offset", "glc"}),
                             t)
        t.overwrites(to)

        def step(m: Any) -> None:
            addresses = executing(m, address(m))
            if addresses.size:
                _deliver(m, to.first, m.memory.load(addresses, access.size), access)
            m.vector_memory.issue(m.group, slice(to.first, to.first + 1))
        t.add(step)
        t.wrote(to, loading=True)
    return handle


def _global_store(access: _Access) -> Handler:
    def handle(t: Any, instruction: Instruction) -> None:
        vector, source, base = instruction.operands
        data = require(parse(source), "v", 1)
        address = address_of(instruction, vector, base, offset_of(instruction, {"offset"}), t)
        t.reads(data)

        def step(m: Any) -> None:
            addresses = executing(m, address(m))
            if addresses.size:
                m.memory.store(addresses, access.size, _stored(m, data, access),
                               executing(m, m.wave_numbers[:, None]))
            m.vector_memory.issue(m.group)
        t.add(step)
    return handle


def _lds_read(access: _Access) -> Handler:
    def handle(t: Any, instruction: Instruction) -> None:
        target, address = instruction.operands
        [place] = lds_places(t, instruction, address, 0)
        to = require(parse(target), "v", 1)
        t.overwrites(to)

        def step(m: Any) -> None:
            offsets = executing(m, place(m))
            if offsets.size:
                values = m.shared.read(executing(m, m.blocks[:, None]),
                                       executing(m, m.wave_of_block[:, None]), offsets,
                                       access.size)
                _deliver(m, to.first, values, access)
            m.lds.issue(m.group, slice(to.first, to.first + 1))
        t.add(step)
        t.wrote(to, loading=True)
    return handle


def _lds_write(access: _Access) -> Handler:
    def handle(t: Any, instruction: Instruction) -> None:
        address, source = instruction.operands
        [place] = lds_places(t, instruction, address, 0)
        data = require(parse(source), "v", 1)
        t.reads(data)

        def step(m: Any) -> None:
            offsets = executing(m, place(m))
            if offsets.size:
                m.shared.write(executing(m, m.blocks[:, None]),
                               executing(m, m.wave_of_block[:, None]), offsets, access.size,
                               _stored(m, data, access))
            m.lds.issue(m.group)
        t.add(step)
    return handle


_HALVES = {"": "", "_d16": "low", "_d16_hi": "high"}
_UPPER = {"": "", "_d16_hi": "high"}
_HANDLERS: dict[str, Handler] = {
    **{f"global_load_{name}": _global_load(access) for name, access in {
        "ushort": _Access(2), "sshort": _Access(2, signed=True),
        "short_d16": _Access(2, half="low"), "short_d16_hi": _Access(2, half="high"),
        **{f"{sign}byte{half}": _Access(1, sign == "s", which)
           for sign in "us" for half, which in _HALVES.items()}}.items()},
    **{f"global_store_{name}{half}": _global_store(_Access(size, half=which))
       for name, size in (("byte", 1), ("short", 2)) for half, which in _UPPER.items()},
    **{f"ds_read_{sign}{8 * size}{half}": _lds_read(_Access(size, sign == "i", which))
       for size in (1, 2) for sign in "ui" for half, which in _HALVES.items()
       if (sign, size) != ("i", 2) or not half},
    **{f"ds_write_b{8 * size}{half}": _lds_write(_Access(size, half=which))
       for size in (1, 2) for half, which in _UPPER.items()},
}
