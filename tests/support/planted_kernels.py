"""Kernels that faults are planted in, and why a fault that nothing catches changes nothing.

A fault is caught where the interpreter refuses the code or reports what it does, or where a result
is another one. For any other fault `Subject.reason` looks for a reason, each tried out. In these
kernels no address, no branch and no mask depends on the data, so that what random data do not tell
apart no data do, but for the ends of activations, which the data reach.
"""

import numpy as np
import pytest
from machine_plans import PLANS, result_of

from dscore.backends.machine_code import control, launch
from dscore.backends.machine_code.backend import MachineKernel
from dscore.backends.machine_code.basic_blocks import _starts, translate
from dscore.backends.machine_code.disassembly import disassemble
from dscore.backends.machine_code.hazards import hazards
from dscore.backends.machine_code.launch import Program
from dscore.backends.machine_code.objects import kernel_object
from dscore.backends.machine_code.waves import EXEC, POISON
from dscore.building.codegen import KernelSource
from dscore.core.errors import LaunchError, UnavailableError

# Arguments of `result_of`: seed, scale, and one element of how many is infinite. The first two
# reach both ends of every activation. What those do not tell apart is tried on the others, too:
# there a product with 0 is a NaN.
DATA = ((0, 1, 0), (1, 4, 0))
MORE_DATA = ((2, 1, 0), (3, 100, 0), (4, 1, 23), (5, 1, 7))
NO_LANES = "wavefronts go another way in which no lane executes"
SAME = "it does the same to all registers"
WAITED = "a later wait covers what it waits for, before anything touches it"
UNUSED = "nothing reads what differs"
OTHER_LANES = "other lanes execute, and nothing reads what they do"
SAME_LATER = "what is computed of it is the same"


class Subject:
    """The kernel of a plan on a backend that has built it."""

    def __init__(self, backend, name):
        self.plan, self.sizes = PLANS[name], backend.sizes
        symbol = KernelSource(self.plan, self.sizes).name
        made = kernel_object(backend._stored[symbol].library, symbol, "gfx906")
        self.descriptor, self.code = made.descriptor, disassemble(made, "gfx906")
        self.path, self.right = self._followed(self.code)

    def _followed(self, code):
        """The path of *code*, and its results."""
        path = Path()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(launch.Batch, "_execute", path.following(code))
            blocks = translate(code, "a kernel")
            return path, {data: self.results(blocks, data) for data in (DATA, MORE_DATA)}

    def results(self, blocks, data=DATA):
        """Results of the basic blocks *blocks* on all *data*."""
        kernel = MachineKernel(self.plan, self.sizes, [Program(blocks, self.descriptor)])
        return [result_of(kernel, *one) for one in data]

    def outcome(self, code):
        """How *code* is caught; empty where it is not."""
        if hazards(code):
            return "hazard"
        with pytest.MonkeyPatch.context() as patch:
            # It may not end.
            patch.setattr(launch, "_MOST_STEPS", 3 * self.path.steps // len(DATA + MORE_DATA))
            try:
                blocks = translate(code, "a faulty kernel")
                right = all(equal(self.results(blocks, data), self.right[data])
                            for data in (DATA, MORE_DATA))
            except UnavailableError:
                return "refused"
            except LaunchError:
                return "fault"
        return "" if right else "wrong result"

    def reason(self, fault):
        """Why *fault*, which `outcome` does not catch, changes nothing; empty without a reason."""
        one = fault.before
        if one.opcode in control.BRANCHES:
            if self.path.idle(fault):
                return NO_LANES
            # Beside the way it goes, such a branch leaves out the instruction that it was to go to.
            elsewhere = fault.kind == "branch elsewhere"
            return SAME_LATER if elsewhere and self._goes_the_same_way(fault) else ""
        first = Comparison(self, fault)
        if not first.differing:
            return SAME
        if one.opcode == "s_waitcnt":
            return WAITED
        if all(Comparison(self, fault, filling).right for filling in (POISON, ~POISON)):
            return UNUSED
        return OTHER_LANES if first.exec_differs else SAME_LATER

    def _goes_the_same_way(self, fault):
        """Whether all branches go where they do without *fault*."""
        path, _ = self._followed(fault.code)
        return (path.taken, path.passed) == (self.path.taken, self.path.passed)


def equal(some, others):
    """Whether two lists of results have the same values; a NaN equals a NaN."""
    return all(np.array_equal(*pair, equal_nan=True) for pair in zip(some, others, strict=True))


class Path:
    """What a kernel comes to: addresses of instructions, and of branches that some wavefront takes
    or passes; basic blocks in all.
    """

    def __init__(self):
        self.entered, self.taken, self.passed, self.steps = set(), set(), set(), 0

    def following(self, code):
        """`Batch._execute` that takes note of the path."""
        starts, inside, whole = _starts(code), {}, launch.Batch._execute
        number = -1
        for one in code:
            number = starts.get(one.address, number)
            inside.setdefault(number, []).append(one.address)

        def execute(batch, block, following, end):
            self.steps += 1
            addresses = inside[following - 1]
            self.entered.update(addresses)
            group = np.broadcast_to(batch.group, batch.count).copy()
            whole(batch, block, following, end)
            if block.target >= 0:
                taken = batch._at[group] == block.target
                self.taken |= {addresses[-1]} if taken.any() else set()
                self.passed |= set() if taken.all() else {addresses[-1]}
        return execute

    def idle(self, fault):
        """Whether only wavefronts without an executing lane go another way by a changed branch."""
        one = fault.before
        if fault.kind == "branch inverted":
            always = one.address not in self.passed
            return {"s_cbranch_execz": always,
                    "s_cbranch_execnz": one.address not in self.taken}.get(one.opcode, False)
        return one.opcode == "s_cbranch_execz"


class Comparison:
    """A run in which a changed instruction is also tried, each time the original one executes.

    *differing*: what it would have left otherwise. With *filling*, all registers that differ are
    filled with that, and *right* tells whether the kernel nevertheless gives the right results.
    """

    def __init__(self, subject, fault, filling=None):
        self.differing, self.exec_differs, self.filling = set(), False, filling
        blocks = translate(subject.code, "a kernel")
        block, places = _steps(blocks, fault.before.address)
        others, other_places = _steps(translate(fault.code, "a fault"), fault.before.address)
        originals = [block.steps[at] for at in places]
        instead = [others.steps[at] for at in other_places]
        block.steps[places[0]] = lambda m: self._try(m, originals, instead)
        for at in places[1:]:
            block.steps[at] = lambda m: None
        try:
            self.right = equal(subject.results(blocks), subject.right[DATA])
        except LaunchError:
            self.right = False

    def _try(self, m, originals, instead):
        before = _state(m)
        for step in originals:
            step(m)
        right = _state(m)
        _restore(m, before)
        for step in instead:
            step(m)
        wrong = _state(m)
        _restore(m, right)
        different = {name: right[name] != wrong[name] for name in right}
        self.differing |= {name for name in different if different[name].any()}
        self.exec_differs |= bool(different["s"][:, EXEC:EXEC + 2].any())
        if self.filling is not None:
            self._fill(m, different)

    def _fill(self, m, different):
        if self.exec_differs or any(name.startswith("shared") for name in self.differing):
            raise LaunchError("EXEC and LDS are not filled")
        m.v[different["v"]] = self.filling
        m.s[different["s"]] = self.filling
        m.scc[different["scc"]] = bool(self.filling & 1)


def _steps(blocks, address):
    """The basic block that has the instruction at *address*, and the places of its steps."""
    for block in blocks:
        places = [at for at, one in enumerate(block.instructions) if one.address == address]
        if places:
            return block, places
    raise AssertionError(f"no instruction at {address:#x}")


def _state(m):
    state = {name: getattr(m, name).copy()
             for name in ("v", "s", "scc", "v_written", "s_written", "scc_written")}
    for counter in ("vector_memory", "lds", "scalar_memory"):
        for part in ("issued", "done", "due"):
            state[f"{counter}.{part}"] = getattr(getattr(m, counter), part).copy()
    for part in ("parts", "written", "writes", "reads"):
        state[f"shared.{part}"] = getattr(m.shared, part).copy()
    return state


def _restore(m, state):
    for name, values in state.items():
        owner, _, part = name.rpartition(".")
        np.copyto(getattr(getattr(m, owner) if owner else m, part), values)
    m.exec_changed()
