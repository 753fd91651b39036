"""Translation of instructions: each once into a function of the wavefronts.

The functions of a basic block run one after the other. What an instruction must find (registers
written, loads delivered) is checked once in a basic block where nothing in between can change it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dscore.backends.machine_code import (
    control,
    half_ops,
    matrix_ops,
    memory_ops,
    packed_ops,
    small_accesses,
)
from dscore.backends.machine_code.control import Step
from dscore.backends.machine_code.disassembly import Instruction
from dscore.backends.machine_code.operands import (
    Operand,
    UnknownError,
    parse,
    reader,
    scalar_writer,
    vector_writer,
)
from dscore.backends.machine_code.scalar_ops import SAVE_EXEC, SCALAR, ScalarOp
from dscore.backends.machine_code.unwritten import lanes_selected, lanes_written, noting
from dscore.backends.machine_code.vector_ops import VECTOR
from dscore.backends.machine_code.waves import EXEC, Waves

_ROOMS = (memory_ops, small_accesses, packed_ops, half_ops, matrix_ops)


@dataclass
class BasicBlock:
    """Steps that run one after the other, each with its instruction, and how they end."""

    steps: list[Step] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)  # of the steps
    leave: control.Leave = control.FALL_THROUGH
    target: int = -1  # the basic block that a branch goes to


class Translator:
    """State of the translation within one basic block: what is already known of registers."""

    def __init__(self) -> None:
        self.block = BasicBlock()
        self._readable: set[int] = set()  # vector registers: written in all executing lanes
        self._delivered: set[int] = set()
        self._scalars: set[int] = set()  # scalar registers: written and delivered
        self._instruction: Instruction

    def translate(self, instruction: Instruction) -> None:
        """Add an instruction; UnknownError where it is not known."""
        self._instruction = instruction
        opcode = instruction.opcode
        if opcode in VECTOR:
            self._vector(instruction)
        elif opcode in SCALAR:
            self._scalar(instruction, SCALAR[opcode])
        elif opcode in SAVE_EXEC:
            self._save_exec(instruction)
        elif opcode in control.STEPS:
            self._require_modifiers({})
            self.add(control.STEPS[opcode](instruction))
        elif not any(room.translate(self, instruction) for room in _ROOMS):
            raise UnknownError(f"opcode {opcode}")

    def add(self, step: Step) -> None:
        """Add a step of the instruction that is being translated."""
        self.block.steps.append(step)
        self.block.instructions.append(self._instruction)

    def _require_modifiers(self, known: Any) -> None:
        unknown = set(self._instruction.modifiers) - set(known)
        if unknown:
            raise UnknownError(f"modifier {', '.join(sorted(unknown))} of "
                               f"{self._instruction.opcode}")

    def reads(self, *operands: Operand) -> None:
        """Have it checked that these operands can be read."""
        vectors = sorted({r for one in operands if one.kind == "v" for r in one.registers}
                         - self._readable)
        scalars = sorted({r for one in operands if one.kind == "s" for r in one.registers}
                         - self._scalars)
        if vectors:
            self.add(lambda m: m.require_readable(vectors))
            self._readable.update(vectors)
            self._delivered.update(vectors)
        if scalars:
            self.add(lambda m: m.require_scalars(scalars))
            self._scalars.update(scalars)

    def overwrites(self, *operands: Operand) -> None:
        """Have it checked that no load is still to deliver these operands."""
        vectors = sorted({r for one in operands if one.kind == "v" for r in one.registers}
                         - self._delivered)
        scalars = sorted({r for one in operands if one.kind == "s" for r in one.registers}
                         - self._scalars)
        if vectors:
            self.add(lambda m: m.require_delivered(vectors))
            self._delivered.update(vectors)
        if scalars:
            self.add(lambda m: m.require_scalars_delivered(scalars))

    def wrote(self, *operands: Operand, loading: bool = False) -> None:
        """Take note of what an instruction has written; *loading*: what is still to come."""
        vectors = [r for one in operands if one.kind == "v" for r in one.registers]
        scalars = [r for one in operands if one.kind == "s" for r in one.registers]
        unknown = sorted(set(vectors) - self._readable)
        if unknown:
            self.add(lambda m: _note_vectors(m, unknown))
        missing = sorted(set(scalars) - self._scalars)
        if missing:
            self.add(lambda m: _note_scalars(m, missing))
        if loading:
            self._readable.difference_update(vectors)
            self._delivered.difference_update(vectors)
            self._scalars.difference_update(scalars)
        else:
            self._readable.update(vectors)
            self._scalars.update(scalars)
        if EXEC in scalars or EXEC + 1 in scalars:
            self._exec_changed()

    def moved(self, destination: Operand) -> None:
        """Take note that a step has moved to a register what was written, or was not."""
        known = self._readable if destination.kind == "v" else self._scalars
        known.difference_update(destination.registers)
        if EXEC in destination.registers or EXEC + 1 in destination.registers:
            self._exec_changed()

    def _exec_changed(self, narrower: bool = False) -> None:
        if not narrower:
            self._readable.clear()
        self.add(Waves.exec_changed)

    def _vector(self, instruction: Instruction) -> None:
        op, modifiers = VECTOR[instruction.opcode], instruction.modifiers
        sdwa = "dst_sel" in modifiers or "src0_sel" in modifiers
        self._require_modifiers({"dst_sel", "dst_unused", "src0_sel", "src1_sel"} if sdwa else ())
        part = modifiers.get("dst_sel", "DWORD"), modifiers.get("dst_unused", "UNUSED_PAD")
        names = [*instruction.operands]
        if instruction.opcode == "v_div_fmas_f32":
            names.append("vcc")
        operands = [parse(name) for name in names]
        count = len(op.destinations)
        destinations, sources = operands[:count], operands[count:]
        sources += destinations if op.accumulates else []
        if len(sources) != len(op.sources):
            raise UnknownError(f"{len(names)} operands of {instruction.opcode}")
        reads = [reader(one, kind, True, modifiers.get(f"src{n}_sel", "DWORD"))
                 for n, (one, kind) in enumerate(zip(sources, op.sources, strict=True))]
        writes = [vector_writer(one, kind, *part)
                  for one, kind in zip(destinations, op.destinations, strict=True)]
        step = _step(op.compute, reads, writes)
        if instruction.opcode in ("v_mad_u64_u32", "v_mad_i64_i32"):
            self._low_half(step, sources, destinations, instruction.opcode == "v_mad_u64_u32")
            return
        if instruction.opcode == "v_mov_b32" and not sdwa and sources[0].kind in "vs":
            self._move(step, sources[0], destinations[0])
            return
        if instruction.opcode == "v_cndmask_b32" and not sdwa:
            self._select(step, sources, destinations[0])
            return
        self.reads(*sources, *(destinations if part[1] == "UNUSED_PRESERVE" else ()))
        self.overwrites(*destinations)
        self.add(step)
        self.wrote(*destinations)

    def _move(self, step: Step, source: Operand, destination: Operand) -> None:
        """V_MOV_B32 between registers, which need not have been written: compilers move for all
        lanes what only some go on with."""
        self.overwrites(source, destination)
        self.add(noting(step, lanes_written(source), destination))
        self._delivered.add(destination.first)
        if source.first in (self._readable if source.kind == "v" else self._scalars):
            self._readable.add(destination.first)
        else:
            self.moved(destination)

    def _select(self, step: Step, sources: list[Operand], destination: Operand) -> None:
        """V_CNDMASK_B32: the operand that a lane does not take need not have been written."""
        self.reads(sources[2])
        self.overwrites(*sources[:2], destination)
        self.add(noting(step, lanes_selected(sources), destination))
        self._delivered.add(destination.first)
        self.moved(destination)

    def _low_half(self, step: Step, sources: list[Operand], destinations: list[Operand],
                  carries: bool) -> None:
        """V_MAD_U64_U32 or V_MAD_I64_I32 as a multiply-add of 32 bits, for which compilers take
        them as well.

        Where the upper half of the addend was never written, neither is that of the result, nor
        the carry. Without *carries* nobody may read the carry.
        """
        *factors, addend = sources
        halves = [Operand(addend.kind, addend.first + n, 1) for n in range(addend.count)]
        result, carry = destinations
        self.reads(*factors, *halves[:1])
        self.overwrites(*halves[1:], *destinations)
        of_upper = lanes_written(halves[1] if halves else addend)
        upper, mask = result.first + 1, slice(carry.first, carry.first + 2)

        def whole(m: Waves) -> None:
            lanes = of_upper(m)
            step(m)
            m.v_written[result.first] |= m.live
            m.v_written[upper] = m.v_written[upper] & ~m.live | lanes
            np.copyto(m.s_written[mask], (lanes == m.live) & carries, where=m.group)
        self.add(whole)
        self._readable.add(result.first)
        self._readable.discard(upper)
        self._scalars.difference_update(carry.registers)

    def _scalar(self, instruction: Instruction, op: ScalarOp) -> None:
        self._require_modifiers(())
        operands = [parse(name) for name in instruction.operands]
        destinations = operands[:1] if op.destination else []
        sources = operands[len(destinations):]
        if op.short:
            sources[-1] = _short(sources[-1], op.short)
        sources = (destinations if op.accumulates else []) + sources
        kinds = op.sources.replace("c", "")
        if len(sources) != len(kinds):
            raise UnknownError(f"{len(operands)} operands of {instruction.opcode}")
        reads = [reader(one, kind, False) for one, kind in zip(sources, kinds, strict=True)]
        if "c" in op.sources:
            reads.append(control.read_scc)
        self.reads(*sources)
        self.overwrites(*destinations)
        if op.destination:
            write = scalar_writer(destinations[0], op.destination)
            writes = [write] if op.keeps_scc else [write, control.write_scc]
        else:
            writes = [control.write_scc]
        self.add(_step(op.compute, reads, writes))
        self.wrote(*destinations)

    def _save_exec(self, instruction: Instruction) -> None:
        self._require_modifiers(())
        saved, source = (parse(name) for name in instruction.operands)
        compute, mask = SAVE_EXEC[instruction.opcode], parse("exec")
        read, read_exec = reader(source, "d", False), reader(mask, "d", False)
        save, write = scalar_writer(saved, "d"), scalar_writer(mask, "d")
        self.reads(source)
        self.overwrites(saved)

        def step(m: Waves) -> None:
            before = read_exec(m).copy()
            after = compute(read(m), before)
            save(m, before)
            write(m, after)
            control.write_scc(m, after != 0)
        self.add(step)
        self.wrote(saved)
        self._exec_changed(narrower=instruction.opcode == "s_and_saveexec_b64")


def _step(compute: Callable[..., Any], reads: Sequence[Any], writes: Sequence[Any]) -> Step:
    """Step that reads, computes and writes."""
    if len(writes) > 1:
        def several(m: Waves) -> None:
            for write, result in zip(writes, compute(*[read(m) for read in reads]), strict=True):
                write(m, result)
        return several
    [write] = writes
    if len(reads) == 1:
        [only] = reads
        return lambda m: write(m, compute(only(m)))
    if len(reads) == 2:
        first, second = reads
        return lambda m: write(m, compute(first(m), second(m)))
    return lambda m: write(m, compute(*[read(m) for read in reads]))


def _short(operand: Operand, kind: str) -> Operand:
    """Constant of 16 bits, extended to 32."""
    low = operand.bits & 0xFFFF
    return Operand("c", 0, 0, (low ^ 0x8000) - 0x8000 if kind == "i" else low)


def _note_vectors(m: Waves, registers: list[int]) -> None:
    m.v_written[registers] |= m.live


def _note_scalars(m: Waves, registers: list[int]) -> None:
    m.s_written[registers] |= m.group
