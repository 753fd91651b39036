"""Registers that compilers took, of kernels of all algorithms, within what is predicted."""

from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest
from random_plans import random_plans

from dscore.algorithms import base
from dscore.algorithms.registry import algorithm, case_of, names
from dscore.building import codegen, compilers
from dscore.building.ahead_of_time import build
from dscore.building.codegen import KernelSource
from dscore.building.toolchain import target
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving.rules import residency
from dscore.solving.solver import make_plan

# Target, device, compiler, and how many random plans are compiled in every run of the tests.
TARGETS = [("gfx906", "z100sm", "hip"), ("gfx90a", "gfx90a", "hip"), ("sm_90", "h200", "nvcc")]


def tiling_of(name, values):
    cls, kinds = algorithm(name).tiling, get_type_hints(algorithm(name).tiling)
    read = {int: int, bool: "True".__eq__}
    return cls(*(read.get(kinds[field.name], str)(value)
                 for field, value in zip(fields(cls), values.split(","), strict=True)))


def recorded():
    text = Path(__file__).parents[1].joinpath("support", "recorded_registers.txt").read_text()
    for line in text.splitlines():
        if not line.startswith("#"):
            name, device, token, kind, values, registers, waves = line.split()
            yield (name, parse_problem(token), catalog.device(device), tiling_of(kind, values),
                   int(registers), None if waves == "-" else int(waves))


RECORDED = list(recorded())


def exceeding(rows):
    """Kernels above their bound: target, algorithm, and by how much."""
    predicted = [(int(case_of(problem, device, tiling).compiled), row)
                 for row in rows for _, problem, device, tiling, *_ in [row]]
    return [(row[0], row[3].algorithm, row[4] - most) for most, row in predicted if row[4] > most]


def test_what_compilers_took_is_within_the_bound():
    assert len(RECORDED) > 300
    assert exceeding(RECORDED) == []


@pytest.mark.parametrize(("built_for", "name"), [
    (built_for, name) for built_for, device, *_ in TARGETS for name in names()
    if algorithm(name).suits(catalog.device(device))
    # Of these the bound is what a launch leaves a thread.
    and (built_for, name) not in (("sm_90", "direct"), ("sm_90", "implicit_gemm"))])
def test_a_bound_that_is_too_low_is_found(built_for, name, monkeypatch):
    """For every target and algorithm, some compiler came near to its bound."""
    cls = type(algorithm(name))
    right = cls.most_registers
    monkeypatch.setattr(cls, "most_registers", lambda *arguments: right(*arguments) - 16)
    own = [row for row in RECORDED if row[3].algorithm == name]
    assert (built_for, name) in [row[:2] for row in exceeding(own)]


def test_some_kernels_take_all_that_a_launch_leaves(monkeypatch):
    """nvcc's do: a bound of one register less is found."""
    launchable = base.launchable
    monkeypatch.setattr(base, "launchable", lambda *arguments: launchable(*arguments) - 1)
    assert {row[0] for row in exceeding(RECORDED)} == {"sm_90"}


@pytest.mark.deep
def test_residency_by_a_report_is_that_of_the_compiler():
    """hipcc's wavefronts on a SIMD count scalar registers, too: now and then one or two less."""
    less = []
    for _, problem, device, tiling, registers, waves in RECORDED:
        plan = make_plan(problem, device, tiling, reported_registers=registers)
        if waves is None or plan.use.lds_bytes or plan.use.waves > 1:
            continue
        mine = min(plan.block_n // device.simds_per_cu, device.waves_per_simd)
        less.append(mine - waves)
    assert len(less) > 10
    assert min(less) >= 0
    assert np.mean(np.array(less) == 0) > 0.7


def test_a_report_replaces_the_prediction():
    problem, device = parse_problem("n1c144h56w56_o144k5s2p2g144"), catalog.device("z100sm")
    values = "2,4,2,8,16,registers,False,False,plain,1"
    tiling = make_plan(problem, device, tiling_of("row_reuse", values)).tiling
    blocks = [int(residency(case_of(problem, device, tiling, reported=registers), "hardware"))
              for registers in (24, 25, 85, 86, 128, 129)]
    assert blocks == [10, 9, 2, 2, 2, 1]
    plans = [make_plan(problem, device, tiling, reported_registers=n) for n in (None, 64, 129)]
    assert len({plan.compiled_registers for plan in plans}) == 1  # the prediction stays
    assert [plan.block_n for plan in plans[1:]] == [4, 1]
    assert f"compiled to 129 ({129 - plans[0].compiled_registers} above" in str(plans[2])
    assert "compiled to 64 (at most" in str(plans[1])


@pytest.mark.deep
@pytest.mark.parametrize(("name", "device", "kind", "count"), [
    (*TARGETS[0], 4), *((*one, 500) for one in TARGETS)])
def test_this_machines_compilers_keep_the_bound(name, device, kind, count, tmp_path, monkeypatch):
    missing = compilers.missing_compiler(kind)
    if missing:
        pytest.skip(missing)
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(codegen, "KERNELS_PER_UNIT", 25)  # most of the time goes to headers
    plans = random_plans(catalog.device(device), count, seed=8)
    built = build([KernelSource(plan, "fixed") for plan in plans], target(name))
    kernels = [*built.kernels.values()]
    assert len(kernels) == count
    assert all(kernel.lds_exact for kernel in kernels)
    # What spills is none that the bound is for: such kernels are refused by name.
    assert {kernel.plan.name: kernel.excess for kernel in kernels
            if kernel.excess > 0 and not kernel.spills} == {}
    assert sum(kernel.spills > 0 for kernel in kernels) <= count / 50
