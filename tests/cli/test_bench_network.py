"""`dscore bench --network`: whole networks beside PyTorch, and the ablation, on the host."""

import pytest
from cli_calls import Call, unwrapped

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dscore.backends.hip import HipBackend  # noqa: E402
from dscore.bench import network_methods  # noqa: E402
from dscore.bench.ablation import VARIANTS  # noqa: E402
from dscore.bench.network_rows import NetworkRow, Quantity  # noqa: E402
from dscore.cli.show.network import remarks  # noqa: E402

SMALL = ("--network", "tiny_networks:gated", "--batch", "2", "--input", "1x3x12x12",
         "--backend", "reference")


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.deep
def test_both_tasks_are_checked_and_timed(json_of, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    data = json_of("bench", *SMALL, "--task", "inference,training", "--ways",
                   "default,channels_last", "--plot", tmp_path / "pictures")
    rows = {(row["task"], row["method"]): row for row in data["rows"]}
    assert list(rows) == [(task, method) for task in ("inference", "training")
                          for method in ("dscore", "default", "channels_last")]
    for row in rows.values():
        assert (row["batch"], row["fault"]) == (2, "")
        assert 0 <= row["error"] < 1e-4
        for what in ("device", "wall"):
            assert 0 < row[what]["low"] <= row[what]["median"] <= row[what]["high"]
    for method in ("dscore", "default"):
        shares = rows["inference", method]["shares"]
        assert set(shares) == {"dense", "depthwise", "pointwise", "other"}
        assert sum(shares.values()) == pytest.approx(1)
    assert data["host_time"] is True
    assert "6 of 7 convolutions by dscore" in rows["inference", "dscore"]["note"]
    assert len(list((tmp_path / "pictures").glob("networks_*.svg"))) == 4


def test_the_table_sets_dscore_beside_each_way(call: Call):
    result = call("bench", *SMALL, "--ways", "default", "-v")
    assert result.code == 0, result.err
    ours, theirs = (next(line for line in result.out.splitlines() if f" {method} " in line
                         and line.startswith("tiny"))
                    for method in ("dscore", "default"))
    assert ours.endswith("right")
    assert theirs.endswith("right")
    assert "times as fast as the best of PyTorch's ways (default) by wall time" in unwrapped(
        result.out)
    assert "say nothing of a GPU" in unwrapped(result.out)


@pytest.mark.deep
def test_the_ablation_has_four_variants_of_layers_and_network(json_of, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    data = json_of("bench", *SMALL, "--ablation", "--plot", tmp_path)
    assert [row["variant"] for row in data["ablation"]] == list(VARIANTS)
    assert all(row[what]["median"] > 0 for row in data["ablation"] for what in ("layers", "whole"))
    assert [path.name for path in tmp_path.iterdir()] == ["ablation_batch_2.svg"]


def test_variants_replace_the_kinds_that_they_name():
    setup = network_methods.Setup(__import__("tiny_networks").gated().eval(),
                                  (torch.randn(1, 3, 12, 12),), "reference", False,
                                  VARIANTS["only depthwise"])
    _, report = network_methods.inference(setup, "dscore")
    assert {layer.kind for layer in report.replaced} == {"depthwise"}
    assert {layer.reason for layer in report.left if layer.kind == "pointwise"} == {
        "pointwise: was not asked for"}


def test_layers_are_chosen_under_the_settings_that_networks_are_timed_with(monkeypatch):
    seen = []

    def accelerated(model, arguments, **options):
        seen.append((torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark))

    monkeypatch.setattr(network_methods, "accelerate", accelerated)
    before = torch.backends.cudnn.allow_tf32
    setup = network_methods.Setup(__import__("tiny_networks").gated(),
                                  (torch.randn(1, 3, 12, 12),), "reference", False)
    for make in (network_methods.inference, network_methods.training):
        make(setup, "dscore")
    assert seen == [(False, True)] * 2
    assert torch.backends.cudnn.allow_tf32 == before


def test_a_wrong_network_is_not_timed_and_ends_with_1(json_of, monkeypatch):
    monkeypatch.setattr(network_methods, "relative_error", lambda result, reference: 2e-4)
    data = json_of("bench", *SMALL, "--ways", "default", code=1)
    assert [(row["fault"], row["device"]) for row in data["rows"]] == [("wrong", None)] * 2
    assert "2.0e-04 of the result, more than 1e-04" in data["rows"][0]["note"]


@pytest.mark.deep
def test_a_way_that_does_not_run_is_said(json_of, monkeypatch):
    def refused(model, **options):
        raise RuntimeError("no compiler here\nat all")

    monkeypatch.setattr(torch, "compile", refused)
    data = json_of("bench", *SMALL, "--ways", "compile")
    assert [(row["method"], row["fault"]) for row in data["rows"]] == [
        ("dscore", ""), ("dscore_compile", "not run"), ("compile", "not run")]
    assert data["rows"][1]["note"] == "no compiler here"


@pytest.mark.deep
def test_what_the_compiler_makes_of_dscores_layers_must_be_right(json_of, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda model, **options: lambda x: model(2 * x))
    data = json_of("bench", *SMALL, "--ways", "compile", code=1)
    assert [row["fault"] for row in data["rows"]] == ["", "wrong", "wrong"]


@pytest.mark.parametrize(("times", "words"), [
    ((5, 4, 6, 8), "dscore_compile is 1.50 times as fast as the best of PyTorch's ways (default)"),
    ((3, 4, 8, 6), "dscore is 2.00 times as fast as the best of PyTorch's ways (compile)")])
def test_the_best_of_dscore_stands_beside_the_best_of_pytorch(times, words):
    rows = [NetworkRow("net", "training", 1, method, Quantity(time, time, time, "graph"))
            for method, time in zip(("dscore", "dscore_compile", "default", "compile"), times,
                                    strict=True)]
    assert any(words in line for line in remarks(rows))


@pytest.mark.parametrize(("result", "error"), [
    ([1.0, 2.0], 0.0), ([1.0, 2.5], 0.25), ([1.0, float("nan")], float("inf"))])
def test_errors_are_of_the_largest_value(result, error):
    assert network_methods.relative_error(
        torch.tensor(result), torch.tensor([1.0, 2.0]).double()) == pytest.approx(error)


@pytest.mark.parametrize(("arguments", "words"), [
    (["P13", *SMALL], "leave out layers"),
    ([*SMALL, "--out", "rows.csv"], "leave out --out"),
    ([*SMALL, "--ways", "fastest"], "--ways must be one of"),
    ([*SMALL, "--input", "3x12x12"], "not the shape of one batch of images"),
    (["--network", "nothing", *SMALL[2:]], "unknown network 'nothing'"),
    (["P13", "--ablation"], "name --network"),
    ([*SMALL, "--batch", "0"], "--batch"),
])
def test_what_cannot_be_compared_is_refused(call: Call, arguments, words):
    result = call("bench", *arguments)
    assert result.code == 2
    assert words in unwrapped(result.err)


def test_without_a_gpu_the_way_out_is_named(call: Call, monkeypatch):
    monkeypatch.setattr(HipBackend, "missing", lambda self: "no GPU is here")
    result = call("bench", "--network", "tiny_networks:gated")
    assert result.code == 3
    assert "dscore scan NETWORK --device h200" in unwrapped(result.err)


@pytest.mark.deep
def test_a_network_in_int8_stands_beside_float16(json_of):
    data = json_of("bench", *SMALL, "--dtype", "int8", "--ways", "default")
    rows = {row["method"]: row for row in data["rows"]}
    assert list(rows) == ["dscore", "dscore_float16", "default"]
    assert not any(row["fault"] for row in rows.values())
    assert rows["dscore"]["error"] > rows["dscore_float16"]["error"] > 0
    assert 0 <= rows["dscore"]["agreement"] <= 1
    assert rows["dscore"]["device"]["median"] > 0
    assert "convolutions in int8" in rows["dscore"]["note"]
    assert "top-1 is that of float64 on" in rows["dscore"]["note"]


@pytest.mark.deep
def test_a_network_in_int8_that_is_far_off_is_wrong(json_of, monkeypatch):
    monkeypatch.setattr(network_methods, "relative_error",
                        lambda result, reference: 0.6 if result.dtype == torch.float16 else 0.0)
    data = json_of("bench", *SMALL, "--dtype", "int8", "--ways", "default", code=1)
    assert [row["fault"] for row in data["rows"]] == ["wrong"] * 3
    assert "more than 5e-01" in data["rows"][0]["note"]
    assert "more than 3e-02" in data["rows"][1]["note"]


@pytest.mark.parametrize("option", ["--task training", "--ablation"])
def test_a_network_in_int8_has_no_training_and_no_variants(call: Call, option):
    result = call("bench", *SMALL, "--dtype", "int8", *option.split())
    assert result.code == 2
    assert f"{option} is of floats" in unwrapped(result.err)


def test_steps_of_training_are_timed_alone(json_of):
    data = json_of("bench", *SMALL, "--task", "training", "--ways", "default")
    assert [(row["task"], row["method"], row["fault"]) for row in data["rows"]] == [
        ("training", "dscore", ""), ("training", "default", "")]


@pytest.mark.parametrize("task", ["", ",", "inference,sleeping"])
def test_tasks_that_there_are_not_are_refused(call: Call, task):
    result = call("bench", *SMALL, "--task", task)
    assert result.code == 2
    assert "--task must be one of inference, training; got" in unwrapped(result.err)
