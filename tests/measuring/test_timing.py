"""How time is measured, on a device that only counts: orders, numbers of launches, medians."""

import weakref
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest

from dscore.core import catalog
from dscore.measuring import floors
from dscore.measuring.clocks import HostClock
from dscore.measuring.timing import (
    Effort,
    NoGraphError,
    Timing,
    device_times,
    eager_times,
    set_count,
)

EFFORT = Effort(turns=3, replay_seconds=1.0, total_seconds=2.5, most_replays=4, fewest_replays=2,
                probe_launches=4, most_launches=64, eager_calls=8, eager_seconds=1.0)


class Device:
    """A device, and a host, on which each launch takes what its subject says."""

    policy = "graph"

    def __init__(self, captures=True):
        self.captures, self.time, self.log, self.replays, self.waits = captures, 0.0, [], [], 0

    def record(self, work):
        if not self.captures:
            raise NoGraphError("no capture")
        self.log = []
        work(7)
        order, self.log = self.log, []
        name = order[0][0]
        assert {subject for subject, _, _ in order} == {name}
        assert {stream for _, _, stream in order} == {7}
        cost = sum(self.costs[name] for _ in order)

        def replay():
            self.replays.append((name, [index for _, index, _ in order]))
            self.time += cost

        return replay

    def repeat(self, work):
        return lambda: work(9)

    def seconds(self, replay):
        before = self.time
        replay()
        return self.time - before

    def synchronize(self):
        self.waits += 1

    def now(self):
        return self.time

    def subjects(self, **costs):
        self.costs = costs
        return [Subject(self, name) for name in costs]


class Subject:
    def __init__(self, device, name):
        self.device, self.name, self.inside = device, name, False

    def launch(self, index, stream):
        assert self.inside
        self.device.log.append((self.name, index, stream))
        self.device.time += self.device.costs[self.name]

    @contextmanager
    def settings(self):
        self.inside = True
        yield
        self.inside = False


def test_subjects_take_turns_in_rotated_orders():
    device = Device()
    device_times(device, device.subjects(a=0.5, b=0.5, c=0.5), 4, EFFORT)
    # A replay to carry the graph there, and two samples.
    assert [name for name, _ in device.replays][6:] == [*"aaabbbccc", *"bbbcccaaa", *"cccaaabbb"]


def test_of_many_subjects_one_graph_is_alive_at_a_time():
    device = Device()
    alive = []

    def counting(work):
        replay = record(work)
        alive[:] = [graph for graph in alive if graph() is not None]
        assert not alive
        alive.append(weakref.ref(replay))
        return replay

    record, device.record = device.record, counting
    device_times(device, device.subjects(a=0.01, b=0.25, c=0.1), 2, EFFORT)
    assert alive


@pytest.mark.parametrize(("policy", "samples"), [
    ("graph", [0.25] * 3), ("host", [0.25] * 3 + [0.375] * 2)])
def test_of_graphs_the_fastest_capture_counts(policy, samples):
    device, captured = Device(), []
    device.policy, record = policy, device.record

    def every_second_is_slower(work):
        captured.append(work)
        right, late = record(work), 0.5 * (len(captured) % 2)  # the probe is the first

        def replay():
            right()
            device.time += late
        return replay

    device.record = every_second_is_slower
    a, = device_times(device, device.subjects(a=0.25), 4, replace(EFFORT, turns=2))
    assert list(a.samples) == pytest.approx(samples)


def test_every_turn_begins_with_launches_outside_of_a_graph():
    device, begun = Device(), []
    record = device.record

    def noted(work):
        begun.append(list(device.log[-2:]))
        return record(work)

    device.record = noted
    device_times(device, device.subjects(a=0.01, b=0.02), 2, EFFORT)
    assert begun == [[(name, 0, 0), (name, 1, 0)] for name in "ababbaab"]


def test_cold_launches_rotate_over_the_sets_in_whole_rounds():
    device = Device()
    a, = device_times(device, device.subjects(a=0.1), 3, EFFORT)
    assert (a.sets, a.launches, a.policy) == (3, 12, "graph")
    assert device.replays[-1] == ("a", [0, 1, 2] * 4)


def test_hot_launches_use_one_set():
    device = Device()
    a, = device_times(device, device.subjects(a=0.125), 1, EFFORT)
    assert device.replays[-1] == ("a", [0] * 8)
    assert a.launches == 8


@pytest.mark.parametrize(("each", "sets", "launches"), [
    (0.5, 1, 2), (5.0, 1, 1),  # fewer than the probe's four
    (0.125, 1, 8), (0.125, 5, 10), (0.001, 1, 64),  # as many as a graph may hold
    (0.001, 40, 40), (10.0, 3, 3),  # never less than a round, nor half of one
    (10.0, 100, 100),
])
def test_the_number_of_launches(each, sets, launches):
    device = Device()
    timing_, = device_times(device, device.subjects(a=each), sets, EFFORT)
    assert timing_.launches == launches
    assert timing_.median == pytest.approx(each)


@pytest.mark.parametrize(("each", "samples"), [(1.0, 3), (0.25, 3), (0.0625, 3), (0.001, 4)])
def test_the_number_of_samples(each, samples):
    device = Device()
    timing_, = device_times(device, device.subjects(a=each), 1, EFFORT)
    assert len(timing_.samples) == samples


def test_without_capture_none_is_captured_and_that_is_said():
    device = Device(captures=False)
    a, b = device_times(device, device.subjects(a=0.5, b=0.25), 2, EFFORT)
    assert (a.policy, b.policy) == ("events", "events")
    assert (a.median, b.median) == (0.5, 0.25)
    assert [index for name, index, stream in device.log[-4:]] == [0, 1, 0, 1]
    assert device.log[-1][2] == 9


def test_one_subject_that_cannot_be_captured_keeps_all_from_it():
    device = Device()
    a, b = device.subjects(a=0.5, b=0.25)
    record = device.record

    def refusing(work):
        replay = record(work)
        if len(device.replays) > 1:  # a was captured and tried
            raise NoGraphError("b allocates")
        return replay

    device.record = refusing
    assert [one.policy for one in device_times(device, [a, b], 1, EFFORT)] == ["events", "events"]


def test_median_and_quartiles():
    samples = (5.0, 1.0, 4.0, 2.0, 3.0)
    found = Timing(samples, 1, 1, "graph")
    assert found.median == 3
    assert found.quartiles == tuple(np.quantile(samples, [0.25, 0.75]))
    assert Timing((2.0,), 1, 1, "host").quartiles == (2.0, 2.0)


def test_eager_calls_alternate_in_batches_between_waits():
    device = Device()
    a, b = eager_times(device, device.subjects(a=0.01, b=0.25), EFFORT)
    assert (a.launches, b.launches) == (8, 4)
    assert (a.median, b.median) == (pytest.approx(0.01), pytest.approx(0.25))
    assert (a.policy, a.sets) == ("eager", 1)
    order = "".join(name for name, _, _ in device.log)
    turns = order[6:]  # after the calls that tell how long one takes
    assert [name for name, _ in groupby(turns)] == [*"abab"]  # ab, ba and ab
    assert {len(list(calls)) % 4 for _, calls in groupby(turns)} == {0}
    assert {index for _, index, _ in device.log} == {0}
    assert device.waits >= 2 * 6


def test_sets_exceed_the_cache_three_times():
    for set_bytes in (1, 7, 1000, 10**6):
        count = set_count(set_bytes, 10_000, 1e12, 10**9)
        assert count * set_bytes > 30_000
        assert count == 2 or (count - 1) * set_bytes <= 30_000
    assert set_count(10, 10_000, 1e12, 50) == 50
    assert set_count(10, 10_000, 250, 4096) == 25
    assert set_count(10, 10_000, 0, 4096) == 2


def test_the_hosts_clock_times_calls():
    clock = HostClock()
    called = []
    assert 0 < clock.seconds(clock.record(called.append)) < 1
    assert called == [0]


def test_floors_are_the_greatest_of_three():
    found = floors.Floors(100.0, 10.0, 0.5, "here")
    assert found.seconds(400, 10) == 4
    assert found.seconds(100, 30) == 3
    assert found.seconds(1, 1) == 0.5


def test_a_floor_is_of_the_elements_own_arithmetic():
    found = floors.Floors(100.0, 10.0, 0.5, "here", {"float16": 1000.0})
    assert [found.seconds(10.0, 100.0, dtype) for dtype in ("float32", "float16")] == [10.0, 0.5]
    assert found.seconds(10.0, 2000.0, "float16") == 2.0


def test_operations_of_a_type_without_a_rate_are_left_out():
    found = floors.Floors(100.0, 10.0, 0.5, "here", {"float16": 1000.0})
    assert (found.rate("int8"), found.seconds(400.0, 1e9, "int8")) == (None, 4.0)


def test_stated_floors_have_the_rates_of_matrix_units():
    found = floors.stated_floors(catalog.device("a100"))
    assert found.by_type == {"float16": 3.12e14, "bfloat16": 3.12e14, "int8": 6.24e14}
    assert floors.stated_floors(catalog.device("z100sm")).by_type == {}


def test_products_of_other_types_are_measured_where_they_are():
    torch = pytest.importorskip("torch")
    a, b = (torch.randn(64, 64) for _ in range(2))
    effort = Effort(turns=1, replay_seconds=0.0, total_seconds=0.0, most_replays=1,
                    fewest_replays=1, probe_launches=1)
    rates = floors._matrix_rates(torch, HostClock(), a, b, effort)
    assert list(rates) == ["float16", "bfloat16", "int8"]
    assert all(1e5 < rate < 1e14 for rate in rates.values())

    class WithoutIntegers:
        def __getattr__(self, name):
            return getattr(torch, name)

        def _int_mm(self, *arguments):
            raise RuntimeError("not here")

    assert list(floors._matrix_rates(WithoutIntegers(), HostClock(), a, b, effort)) == [
        "float16", "bfloat16"]


def test_measured_floors_take_the_faster_copy():
    device = Device()
    subjects = device.subjects(launch=0.001, product=2.0, slow=4.0, fast=2.0)
    found = floors.measured_floors(device, subjects, 100, 50.0, EFFORT)
    assert (found.bytes_per_second, found.flops_per_second) == (100.0, 25.0)
    assert found.launch_seconds == pytest.approx(0.001)


def test_the_hosts_floors():
    found = floors.host_floors(HostClock(), Effort(1, 0.0, 0.0, 3, 3, 1))
    assert 1e8 < found.bytes_per_second < 1e13
    assert 1e8 < found.flops_per_second < 1e14
    assert 0 < found.launch_seconds < 1e-3
