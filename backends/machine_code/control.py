"""Control: branches, barriers, waits, and how a basic block ends (Vega ISA, 4 and 12.5)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dscore.backends.machine_code.disassembly import Instruction
from dscore.backends.machine_code.operands import UnknownError
from dscore.backends.machine_code.waves import VCC, Bools, Fault, Waves

Step = Callable[[Any], None]


class Leave(NamedTuple):
    """End of a basic block: *taken* tells which wavefronts branch; None where all or none do."""

    kind: str  # branch, next, barrier, end
    taken: Callable[[Waves], Bools] | None = None


FALL_THROUGH = Leave("next")


def read_scc(m: Waves) -> Bools:
    """SCC; Fault where it was never written."""
    if not (m.scc_written | ~np.asarray(m.group)).all():
        raise Fault("reads SCC, which was never written")
    return m.scc


def write_scc(m: Waves, value: Any) -> None:
    """Write SCC of the wavefronts that execute."""
    np.copyto(m.scc, value, where=m.group)
    m.scc_written |= m.group


def _vcc_zero(m: Waves) -> Bools:
    m.require_scalars([VCC, VCC + 1])
    none: Bools = m.s64[:, VCC // 2] == 0
    return none


BRANCHES: dict[str, Leave] = {
    "s_branch": Leave("branch"),
    "s_cbranch_scc0": Leave("branch", lambda m: ~read_scc(m)),
    "s_cbranch_scc1": Leave("branch", lambda m: read_scc(m).copy()),
    "s_cbranch_vccz": Leave("branch", _vcc_zero),
    "s_cbranch_vccnz": Leave("branch", lambda m: ~_vcc_zero(m)),
    "s_cbranch_execz": Leave("branch", Waves.exec_zero),
    "s_cbranch_execnz": Leave("branch", lambda m: ~m.exec_zero()),
}
LEAVES: dict[str, Leave] = {**BRANCHES, "s_barrier": Leave("barrier"), "s_endpgm": Leave("end")}


def _wait(instruction: Instruction) -> Step:
    """Waits until at most so many operations are left (Vega ISA, S_WAITCNT).

    Loads of constants may come in any order, so that only a wait for none is one for them. It
    counts together with LDS, whose operations come in order among themselves: of *n* that are left,
    all may be LDS operations.
    """
    text = instruction.operands[0]
    left = {name: int(count) for name, count in re.findall(r"(\w+)\((\d+)\)", text)}
    if not left or re.sub(r"\w+\(\d+\)|[\s&]", "", text) or set(left) - {
            "vmcnt", "lgkmcnt", "expcnt"}:
        raise UnknownError(f"s_waitcnt {text}")
    vector, scalar = left.get("vmcnt"), left.get("lgkmcnt")

    def step(m: Waves) -> None:
        if vector is not None:
            m.vector_memory.wait(m.group, vector)
        if scalar is not None:
            m.lds.wait(m.group, scalar)
            if scalar == 0:
                m.scalar_memory.wait(m.group, 0)
    return step


def _nothing(instruction: Instruction) -> Step:
    return lambda m: None


def _sleep(instruction: Instruction) -> Step:
    """S_SLEEP: what wavefronts do that poll memory; others go on first."""
    def step(m: Any) -> None:
        m.asleep |= m.group
    return step


# The interpreter has no caches to be written back or invalidated.
STEPS: dict[str, Callable[[Instruction], Step]] = {
    "s_waitcnt": _wait, "s_nop": _nothing, "s_sleep": _sleep, "buffer_wbinvl1_vol": _nothing}
