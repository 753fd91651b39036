"""A GPU through its vendor's runtime, on bindings whose device memory is the host's."""

import ctypes
import time
from types import SimpleNamespace

import numpy as np
import pytest

from dscore.backends.reference.backend import ReferenceBackend
from dscore.core import catalog
from dscore.core.errors import DscoreError
from dscore.core.token import parse_problem
from dscore.measuring.runner import check
from dscore.measuring.timing import Effort, device_times
from dscore.measuring.vendor_runner import VendorRunner
from dscore.measuring.vendor_runtime import Runtime
from dscore.solving.solver import best_plan

H200 = catalog.device("h200")
PLAN = best_plan(parse_problem("n1c4h5w5_o8k1_bias"), H200)


class Cuda:
    """The calls of cuda-python that are used: each returns (code, results…)."""

    def __init__(self):
        self.memory, self.captured, self.destroyed = {}, None, []
        self.cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice=1, cudaMemcpyDeviceToHost=2)
        self.cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeThreadLocal=1)
        self.cudaGetDeviceCount = lambda: (0, 3)
        self.cudaGetDevice = lambda: (0, 0)
        self.cudaSetDevice = self.cudaDeviceSynchronize = lambda *index: (0,)
        self.cudaGetDeviceProperties = lambda index: (0, SimpleNamespace(
            name=b"NVIDIA H200\0", major=9, minor=0, pciDomainID=0, pciBusID=1, pciDeviceID=index))
        self.cudaStreamCreate = lambda: (0, 7)
        self.cudaEventCreate = lambda: (0, [])
        self.cudaEventRecord = lambda event, stream: (event.append(time.perf_counter()), (0,))[1]
        self.cudaEventSynchronize = lambda event: (0,)
        self.cudaEventElapsedTime = lambda start, end: (0, 1e3 * (end[-1] - start[-1]))
        self.cudaGraphInstantiate = lambda graph, flags: (0, graph)
        self.cudaGraphExecDestroy = lambda graph: (self.destroyed.append(graph), (0,))[1]
        self.cudaGraphDestroy = lambda graph: (0,)

    def cudaMalloc(self, size):  # noqa: N802
        array = np.empty(size, np.uint8)
        self.memory[array.ctypes.data] = array
        return 0, array.ctypes.data

    def cudaFree(self, address):  # noqa: N802
        del self.memory[address]
        return (0,)

    def cudaMemcpy(self, target, source, size, kind):  # noqa: N802
        ctypes.memmove(target, source, size)
        return (0,)

    def cudaStreamBeginCapture(self, stream, mode):  # noqa: N802
        self.captured = []
        return (0,)

    def cudaStreamEndCapture(self, stream):  # noqa: N802
        graph, self.captured = self.captured, None
        return 0, graph

    def cudaGraphLaunch(self, graph, stream):  # noqa: N802
        for launch in graph:
            launch()
        return (0,)


class Gpu(ReferenceBackend):
    """The reference's kernels on addresses, with *act* on each output and what lies around it."""

    def __init__(self, cuda, act):
        self.cuda, self.act = cuda, act

    def device_at(self, index):
        return H200

    def kernel_on(self, plan, index):
        kernel, problem = self.compile(plan), plan.problem
        shapes = problem.x_shape, problem.spec.w_shape, (8,), problem.y_shape

        def launch(x, w, bias, out, stream, device):
            assert out % 16 == 0

            def run():
                arrays = [np.ctypeslib.as_array(ctypes.cast(at, ctypes.POINTER(ctypes.c_float)), s)
                          for at, s in zip((x, w, bias, out), shapes, strict=True)]
                kernel(*arrays)
                self.act(arrays[3], out)
            run() if self.cuda.captured is None else self.cuda.captured.append(run)
        return SimpleNamespace(launch=launch)


def wrong(y, address):
    y[0, 0, 0, 0] += 1


def before(y, address):
    ctypes.c_float.from_address(address - 4).value = 0.0


def after(y, address):
    ctypes.c_float.from_address(address + y.nbytes).value = 0.0


def checked(act):
    cuda = Cuda()
    runner = VendorRunner(Runtime("nvidia", cuda, "cuda"), H200, 0)
    arrays, = runner.sets(PLAN.problem, 1, 0)
    return check(runner, Gpu(cuda, act), PLAN, arrays)


def test_a_kernel_is_checked_where_it_runs():
    assert checked(lambda y, address: None).ok
    accuracy = checked(wrong)
    assert (accuracy.ok, accuracy.where) == (False, (0, 0, 0, 0))


@pytest.mark.parametrize("act", [before, after])
def test_a_write_beside_the_output_is_found(act):
    with pytest.raises(DscoreError, match=r"outside its output \(1 elements"):
        checked(act)


def test_captured_launches_are_replayed_and_everything_is_freed():
    cuda, ran = Cuda(), []
    runner = VendorRunner(Runtime("nvidia", cuda, "cuda"), H200, 0)
    sets = runner.sets(PLAN.problem, 2, 0)
    subject = runner.subject(Gpu(cuda, lambda y, address: ran.append(address)), PLAN, sets)
    timing, = device_times(runner.clock, [subject], 2, Effort(turns=1, replay_seconds=0.0,
                                                              probe_launches=4))
    assert (timing.policy, timing.launches) == ("graph", 2)
    assert timing.median > 0
    assert len(set(ran)) == 2
    assert len(cuda.destroyed) == 2  # the probe's graph, and the turn's
    del subject, sets
    assert cuda.memory == {}


@pytest.mark.parametrize(("visible", "own"), [
    ("", "012"), (" ", "012"), ("5", "555"), ("4,6,8", "468")])
def test_each_worker_sees_a_gpu_of_its_own(monkeypatch, visible, own):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    environments = Runtime("nvidia", Cuda(), "cuda").environments()
    assert [one["CUDA_VISIBLE_DEVICES"] for one in environments] == list(own)
