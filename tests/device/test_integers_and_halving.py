"""On this machine's GPU: layers of int8 beside their peers, and tuning by halves."""

import pytest
from refusals import needs

import dscore
from dscore.backends.hip import HipBackend
from dscore.bench.run import Comparison, bench
from dscore.core import catalog
from dscore.measuring.timing import Effort, brief_timing, device_times
from dscore.measuring.torch_runner import TorchRunner
from dscore.tuning import tune
from dscore.tuning.evaluator import runner_and_policy
from dscore.tuning.measurement import SPILLS
from dscore.tuning.paired import COLD

HIP = HipBackend()
pytestmark = needs(HIP)
LAYERS = ("P13_int8_nhwc", "D6_int8_nhwc")


@pytest.fixture
def torch():
    module = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not module.cuda.is_available():
        pytest.skip("this PyTorch sees no GPU")
    return module


def problems(*names, batch):
    return [one.problem for name in names for one in catalog.find(name, batch)]


@pytest.mark.parametrize("batch", [1, 8])
def test_int8_beside_its_peers(torch, batch):
    layers = tuple(one for name in LAYERS for one in catalog.find(name))
    rows = bench(Comparison(layers, (batch,), "hip"))
    assert {row.method for row in rows if row.kind == "pointwise"} >= {
        "dscore", "int_mm", "dscore_float16"}
    assert {row.method for row in rows if row.kind == "depthwise"} == {"dscore", "dscore_float16"}
    for row in rows:
        assert row.correct, row
        assert row.microseconds > 0
        if row.cache == "cold":
            assert row.sets * row.bytes > 3 * HIP.device().l2_bytes


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_means_of_int8_are_those_of_the_host(torch, dtype):
    from dscore.torch.quantize_pooling import MeanOfPixels

    for shape in ((2, 32, 112, 112), (3, 72, 28, 28), (1, 1152, 7, 7), (2, 36, 9, 9), (2, 5, 3, 1)):
        q = torch.randint(-128, 128, shape, dtype=torch.int8)
        q[:, ::3], q[:, 1::3] = -128, 127
        mean = MeanOfPixels(0.02, 101).to(getattr(torch, dtype))
        wanted = mean(q)
        mean.cuda()
        for layout in (torch.contiguous_format, torch.channels_last):
            assert torch.equal(mean(q.cuda().contiguous(memory_format=layout)).cpu(), wanted)


def test_a_brief_timing_agrees_with_a_long_one(torch):
    runner = TorchRunner(torch, HIP.device(), 0)
    plan = dscore.plan_for("P13_float16_nhwc", HIP.device())
    sets = runner.sets(plan.problem, 8, 0)
    subject = runner.subject(HIP, plan, sets)
    long, = device_times(runner.clock, [subject], 8, Effort())
    brief = brief_timing(runner.clock, subject, 8, Effort(), 6, 1e-5)
    assert brief.policy == long.policy
    assert brief.median == pytest.approx(long.median, rel=0.15)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_layers_are_tuned_by_halves(tmp_path, monkeypatch, dtype, layout):
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path))
    names = (f"P13_{dtype}_{layout}", f"D6_{dtype}_{layout}")
    for one in tune.tune_all(problems(*names, batch=8), backend="hip", top=3, halving=True):
        assert one.complete
        assert one.best is not None
        assert len(one.best.samples) >= 12
        if one.first.refused:  # as of conv, which takes the next one then
            assert one.first.refused.startswith(SPILLS)
        else:
            assert one.gain > 0.9


@pytest.mark.parametrize("halving", [False, True])
@pytest.mark.parametrize("name", ["D6_float16_nhwc", "D6_int8_nhwc", "D6"])
def test_layers_are_tuned_behind_a_pointwise_one(tmp_path, monkeypatch, name, halving):
    if runner_and_policy(HIP, HIP.device())[1] != COLD:
        pytest.skip("this GPU's runtime captures no graphs")
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path))
    one, = tune.tune_all(problems(name, batch=8), backend="hip", top=3, halving=halving,
                         behind=True)
    assert one.complete
    cold, behind = one.best.medians
    assert 0.2 < behind / cold < 5
    assert min(len(one.best.samples), len(one.best.behind)) >= 12
