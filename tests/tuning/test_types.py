"""Tuning and hints of every element type, in both layouts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dscore.calling import choice
from dscore.core import catalog
from dscore.core.backend import backend
from dscore.core.spec import LAYOUTS
from dscore.core.token import parse_problem, problem_token
from dscore.solving import solver
from dscore.tuning import records, shipped_hints, tune
from dscore.tuning.hint_file import best_hints
from dscore.tuning.measurement import Measurement
from dscore.tuning.measurement_policy import MeasurementPolicy

LAYERS = ("n2c8h6w5_o16k1", "n1c8h7w6_o8k3s2p1g8")
TYPES = ("float16", "bfloat16", "int8")
DEVICE = catalog.device("h200")
FORMS = [(f"{layer}_{dtype}" + "_nhwc" * (layout == "nhwc"), dtype)
         for layer in LAYERS for dtype in TYPES for layout in LAYOUTS]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(records, "_decisions", {})


@pytest.mark.parametrize(("token", "dtype"), FORMS)
def test_a_layer_of_any_type_is_tuned_and_the_best_is_what_calls_take(
        token: str, dtype: str) -> None:
    problem = parse_problem(token)
    result = tune.tune_all([problem], backend="reference", top=3, halving=True)[0]
    assert result.complete
    assert result.best is not None
    assert not result.record.refused
    if dtype == "int8":  # equal, to the last bit
        assert {c.share for c in result.record.configurations.values()} == {0.0}
    reference = backend("reference")
    plan = choice.default_plan(problem, reference.device(), reference, "reference")
    assert plan.tiling == result.best.tiling


@pytest.mark.parametrize(("token", "dtype"), FORMS)
def test_a_hint_made_of_a_record_is_what_calls_take(
        token: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = parse_problem(token)
    space = solver.solve(problem, DEVICE)
    chosen = space[int(space.ranked()[-1])]
    assert space.ranked()[0] != space.ranked()[-1]
    identity = records.identity_of(problem, DEVICE, backend("hip"),
                                   MeasurementPolicy("cold", "graph"))
    text = best_hints([Measurement(identity, chosen, (1e-6,) * 12, 0.0, "", 0, ())], DEVICE
                      ).text("test")
    hints = shipped_hints.parse_hints(text, "test")
    assert [*hints.hints] == [problem_token(problem)]
    monkeypatch.setattr(shipped_hints, "shipped", {"h200": hints}.get)
    assert shipped_hints.untuned_plan(problem, DEVICE).tiling == chosen
    # Of no other type but for bfloat16, and of no other layout.
    for other in TYPES:
        spec = problem.spec.in_form(dtype=other)
        served = other == dtype or (dtype, other) == ("float16", "bfloat16")
        assert (shipped_hints.shipped_plan(replace(problem, spec=spec), DEVICE) is not None
                ) == served
    turned = problem.spec.in_form(layout="nhwc" if problem.spec.layout == "nchw" else "nchw")
    assert shipped_hints.shipped_plan(replace(problem, spec=turned), DEVICE) is None


def test_sums_of_float32_have_the_record_of_the_rounded_gradient_unless_tuned_themselves() -> None:
    reference = backend("reference")
    narrow, wide = (parse_problem(f"weight_gradient_n2c8h7w6_o8k3p1g8_float16{out}_nhwc")
                    for out in ("", "_outfloat32"))
    device = reference.device()
    assert records.best(wide, device, reference) is None
    narrow_space, policy = solver.solve(narrow, device), MeasurementPolicy("hot", "host")
    tilings = [narrow_space[int(i)] for i in narrow_space.ranked()[:2]]
    for problem, tiling in zip((narrow, wide), tilings, strict=True):
        identity = records.identity_of(problem, device, reference, policy)
        records.keep(Measurement(identity, tiling, (1e-6,) * 12, 0.0, "", 0, ()))
        records._decisions.clear()
        assert records.best(wide, device, reference) == tiling
    assert records.best(narrow, device, reference) == tilings[0]
