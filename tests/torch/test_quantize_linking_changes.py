"""Linked programs of quantised models as users treat these: changed, hooked, copied, in threads."""

import copy
import io
import threading

import pytest
from profiles import deep

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tiny_networks  # noqa: E402
from quantized_models import (  # noqa: E402
    agrees,
    by_modules,
    copy_of,
    images,
    link,
    linked_of,
    program_of,
    quantized_gpu,
    refused,
)
from torch import nn  # noqa: E402

import dscore.torch  # noqa: E402


@pytest.fixture
def launches(monkeypatch):
    with quantized_gpu(monkeypatch) as launches:
        yield launches


def layer_in(model):
    return model.get_submodule("body.1.0")


def step_in(model):
    return next(one for one in model.modules() if isinstance(one, dscore.torch.Quantize))


def gate_in(model):
    return model.get_submodule("body.0.block.2.down")


def _in_place(model):
    layer_in(model).weight.neg_()


def _buffer(model):
    layer_in(model).weight = layer_in(model).weight.neg()


def _by_data(model):
    layer_in(model).weight.data = layer_in(model).weight.neg()


def _gate(model):
    gate_in(model).weight = nn.Parameter(-3 * gate_in(model).weight, requires_grad=False)


def _gate_by_data(model):
    gate_in(model).weight.data = -3 * gate_in(model).weight


def _gate_s_activation(model):
    gate_in(model).activation = "relu"


def _quantization(model):
    layer, q = layer_in(model), layer_in(model).quantization
    layer.quantization = dscore.Quantization(q.x_scale, [3 * one for one in q.w_scale], q.y_scale,
                                             q.x_zero_point, q.y_zero_point)


def _padding(model):
    layer_in(model).padding = 1


def _scale(model):
    step_in(model).scale *= 2


def _loaded(model):
    other = copy_of()
    layer_in(other).weight.neg_()
    step_in(other).scale *= 2
    model.load_state_dict(other.state_dict())


def _loaded_by_assignment(model):
    other = copy_of()
    layer_in(other).weight.neg_()
    model.load_state_dict(other.state_dict(), assign=True)


def _module(model):
    other = copy.deepcopy(layer_in(model))
    other.weight.neg_()
    model.set_submodule("body.1.0", other)


def _head(model):
    model.head = nn.Linear(16, 3)


def _unbiased(model):
    layer_in(model).bias = None


def _forward(model):
    layer, plain = layer_in(model), layer_in(model).forward
    layer.forward = lambda *given: plain(*given).neg()


def _hook(model):
    layer_in(model).register_forward_hook(lambda module, given, y: y.neg())


@torch.no_grad()
@pytest.mark.parametrize("change", [
    _in_place, _gate, _loaded, *map(deep, (
        _padding, _module, _buffer, _by_data, _gate_by_data, _gate_s_activation, _quantization,
        _scale, _loaded_by_assignment, _head, _unbiased, _forward, _hook))])
def test_changes_of_a_model_are_honoured(change, launches):
    model = copy_of()
    link(model)
    before = model(images())
    if change is _in_place:  # which kernels read where it lies
        program_of(model)._general = refused
    change(model)
    for _ in range(4):
        y = model(images())
        assert y.shape != before.shape or not torch.equal(y, before)
        agrees(model, images())
    assert linked_of(model)


@torch.no_grad()
@pytest.mark.parametrize("block", [deep(tiny_networks.GatedResidual), tiny_networks.ShuffleUnit])
@pytest.mark.parametrize("dtype", [deep(torch.float16), torch.bfloat16, deep(torch.float64)])
def test_conversions_are_honoured(dtype, block, launches):
    model = copy_of(block)
    link(model)
    model.to(dtype)
    assert program_of(model) is None  # which would hold the tensors that were
    for _ in range(4):
        y = model(images().to(dtype))
        assert y.dtype is dtype
        agrees(model, images().to(dtype))
    model.float()
    link(model)


@torch.no_grad()
def test_a_weight_of_another_form_at_its_place_is_seen(launches):
    model = copy_of(tiny_networks.InvertedResidual)
    link(model)
    program_of(model)._general = lambda x: "general"
    weight = layer_in(model).weight
    weight.data = weight.data.transpose(0, 1)
    assert model(images()) == "general"


@torch.no_grad()
def test_hooks_are_called(launches):
    model, seen = copy_of(), []
    link(model)
    handles = [layer_in(model).register_forward_hook(lambda *given: seen.append("layer")),
               model.register_forward_pre_hook(lambda *given: seen.append("model"))]
    for _ in range(4):
        agrees(model, images())
    assert seen.count("layer") == 2 * seen.count("model") == 8
    for handle in handles:
        handle.remove()
    every = nn.modules.module.register_module_forward_hook(lambda one, *_: seen.append(one))
    seen.clear()
    model(images())
    every.remove()
    assert layer_in(model) in seen
    seen.clear()
    for _ in range(4):
        agrees(model, images())
    assert not seen


@torch.no_grad()
def test_a_model_that_is_first_called_under_hooks_of_all_modules(launches):
    model, seen = copy_of(), []
    model.recompile()
    every = nn.modules.module.register_module_forward_hook(lambda one, *_: seen.append(one))
    for _ in range(4):
        model(images())
    every.remove()
    assert seen.count(layer_in(model)) == 4


@torch.no_grad()
def test_parts_in_train_mode_run_by_themselves(launches):
    model = copy_of()
    link(model)
    model.train()
    program_of(model)._general = refused
    agrees(model, images())
    model.eval()
    agrees(model, images())


def stored(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@torch.no_grad()
@pytest.mark.parametrize("copied", [copy.deepcopy, deep(stored)])
def test_copies_are_models_of_their_own(copied, launches):
    model = copy_of()
    keys = list(model.state_dict())
    link(model)
    other = copied(model)
    assert list(model.state_dict()) == list(other.state_dict()) == keys
    link(other)
    layer_in(other).weight.neg_()
    agrees(other, images())
    agrees(model, images())
    assert not torch.equal(other(images()), model(images()))


@torch.no_grad()
@pytest.mark.deep
def test_sixteen_threads_call_first(launches):
    model, results = copy_of(), [None] * 16
    x = [images(seed=number % 3) for number in range(16)]
    expected = [by_modules(model, one) for one in x]
    start = threading.Barrier(16)

    def run(number):
        start.wait()
        with torch.no_grad():
            results[number] = [model(x[number]) for _ in range(5)]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert all(torch.equal(y, target) for ys, target in zip(results, expected, strict=True)
               for y in ys)
    assert linked_of(model)
