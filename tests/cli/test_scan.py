"""`dscore scan`: the report on a network, from the cost model, without a change."""

import pytest
from cli_calls import Call, unwrapped

import dscore
from dscore.core.token import parse_problem

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def test_a_network_is_reported_layer_by_layer(call: Call):
    result = call("scan", "tiny_networks:gated", "--input", "1x3x32x32", "--device", "h200", "-v")
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert "scale, batch norm, residual before" in next(
        line for line in lines if line.startswith("body.0.block.3.0"))
    assert "dense: no gain is known" in next(line for line in lines if line.startswith("stem.0"))
    assert "6 of 7 convolutions by dscore, plans for h200" in unwrapped(result.out)


def test_its_json_has_the_problems_that_calls_make(json_of):
    data = json_of("scan", "tiny_networks:mobile", "--input", "4x3x20x24", "--device", "h200")
    layers = [layer for layer in data["layers"] if not layer["reason"]]
    assert (data["replaced"], data["left"], data["folded"]) == (4, 1, [""])
    for layer in layers:
        problem = parse_problem(layer["problem"])
        plan = dscore.plan_for(problem, "h200")
        assert (layer["plan"], layer["kind"]) == (plan.tiling.name, problem.spec.kind)
        assert problem.batch == 4
        assert layer["expected_seconds"] == plan.cost.seconds
        assert layer["expected_gain"] > 1
    assert layers[2]["problem"] == "n4c16h10w12_o8k1_bias_residual"


def test_without_folding_layers_are_those_of_training(json_of):
    data = json_of("scan", "tiny_networks:mobile", "--no-fold", "--device", "h200")
    shapes = {layer["problem"].partition("_o")[2] for layer in data["layers"]}
    assert shapes == {"8k3s2p1", "16k1", "16k3p1g16", "8k1"}
    assert data["folded"] == []


def test_what_has_no_graph_is_said(call: Call):
    result = call("scan", "tiny_networks:Branching", "--input", "1x3x32x32")
    assert result.code == 0
    assert "the model has no graph, and runs module by module: TraceError" in unwrapped(result.out)
    assert "plans are for z100sm, as there is no GPU here" in unwrapped(result.out)


@pytest.mark.parametrize(("arguments", "code", "words"), [
    (["mobilenet"], 2, "unknown network 'mobilenet'"),
    (["nowhere_at_all:model"], 3, "nowhere_at_all cannot be imported"),
    (["tiny_networks:nothing"], 2, "has no attribute 'nothing'"),
    (["tiny_networks:CHANNELS"], 2, "is a int, and no factory"),
    (["torch.nn:Linear"], 2, "cannot be called without arguments"),
    (["tiny_networks:mobile", "--input", "1x3xx"], 2, "is no shape"),
    (["tiny_networks:mobile", "--device", "nothing"], 2, "nothing"),
])
def test_what_cannot_be_scanned_is_refused(call: Call, arguments, code, words):
    result = call("scan", *arguments)
    assert result.code == code
    assert words in unwrapped(result.err)


def test_an_input_that_does_not_fit_the_network_is_refused(call: Call):
    result = call("scan", "tiny_networks:mobile", "--input", "1x4x8x8")
    assert result.code == 2
    assert "tiny_networks:mobile cannot be called on 1x4x8x8" in unwrapped(result.err)


def test_a_network_in_int8_is_reported_as_it_would_be_quantised(call: Call, json_of):
    arguments = ("scan", "tiny_networks:mobile", "--input", "2x3x20x24", "--dtype", "int8")
    result = call(*arguments)
    assert result.code == 0, result.err
    assert "convolutions in int8 (plans for" in result.out
    data = json_of(*arguments)
    assert data["quantized"] + data["kept"] == len(data["layers"]) == 5
    assert data["quantized"] >= 3
    for layer in data["layers"]:
        assert bool(layer["reason"]) != ("_int8" in layer["problem"])
    nchw = json_of(*arguments, "--layout", "nchw")
    assert not any("nhwc" in layer["problem"] for layer in nchw["layers"])


@pytest.mark.parametrize("option", [("--device", "h200"), ("--no-fold",),
                                    ("--arithmetic", "winograd")])
def test_a_scan_in_int8_ignores_nothing(call: Call, option):
    result = call("scan", "tiny_networks:mobile", "--dtype", "int8", *option)
    assert result.code == 2
    assert f"leave out {option[0]}" in unwrapped(result.err)
