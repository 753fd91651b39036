"""What is left to PyTorch: the reasons, for tensors as they are on a GPU, and their list."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.nn import functional  # noqa: E402

from dscore.algorithms import registry  # noqa: E402
from dscore.algorithms.implicit_gemm_universal import ImplicitGemmUniversal  # noqa: E402
from dscore.algorithms.row_reuse import RowReuse  # noqa: E402
from dscore.core import catalog  # noqa: E402
from dscore.torch import conv2d, gradients, layer, left_to_pytorch, remainder  # noqa: E402
from dscore.torch.layer import Layer, result_shape  # noqa: E402

LAYER = Layer((1, 1), (0, 0, 0, 0), (1, 1), 1)
NHWC = torch.channels_last


def on_gpu(*shape, dtype=torch.float32, memory_format=torch.contiguous_format):
    """All that is asked of a CUDA tensor, of one without memory."""
    tensor = torch.empty(shape, dtype=dtype, device="meta", memory_format=memory_format)
    return SimpleNamespace(device=SimpleNamespace(type="cuda"), dtype=tensor.dtype,
                           shape=tensor.shape, numel=tensor.numel,
                           is_contiguous=tensor.is_contiguous)


def reason(x, w, layer=LAYER):
    return remainder.reason_for_pytorch(x, w, result_shape(x.shape, w.shape, layer), layer)


def test_float32_on_a_gpu_is_not_left():
    assert reason(on_gpu(2, 8, 5, 5), on_gpu(4, 8, 3, 3)) == ""
    # Of both layouts at once.
    assert reason(on_gpu(2, 8, 1, 1, memory_format=NHWC), on_gpu(4, 8, 1, 1)) == ""
    assert reason(on_gpu(2, 1, 5, 5, memory_format=NHWC), on_gpu(4, 1, 3, 3)) == ""


DENSE = "dense in {} and {}: dscore has only the definition itself; a backend= by name computes it"


@pytest.mark.parametrize(("x", "w", "begin"), [
    (dict(dtype=torch.float16), {}, "x is float16, and w float32"),
    (dict(dtype=torch.float16), dict(dtype=torch.float16), DENSE.format("float16", "NCHW")),
    (dict(dtype=torch.float64), {}, "dtype float64: dscore computes float32, float16, bfloat16"),
    (dict(memory_format=NHWC), {}, DENSE.format("float32", "NHWC")),
    ({}, dict(memory_format=NHWC), "w is not contiguous: kernels take filters as"),
])
def test_types_and_layouts_of_dense_layers(x, w, begin, monkeypatch):
    tensors = on_gpu(2, 8, 5, 5, **x), on_gpu(4, 8, 3, 3, **w)
    only = begin.startswith("dense in")
    assert (reason(*tensors) == "") == only
    monkeypatch.setattr(ImplicitGemmUniversal, "elements", ())
    layer._lacking.cache_clear()
    assert reason(*tensors).startswith(begin)
    assert reason(*tensors, LAYER._replace(backend="hip")) == ""
    layer._lacking.cache_clear()


@pytest.mark.parametrize("form", [NHWC, torch.contiguous_format])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_what_a_kernel_takes_is_not_left_and_what_the_definition_takes_alone_is(dtype, form,
                                                                               monkeypatch):
    x, w = on_gpu(2, 8, 5, 5, dtype=dtype, memory_format=form), on_gpu(8, 1, 3, 3, dtype=dtype)
    depthwise = LAYER._replace(groups=8)
    for one in map(registry.algorithm, registry.names()):
        if one.name != "direct":
            monkeypatch.setattr(type(one), "elements", ("float32",))
            monkeypatch.setattr(type(one), "layouts", ("nchw",))
    layer._lacking.cache_clear()
    usual = dtype is torch.float32 and form is not NHWC
    assert (reason(x, w, depthwise) == "") == usual
    monkeypatch.setattr(RowReuse, "elements", ("float32", "float16", "bfloat16"))
    monkeypatch.setattr(RowReuse, "layouts", ("nchw", "nhwc"))
    layer._lacking.cache_clear()
    assert reason(x, w, depthwise) == ""
    layer._lacking.cache_clear()


def test_the_weight_gradient_of_a_first_layer_is_left_where_a_gpu_lacks_the_units(monkeypatch):
    def lacking(*w_shape, nhwc=True, dtype="float16"):
        layer._lacking.cache_clear()
        return layer.lacking_kernel("weight_gradient", w_shape, LAYER, dtype, nhwc)

    left = DENSE.format("float16", "NHWC").replace("itself;", "itself for the weight gradient;")
    assert lacking(32, 3, 3, 3) == ""
    assert lacking(32, 8, 3, 3) == left
    assert "float16 and NCHW" in lacking(32, 3, 3, 3, nhwc=False)
    assert "float32 and NHWC" in lacking(32, 3, 3, 3, dtype="float32")
    for device, reason in (("h200", ""), ("z100sm", left), ("gfx90a", left)):
        monkeypatch.setattr(layer, "gpu_here", lambda of=device: catalog.device(of))
        assert lacking(32, 3, 3, 3) == reason
    layer._lacking.cache_clear()


def test_more_elements_than_kernels_index():
    limit = f"more than {2**31 - 2**20} elements"
    assert reason(on_gpu(2**14, 8, 128, 128), on_gpu(4, 8, 3, 3)).startswith(limit)
    # Small operands, of which the result is large.
    x, w = on_gpu(2**12, 8, 64, 64), on_gpu(256, 8, 1, 1)
    assert reason(x, w).startswith(limit)
    assert reason(x, w, LAYER._replace(stride=(2, 2))) == ""


def test_the_list_is_bounded(monkeypatch):
    monkeypatch.setattr(remainder, "MOST_RECORDS", 3)
    left_to_pytorch(reset=True)
    for channels in range(1, 9):
        conv2d(torch.zeros(1, channels, 3, 3), torch.zeros(1, channels, 1, 1))
        assert 0 < len(left_to_pytorch()) <= 3


def test_the_most_frequent_comes_first():
    left_to_pytorch(reset=True)
    for channels in (1, 2, 2, 3, 2, 3):
        conv2d(torch.zeros(1, channels, 3, 3), torch.zeros(4, channels, 1, 1), dilation=2)
    assert [(one.layer, one.calls) for one in left_to_pytorch()] == [
        ("2->4 1x1 dilation 2x2", 3), ("3->4 1x1 dilation 2x2", 2), ("1->4 1x1 dilation 2x2", 1)]


@pytest.mark.parametrize("padding", [(1, 1, 2, 2), (0, 1, 2, 1)])
@pytest.mark.parametrize("groups", [1, 2])
def test_gradients_of_dense_and_grouped_layers_on_a_gpu(padding, groups):
    """Called as the operators call them, with tensors that PyTorch takes as well on the host."""
    layer = Layer((2, 1), padding, (1, 2), groups)
    top, bottom, left, right = padding
    x = torch.randn(2, 4, 7, 8, requires_grad=True)
    w = torch.randn(6, 4 // groups, 3, 2, requires_grad=True)
    y = functional.conv2d(functional.pad(x, (left, right, top, bottom)), w, None, layer.stride, 0,
                          layer.dilation, groups)
    gradient = torch.randn_like(y)
    expected = torch.autograd.grad(y, (x, w), gradient)
    left_to_pytorch(reset=True)
    torch.testing.assert_close(
        gradients.input_gradient(gradient, w.detach(), x.shape, layer), expected[0])
    torch.testing.assert_close(
        gradients.weight_gradient(x.detach(), gradient, w.shape, layer), expected[1])
    kind = "dense" if groups == 1 else "grouped"
    assert [(one.operation, one.reason.partition(";")[0]) for one in left_to_pytorch()] == [
        (operation, f"{kind} in float32 and NCHW: dscore has only the definition itself for the "
                    f"{operation.replace('_', ' ')}")
        for operation in ("input_gradient", "weight_gradient")]


@pytest.mark.parametrize(("w_shape", "groups", "left"), [
    ((8, 1, 3, 3), 4, 0), ((6, 4, 1, 1), 1, 0), ((6, 2, 1, 1), 2, 2), ((6, 4, 3, 1), 1, 2)])
def test_gradients_of_depthwise_and_pointwise_layers_are_dscores(w_shape, groups, left):
    layer = LAYER._replace(groups=groups)
    x, w = torch.randn(1, 4, 5, 5), torch.randn(w_shape)
    gradient = functional.conv2d(x, w, groups=groups)
    left_to_pytorch(reset=True)
    gradients.input_gradient(gradient, w, x.shape, layer)
    gradients.weight_gradient(x, gradient, w.shape, layer)
    assert len(left_to_pytorch()) == left
