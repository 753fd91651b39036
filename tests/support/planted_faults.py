"""Faults planted in the machine code of gfx906 kernels: one instruction changed in each.

`faults_of` makes the list from the code that the compiler has made, some of each kind.
"""

import re
from dataclasses import dataclass, replace

import numpy as np

from dscore.backends.machine_code import control
from dscore.backends.machine_code.disassembly import Instruction
from dscore.backends.machine_code.memory_ops import _HANDLERS
from dscore.backends.machine_code.scalar_ops import SAVE_EXEC, SCALAR
from dscore.backends.machine_code.vector_ops import VECTOR


@dataclass(frozen=True)
class Fault:
    """A kernel's code with one instruction changed."""

    kind: str
    before: Instruction
    after: Instruction
    code: tuple[Instruction, ...]

    def __str__(self):
        return f"{self.kind}: {self.before} -> {self.after.text}"


def changed(one, opcode=None, operands=None, modifiers=None):
    """An instruction with other parts; its length stays."""
    opcode = opcode or one.opcode
    operands = one.operands if operands is None else tuple(operands)
    modifiers = one.modifiers if modifiers is None else modifiers
    words = " ".join(f"{name}:{value}" if value else name for name, value in modifiers.items())
    text = f"{opcode} {', '.join(operands)} {words}".strip()
    return replace(one, opcode=opcode, operands=operands, modifiers=modifiers, text=text)


def nothing(one):
    return changed(one, "s_nop", ["0"], {})


def left_out(*known):
    """In place of an instruction of one of these tables, one that does nothing."""
    return lambda one, code: nothing(one) if any(one.opcode in table for table in known) else None


def writes_exec(one):
    return one.opcode not in SAVE_EXEC and one.operands[:1] == ("exec",)


def exec_not_restored(one, code):
    return nothing(one) if writes_exec(one) else None


def exec_not_narrowed(one, code):
    """EXEC is saved, and stays as it is."""
    if one.opcode != "s_and_saveexec_b64":
        return None
    return changed(one, "s_mov_b64", [one.operands[0], "exec"])


def wait_weaker(one, code):
    """One operation more may be outstanding."""
    if one.opcode != "s_waitcnt":
        return None
    text = re.sub(r"\((\d+)\)", lambda count: f"({int(count[1]) + 1})", one.operands[0])
    return changed(one, operands=[text])


def further_on(one, code):
    """An access one element further on."""
    if one.opcode not in _HANDLERS or one.opcode.startswith("v_"):
        return None
    if one.opcode.startswith("s_load"):
        if not one.operands[2].startswith("0x"):
            return None
        return changed(one, operands=[*one.operands[:2], hex(int(one.operands[2], 0) + 4)])
    name, step = ("offset0", 1) if "2" in one.opcode.split("_")[1] else ("offset", 4)
    offset = int(one.modifiers.get(name, "0")) + step
    return changed(one, modifiers={**one.modifiers, name: str(offset)})


def another_register(one, code):
    """The register after the one that is read first."""
    if one.opcode not in VECTOR or "m" in VECTOR[one.opcode].destinations:
        return None
    for at, text in enumerate(one.operands[1:], 1):
        if re.fullmatch(r"v\d+", text):
            operands = [*one.operands]
            operands[at] = f"v{int(text[1:]) + 1}"
            return changed(one, operands=operands)
    return None


def another_constant(one, code):
    """A constant of integers that is greater by 1."""
    integers = one.opcode in SCALAR or (one.opcode in VECTOR and "f" not in
                                        VECTOR[one.opcode].sources)
    for at, text in enumerate(one.operands[1:] if integers else (), 1):
        if re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", text):
            operands = [*one.operands]
            operands[at] = hex(int(text, 0) + 1 & 0xFFFFFFFF)
            return changed(one, operands=operands)
    return None


def branch_not_taken(one, code):
    return nothing(one) if one.opcode in control.BRANCHES else None


_OPPOSITES = {"s_cbranch_scc0": "s_cbranch_scc1", "s_cbranch_vccz": "s_cbranch_vccnz",
              "s_cbranch_execz": "s_cbranch_execnz"}
_OPPOSITES |= {opposite: name for name, opposite in _OPPOSITES.items()}


def branch_inverted(one, code):
    return changed(one, _OPPOSITES[one.opcode]) if one.opcode in _OPPOSITES else None


def branch_elsewhere(one, code):
    """A branch past the instruction that it is to go to."""
    if one.opcode not in control.BRANCHES:
        return None
    [first] = [other for other in code if other.address == one.target]
    jump = (one.target + 4 * first.dwords - one.address - 4) // 4
    return changed(one, operands=[str(jump & 0xFFFF)])


_OTHERS = {"v_add_f32": "v_sub_f32", "v_sub_f32": "v_add_f32", "v_mul_f32": "v_add_f32",
           "v_max_f32": "v_min_f32", "v_fmac_f32": "v_mul_f32", "v_add_u32": "v_sub_u32",
           "v_sub_u32": "v_add_u32", "v_lshlrev_b32": "v_lshrrev_b32",
           "v_lshrrev_b32": "v_lshlrev_b32", "v_min_i32": "v_max_i32", "v_max_i32": "v_min_i32",
           "v_and_b32": "v_or_b32", "v_or_b32": "v_xor_b32", "v_cmp_gt_u32": "v_cmp_ge_u32",
           "v_cmp_lt_u32": "v_cmp_le_u32", "v_cmp_gt_i32": "v_cmp_ge_i32",
           "v_cmp_lt_i32": "v_cmp_le_i32", "v_cmp_eq_u32": "v_cmp_ne_u32",
           "s_add_i32": "s_sub_i32", "s_add_u32": "s_sub_u32", "s_and_b64": "s_or_b64",
           "s_or_b64": "s_and_b64", "s_lshl_b32": "s_lshr_b32", "s_cmp_lt_i32": "s_cmp_gt_i32",
           "s_cmp_lg_u32": "s_cmp_eq_u32", "s_cmp_eq_u32": "s_cmp_lg_u32"}


def another_operation(one, code):
    other = _OTHERS.get(one.opcode)
    return changed(one, other) if other else None


def of_memory(*beginnings):
    return {opcode for opcode in _HANDLERS if opcode.startswith(beginnings)}


KINDS = {
    "vector instruction left out": left_out(VECTOR, {"v_readfirstlane_b32"}),
    "scalar instruction left out": left_out(SCALAR, SAVE_EXEC),
    "load left out": left_out(of_memory("global_load", "s_load")),
    "store left out": left_out(of_memory("global_store")),
    "LDS instruction left out": left_out(of_memory("ds_")),
    "wait left out": left_out({"s_waitcnt"}),
    "wait for one operation less": wait_weaker,
    "barrier left out": left_out({"s_barrier"}),
    "access one element further on": further_on,
    "EXEC not restored": exec_not_restored,
    "EXEC not narrowed": exec_not_narrowed,
    "another register": another_register,
    "another constant": another_constant,
    "another operation": another_operation,
    "branch not taken": branch_not_taken,
    "branch inverted": branch_inverted,
    "branch elsewhere": branch_elsewhere,
}
OF_TAKEN_BRANCHES = ("branch not taken", "branch elsewhere")


def faults_of(code, path, each, seed=0):
    """At most *each* faults of each kind in *code*, at instructions that *path* comes to.

    A branch is changed where it is taken.
    """
    random, faults = np.random.default_rng(seed), []
    for kind, change in KINDS.items():
        reached = path.taken if kind in OF_TAKEN_BRANCHES else path.entered
        places = [(at, after) for at, one in enumerate(code) if one.address in reached
                  for after in [change(one, code)] if after is not None]
        for at, after in [places[n] for n in sorted(random.permutation(len(places))[:each])]:
            faults.append(Fault(kind, code[at], after, (*code[:at], after, *code[at + 1:])))
    return faults
