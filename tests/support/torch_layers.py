"""Random layers as PyTorch states them, and their result and gradients by PyTorch in float64."""

from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st
from torch.nn import functional

ACTIVATIONS = {None: lambda y: y, "relu": functional.relu, "relu6": functional.relu6,
               "silu": functional.silu, "hardswish": functional.hardswish,
               "sigmoid": torch.sigmoid, "hardsigmoid": functional.hardsigmoid}
NAMES = ("x", "w", "bias", "residual", "scale")


@dataclass
class Case:
    """Tensors by name, and the options of dscore.torch.conv2d."""

    tensors: dict[str, torch.Tensor]
    options: dict[str, Any]
    epilogue: dict[str, Any] = field(default_factory=dict)

    def call(self, function, dtype=torch.float32, **more):
        """The result and the gradients by each tensor, of a seeded gradient by the result."""
        leaves = {name: one.detach().to(dtype).requires_grad_()
                  for name, one in self.tensors.items()}
        y = function(**leaves, **self.options, **self.epilogue, **more)
        # A generator of its own: threads that share one would draw from each other's.
        y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y))
        return {"y": y.detach(), **{name: leaf.grad for name, leaf in leaves.items()}}


def theirs(x, w, bias=None, residual=None, scale=None, activation=None, residual_after=False,
           **options):
    """What conv2d computes, by PyTorch's functions in the order of its docstring."""
    y = functional.conv2d(x if scale is None else x * scale[:, :, None, None], w, bias, **options)
    before = residual if residual is not None and not residual_after else 0
    after = residual if residual is not None and residual_after else 0
    return ACTIVATIONS[activation](y + before) + after


def close(ours, expected):
    """Whether two results of `Case.call` agree within float32's rounding."""
    assert ours.keys() == expected.keys()
    for name, one in ours.items():
        torch.testing.assert_close(one.double(), expected[name].double(), rtol=1e-4, atol=1e-4,
                                   msg=lambda text, name=name: f"{name}: {text}")


@st.composite
def cases(draw):
    """A layer of any kind with an epilogue of any kind."""
    small = st.integers(1, 3)
    groups = draw(small)
    group_in, group_out = draw(small), draw(small)
    kernel, stride, dilation = (draw(st.tuples(small, small)) for _ in range(3))
    padding = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    size = [draw(st.integers((k - 1) * d + 1, (k - 1) * d + 6))
            for k, d in zip(kernel, dilation, strict=True)]
    torch.manual_seed(draw(st.integers(0, 99)))
    images = draw(st.integers(1, 3))
    tensors = {"x": torch.randn(images, groups * group_in, *size),
               "w": torch.randn(groups * group_out, group_in, *kernel)}
    options = dict(stride=stride, padding=padding, dilation=dilation, groups=groups)
    if draw(st.booleans()):
        tensors["bias"] = torch.randn(groups * group_out)
    epilogue = {"activation": draw(st.sampled_from([*ACTIVATIONS]))}
    if draw(st.booleans()):
        shape = functional.conv2d(tensors["x"], tensors["w"], **options).shape
        tensors["residual"] = torch.randn(shape)
        epilogue["residual_after"] = draw(st.booleans())
    if draw(st.booleans()):
        tensors["scale"] = torch.randn(images, groups * group_in)
    return Case(tensors, options, epilogue)
