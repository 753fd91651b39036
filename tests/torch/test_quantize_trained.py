"""Quantised networks that were trained a little: they agree with floats; what loses too much."""

import pytest
from profiles import mostly_deep

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tiny_networks  # noqa: E402
from torch.nn import functional  # noqa: E402

from dscore.torch import quantize  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", ids=lambda one: one.__name__, params=mostly_deep(
    tiny_networks.BLOCKS[:2], tiny_networks.InvertedResidual))
def trained(request):
    """A network that was trained for seconds on classes of images, and such images."""
    torch.manual_seed(0)
    model = tiny_networks.Network(request.param)
    patterns = torch.randn(5, 3, 12, 10)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)

    def images(count):
        labels = torch.randint(5, (count,))
        return patterns[labels] + 1.5 * torch.randn(count, 3, 12, 10), labels

    for _ in range(60):
        x, labels = images(64)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    return model.eval(), images


def test_a_trained_network_agrees(trained):
    model, images = trained
    quantized = quantize(model, (images(32)[0] for _ in range(4)))
    x, labels = images(1000)
    with torch.no_grad():
        classes, expected = quantized(x).argmax(1), model(x).argmax(1)
    assert (expected == labels).float().mean() > 0.8
    assert len(expected.unique()) == 5
    assert (classes == expected).float().mean() >= 0.98
    assert quantized.report.agreement >= 0.98


def test_layers_that_lose_too_much_stay_in_floats(trained):
    model, images = trained
    batches = [images(32)[0] for _ in range(2)]
    errors = [layer.error for layer in quantize(model, batches).report.quantized]
    limit = sorted(errors)[-2] * 1.0001
    report = quantize(model, batches, error_limit=limit).report
    assert [layer.name for layer in report.kept if "above the limit" in layer.reason]
    assert all(layer.error <= limit for layer in report.quantized)
    assert all(layer.error > limit for layer in report.kept if layer.error is not None)
    none = quantize(model, batches, error_limit=1e-9)
    assert not none.report.quantized
    assert none.report.error < 1e-6
