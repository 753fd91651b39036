"""Arrays on a GPU, spoken to where they lie: with a made-up library and the emulated device."""

import sys

import numpy as np
import pytest

import dscore
from dscore import accuracy, backend, catalog, eager
from dscore.backends.codegen import KernelSource
from dscore.backends.emulated import EmulatedBackend
from dscore.backends.library import LoadedKernel
from dscore.errors import SpecError, UnavailableError
from dscore.notation import parse_problem
from dscore.tiling import DirectTiling

MISSING = EmulatedBackend().missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

PROBLEM = parse_problem("n2c6h9w7_o12k3s2p1g6_bias_relu6")
X, W, BIAS = accuracy.sample(PROBLEM, 0)
ASKED = dict(stride=2, padding=1, groups=6, activation="relu6", backend="gpu")
WANTED = accuracy.expected(PROBLEM, X, W, BIAS)


class Tensor:
    """An array of a library that has GPUs; its memory is the host's."""

    is_cuda = True

    def __init__(self, array, device=0):
        self.array, self.device = array, device

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)
    nbytes = property(lambda self: self.array.nbytes)

    def __dlpack__(self, **options):
        raise AssertionError("memory of a GPU is not read from the host")

    def __dlpack_device__(self):
        return 2, self.device


class TensorAdapter:
    def index(self, array):
        return array.device

    def matcher(self, example):
        dtype, device = example.dtype, example.device
        return lambda array: (type(array) is Tensor and array.dtype == dtype
                              and array.device == device)

    def place(self, array):
        return array.array.ctypes.data if array.array.flags.c_contiguous else 0

    def ready(self, array):
        return array if array.array.flags.c_contiguous else Tensor(
            np.ascontiguousarray(array.array), array.device)

    def address(self, array):
        return array.array.ctypes.data

    def copied(self, array):
        return Tensor(array.array.copy(), array.device)

    def maker(self, shape, like):
        dtype, device = like.dtype, like.device
        return lambda: Tensor(np.full(shape, np.nan, dtype), device)

    def stream(self, index):
        return 1000 + index


class GpuBackend(EmulatedBackend):
    """The emulated device as two GPUs."""

    name = "gpu"
    launches = ()
    prepared = 0

    def device_at(self, index):
        return catalog.device(("z100sm", "h200")[index])

    def kernel_on(self, plan, index):
        GpuBackend.prepared += 1
        self.prepare([plan])
        source = KernelSource(plan, self.sizes)
        loaded = LoadedKernel(self._kernels[source.name], source)

        class Launched:
            alignment = loaded.alignment

            def launch(self, x, w, bias, out, stream=0, device=0):
                GpuBackend.launches += ((plan.device.name, stream, device),)
                loaded.launch(x, w, bias, out)
        return Launched()


@pytest.fixture(autouse=True)
def _gpus(monkeypatch):
    module = Tensor.__module__.partition(".")[0]
    monkeypatch.setitem(eager._ADAPTERS, module, TensorAdapter)
    monkeypatch.setattr(eager, "_calls", {})
    monkeypatch.setitem(backend._REGISTRY, "gpu", f"{__name__}:GpuBackend")
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or _this_module())
    monkeypatch.setattr(GpuBackend, "launches", ())
    monkeypatch.setattr(GpuBackend, "prepared", 0)
    backend.backend.cache_clear()
    yield
    eager._known.pop(module, None)
    backend.backend.cache_clear()


def _this_module():
    return type("Module", (), dict(GpuBackend=GpuBackend))


def tensors(device=0):
    return Tensor(X, device), Tensor(W, device), Tensor(BIAS, device)


def right(y):
    return accuracy.compare(y.array, WANTED).ok


def test_a_call_is_prepared_once_and_launched_on_the_callers_stream():
    for _ in range(3):
        assert right(dscore.conv(*tensors(), **ASKED))
    assert GpuBackend.prepared == 1
    assert GpuBackend.launches == (("z100sm", 1000, 0),) * 3


def test_the_arrays_device_is_used():
    assert right(dscore.conv(*tensors(1), **ASKED))
    assert right(dscore.conv(*tensors(0), **ASKED))
    assert GpuBackend.launches == (("h200", 1001, 1), ("z100sm", 1000, 0))


def test_options_are_told_apart():
    dscore.conv(*tensors(), **ASKED)
    other = dscore.conv(*tensors(), **{**ASKED, "activation": None})
    assert other.array.min() < 0
    wide = dscore.conv(*tensors(), **{**ASKED, "padding": [1, 1]})  # a list cannot be remembered
    assert right(wide)
    assert right(dscore.conv(*tensors(), **{**ASKED, "padding": [1, 1]}))


def test_out_is_written_and_judged_every_time():
    out = Tensor(np.full(PROBLEM.y_shape, np.nan, np.float32))
    for _ in range(2):
        out.array.fill(np.nan)
        assert dscore.conv(*tensors(), **ASKED, out=out) is out
        assert right(out)
    shape = PROBLEM.y_shape
    for bad, message in (
            (Tensor(np.zeros((1, 2, 3, 4), np.float32)), "out has shape"),
            (Tensor(np.zeros(shape, np.float32), 1), "out on GPU 1"),
            (Tensor(np.zeros((*shape[:3], 2 * shape[3]), np.float32)[..., ::2]), "C-contiguous"),
            (Tensor(np.zeros(shape, np.float64)), "out must be a Tensor of float32"),
            (np.zeros(shape, np.float32), "out must be a Tensor of float32")):
        with pytest.raises(SpecError, match=message):
            dscore.conv(*tensors(), **ASKED, out=bad)


def test_out_over_an_input_is_refused():
    square = parse_problem("n1c4h6w6_o4k3p1g4")
    x, w, _ = accuracy.sample(square, 1)
    asked = dict(padding=1, groups=4, backend="gpu")
    both = np.zeros(2 * x.size, np.float32)
    both[:x.size] = x.ravel()
    first = Tensor(both[:x.size].reshape(x.shape))
    beside, across = (Tensor(both[at:at + x.size].reshape(x.shape)) for at in (x.size, x.size - 1))
    dscore.conv(first, Tensor(w), **asked, out=beside)
    for out in (first, across):
        with pytest.raises(SpecError, match="must not overlap an input"):
            dscore.conv(first, Tensor(w), **asked, out=out)


def test_arrays_that_are_not_contiguous_are_copied_there():
    strided = Tensor(np.repeat(X, 2, axis=-1)[..., ::2])
    _, w, bias = tensors()
    assert right(dscore.conv(strided, w, bias, **ASKED))
    assert right(dscore.conv(strided, w, bias, **ASKED))


def test_an_empty_batch_launches_nothing():
    x, w, bias = tensors()
    for _ in range(2):
        y = dscore.conv(Tensor(X[:0]), w, bias, **ASKED)
        assert y.shape == (0, *PROBLEM.y_shape[1:])
    assert GpuBackend.launches == ()
    assert right(dscore.conv(x, w, bias, **ASKED))


def test_a_plan_decides_the_kernel():
    tiling = DirectTiling(64, 1)
    assert right(dscore.conv(*tensors(), **ASKED, plan=tiling))
    assert right(dscore.conv(*tensors(), **ASKED))
    assert GpuBackend.prepared == 2


@pytest.mark.parametrize(("change", "message"), [
    (dict(w=Tensor(W, 1)), "all arrays must lie on one device, got x on GPU 0, w on GPU 1"),
    (dict(x=X), "all arrays must be of one library"),
    (dict(bias=Tensor(BIAS[:3])), "bias must have shape"),
    (dict(x=Tensor(X.astype(np.float64))), "all arrays must be of one dtype"),
])
def test_bad_calls_are_refused_before_and_after_a_good_one(change, message):
    for _ in range(2):
        arrays = dict(zip(("x", "w", "bias"), tensors(), strict=True))
        with pytest.raises(SpecError, match=message):
            dscore.conv(**{**arrays, **change}, **ASKED)
        dscore.conv(**arrays, **ASKED)


def test_a_backend_of_the_host_refuses_arrays_on_a_gpu():
    with pytest.raises(UnavailableError, match="x lies on GPU 0, and backend reference runs host"):
        dscore.conv(*tensors(), **{**ASKED, "backend": "reference"})


def test_auto_asks_for_the_gpu_backend(monkeypatch):
    missing = backend.backend("hip").missing()
    if missing is None:
        pytest.skip("this machine has a GPU")
    with pytest.raises(UnavailableError, match="backend hip cannot run here"):
        dscore.conv(*tensors(), **{**ASKED, "backend": "auto"})


def test_calls_are_forgotten_before_they_fill_the_memory(monkeypatch):
    monkeypatch.setattr(eager, "_MOST_CALLS", 2)
    _, w, bias = tensors()
    for batch in (1, 2, 1, 2):
        for activation in (None, "relu"):
            dscore.conv(Tensor(X[:batch]), w, bias, **{**ASKED, "activation": activation})
    assert len(eager._calls) <= 2
