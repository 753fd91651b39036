"""Products of matrices of signed bytes on gfx90a's matrix units.

Source: AMD, '"AMD Instinct MI200" Instruction Set Architecture', 7 (matrix arithmetic) and 12.11,
V_MFMA_I32_16X16X16I8. All lanes of a wavefront take part, whatever EXEC is. Lane 16 q + r holds
bytes 4 q to 4 q + 3 of row r of the first matrix, or of column r of the second, and rows 4 q to
4 q + 3 of column r of the sums, which wrap.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.backends.machine_code.disassembly import Instruction
from dscore.backends.machine_code.lane_ops import offset_of, require
from dscore.backends.machine_code.operands import UnknownError, parse
from dscore.backends.machine_code.waves import ALL, Array, Fault, Words

_OPCODE = "v_mfma_i32_16x16x16i8"
_SIDE = 16  # rows, columns and summed bytes of a product
_LANE = np.arange(64)


def translate(t: Any, instruction: Instruction) -> bool:
    """Add an instruction to the translator *t*; False where it is none of these."""
    if instruction.opcode != _OPCODE:
        return False
    offset_of(instruction, set())
    target, a, b, sums = (parse(text) for text in instruction.operands)
    require(target, "v", 4)
    registers = [require(one, "v", 1).first for one in (a, b)]
    if sums.kind != "c":
        require(sums, "v", 4)
    elif sums.bits:
        raise UnknownError("a constant other than 0 as the sums of a product of matrices")
    t.reads(a, b, sums)
    t.overwrites(target)

    def step(m: Any) -> None:
        if not m.all_lanes:
            _require_all(m)
        before = [m.v[one] for one in sums.registers] or [np.uint32(0)] * 4
        products = product_of_bytes(*(m.v[one] for one in registers))
        for at in range(4):
            row = before[at] + products[:, _LANE // _SIDE * 4 + at, _LANE % _SIDE]
            np.copyto(m.v[target.first + at], row, where=m.lanes)
    t.add(step)
    t.wrote(target)
    return True


def _require_all(m: Any) -> None:
    """Fault where some lanes are off: nothing is known of what these hold."""
    live = m.live[m.live != 0]
    if (live != ALL).any():
        raise Fault("multiplies matrices while some lanes do not execute")


def product_of_bytes(a: Words, b: Words) -> Array:
    """Products, over (wavefronts, rows, columns), of the lanes' words of both matrices."""
    def matrix(words: Words) -> Array:  # (wavefronts, row or column, summed byte)
        parts = np.ascontiguousarray(words).view(np.int8).reshape(-1, 4, _SIDE, 4)
        return parts.transpose(0, 2, 1, 3).reshape(-1, _SIDE, _SIDE).astype(np.int32)

    sums: Array = np.einsum("wrk,wck->wrc", matrix(a), matrix(b)).view(np.uint32)
    return sums
