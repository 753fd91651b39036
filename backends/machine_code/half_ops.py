"""Instructions of parts of registers: accesses of 16 bits and of bytes, and multiply-adds of
float16 numbers.

Sources: Vega ISA, 9 to 11, 12.10 (VOP3P) and 12.17; LLVM's "User Guide for AMDGPU Backend" for the
operands of V_FMA_MIX.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dscore.backends.machine_code import arithmetic
from dscore.backends.machine_code.disassembly import Instruction
from dscore.backends.machine_code.lane_ops import Handler, offset_of, require
from dscore.backends.machine_code.memory_ops import address_of, deliver, executing, lds_places
from dscore.backends.machine_code.operands import (
    Operand,
    Read,
    UnknownError,
    float16_bits,
    parse,
    reader,
)
from dscore.backends.machine_code.packed_ops import selection_of
from dscore.backends.machine_code.waves import Words


def translate(t: Any, instruction: Instruction) -> bool:
    """Add an instruction to the translator *t*; False where it is none of these."""
    handler = _HANDLERS.get(instruction.opcode)
    if handler is not None:
        handler(t, instruction)
    return handler is not None


def _halves_of(opcode: str) -> tuple[bool, bool]:
    """Whether the other half of a register stays (d16), and whether the high one is meant."""
    return "d16" in opcode, opcode.endswith("_hi")


def _bytes_of(opcode: str) -> int:
    """Bytes that an instruction reads or writes of memory."""
    return 1 if "byte" in opcode or "8" in opcode.split("_")[2] else 2


def _extended(values: Words, opcode: str) -> Words:
    """Bytes that were loaded, with their sign in the bits above where they are signed."""
    if "sbyte" not in opcode and "_i8" not in opcode:
        return values
    wide = values.astype(np.uint8).view(np.int8)
    if _halves_of(opcode)[0]:
        return wide.astype(np.int16).view(np.uint16).astype(np.uint32)
    return wide.astype(np.int32).view(np.uint32)


def _deliver_small(m: Any, register: int, values: Words, opcode: str) -> None:
    """Put halves or bytes that the executing lanes loaded into a register."""
    keeps, high = _halves_of(opcode)
    values = _extended(values, opcode)
    if keeps:
        before = executing(m, m.v[register])
        values = (before & np.uint32(0xFFFF) | values << np.uint32(16) if high
                  else before & np.uint32(0xFFFF0000) | values)
    deliver(m, register, values[None])


def _small_stored(m: Any, register: int, opcode: str) -> Words:
    """The half of a register that the executing lanes store, or of which they store the low byte.
    """
    values = executing(m, m.v[register])
    low: Words = (values >> np.uint32(16) if _halves_of(opcode)[1] else values) & np.uint32(0xFFFF)
    return low


def _global_load_small(t: Any, instruction: Instruction) -> None:
    """GLOBAL_LOAD_USHORT, which clears the upper half, GLOBAL_LOAD_UBYTE and _SBYTE, and the forms
    that keep the other half, as GLOBAL_LOAD_SHORT_D16 (Vega ISA, 12.17).
    """
    target, vector, base = instruction.operands
    to, opcode = require(parse(target), "v", 1), instruction.opcode
    address = address_of(instruction, vector, base, offset_of(instruction, {"offset", "glc"}), t)
    registers = slice(to.first, to.first + 1)
    t.overwrites(to)

    def step(m: Any) -> None:
        addresses = executing(m, address(m))
        if addresses.size:
            _deliver_small(m, to.first, m.memory.load_small(addresses, _bytes_of(opcode)), opcode)
        m.vector_memory.issue(m.group, registers)
    t.add(step)
    t.wrote(to, loading=True)


def _global_store_small(t: Any, instruction: Instruction) -> None:
    """GLOBAL_STORE_SHORT and _BYTE, of the low half, and those of the high one (D16_HI)."""
    vector, source, base = instruction.operands
    data, opcode = require(parse(source), "v", 1), instruction.opcode
    address = address_of(instruction, vector, base, offset_of(instruction, {"offset"}), t)
    t.reads(data)

    def step(m: Any) -> None:
        addresses = executing(m, address(m))
        if addresses.size:
            m.memory.store_small(addresses, _small_stored(m, data.first, opcode),
                                 executing(m, m.wave_numbers[:, None]), _bytes_of(opcode))
        m.vector_memory.issue(m.group)
    t.add(step)


def _lds_read_small(t: Any, instruction: Instruction) -> None:
    """DS_READ_U16, _U8 and _I8, and the forms that keep the other half (Vega ISA, 12.13)."""
    target, address = instruction.operands
    [place], opcode = lds_places(t, instruction, address, 0), instruction.opcode
    to = require(parse(target), "v", 1)
    t.overwrites(to)

    def step(m: Any) -> None:
        offsets = executing(m, place(m))
        if offsets.size:
            [values] = m.shared.read(executing(m, m.blocks[:, None]),
                                     executing(m, m.wave_of_block[:, None]), offsets,
                                     _bytes_of(opcode))
            _deliver_small(m, to.first, values, opcode)
        m.lds.issue(m.group, slice(to.first, to.first + 1))
    t.add(step)
    t.wrote(to, loading=True)


def _lds_write_small(t: Any, instruction: Instruction) -> None:
    """DS_WRITE_B16 and _B8, and those of the high half (D16_HI)."""
    address, source = instruction.operands
    [place], opcode = lds_places(t, instruction, address, 0), instruction.opcode
    data = require(parse(source), "v", 1)
    t.reads(data)

    def step(m: Any) -> None:
        offsets = executing(m, place(m))
        if offsets.size:
            m.shared.write(executing(m, m.blocks[:, None]),
                           executing(m, m.wave_of_block[:, None]), offsets,
                           [_small_stored(m, data.first, opcode)], _bytes_of(opcode))
        m.lds.issue(m.group)
    t.add(step)


def _mixed(t: Any, instruction: Instruction) -> None:
    """V_FMA_MIX_F32, V_FMA_MIXLO_F16 and V_FMA_MIXHI_F16: a fused multiply-add in float32.

    Sources that *op_sel_hi* names are float16 numbers, each in the half that *op_sel* says.
    """
    unknown = set(instruction.modifiers) - {"op_sel", "op_sel_hi"}
    if unknown:
        raise UnknownError(f"modifier {', '.join(sorted(unknown))} of {instruction.opcode}")
    target, *sources = (parse(text) for text in instruction.operands)
    require(target, "v", 1)
    halves = selection_of(instruction, "op_sel_hi", [0] * len(sources))
    high = selection_of(instruction, "op_sel", [0] * len(sources))
    reads = [_mixed_reader(*one) for one in zip(sources, halves, high, strict=True)]
    t.reads(*sources)
    t.overwrites(target)
    register, result = target.first, _RESULTS[instruction.opcode]

    def step(m: Any) -> None:
        total = arithmetic.fma(*(read(m) for read in reads))
        np.copyto(m.v[register], result(m.v[register], total), where=m.lanes)
    t.add(step)
    t.wrote(target)


def _mixed_reader(operand: Operand, half: int, high: int) -> Read:
    """Function that reads a source in float32; its signs are those of the number."""
    if not half:
        return reader(operand, "f", True)
    if operand.kind == "c":
        raise UnknownError("a constant of 16 bits")
    plain = reader(replace(operand, negative=False, absolute=False), "u", True)
    shift = np.uint32(16 * high)

    def read(m: Any) -> Any:
        bits = (plain(m) >> shift & np.uint32(0xFFFF)).astype(np.uint16)
        value = bits.view(np.float16).astype(np.float32)
        value = np.abs(value) if operand.absolute else value
        return -value if operand.negative else value
    return read


_PARTS = ("", "_d16", "_d16_hi")  # of a register that a load writes
# The register after it, from the one before and the sum: the other half stays.
_RESULTS: dict[str, Callable[[Any, Any], Any]] = {
    "v_fma_mix_f32": lambda before, total: total.view(np.uint32),
    "v_fma_mixlo_f16": lambda before, total: before & np.uint32(0xFFFF0000) | float16_bits(total),
    "v_fma_mixhi_f16": lambda before, total: (before & np.uint32(0xFFFF)
                                              | float16_bits(total) << np.uint32(16)),
}
_HANDLERS: dict[str, Handler] = {
    **{f"global_load_{name}": _global_load_small
       for name in ("ushort", "short_d16", "short_d16_hi",
                    *(f"{kind}byte{part}" for kind in "us" for part in _PARTS))},
    **{f"global_store_{name}{part}": _global_store_small
       for name in ("short", "byte") for part in ("", "_d16_hi")},
    **{f"ds_read_{name}{part}": _lds_read_small for name in ("u16", "u8", "i8") for part in _PARTS},
    **{f"ds_write_{name}{part}": _lds_write_small
       for name in ("b16", "b8") for part in ("", "_d16_hi")},
    **dict.fromkeys(_RESULTS, _mixed)}
