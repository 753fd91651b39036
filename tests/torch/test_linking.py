"""Linked programs: the same results, for inputs like those of their call, with few tensors."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import deep

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tiny_networks  # noqa: E402
from accelerated_models import exact, model_of  # noqa: E402
from torch import nn  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch_gpu import NAME, TorchGpu, torch_gpu  # noqa: E402

import dscore.torch  # noqa: E402
from dscore.torch.linking import Arena  # noqa: E402


@pytest.fixture
def launches(monkeypatch):
    with torch_gpu(monkeypatch) as launches:
        yield launches


@pytest.fixture(params=tiny_networks.BLOCKS)
def model(request, launches):
    model = model_of(request.param)
    dscore.torch.accelerate(model, images(), backend=NAME)
    return model


def images(batch=2, seed=0, size=12):
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(seed))


def program_of(model):
    return model._dscore_folded.program


def agrees(model, x):
    torch.testing.assert_close(model(x).double(), exact(model, x), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def link(model, x=None):
    """Have a linked program made for inputs like *x*, and none of the general way be called."""
    x = images() if x is None else x
    for _ in range(3):
        agrees(model, x)
    assert program_of(model)._linked
    program_of(model)._general = refused


def refused(*arguments):
    raise AssertionError("the general way was taken")


@torch.no_grad()
def test_a_linked_program_computes_the_same(model, launches):
    launches.clear()
    model(images())
    count = len(launches)
    link(model)
    for seed in range(3):
        launches.clear()
        agrees(model, images(seed=seed))
        assert len(launches) == count > 1


class Mixed(nn.Module):
    """Convolutions, of which one follows a step of PyTorch's."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(8))
            for _ in range(4))

    def forward(self, x):
        first, second, third, last = self.layers
        return last(third(torch.sin(second(first(x)))))


@torch.no_grad()
def test_launches_behind_another_are_said_to_be(launches):
    """Those may read their filters before the kernel before has ended, which others may write."""
    model = model_of(Mixed)
    dscore.torch.accelerate(model, images(), backend=NAME)
    link(model)
    TorchGpu.behind.clear()
    agrees(model, images())
    assert TorchGpu.behind[:4] == [False, True, False, True]


@torch.no_grad()
def test_what_passes_between_convolutions_is_no_tensor(launches, monkeypatch):
    made, make = [], torch.empty_strided
    monkeypatch.setattr(torch, "empty_strided", lambda shape, *rest, **options: (
        made.append(shape) or make(shape, *rest, **options)))
    model = model_of(tiny_networks.InvertedResidual)
    dscore.torch.accelerate(model, images(), backend=NAME)
    link(model)
    made.clear()
    launches.clear()
    model(images())
    assert launches == ["conv"] * 4 + ["mean", "conv"]  # the last is the linear layer
    arena, mean, last = made
    assert (len(arena), mean, last[:2]) == (1, (2, 16), (2, 5))


@torch.no_grad()
def test_parameters_that_change_are_read(model):
    link(model)
    for parameter in model.parameters():
        parameter.mul_(1.1)
    agrees(model, images())
    for name, buffer in model.named_buffers():
        if name.endswith("running_var"):
            buffer.mul_(2)
    agrees(model, images())
    program_of(model)._general = lambda *arguments: program_of(model).traceable(*arguments)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.weight = torch.nn.Parameter(module.weight * 2)
    agrees(model, images())


@pytest.mark.parametrize("change", [
    lambda x: x[:1], deep(lambda x: x.flip(-1)), deep(lambda x: x.transpose(-1, -2)),
    lambda x: x.contiguous(memory_format=torch.channels_last), deep(lambda x: x[:, :, :-2, :-2]),
    lambda x: torch.cat([x.flatten(), x[0, 0, 0, :1]])[1:].view(x.shape)],
    ids=["batch", "flipped", "transposed", "channels_last", "size", "misplaced"])
@torch.no_grad()
def test_other_inputs_take_the_general_way(change, launches):
    model = model_of(tiny_networks.GatedResidual)
    dscore.torch.accelerate(model, images(), backend=NAME)
    for seed in range(4):
        agrees(model, images(seed=seed))
        agrees(model, change(images(seed=seed)))
    assert len(program_of(model)._linked) in (1, 2)


def test_gradients_modes_and_traces_are_not_linked(model):
    link(model)
    program = program_of(model)
    with torch.inference_mode():
        program._general = program.traceable
        agrees(model, images())
    program._general = program.traceable
    graph = make_fx(program.forward)(images()).graph
    assert any("dscore.conv2d" in str(node.target) for node in graph.nodes)
    x = images().requires_grad_()
    model(x).sum().backward()
    assert x.grad.abs().sum() > 0


class Overwriting(nn.Module):
    """A part that begins in place, and counts its calls in a buffer."""

    def __init__(self):
        super().__init__()
        self.inner, self.conv = nn.SiLU(inplace=True), nn.Conv2d(3, 4, 1)
        self.norm = nn.BatchNorm2d(4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return self.norm(self.conv(self.inner(x)))


class Branching(nn.Module):
    """A model without a graph, around that part."""

    def __init__(self):
        super().__init__()
        self.part = Overwriting()

    def forward(self, x):
        return x if x.sum() > 1e9 else self.part(x * 1)


@torch.no_grad()
def test_what_changes_its_input_in_place_is_computed_once(launches):
    """A linked program that misses midway would do it a second time."""
    plain = tiny_networks.with_statistics(Branching()).eval()
    model = copy.deepcopy(plain)
    assert dscore.torch.accelerate(model, images(), backend=NAME).folded == ("part",)
    model.part.calls.zero_()
    for count, x in enumerate([images()] * 3 + [images(3), images()], 1):
        torch.testing.assert_close(model(x), plain(x), rtol=1e-4, atol=1e-4)
        assert model.part.calls == plain.part.calls == count


@torch.no_grad()
def test_what_a_failed_call_has_replaced_is_read(launches):
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))
    dscore.torch.accelerate(model.eval(), images(), backend=NAME)
    link(model)
    mean, model[3].running_mean = model[3].running_mean, torch.zeros(5)
    model[0].weight = nn.Parameter(-model[0].weight)
    with pytest.raises(RuntimeError):
        model(images())
    model[3].running_mean = mean
    agrees(model, images())


@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 4)), min_size=1, max_size=30))
def test_no_two_values_share_memory_at_a_time(values):
    arena, placed = Arena(), []
    for at, (size, steps) in enumerate(values):
        placed.append((arena.place(size, at, at + steps), size, at, at + steps))
    for number, (offset, size, first, last) in enumerate(placed):
        assert offset % 512 == 0
        assert offset + size <= arena.bytes
        for other, other_size, begin, end in placed[:number]:
            apart = other + other_size <= offset or offset + size <= other
            assert apart or end < first or last < begin
    rounded = [-(-size // 512) * 512 for size, _ in values]
    assert arena.bytes <= sum(rounded)
