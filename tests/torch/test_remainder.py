"""What is left to PyTorch: the reasons, for tensors as they are on a GPU, and their list."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dscore.torch import conv2d, left_to_pytorch, remainder  # noqa: E402
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


@pytest.mark.parametrize(("x", "w", "begin"), [
    (dict(dtype=torch.float16), {}, "dtype float16: dscore computes float32"),
    (dict(dtype=torch.float64), {}, "dtype float64: dscore computes float32"),
    (dict(memory_format=NHWC), {}, "x is channels_last: kernels take NCHW"),
    ({}, dict(memory_format=NHWC), "w is channels_last: kernels take NCHW"),
])
def test_types_and_layouts(x, w, begin):
    tensors = on_gpu(2, 8, 5, 5, **x), on_gpu(4, 8, 3, 3, **w)
    assert reason(*tensors).startswith(begin)
    assert reason(*tensors, LAYER._replace(backend="hip")) == ""


def test_more_elements_than_kernels_index():
    limit = f"more than {2**31 - 2**20} elements"
    assert reason(on_gpu(2**14, 8, 128, 128), on_gpu(4, 8, 3, 3)).startswith(limit)
    # Small operands, of which the result is large.
    x, w = on_gpu(2**12, 8, 64, 64), on_gpu(256, 8, 1, 1)
    assert reason(x, w).startswith(limit)
    assert reason(x, w, LAYER._replace(stride=(2, 2))) == ""


def test_autocast(monkeypatch):
    x, w = on_gpu(2, 8, 5, 5), on_gpu(4, 8, 3, 3)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: device == "cuda")
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.bfloat16)
    assert reason(x, w).startswith("autocast to bfloat16: dscore computes float32")
    assert reason(x, w, LAYER._replace(backend="hip")) == ""


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
