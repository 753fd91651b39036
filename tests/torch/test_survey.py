"""What dscore is to compute of a model: problems, kernels of training, what was measured."""

import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from dscore.core.errors import SpecError, UnavailableError
from dscore.core.token import parse_problem, problem_token
from dscore.measuring.clocks import HostClock
from dscore.measuring.timing import Effort, Timing

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tiny_networks  # noqa: E402
from accelerated_models import X, accelerated, assert_exact, model_of, program_of  # noqa: E402
from torch import nn  # noqa: E402

import dscore.torch  # noqa: E402
from dscore.calling import convolve  # noqa: E402
from dscore.calling.call_cache import CALLS  # noqa: E402
from dscore.torch import functional, gains  # noqa: E402
from dscore.torch.accelerate import _alike  # noqa: E402
from dscore.torch.gains import measured, ways  # noqa: E402
from dscore.torch.report import OVER_DEFAULT, report_on  # noqa: E402
from dscore.torch.setting import Setting  # noqa: E402
from dscore.torch.survey import Survey  # noqa: E402

# The module; its package has the function of that name.
acceleration = sys.modules["dscore.torch.accelerate"]


def test_kernels_of_training_are_prepared_in_train_mode():
    evaluated, trained = (dscore.torch.accelerate(model, X, backend="reference").layers
                          for model in (model_of(), model_of().train()))
    assert evaluated == trained
    survey = Survey(model_of(), (X,), Setting("reference").plan_of)
    tokens = list(map(problem_token, survey.training_problems()))
    assert tokens[:3] == ["n2c8h6w5_o16k1", "input_gradient_n2c8h6w5_o16k1",
                          "weight_gradient_n2c8h6w5_o16k1"]
    assert len(tokens) == 3 * len(evaluated[1:])


def test_kernels_of_training_are_built_with_those_that_are_measured(monkeypatch):
    batches = []
    monkeypatch.setattr(Setting, "prepare", lambda self, problems: batches.append({*problems}))
    monkeypatch.setattr(acceleration, "device_of",
                        lambda model: SimpleNamespace(type="cuda", index=0))
    monkeypatch.setattr(acceleration, "measured", lambda problems, device, backend: dict.fromkeys(
        problems, (1e-6, 2e-6)))
    dscore.torch.accelerate(model_of().train(), X, measure=True, backend="reference")
    first, last = batches
    assert {problem.operation for problem in first} == {
        "conv", "mean", "input_gradient", "weight_gradient"}
    assert first == last, "nothing is left to be built after the measurements"


def test_what_pytorch_computes_faster_is_left_to_it():
    survey = Survey(model_of(tiny_networks.BasicBlock), (X,), Setting("reference").plan_of)
    projection, last = survey.problems
    survey.judge({projection: (2e-6, 1e-6), last: (1e-6, 3e-6)})
    report = report_on(survey, Setting("reference"))
    assert [layer.name for layer in report.replaced] == ["body.1.0"]
    assert report.replaced[0].gain == pytest.approx(3)
    reasons = {layer.name: layer.reason for layer in report.left}
    assert reasons["body.0.projection.0"] == "PyTorch's is faster: 1.00 µs, dscore's 2.00"
    assert survey.calls[2].folded == ("batch norm",)


@pytest.mark.parametrize("kind", ["depthwise", "pointwise"])
def test_expected_gains_are_those_of_the_readme(kind):
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in readme
            if line.startswith("|")]
    heads = next(row for row in rows if row[0] == "layers")[2:]
    figures = next(row for row in rows if row[:2] == [kind, "over PyTorch's default"])[2:]
    batches = [int(head.removeprefix("batch ")) for head in heads]
    assert OVER_DEFAULT["h200"][kind] == dict(zip(batches, map(float, figures), strict=True))


def test_layers_are_measured_in_turns_on_the_same_data():
    problem = parse_problem("n2c8h6w5_o8k1_bias_relu6_scaled_residual")
    seconds = measured([problem, problem], torch.device("cpu"), HostClock(), "reference",
                       Effort(turns=1, replay_seconds=0, most_replays=1, fewest_replays=1))
    assert list(seconds) == [problem]
    assert all(0 < time < 10 for time in seconds[problem])
    ours, theirs = ways(problem, torch.device("cpu"), "reference")
    with ours.settings():
        ours.launch(0, 0)
        theirs.launch(0, 0)
    assert torch.allclose(ours.result, theirs.result, rtol=1e-4, atol=1e-5)


def test_a_gpu_is_locked_around_each_measurement_and_no_longer(monkeypatch):
    events = []

    @contextmanager
    def lock(gpu):
        events.append(gpu)
        yield
        events.append("free")

    def timed(*_):
        events.append("timed")
        return [Timing((1.0,), 1, 1, "host")] * 2

    monkeypatch.setattr(gains, "slot_of", lambda torch, index: f"gpu {index}")
    monkeypatch.setattr(gains, "gpu_lock", lock)
    monkeypatch.setattr(gains, "TorchClock", lambda torch, index: HostClock())
    monkeypatch.setattr(gains, "device_times", timed)
    problems = [parse_problem(f"n1c{channels}h4w4_o8k1") for channels in (8, 16)]
    measured(problems, torch.device("cpu"), backend="reference")
    assert events == ["gpu 0", "timed", "free"] * 2


def test_measuring_needs_a_gpu():
    with pytest.raises(UnavailableError, match="the model lies on cpu"):
        dscore.torch.accelerate(model_of(), X, measure=True)


class _Remembered(dict):
    """Remembered calls that take no arrays, and note the operands that they are given."""

    def __init__(self):
        super().__init__()
        self.keys_looked_up, self.operands = [], []

    def get(self, key, default):
        self.keys_looked_up.append(key)
        return lambda *operands: self.operands.append(operands)


def test_eager_calls_are_found_where_conv2d_finds_them(monkeypatch):
    remembered, keys = _Remembered(), []
    monkeypatch.setattr(CALLS, "fast", remembered)
    monkeypatch.setattr(functional, "_fast_call", keys.append)
    model = accelerated(tiny_networks.GatedResidual, backend="reference")
    layers = [one for one in program_of(model).layers if not one.reason]
    assert_exact(model)  # the second call, of which a linked program would be made
    remembered.keys_looked_up.clear()
    remembered.operands.clear()
    keys.clear()
    assert_exact(model)
    *keys, _ = keys  # the last of the linear layer, which calls conv2d itself
    assert remembered.keys_looked_up == keys
    assert len(set(keys)) == len(layers) == 6
    for layer, (_, weight, bias, *further, out) in zip(layers, remembered.operands, strict=True):
        assert (weight is layer.weight, bias is layer.bias, out) == (True, True, None)
        assert len(further) == layer.residual + layer.scaled


def test_winograds_algorithm_is_permitted_where_it_is_asked_for(monkeypatch):
    problems = []
    run = convolve.run
    monkeypatch.setattr(convolve, "run", lambda call: problems.append(call.problem) or run(call))
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 8, 1)).eval()
    x = torch.zeros(1, 3, 6, 6)
    report = dscore.torch.accelerate(model, x, backend="reference", arithmetic="winograd",
                                     kinds=("dense", "pointwise"))
    tokens = ["n1c3h6w6_o4k3_bias_relu_winograd", "n1c4h4w4_o8k1_bias"]
    assert [layer.problem for layer in report.layers] == tokens
    with torch.no_grad():
        model(x)
    model.train()(x)
    expected = [*tokens, tokens[0].replace("_relu", ""), tokens[1]]
    assert [problem_token(problem) for problem in problems[-4:]] == expected
    dscore.torch.restore(model)
    assert "arithmetic" not in vars(model[0])
    with pytest.raises(SpecError, match="arithmetic must be one of sum, winograd"):
        dscore.torch.scan(model, x, arithmetic="plain")


@pytest.mark.parametrize(("dtype", "most"), [("float32", 0.02), ("float16", 0.06),
                                             ("bfloat16", 0.4)])
def test_results_of_a_folded_model_may_differ_as_their_type_rounds(dtype, most):
    plain = torch.tensor([1.0, -0.5, 0.25], dtype=getattr(torch, dtype))
    off = torch.tensor([0.0, 0.0, most], dtype=plain.dtype)
    assert _alike(plain + 0.9 * off, plain)
    assert not _alike(plain + 1.1 * off, plain)
