"""Instructions of halves of registers: accesses of 16 bits, and multiply-adds of float16 numbers.

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


def _deliver_half(m: Any, register: int, values: Words, opcode: str) -> None:
    """Put halves that the executing lanes loaded into a register."""
    keeps, high = _halves_of(opcode)
    if keeps:
        before = executing(m, m.v[register])
        values = (before & np.uint32(0xFFFF) | values << np.uint32(16) if high
                  else before & np.uint32(0xFFFF0000) | values)
    deliver(m, register, values[None])


def _half_stored(m: Any, register: int, opcode: str) -> Words:
    """The half of a register that the executing lanes store."""
    values = executing(m, m.v[register])
    low: Words = (values >> np.uint32(16) if _halves_of(opcode)[1] else values) & np.uint32(0xFFFF)
    return low


def _global_load_half(t: Any, instruction: Instruction) -> None:
    """GLOBAL_LOAD_USHORT, which clears the upper half, and GLOBAL_LOAD_SHORT_D16 (Vega ISA, 12.17).
    """
    target, vector, base = instruction.operands
    to, opcode = require(parse(target), "v", 1), instruction.opcode
    address = address_of(instruction, vector, base, offset_of(instruction, {"offset", "glc"}), t)
    registers = slice(to.first, to.first + 1)
    t.overwrites(to)

    def step(m: Any) -> None:
        addresses = executing(m, address(m))
        if addresses.size:
            _deliver_half(m, to.first, m.memory.load_halves(addresses), opcode)
        m.vector_memory.issue(m.group, registers)
    t.add(step)
    t.wrote(to, loading=True)


def _global_store_half(t: Any, instruction: Instruction) -> None:
    """GLOBAL_STORE_SHORT, of the low half, and GLOBAL_STORE_SHORT_D16_HI."""
    vector, source, base = instruction.operands
    data, opcode = require(parse(source), "v", 1), instruction.opcode
    address = address_of(instruction, vector, base, offset_of(instruction, {"offset"}), t)
    t.reads(data)

    def step(m: Any) -> None:
        addresses = executing(m, address(m))
        if addresses.size:
            m.memory.store_halves(addresses, _half_stored(m, data.first, opcode),
                                  executing(m, m.wave_numbers[:, None]))
        m.vector_memory.issue(m.group)
    t.add(step)


def _lds_read_half(t: Any, instruction: Instruction) -> None:
    """DS_READ_U16 and DS_READ_U16_D16 (Vega ISA, 12.13)."""
    target, address = instruction.operands
    [place], opcode = lds_places(t, instruction, address, 0), instruction.opcode
    to = require(parse(target), "v", 1)
    t.overwrites(to)

    def step(m: Any) -> None:
        offsets = executing(m, place(m))
        if offsets.size:
            [values] = m.shared.read(executing(m, m.blocks[:, None]),
                                     executing(m, m.wave_of_block[:, None]), offsets, 2)
            _deliver_half(m, to.first, values, opcode)
        m.lds.issue(m.group, slice(to.first, to.first + 1))
    t.add(step)
    t.wrote(to, loading=True)


def _lds_write_half(t: Any, instruction: Instruction) -> None:
    """DS_WRITE_B16 and DS_WRITE_B16_D16_HI."""
    address, source = instruction.operands
    [place], opcode = lds_places(t, instruction, address, 0), instruction.opcode
    data = require(parse(source), "v", 1)
    t.reads(data)

    def step(m: Any) -> None:
        offsets = executing(m, place(m))
        if offsets.size:
            m.shared.write(executing(m, m.blocks[:, None]),
                           executing(m, m.wave_of_block[:, None]), offsets,
                           [_half_stored(m, data.first, opcode)], half=True)
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


# The register after it, from the one before and the sum: the other half stays.
_RESULTS: dict[str, Callable[[Any, Any], Any]] = {
    "v_fma_mix_f32": lambda before, total: total.view(np.uint32),
    "v_fma_mixlo_f16": lambda before, total: before & np.uint32(0xFFFF0000) | float16_bits(total),
    "v_fma_mixhi_f16": lambda before, total: (before & np.uint32(0xFFFF)
                                              | float16_bits(total) << np.uint32(16)),
}
_HANDLERS: dict[str, Handler] = {
    **{f"global_load_{name}": _global_load_half
       for name in ("ushort", "short_d16", "short_d16_hi")},
    **{f"global_store_short{part}": _global_store_half for part in ("", "_d16_hi")},
    **{f"ds_read_u16{part}": _lds_read_half for part in ("", "_d16", "_d16_hi")},
    **{f"ds_write_b16{part}": _lds_write_half for part in ("", "_d16_hi")},
    **dict.fromkeys(_RESULTS, _mixed)}
