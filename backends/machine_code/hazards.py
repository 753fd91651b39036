"""Hazards: instructions that follow one another too closely for the hardware (Vega ISA, 4.5).

The hardware does not wait by itself in these cases; an s_nop must stand between. An instruction
counts as one wait state, s_nop N as N + 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dscore.backends.machine_code.disassembly import Instruction
from dscore.backends.machine_code.operands import Operand, UnknownError, parse
from dscore.backends.machine_code.vector_ops import VECTOR
from dscore.backends.machine_code.waves import VCC

_MEMORY_AFTER_SCALAR = 5  # wait states: a vector instruction writes s, vector memory reads it
_FMAS_AFTER_VCC = 4  # a vector instruction writes VCC, V_DIV_FMAS reads it
_LANE_AFTER_SCALAR = 4  # a vector instruction writes s, which then names a lane
_WRITE_AFTER_STORE = 1  # a store of more than 8 bytes, its data are overwritten
_NEVER = 1 << 20
# Vector instructions that write a scalar register, or one lane.
_OF_LANES = ("v_readfirstlane_b32", "v_readlane_b32", "v_writelane_b32")


def hazards(code: Sequence[Instruction]) -> list[str]:
    """Hazards of a kernel, in the order of its instructions; a right compiler leaves none.

    They are looked for in the order of addresses. A branch that is taken costs more wait states
    than any of them needs.
    """
    found, watch = [], _Watch()
    for instruction in code:
        found += watch.step(instruction)
    return found


class _Watch:
    """Wait states since what may be too close."""

    def __init__(self) -> None:
        self._scalars: dict[int, int] = {}  # written by a vector instruction
        self._stored: dict[int, int] = {}  # data of a wide store

    def step(self, instruction: Instruction) -> list[str]:
        """Hazards of the next instruction."""
        opcode = instruction.opcode
        if opcode in ("s_branch", "s_endpgm"):
            self.__init__()  # type: ignore[misc]
            return []
        written, read = _registers(instruction)
        vector = opcode in VECTOR or opcode in _OF_LANES
        found = [text for watched, operands, needed in self._watched(opcode, vector, written, read)
                 for text in self._close(instruction, watched, operands, needed)]
        states = int(instruction.operands[0], 0) + 1 if opcode == "s_nop" else 1
        for watched in (self._scalars, self._stored):
            for register in watched:
                watched[register] += states
        for one in written:
            for register in one.registers if one.kind == "s" else ():
                self._scalars[register] = 0 if vector else _NEVER
        if opcode in ("global_store_dwordx3", "global_store_dwordx4"):
            self._stored = dict.fromkeys(read[1].registers, 0)
        return found

    def _watched(self, opcode: str, vector: bool, written: list[Operand], read: list[Operand]
                 ) -> Iterator[tuple[dict[int, int], list[Operand], int]]:
        """What was written or stored before, the operands that may be too close, wait states."""
        if opcode.startswith("global_"):
            yield self._scalars, _of("s", read), _MEMORY_AFTER_SCALAR
        if opcode in _OF_LANES[1:]:
            yield self._scalars, _of("s", read[-1:]), _LANE_AFTER_SCALAR
        if opcode.startswith("v_div_fmas"):
            yield self._scalars, [Operand("s", VCC, 2)], _FMAS_AFTER_VCC
        if vector:
            yield self._stored, _of("v", written), _WRITE_AFTER_STORE

    @staticmethod
    def _close(instruction: Instruction, watched: dict[int, int], operands: list[Operand],
               needed: int) -> list[str]:
        for one in operands:
            for register in one.registers:
                if watched.get(register, _NEVER) < needed:
                    return [f"{instruction} needs {needed} wait states after {one.kind}{register} "
                            f"is written or stored, and has {watched[register]}"]
        return []


def _of(kind: str, operands: list[Operand]) -> list[Operand]:
    return [one for one in operands if one.kind == kind]


def _registers(instruction: Instruction) -> tuple[list[Operand], list[Operand]]:
    """Operands that an instruction writes, and those that it reads."""
    operands = []
    for text in instruction.operands:
        try:
            operands.append(parse(text))
        except UnknownError:
            operands.append(Operand("c", 0, 0))  # off, or what a wait is for
    opcode = instruction.opcode
    if opcode in VECTOR:
        count = len(VECTOR[opcode].destinations)
    elif opcode.startswith("global_atomic"):
        count = int("glc" in instruction.modifiers)
    else:
        count = int(not opcode.startswith(("global_store", "ds_write", "s_cmp", "s_bitcmp")))
    return operands[:count], operands[count:]
