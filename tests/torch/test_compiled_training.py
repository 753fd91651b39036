"""Steps of training of an accelerated network by torch.compile: whole, right, without copies."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tiny_networks  # noqa: E402
from refusals import needs  # noqa: E402

import dscore.torch as dt  # noqa: E402
from dscore.backends.emulated import EmulatedBackend  # noqa: E402
from dscore.calling import gradients  # noqa: E402
from dscore.torch import operators  # noqa: E402

KINDS = ("depthwise", "pointwise", "dense")
# What is around dscore's operators need not be fast: scalar code, and g++ does not optimise it.
UNOPTIMISED = {"aot_inductor.debug_compile": True, "cpp.vec_isa_ok": False}


def step(model, x, short=False):
    """The loss, and its gradients by the parameters."""
    with torch.autocast("cpu", torch.bfloat16, enabled=short):
        loss = model(x).float().square().mean()
    return loss, torch.autograd.grad(loss, [*model.parameters()])


def networks(factory, last):
    """A network in train mode as it is, the same accelerated, and images."""
    torch.manual_seed(0)
    plain = tiny_networks.with_statistics(factory()).train()
    for module in plain.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    x = torch.randn(4, 3, 12, 14)
    if last:
        plain, x = plain.to(memory_format=torch.channels_last), x.contiguous(
            memory_format=torch.channels_last)
    model = copy.deepcopy(plain)
    dt.accelerate(model, x, backend="reference", measure=False, kinds=KINDS)
    return plain, model, x


@pytest.fixture
def layouts(monkeypatch):
    """Whether images have their channels last: those that operators take, and those they give."""
    seen = []

    def watch(owner, name):
        function = getattr(owner, name)

        def watched(*tensors, **options):
            result = function(*tensors, **options)
            seen.extend((name, one.is_contiguous(memory_format=torch.channels_last))
                        for one in (*tensors[:2], result) if isinstance(one, torch.Tensor)
                        and one.dim() == 4 and min(one.shape[1], *one.shape[2:]) > 1
                        and one.shape[0] == 4)
            return result
        monkeypatch.setattr(owner, name, watched)

    watch(operators, "convolution")
    watch(gradients, "input_gradient")
    watch(gradients, "weight_gradient")
    return seen


# Both networks, both layouts and both precisions; a case takes 16 s of a core, nearly all of it in
# PyTorch.
CASES = [(tiny_networks.mobile, True, True), (tiny_networks.gated, False, False),
         (tiny_networks.mobile, False, False), (tiny_networks.gated, True, False)]


@needs(EmulatedBackend())  # the compiler that torch.compile takes on the host
@pytest.mark.filterwarnings("ignore")  # of the compiler's own modules
@pytest.mark.parametrize(("factory", "last", "short"), CASES)
@pytest.mark.deep
def test_a_step_is_one_program_that_copies_no_image(factory, last, short, layouts):
    plain, model, x = networks(factory, last)
    expected, theirs = step(plain, x)
    torch._dynamo.reset()
    compiled = torch.compile(copy.deepcopy(model), fullgraph=True, options=UNOPTIMISED)
    layouts.clear()
    loss, ours = step(compiled, x, short)
    most = 5e-2 if short else 1e-4
    torch.testing.assert_close(loss, expected, rtol=most, atol=most)
    for gradient, other in zip(ours, theirs, strict=True):
        assert (gradient - other).abs().max() <= most * max(other.abs().max(), 1)
    assert {name for name, _ in layouts} == {"convolution", "input_gradient", "weight_gradient"}
    assert {state for _, state in layouts} == {last}
    if short:  # sums of float32, which no cast has rounded
        assert not any(torch.equal(one, one.bfloat16().float()) for one in ours if one.dim() == 4)


@pytest.mark.parametrize("last", [False, True])
def test_gradients_that_lie_otherwise_follow_the_result(last, layouts):
    """As those of a mean do, which lie with the channels first in either case."""
    torch.manual_seed(0)
    form = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(4, 6, 5, 7).contiguous(memory_format=form).requires_grad_()
    model = dt.DepthwiseSeparableConv2d(6, 8, 3, padding=1, backend="reference")
    expected = torch.autograd.grad(torch.nn.functional.conv2d(
        torch.nn.functional.conv2d(x, model.depthwise.weight, model.depthwise.bias, 1, 1, 1, 6),
        model.pointwise.weight, model.pointwise.bias).mean((2, 3)).square().sum(),
        [x, *model.parameters()])
    layouts.clear()
    ours = torch.autograd.grad(model(x).mean((2, 3)).square().sum(), [x, *model.parameters()])
    for gradient, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-3, atol=1e-4)
    assert {state for name, state in layouts if name != "convolution"} == {last}
