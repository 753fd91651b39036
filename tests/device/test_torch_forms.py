"""dscore.torch on this machine's GPU in 16 bits, with the channels last, and under autocast."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.nn import functional  # noqa: E402

import dscore.torch as dt  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")

TYPES = [torch.float32, torch.float16, torch.bfloat16]
FORMS = [torch.contiguous_format, torch.channels_last]
OPTIONS = dict(padding=1, groups=32)


def close(result, exact, dtype):
    """As close as a few roundings of the type, over the largest magnitude."""
    most = 8 * max(torch.finfo(dtype).eps, 2.0**-20)
    assert float((result.double() - exact).abs().max() / exact.abs().max()) < most


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", TYPES)
def test_a_layer_and_its_gradients_remembered_and_not(dtype, form):
    torch.manual_seed(0)
    x = torch.randn(4, 32, 14, 14, device="cuda", dtype=dtype).to(memory_format=form)
    operands = [x, torch.randn(32, 1, 3, 3, device="cuda", dtype=dtype),
                torch.randn(32, device="cuda", dtype=dtype)]
    for one in operands:
        one.requires_grad_()
    exact = [one.detach().double().requires_grad_() for one in operands]
    wanted = functional.silu(functional.conv2d(*exact, **OPTIONS))
    wanted.square().sum().backward()
    for _ in range(4):
        for one in operands:
            one.grad = None
        y = dt.conv2d(*operands, activation="silu", backend="hip", **OPTIONS)
        y.square().sum().backward()
        assert y.is_contiguous(memory_format=form)
        assert operands[0].grad.is_contiguous(memory_format=form)
        close(y, wanted, dtype)
        for one, other in zip(operands, exact, strict=True):
            close(one.grad, other.grad, dtype)
    with torch.no_grad():
        for _ in range(3):
            again = dt.conv2d(*operands, activation="silu", backend="hip", **OPTIONS)
            assert again.is_contiguous(memory_format=form)
            close(again, wanted, dtype)


@pytest.mark.parametrize("dtype", TYPES[1:])
def test_under_autocast_layers_compute_in_its_type(dtype):
    model = torch.nn.Sequential(dt.DepthwiseConv2d(32, 3, padding=1), torch.nn.ReLU(),
                                dt.PointwiseConv2d(32, 48)).cuda()
    x = torch.randn(2, 32, 9, 9, device="cuda").to(memory_format=torch.channels_last)
    exact = model.double()(x.double()).detach()
    model.float()
    dt.left_to_pytorch(reset=True)
    for _ in range(3):
        with torch.autocast("cuda", dtype):
            y = model(x)
        y.float().square().mean().backward()
        assert y.dtype is dtype
        close(y, exact, dtype)
    assert all(one.grad.dtype is torch.float32 for one in model.parameters())
    assert not any("autocast" in one.reason or "dtype" in one.reason
                   for one in dt.left_to_pytorch(reset=True))


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_a_compiled_model_has_the_strides_of_an_eager_one(form, mixed):
    model = torch.nn.Sequential(dt.DepthwiseConv2d(32, 3, padding=1, backend="hip"),
                                torch.nn.SiLU(), dt.PointwiseConv2d(32, 48, backend="hip")).cuda()
    x = torch.randn(2, 32, 9, 9, device="cuda").to(memory_format=form)
    torch.compiler.reset()
    compiled = torch.compile(model)
    with torch.autocast("cuda", torch.float16, enabled=mixed):
        y, plain = compiled(x), model(x)
    assert (y.dtype, y.stride()) == (plain.dtype, plain.stride())
    close(y, plain.double().detach(), plain.dtype)
    y.float().square().sum().backward()
    assert all(one.grad is not None for one in model.parameters())
