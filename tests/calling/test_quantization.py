"""dscore.Quantization, and dscore.conv of int8 arrays with it."""

import math
import re

import integer_oracle
import numpy as np
import pytest
from emulated_gpus import GpuBackend, Tensor, emulated_gpus

import dscore
from dscore.backends.emulated import EmulatedBackend
from dscore.checking import bound
from dscore.core.errors import SpecError
from dscore.core.token import parse_problem

PROBLEM = parse_problem("n2c6h5w7_o12k3s2p1g6_int8_bias")
X, W, BIAS, _, _ = bound.sample(PROBLEM, 0)
Q = dscore.Quantization(x_scale=0.02, x_zero_point=5, w_scale=[0.001 * n for n in range(1, 13)],
                        y_scale=0.011, y_zero_point=-7)
ASKED = dict(stride=2, padding=1, groups=6, backend="reference")


def wanted(q=Q, activation=None, problem=PROBLEM, x=X):
    multiplier, points = q.operands(x, W, activation)
    return integer_oracle.direct(problem, x, W, BIAS, multiplier, points)


@pytest.mark.parametrize("activation", [None, "relu", "relu6"])
def test_the_result_is_that_of_the_stated_arithmetic(activation):
    y = dscore.conv(X, W, BIAS, quantization=Q, activation=activation, **ASKED)
    assert y.dtype == np.int8
    assert np.array_equal(y, wanted(activation=activation))


def test_the_integers_stand_for_a_convolution_of_floats():
    scale = np.array(Q.w_scale)
    x = Q.x_scale * (X.astype(np.float64) - Q.x_zero_point)
    w = scale[:, None, None, None] * W
    y = dscore.conv(x.astype("f4"), w.astype("f4"), (Q.x_scale * scale * BIAS).astype("f4"),
                    activation="relu6", **ASKED)
    q = dscore.conv(X, W, BIAS, quantization=Q, activation="relu6", **ASKED)
    stands_for = Q.y_scale * (q.astype(np.float64) - Q.y_zero_point)
    greatest = Q.y_scale * (127 - Q.y_zero_point)
    assert np.all(np.abs(stands_for - np.minimum(y, greatest)) <= 0.51 * Q.y_scale)


@pytest.mark.parametrize("out_dtype", ["float32", "float16"])
def test_results_of_floats(out_dtype):
    q = dscore.Quantization(0.02, 0.001, x_zero_point=5, out_dtype=out_dtype)
    y = dscore.conv(X, W, BIAS, quantization=q, activation="relu", **ASKED)
    problem = parse_problem(f"n2c6h5w7_o12k3s2p1g6_int8_out{out_dtype}_bias_relu")
    assert y.dtype == out_dtype
    assert np.array_equal(y, wanted(q, problem=problem))


def test_layouts_single_images_and_out():
    last = np.ascontiguousarray(X.transpose(0, 2, 3, 1))
    y = dscore.conv(last, W, BIAS, quantization=Q, layout="nhwc", **ASKED)
    assert np.array_equal(y.transpose(0, 3, 1, 2), wanted())
    assert np.array_equal(dscore.conv(X[1], W, BIAS, quantization=Q, **ASKED), wanted()[1])
    out = np.zeros(PROBLEM.y_shape, np.int8)
    assert dscore.conv(X, W, BIAS, quantization=Q, out=out, **ASKED) is out
    assert np.array_equal(out, wanted())
    none = dscore.conv(X[:0], W, BIAS, quantization=Q, **ASKED)
    assert (none.shape, none.dtype) == ((0, *out.shape[1:]), np.int8)


def test_tensors_of_pytorch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, w, bias = (torch.from_numpy(one) for one in (X, W, BIAS))
    q = dscore.Quantization(0.02, torch.tensor(Q.w_scale, dtype=torch.float64), 0.011, 5, -7)
    assert q == Q
    for image in (x, x.to(memory_format=torch.channels_last)):
        y = dscore.conv(image, w, bias, quantization=q, **ASKED)
        assert y.dtype is torch.int8
        assert y.is_contiguous(memory_format=torch.channels_last) == (image is not x)
        assert np.array_equal(y.numpy(), wanted())


@pytest.mark.skipif(EmulatedBackend().missing() is not None,
                    reason=str(EmulatedBackend().missing()))
def test_calls_on_gpu_arrays_are_remembered_and_their_arrays_made_once(monkeypatch):
    with emulated_gpus(monkeypatch):
        asked = {**ASKED, "backend": "gpu"}
        arrays = [Tensor(one) for one in (X, W, BIAS)]
        for _ in range(4):
            y = dscore.conv(*arrays, quantization=Q, **asked)
            assert y.dtype == np.int8
            assert np.array_equal(y.array, wanted())
        assert GpuBackend.prepared == 1
        # Other scales, and a bound of relu6, are operands of the same kernel.
        other = dscore.Quantization(0.02, 0.001, y_scale=0.02, x_zero_point=-3)
        y = dscore.conv(*arrays, quantization=other, **asked)
        assert np.array_equal(y.array, wanted(other))
        assert GpuBackend.prepared == 1
        again, first = (other.operands(arrays[0], arrays[1], None) for _ in range(2))
        assert again[0] is first[0]
        with pytest.raises(SpecError, match="out must be a Tensor of int8"):
            dscore.conv(*arrays, quantization=Q, out=Tensor(np.zeros(y.shape, np.int16)), **asked)


def test_a_quantization_is_a_value():
    scales = np.array([0.5, 0.25])
    q = dscore.Quantization(1, scales, 2.0)
    scales[:] = 7
    assert q.w_scale == (0.5, 0.25)
    assert q == dscore.Quantization(1.0, [0.5, 0.25], 2.0)
    assert hash(q) == hash(dscore.Quantization(1.0, (0.5, 0.25), 2.0))
    with pytest.raises(AttributeError):
        q.x_scale = 3.0
    # Made in float64 and rounded once.
    third = dscore.Quantization(0.1, 1 / 3, 0.7)
    assert third.multiplier == np.float32(0.1 * (1 / 3) / 0.7)
    assert third.points("relu").tolist() == [0, 0, 0, 127]
    assert dscore.Quantization(1, 1, 0.1, 0, -128).points("relu6").tolist() == [0, -128, -128, -68]


@pytest.mark.parametrize(("fields", "message"), [
    (dict(x_scale=0), "x_scale must be a positive, finite number, got 0"),
    (dict(y_scale=math.inf), "y_scale must be a positive, finite number, got inf"),
    (dict(y_scale=-1.0), "y_scale must be a positive, finite number, got -1.0"),
    (dict(w_scale=[0.1, math.nan]), "w_scale[1] must be a positive, finite number, got nan"),
    (dict(w_scale="much"), "w_scale must be a positive, finite number, got 'much'"),
    (dict(w_scale=np.ones((2, 2))), "w_scale must be a number, or have one axis"),
    (dict(w_scale=[]), "w_scale must be a number, or have one axis"),
    (dict(x_zero_point=128), "x_zero_point must be an integer from -128 to 127, as int8 has them; "
                             "got 128; of uint8 data subtract 128 from it and from the data"),
    (dict(y_zero_point=0.5), "y_zero_point must be an integer from -128 to 127"),
    (dict(y_scale=None, y_zero_point=3), "y_zero_point is 3 without a y_scale"),
    (dict(out_dtype="float32"), "out_dtype of a quantization with a y_scale must be one of"),
    (dict(y_scale=None, out_dtype="bfloat16"), "out_dtype of a quantization without a y_scale"),
    (dict(x_scale=1e-30, w_scale=[1.0, 1e-30]), "of channel 1 it is 1e-60"),
    (dict(x_scale=1e30, w_scale=1e30), "of channel 0 it is 1e+60")])
def test_scales_and_zero_points_out_of_range_are_refused(fields, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        dscore.Quantization(**{"x_scale": 1.0, "w_scale": 1.0, "y_scale": 1.0, **fields})


@pytest.mark.parametrize(("change", "message"), [
    (dict(quantization=None), "x is int8, whose integers stand for numbers by their scales"),
    (dict(quantization=0.5), "quantization must be a dscore.Quantization, got 0.5"),
    (dict(x=X.astype("f4")), "with quantization= x must be int8, got float32"),
    (dict(w=W.astype("i2")), "with quantization= w must be int8, got int16"),
    (dict(bias=BIAS.astype("f4")), "bias must be int32, got float32, of the scale"),
    (dict(out=np.zeros(PROBLEM.y_shape, "f4")), "out must be int8, got float32"),
    (dict(quantization=dscore.Quantization(1, [1.0, 2.0], 1)),
     "w_scale has 2 scales, and w has 12 output channels"),
    (dict(activation="silu"), "activation of an int8 result must be one of none, relu, relu6"),
    (dict(residual=np.zeros(PROBLEM.y_shape, np.int8)), "with quantization= there is no residual"),
    (dict(arithmetic="winograd"), "with quantization= there is no arithmetic='winograd'"),
    (dict(bias=BIAS[:3]), "bias must have shape (12,)")])
def test_calls_that_do_not_fit_are_refused(change, message):
    call = {"x": X, "w": W, "bias": BIAS, "quantization": Q, **ASKED, **change}
    with pytest.raises(SpecError, match=re.escape(message)):
        dscore.conv(call.pop("x"), call.pop("w"), **call)
