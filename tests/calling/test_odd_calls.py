"""Arrays on a GPU in calls that are rarer: of one image, of options that change, of bad values."""

import numpy as np
import pytest
from emulated_gpus import GpuBackend, Tensor, emulated_gpus

import dscore
from dscore.backends.emulated import EmulatedBackend
from dscore.checking import bound
from dscore.core.errors import SpecError
from dscore.core.token import parse_problem

MISSING = EmulatedBackend().missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

PROBLEM = parse_problem("n2c4h7w5_o4k3s2p1g4_bias")
X, W, BIAS = bound.sample(PROBLEM, 0)
OPTIONS = dict(stride=2, padding=1, groups=4, backend="gpu")


@pytest.fixture(autouse=True)
def _gpus(monkeypatch):
    with emulated_gpus(monkeypatch):
        yield


def tensors():
    return Tensor(X), Tensor(W), Tensor(BIAS)


def test_one_image_is_a_call_of_its_own():
    _, w, bias = tensors()
    wanted = bound.expected(PROBLEM.with_batch(1), X[1:], W, BIAS)
    for _ in range(4):
        for x in (X[1], X[1:]):  # of as many bytes
            y = dscore.conv(Tensor(x), w, bias, **OPTIONS)
            assert y.shape == (*x.shape[:-3], *PROBLEM.y_shape[1:])
            assert bound.compare(y.array.reshape(wanted.y.shape), wanted).ok
            out = Tensor(np.full(y.shape, np.nan, np.float32))
            assert dscore.conv(Tensor(x), w, bias, **OPTIONS, out=out) is out
            assert np.array_equal(out.array, y.array)
    assert GpuBackend.prepared == 2
    with pytest.raises(SpecError, match="out has shape"):
        dscore.conv(Tensor(X[1]), w, bias, **OPTIONS, out=Tensor(y.array))


class Changing:
    """An integer that may change, as a tensor of one element may."""

    def __init__(self):
        self.number = 1

    def __index__(self):
        return self.number


def test_a_number_that_may_change_is_read_at_every_call():
    stride = Changing()
    for number, width in ((2, 3), (1, 5), (2, 3)):
        stride.number = number
        for _ in range(3):
            assert dscore.conv(*tensors(), **{**OPTIONS, "stride": stride}).shape[3] == width


def test_an_option_without_a_hash_is_refused_after_a_good_call():
    for _ in range(3):
        dscore.conv(*tensors(), **OPTIONS)
        for junk in (memoryview(bytearray(b"ab")), [[]], {}, np.ones(2)):
            with pytest.raises(SpecError):
                dscore.conv(*tensors(), **{**OPTIONS, "stride": junk})


@pytest.mark.parametrize("out", [[], None.__class__, 3, np.zeros(3), "out"])
def test_an_out_that_is_no_array_is_refused_at_every_call(out):
    for _ in range(4):
        with pytest.raises(SpecError, match=r"out must be|of one library"):
            dscore.conv(*tensors(), **OPTIONS, out=out)
        dscore.conv(*tensors(), **OPTIONS)
