"""Arrays on a GPU, spoken to where they lie: with a made-up library and the emulated device."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from emulated_gpus import GpuBackend, Tensor, TensorAdapter, emulated_gpus

import dscore
from dscore.algorithms.direct import DirectTiling
from dscore.backends.emulated import EmulatedBackend
from dscore.calling import arguments, call_cache, kernels
from dscore.calling.call_cache import CALLS
from dscore.checking import bound
from dscore.core import backend
from dscore.core.errors import SpecError, UnavailableError
from dscore.core.token import parse_problem
from dscore.ops import operands_of

MISSING = EmulatedBackend().missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

PROBLEM = parse_problem("n2c6h9w7_o12k3s2p1g6_bias_relu6")
X, W, BIAS = bound.sample(PROBLEM, 0)
ASKED = dict(stride=2, padding=1, groups=6, activation="relu6", backend="gpu")
WANTED = bound.expected(PROBLEM, X, W, BIAS)


@pytest.fixture(autouse=True)
def _gpus(monkeypatch):
    with emulated_gpus(monkeypatch):
        yield


def tensors(device=0):
    return Tensor(X, device), Tensor(W, device), Tensor(BIAS, device)


def right(y):
    return bound.compare(y.array, WANTED).ok


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


def test_float32_products_alone_may_be_asked_for():
    """Split in TF32, infinities become NaN; the one call is not taken for the other."""
    x, w, _ = bound.sample(parse_problem("n1c32h4w4_o16k1"), 0)
    x[0, 5, 1, 2] = np.inf
    given = Tensor(x, 1), Tensor(w, 1)
    for _ in range(3):
        assert np.isnan(dscore.conv(*given, backend="gpu").array[0, :, 1, 2]).all()
        plain = dscore.conv(*given, backend="gpu", arithmetic="plain").array
        assert np.isinf(plain[0, :, 1, 2]).all()
        assert np.isfinite(np.delete(plain.reshape(16, 16), 6, axis=1)).all()
    assert GpuBackend.prepared == 2


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
    x, w, _ = bound.sample(square, 1)
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


def test_a_prepared_call_is_for_those_who_know_the_problem():
    arrays, adapter = tensors(1), arguments.adapter_of("emulated_gpus")
    call = kernels.prepared(PROBLEM, adapter, 1, arrays, "gpu")
    out = Tensor(np.full(PROBLEM.y_shape, np.nan, np.float32), 1)
    assert call(*arrays, out) is out
    assert right(out)
    assert right(call(*arrays, None))


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
    monkeypatch.setattr(CALLS, "_most", 2)
    _, w, bias = tensors()
    for batch in (1, 2, 1, 2):
        for activation in (None, "relu"):
            dscore.conv(Tensor(X[:batch]), w, bias, **{**ASKED, "activation": activation})
            assert len(CALLS._prepared) <= 2
            assert set(CALLS._specialized) <= set(CALLS._prepared)
            assert len(CALLS.fast) <= 2


@pytest.fixture
def long_calls(monkeypatch):
    """The calls that were not specialized."""
    calls, whole = [], call_cache.PreparedCall.__call__
    monkeypatch.setattr(call_cache.PreparedCall, "__call__",
                        lambda *given: calls.append(given) or whole(*given))
    return calls


def test_from_the_third_time_on_a_call_is_fast(long_calls):
    x, w, bias = tensors()
    for _ in range(5):
        out = Tensor(np.full(PROBLEM.y_shape, np.nan, np.float32))
        assert right(dscore.conv(x, w, bias, **ASKED))
        assert dscore.conv(x, w, bias, **ASKED, out=out) is out
        assert right(out)
    assert len(long_calls) == 2


def test_weights_made_anew_are_fast_too(long_calls):
    kept = []
    for _ in range(6):
        kept.append(tensors())
        assert right(dscore.conv(*kept[-1], **ASKED))
    assert len(long_calls) == 2
    assert len(CALLS.fast) == 5  # by each filter but the first


def repeated(*arrays):
    for _ in range(3):
        y = dscore.conv(*arrays, **ASKED)
    return y


def moved(array, elements):
    """The same values from so many elements after an aligned address."""
    space = np.zeros(array.size + 32, array.dtype)
    first = -space.ctypes.data % 64 // array.itemsize + elements
    space[first:first + array.size] = array.ravel()
    return Tensor(space[first:first + array.size].reshape(array.shape))


@pytest.mark.parametrize("elements", [0, 1])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_fast_call_takes_arrays_at_any_address(which, elements):
    arrays = [moved(array, 0) for array in (X, W, BIAS)]
    repeated(*arrays)
    arrays[which] = moved((X, W, BIAS)[which], elements)
    for _ in range(2):
        assert right(dscore.conv(*arrays, **ASKED))
        out = moved(np.full(PROBLEM.y_shape, np.nan, np.float32), elements)
        assert right(dscore.conv(*arrays, **ASKED, out=out))


def test_a_fast_call_leaves_other_arrays_alone(long_calls):
    """Of as many bytes: of another shape, on another device, not contiguous."""
    x, w, bias = tensors()
    assert right(repeated(x, w, bias))
    turned = parse_problem("n2c6h7w9_o12k3s2p1g6_bias_relu6")
    across = X.reshape(turned.x_shape)
    wanted = bound.expected(turned, across, W, BIAS)
    for _ in range(3):
        y = dscore.conv(Tensor(across), w, bias, **ASKED)
        assert bound.compare(y.array, wanted).ok
    assert right(repeated(*tensors(1)))
    assert {index for _, _, index in GpuBackend.launches} == {0, 1}
    fortran = Tensor(np.asfortranarray(X))
    assert right(repeated(fortran, w, bias))
    assert right(repeated(x, w, bias))
    with pytest.raises(SpecError, match="all arrays must lie on one device"):
        dscore.conv(x, Tensor(W, 1), bias, **ASKED)
    # Thrice two calls that were prepared, and learned; thrice the copied one.
    assert len(long_calls) == 9


def test_threads_that_call_first_remember_one_call(long_calls):
    def call(_):
        barrier.wait()
        return [dscore.conv(*arrays, **ASKED) for _ in range(5)]

    arrays, threads = tensors(), 8
    barrier = Barrier(threads)
    with ThreadPoolExecutor(threads) as pool:
        results = list(pool.map(call, range(threads)))
    assert all(right(y) for ys in results for y in ys)
    assert [len(calls) for calls in CALLS._prepared.values()] == [1]
    assert len(long_calls) <= 2 * threads  # a first and a second time
    assert len(arguments.adapter_of.values()) == 1


def test_a_bias_is_told_from_none():
    x, w, bias = tensors()
    bare = bound.expected(parse_problem("n2c6h9w7_o12k3s2p1g6_relu6"), X, W)
    for _ in range(4):
        assert right(dscore.conv(x, w, bias, **ASKED))
        assert bound.compare(dscore.conv(x, w, **ASKED).array, bare).ok


@pytest.mark.parametrize("parts", ["_bias_relu_residualafter_scaled", "_residual", "_scaled"])
def test_a_fast_call_takes_every_operand(long_calls, parts):
    problem = parse_problem(f"n2c6h5w7_o8k1{parts}")
    inputs = bound.sample(problem, 0)
    *operands, _ = operands_of(problem)
    spec = problem.spec
    for _ in range(5):
        given = {operand.name: Tensor(one, 0) for operand, one in zip(operands, inputs, strict=True)
                 if one is not None}
        y = dscore.conv(**given, activation=spec.activation, backend="gpu",
                        residual_after=spec.residual == "after")
        assert bound.compare(y.array, bound.expected(problem, *inputs)).ok
    assert len(long_calls) <= 2


def test_specialized_functions_of_a_call_are_few(monkeypatch):
    """A guard that refuses everything makes each call look new."""
    asked = []
    monkeypatch.setattr(TensorAdapter, "guard", lambda self, examples: (
        asked.append(examples) or (lambda *arrays: False)))
    for _ in range(10):
        assert right(dscore.conv(*tensors(), **ASKED))
    assert len(asked) == call_cache.MOST_VARIANTS
