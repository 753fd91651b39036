"""PyTorch's ways to convolve: right, with the settings as they were, and never timed when wrong."""

import numpy as np
import pytest

from dscore.bench.run import Comparison, bench
from dscore.bench.torch_methods import TorchSubject, ways_for
from dscore.checking import bound
from dscore.checking.rounding import Rounding
from dscore.core import catalog
from dscore.core.token import parse_problem

DEPTHWISE = "n1c8h5w6_o8k3s2p0x1x1x1g8_bias_relu6"
CASES = ["n1c8h5w7_o16k1", DEPTHWISE, "n2c6h9w7_o12k3d2g3_silu", "n3c4h6w5_o8k1_bias_hardswish",
         "n2c3h8w8_o5k3p1", "n1c4h5w5_o4k1s2_relu"]


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.mark.parametrize("token", CASES)
def test_every_way_is_right_and_leaves_the_settings(torch, token):
    problem = parse_problem(token)
    arrays = bound.sample(problem, 3)
    wanted = bound.expected(problem, *arrays)
    before = torch.backends.cudnn.enabled, torch.backends.cudnn.allow_tf32
    for way in ways_for(problem, tf32=True):
        subject = TorchSubject(torch, way, problem, [arrays] * 2)
        with subject.settings():
            assert torch.backends.cudnn.enabled == (way != "native")
            assert torch.backends.cudnn.allow_tf32 == way.endswith("_tf32")
            subject.launch(1, 0)
        assert subject.results[0] is None
        assert bound.compare(subject.results[1].numpy(), wanted).ok, way
    assert before == (torch.backends.cudnn.enabled, torch.backends.cudnn.allow_tf32)
    assert ("matmul" in ways_for(problem)) == ("k1" in token and "s2" not in token)


@pytest.mark.parametrize("token", CASES)
@pytest.mark.parametrize("step", [1, 1 << 27])
def test_the_bound_where_tensors_lie_is_that_of_the_host(torch, monkeypatch, token, step):
    monkeypatch.setattr(bound, "_STEP_ELEMENTS", step)
    problem = parse_problem(token)
    arrays = bound.sample(problem, 5)
    wanted = bound.expected(problem, *arrays)
    tensors = tuple(None if a is None else torch.from_numpy(a) for a in arrays)
    y = wanted.y.astype(np.float32)
    for change in (0.0, 0.5, 40.0, np.nan):
        y[-1, 0, 0, 0] = wanted.y[-1, 0, 0, 0] + change * wanted.bound[-1, 0, 0, 0]
        here = bound.judge(torch, problem, tensors, torch.from_numpy(y))
        there = bound.compare(y, wanted)
        assert here.ok == there.ok
        assert here.share == pytest.approx(there.share, rel=1e-6)
        if not here.ok:
            assert here.where == there.where
    assert bound.judge(torch, problem, tensors, torch.from_numpy(wanted.y).float(),
                       Rounding("tf32")).ok


def test_a_wrong_peer_is_told_and_not_timed(torch, monkeypatch):
    launch = TorchSubject.launch

    def off(self, index, stream):
        launch(self, index, stream)
        if self.name == "native":
            assert index == 0
            self.results[0] = self.results[0] + 1

    monkeypatch.setattr(TorchSubject, "launch", off)
    rows = {row.method: row for row in bench(Comparison(
        tuple(catalog.find(DEPTHWISE)), backend="reference", ways=("default", "native"),
        caches=("hot",)))}
    assert rows["native"].fault == "wrong"
    assert rows["native"].microseconds is None
    assert rows["default"].microseconds > 0


@pytest.mark.parametrize("token", ["n2c6h9w7_o6k3p1g6_float16_outfloat32_nhwc",
                                   "n2c6h5w7_o9k1_bfloat16_outfloat32"])
def test_a_filters_gradient_in_float32_is_compared_with_what_a_cast_makes_of_pytorchs(torch, token):
    layers = catalog.find(f"weight_gradient_{token}")
    rows = bench(Comparison(tuple(layers), backend="reference", caches=("hot", "eager")))
    assert {row.method for row in rows} >= {"dscore", "default", "channels_last"}
    assert [(row.method, row.cache, row.fault) for row in rows if not row.correct] == []
