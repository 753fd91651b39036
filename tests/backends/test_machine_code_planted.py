"""Faults planted in gfx906 machine code: each is caught, or shown to change nothing."""

from collections import Counter

import pytest
from machine_plans import prepared
from planted_faults import faults_of
from planted_kernels import Subject
from profiles import DEEP, mostly_deep

from dscore.backends.machine_code import disassembly
from dscore.backends.machine_code.backend import Gfx906Backend
from dscore.building.compilers import missing_compiler

MISSING = missing_compiler("hip") or disassembly.missing_objdump()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

FAULTY = ("gemm, slices", "distribution, masked", "rows through LDS", "column reuse", "direct")
EACH = 5 if DEEP else 1  # of every kind, in every kernel
CAUGHT = ("hazard", "refused", "fault", "wrong result")


@pytest.fixture(scope="module")
def backend():
    return prepared(Gfx906Backend())


@pytest.mark.parametrize("name", mostly_deep(FAULTY, "distribution, masked"))
def test_a_planted_fault_is_caught_or_changes_nothing(backend, name, record_property):
    subject = Subject(backend, name)
    outcomes, harmless = Counter(), []
    for fault in faults_of(subject.code, subject.path, EACH):
        outcome = subject.outcome(fault.code)
        if not outcome:
            outcome = subject.reason(fault)
            assert outcome, f"{name}: {fault}: not caught, and no reason why it changes nothing"
            harmless.append(f"{fault}: {outcome}")
        outcomes[outcome] += 1
    record_property("outcomes", dict(outcomes))
    print(name, dict(outcomes), *harmless, sep="\n  ")  # seen with pytest -s
    assert sum(outcomes.values()) >= 12 * EACH
    assert sum(outcomes[one] for one in CAUGHT) >= 0.6 * sum(outcomes.values())
