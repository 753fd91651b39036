"""Activations in place that accelerate takes out of place: which, what they compute, and back."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch import nn  # noqa: E402

import dscore.torch as dt  # noqa: E402


def block(activation):
    return nn.Sequential(nn.Conv2d(4, 8, 1), nn.BatchNorm2d(8), activation)


class Network(nn.Module):
    """Activations after a batch norm, after a convolution, after neither, and twice."""

    def __init__(self):
        super().__init__()
        twice = nn.ReLU6(inplace=True)
        self.first = block(nn.SiLU(inplace=True))
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8),
                                    nn.Hardswish(inplace=True), nn.Flatten(1, 1),
                                    nn.ReLU6(inplace=True))
        self.third = nn.Sequential(nn.Conv2d(8, 4, 1), twice)
        self.relu, self.twice = nn.ReLU(inplace=True), twice

    def forward(self, x):
        y = self.relu(self.third(self.second(self.first(x)))) + 1
        self.twice(y)  # its result dropped: here it must write in place
        return y


X = torch.linspace(-3, 3, 2 * 4 * 25).reshape(2, 4, 5, 5)


def in_place(model):
    return [name for name, module in model.named_modules(remove_duplicate=False)
            if getattr(module, "inplace", False)]


def step(model):
    """The loss of a step, the gradients, and how often PyTorch has copied for an activation."""
    model.zero_grad()
    with torch.profiler.profile() as profile:
        loss = model(X).square().mean()
    loss.backward()
    copies = sum(event.name == "aten::clone" for event in profile.events())
    return copies, loss.detach(), [one.grad for one in model.parameters()]


def test_those_whose_input_nothing_else_reads_write_elsewhere():
    torch.manual_seed(0)
    model = Network().train()
    everywhere = in_place(model)
    state, before = copy.deepcopy(model.state_dict()), step(model)
    model.load_state_dict(state)
    report = dt.accelerate(model, X, backend="reference", measure=False)
    assert in_place(model) == ["second.3", "third.1", "relu", "twice"]
    assert "2 activations no longer write in place" in str(report)
    after = step(model)
    assert after[0] == before[0] - 2
    torch.testing.assert_close(after[1:], before[1:], rtol=1e-4, atol=1e-6)
    dt.restore(model)
    assert in_place(model) == everywhere


def test_what_a_hook_sees_stays():
    model = block(nn.ReLU6(inplace=True))
    model[1].register_forward_hook(lambda module, arguments, result: None)
    assert "in place" not in str(dt.accelerate(model, X, backend="reference", measure=False))
    assert in_place(model) == ["2"]


def test_copies_and_states_keep_it():
    model = block(nn.ReLU6(inplace=True))
    keys = [*model.state_dict()]
    dt.accelerate(model, X, backend="reference", measure=False)
    other = copy.deepcopy(model)
    assert [*other.state_dict()] == keys
    assert in_place(other) == []
    dt.restore(other)
    assert (in_place(other), in_place(model)) == (["2"], [])
