"""Faults planted in gfx906 machine code: each is caught, or shown to change nothing."""

import os
from collections import Counter

import numpy as np
import pytest
from machine_plans import PLANS, result_of
from planted_faults import KINDS, faults_of
from planted_states import entered_by, harmless

from dscore.backends.machine_code import disassembly, launch
from dscore.backends.machine_code.backend import Gfx906Backend, MachineKernel
from dscore.backends.machine_code.basic_blocks import translate
from dscore.backends.machine_code.disassembly import disassemble
from dscore.backends.machine_code.hazards import hazards
from dscore.backends.machine_code.launch import Program
from dscore.backends.machine_code.objects import kernel_object
from dscore.building.codegen import KernelSource
from dscore.building.compilers import missing_compiler
from dscore.core.errors import LaunchError, UnavailableError

MISSING = missing_compiler("hip") or disassembly.missing_objdump()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
FAULTY = ("gemm, slices", "distribution, masked", "rows through LDS", "column reuse", "direct")
EACH = 4 if DEEP else 1  # of every kind, in every kernel
# Seeds and scales of the data, which reach both ends of every activation.
DATA = ((0, 1), (1, 4))


class Subject:
    """A kernel that faults are planted in."""

    def __init__(self, backend, name):
        self.plan, self.sizes = PLANS[name], backend.sizes
        symbol = KernelSource(self.plan, self.sizes).name
        made = kernel_object(backend._stored[symbol].library, symbol, "gfx906")
        self.descriptor, self.code = made.descriptor, disassemble(made, "gfx906")
        self.right = self.results(translate(self.code, name))
        self.entered = entered_by(self, self.code)

    def results(self, blocks):
        """Results of the basic blocks *blocks* on all data."""
        kernel = MachineKernel(self.plan, self.sizes, Program(blocks, self.descriptor))
        return [result_of(kernel, *data) for data in DATA]

    def outcome(self, code):
        """How *code* is caught: by which check, or by its results; empty where it is not."""
        if hazards(code):
            return "hazard"
        try:
            results = self.results(translate(code, "a faulty kernel"))
        except UnavailableError:
            return "refused"
        except LaunchError:
            return "fault"
        equal = all(np.array_equal(*pair) for pair in zip(results, self.right, strict=True))
        return "" if equal else "wrong result"


@pytest.fixture(scope="module")
def backend():
    made = Gfx906Backend()
    made.prepare([*PLANS.values()])
    return made


@pytest.mark.parametrize("name", FAULTY)
def test_a_planted_fault_is_caught_or_changes_nothing(backend, name, monkeypatch, capsys):
    monkeypatch.setattr(launch, "_MOST_STEPS", 3000)  # a kernel with a fault may not end
    subject = Subject(backend, name)
    outcomes, escaped = Counter(), []
    for fault in faults_of(subject.code, subject.entered, EACH):
        outcome = subject.outcome(fault.code) or harmless(subject, fault)
        outcomes[outcome or "escaped"] += 1
        if outcome and outcome not in ("hazard", "refused", "fault", "wrong result"):
            with capsys.disabled():
                print(f"\n{name}: {fault}: {outcome}", end="")
        if not outcome:
            escaped.append(str(fault))
    with capsys.disabled():
        print(f"\n{name}: {dict(outcomes)}")
    assert escaped == []
    assert sum(outcomes.values()) >= 12 * EACH
