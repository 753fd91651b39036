"""The cost model of the DCU, held to what Liu et al. 2024 measured on a Z100SM."""

import numpy as np
import pytest
from dcu_fit import (
    WEIGHTS,
    Z100SM,
    Pointwise,
    figures,
    fit_depthwise,
    left_out,
    shipped_depthwise,
    shipped_pointwise,
    timings,
)

from dscore.algorithms.registry import algorithm, case_of, tiling_from
from dscore.core import catalog
from dscore.core.catalog import event_launch_seconds
from dscore.ops import compulsory_bytes
from dscore.solving.cost import cost
from dscore.solving.solver import solve

OWN = catalog.weights("z100sm")


@pytest.fixture(scope="module")
def pointwise():
    return Pointwise.of(timings("pointwise"))


@pytest.mark.deep
def test_depthwise_weights_are_the_fits():
    measured = timings("depthwise")
    launch, memory = fit_depthwise(measured)
    assert launch == pytest.approx(event_launch_seconds("z100sm"), rel=0.002)
    assert memory == pytest.approx(OWN["row_reuse"]["memory"], rel=0.002)
    judged = figures(measured, shipped_depthwise(measured))
    assert (round(judged.correlation, 3), round(judged.spread, 2)) == (0.987, 0.11)


def test_depthwise_layers_left_out_are_predicted():
    measured, predicted = timings("depthwise"), np.empty(75)
    for rows in left_out([one.layer for one in measured]):
        launch, memory = fit_depthwise([measured[at] for at in np.flatnonzero(~rows)])
        for at in np.flatnonzero(rows):
            predicted[at] = launch + memory * compulsory_bytes(
                measured[at].problem) / Z100SM.bandwidth
    judged = figures(measured, predicted)
    assert judged.correlation > 0.98
    assert judged.spread < 0.12


def test_pointwise_times_and_winners_are_predicted(pointwise):
    judged = figures(pointwise.measured, *shipped_pointwise(pointwise.measured))
    assert judged.correlation > 0.97
    assert judged.spread < 0.14
    assert judged.first > 0.8


def test_the_fit_predicts_as_the_solver_does(pointwise):
    own = OWN["channel_distribution"]
    launch = event_launch_seconds("z100sm") + own["first"] / Z100SM.clock_hz
    logs = np.log([*(own[name] for name in WEIGHTS), launch])
    seconds, _ = pointwise.predict(logs, own["memory"])
    solved, ranks = shipped_pointwise(pointwise.measured)
    np.testing.assert_allclose(seconds[pointwise.winners], solved, rtol=1e-12)
    assert np.abs(pointwise.ranks(seconds) - ranks).max() <= 6  # tilings of equal estimates


def test_pointwise_weights_are_the_fits(pointwise):
    own = OWN["channel_distribution"]
    fitted = np.exp(pointwise.fit(own["memory"], np.ones(len(pointwise.measured), bool)))
    assert fitted[:-1] == pytest.approx([own[name] for name in WEIGHTS], rel=0.01)
    first = own["first"] / Z100SM.clock_hz
    assert fitted[-1] == pytest.approx(event_launch_seconds("z100sm") + first, rel=0.002)


@pytest.mark.deep
def test_pointwise_layers_left_out_are_predicted(pointwise):
    """A fifth of the layers at a time, where `dcu_fit.py` leaves out one after the other."""
    names = [one.layer for one in pointwise.measured]
    layers, memory = list(dict.fromkeys(names)), OWN["channel_distribution"]["memory"]
    predicted, ranks = np.empty(len(names)), np.empty(len(names))
    for fold in range(5):
        rows = np.isin(names, layers[fold::5])
        seconds, _ = pointwise.predict(pointwise.fit(memory, ~rows), memory)
        predicted[rows] = seconds[pointwise.winners][rows]
        ranks[rows] = pointwise.ranks(seconds)[rows]
    judged = figures(pointwise.measured, predicted, ranks)
    assert judged.correlation > 0.97
    assert judged.spread < 0.15
    assert judged.first > 0.75


def test_other_devices_keep_the_weights_of_all():
    problem = catalog.layers()["P13"]
    tiling = tiling_from({"wave_w": 7, "wave_c": 16, "repeat_w": 1, "repeat_c": 4, "group_c": 8})
    for name, device in catalog.devices().items():
        case = case_of(problem, device, tiling)
        for one in ("gemm", "row_reuse", "channel_distribution"):
            own = catalog.weights(name).get(one, {})
            assert bool(own) == (name == "z100sm" and one != "gemm")
            assert set(algorithm(one).weights) >= set(own) or not algorithm(one).weights
        # Without weights it is estimated without a fit.
        assert (case.algorithm.work(case, 1.0) is None) == (name != "z100sm")


def test_a_launch_by_events_is_no_floor():
    plan = solve(catalog.layers()["D5"], Z100SM).plan(0)
    launch = event_launch_seconds("z100sm")
    assert plan.cost.seconds > launch
    assert Z100SM.floor_seconds(0, 0, None) < launch
    case = case_of(plan.problem, Z100SM, plan.tiling, plan.block_n)
    assert float(cost(case, plan.block_n).seconds) == plan.cost.seconds
