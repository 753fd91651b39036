"""Acceleration of whole models: the same results, everything that a user does to a model."""

import copy
import io

import pytest

from dscore.core.errors import SpecError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tiny_networks  # noqa: E402
from torch import nn  # noqa: E402

import dscore.torch  # noqa: E402

X = torch.randn(2, 3, 12, 10, generator=torch.Generator().manual_seed(1))


def _model(block=tiny_networks.InvertedResidual):
    torch.manual_seed(0)
    return tiny_networks.with_statistics(tiny_networks.Network(block)).eval()


def _accelerated(block=tiny_networks.InvertedResidual, **options):
    model = _model(block)
    dscore.torch.accelerate(model, X, **options)
    return model


def _program(model):
    return model._dscore_folded.program


def _exact(model, x=X):
    """The result in float64 of the modules that a model has, as PyTorch computes it."""
    twin = copy.deepcopy(model)
    dscore.torch.restore(twin)
    assert not any(isinstance(one, dscore.torch.Conv2d) for one in twin.modules())
    with torch.no_grad():
        return twin.double()(x.double())


def _assert_exact(model, x=X):
    with torch.no_grad():
        result = model(x)
    expected = _exact(model, x)
    assert result.dtype is torch.float32
    assert (result - expected).abs().max() <= 1e-5 * expected.abs().max()


FOLDED = {
    tiny_networks.InvertedResidual: [
        ("batch norm", "relu6"), ("batch norm", "relu6"), ("batch norm", "residual before"),
        ("batch norm", "relu6")],
    tiny_networks.GatedResidual: [
        ("batch norm", "silu"), ("batch norm", "silu"), ("silu",), (),
        ("scale", "batch norm", "residual before"), ("batch norm", "relu6")],
    tiny_networks.ShuffleUnit: [
        ("batch norm", "relu"), ("batch norm",), ("batch norm", "relu"), ("batch norm", "relu6")],
    tiny_networks.BasicBlock: [
        ("batch norm",), ("batch norm",), ("batch norm", "residual before", "relu"),
        ("batch norm", "relu6")],
}


@pytest.mark.parametrize("block", tiny_networks.BLOCKS)
def test_what_surrounds_convolutions_is_folded(block):
    model = _model(block)
    report = dscore.torch.accelerate(model, X)
    assert [layer.folded for layer in report.layers][1:] == FOLDED[block]
    assert report.folded == ("",)
    assert not any(isinstance(node.target, str) and "BatchNorm" in str(node.target)
                   for node in _program(model).graph.nodes)
    _assert_exact(model)
    _assert_exact(model, torch.randn(1, 3, 9, 17))


@pytest.mark.parametrize("block", tiny_networks.BLOCKS)
def test_kernels_of_a_named_backend_compute(block):
    model = _accelerated(block, backend="reference")
    dscore.torch.left_to_pytorch(reset=True)
    _assert_exact(model)
    assert dscore.torch.left_to_pytorch() == []


def test_kernels_of_gpus_compute_on_the_emulated_device():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 1, bias=False), nn.BatchNorm2d(3)

        def forward(self, x):
            gated = x * x.mean((2, 3), keepdim=True).sigmoid()
            return nn.functional.relu(self.norm(self.conv(gated)) + x)

    model = tiny_networks.with_statistics(Gated()).eval()
    report = dscore.torch.accelerate(model, X, backend="emulated")
    assert report.layers[0].folded == ("scale", "batch norm", "residual before", "relu")
    assert report.kernels == 1
    _assert_exact(model)


@pytest.mark.parametrize("block", tiny_networks.BLOCKS)
def test_a_saved_model_loads_after_and_the_other_way_round(block):
    plain, model = _model(block), _model(block)
    keys = list(model.state_dict())
    dscore.torch.accelerate(model, X)
    assert list(model.state_dict()) == keys
    other = tiny_networks.with_statistics(tiny_networks.Network(block), seed=3)
    model.load_state_dict(other.state_dict())
    plain.load_state_dict(model.state_dict())
    _assert_exact(model)
    assert torch.equal(_exact(model), _exact(plain))


def test_training_is_that_of_the_model_itself():
    plain, model = _model(), _accelerated()
    losses = []
    for one in (plain, model):
        torch.manual_seed(2)
        one.train()
        optimizer = torch.optim.SGD(one.parameters(), 0.05, momentum=0.9)
        losses.append([])
        for _ in range(5):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(one(X), torch.tensor([1, 3]))
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
        one.eval()
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[0][0] != pytest.approx(losses[0][-1], rel=1e-2)
    _assert_exact(model)


def _in_place(model):
    with torch.no_grad():
        model.body[1][0].weight.mul_(2)
        model.body[1][1].running_var.add_(1)


def _replaced(model):
    model.stem[1].weight = nn.Parameter(torch.full((8,), 3.0))


def _by_data(model):
    model.stem[1].weight.data.mul_(2)
    model.eval()


def _by_data_refreshed(model):
    model.stem[1].bias.data.sub_(2)
    dscore.torch.refresh(model)


def _new_head(model):
    model.head = nn.Linear(16, 3)


def _more_modules(model):
    model.body.append(nn.Conv2d(16, 16, 1))


def _fewer_modules(model):
    model.body = model.body[:1]
    model.head = nn.Linear(8, 2)


def _pruned(model):
    from torch.nn.utils import prune

    with torch.no_grad():  # else PyTorch cannot copy the module
        prune.l1_unstructured(model.body[1][0], "weight", 0.5)


def _unbiased(model):
    model.stem[0].bias = nn.Parameter(torch.ones(8))


def _assigned(model):
    other = tiny_networks.with_statistics(tiny_networks.Network(), seed=5)
    model.load_state_dict(other.state_dict(), assign=True)


@pytest.mark.parametrize("change", [
    _in_place, _replaced, _by_data, _by_data_refreshed, _new_head, _more_modules, _fewer_modules,
    _pruned, _unbiased, _assigned])
def test_changes_of_a_model_are_honoured(change):
    model = _accelerated()
    before = _exact(model)
    change(model)
    after = _exact(model)
    assert after.shape != before.shape or not torch.allclose(after, before, rtol=1e-3)
    _assert_exact(model)


def test_another_type_is_computed_after_a_conversion():
    model = _accelerated().double()
    with torch.no_grad():
        result = model(X.double())
    assert result.dtype is torch.float64
    assert torch.allclose(result, _exact(model))
    _assert_exact(model.float())


def test_a_part_in_train_mode_trains():
    model = _accelerated()
    model.body[1][1].train()
    before = model.body[1][1].running_mean.clone()
    with torch.no_grad():
        model(X)
    assert not torch.equal(model.body[1][1].running_mean, before)
    model.eval()
    _assert_exact(model)


def test_gradients_in_eval_mode_are_those_of_the_parameters():
    plain, model = _model(), _accelerated()
    for one in (plain, model):
        one(X).sum().backward()
    for (name, expected), actual in zip(plain.named_parameters(), model.parameters(), strict=True):
        assert torch.allclose(expected.grad, actual.grad, rtol=1e-3, atol=1e-4), name


def test_hooks_are_called():
    model, seen = _accelerated(), []
    handle = model.body[1][1].register_forward_hook(lambda *args: seen.append("norm"))
    model.body[0].register_forward_pre_hook(lambda *args: seen.append("block"))
    model.register_forward_hook(lambda *args: seen.append("model"))
    _assert_exact(model)
    assert seen.count("norm") >= 1 <= seen.count("block")
    assert "model" in seen
    handle.remove()
    seen.clear()
    with torch.no_grad():
        model(X)
    assert sorted(seen) == ["block", "model"]


def test_hooks_of_all_modules_are_called():
    model, seen = _accelerated(), []
    handle = nn.modules.module.register_module_forward_hook(lambda one, *_: seen.append(type(one)))
    with torch.no_grad():
        model(X)
    handle.remove()
    assert nn.BatchNorm2d in seen


def _stored(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, _stored])
def test_copies_are_models_of_their_own(copied):
    model = _accelerated()
    other = copied(model)
    _assert_exact(other)
    assert _program(other).model is other
    with torch.no_grad():
        other.stem[0].weight.mul_(2)
    _assert_exact(model)
    _assert_exact(other)
    dscore.torch.restore(other)
    assert type(other) is tiny_networks.Network


def test_restoring_undoes_all():
    model = _model()
    kinds, names = [type(one) for one in model.modules()], list(vars(model))
    parameters = list(map(id, model.parameters()))
    dscore.torch.accelerate(model, X, backend="reference")
    assert any(type(one) is dscore.torch.Conv2d for one in model.modules())
    dscore.torch.restore(model)
    assert [type(one) for one in model.modules()] == kinds
    assert list(vars(model)) == names
    assert list(map(id, model.parameters())) == parameters


def test_a_copy_is_accelerated_on_request():
    model = _model()
    report = dscore.torch.accelerate(model, X, inplace=False)
    assert type(model) is tiny_networks.Network
    assert report.model is not model
    _assert_exact(report.model)


def test_the_second_time_replaces_the_first():
    model = _accelerated(backend="reference")
    report = dscore.torch.accelerate(model, X)
    assert report.backend == "auto"
    assert all(one.backend == "auto" for one in model.modules()
               if isinstance(one, dscore.torch.Conv2d))
    _assert_exact(model)


def test_without_folding_the_modules_run():
    model = _model()
    report = dscore.torch.accelerate(model, X, fold=False)
    assert type(model) is tiny_networks.Network
    assert len(report.replaced) == 4
    assert {layer.folded for layer in report.layers} == {()}
    _assert_exact(model)


def test_what_cannot_be_traced_is_folded_in_parts():
    torch.manual_seed(0)
    model = tiny_networks.with_statistics(tiny_networks.Branching()).eval()
    report = dscore.torch.accelerate(model, X)
    assert report.folded == ("body",)
    assert [name for name, _ in report.unfolded] == [""]
    assert "control flow" in report.unfolded[0][1]
    assert isinstance(model.aside, dscore.torch.Conv2d)
    _assert_exact(model)


class _Deceptive(nn.Module):
    """A model whose graph depends on what PyTorch traces it with."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x):
        y = self.conv(x)
        return y if isinstance(x, torch.fx.Proxy) else 2 * y


def test_a_graph_with_another_result_is_not_taken():
    model = _Deceptive().eval()
    report = dscore.torch.accelerate(model, X)
    assert report.folded == ()
    assert "another" in report.unfolded[0][1]
    _assert_exact(model)


def test_torch_compile_takes_the_whole_graph():
    model = _accelerated(tiny_networks.GatedResidual, backend="reference")
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for x in (X, X[:1]):
        with torch.no_grad():
            result = compiled(x)
        expected = _exact(model, x)
        assert (result - expected).abs().max() <= 1e-5 * expected.abs().max()
    with torch.no_grad():
        model.stem[1].weight.mul_(2)
        dscore.torch.refresh(model)
        expected = _exact(model)
        assert (compiled(X) - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_a_loaded_model_is_compiled_as_it_is():
    model = _stored(_accelerated())
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    with torch.no_grad():
        result, expected = compiled(X), _exact(model)
    assert (result - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert _program(model) is not None


def test_convolutions_that_are_left_are_listed():
    model = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1, padding_mode="circular", groups=3),
                          nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 4, 3)).eval()
    report = dscore.torch.accelerate(model, X)
    assert [(layer.name, layer.folded) for layer in report.left] == [("0", ("batch norm",)),
                                                                     ("3", ())]
    assert "circular" in report.left[0].reason
    assert "0  PyTorch's: pads by circular values" in str(report)
    _assert_exact(model)


def test_values_that_others_use_are_not_folded_away():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

        def forward(self, x):
            y = self.conv(x)
            return self.norm(y) + y

    model = tiny_networks.with_statistics(Shared()).eval()
    assert dscore.torch.accelerate(model, X).layers[0].folded == ()
    _assert_exact(model)


def test_values_that_are_written_in_place_stay_in_order():
    class Written(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)

        def forward(self, x):
            x = x + 0
            y = self.conv(x)
            x.add_(1)
            return y + x

    model = Written().eval()
    assert dscore.torch.accelerate(model, X).layers[0].folded == ()
    _assert_exact(model)


def test_an_activation_before_the_sum_is_another_layer():
    class After(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)

        def forward(self, x):
            return nn.functional.hardswish(self.conv(x)) + x

    model = After().eval()
    report = dscore.torch.accelerate(model, X, backend="reference")
    assert report.layers[0].folded == ("hardswish", "residual after")
    assert report.layers[0].problem.endswith("bias_hardswish_residualafter")
    _assert_exact(model)


@pytest.mark.parametrize("model", [None, "model", torch.nn.functional.relu])
def test_what_is_no_model_is_refused(model):
    with pytest.raises(SpecError, match=r"a model is a torch\.nn\.Module"):
        dscore.torch.accelerate(model, X)


def test_compiled_models_are_refused():
    with pytest.raises(SpecError, match="compiled already"):
        dscore.torch.accelerate(torch.compile(_model()), X)


def test_arguments_by_name_run_the_modules():
    model = _accelerated()
    with torch.no_grad():
        assert torch.allclose(model(x=X), model(X), rtol=1e-4, atol=1e-5)
