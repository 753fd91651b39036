"""Instructions that pass values between the lanes of a wavefront (Vega ISA, 11 and 12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dscore.backends.machine_code.disassembly import Instruction
from dscore.backends.machine_code.operands import Operand, UnknownError, parse, reader
from dscore.backends.machine_code.waves import LANES, Array

Handler = Callable[[Any, Instruction], None]


def offset_of(instruction: Instruction, known: set[str]) -> int:
    """Offset of an instruction; UnknownError where it has other modifiers than *known* ones."""
    unknown = set(instruction.modifiers) - known
    if unknown:
        raise UnknownError(f"modifier {', '.join(sorted(unknown))} of {instruction.opcode}")
    return int(instruction.modifiers.get("offset", "0"), 0)


def require(operand: Operand, kind: str, count: int) -> Operand:
    """*operand*; UnknownError unless it is *count* registers of that kind."""
    if (operand.kind, operand.count) != (kind, count):
        raise UnknownError(f"{operand.count} registers where {count} are needed")
    return operand


def _bpermute(t: Any, instruction: Instruction) -> None:
    """DS_BPERMUTE_B32: the value of the lane at address / 4; 0 of one that does not execute."""
    target, address, source = (parse(text) for text in instruction.operands)
    offset = offset_of(instruction, {"offset"})
    t.reads(address, source)
    t.overwrites(target)
    registers = slice(target.first, target.first + 1)

    def step(m: Any) -> None:
        lane = ((m.v[address.first] + np.uint32(offset)) >> np.uint32(2)) & np.uint32(63)
        value = m.v[source.first] if m.lanes is True else np.where(m.lanes, m.v[source.first],
                                                                   np.uint32(0))
        passed = np.take_along_axis(value, lane.astype(np.intp), axis=1)
        np.copyto(m.v[target.first], passed, where=m.lanes)
        m.lds.issue(m.group, registers)
    t.add(step)
    t.wrote(target, loading=True)


def _first_lane(t: Any, instruction: Instruction) -> None:
    """V_READFIRSTLANE_B32: the lowest executing lane's value, lane 0's where none does."""
    offset_of(instruction, set())
    target, source = (parse(text) for text in instruction.operands)
    require(source, "v", 1)
    t.reads(source)
    t.overwrites(target)

    def step(m: Any) -> None:
        values = m.v[source.first][np.arange(m.count), m.first_lane()]
        np.copyto(m.s[:, target.first], values, where=m.group)
    t.add(step)
    t.wrote(target)


def _lane(t: Any, select: Operand) -> Callable[[Any], Array]:
    """Function of the lane that an operand of an instruction names, for each wavefront."""
    t.reads(select)
    read = reader(select, "u", False)
    return lambda m: np.broadcast_to(read(m) & np.uint32(LANES - 1), (m.count,))


def _read_lane(t: Any, instruction: Instruction) -> None:
    """V_READLANE_B32: one lane's value, whether or not it executes (Vega ISA, 12.10).

    As a move is, of what was written or not: compilers keep scalars in lanes.
    """
    offset_of(instruction, set())
    target, source, select = (parse(text) for text in instruction.operands)
    require(target, "s", 1)
    register, lane = require(source, "v", 1).first, _lane(t, select)
    t.overwrites(target, source)

    def step(m: Any) -> None:
        lanes = lane(m)
        values = m.v[register][np.arange(m.count), lanes]
        np.copyto(m.s[:, target.first], values, where=m.group)
        known = m.v_written[register] >> lanes.astype(np.uint64) & np.uint64(1) != 0
        np.copyto(m.s_written[target.first], known, where=m.group)
    t.add(step)
    t.moved(target)


def _write_lane(t: Any, instruction: Instruction) -> None:
    """V_WRITELANE_B32: a value for one lane, whether or not it executes (Vega ISA, 12.10); as a
    move is, of what was written or not."""
    offset_of(instruction, set())
    target, source, select = (parse(text) for text in instruction.operands)
    register, lane, read = require(target, "v", 1).first, _lane(t, select), reader(source, "u",
                                                                                    False)
    t.overwrites(source, target)

    def step(m: Any) -> None:
        lanes = lane(m)
        waves = np.nonzero(np.broadcast_to(m.group, (m.count,)))[0]
        values = np.broadcast_to(read(m), (m.count,))
        m.v[register][waves, lanes[waves]] = values[waves]
        bit = np.uint64(1) << lanes[waves].astype(np.uint64)
        known = m.s_written[source.first][waves] if source.kind == "s" else True
        m.v_written[register][waves] = (m.v_written[register][waves] & ~bit
                                        | np.where(known, bit, np.uint64(0)))
    t.add(step)
    t.moved(target)


HANDLERS: dict[str, Handler] = {
    "ds_bpermute_b32": _bpermute,
    "v_readfirstlane_b32": _first_lane,
    "v_readlane_b32": _read_lane,
    "v_writelane_b32": _write_lane,
}
