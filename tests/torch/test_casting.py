"""Filters that autocast casts: all of a model by one operator, for one pass of one thread."""

import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tiny_networks  # noqa: E402
from compiled_programs import keeping  # noqa: E402
from refusals import needs  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import dscore.torch as dt  # noqa: E402
from dscore.backends.emulated import EmulatedBackend  # noqa: E402
from dscore.core.errors import SpecError  # noqa: E402
from dscore.torch import casting, functional  # noqa: E402
from dscore.torch.accelerated import plain_class  # noqa: E402
from dscore.torch.casting import cast_of, filters_cast  # noqa: E402


def autocast(on=True):
    return torch.autocast("cpu", torch.bfloat16, enabled=on)


@pytest.fixture
def casts(monkeypatch):
    """How many filters each launch has cast: those of a model together, and each by itself."""
    counts, together, alone = [], torch._foreach_copy_, functional._cast_to

    def counted(results, filters):
        counts.append(len(filters))
        return together(results, filters)

    def counted_alone(dtype, one, *form):
        counts.extend([1] * bool(form))
        return alone(dtype, one, *form)

    monkeypatch.setattr(torch, "_foreach_copy_", counted)
    monkeypatch.setattr(functional, "_cast_to", counted_alone)
    return counts


def accelerated(form=torch.contiguous_format):
    torch.manual_seed(0)
    model = tiny_networks.with_statistics(tiny_networks.mobile()).train().to(memory_format=form)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    x = torch.randn(4, 3, 12, 14).contiguous(memory_format=form)
    dt.accelerate(model, x, backend="reference", measure=False,
                  kinds=("depthwise", "pointwise", "dense"))
    return model, x


def gradients(model, x, twice=False):
    with autocast():
        loss = model(x).float().square().mean()
    if not twice:
        return [loss, *torch.autograd.grad(loss, [*model.parameters()])]
    first = torch.autograd.grad(loss, [*model.parameters()], create_graph=True)
    return torch.autograd.grad(sum(one.square().sum() for one in first), [*model.parameters()])


def test_results_are_those_of_casts_one_by_one():
    filters = [nn.Parameter(torch.randn(shape).contiguous(memory_format=form))
               for shape in ((4, 3, 3, 3), (4, 1, 3, 3), (8, 4, 1, 1))
               for form in (torch.contiguous_format, torch.channels_last)]
    with autocast(), filters_cast(filters):
        for one in filters:
            cast = cast_of(one, torch.bfloat16)
            assert cast.is_contiguous()
            assert torch.equal(cast, one.bfloat16())
            assert cast_of(one, torch.float16) is None
    assert all(cast_of(one, torch.bfloat16) is None for one in filters)


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_a_model_casts_its_filters_together(form, casts):
    model, x = accelerated(form)
    convolutions = [one for one in model.modules() if isinstance(one, dt.Conv2d)]
    together = gradients(model, x)
    dense = form is torch.channels_last  # the first layer's filter lies in another order
    assert casts == [len(convolutions) - dense]
    casts.clear()
    model.__class__ = plain_class(model)
    for one, other in zip(together, gradients(model, x), strict=True):
        assert torch.equal(one, other)
    assert casts == [1] * len(convolutions)


def test_gradients_of_gradients_go_by_the_casts(casts):
    model, x = accelerated()
    model.eval()  # PyTorch's batch norm differentiates once in train mode on the host
    ours = gradients(model, x, twice=True)
    assert max(casts) > 1
    dt.restore(model)
    for one, other in zip(ours, gradients(model, x, twice=True), strict=True):
        assert (one - other).norm() <= 0.1 * other.norm().clamp_min(1e-3)


def test_every_pass_casts_the_filters_as_they_are():
    model, x = accelerated()
    first = gradients(model, x)[0]
    with torch.no_grad():
        for one in model.parameters():
            one.mul_(1.5)
    second = gradients(model, x)[0]
    fresh, _ = accelerated()
    fresh.load_state_dict(model.state_dict())
    assert second != first
    assert torch.equal(second.detach(), gradients(fresh, x)[0].detach())


def test_a_filter_that_was_written_since_is_cast_again():
    w, other = (nn.Parameter(torch.zeros(2, 1, 3, 3)) for _ in range(2))
    with autocast(), filters_cast([w, other]):
        assert cast_of(w, torch.bfloat16) is not None
        with torch.no_grad():
            w.fill_(1)
        assert cast_of(w, torch.bfloat16) is None
        assert cast_of(other, torch.bfloat16) is not None
        y = dt.conv2d(torch.ones(1, 2, 3, 3), w, groups=2, backend="reference")
    assert y.flatten().tolist() == [9.0, 9.0]


def test_what_autocast_would_not_cast_is_left():
    w = nn.Parameter(torch.zeros(2, 1, 3, 3))
    others = [nn.Parameter(torch.zeros(2, 1, 3, 3, dtype=torch.float64)),
              nn.Parameter(torch.zeros(18)), nn.Parameter(torch.zeros(2, 1, 3, 3, device="meta")),
              torch.zeros(2, 1, 3, 3), None]
    with autocast(), filters_cast([w, nn.Parameter(torch.zeros(1, 1, 1, 1)), *others]):
        assert cast_of(w, torch.bfloat16) is not None
        assert [cast_of(one, torch.bfloat16) for one in others] == [None] * len(others)
    other = nn.Parameter(torch.zeros(1, 1, 1, 1))
    with autocast(on=False), filters_cast([w, other]):
        assert cast_of(w, torch.bfloat16) is None
    with autocast(), filters_cast([w, other]):  # but for autocast it is the same
        assert cast_of(w, torch.bfloat16) is not None


def test_models_made_in_inference_mode_cast_filters_one_by_one():
    """Such parameters have no version by which a change could be seen."""
    with torch.inference_mode():
        model, x = accelerated()
        model.eval()
        with autocast():
            first = model(x)
    assert first.dtype is torch.bfloat16
    with torch.inference_mode(), autocast(), filters_cast(model.parameters()):
        assert not casting._CASTS.of


def test_a_failed_pass_leaves_no_casts():
    model, x = accelerated()
    with autocast(), pytest.raises(SpecError):
        model(x[:, :2])
    assert not casting._CASTS.of


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_cast_again_what_they_compute_again(reentrant):
    """In the backward pass, when the pass that the casts were for has ended."""
    model, x = accelerated()
    expected = gradients(model, x)
    inner = next(one for one in model.modules() if isinstance(one, tiny_networks.InvertedResidual))
    plain = inner.forward
    inner.forward = lambda image: checkpoint(plain, image, use_reentrant=reentrant)
    for norm in model.modules():  # whose statistics the second computation would move on
        if isinstance(norm, nn.BatchNorm2d):
            norm.momentum = 0.0
    with autocast():
        loss = model(x).float().square().mean()
    loss.backward()
    for one, other in zip(model.parameters(), expected[1:], strict=True):
        torch.testing.assert_close(one.grad, other, rtol=1e-2, atol=1e-3)


def test_each_thread_has_casts_of_its_own():
    w = [nn.Parameter(torch.zeros(2, 1, 3, 3)) for _ in range(2)]
    seen = []
    with autocast(), filters_cast(w):
        thread = threading.Thread(target=lambda: seen.append(cast_of(w[0], torch.bfloat16)))
        thread.start()
        thread.join()
    assert seen == [None]


@needs(EmulatedBackend())  # the compiler that torch.compile takes on the host
@pytest.mark.filterwarnings("ignore")  # of the compiler's own modules
@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.deep
def test_compiled_models_cast_their_filters_together(broken):
    """Also one whose program is broken in the middle, at which Python goes on between two."""
    model, x = accelerated(torch.channels_last)
    expected = gradients(model, x)
    torch._dynamo.reset()
    texts = []

    if broken:
        last = [one for one in model.modules() if isinstance(one, dt.Conv2d)][-1]
        last.register_forward_pre_hook(lambda *_: torch._dynamo.graph_break())
    compiled = torch.compile(model, backend=keeping(texts), fullgraph=not broken)
    for one, other in zip(gradients(compiled, x), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)
    count = len(texts)
    for one in model.parameters():
        one.data.mul_(1.5)
    expected = gradients(model, x)
    for _ in range(2):  # nothing of a pass is remembered, nor compiled again
        for one, other in zip(gradients(compiled, x), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=5e-2, atol=5e-2)
    assert len(texts) == count
    if broken:
        assert count > 2
        return
    forward, backward = texts
    assert forward.count("dscore.cast_filters") == 1
    assert "cast_filters" not in backward
    # Sums of the filters' gradients, to which none of another way is added.
    of_filters = backward.count("dscore.weight_gradient") + backward.count("dscore.gradients")
    assert of_filters == forward.count("dscore.conv2d")
    assert "aten.zeros" not in backward
