"""Arrays whose channels lie last, and arrays of 16 bits, of every library."""

import ml_dtypes
import numpy as np
import pytest
from emulated_gpus import GpuBackend, Tensor, emulated_gpus

import dscore
from dscore.calling.gradients import input_gradient, weight_gradient
from dscore.checking import bound
from dscore.core.errors import SpecError
from dscore.core.token import parse_problem

TOKEN = "n2c6h9w7_o12k3s2p1g6_bias_relu_residual"
OPTIONS = dict(stride=2, padding=1, groups=6, activation="relu")
TYPES = [np.float32, np.float16, ml_dtypes.bfloat16]


def operands(dtype, layout="nchw"):
    """x, w, bias and residual."""
    problem = parse_problem(f"{TOKEN}".replace("_bias", f"_{np.dtype(dtype).name}_{layout}_bias"
                                               .replace("_nchw", "").replace("_float32", "")))
    return problem, bound.sample(problem, 5)


def last(images):
    return np.ascontiguousarray(np.moveaxis(images, 1, -1))


def require_close(y, wanted):
    """As close as the roundings of another algorithm: one of the type, a few of the sum."""
    assert y.dtype == wanted.dtype
    unit = {"float32": 2.0**-20, "float16": 2.0**-10, "bfloat16": 2.0**-7}
    y, wanted, name = (*(np.asarray(one if isinstance(one, np.ndarray) else one.float(), np.float64)
                         for one in (y, wanted)), str(y.dtype).rpartition(".")[2])
    assert np.all(np.abs(y - wanted) <= unit[name] * (np.abs(wanted) + np.abs(wanted).max() / 64))


@pytest.mark.parametrize("dtype", TYPES, ids=lambda one: np.dtype(one).name)
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_arrays_of_every_type_and_layout(dtype, layout):
    problem, (x, w, bias, residual) = operands(dtype, layout)
    y = dscore.conv(x, w, bias, residual=residual, layout=layout, **OPTIONS)
    assert (y.dtype, y.shape) == (np.dtype(dtype), problem.y_shape)
    assert bound.compare(y, bound.expected(problem, x, w, bias, residual)).ok
    out = np.zeros_like(y)
    assert dscore.conv(x, w, bias, residual=residual, layout=layout, out=out, **OPTIONS) is out
    assert np.array_equal(out, y)
    one = dscore.conv(x[1], w, bias, residual=residual[1], layout=layout, **OPTIONS)
    assert np.array_equal(one, y[1])


@pytest.mark.parametrize("dtype", TYPES, ids=lambda one: np.dtype(one).name)
def test_layouts_give_the_same_numbers(dtype):
    _, (x, w, bias, residual) = operands(dtype)
    y = dscore.conv(x, w, bias, residual=residual, **OPTIONS)
    turned = dscore.conv(last(x), w, bias, residual=last(residual), layout="nhwc", **OPTIONS)
    require_close(turned, last(y))
    layer = dict(stride=2, padding=1, groups=6)
    require_close(input_gradient(last(y), w, (9, 7), layout="nhwc", **layer),
                  last(input_gradient(y, w, (9, 7), **layer)))
    by_filter = weight_gradient(last(x), last(y), 3, layout="nhwc", **layer)
    require_close(by_filter, weight_gradient(x, y, 3, **layer))
    assert by_filter.dtype == np.dtype(dtype)


def test_a_scale_of_images_whose_channels_are_last():
    x, w = np.ones((2, 3, 3, 4), np.float32), np.ones((5, 4, 1, 1), np.float32)
    scale = np.arange(8, dtype=np.float32).reshape(2, 4)
    y = dscore.conv(x, w, scale=scale, layout="nhwc")
    assert np.array_equal(y[:, 1, 2, 0], scale.sum(1))
    assert np.array_equal(dscore.conv(x, w, scale=scale[:, None, None], layout="nhwc"), y)
    with pytest.raises(SpecError, match=r"scale must have shape \(2, 4\).* or \(2, 1, 1, 4\)"):
        dscore.conv(x, w, scale=scale[:, :, None, None], layout="nhwc")


def test_what_makes_no_layout_is_refused():
    x, w = np.ones((1, 4, 4, 8), np.float32), np.ones((8, 8, 1, 1), np.float32)
    with pytest.raises(SpecError, match="layout must be one of nchw, nhwc; got 'NHWC'"):
        dscore.conv(x, w, layout="NHWC")
    with pytest.raises(SpecError, match='pass layout="nhwc"'):
        dscore.conv(x, w)
    with pytest.raises(SpecError, match='pass layout="nchw"'):
        dscore.conv(np.moveaxis(x, -1, 1), w, layout="nhwc")
    with pytest.raises(SpecError, match="one dtype, got x float16, w float32"):
        dscore.conv(x.astype(np.float16), w, layout="nhwc")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_channels_last_tensors_are_taken_as_they_lie(dtype):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    _, (x, w, bias, residual) = operands(np.float32)
    plain = [torch.from_numpy(one).to(getattr(torch, dtype)) for one in (x, w, bias, residual)]
    y = dscore.conv(*plain[:3], residual=plain[3], **OPTIONS)
    turned = [one.contiguous(memory_format=torch.channels_last) if one.dim() == 4 else one
              for one in plain]
    for second in (turned[3], plain[3]):  # one that lies otherwise than x is copied
        result = dscore.conv(*turned[:3], residual=second, **OPTIONS)
        assert result.is_contiguous(memory_format=torch.channels_last)
        require_close(result, y)
    out = torch.empty_like(result)
    assert dscore.conv(*turned[:3], residual=turned[3], out=out, **OPTIONS) is out
    require_close(out, y)
    layer = dict(stride=2, padding=1, groups=6)
    back = input_gradient(result, turned[1], (9, 7), **layer)
    assert back.is_contiguous(memory_format=torch.channels_last)
    require_close(back, input_gradient(y, plain[1], (9, 7), **layer))
    require_close(weight_gradient(turned[0], result, 3, **layer),
                  weight_gradient(plain[0], y, 3, **layer))


def test_a_tensor_that_lies_in_both_ways_is_contiguous_unless_another_decides():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = torch.ones(2, 1, 5, 5).to(memory_format=torch.channels_last)
    w, residual = torch.ones(4, 1, 1, 1), torch.ones(2, 4, 5, 5)
    assert dscore.conv(x, w).is_contiguous()
    y = dscore.conv(x, w, residual=residual.to(memory_format=torch.channels_last))
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert dscore.conv(x, w, residual=residual).is_contiguous()


def moved(array, layout):
    """An array of the made-up library, of axes (N, C, H, W) and memory of a layout."""
    return Tensor(np.moveaxis(last(array), -1, 1) if layout == "nhwc" else array)


def test_gpu_arrays_of_both_layouts_are_calls_of_their_own(monkeypatch):
    problem, arrays = operands(np.float32)
    x, w, bias, residual = arrays
    with emulated_gpus(monkeypatch):
        results = {}
        for layout in ("nchw", "nhwc", "nchw", "nhwc"):
            for _ in range(3):
                results[layout] = dscore.conv(
                    moved(x, layout), Tensor(w), Tensor(bias), residual=moved(residual, layout),
                    backend="gpu", **OPTIONS)
        assert GpuBackend.prepared == 2
        assert results["nchw"].array.flags.c_contiguous
        assert np.moveaxis(results["nhwc"].array, 1, -1).flags.c_contiguous
        require_close(results["nchw"].array, results["nhwc"].array)
        assert bound.compare(results["nhwc"].array, bound.expected(problem, *arrays)).ok
        with pytest.raises(SpecError, match="out on a GPU must be channels_last, as x is"):
            dscore.conv(moved(x, "nhwc"), Tensor(w), Tensor(bias), backend="gpu",
                        residual=moved(residual, "nhwc"), out=results["nchw"], **OPTIONS)


def test_gpu_arrays_whose_axes_are_channels_last(monkeypatch):
    _, (x, w, bias, residual) = operands(np.float32)
    wanted = dscore.conv(x, w, bias, residual=residual, **OPTIONS)
    with emulated_gpus(monkeypatch):
        for _ in range(3):
            y = dscore.conv(Tensor(last(x)), Tensor(w), Tensor(bias), layout="nhwc",
                            residual=Tensor(last(residual)), backend="gpu", **OPTIONS)
        assert y.array.flags.c_contiguous
        require_close(y.array, last(wanted))


def weights(x, gradient, **options):
    return weight_gradient(x, gradient, 3, padding=1, groups=6, **options)


@pytest.mark.parametrize("dtype", TYPES[1:], ids=lambda one: np.dtype(one).name)
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_a_filters_gradient_in_float32_is_the_sum_before_it_is_rounded(dtype, layout):
    rng = np.random.default_rng(0)
    x, gradient = (rng.standard_normal((2, 6, 5, 6)).astype(dtype) for _ in range(2))
    sums = weights(x, gradient, layout=layout, out_dtype="float32")
    assert sums.dtype == np.float32
    assert np.array_equal(sums.astype(dtype), weights(x, gradient, layout=layout))
    out = np.zeros_like(sums)
    assert weights(x, gradient, layout=layout, out_dtype="float32", out=out) is out
    assert np.array_equal(out, sums)
    none = weights(x[:0], gradient[:0], layout=layout, out_dtype="float32")
    assert none.dtype == np.float32
    assert not none.any()


@pytest.mark.parametrize(("options", "said"), [
    ({"out_dtype": "float64"}, "out_dtype is float64 for a layer of float16, whose result is flo"),
    ({"out_dtype": "half"}, "out_dtype is half for a layer of float16"),
    ({"out_dtype": 3}, "out_dtype is 3 for a layer of float16"),
    ({"out_dtype": "float32", "out": np.zeros((6, 1, 3, 3), np.float16)},
     "with out_dtype='float32' out must be float32, got float16"),
    ({"out": np.zeros((6, 1, 3, 3), np.float32)}, "all arrays must be of one dtype")])
def test_other_types_of_a_filters_gradient_are_refused(options, said):
    x = np.ones((2, 6, 5, 6), np.float16)
    with pytest.raises(SpecError, match=said):
        weights(x, x, **options)


@pytest.mark.deep
def test_a_filters_gradient_of_tensors_is_remembered_by_its_type(monkeypatch):
    x = Tensor(np.ones((2, 6, 5, 6), np.float16))
    with emulated_gpus(monkeypatch):
        for _ in range(2):
            wide, narrow = (weights(x, x, backend="gpu", **given)
                            for given in ({"out_dtype": "float32"}, {}))
            assert (wide.dtype, narrow.dtype) == (np.float32, np.float16)
