"""Kernels that spill: calls take the next plan, a plan that was asked for runs with a warning."""

import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest
from cli_calls import Call
from emulated_gpus import GpuBackend, Tensor, emulated_gpus
from fake_compilers import fake_hipcc
from tuning_backends import Gpu, Scripted, _Kernel

import dscore
from dscore.building.kernels import report_on
from dscore.calling import choice, kernels
from dscore.checking import bound
from dscore.core.backend import Prepared
from dscore.core.token import parse_problem
from dscore.solving import solver

PROBLEM = parse_problem("n1c8h6w6_o16k1")
DEVICE = dscore.plan_for(PROBLEM, "z100sm").device
SPACE = solver.solve(PROBLEM, DEVICE)
PLANS = [SPACE.plan(int(index)) for index in SPACE.ranked()]
NAMES = [plan.tiling.name for plan in PLANS]
X, W, _ = bound.sample(PROBLEM, 0)
NAME = "tuning_backends:Scripted"


@pytest.fixture(autouse=True)
def _fresh(tmp_path, monkeypatch):
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(Scripted, "ran", [])
    kernels.solved_kernel.cache_clear()
    yield
    kernels.solved_kernel.cache_clear()


def spill(monkeypatch, words):
    """Have the kernels of these tilings keep so many words in memory."""
    class Spilling(_Kernel):
        def __init__(self, kernel, owner):
            super().__init__(kernel, owner)
            self.use = replace(kernel.use, spills=words.get(self.plan.tiling.name, 0))

    monkeypatch.setattr("tuning_backends._Kernel", Spilling)


def ran():
    y = dscore.conv(X, W, backend=NAME)
    assert bound.compare(y, bound.expected(PROBLEM, X, W)).ok
    return Scripted.ran[-1]


def test_a_call_takes_the_first_plan_that_does_not_spill(monkeypatch, caplog):
    assert ran() == NAMES[0]
    kernels.solved_kernel.cache_clear()
    spill(monkeypatch, {NAMES[0]: 5, NAMES[1]: 1})
    with caplog.at_level(logging.INFO, "dscore"):
        assert ran() == NAMES[2]
    assert [record.getMessage() for record in caplog.records] == [
        f"dscore: {PLANS[0].token}: {name} (spills {size} B of a lane to memory) is passed over "
        f"for {NAMES[2]}" for name, size in ((NAMES[0], 20), (NAMES[1], 4))]


def test_where_all_spill_the_fewest_words_are_taken(monkeypatch):
    words = dict.fromkeys(NAMES, 9) | {NAMES[3]: 2, NAMES[choice.MOST_PASSED_OVER]: 1}
    spill(monkeypatch, words)
    assert ran() == NAMES[3], "the others are not built any more"


def test_a_plan_that_was_asked_for_runs_with_a_warning(monkeypatch):
    spill(monkeypatch, {NAMES[4]: 3})
    with pytest.warns(RuntimeWarning, match=f"{NAMES[4]} .spills 12 B of a lane to memory"):
        dscore.conv(X, W, backend=NAME, plan=PLANS[4])
    assert Scripted.ran == [NAMES[4]]


def test_a_machine_that_cannot_build_the_others_runs_what_it_has():
    kernels = {PLANS[0].name: 7, PLANS[2].name: 3}

    def kernel_of(plan):
        if plan.name not in kernels:
            raise dscore.UnavailableError("in no loaded file, and no compiler")
        return kernels[plan.name]

    plan, words, passed = choice.unspilled(PLANS[0], kernel_of, lambda words: words)
    assert (plan, words) == (PLANS[2], 3)
    assert [one.plan for one in passed] == [PLANS[0]]
    with pytest.raises(dscore.UnavailableError):
        choice.unspilled(PLANS[1], kernel_of, lambda words: words)


def test_only_plans_of_the_arithmetic_and_the_backend_follow():
    plan = dscore.plan_for("P13", "h200")
    first = []

    def kernel_of(other):
        first.append(other)
        return len(first)

    choice.unspilled(plan, kernel_of, lambda n: n, arithmetic="plain")
    assert len(first) == choice.MOST_PASSED_OVER
    assert {other.tiling.as_dict().get("arithmetic") for other in first[1:]} == {"plain"}
    assert len({other.name for other in first}) == len(first)


def test_the_next_plans_are_of_all_algorithms_that_are_compared():
    hopper, problem = dscore.plan_for("P13", "h200").device, parse_problem("n33c192h14w14_o64k1")
    tried = []
    choice.unspilled(solver.best_plan(problem, hopper), lambda plan: tried.append(plan) or 1,
                     lambda words: words)
    spaces = [solver.solve(problem, hopper, algorithm=name)
              for name in ("warpgroup_tf32", "gemm")]
    least = sorted(float(seconds) for space in spaces for seconds in space.costs.seconds)
    assert [plan.cost.seconds for plan in tried] == pytest.approx(least[:len(tried)])
    assert {plan.tiling.algorithm for plan in tried} == {"warpgroup_tf32", "gemm"}


def test_a_plan_runs_though_it_spills_where_no_other_computes_so():
    plan = PLANS[0]
    assert choice.unspilled(plan, lambda other: 7, lambda words: words,
                            arithmetic="tf32x3") == (plan, 7, ())


def test_arrays_on_a_gpu_take_the_next_plan_too(monkeypatch):
    first = dscore.plan_for(PROBLEM, "z100sm")
    with emulated_gpus(monkeypatch):
        run = GpuBackend.kernel_on
        spilling = SimpleNamespace(use=replace(first.use, spills=1))
        monkeypatch.setattr(GpuBackend, "kernel_on", lambda self, plan, index: (
            spilling if plan.tiling == first.tiling else run(self, plan, index)))
        y = dscore.conv(Tensor(X), Tensor(W), backend="gpu")
        assert bound.compare(y.array, bound.expected(PROBLEM, X, W)).ok


def test_preparation_builds_what_calls_will_take(monkeypatch):
    monkeypatch.setattr(Gpu, "prepared", [])
    spill(monkeypatch, {NAMES[0]: 5})
    prepared = dscore.prepare(PROBLEM, backend="tuning_backends:Gpu")
    assert Gpu.prepared == NAMES[:2]
    assert (prepared.kernels, prepared.compiled, prepared.found) == (2, 2, 0)


def test_what_is_built_instead_is_built_side_by_side(monkeypatch):
    """Of several plans that spill, the next ones are prepared together."""
    batches = []
    monkeypatch.setattr(Gpu, "prepare", lambda self, plans, progress=None: (
        batches.append([plan.tiling.name for plan in plans]) or Prepared(len(plans), 0)))
    other = parse_problem("n1c8h6w6_o24k1")
    space = solver.solve(other, DEVICE)
    first, second = (space.plan(int(index)).tiling.name for index in space.ranked()[:2])
    spill(monkeypatch, {NAMES[0]: 5, first: 2})
    dscore.prepare([PROBLEM, other], backend="tuning_backends:Gpu")
    assert batches[:2] == [[NAMES[0], first], [NAMES[1], second]]


# Reports of a compiler, by a fake one

def compiled(call: Call, tmp_path, monkeypatch, plan, **reported):
    monkeypatch.setenv("DSCORE_HIPCC", str(fake_hipcc(tmp_path / "hipcc", **reported)))
    call("build", plan.token, "--target", "gfx906", "--device", "z100sm")


def test_explain_follows_the_compilers_report(call: Call, tmp_path, monkeypatch):
    plan = dscore.plan_for("D13", "z100sm")
    assert report_on(plan) is None
    before = dscore.explain("D13", "z100sm")
    assert before.plan == plan
    compiled(call, tmp_path, monkeypatch, plan, vgprs=plan.compiled_registers + 90, lds=0)
    after = dscore.explain("D13", "z100sm")
    assert after.plan.reported_registers == plan.compiled_registers + 90
    assert after.plan.block_n < plan.block_n
    assert after.plan.cost.occupancy <= plan.cost.occupancy
    used = {check.code: check.used for check in after.ledger}
    assert used["E-VGPR-MAX"] == used["E-VGPR"] == plan.compiled_registers + 90
    text = " ".join(call("explain", "D13", "--device", "z100sm").out.split())
    assert (f"compiled to {plan.compiled_registers + 90} (90 above the predicted "
            f"{plan.compiled_registers})") in text
    assert after.chosen_by == before.chosen_by
    # A plan of an explanation is a plan to run.
    assert dscore.explain(after.plan).plan == after.plan
    assert dscore.api.choice.callers_plan(plan.problem, plan.device, after.plan) == after.plan


@pytest.mark.parametrize(("spilled", "size"), [({"spills": 2}, 8), ({"scratch": 48}, 48)])
def test_explain_names_what_is_passed_over(spilled, size, call: Call, tmp_path, monkeypatch):
    first, second = PLANS[:2]
    compiled(call, tmp_path, monkeypatch, first, lds=first.use.lds_bytes,
             only=first.tiling.name, **spilled)
    explained = dscore.explain(PROBLEM, "z100sm")
    assert (explained.plan.tiling, explained.spills) == (second.tiling, 0)
    assert explained.chosen_by == "the cost model, after what spills"
    assert explained.passed_over == (
        f"{first.tiling.name} (spills {size} B of a lane to memory)")
    assert "passed over" in call("explain", PLANS[0].token, "--device", "z100sm").out
    # Asked for by name, it is explained as it is.
    own = dscore.explain(first)
    assert (own.plan.tiling, own.spills, own.passed_over) == (first.tiling, size // 4, "")
    assert f"spills {size} B of a lane" in " ".join(str(own).split())
