"""Linked programs of quantised models: the integers of their modules, for inputs of their kind."""

import pytest
from profiles import deep, mostly_deep

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
from torch import fx  # noqa: E402
from torch.fx import graph  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.utils._pytree import tree_structure  # noqa: E402
from torch_gpu import NAME, TorchGpu  # noqa: E402

import dscore.torch  # noqa: E402
from dscore.torch import quantize_modules  # noqa: E402
from dscore.torch.linking import Arena  # noqa: E402


@pytest.fixture
def launches(monkeypatch):
    with quantized_gpu(monkeypatch) as launches:
        yield launches


@pytest.fixture(params=mostly_deep(tiny_networks.BLOCKS, tiny_networks.GatedResidual))
def model(request, launches):
    return copy_of(request.param)


@torch.no_grad()
def test_a_linked_program_computes_the_same(model, launches):
    launches.clear()
    by_modules(model, images())
    kinds = list(launches)
    link(model)
    for seed in range(3):
        launches.clear()
        y = model(images(seed=seed))
        assert launches == kinds
        assert torch.equal(y, by_modules(model, images(seed=seed)))


@torch.no_grad()
def test_launches_of_a_linked_program_follow_others(launches):
    model = copy_of(tiny_networks.InvertedResidual)
    by_modules(model, images())
    assert TorchGpu.behind
    assert not any(TorchGpu.behind)
    link(model)
    TorchGpu.behind.clear()
    model(images())
    # The first one follows what others do; the linear layer is called as before.
    first, *others, linear = TorchGpu.behind
    assert (first, linear) == (False, False)
    assert others
    assert all(others)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_what_passes_between_layers_is_no_tensor(dtype, launches, monkeypatch):
    made, make = [], torch.empty_strided
    monkeypatch.setattr(torch, "empty_strided", lambda shape, *rest, **options: (
        made.append(tuple(shape)) or make(shape, *rest, **options)))
    model, x = copy_of().to(dtype), images().to(dtype)
    link(model, x)
    made.clear()
    launches.clear()
    model(x)
    assert launches == ["quantise", *["conv"] * 3, "mean", *["conv"] * 4, "mean", "conv"]
    arena, mean, y = made
    assert (len(arena), mean) == (1, (2, 16))  # which the linear layer takes
    assert y == (2, 5, 1, 1)


@torch.no_grad()
@pytest.mark.parametrize("fault", ["arena", "operand"])
def test_a_fault_of_a_linked_program_is_noticed(fault, launches, monkeypatch):
    """By the comparison of these tests: values that overlap in the arena, a wrong filter."""
    place, launch_of = Arena.place, quantize_modules.launch_of

    def with_another_filter(x, w, *rest):
        launch = launch_of(x, w, *rest)
        return launch._replace(operands=(0, w.flip(0), *launch.operands[2:]))

    if fault == "arena":
        monkeypatch.setattr(Arena, "place", lambda self, *rest: place(self, *rest) and 0)
    else:
        monkeypatch.setattr(quantize_modules, "launch_of", with_another_filter)
    model = copy_of(tiny_networks.InvertedResidual)
    with pytest.raises(AssertionError):
        link(model)
    assert linked_of(model)


@torch.no_grad()
@pytest.mark.parametrize("change", [
    lambda x: x[:1], deep(lambda x: x.flip(-1)), deep(lambda x: x.transpose(-1, -2)),
    lambda x: x.contiguous(memory_format=torch.channels_last),
    deep(lambda x: x[:, :, :-2, :-2]), deep(lambda x: x.half()), deep(lambda x: x[:0]),
    lambda x: torch.cat([x.flatten(), x[0, 0, 0, :1]])[1:].view(x.shape)],
    ids=["batch", "flipped", "transposed", "channels_last", "size", "half", "none", "misplaced"])
def test_other_inputs_are_computed(change, launches):
    model = copy_of()
    for seed in range(4):
        agrees(model, images(seed=seed))
        agrees(model, change(images(seed=seed)))
    assert 1 <= len(linked_of(model)) <= 2


@pytest.mark.deep
def test_gradients_and_autocast_are_not_linked(model):
    link(model)
    x, general, taken = images(), type(model).forward.__wrapped__, []
    program_of(model)._general = lambda x: taken.append(1) or general(model, x)
    with torch.inference_mode():
        agrees(model, x)
    assert taken == [1]
    with torch.inference_mode():  # of which there is a linked program then
        for _ in range(3):
            agrees(model, x)
    assert taken == [1]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        agrees(model, x)
    taken.clear()
    x.requires_grad_()
    assert model(x).requires_grad
    assert not taken  # nor a linked program


class Leaves(fx.Tracer):
    """A tracer that keeps dscore's modules whole."""

    def is_leaf_module(self, m, module_qualified_name):
        return type(m).__module__.startswith("dscore.") or super().is_leaf_module(
            m, module_qualified_name)


@torch.no_grad()
@pytest.mark.deep
def test_traces_are_those_of_its_modules(model):
    link(model)
    program_of(model)._general = type(model).forward.__wrapped__.__get__(model)
    calls = [node.op for node in model.graph.nodes]
    assert [node.op for node in Leaves().trace(model).nodes] == calls
    model.recompile()
    for _ in range(3):
        traced = make_fx(model)(images()).graph
        assert any("dscore.quantized_conv2d" in str(node.target) for node in traced.nodes)
    assert not linked_of(model)


@torch.no_grad()
def test_other_arguments_are_refused_as_by_its_code(launches):
    model = copy_of(tiny_networks.InvertedResidual)
    for _ in range(3):
        model(images())
    for given in ((), (images(), images()), (images()[0, 0],), (None,)):
        errors = []
        for call in (model, lambda *given: by_modules(model, *given)):
            with pytest.raises((TypeError, RuntimeError, AttributeError, ValueError)) as error:
                call(*given)
            errors.append((error.type, str(error.value)))
        assert errors[0] == errors[1]


@torch.no_grad()
@pytest.mark.deep
def test_compiled_and_exported_models_are_their_own_code(launches):
    model = copy_of()
    x = images()
    link(model)
    y = by_modules(model, x)
    for program in (torch.compile(model, fullgraph=True, backend="eager"),
                    torch.export.export(model, (x,)).module()):
        assert torch.allclose(program(x), y, atol=1e-6)  # there the linear layer is PyTorch's


def negate(graph):
    last = next(node for node in graph.nodes if node.op == "output")
    with graph.inserting_before(last):
        last.args = (graph.call_function(torch.neg, (last.args[0],)),)


@torch.no_grad()
@pytest.mark.parametrize("calls", [deep(0), 1, deep(3)])
def test_a_graph_that_is_edited_counts_when_it_is_recompiled(calls, launches):
    model = copy_of()
    before = by_modules(model, images())
    for _ in range(calls):
        model(images())
    negate(model.graph)
    for _ in range(3):
        assert torch.equal(model(images()), before)
    layer = model.get_submodule("body.1.0")
    layer.weight = layer.weight.clone()
    for _ in range(3):
        assert torch.equal(model(images()), before)
    model.recompile()
    link(model)
    assert torch.equal(model(images()), -before)


@torch.no_grad()
def test_a_model_that_overwrites_its_input_is_not_linked(launches):
    model = copy_of()
    x, taker, *_ = model.graph.nodes
    with model.graph.inserting_before(taker):
        twice = model.graph.call_method("mul_", (x, 2))
    taker.args = (twice,)
    model.recompile()
    for _ in range(4):
        x = images()
        y = model(x)
        assert torch.equal(x, 2 * images())
        assert torch.equal(y, by_modules(model, images()))
    assert program_of(model) is None


@torch.no_grad()
def test_parts_of_a_model_are_linked(launches):
    torch.manual_seed(0)
    plain = tiny_networks.with_statistics(tiny_networks.Branching()).eval()
    model = dscore.torch.quantize(plain, [images()], backend=NAME, error_limit=10)
    for seed in range(3):
        y = model(images(seed=seed))
    assert linked_of(model.body)
    program_of(model.body)._general = refused
    assert torch.equal(model(images(seed=2)), y)


@torch.no_grad()
@pytest.mark.parametrize("inputs", [(0,), ([0],)], ids=["tensor", "list"])
def test_results_in_the_form_of_an_exported_model(inputs, launches):
    """A dictionary; of inputs in a list nothing is linked."""
    model = copy_of()
    *_, last = model.graph.nodes
    last.args = ((last.args[0],),)
    model.graph.set_codegen(graph._PyTreeCodeGen(graph._PyTreeInfo(
        ["x"], tree_structure((inputs, {})), tree_structure({"y": 0}))))
    model.recompile()
    x = images() if inputs == (0,) else [images()]
    for _ in range(4):
        y = model(x)
        assert list(y) == ["y"]
        assert torch.equal(y["y"], by_modules(model, x)["y"])
    program = program_of(model)
    assert program._linked if inputs == (0,) else program is None
