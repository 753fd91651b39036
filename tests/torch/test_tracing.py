"""Graphs of models that do more than compute: with state, buffers, scripts, in threads."""

import collections
import copy
import threading
from typing import ClassVar

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tiny_networks  # noqa: E402
from accelerated_models import X, accelerated, exact, stored  # noqa: E402
from torch import fx, nn  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402

import dscore.torch  # noqa: E402
from dscore.torch import example  # noqa: E402


class Made(nn.Module):
    """A convolution, and what is done before and after it."""

    def __init__(self, compute):
        super().__init__()
        self.conv, self.compute, self.kept = nn.Conv2d(3, 6, 1), compute, None
        self.register_buffer("offsets", torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x):
        return self.compute(self, x)


def agrees(model, plain, x=X):
    with torch.no_grad():
        torch.testing.assert_close(model(x), plain(x), rtol=1e-4, atol=1e-4)


def carried(model, x):
    """The sum of all results until now."""
    y = model.conv(x)
    model.kept = y if model.kept is None else y + model.kept
    return model.kept


def listed(model, x):
    """The same by the last of a list."""
    y = model.conv(x)
    model.kept = [] if model.kept is None else model.kept
    model.kept.append(y if not model.kept else y + model.kept[-1])
    return model.kept[-1]


@pytest.mark.parametrize("compute", [carried, listed])
def test_what_a_forward_keeps_is_kept(compute):
    plain, model = Made(compute).eval(), Made(compute).eval()
    model.load_state_dict(plain.state_dict())
    dscore.torch.scan(model, X)
    assert not isinstance(model.kept[-1], fx.Proxy)
    report = dscore.torch.accelerate(model, X)
    assert "keeps what it computes in kept" in dict(report.unfolded)[""]
    model.kept = None
    for _ in range(3):
        agrees(model, plain)


def gridded(model, x):
    """A convolution, and a grid that is made once for each size."""
    y = model.conv(x)
    if model.kept is None or model.kept.shape[-2:] != y.shape[-2:]:
        model.kept = torch.ones(1, 1, *y.shape[-2:])
    return y + model.kept


def test_nothing_without_values_stays_in_a_model(monkeypatch):
    monkeypatch.setattr(example, "_MUCH", 10)
    plain = Made(gridded).eval()
    model = copy.deepcopy(plain)
    dscore.torch.accelerate(model, X)
    agrees(model, plain)


@pytest.mark.parametrize("compute", [
    lambda model, x: model.conv(x - 2 * model.offsets[:, None, None]),
    lambda model, x: model.conv(x[:, :model.offsets.shape[0]] / model.offsets.sqrt().sum()),
    lambda model, x: model.conv(x) if model.offsets.sum() > 0 else x])
@pytest.mark.parametrize("change", [
    lambda model, new: model.offsets.copy_(new), lambda model, new: setattr(model, "offsets", new)])
def test_buffers_that_change_are_read(compute, change):
    plain = Made(compute).eval()
    model = copy.deepcopy(plain)
    dscore.torch.accelerate(model, X)
    for one in (model, plain):
        change(one, torch.tensor([-3.0, 1.0, 9.0]).abs())
    agrees(model, plain)


@torch.no_grad()
def test_a_quantised_model_reads_buffers():
    def scaled(model, x):
        return model.conv(x * (2 * model.offsets).mean())

    plain = Made(scaled).eval()
    model = dscore.torch.quantize(plain, [X])
    before = model(X / 2)
    model.offsets.copy_(model.offsets / 2)
    assert torch.equal(model(X), before)


def test_an_ordered_dictionary_stays_one():
    model = Made(lambda model, x: collections.OrderedDict(
        out=model.conv(x), aux=(x,))).eval()
    expected = model(X)
    report = dscore.torch.accelerate(model, X)
    with torch.no_grad():
        result = model(X)
        quantised = dscore.torch.quantize(model, [X])(X)
    assert report.folded == ("",)
    for one in (result, quantised):
        assert type(one) is collections.OrderedDict
        assert list(one) == list(expected)
    assert torch.allclose(result["out"], expected["out"], atol=1e-5)


class Around(nn.Module):
    """A model without a graph that calls a part in some way."""

    ways: ClassVar = {"by name": lambda self, x: self.part(input=x),
                      "of a list": lambda self, x: self.list[1](self.list[0](x))}

    def __init__(self, way):
        super().__init__()
        self.way, self.part = way, nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3))
        self.list = nn.ModuleList([self.part] * 2)

    def forward(self, x):
        return x if x.sum() > 1e9 else self.ways[self.way](self, x)


@pytest.mark.parametrize("way", Around.ways)
def test_parts_are_found_however_they_are_called(way):
    plain = tiny_networks.with_statistics(Around(way)).eval()
    model = copy.deepcopy(plain)
    report = dscore.torch.accelerate(model, X)
    assert report.folded == (("part",) if way == "of a list" else ())
    agrees(model, plain)


def test_scripts_are_called_as_they_are():
    script = torch.jit.script(nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU()))
    plain = nn.Sequential(nn.Conv2d(3, 3, 1), script, nn.Conv2d(3, 3, 1), nn.ReLU()).eval()
    model = copy.deepcopy(plain)
    assert dscore.torch.accelerate(model, X).folded == ("",)
    agrees(model, plain)
    agrees(dscore.torch.accelerate(plain, X, inplace=False).model, plain)


@pytest.mark.parametrize("when", ["before", "after"])
def test_parameters_that_are_computed_are_computed_anew(when):
    model = nn.Sequential(dscore.torch.Conv2d(3, 6, 1), nn.Conv2d(6, 6, 1), nn.ReLU()).eval()
    for step in ("before", "after"):
        if step == when:
            parametrizations.weight_norm(model[0])
            parametrizations.weight_norm(model[1])
        if step == "before":
            dscore.torch.accelerate(model, X)
    for one in model[:2]:
        one.parametrizations.weight.original0.data.mul_(3)
    agrees(model, lambda x: model[1](model[0](x)).relu())
    dscore.torch.restore(model)
    assert isinstance(model[1], nn.Conv2d)
    assert not isinstance(model[1], dscore.torch.Conv2d)
    agrees(model, lambda x: model[1](model[0](x)).relu())


@pytest.mark.parametrize("copied", [copy.deepcopy, stored])
def test_sixteen_threads_call_a_copy_first(copied):
    """torch.fx changes nn.Module for all threads as long as it traces."""
    model = copied(accelerated())
    expected = exact(model)
    results, start = [None] * 16, threading.Barrier(16)

    def run(number):
        start.wait()
        with torch.no_grad():
            results[number] = model(X).double()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for one in results:
        torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-4)


def test_other_threads_run_while_a_model_is_traced():
    traced, other, results = threading.Event(), nn.Linear(3, 3), []

    def run():
        traced.wait()
        results.append(other(torch.zeros(3)))

    thread = threading.Thread(target=run)

    def compute(model, x):
        if isinstance(x, fx.Proxy):
            traced.set()
            thread.join()
        return model.conv(x)

    thread.start()
    dscore.torch.accelerate(Made(compute).eval(), X)
    assert torch.equal(results[0], other.bias)
