"""Acceleration of whole models: what is folded, and the same results."""

import pytest

from dscore.core.errors import SpecError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tiny_networks  # noqa: E402
from accelerated_models import (  # noqa: E402
    X,
    accelerated,
    assert_exact,
    exact,
    model_of,
    program_of,
    stored,
)
from torch import nn  # noqa: E402

import dscore.torch  # noqa: E402
from dscore.torch import shuffling  # noqa: E402

FOLDED = {
    tiny_networks.InvertedResidual: [
        ("batch norm", "relu6"), ("batch norm", "relu6"), ("batch norm", "residual before"),
        ("batch norm", "relu6")],
    tiny_networks.GatedResidual: [
        ("batch norm", "silu"), ("batch norm", "silu"), ("silu",), ("sigmoid",),
        ("scale", "batch norm", "residual before"), ("batch norm", "relu6")],
    tiny_networks.ShuffleUnit: [
        ("batch norm", "relu"), ("batch norm",), ("batch norm", "relu"), ("batch norm", "relu6")],
    tiny_networks.BasicBlock: [
        ("batch norm",), ("batch norm",), ("batch norm", "residual before", "relu"),
        ("batch norm", "relu6")],
}


@pytest.mark.parametrize("block", tiny_networks.BLOCKS)
def test_what_surrounds_convolutions_is_folded(block):
    model = model_of(block)
    report = dscore.torch.accelerate(model, X)
    assert [layer.folded for layer in report.layers][1:] == FOLDED[block]
    assert report.folded == ("",)
    assert not any(isinstance(node.target, str) and "BatchNorm" in str(node.target)
                   for node in program_of(model).graph.nodes)
    assert_exact(model)
    assert_exact(model, torch.randn(1, 3, 9, 17))


def test_a_shuffle_is_one_pass():
    model = accelerated(tiny_networks.ShuffleUnit)
    called = [str(node.target) for node in program_of(model).graph.nodes]
    assert sum("shuffled" in name for name in called) == 1
    assert not {"view", "contiguous", "size"} & set(called)
    assert_exact(model, X[:1])


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("channels", [2, 3, 6])
def test_shuffles_are_those_of_views(images, channels):
    first, second = torch.randn(2, images, channels, 3, 2).unbind()
    joined = torch.cat((first, second), 1).view(images, 2, channels, 3, 2)
    expected = joined.transpose(1, 2).reshape(images, 2 * channels, 3, 2)
    halves = shuffling.shuffled_halves(first, second)
    assert torch.equal(shuffling.shuffled(first, second), expected)
    assert all(map(torch.equal, halves, expected.chunk(2, 1)))
    assert channels % 2 or all(half.is_contiguous() for half in halves)


def test_two_units_split_what_was_shuffled():
    model = nn.Sequential(tiny_networks.ShuffleUnit(6), tiny_networks.ShuffleUnit(6)).eval()
    x = torch.randn(2, 6, 5, 4)
    dscore.torch.accelerate(model, x)
    names = [getattr(node.target, "__name__", "") for node in program_of(model).graph.nodes]
    assert [name for name in names if "shuffled" in name] == ["shuffled_halves", "shuffled"]
    assert_exact(model, x)


@pytest.mark.parametrize("block", tiny_networks.BLOCKS)
def test_kernels_of_a_named_backend_compute(block):
    model = accelerated(block, backend="reference")
    dscore.torch.left_to_pytorch(reset=True)
    assert_exact(model)
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
    assert report.kernels == 2  # of the layer and of the mean
    assert_exact(model)


@pytest.mark.parametrize("block", tiny_networks.BLOCKS)
def test_a_saved_model_loads_after_and_the_other_way_round(block):
    plain, model = model_of(block), model_of(block)
    keys = list(model.state_dict())
    dscore.torch.accelerate(model, X)
    assert list(model.state_dict()) == keys
    other = tiny_networks.with_statistics(tiny_networks.Network(block), seed=3)
    model.load_state_dict(other.state_dict())
    plain.load_state_dict(model.state_dict())
    assert_exact(model)
    assert torch.equal(exact(model), exact(plain))


def test_restoring_undoes_all():
    model = model_of()
    kinds, names = [type(one) for one in model.modules()], list(vars(model))
    parameters = list(map(id, model.parameters()))
    dscore.torch.accelerate(model, X, backend="reference")
    assert any(type(one) is dscore.torch.Conv2d for one in model.modules())
    dscore.torch.restore(model)
    assert [type(one) for one in model.modules()] == kinds
    assert list(vars(model)) == names
    assert list(map(id, model.parameters())) == parameters


def test_a_copy_is_accelerated_on_request():
    model = model_of()
    report = dscore.torch.accelerate(model, X, inplace=False)
    assert type(model) is tiny_networks.Network
    assert report.model is not model
    assert_exact(report.model)


def test_the_second_time_replaces_the_first():
    model = accelerated(backend="reference")
    report = dscore.torch.accelerate(model, X)
    assert report.backend == "auto"
    assert all(one.backend == "auto" for one in model.modules()
               if isinstance(one, dscore.torch.Conv2d))
    assert_exact(model)


def test_without_folding_the_modules_run():
    model = model_of()
    report = dscore.torch.accelerate(model, X, fold=False)
    assert type(model) is tiny_networks.Network
    assert len(report.replaced) == 4
    assert {layer.folded for layer in report.layers} == {()}
    assert_exact(model)


def test_what_cannot_be_traced_is_folded_in_parts():
    torch.manual_seed(0)
    model = tiny_networks.with_statistics(tiny_networks.Branching()).eval()
    report = dscore.torch.accelerate(model, X)
    assert report.folded == ("body",)
    assert [name for name, _ in report.unfolded] == [""]
    assert "control flow" in report.unfolded[0][1]
    assert isinstance(model.aside, dscore.torch.Conv2d)
    assert_exact(model)


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
    assert_exact(model)


def test_torch_compile_takes_the_whole_graph():
    model = accelerated(tiny_networks.GatedResidual, backend="reference")
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for x in (X, X[:1]):
        with torch.no_grad():
            result = compiled(x)
        expected = exact(model, x)
        assert (result - expected).abs().max() <= 1e-5 * expected.abs().max()
    with torch.no_grad():
        model.stem[1].weight.mul_(2)
        dscore.torch.refresh(model)
        expected = exact(model)
        assert (compiled(X) - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_a_loaded_model_is_compiled_as_it_is():
    model = stored(accelerated())
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    with torch.no_grad():
        result, expected = compiled(X), exact(model)
    assert (result - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert program_of(model) is not None


def test_convolutions_that_are_left_are_listed():
    model = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1, padding_mode="circular", groups=3),
                          nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 4, 3)).eval()
    report = dscore.torch.accelerate(model, X)
    assert [(layer.name, layer.folded) for layer in report.left] == [("0", ("batch norm",)),
                                                                     ("3", ())]
    assert "circular" in report.left[0].reason
    assert "0  PyTorch's: pads by circular values" in str(report)
    assert_exact(model)


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
    assert_exact(model)


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
    assert_exact(model)


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
    assert_exact(model)


def test_squeeze_and_excitation_takes_three_convolutions():
    class Squeezed(nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.up, self.project = (nn.Conv2d(3, n, 1) for n in (3, 3, 4))

        def forward(self, x):
            squeezed = nn.functional.silu(self.down(x.mean((2, 3), keepdim=True)))
            return self.project(nn.functional.hardsigmoid(self.up(squeezed)) * x)

    model = Squeezed().eval()
    report = dscore.torch.accelerate(model, X, backend="reference")
    assert [layer.folded for layer in report.layers] == [("silu",), ("hardsigmoid",), ("scale",)]
    assert_exact(model)


@pytest.mark.parametrize("model", [None, "model", torch.nn.functional.relu])
def test_what_is_no_model_is_refused(model):
    with pytest.raises(SpecError, match=r"a model is a torch\.nn\.Module"):
        dscore.torch.accelerate(model, X)


def test_compiled_models_are_refused():
    with pytest.raises(SpecError, match="compiled already"):
        dscore.torch.accelerate(torch.compile(model_of()), X)


def test_arguments_by_name_run_the_modules():
    model = accelerated()
    with torch.no_grad():
        assert torch.allclose(model(x=X), model(X), rtol=1e-4, atol=1e-5)
