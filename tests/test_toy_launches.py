"""A toy algorithm of two launches with a workspace between them, which every caller provides."""

import pytest
import toy_algorithm
from emulated_gpus import Tensor, emulated_gpus

import dscore
from dscore.algorithms import registry
from dscore.backends.emulated import EmulatedBackend
from dscore.checking import bound
from dscore.checking.check import check_kernel
from dscore.core import backend, catalog
from dscore.core.plan import Launch
from dscore.core.token import parse_problem
from dscore.measuring.runner import HostRunner, check
from dscore.solving import solver

Z100SM = catalog.device("z100sm")
needs_compiler = pytest.mark.skipif(EmulatedBackend().missing() is not None,
                                    reason=str(EmulatedBackend().missing()))


@pytest.fixture
def two_steps():
    registry.register("toy", "toy_algorithm:TwoSteps")
    yield parse_problem("n2c8h5w5_o7k1_bias_relu")
    registry.unregister("toy")


def test_a_plan_says_what_it_needs_beside_its_first_launch(two_steps):
    plan = solver.make_plan(two_steps, Z100SM, toy_algorithm.ToyTiling(64))
    assert (plan.workspace_bytes, plan.further_launches) == (4 * 350, (Launch(6, 64, 0),))
    assert {("workspace", "1,400 B"), ("then", "6 blocks of 64 threads")} <= set(plan.rows())


@needs_compiler
def test_every_caller_provides_a_workspace_and_makes_all_launches(two_steps, monkeypatch):
    tiling = toy_algorithm.ToyTiling(64)
    x, w, bias = bound.sample(two_steps, 1)
    wanted, runner = bound.expected(two_steps, x, w, bias), HostRunner(Z100SM)
    y = dscore.conv(x, w, bias, activation="relu", backend="emulated", plan=tiling)
    assert bound.compare(y, wanted).ok
    plan = solver.make_plan(two_steps, Z100SM, tiling)
    chosen, [arrays] = EmulatedBackend(), runner.sets(two_steps, 1, 0)
    assert check(runner, chosen, plan, arrays).ok
    with emulated_gpus(monkeypatch):
        given = [Tensor(array) for array in (x, w, bias)]
        for _ in range(3):  # checked, specialized, fast
            y = dscore.conv(*given, activation="relu", backend="gpu")
            assert bound.compare(y.array, wanted).ok


@pytest.mark.skipif(backend.backend("gfx906").missing() is not None, reason="hipcc is missing")
@pytest.mark.deep
def test_machine_code_makes_all_launches(two_steps):
    plan = solver.make_plan(two_steps, Z100SM, toy_algorithm.ToyTiling(64))
    chosen, inputs = backend.backend("gfx906"), bound.sample(two_steps, 1)
    assert check_kernel(plan, chosen.compile(plan), *inputs).ok
