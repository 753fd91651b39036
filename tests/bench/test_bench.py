"""Comparisons: their statistics, their file, what is timed, and what is measured again."""

import csv
import io
from dataclasses import replace

import pytest
from faulty_backends import Wrong
from tuning_backends import Scripted

from dscore import api
from dscore.backends.emulated import EmulatedBackend
from dscore.bench.rows import Row, append_rows, read_rows
from dscore.bench.run import Bench, Comparison, bench, measure
from dscore.bench.summary import layer_results, summaries
from dscore.core import catalog
from dscore.core.errors import SpecError
from dscore.core.text import geomean
from dscore.core.token import parse_problem
from dscore.ops import compulsory_bytes
from dscore.solving import solver
from dscore.tuning import tune

POINTWISE, DEPTHWISE = "n1c8h5w7_o16k1", "n1c8h5w6_o8k3s2p0x1x1x1g8_bias_relu6"
HOT = dict(backend="reference", ways=(), caches=("hot",))


def row(layer, method, microseconds, **changes):
    whole = Row("depthwise", layer, 1, method, "cold", microseconds, microseconds, microseconds,
                1000, 2000, 2.0, microseconds is not None, problem=f"token_{layer}")
    return replace(whole, **changes)


def asked(*layers, **options):
    return Comparison(tuple(found for text in layers for found in catalog.find(text)),
                      **{**HOT, **options})


# what it comes to

ROWS = [row("D1", "dscore", 2.0), row("D1", "default", 8.0), row("D1", "channels_last", 4.0),
        row("D2", "dscore", 8.0), row("D2", "default", 16.0), row("D2", "channels_last", 4.0),
        row("D3", "dscore", 4.0), row("D3", "default", 2.0), row("D3", "default_tf32", 0.1)]


def test_geometric_means_losses_best_and_worst():
    one, = summaries(layer_results(ROWS))
    assert (one.kind, one.batch, one.cache, one.layers) == ("depthwise", 1, "cold", 3)
    assert one.over_default.geomean == pytest.approx((4 * 2 * 0.5) ** (1 / 3))
    assert one.over_default.lost == (("D3", 0.5),)
    assert (one.over_default.best, one.over_default.worst) == (("D1", 4.0), ("D3", 0.5))
    assert one.over_best.geomean == pytest.approx((2 * 0.5 * 0.5) ** (1 / 3))
    assert one.over_best.lost == (("D2", 0.5), ("D3", 0.5))
    assert one.over_floor == pytest.approx((1 * 4 * 2) ** (1 / 3))
    assert one.ours_microseconds == pytest.approx(14 / 3)
    assert one.default_microseconds == pytest.approx(26 / 3)
    assert one.best_microseconds == pytest.approx(10 / 3)
    assert geomean([2.0, 8.0]) == pytest.approx(4)


def test_what_was_not_timed_is_named_and_not_averaged():
    rows = [*ROWS, row("D4", "dscore", None, fault="wrong"), row("D4", "default", 1.0),
            row("D5", "dscore", 1.0), row("D5", "default", None, fault="wrong")]
    one, = summaries(layer_results(rows))
    assert one.failed == ("D4",)
    assert one.layers == 5
    assert one.over_default.layers == 3
    assert one.over_floor == pytest.approx((1 * 4 * 2 * 0.5) ** (1 / 4))


def test_kinds_batches_and_states_of_the_cache_stand_apart():
    rows = [row("D1", "dscore", 1.0), row("D1", "dscore", 1.0, batch=8, problem="n8"),
            row("D1", "dscore", 1.0, cache="hot"), row("P1", "dscore", 1.0, kind="pointwise")]
    assert len(summaries(layer_results(rows))) == 4
    assert all(one.over_default is None for one in summaries(layer_results(rows)))


# its file

def test_rows_come_back_as_they_were(tmp_path):
    path = tmp_path / "rows.csv"
    # Of nanoseconds; a digit less, and a table would have 865.5 in place of 865.4.
    rows = [row("D1", "dscore", 865.4499999999999, note='a "quoted", word', share=0.5),
            row("D1", "x", None)]
    append_rows(path, rows[:1])
    append_rows(path, rows[1:])
    assert list(read_rows(path).values()) == rows
    assert read_rows(tmp_path / "absent.csv") == {}


@pytest.mark.parametrize("cut", [1, 5, 60])
def test_a_line_cut_off_by_a_kill_is_left_out_and_replaced(tmp_path, cut):
    path = tmp_path / "rows.csv"
    append_rows(path, ROWS[:2])
    path.write_bytes(path.read_bytes()[:-cut])
    assert list(read_rows(path).values()) == ROWS[:1]
    append_rows(path, ROWS[2:4])
    assert list(read_rows(path).values()) == [ROWS[0], *ROWS[2:4]]


def test_the_latest_row_of_a_key_counts(tmp_path):
    path = tmp_path / "rows.csv"
    append_rows(path, [ROWS[0], replace(ROWS[0], microseconds=9.0)])
    assert [found.microseconds for found in read_rows(path).values()] == [9.0]


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "kind\n"])
def test_another_file_is_refused(tmp_path, text):
    path = tmp_path / "other.csv"
    path.write_text(text)
    with pytest.raises(SpecError, match="not a file of dscore bench"):
        read_rows(path)


def test_a_damaged_line_is_named(tmp_path):
    path = tmp_path / "rows.csv"
    append_rows(path, ROWS[:2])
    path.write_text(path.read_text().replace(",True,", ",perhaps,", 1))
    with pytest.raises(SpecError, match="line 2 is no measurement"):
        read_rows(path)


@pytest.mark.parametrize(("field", "values"), [
    ("fault", ["hot", "x", " x ", "Wrong"]), ("share", ["nan", "-1", "-inf"]),
    *((field, ["nan", "inf", "-inf", "0", "-0.0", "-1", "1e308", "1e-320", "9" * 400])
      for field in ("microseconds", "low", "high", "floor_microseconds")),
    *((field, ["-1", "9" * 400, "9" * 5000])
      for field in ("batch", "bytes", "flops", "sets", "launches", "samples"))])
def test_what_no_measurement_holds_is_refused(tmp_path, field, values):
    path = tmp_path / "rows.csv"
    for value in values:
        append_rows(path, [replace(ROWS[0], **{field: value})])
        with pytest.raises(SpecError, match="line 2 is no measurement") as refused:
            read_rows(path)
        assert len(str(refused.value)) < 1000
        path.unlink()


# who is timed

def test_every_layer_at_every_batch_in_every_state():
    rows = bench(asked(POINTWISE, DEPTHWISE, batches=(1, 2), caches=("hot", "cold", "eager")))
    assert len(rows) == 2 * 2 * 3
    assert {(one.batch, one.cache) for one in rows} == {
        (batch, cache) for batch in (1, 2) for cache in ("hot", "cold", "eager")}
    for one in rows:
        assert one.correct
        assert 0 < one.low <= one.microseconds <= one.high
        assert one.bytes == compulsory_bytes(parse_problem(one.problem))
        assert one.sets == (8 if one.cache == "cold" else 1)
        assert one.policy == ("eager" if one.cache == "eager" else "host")
        assert 0 < one.floor_microseconds < one.microseconds


class Counting(Wrong):
    ran = 0

    def act(self, out):
        type(self).ran += 1
        super().act(out)


def test_a_wrong_kernel_is_never_timed():
    Counting.ran = 0
    run = Bench(asked(POINTWISE, caches=("hot", "cold", "eager")))
    run.backend = Counting()
    found = run.rows(run.cases[0])
    assert Counting.ran == 1
    assert [(one.microseconds, one.correct, one.fault) for one in found] == [
        (None, False, "wrong")] * 3
    assert "times the bound" in found[0].note


@pytest.mark.parametrize(("backend", "fault"), [
    ("faulty_backends:Unwritten", "wrong"), ("faulty_backends:NotLaunched", "not run"),
    ("faulty_backends:NotCompiled", "not compiled")])
def test_every_fault_is_told(backend, fault):
    found, = bench(asked(POINTWISE, backend=backend))
    assert (found.fault, found.microseconds) == (fault, None)
    assert found.note


def test_a_kernel_that_writes_beside_its_output_is_not_timed():
    class Scribbling(Wrong):
        def act(self, out):
            out.base[-1] = 0

    run = Bench(asked(POINTWISE))
    run.backend = Scribbling()
    assert "outside its output" in run.rows(run.cases[0])[0].note


# resumption

def test_what_a_file_holds_is_not_measured_again(tmp_path):
    path, begun = tmp_path / "rows.csv", []
    first = bench(asked(POINTWISE, DEPTHWISE), path, begun.append)
    again = bench(asked(POINTWISE, DEPTHWISE), path, begun.append)
    assert [one.key for one in first] == [one.key for one in again]
    assert begun == [f"{POINTWISE} batch 1", f"{DEPTHWISE} batch 1"]
    assert [one.microseconds for one in again] == pytest.approx(
        [one.microseconds for one in first])


def test_a_killed_run_goes_on_where_it_stopped(tmp_path):
    path, begun = tmp_path / "rows.csv", []
    bench(asked(POINTWISE, DEPTHWISE, caches=("hot", "eager")), path)
    path.write_bytes(path.read_bytes()[:-30])
    found = bench(asked(POINTWISE, DEPTHWISE, caches=("hot", "eager")), path, begun.append)
    assert begun == [f"{DEPTHWISE} batch 1"]  # whole: its rows were side by side
    assert len(found) == 4
    assert len(read_rows(path)) == 4


def test_a_kernel_that_did_not_run_is_tried_again(tmp_path):
    path, begun = tmp_path / "rows.csv", []
    for backend in ("NotLaunched", "NotLaunched", "Unwritten", "Unwritten"):
        bench(asked(POINTWISE, backend=f"faulty_backends:{backend}"), path, begun.append)
    # Both are named faulty: the third finds what was not run, the fourth what is wrong.
    assert len(begun) == 3


def test_another_plan_is_measured_anew(tmp_path):
    path, begun = tmp_path / "rows.csv", []
    bench(asked(POINTWISE), path)
    space = api.solve(POINTWISE)
    tiling = space[int(space.ranked()[-1])]
    bench(asked(POINTWISE, planner=lambda problem, device: api.plan_for(
        problem, device, tiling=tiling)), path, begun.append)
    assert len(begun) == 1
    assert len(read_rows(path)) == 2


def test_rows_are_kept_as_they_are_measured(tmp_path):
    path = tmp_path / "rows.csv"

    def begin(what):
        if what.startswith(DEPTHWISE):
            raise KeyboardInterrupt

    run = Bench(asked(POINTWISE, DEPTHWISE))
    with pytest.raises(KeyboardInterrupt):
        measure(run, {}, path, begin)
    assert [one.layer for one in read_rows(path).values()] == [POINTWISE]
    assert len(list(csv.reader(io.StringIO(path.read_text())))) == 2


def test_a_header_in_a_folder_of_the_sources_tells_runs_apart(tmp_path):
    (tmp_path / "gemm").mkdir()
    run, versions = Bench(asked(POINTWISE)), set()
    for text in ("// one", "// another"):
        (tmp_path / "gemm" / "kernel.hpp").write_text(text)
        run.backend = EmulatedBackend(include=tmp_path)
        versions.add(run._versions())
        assert f"kernels {run.backend.identity('').kernels[:8]}, backend" in run._versions()
    assert len(versions) == 2


def test_what_was_tuned_here_is_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path))
    compared = asked(POINTWISE, backend="tuning_backends:Scripted")
    run = Bench(compared)
    untuned = run.plan(run.cases[0])
    assert untuned == api.plan_for(POINTWISE, run.device)
    monkeypatch.setattr(Scripted, "roles", {untuned.tiling.name: "wrong"})
    tuned = tune.tune(parse_problem(POINTWISE), backend=compared.backend, top=3).best.tiling
    again = Bench(compared)
    assert again.plan(again.cases[0]).tiling == tuned != untuned.tiling


def test_a_plan_whose_kernel_spills_is_that_of_a_call(monkeypatch):
    backend = "tuning_backends:Scripted"
    run = Bench(asked(POINTWISE, backend=backend))
    case, = run.cases
    first = run.plan(case)
    monkeypatch.setattr(Scripted, "roles", {first.tiling.name: "spills"})
    run.prepare(run.cases)
    taken = run.plan(case)
    assert taken.tiling != first.tiling
    assert run.backend.compile(taken).use.spills == 0
    row, = run.rows(case)
    assert (row.plan, row.key) == (taken.name, run.keys(case)[0])
    named = Bench(asked(POINTWISE, backend=backend, planner=solver.best_plan))
    named.prepare(named.cases)
    assert named.plan(case).tiling == first.tiling
