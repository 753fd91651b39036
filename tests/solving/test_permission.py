"""Permission of an arithmetic: an algorithm that needs one, of problems with it and without."""

from types import SimpleNamespace

import numpy as np
import pytest
import toy_algorithm
from cli_calls import unwrapped
from hypothesis import strategies as st

import dscore
from dscore.algorithms import registry
from dscore.algorithms.direct import Direct, DirectTiling
from dscore.algorithms.templates import Template
from dscore.calling import kernels
from dscore.checking.conformance import conformance
from dscore.checking.rounding import rounding_of
from dscore.core import catalog
from dscore.core.errors import SpecError
from dscore.core.token import parse_problem, problem_token
from dscore.solving import solver

TILING, Z100SM, TOKEN = DirectTiling(64, 1), catalog.device("z100sm"), "n1c8h9w9_o8k3p1"
BARE, PERMITTING = parse_problem(TOKEN), parse_problem(f"{TOKEN}_winograd")


class Needing(Direct):
    permission, operations = "winograd", ("conv",)

    def arithmetic(self, problem, t):
        return "winograd4"

    def cases(self):
        return SimpleNamespace(
            templates=lambda device: st.just(Template(device, TILING, (3, 3), (1, 1), (1, 1), ())),
            problems=lambda template: st.just(BARE))


@pytest.fixture
def needing(monkeypatch):
    """The direct algorithm as one that needs a permission."""
    monkeypatch.setattr(toy_algorithm, "Candidate", Needing, raising=False)
    registry.register("direct", "toy_algorithm:Candidate")
    kernels.solved_kernel.cache_clear()
    solver.best_plan.cache_clear()
    yield registry.algorithm("direct")
    registry.unregister("direct")
    kernels.solved_kernel.cache_clear()
    solver.best_plan.cache_clear()


def test_what_a_problem_does_not_permit_is_refused_by_name(needing):
    assert "direct" not in [one.name for one in registry.running(BARE)]
    assert "direct" in [one.name for one in registry.running(PERMITTING)]
    with pytest.raises(SpecError, match='E-ARITHMETIC: arithmetic of direct is winograd, allowed '
                                        'sum, unless arithmetic="winograd" permits it'):
        solver.make_plan(BARE, Z100SM, TILING)
    plan = solver.solve(PERMITTING, Z100SM, algorithm="direct").plan(0)
    assert rounding_of(plan) == ("winograd4", None)
    assert plan.name.startswith(f"{TOKEN}_winograd__direct")


def test_a_call_permits_it_and_a_plan_without_permission_is_refused(needing):
    x, w = np.ones((1, 8, 9, 9), np.float32), np.ones((8, 8, 3, 3), np.float32)
    y = dscore.conv(x, w, padding=1, backend="reference", arithmetic="winograd", plan=TILING)
    assert y[0, 0, 4, 4] == 72
    with pytest.raises(SpecError, match="E-ARITHMETIC"):
        dscore.conv(x, w, padding=1, backend="reference", plan=TILING)
    plan = dscore.plan_for(PERMITTING, "z100sm", tiling=TILING)
    with pytest.raises(SpecError, match="the plan is for n1c8h9w9_o8k3p1_winograd"):
        dscore.conv(x, w, padding=1, backend="reference", plan=plan)


def test_conformance_gives_the_permission_that_an_algorithm_needs(needing, monkeypatch):
    problems = []
    monkeypatch.setattr("dscore.checking.conformance.check_plan",
                        lambda backend, plan, seed: problems.append(plan.problem) or 1 / 0)
    report = conformance("reference", examples=4, algorithms=["direct"])
    assert {problem.spec.arithmetic for problem in problems} == {"winograd"}
    assert "_winograd --tiling" in report.failures[0].reproduce


def test_commands_permit_it(json_of, call):
    plan = json_of("explain", TOKEN, "--arithmetic", "winograd", "--device", "z100sm")["plan"]
    assert plan["problem"] == problem_token(PERMITTING)
    assert json_of("explain", "P13", "--device", "h200")["arithmetic"] == "tf32x3"
    assert "arithmetic            tf32x3, with an error bound of its own" in call(
        "explain", "P13", "--device", "h200").out
    ran = json_of("run", TOKEN, "P13", "--arithmetic", "winograd", "--backend", "reference")
    assert [one["problem"] for one in ran["layers"]] == [f"{TOKEN}_winograd", "n1c64h14w14_o384k1"]
    wrong = call("tune", TOKEN, "--arithmetic", "exact")
    assert wrong.code == 2
    assert "--arithmetic must be one of sum, winograd; got 'exact'" in unwrapped(wrong.err)


@pytest.mark.parametrize("token", ["n1c512h7w7_o512k3p1", "n64c64h56w56_o64k3p1"])
def test_what_is_permitted_is_taken_where_it_is_estimated_faster(token):
    """Four launches lose to one at batch 1, and win at batch 64."""
    problem, h200 = parse_problem(f"{token}_winograd"), catalog.device("h200")
    spaces = {name: solver.solve(problem, h200, algorithm=name)
              for name in ("winograd", "implicit_gemm")}
    faster = min(spaces, key=lambda name: spaces[name].costs.seconds.min())
    plan = solver.best_plan(problem, h200)
    assert plan.tiling.algorithm == faster == (
        "winograd" if token.startswith("n64") else "implicit_gemm")
    assert plan.cost.seconds == pytest.approx(spaces[faster].costs.seconds.min())
