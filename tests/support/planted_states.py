"""What an instruction does to the state of wavefronts, and whether a changed one does the same.

A planted fault that nothing catches changes nothing that hardware would compute where one of the
reasons here holds, each of which is tried out on the kernel.
"""

import numpy as np
import pytest

from dscore.backends.machine_code import launch
from dscore.backends.machine_code.basic_blocks import _starts, translate
from dscore.backends.machine_code.waves import EXEC, POISON
from dscore.core.errors import LaunchError

ARRAYS = ("v", "s", "scc")
NOTES = ("v_written", "s_written", "scc_written")
SCOREBOARDS = ("vector_memory", "lds", "scalar_memory")


def entered_by(subject, code):
    """Addresses of the instructions that a kernel comes to."""
    starts, numbers, whole = _starts(code), set(), launch.Batch._execute

    def noting(batch, block, following, end):
        numbers.add(following - 1)
        whole(batch, block, following, end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch.Batch, "_execute", noting)
        subject.results(translate(code, "a kernel"))
    number, addresses = -1, set()
    for one in code:
        number = starts.get(one.address, number)
        if number in numbers:
            addresses.add(one.address)
    return addresses


def harmless(subject, fault):
    """Why a fault changes nothing, tried out; empty where no reason holds."""
    if _skips_what_no_lane_does(subject, fault):
        return "a branch that only saves time: no lane executes what it skips"
    differences = _differences(subject, fault)
    if differences == 0:
        return "computes the same here"
    if fault.before.opcode == "s_waitcnt":
        return "a later wait covers what it waits for"
    if all(_differences(subject, fault, filling) is not None for filling in (POISON, ~POISON)):
        return "its value is not used where it differs"
    return ""


def _skips_what_no_lane_does(subject, fault):
    one = fault.before
    if one.opcode != "s_cbranch_execz" or fault.after.opcode != "s_nop":
        return False
    skipped = [other.opcode for other in subject.code if one.address < other.address < one.target]
    return bool(skipped) and all(
        opcode.startswith(("v_", "ds_", "global_")) or opcode in ("s_waitcnt", "s_nop")
        for opcode in skipped)


def _steps(blocks, address):
    """The basic block that has the instruction at *address*, and its places in there."""
    for block in blocks:
        places = [at for at, one in enumerate(block.instructions) if one.address == address]
        if places:
            return block, places
    return None, []


def _differences(subject, fault, filling=None):
    """How many values the changed instruction leaves otherwise than the original one.

    With *filling*, all that differ are filled with it, and None is returned where the kernel then
    does not give the right results.
    """
    blocks, address = translate(subject.code, "a kernel"), fault.before.address
    block, places = _steps(blocks, address)
    other, others = _steps(translate(fault.code, "a faulty kernel"), address)
    if block is None or other is None:
        return None
    originals, instead = [block.steps[at] for at in places], [other.steps[at] for at in others]
    count = 0

    def both(m):
        nonlocal count
        before = _state(m)
        _execute(m, originals)
        right = _state(m)
        _restore(m, before)
        _execute(m, instead)
        wrong = _state(m)
        _restore(m, right)
        count += sum(int((right[name] != wrong[name]).sum()) for name in right)
        if filling is not None:
            _fill(m, right, wrong, filling)
    block.steps[places[0]] = both
    for at in places[1:]:
        block.steps[at] = lambda m: None
    try:
        results = subject.results(blocks)
    except LaunchError:
        return None
    right = all(np.array_equal(*pair) for pair in zip(results, subject.right, strict=True))
    return count if right else None


def _execute(m, steps):
    for step in steps:
        step(m)


def _state(m):
    state = {name: getattr(m, name).copy() for name in (*ARRAYS, *NOTES)}
    for name in SCOREBOARDS:
        for part in ("issued", "done", "due"):
            state[f"{name}.{part}"] = getattr(getattr(m, name), part).copy()
    for name in ("words", "written", "writes", "reads"):
        state[f"shared.{name}"] = getattr(m.shared, name).copy()
    return state


def _restore(m, state):
    for name, values in state.items():
        owner, _, part = name.rpartition(".")
        np.copyto(getattr(getattr(m, owner) if owner else m, part), values)
    m.exec_changed()


def _fill(m, right, wrong, filling):
    """Fill registers where two states differ; LaunchError where what differs cannot be filled."""
    differing = [name for name in right if (right[name] != wrong[name]).any()]
    fillable = {*ARRAYS, *NOTES, *(name for name in right if "." in name and "shared" not in name)}
    if set(differing) - fillable or (right["s"] != wrong["s"])[:, EXEC:EXEC + 2].any():
        raise LaunchError("EXEC or LDS differs")
    m.v[right["v"] != wrong["v"]] = filling
    m.s[right["s"] != wrong["s"]] = filling
    m.scc[right["scc"] != wrong["scc"]] = bool(filling & 1)
