"""The cost model judged by records, beside figures made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dscore.core import backend, catalog
from dscore.core.token import parse_problem
from dscore.solving import solver
from dscore.tuning import records
from dscore.tuning.measurement import Measurement
from dscore.tuning.measurement_policy import MeasurementPolicy
from dscore.tuning.model_quality import judge_model

DEVICE = catalog.device("z100sm")
POLICY = MeasurementPolicy("cold", "graph")


def timed(token: str, micro: dict[int, float], refused: tuple[int, ...] = ()) -> set[Measurement]:
    """Measurements by the place, from 0, of their tiling in the model's order."""
    problem = parse_problem(token)
    space = solver.solve(problem, DEVICE)
    order = space.ranked()
    identity = records.identity_of(problem, DEVICE, backend.backend("reference"), POLICY)
    right = {Measurement(identity, space[int(order[place])], (time * 1e-6,) * 3, 0.1, "", 0, ())
             for place, time in micro.items()}
    return right | {Measurement(identity, space[int(order[place])], (), None, "WRONG", 0, ())
                    for place in refused}


FIRST = timed("n1c32h12w12_o32k1", {0: 10.0, 3: 8.0, 20: 6.0, 40: 5.0}, refused=(1, 5))
SECOND = timed("n1c8h6w6_o8k3p1g8", {0: 9.0, 4: 4.0, 30: 6.0})


def test_ratios_are_those_made_by_hand() -> None:
    quality = judge_model(FIRST | SECOND)
    one, two = quality.layers
    assert [guess.ratio for guess in one.guesses] == pytest.approx([2.0, 1.6, 1.2])
    assert [guess.measured for guess in one.guesses] == [1, 4, 5]
    assert (one.rank, one.best.seconds) == (41, pytest.approx(5e-6))
    assert [guess.ratio for guess in two.guesses] == pytest.approx([2.25, 1.0, 1.0])
    assert two.rank == 5
    assert quality.mean(1) == pytest.approx((2.0 * 2.25) ** 0.5)
    assert quality.mean(8) == pytest.approx(1.6**0.5)
    assert quality.mean(32) == pytest.approx(1.2**0.5)
    assert quality.skipped == ()


def test_an_exhaustive_record_says_so() -> None:
    token = "n1c1h1w1_o1k1"
    space = solver.solve(parse_problem(token), DEVICE)
    whole = timed(token, dict.fromkeys(range(len(space)), 3.0))
    [layer] = judge_model(whole).layers
    assert layer.exhaustive
    assert [guess.ratio for guess in layer.guesses] == [1.0, 1.0, 1.0]
    assert not judge_model(FIRST).layers[0].exhaustive


def test_first_tilings_that_were_not_measured_give_no_ratio() -> None:
    quality = judge_model(timed("n1c32h12w12_o32k1", {10: 4.0, 50: 3.0}))
    assert [guess.ratio for guess in quality.layers[0].guesses] == [
        None, None, pytest.approx(4 / 3)]
    assert quality.mean(1) is None


def test_the_order_is_the_models_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    ranked = solver.Space.ranked
    monkeypatch.setattr(solver.Space, "ranked", lambda space: ranked(space)[::-1])
    [layer] = judge_model(FIRST).layers
    assert layer.rank == layer.space - 40
    assert [guess.ratio for guess in layer.guesses] == [None, None, None]


def test_algorithms_that_are_compared_have_one_order() -> None:
    hopper, problem = catalog.device("h200"), parse_problem("n32c384h14w14_o96k1")
    spaces = [solver.solve(problem, hopper, algorithm=name)
              for name in ("warpgroup_tf32", "gemm")]
    order = sorted(((float(seconds), space[number]) for space in spaces
                    for number, seconds in enumerate(space.costs.seconds)),
                   key=lambda one: one[0])
    places = [next(place for place, (_, tiling) in enumerate(order)
                   if tiling.algorithm == name and place >= 4)
              for name in ("warpgroup_tf32", "gemm")]
    assert max(places) < 32
    identity = records.identity_of(problem, hopper, backend.backend("reference"), POLICY)
    for best in places:
        [layer] = judge_model(Measurement(
            identity, order[place][1], ((1 if place == best else 2) * 1e-6,) * 3, 0.1, "", 0, ())
            for place in (0, *places)).layers
        assert (layer.rank, layer.space) == (best + 1, len(order))
        assert [guess.measured for guess in layer.guesses[::2]] == [1, 3]
        assert [guess.ratio for guess in layer.guesses[::2]] == [2.0, 1.0]


def test_policies_are_judged_apart() -> None:
    policy = MeasurementPolicy("hot", "graph")
    hot = {replace(m, identity=replace(m.identity, policy=policy)) for m in FIRST}
    assert len(judge_model(FIRST | hot).layers) == 2


def test_what_cannot_be_judged_is_named() -> None:
    def on(device: str, architecture: str) -> set[Measurement]:
        return {replace(m, identity=replace(m.identity, device=device,
                                            architecture=architecture)) for m in FIRST}

    quality = judge_model(on("mine", "gfx906") | on("h200", "sm_80")
                          | timed("n1c4h2w2_o4k1", {}, refused=(0,)))
    assert quality.layers == ()
    assert len(quality.skipped) == 3
    for message in ("no device is named 'mine'", "the record is of sm_80", "was right"):
        assert message in " ".join(quality.skipped)
    mine = replace(DEVICE, name="mine")
    assert len(judge_model(on("mine", "gfx906"), mine).layers) == 1
