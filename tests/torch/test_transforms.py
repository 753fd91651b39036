"""Programs that are traced, compiled or transformed, by the operators of PyTorch's dispatcher."""

import pytest
from profiles import deep

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.library import opcheck  # noqa: E402
from torch.nn import functional  # noqa: E402

import dscore.torch as dt  # noqa: E402

torch.manual_seed(0)
X, W, BIAS = torch.randn(2, 4, 6, 7), torch.randn(6, 2, 3, 3), torch.randn(6)
RESIDUAL, SCALE = torch.randn(2, 6, 3, 4), torch.randn(2, 4)
GRADIENT = torch.randn(2, 6, 3, 4)
LAYER = ((2, 2), (1, 1, 1, 1), (1, 1), 2, "reference", None)
BACKENDS = ("auto", "reference")


def same(ours, expected):
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-3)


def ours(x, w=W, bias=BIAS):
    return dt.conv2d(x, w, bias, 2, 1, 1, 2, activation="silu", backend="reference")


def theirs(x, w=W, bias=BIAS):
    return functional.silu(functional.conv2d(x, w, bias, 2, 1, 1, 2))


def leaves(*tensors):
    return [tensor.clone().requires_grad_() for tensor in tensors]


@pytest.mark.parametrize(("activation", "after"), [(None, False), ("relu", False), ("relu", True),
                                                   ("silu", False)])
@pytest.mark.deep
def test_the_operator_is_as_pytorch_demands(activation, after):
    opcheck(torch.ops.dscore.conv2d.default,
            (*leaves(X, W, BIAS, RESIDUAL, SCALE), activation, after, *LAYER))
    opcheck(torch.ops.dscore.conv2d.default, (X, W, None, None, None, activation, after, *LAYER))


@pytest.mark.deep
def test_the_operators_of_gradients_are_as_pytorch_demands():
    opcheck(torch.ops.dscore.input_gradient.default, (*leaves(GRADIENT, W), X.shape, *LAYER))
    opcheck(torch.ops.dscore.weight_gradient.default, (*leaves(X, GRADIENT), W.shape, *LAYER))


def network(backend):
    torch.manual_seed(3)
    return torch.nn.Sequential(
        dt.Conv2d(4, 8, 3, padding=1, activation="relu", backend=backend),
        dt.DepthwiseConv2d(8, 3, 2, 1, activation="silu", backend=backend),
        torch.nn.BatchNorm2d(8),
        dt.PointwiseConv2d(8, 5, activation="relu6", backend=backend))


@pytest.mark.parametrize(("compiler", "dynamic"), [("eager", False), ("aot_eager", True)])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.deep
def test_a_network_compiles_whole(backend, compiler, dynamic):
    torch._dynamo.reset()
    model = network(backend)
    compiled = torch.compile(model, fullgraph=True, backend=compiler, dynamic=dynamic)
    for size in ((2, 4, 6, 7), (3, 4, 9, 8)):
        x = torch.randn(size)
        parameters, gradients = [*model.parameters()], []
        for one in (compiled, model):
            torch.manual_seed(1)
            gradients.append(torch.autograd.grad(one(x).square().sum(), parameters))
        same(*gradients)
        with torch.no_grad():
            same(compiled(x), model(x))


def test_what_a_compiled_network_leaves_to_pytorch_is_listed_once():
    torch._dynamo.reset()
    dt.left_to_pytorch(reset=True)
    compiled = torch.compile(network("auto").eval(), fullgraph=True, backend="eager")
    for _ in range(3):
        compiled(X)
    assert [(one.layer, one.calls) for one in dt.left_to_pytorch()] == [
        ("4->8 3x3 padding 1,1,1,1", 1), ("8->8 3x3 stride 2x2 padding 1,1,1,1 groups 8", 1),
        ("8->5 1x1", 1)]


@pytest.mark.parametrize("strict", [False, deep(True)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_network_is_exported(backend, strict):
    """For the host it needs no dscore; where dscore computes, it keeps the operator."""
    model = network(backend).eval()
    program = torch.export.export(model, (X,), strict=strict)
    same(program.module()(X), model(X))
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert targets.count("dscore.conv2d.default") == (0 if backend == "auto" else 3)
    assert targets.count("aten.conv2d.default") == (3 if backend == "auto" else 0)


@pytest.mark.filterwarnings("ignore")  # it is deprecated, and takes sizes for constants
def test_a_traced_network_keeps_the_operator():
    model = network("reference").eval()
    traced = torch.jit.trace(model, X)
    assert "dscore::conv2d" in str(traced.inlined_graph)
    x = torch.randn(2, 4, 6, 7)
    same(traced(x), model(x))


def test_dispatch_modes_see_the_operators():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Listed(TorchDispatchMode):
        names = ()

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.names = (*self.names, str(function))
            return function(*args, **(kwargs or {}))

    x, w = leaves(X, W)
    with Listed() as mode:
        ours(x, w).sum().backward()
    for name in ("conv2d", "input_gradient", "weight_gradient"):
        assert f"dscore.{name}.default" in mode.names


def test_tensors_without_memory_have_the_right_shape():
    from torch._subclasses.fake_tensor import FakeTensorMode

    assert dt.conv2d(X.to("meta"), W.to("meta"), None, 2, 1, 1, 2).shape == RESIDUAL.shape
    with FakeTensorMode():
        x, w = torch.empty(2, 4, 6, 7, device="cuda"), torch.empty(6, 2, 3, 3, device="cuda")
        y = dt.conv2d(x, w, None, 2, 1, 1, 2)
        assert (y.shape, y.device.type, y.is_contiguous()) == (RESIDUAL.shape, "cuda", True)


AXES = [((0, None, None), (3, 2, 4, 6, 7), W.shape, BIAS.shape),
        ((1, None, None), (2, 3, 4, 6, 7), W.shape, BIAS.shape),
        ((None, 0, None), X.shape, (3, *W.shape), BIAS.shape),
        ((None, None, 0), X.shape, W.shape, (3, 6)),
        ((0, 1, 0), (3, 2, 4, 6, 7), (6, 3, 2, 3, 3), (3, 6))]


@pytest.mark.parametrize(("axes", "x", "w", "bias"), AXES)
def test_vmap(axes, x, w, bias):
    tensors = torch.randn(x), torch.randn(w), torch.randn(bias)
    same(torch.vmap(ours, axes)(*tensors), torch.vmap(theirs, axes)(*tensors))

    def gradients(function):
        return torch.func.grad(lambda *given: torch.vmap(function, axes)(*given).square().sum(),
                               argnums=(0, 1, 2))(*tensors)

    same(gradients(ours), gradients(theirs))


def test_vmap_of_an_epilogue():
    tensors = (torch.randn(3, 2, 4, 6, 7), torch.randn(3, 2, 6, 3, 4), torch.randn(3, 2, 4))

    def function(backend):
        return lambda x, residual, scale, w: dt.conv2d(
            x, w, None, 2, 1, 1, 2, activation="relu", residual=residual, scale=scale,
            backend=backend)

    for axes, w in (((0, 0, 0, None), W), ((0, 0, 0, 0), torch.randn(3, 6, 2, 3, 3))):
        same(torch.vmap(function("reference"), axes)(*tensors, w),
             torch.vmap(function("auto"), axes)(*tensors, w))


@pytest.mark.parametrize("transform", [
    torch.func.grad, torch.func.jacrev, torch.func.grad_and_value,
    lambda f: torch.vmap(torch.func.grad(f), (None, 0)),
    lambda f: lambda w, x: torch.func.vjp(f, w, x)[1](torch.ones(())),
    lambda f: lambda w, x: torch.func.jvp(f, (w, x), (w, x))],
    ids=["grad", "jacrev", "grad_and_value", "gradients of each sample", "vjp", "jvp"])
def test_transforms_of_torch_func(transform):
    def loss(function):  # of one image, or of a batch
        return lambda w, x: function(x, w).square().sum()

    same(transform(loss(ours))(W, X), transform(loss(theirs))(W, X))


def test_a_hessian():
    x, w = X[:1, :, :3, :3], W[:2]

    def hessian(function):
        return torch.func.hessian(lambda w: function(x, w, None).sum())(w)

    same(hessian(ours), hessian(theirs))


def test_forward_mode_is_left_to_pytorch():
    dt.left_to_pytorch(reset=True)
    same(torch.func.jvp(ours, (X,), (X,)), torch.func.jvp(theirs, (X,), (X,)))
    with torch.autograd.forward_ad.dual_level():
        y = ours(torch.autograd.forward_ad.make_dual(X, X))
        assert torch.autograd.forward_ad.unpack_dual(y).tangent is not None
    assert {one.reason for one in dt.left_to_pytorch()} == {
        "forward-mode derivative (jvp): dscore has none"}


@pytest.mark.parametrize("transform", [
    deep(lambda f: torch.func.grad(lambda x: f(x).square().sum())), torch.vmap,
    deep(lambda f: lambda x: torch.func.jvp(f, (x,), (x,)))], ids=["grad", "vmap", "jvp"])
def test_torch_func_inside_of_torch_compile(transform):
    torch._dynamo.reset()
    x = torch.randn(3, 2, 4, 6, 7) if transform is torch.vmap else X
    dt.left_to_pytorch(reset=True)
    same(torch.compile(transform(ours), fullgraph=True, backend="aot_eager")(x),
         transform(theirs)(x))
    assert dt.left_to_pytorch()


def test_a_batch_of_gradients():
    def gradients(function):
        x, w = leaves(X, W)
        batch = torch.randn(3, 2, 6, 3, 4, generator=torch.Generator().manual_seed(0))
        return torch.autograd.grad(function(x, w), (x, w), batch, is_grads_batched=True)

    same(gradients(ours), gradients(theirs))


def test_recomputation_by_checkpoints():
    from torch.utils.checkpoint import checkpoint

    x, w = leaves(X, W)
    for reentrant in (False, True):
        x.grad = w.grad = None
        checkpoint(ours, x, w, use_reentrant=reentrant).square().sum().backward()
        again, filters = leaves(X, W)
        theirs(again, filters).square().sum().backward()
        same((x.grad, w.grad), (again.grad, filters.grad))
