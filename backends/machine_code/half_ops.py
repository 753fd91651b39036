"""Multiply-adds of float16 numbers, and shifts of integers, in halves of registers.

Sources: Vega ISA, 12.10 (VOP3P); LLVM's "User Guide for AMDGPU Backend" for the operands of
V_FMA_MIX.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dscore.backends.machine_code import arithmetic
from dscore.backends.machine_code.disassembly import Instruction
from dscore.backends.machine_code.lane_ops import Handler, require
from dscore.backends.machine_code.operands import (
    Operand,
    Read,
    UnknownError,
    float16_bits,
    parse,
    reader,
)
from dscore.backends.machine_code.packed_ops import selection_of


def translate(t: Any, instruction: Instruction) -> bool:
    """Add an instruction to the translator *t*; False where it is none of these."""
    handler = _HANDLERS.get(instruction.opcode)
    if handler is not None:
        handler(t, instruction)
    return handler is not None


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


def _shifted(t: Any, instruction: Instruction) -> None:
    """V_PK_LSHLREV_B16 and the like: both halves of the second source by those of the first.

    *op_sel* names the half of each source for the low result, *op_sel_hi* that for the high one.
    """
    unknown = set(instruction.modifiers) - {"op_sel", "op_sel_hi"}
    if unknown:
        raise UnknownError(f"modifier {', '.join(sorted(unknown))} of {instruction.opcode}")
    target, *sources = (parse(text) for text in instruction.operands)
    require(target, "v", 1)
    chosen = (selection_of(instruction, "op_sel", [0] * len(sources)),
              selection_of(instruction, "op_sel_hi", [1] * len(sources)))
    reads = [[_half_reader(*one) for one in zip(sources, which, strict=True)] for which in chosen]
    t.reads(*sources)
    t.overwrites(target)
    register, shift = target.first, _SHIFTS[instruction.opcode]

    def step(m: Any) -> None:
        low, high = (shift(value(m), by(m) & np.uint32(15)) & np.uint32(0xFFFF)
                     for by, value in reads)
        np.copyto(m.v[register], low | high << np.uint32(16), where=m.lanes)
    t.add(step)
    t.wrote(target)


def _half_reader(operand: Operand, high: int) -> Read:
    """Function that reads a half of a source, as an integer without a sign."""
    if operand.kind == "c" and high:
        raise UnknownError("the high half of a constant")
    whole, place = reader(operand, "u", True), np.uint32(16 * high)
    return lambda m: whole(m) >> place & np.uint32(0xFFFF)


def _arithmetic_shift(value: Any, by: Any) -> Any:
    """To the right, with the sign of 16 bits."""
    signed = np.asarray(value, np.uint32).astype(np.uint16).view(np.int16).astype(np.int32)
    return (signed >> np.asarray(by, np.int32)).astype(np.uint32)


# The register after it, from the one before and the sum: the other half stays.
_RESULTS: dict[str, Callable[[Any, Any], Any]] = {
    "v_fma_mix_f32": lambda before, total: total.view(np.uint32),
    "v_fma_mixlo_f16": lambda before, total: before & np.uint32(0xFFFF0000) | float16_bits(total),
    "v_fma_mixhi_f16": lambda before, total: (before & np.uint32(0xFFFF)
                                              | float16_bits(total) << np.uint32(16)),
}
_SHIFTS: dict[str, Callable[[Any, Any], Any]] = {
    "v_pk_lshlrev_b16": np.left_shift,
    "v_pk_lshrrev_b16": np.right_shift,
    "v_pk_ashrrev_i16": _arithmetic_shift,
}
_HANDLERS: dict[str, Handler] = {**dict.fromkeys(_RESULTS, _mixed),
                                 **dict.fromkeys(_SHIFTS, _shifted)}
