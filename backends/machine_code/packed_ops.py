"""Packed instructions of gfx90a: the same operation on both halves of pairs of registers.

Source: AMD, '"AMD Instinct MI200" Instruction Set Architecture', 12.11 (VOP3P) and 6.6, "Packed
32-bit instructions". *op_sel* names the half of each source for the low result, *op_sel_hi* that
for the high one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dscore.backends.machine_code import arithmetic
from dscore.backends.machine_code.disassembly import Instruction
from dscore.backends.machine_code.operands import (
    Operand,
    UnknownError,
    parse,
    reader,
    vector_writer,
)

PACKED: dict[str, Callable[..., Any]] = {
    "v_pk_fma_f32": arithmetic.fma,
    "v_pk_mul_f32": np.multiply,
    "v_pk_add_f32": np.add,
}
_MOVE = "v_pk_mov_b32"  # the low result is of the first source, the high one of the second


def translate(t: Any, instruction: Instruction) -> bool:
    """Add an instruction to the translator *t*; False where it is none of these."""
    if instruction.opcode not in PACKED and instruction.opcode != _MOVE:
        return False
    unknown = set(instruction.modifiers) - {"op_sel", "op_sel_hi"}
    if unknown:
        raise UnknownError(f"modifier {', '.join(sorted(unknown))} of {instruction.opcode}")
    target, *sources = (parse(text) for text in instruction.operands)
    low = selection_of(instruction, "op_sel", [0] * len(sources))
    high = selection_of(instruction, "op_sel_hi", [1] * len(sources))
    if instruction.opcode == _MOVE:
        parts, kind = [[_half(sources[n], low[n])] for n in (0, 1)], "u"
    else:
        parts, kind = [[_half(*pair) for pair in zip(sources, which, strict=True)]
                       for which in (low, high)], "f"
    compute = PACKED.get(instruction.opcode, np.copy)
    reads = [[reader(one, kind, True) for one in some] for some in parts]
    writes = [vector_writer(_half(target, n), kind) for n in (0, 1)]
    t.reads(*parts[0], *parts[1])
    t.overwrites(target)

    def step(m: Any) -> None:
        results = [compute(*[read(m) for read in some]) for some in reads]
        for write, result in zip(writes, results, strict=True):
            write(m, result)
    t.add(step)
    t.wrote(target)
    return True


def selection_of(instruction: Instruction, name: str, default: list[int]) -> list[int]:
    """The halves that a modifier names, one for each source."""
    text = instruction.modifiers.get(name)
    return default if text is None else [int(part) for part in text.strip("[]").split(",")]


def _half(operand: Operand, which: int) -> Operand:
    """The low or the high register of a pair; of a constant only the low half is told."""
    if operand.negative or operand.absolute:
        raise UnknownError("a sign modifier of a packed operand")
    if operand.kind == "c" and which == 0:
        return operand
    if operand.count != 2:
        raise UnknownError("a packed operand that is no pair of registers")
    return Operand(operand.kind, operand.first + which, 1)
