"""PyTorch tensors on the host: those whose memory is not what they show, and those without any."""

import re

import numpy as np
import pytest

import dscore
from dscore.core.errors import SpecError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

X, W = torch.randn(2, 4, 5, 6), torch.randn(6, 2, 3, 3)
BIAS, OPTIONS = torch.randn(6), dict(stride=2, padding=1, groups=2)
SHAPE = (2, 6, 3, 3)


def theirs(x, w, bias):
    return torch.nn.functional.conv2d(x, w, bias, **OPTIONS)


def negative(tensor):
    """The same values behind the negative bit."""
    shown = torch.complex(torch.zeros_like(tensor), -tensor).conj().imag
    assert shown.is_neg()
    return shown


@pytest.mark.parametrize("lay_out", [
    negative, lambda t: torch.complex(t, -t).conj().real, lambda t: t[:1].expand(t.shape),
    lambda t: t.flip(-1), lambda t: torch.nn.Parameter(t, requires_grad=False)],
    ids=["negative", "conjugate", "expanded", "flipped", "parameter"])
def test_inputs_are_read_as_they_show(lay_out):
    arrays = lay_out(X), lay_out(W), lay_out(BIAS)
    assert torch.allclose(dscore.conv(*arrays, **OPTIONS), theirs(*arrays), atol=1e-5)


@pytest.mark.parametrize(("out", "message"), [
    (lambda: negative(torch.zeros(SHAPE)), "out has its negative bit set"),
    (lambda: torch.zeros(1, 6, 3, 3).expand(SHAPE), "out overlaps itself: of its 108 elements"),
    (lambda: torch.zeros(200).as_strided(SHAPE, (20, 4, 2, 1)), "out overlaps itself"),
])
def test_an_out_that_cannot_hold_the_result_is_refused(out, message):
    given = out()
    with pytest.raises(SpecError, match=re.escape(message)):
        dscore.conv(X, W, BIAS, **OPTIONS, out=given)
    assert not given.any()


@pytest.mark.parametrize("out", [
    torch.zeros(SHAPE), torch.zeros(3, 6, 3, 2).permute(3, 1, 2, 0),
    torch.zeros(2, 6, 3, 6)[..., ::2],
    torch.zeros(2, 3, 3, 6).permute(0, 3, 1, 2)], ids=["plain", "turned", "strided", "nhwc"])
def test_an_out_of_any_other_layout_is_written(out):
    assert dscore.conv(X, W, BIAS, **OPTIONS, out=out) is out
    assert torch.allclose(out, theirs(X, W, BIAS), atol=1e-5)


class Named(torch.Tensor):
    """A user's own class of tensors, outside of PyTorch's modules."""


def test_a_users_own_class_of_tensors_is_pytorchs():
    y = dscore.conv(X.as_subclass(Named), W, BIAS, **OPTIONS)
    assert torch.allclose(y, theirs(X, W, BIAS), atol=1e-5)


def fake(tensor):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        return mode.from_tensor(tensor)


def freed(tensor):
    """As a library that shards parameters leaves those that it gathers on use."""
    emptied = tensor.clone()
    emptied.untyped_storage().resize_(0)
    return emptied


WITHOUT_MEMORY = {
    "fake": (fake, "is of class FakeTensor, which holds no elements itself"),
    "nested": (lambda t: torch.nested.nested_tensor([t, t]), "is a nested tensor"),
    "jagged": (lambda t: torch.nested.nested_tensor([t, t], layout=torch.jagged),
               "is of class NestedTensor, which holds no elements itself"),
    "sparse": (lambda t: t.to_sparse(), "is a torch.sparse_coo tensor; pass .to_dense()"),
    "freed": (freed, "has no memory for all of its elements: its storage was freed"),
    "zeros": (lambda t: torch._efficientzerotensor(t.shape),
              "has no memory for all of its elements: its storage was freed, or is of zeros"),
    "uninitialized": (lambda t: torch.nn.UninitializedParameter(requires_grad=False),
                      "is of class UninitializedParameter, which has no shape yet"),
}


@pytest.mark.parametrize("place", ["x", "w", "bias", "out"])
@pytest.mark.parametrize("kind", WITHOUT_MEMORY)
@pytest.mark.filterwarnings("ignore")  # PyTorch's, of its prototypes
def test_tensors_without_memory_of_their_own_are_refused_by_name(kind, place):
    make, message = WITHOUT_MEMORY[kind]
    arrays = {"x": X, "w": W, "bias": BIAS, "out": torch.zeros(SHAPE)}
    arrays[place] = make(arrays[place])
    with pytest.raises(SpecError, match=re.escape(f"{place} {message}")):
        dscore.conv(**arrays, **OPTIONS)


def test_a_transformed_function_is_told_to_call_outside():
    for transform in (torch.vmap, torch.func.grad):
        with pytest.raises(SpecError, match=r"x is a tensor of torch.func \(vmap, grad"):
            transform(lambda x: dscore.conv(x, W, BIAS, **OPTIONS).sum())(X)


def test_a_tangent_is_not_lost():
    with torch.autograd.forward_ad.dual_level():
        x = torch.autograd.forward_ad.make_dual(X, torch.ones_like(X))
        with pytest.raises(SpecError, match="x carries a tangent"):
            dscore.conv(x, W, BIAS, **OPTIONS)
        assert dscore.conv(x.detach(), W, BIAS, **OPTIONS).shape == SHAPE


def test_one_image_gives_one_result():
    y = dscore.conv(X[0], W, BIAS, **OPTIONS)
    assert torch.allclose(y, theirs(X[0], W, BIAS), atol=1e-5)
    assert y.shape == SHAPE[1:]


def test_arguments_come_in_pytorchs_order():
    arguments = (X, W, BIAS, (2, 1), (1, 2), (1, 2), 2)
    expected = torch.nn.functional.conv2d(*arguments)
    assert torch.allclose(dscore.conv(*arguments), expected, atol=1e-5)
    for word in ("same", "VALID"):
        expected = torch.nn.functional.conv2d(X, W, BIAS, 1, word.lower(), 1, 2)
        assert torch.allclose(dscore.conv(X, W, BIAS, 1, word, 1, 2), expected, atol=1e-5)


def test_a_numpy_integer_counts_as_an_integer():
    with pytest.raises(SpecError, match=r"groups=2 takes 4 \* 2 = 8"):
        dscore.conv(X.numpy(), np.ones((6, 4, 3, 3), np.float32), groups=np.int64(2))
