"""The comparison on this machine's GPU: graphs, cold sets, floors, and PyTorch beside it."""

import subprocess
import sys

import pytest
from refusals import needs

import dscore
from dscore.backends.hip import HipBackend
from dscore.bench.run import Bench, Comparison, bench
from dscore.bench.torch_methods import WAYS
from dscore.core import catalog
from dscore.measuring.clocks import TorchClock
from dscore.measuring.runner import check
from dscore.measuring.timing import Effort, device_times, eager_times
from dscore.measuring.torch_runner import TorchRunner
from dscore.measuring.vendor_runner import VendorRunner
from dscore.measuring.vendor_runtime import runtime

HIP = HipBackend()
pytestmark = needs(HIP)

EFFORT = Effort(most_replays=7)
LAYERS = ("D6", "P13", "n1c32h29w31_o32k3s2p0x1x1x1g32_bias_relu6")


@pytest.fixture
def torch():
    module = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not module.cuda.is_available():
        pytest.skip("this PyTorch sees no GPU")
    return module


@pytest.fixture(params=["torch", "runtime"])
def runner(request):
    if request.param == "runtime":
        return VendorRunner(runtime(HIP.vendor), HIP.device(), 0)
    return TorchRunner(request.getfixturevalue("torch"), HIP.device(), 0)


def comparison(*names, **options):
    layers = tuple(layer for name in names for layer in catalog.find(name))
    return Comparison(layers, **options)


@pytest.mark.parametrize("name", LAYERS)
def test_kernels_are_right_where_they_are_measured(runner, name):
    plan = dscore.plan_for(name, HIP.device())
    arrays, = runner.sets(plan.problem, 1, 3)
    assert check(runner, HIP, plan, arrays).ok


def test_device_time_by_graphs(runner):
    plan = dscore.plan_for("P2", HIP.device())
    sets = runner.sets(plan.problem, 3, 0)
    subject = runner.subject(HIP, plan, sets)
    timing, = device_times(runner.clock, [subject], 3, EFFORT)
    assert timing.policy == "graph" or HIP.vendor == "amd"
    assert timing.launches % 3 == 0
    device = HIP.device()
    floor = device.floor_seconds(0, 2 * plan.problem.macs, device.fp32_flops)
    assert floor / 2 < timing.median < 1e-2
    low, high = timing.quartiles
    assert low <= timing.median <= high < 2 * low


def test_both_clocks_agree(torch):
    plan, times = dscore.plan_for("P2", HIP.device()), []
    for runner in (TorchRunner(torch, HIP.device(), 0),
                   VendorRunner(runtime(HIP.vendor), HIP.device(), 0)):
        sets = runner.sets(plan.problem, 1, 0)
        times += device_times(runner.clock, [runner.subject(HIP, plan, sets)], 1, EFFORT)
    assert times[0].median == pytest.approx(times[1].median, rel=0.2)


# PyTorch's own state may be spoiled by a capture that fails, so that it is not for this process.
NOT_CAPTURED = """
import torch
from dscore.measuring.clocks import TorchClock
from dscore.measuring.timing import Effort, device_times

class Waiting:
    name = "waiting"
    def launch(self, index, stream):
        x.add_(1.0)
        torch.cuda.synchronize()
    settings = staticmethod(torch.no_grad)

x = torch.randn(1 << 20, device="cuda")
timing, = device_times(TorchClock(torch, 0), [Waiting()], 1, Effort())
print(timing.policy, timing.median > 0, bool(torch.isfinite(x).all()))
"""


def test_what_cannot_be_captured_is_timed_between_events(torch):
    finished = subprocess.run([sys.executable, "-c", NOT_CAPTURED], capture_output=True,
                              text=True, check=False)
    assert finished.stdout.split() == ["events", "True", "True"], finished.stderr


def test_eager_time_is_the_hosts(torch):
    """A call that keeps the device busy for long is timed as the host spends on it."""
    big = torch.randn(4096, 4096, device="cuda")

    class Product:
        name = "product"

        def launch(self, index, stream):
            torch.mm(big, big)

        def settings(self):
            return torch.no_grad()

    clock = TorchClock(torch, 0)
    eager, = eager_times(clock, [Product()], EFFORT)
    device, = device_times(clock, [Product()], 1, EFFORT)
    assert eager.median < device.median / 2


def test_floors(torch):
    floors = TorchRunner(torch, HIP.device(), 0).floors()
    device = HIP.device()
    assert 0.5 < floors.bytes_per_second / device.bandwidth_bytes_per_second <= 1.05
    assert 0.3 < floors.flops_per_second / (
        2 * device.fp32_lanes_per_cu * device.compute_units * device.clock_hz) <= 1.2
    assert 2e-7 < floors.launch_seconds < 2e-5


@pytest.mark.parametrize("batch", [1, 8])
def test_beside_pytorch(torch, batch):
    rows = bench(comparison(*LAYERS, batches=(batch,), backend="hip"))
    assert {row.method for row in rows} == {"dscore", *WAYS}
    for row in rows:
        assert row.correct, row
        assert row.microseconds > 0
        assert row.policy == ("eager" if row.cache == "eager" else "graph")
        if row.cache == "cold":
            assert row.sets * row.bytes > 3 * HIP.device().l2_bytes
            assert row.microseconds > 0.9 * row.floor_microseconds, row


def test_tf32_is_held_to_its_own_bound(torch):
    rows = bench(comparison("P13", backend="hip", ways=("default", "matmul"), caches=("hot",),
                            tf32=True))
    assert [row.method for row in rows] == ["dscore", "default", "matmul", "default_tf32",
                                            "matmul_tf32"]
    assert all(row.correct for row in rows), rows


def test_without_pytorch(monkeypatch):
    monkeypatch.setattr("dscore.measuring.torch_runner.torch_with_gpu", lambda: None)
    run = Bench(comparison("P13", "D6", backend="hip", ways=()))
    assert run.caches == ("cold", "hot")
    run.prepare(run.cases)
    for case in run.cases:
        for row in run.rows(case):
            assert row.correct
            assert row.microseconds > 0


def test_memory_is_given_back(torch):
    run = Bench(comparison("D6", backend="hip", caches=("cold",)))
    run.rows(run.cases[0])
    torch.cuda.empty_cache()
    before = torch.cuda.mem_get_info()[0]
    for _ in range(3):
        run.rows(run.cases[0])
    torch.cuda.empty_cache()
    assert before - torch.cuda.mem_get_info()[0] < 64 << 20
