"""conv2d: results and gradients of dscore's own path, held to PyTorch's in float64."""

import copy
import re
import threading

import pytest
from hypothesis import given, settings
from profiles import deep

from dscore.algorithms.direct import Direct
from dscore.calling import convolve
from dscore.calling import gradients as of_arrays
from dscore.core import numerics
from dscore.core.errors import SpecError, UnavailableError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from exact_backend import ExactBackend  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_layers import ACTIVATIONS, cases, close, theirs  # noqa: E402

from dscore.torch import conv2d, left_to_pytorch  # noqa: E402

torch.manual_seed(0)
X, W, BIAS = torch.randn(2, 4, 6, 7), torch.randn(6, 2, 3, 3), torch.randn(6)
RESIDUAL, SCALE = torch.randn(2, 6, 3, 4), torch.randn(2, 4)
OPTIONS = dict(stride=2, padding=1, groups=2)
EXACT = f"{ExactBackend.__module__}:ExactBackend"


@settings(max_examples=40)
@given(cases())
@pytest.mark.deep
def test_results_and_gradients_by_a_backend(case):
    close(case.call(conv2d, backend="reference"), case.call(theirs, torch.float64))


@settings(max_examples=30)
@given(cases())
def test_results_and_gradients_by_pytorch(case):
    close(case.call(conv2d), case.call(theirs))


def test_by_default_pytorch_computes_on_the_host_and_says_so():
    left_to_pytorch(reset=True)
    for _ in range(3):
        assert torch.equal(conv2d(X, W, BIAS, **OPTIONS),
                           functional.conv2d(X, W, BIAS, **OPTIONS))
    [record] = left_to_pytorch()
    assert (record.operation, record.calls) == ("conv", 3)
    assert record.layer == "4->6 3x3 stride 2x2 padding 1,1,1,1 groups 2"
    assert record.reason.startswith("device cpu")
    assert str(record).split()[:3] == ["3x", "conv", "4->6"]
    assert left_to_pytorch(reset=True) == [record]
    assert left_to_pytorch() == []


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_layer_is_counted_once_for_any_size_of_input(backend):
    left_to_pytorch(reset=True)
    for size in (5, 6, 7):
        conv2d(torch.zeros(1, 4, size, size), W, **OPTIONS, backend=backend)
    assert [one.calls for one in left_to_pytorch()] == ([3] if backend == "auto" else [])


def test_what_is_left_is_said_to_the_logger_once(caplog):
    left_to_pytorch(reset=True)
    caplog.set_level("INFO", "dscore")
    for _ in range(2):
        conv2d(X, W, **OPTIONS)
    assert [record.message for record in caplog.records] == [
        "dscore: left to PyTorch: conv 4->6 3x3 stride 2x2 padding 1,1,1,1 groups 2: device cpu: "
        "kernels take CUDA tensors; a backend= by name computes here"]


@pytest.fixture
def float64(monkeypatch):
    monkeypatch.setitem(numerics.ELEMENTS, "float64",
                        numerics.Element("float64", 8, "double", 2.0**-53))
    monkeypatch.setattr(Direct, "elements", ("float64",))


@pytest.mark.parametrize("after", [False, deep(True)])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("backend", [deep("auto"), EXACT])
def test_numerical_derivatives_of_first_and_second_order(float64, backend, activation, after):
    tensors = [tensor.double().requires_grad_()
               for tensor in (X[:1], W, BIAS, RESIDUAL[:1], SCALE[:1])]

    def function(x, w, bias, residual, scale):
        return conv2d(x, w, bias, **OPTIONS, activation=activation, residual=residual,
                      residual_after=after, scale=scale, backend=backend)

    assert torch.autograd.gradcheck(function, tensors, fast_mode=True, check_batched_grad=True)
    if (backend, activation) != ("auto", "hardsigmoid"):  # of which PyTorch has no second one
        assert torch.autograd.gradgradcheck(function, tensors, fast_mode=True)


def counted(operations, run):
    """*run* of dscore's calls, which adds its operation to the list."""
    return lambda call: operations.append(call.problem.operation) or run(call)


@pytest.mark.parametrize("name", ["x", "w", "bias", "residual", "scale"])
def test_only_what_is_wanted_is_computed(name, monkeypatch):
    tensors = dict(x=X, w=W, bias=BIAS, residual=RESIDUAL, scale=SCALE)
    tensors[name] = tensors[name].clone().requires_grad_()
    operations = []
    monkeypatch.setattr(convolve, "run", counted(operations, convolve.run))
    monkeypatch.setattr(of_arrays, "run", counted(operations, of_arrays.run))
    y = conv2d(**tensors, **OPTIONS, activation="relu", backend="reference")
    y.sum().backward()
    expected = tensors[name].detach().clone().requires_grad_()
    theirs(**{**tensors, name: expected}, **OPTIONS, activation="relu").sum().backward()
    torch.testing.assert_close(tensors[name].grad, expected.grad, rtol=1e-4, atol=1e-4)
    assert operations == ["conv", *{"x": ["input_gradient"], "w": ["weight_gradient"],
                                    "scale": ["input_gradient"]}.get(name, [])]


def kept(function, by_x=True, by_w=True, **options):
    """Elements that a call keeps for the gradients."""
    saved = []
    x, w = X.clone().requires_grad_(by_x), W.clone().requires_grad_(by_w)
    with torch.autograd.graph.saved_tensors_hooks(
            lambda one: saved.append(one) or one, lambda one: one):
        function(x, w, **OPTIONS, **options)
    return sum(one.numel() for one in saved)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_no_more_is_kept_for_the_gradients_than_pytorch_keeps(activation):
    assert kept(conv2d, activation=activation, backend="reference") <= kept(
        theirs, activation=activation)


def test_a_layer_that_does_not_learn_does_not_keep_its_input():
    assert kept(conv2d, by_w=False, backend="reference") == W.numel()
    assert kept(conv2d, by_x=False, backend="reference") == X.numel()
    assert kept(conv2d, by_x=False, by_w=False, backend="reference") == 0


def test_a_result_that_was_changed_in_place_is_noticed():
    x = X.clone().requires_grad_()
    y = conv2d(x, W, **OPTIONS, activation="relu", backend="reference")
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("padding", ["same", "valid", ((0, 1), (2, 1)), (0, 1, 1, 0), (1, 2)])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_every_form_of_padding(padding, backend):
    w = W.clone().requires_grad_()
    x = X.clone().requires_grad_()
    y = conv2d(x, w, BIAS, (2, 1), padding, 1, 2, backend=backend)
    import dscore

    expected = dscore.conv(X, W, BIAS, (2, 1), padding, 1, 2)
    torch.testing.assert_close(y.detach(), expected, rtol=1e-4, atol=1e-4)
    y.sum().backward()
    top, bottom, left, right = {"same": (0, 1, 1, 1), "valid": (0,) * 4, (1, 2): (1, 1, 2, 2),
                                ((0, 1), (2, 1)): (0, 1, 2, 1)}.get(padding, padding)
    padded = functional.pad(X, (left, right, top, bottom)).requires_grad_()
    again = W.clone().requires_grad_()
    functional.conv2d(padded, again, BIAS, (2, 1), 0, 1, 2).sum().backward()
    torch.testing.assert_close(w.grad, again.grad, rtol=1e-4, atol=1e-4)
    inner = padded.grad[:, :, top:top + 6, left:left + 7]
    torch.testing.assert_close(x.grad, inner, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_one_image_and_a_batch_of_none(backend):
    one = conv2d(X[0], W, BIAS, **OPTIONS, residual=RESIDUAL[0], scale=SCALE[0], backend=backend)
    both = conv2d(X, W, BIAS, **OPTIONS, residual=RESIDUAL, scale=SCALE, backend=backend)
    torch.testing.assert_close(one, both[0], rtol=1e-4, atol=1e-4)
    wide = conv2d(X, W, BIAS, **OPTIONS, residual=RESIDUAL, scale=SCALE[:, :, None, None],
                  backend=backend)
    assert torch.equal(wide, both)
    x, w = X[:0].clone().requires_grad_(), W.clone().requires_grad_()
    conv2d(x, w, **OPTIONS, backend=backend).sum().backward()
    assert x.grad.shape == (0, 4, 6, 7)
    assert not w.grad.any()


@pytest.mark.parametrize("lay_out", [
    lambda t: t.flip(-1), lambda t: t[:1].expand(t.shape), lambda t: t.transpose(-1, -2),
    lambda t: t.contiguous(memory_format=torch.channels_last)],
    ids=["flipped", "expanded", "transposed", "channels_last"])
def test_tensors_of_any_strides(lay_out):
    x, w = lay_out(X).detach().requires_grad_(), lay_out(W).detach().requires_grad_()
    ours = conv2d(x, w, BIAS, **OPTIONS, backend="reference")
    expected = functional.conv2d(x, w, BIAS, **OPTIONS)
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)
    gradient = lay_out(torch.randn_like(ours)) if ours.shape[2] == ours.shape[3] else (
        torch.ones(1, 1, 1, 1).expand(ours.shape))
    for one, other in zip(torch.autograd.grad(ours, (x, w), gradient),
                          torch.autograd.grad(expected, (x, w), gradient), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("change", "message"), [
    (dict(x=X.numpy()), "x must be a tensor, got ndarray; dscore.conv takes arrays"),
    (dict(x=X[0, 0]), "x must have 4 axes (N, C, H, W), or 3 for one image"),
    (dict(w=W[0]), "got shapes (2, 4, 6, 7) and (2, 3, 3)"),
    (dict(groups=1), "x has 4 channels, and w of shape (6, 2, 3, 3) with groups=1 takes 2"),
    (dict(bias=BIAS[:5]), "bias must have shape (6,), got (5,)"),
    (dict(residual=RESIDUAL[:1]), "residual must have shape (2, 6, 3, 4), got (1, 6, 3, 4)"),
    (dict(scale=SCALE[0]), "scale must have shape (2, 4), got (4,)"),
    (dict(activation="tanh"), "activation must be one of"),
    (dict(arithmetic="tf32"), "arithmetic must be one of"),
    (dict(dilation=9), "no output rows or columns: an input of 6x7 is smaller"),
    (dict(stride=0), "stride must be positive"),
])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_what_is_no_convolution_is_refused(change, message, backend):
    arguments = dict(x=X, w=W, bias=BIAS, **OPTIONS, backend=backend) | change
    with pytest.raises(SpecError, match=re.escape(message)):
        conv2d(**arguments)


def test_a_named_backend_does_not_fall_back():
    with pytest.raises(SpecError, match="dtype must be one of"):
        conv2d(X.double(), W.double(), **OPTIONS, backend="reference")
    with pytest.raises(SpecError, match="all arrays must be of one dtype"):
        conv2d(X, W.half(), **OPTIONS, backend="reference")
    with pytest.raises((UnavailableError, SpecError), match="backend"):
        conv2d(X, W, **OPTIONS, backend="cudnn")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_operands_are_cast_under_autocast(dtype):
    with torch.autocast("cpu", dtype):
        assert conv2d(X, W, BIAS, **OPTIONS).dtype is dtype
        x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
        y = conv2d(x, w, BIAS, **OPTIONS, backend="reference")
        y.float().square().sum().backward()
    assert y.dtype is dtype
    rounded = [one.to(dtype).float().requires_grad_() for one in (X, W, BIAS)]
    wanted = functional.conv2d(*rounded, **OPTIONS)
    wanted.square().sum().backward()
    near = dict(rtol=16 * torch.finfo(dtype).eps, atol=16 * torch.finfo(dtype).eps)
    torch.testing.assert_close(y.detach().float(), wanted.detach(), **near)
    assert (x.grad.dtype, w.grad.dtype) == (torch.float32, torch.float32)
    for one, exact in ((x, rounded[0]), (w, rounded[1])):
        torch.testing.assert_close(one.grad, exact.grad, rtol=near["rtol"],
                                   atol=float(exact.grad.abs().max()) * near["atol"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_channels_last_in_and_out_with_gradients(dtype):
    results = []
    for form in (torch.contiguous_format, torch.channels_last):
        x, w = (one.to(dtype).clone(memory_format=form).requires_grad_() for one in (X, W))
        y = conv2d(x, w, BIAS.to(dtype), **OPTIONS, activation="silu", backend="reference")
        assert y.is_contiguous(memory_format=form)
        y.backward(torch.ones_like(y))
        assert x.grad.is_contiguous(memory_format=form)
        results.append((y.detach(), x.grad, w.grad))
    for plain, last in zip(*results, strict=True):
        close = 4 * torch.finfo(dtype).eps * float(plain.abs().max())
        torch.testing.assert_close(last, plain, rtol=4 * torch.finfo(dtype).eps, atol=close)


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_operators_state_the_strides_of_their_results(form):
    x, w = X.to(memory_format=form), W
    constants = (2, 2), (1, 1, 1, 1), (1, 1), 2, "reference", None
    arguments = x, w, None, None, None, None, False, *constants
    torch.library.opcheck(torch.ops.dscore.conv2d.default, arguments,
                          test_utils=("test_schema", "test_faketensor"))
    y = torch.ops.dscore.conv2d(*arguments)
    assert y.is_contiguous(memory_format=form)
    torch.library.opcheck(torch.ops.dscore.input_gradient.default, (y, w, x.shape, *constants),
                          test_utils=("test_schema", "test_faketensor"))
    torch.library.opcheck(torch.ops.dscore.weight_gradient.default, (x, y, w.shape, *constants),
                          test_utils=("test_schema", "test_faketensor"))


@pytest.mark.deep
def test_many_threads_at_once():
    def train(results):
        x, w = copy.deepcopy(X).requires_grad_(), copy.deepcopy(W).requires_grad_()
        for _ in range(20):
            conv2d(x, w, BIAS, **OPTIONS, activation="relu", backend="reference").sum().backward()
        results.append((x.grad, w.grad))

    results = []
    threads = [threading.Thread(target=train, args=(results,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for x, w in results[1:]:
        assert torch.equal(x, results[0][0])
        assert torch.equal(w, results[0][1])
