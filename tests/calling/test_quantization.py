"""dscore.Quantization, and dscore.conv of int8 arrays with it."""

import math
import re
from dataclasses import replace

import integer_oracle
import numpy as np
import pytest
from emulated_gpus import GpuBackend, Tensor, emulated_gpus

import dscore
from dscore.backends.emulated import EmulatedBackend
from dscore.checking import bound
from dscore.core.errors import SpecError
from dscore.core.token import parse_problem
from dscore.ops.conv import activated

PROBLEM = parse_problem("n2c6h5w7_o12k3s2p1g6_int8_bias")
X, W, BIAS, _, _ = bound.sample(PROBLEM, 0)
Q = dscore.Quantization(x_scale=0.02, x_zero_point=5, w_scale=[0.001 * n for n in range(1, 13)],
                        y_scale=0.011, y_zero_point=-7)
ASKED = dict(stride=2, padding=1, groups=6, backend="reference")
ADDED = replace(Q, residual_scale=0.02, residual_zero_point=9)
TABLED = replace(Q, table_scale=0.004, table_zero_point=500)
RESIDUAL = np.random.default_rng(1).integers(-128, 128, PROBLEM.y_shape, np.int8)


def wanted(q=Q, activation=None, problem=PROBLEM, x=X):
    return integer_oracle.direct(problem, x, W, BIAS, *q.operands(x, W, activation).values())


@pytest.mark.parametrize("activation", [None, "relu", "relu6"])
def test_the_result_is_that_of_the_stated_arithmetic(activation):
    y = dscore.conv(X, W, BIAS, quantization=Q, activation=activation, **ASKED)
    assert y.dtype == np.int8
    assert np.array_equal(y, wanted(activation=activation))


@pytest.mark.skipif(EmulatedBackend().missing() is not None,
                    reason=str(EmulatedBackend().missing()))
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("activation", [None, "silu"])
def test_products_past_the_numbers_that_rounding_is_exact_for(activation, layout):
    """Of multipliers of all sizes, the last of which make infinities."""
    scales = (1e-4, 0.01, 1.0, 150.0, 1e4, 1e6, 3e7, 1e20, 3e37, 3e38, 3e-38, 1e-3)
    q = replace(TABLED if activation else Q, x_scale=1.0, w_scale=scales, y_scale=1.0,
                **{"table_scale": 1.0} if activation else {})
    x = X if layout == "nchw" else np.ascontiguousarray(X.transpose(0, 2, 3, 1))
    y = dscore.conv(x, W, BIAS, quantization=q, activation=activation, layout=layout,
                    **{**ASKED, "backend": "emulated"})
    y = y if layout == "nchw" else y.transpose(0, 3, 1, 2)
    problem = parse_problem("n2c6h5w7_o12k3s2p1g6_int8_bias" + "_table" * bool(activation))
    assert np.array_equal(y, wanted(q, activation, problem))
    assert len(np.unique(y[:, 6:10])) == 2


@pytest.mark.parametrize(("dtype", "layout"), [("float32", "nchw"), ("float16", "nhwc")])
@pytest.mark.parametrize("name", ["reference", pytest.param("emulated", marks=pytest.mark.skipif(
    EmulatedBackend().missing() is not None, reason=str(EmulatedBackend().missing())))])
def test_floats_become_the_integers_that_stand_for_them(name, dtype, layout):
    x = (np.random.default_rng(3).standard_normal(X.shape) * 1.5).astype(dtype)
    integers = integer_oracle.integers(x, np.float32(1 / Q.x_scale), Q.x_zero_point)
    assert {-128, 127} < set(integers.ravel().tolist())
    x = x if layout == "nchw" else np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    asked = {**ASKED, "backend": name, "layout": layout, "quantization": Q}
    y = dscore.conv(x, W, BIAS, **asked)
    assert y.dtype == np.int8
    assert np.array_equal(y if layout == "nchw" else y.transpose(0, 3, 1, 2), wanted(x=integers))
    out = np.empty_like(y)
    assert dscore.conv(x, W, BIAS, out=out, **asked) is out
    assert np.array_equal(out, y)


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


def test_a_residual_is_added_before_the_activation():
    y = dscore.conv(X, W, BIAS, residual=RESIDUAL, quantization=ADDED, activation="relu", **ASKED)
    problem = parse_problem("n2c6h5w7_o12k3s2p1g6_int8_bias_residual")
    made = ADDED.operands(X, W, "relu", ("residual",))
    assert np.array_equal(y, integer_oracle.direct(problem, X, W, BIAS, *made.values(), RESIDUAL))
    assert abs(made["ratios"][0] / (0.02 / 0.011) - 1) <= 2**-17
    without = dscore.conv(X, W, BIAS, quantization=replace(Q, y_zero_point=0), **ASKED)
    near = np.clip(np.rint(without + (RESIDUAL - 9.0) * 0.02 / 0.011) - 7, -7, 127)
    inner = (without > -128) & (without < 127)
    assert np.abs(y - near)[inner].max() <= 1


@pytest.mark.parametrize("activation", ["silu", "hardswish", "sigmoid", "hardsigmoid"])
def test_an_activation_is_looked_up_in_a_table(activation):
    q = replace(TABLED, y_scale=0.008, y_zero_point=-90)
    y = dscore.conv(X, W, BIAS, quantization=q, activation=activation, **ASKED)
    scale = np.array(Q.w_scale)
    floats = dscore.conv((0.02 * (X - 5.0)).astype("f4"),
                         (scale[:, None, None, None] * W).astype("f4"),
                         (0.02 * scale * BIAS).astype("f4"), **ASKED)
    limits = 0.004 * (np.array([0, 1023]) - 500)
    exact = activated(np, np.clip(floats.astype(np.float64), *limits), activation)
    stands_for = 0.008 * (y.astype(np.float64) + 90)
    # Half a step of the result, and half a step before the activation by its steepest slope.
    within = np.abs(exact - 0.008 * (127 + 90) / 2) < 0.008 * 218 / 2
    assert within.any()
    assert np.all(np.abs(stands_for - exact)[within] <= 0.51 * 0.008 + 0.51 * 0.004 * 1.1)


def test_a_scale_by_image_and_channel_makes_other_integers():
    w, s = W[:, :, :1, :1].reshape(2, 6, 1, 1), np.float16([[0.5, 1, -1, 0, 2, 0.3]] * 2)
    q = dscore.Quantization(0.02, 0.003, 0.05, 5, -7, input_scale=0.03, input_zero_point=-11)
    problem = parse_problem("n2c6h5w7_o2k1_int8_scaled")
    made = [*q.operands(X, w, None, ("input",)).values(), s]
    for shape in (s.shape, (*s.shape, 1, 1)):
        y = dscore.conv(X, w, scale=s.reshape(shape), quantization=q, backend="reference")
        assert np.array_equal(y, integer_oracle.direct(problem, X, w, None, *made))
    scaled = integer_oracle.scaled(X, s, made[2][0], -11, 5)
    assert np.array_equal(y, dscore.conv(scaled, w, quantization=replace(q, input_scale=None),
                                         backend="reference"))
    sums = w.astype(np.int64).sum((1, 2, 3))
    apart = replace(q, x_zero_point=0, scaled_zero_point=5)
    assert np.array_equal(y, dscore.conv(X, w, (-5 * sums).astype(np.int32), scale=s,
                                         quantization=apart, backend="reference"))
    exact = (X + 11.0) * 0.03 * s[:, :, None, None].astype(np.float64)
    inner = (scaled > -128) & (scaled < 127)
    assert np.abs(0.02 * (scaled - 5.0) - exact)[inner].max() <= 0.0101


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
        assert again["points"] is first["points"]
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


class Faulty:
    """A number that cannot be read."""

    def __float__(self):
        raise ArithmeticError("no number")


@pytest.mark.parametrize(("fields", "message"), [
    (dict(x_scale=0), "x_scale must be a positive, finite number, got 0"),
    (dict(y_scale=math.inf), "y_scale must be a positive, finite number, got inf"),
    (dict(y_scale=-1.0), "y_scale must be a positive, finite number, got -1.0"),
    (dict(w_scale=[0.1, math.nan]), "w_scale[1] must be a positive, finite number, got nan"),
    (dict(w_scale="much"), "w_scale must be a positive, finite number, got 'much'"),
    (dict(w_scale=np.ones((2, 2))), "w_scale must be a number, or have one axis"),
    (dict(w_scale=np.broadcast_to(np.float32(1), (1 << 20, 1 << 20))),
     "w_scale must be a number, or have one axis"),
    (dict(x_scale=Faulty()), "x_scale must be a positive, finite number, got"),
    (dict(w_scale=[]), "w_scale must be a number, or have one axis"),
    (dict(x_zero_point=128), "x_zero_point must be an integer from -128 to 127, as int8 has them; "
                             "got 128; of uint8 data subtract 128 from it and from the data"),
    (dict(y_zero_point=0.5), "y_zero_point must be an integer from -128 to 127"),
    (dict(y_scale=None, y_zero_point=3), "y_zero_point is 3 without a y_scale"),
    (dict(out_dtype="float32"), "out_dtype of a quantization with a y_scale must be one of"),
    (dict(y_scale=None, out_dtype="bfloat16"), "out_dtype of a quantization without a y_scale"),
    (dict(table_zero_point=1024), "table_zero_point must be an integer from 0 to 1023; got 1024"),
    (dict(y_scale=None, table_scale=1.0), "there is a table_scale without a y_scale"),
    (dict(scaled_zero_point=3), "scaled_zero_point is 3 without an input_scale"),
    (dict(scaled_zero_point=128, input_scale=1.0), "scaled_zero_point must be an integer"),
    (dict(y_scale=None, residual_scale=1.0), "there is a residual_scale without a y_scale"),
    (dict(residual_scale=1e9), "residual_scale by that of what it is added to or becomes must be"),
    (dict(x_scale=1e-30, w_scale=[1.0, 1e-30]), "of channel 1 it is 1e-60"),
    (dict(x_scale=1e30, w_scale=1e30), "of channel 0 it is 1e+60")])
def test_scales_and_zero_points_out_of_range_are_refused(fields, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        dscore.Quantization(**{"x_scale": 1.0, "w_scale": 1.0, "y_scale": 1.0, **fields})


@pytest.mark.parametrize(("change", "message"), [
    (dict(quantization=None), "x is int8, whose integers stand for numbers by their scales"),
    (dict(quantization=0.5), "quantization must be a dscore.Quantization, got 0.5"),
    (dict(x=X.astype("f8")), "with quantization= x must be int8, got float64, or float32, float16, "
                             "bfloat16, which the layer quantises"),
    (dict(x=X.astype("f4"), residual=RESIDUAL, quantization=ADDED),
     "that quantises its x, of float32, takes no residual and no scale, and this one has a resid"),
    (dict(x=X.astype("f4"), quantization=replace(Q, x_scale=1e-39, w_scale=1e30)),
     "1 / x_scale is 1e+39, by which an x of floats is multiplied; it must be a normal float32"),
    (dict(w=W.astype("i2")), "with quantization= w must be int8, got int16"),
    (dict(bias=BIAS.astype("f4")), "bias must be int32, got float32, of the scale"),
    (dict(out=np.zeros(PROBLEM.y_shape, "f4")), "out must be int8, got float32"),
    (dict(quantization=dscore.Quantization(1, [1.0, 2.0], 1)),
     "w_scale has 2 scales, and w has 12 output channels"),
    (dict(activation="silu"), "silu of an int8 result is looked up in a table: pass the "
                              "quantization a table_scale"),
    (dict(activation="relu", quantization=TABLED), "activation of a quantization with a tab"),
    (dict(residual=RESIDUAL), "with a residual, a quantization needs residual_scale"),
    (dict(residual=RESIDUAL.astype("f4"), quantization=ADDED), "residual must be int8, got float"),
    (dict(residual=RESIDUAL, residual_after=True, activation="relu", quantization=ADDED),
     "with quantization= there is no a residual after the activation"),
    (dict(scale=np.ones((2, 6), "f2"), quantization=ADDED), "with a scale, a quantization needs"),
    (dict(scale=np.ones((2, 6), "f4"), quantization=replace(Q, input_scale=1.0)),
     "scale must be float16, got float32, by image and channel, as kernels read it"),
    (dict(arithmetic="winograd"), "with quantization= there is no arithmetic='winograd'"),
    (dict(bias=BIAS[:3]), "bias must have shape (12,)")])
def test_calls_that_do_not_fit_are_refused(change, message):
    call = {"x": X, "w": W, "bias": BIAS, "quantization": Q, **ASKED, **change}
    with pytest.raises(SpecError, match=re.escape(message)):
        dscore.conv(call.pop("x"), call.pop("w"), **call)
