"""dscore.conv takes the tuned plan where there is one, and tunes in a call only when asked."""

import pytest

import dscore
from dscore.calling import kernels
from dscore.checking import bound
from dscore.core.backend import choose_backend
from dscore.core.token import parse_problem
from dscore.tuning import records, tune

PROBLEM = parse_problem("n1c12h9w9_o12k3p1g12")
X, W, _ = bound.sample(PROBLEM, 0)


@pytest.fixture(autouse=True)
def _fresh(tmp_path, monkeypatch):
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path))
    kernels.solved_kernel.cache_clear()
    tune.on_demand.cache_clear()
    yield
    kernels.solved_kernel.cache_clear()


def called():
    y = dscore.conv(X, W, padding=1, groups=12, backend="reference")
    assert bound.compare(y, bound.expected(PROBLEM, X, W)).ok
    return kernels.solved_kernel(PROBLEM, "reference").plan


def test_the_solvers_first_where_nothing_was_tuned():
    assert called() == dscore.plan_for(PROBLEM)


def test_the_tuned_plan_where_there_is_one():
    backend = choose_backend("reference")
    tune.tune(PROBLEM, backend.device(), "reference", top=12)
    best = records.tuned_plan(PROBLEM, backend.device(), backend)
    assert best is not None
    assert called() == best


def test_a_call_tunes_when_the_environment_asks(monkeypatch):
    monkeypatch.setenv("DSCORE_TUNE", "on")
    backend = choose_backend("reference")
    assert records.tuned_plan(PROBLEM, backend.device(), backend) is None
    plan = called()
    assert plan == records.tuned_plan(PROBLEM, backend.device(), backend)


def test_never_while_a_graph_is_captured(monkeypatch):
    monkeypatch.setenv("DSCORE_TUNE", "on")
    monkeypatch.setattr("dscore.calling.choice.capturing", lambda: True)
    assert called() == dscore.plan_for(PROBLEM)


def test_another_word_than_on_or_off_is_refused(monkeypatch):
    monkeypatch.setenv("DSCORE_TUNE", "maybe")
    with pytest.raises(dscore.SpecError, match="DSCORE_TUNE must be one of on, off"):
        called()
