"""Accelerated models as users treat them: trained, changed, hooked, copied, saved."""

import copy

import pytest

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
from torch import fx, nn  # noqa: E402

import dscore.torch  # noqa: E402
from dscore.torch.accelerated import Accelerated  # noqa: E402


def test_training_is_that_of_the_model_itself():
    plain, model = model_of(), accelerated()
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
    assert_exact(model)


@torch.no_grad()
def test_the_example_stays_as_it_is_though_the_model_overwrites_it():
    model, x = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(3, 3, 1, groups=3)).eval(), X.clone()
    wanted = copy.deepcopy(model)(X.clone())
    report = dscore.torch.accelerate(model, x)
    assert torch.equal(x, X)
    assert not report.unfolded
    torch.testing.assert_close(model(x), wanted)


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
    model = accelerated()
    before = exact(model)
    change(model)
    after = exact(model)
    assert after.shape != before.shape or not torch.allclose(after, before, rtol=1e-3)
    assert_exact(model)


def test_another_type_is_computed_after_a_conversion():
    model = accelerated().double()
    with torch.no_grad():
        result = model(X.double())
    assert result.dtype is torch.float64
    assert torch.allclose(result, exact(model))
    assert_exact(model.float())


def test_a_part_in_train_mode_trains():
    model = accelerated()
    model.body[1][1].train()
    before = model.body[1][1].running_mean.clone()
    with torch.no_grad():
        model(X)
    assert not torch.equal(model.body[1][1].running_mean, before)
    model.eval()
    assert_exact(model)


def test_gradients_in_eval_mode_are_those_of_the_parameters():
    plain, model = model_of(), accelerated()
    for one in (plain, model):
        one(X).sum().backward()
    for (name, expected), actual in zip(plain.named_parameters(), model.parameters(), strict=True):
        assert torch.allclose(expected.grad, actual.grad, rtol=1e-3, atol=1e-4), name


def test_hooks_are_called():
    model, seen = accelerated(), []
    handle = model.body[1][1].register_forward_hook(lambda *args: seen.append("norm"))
    model.body[0].register_forward_pre_hook(lambda *args: seen.append("block"))
    model.register_forward_hook(lambda *args: seen.append("model"))
    assert_exact(model)
    assert seen.count("norm") >= 1 <= seen.count("block")
    assert "model" in seen
    handle.remove()
    seen.clear()
    with torch.no_grad():
        model(X)
    assert sorted(seen) == ["block", "model"]


class Overwriting(nn.Module):
    """A part that overwrites what a layer before it is computed of."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)
        self.part = nn.Sequential(nn.SiLU(inplace=True), nn.Conv2d(3, 3, 1))

    def forward(self, x):
        x = x + 1
        y, last = self.conv(x), self.part(x)
        x **= 2
        return self.norm(y) + x + last.mean()


@pytest.mark.parametrize("first", [True, False])
def test_hooks_hide_what_modules_overwrite(first):
    model, example = tiny_networks.with_statistics(Overwriting()).eval(), -torch.ones_like(X)
    if first:
        model.part.register_forward_hook(lambda *args: None)
    assert dscore.torch.accelerate(model, example).folded == ("",)
    model.part.register_forward_hook(lambda *args: None)
    assert_exact(model)


@torch.no_grad()
def test_models_of_an_ensemble_are_computed_by_their_parameters():
    model, plain = accelerated(), [model_of() for _ in range(3)]
    for number, one in enumerate(plain):
        one.stem[1].running_mean.add_(number)
    parameters = torch.func.stack_module_state(plain)
    results = torch.vmap(lambda *given: torch.func.functional_call(model, given, (X,)))(*parameters)
    for one, result in zip(plain, results, strict=True):
        torch.testing.assert_close(one(X), result, rtol=1e-4, atol=1e-4)
    assert_exact(model)


def test_hooks_of_all_modules_are_called():
    model, seen = accelerated(), []
    handle = nn.modules.module.register_module_forward_hook(lambda one, *_: seen.append(type(one)))
    with torch.no_grad():
        model(X)
    handle.remove()
    assert nn.BatchNorm2d in seen


@pytest.mark.parametrize("copied", [copy.deepcopy, stored])
def test_copies_are_models_of_their_own(copied):
    model = accelerated()
    other = copied(model)
    assert_exact(other)
    assert program_of(other).model is other
    with torch.no_grad():
        other.stem[0].weight.mul_(2)
    assert_exact(model)
    assert_exact(other)
    dscore.torch.restore(other)
    assert type(other) is tiny_networks.Network


def graph_module(**options):
    """An accelerated `torch.fx.GraphModule`, each of which has a class of its own."""
    model = fx.symbolic_trace(model_of())
    dscore.torch.accelerate(model, X, **options)
    return model


@pytest.mark.parametrize("copied", [copy.deepcopy, stored])
def test_copies_of_graph_modules_are_models_of_their_own(copied):
    model = graph_module()
    assert_exact(model)
    program = program_of(model)
    other = copied(model)
    assert program_of(model) is program
    assert_exact(other)
    assert program_of(other).model is other
    assert type(other) is not type(model)
    theirs = {one.data_ptr() for one in (*other.parameters(), *other.buffers())}
    assert theirs.isdisjoint(one.data_ptr() for one in (*model.parameters(), *model.buffers()))
    for one, another in ((other, model), (model, other)):
        with torch.no_grad():
            changed, kept = one(X), another(X)
            one.get_submodule("stem.0").weight.mul_(2)
            assert not torch.equal(one(X), changed)
            assert torch.equal(another(X), kept)
        assert_exact(one)
    dscore.torch.restore(other)
    assert not isinstance(other, Accelerated)
    assert isinstance(other, fx.GraphModule)
    assert_exact(copied(copied(model)))
    assert_exact(model)


def test_a_graph_module_within_a_model_is_copied_with_it():
    model = nn.Sequential(graph_module(), nn.Softmax(1)).eval()
    other = copy.deepcopy(model)
    assert program_of(model[0]) is not None
    assert_exact(other)
    assert program_of(other[0]).model is other[0]


def test_a_graph_module_follows_its_graph():
    """As torch.fx changes it: the graph first, then what is compiled of it."""
    model = graph_module()
    assert_exact(model)
    output = next(iter(reversed(model.graph.nodes)))
    with model.graph.inserting_before(output):
        output.args = (model.graph.call_function(torch.neg, output.args),)
    with torch.no_grad():
        before = model(X)
        model.recompile()
        assert torch.equal(model(X), -before)
    assert_exact(model)
    assert program_of(model).model is model


@pytest.mark.parametrize("place", ["head", "body"])
def test_a_module_that_is_added_anywhere_is_seen(place):
    """To one that had none as well as to one that has some."""
    model = accelerated()
    state = program_of(model).state
    assert state() == "current"
    model.get_submodule(place).add_module("further", nn.Identity())
    assert state() == "outdated"
