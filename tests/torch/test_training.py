"""Training: the loss of a network by dscore's layers follows that of PyTorch's."""

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch import nn  # noqa: E402

import dscore.torch as dt  # noqa: E402


def network(conv2d, **options):
    """Depthwise-separable layers with batch norm, a strided one, and one of several groups."""
    def layer(channels, outputs, kernel, stride=1, groups=1):
        return [conv2d(channels, outputs, kernel, stride, kernel // 2, groups=groups, bias=False,
                       **options), nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True)]

    torch.manual_seed(5)
    return nn.Sequential(*layer(3, 8, 3, 2), *layer(8, 8, 3, groups=8), *layer(8, 12, 1),
                         *layer(12, 12, 3, 2, groups=4), conv2d(12, 12, 1, **options),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten())


def losses(model, steps=20):
    """Losses of steps of SGD on the same random images and labels."""
    torch.manual_seed(6)
    images, labels = torch.randn(4, 3, 8, 7), torch.randint(12, (4,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    curve = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        curve.append(loss.item())
    return curve


def test_a_loss_curve_is_pytorchs():
    expected = losses(network(nn.Conv2d))
    assert expected[-1] < expected[0] / 3
    assert losses(network(dt.Conv2d, backend="reference")) == pytest.approx(expected, rel=1e-2)
    assert losses(network(dt.Conv2d)) == expected


def test_training_is_repeated_to_the_bit():
    first, second = (losses(network(dt.Conv2d, backend="reference"), 4) for _ in range(2))
    assert first == second


def test_states_go_both_ways():
    ours, theirs = network(dt.Conv2d, backend="reference"), network(nn.Conv2d)
    losses(ours, 2)
    theirs.load_state_dict(ours.state_dict())
    assert [*theirs.state_dict()] == [*ours.state_dict()]
    x = torch.randn(2, 3, 12, 11)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), rtol=1e-4, atol=1e-4)
    losses(theirs.train(), 2)
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), rtol=1e-4, atol=1e-4)


def test_the_programs_of_the_page_run(capsys):
    """On the host, where the page has a GPU."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "torch.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    scope = {}
    dt.left_to_pytorch(reset=True)
    for program in programs:
        exec(compile(program.replace('"cuda"', '"cpu"'), "torch.md", "exec"), scope)
    assert scope["w"].grad.shape == (32, 1, 3, 3)
    assert "1x conv 32->32 3x3 padding 1,1,1,1 groups 32: device cpu" in capsys.readouterr().out
