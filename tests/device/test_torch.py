"""The PyTorch package on this machine's GPU: results and gradients, compiled, captured, trained."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from refusals import needs

from dscore.backends.hip import HipBackend

HIP = HipBackend()
pytestmark = needs(HIP)
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("this PyTorch sees no GPU", allow_module_level=True)

from hypothesis import Phase, given, settings  # noqa: E402
from torch_layers import cases, close, theirs  # noqa: E402

import dscore  # noqa: E402
import dscore.torch as dt  # noqa: E402
from dscore.core import catalog  # noqa: E402

BATCHES = (1, 8)
NAMES = ("D1", "D5", "D13", "D22", "P1", "P13", "P28", "P44")


@pytest.fixture(autouse=True, scope="module")
def _exact_products():
    backends = torch.backends.cudnn, torch.backends.cuda.matmul
    before = [backend.allow_tf32 for backend in backends]
    for backend in backends:
        backend.allow_tf32 = False
    yield
    for backend, allowed in zip(backends, before, strict=True):
        backend.allow_tf32 = allowed


@pytest.fixture(autouse=True)
def _nothing_left():
    dt.left_to_pytorch(reset=True)


def on_gpu(case):
    """The case's tensors on the GPU."""
    case.tensors = {name: one.cuda() for name, one in case.tensors.items()}
    return case


def test_results_and_gradients():
    """Drawn first, so that threads can build the kernels of many cases side by side."""
    drawn = []

    @settings(max_examples=60, phases=[Phase.generate])
    @given(cases())
    def collect(case):
        drawn.append(on_gpu(case))

    def check(case):
        close(case.call(dt.conv2d, backend="hip"), case.call(theirs, torch.float64))

    collect()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(check, drawn))


@pytest.fixture(scope="module")
def _built():
    """The kernels of all layers, compiled side by side."""
    for batch in BATCHES:
        dscore.prepare([f"{prefix}{name}" for name in NAMES
                        for prefix in ("", "input_gradient:", "weight_gradient:")], batch)


@pytest.mark.usefixtures("_built")
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", NAMES)
def test_layers_of_the_papers_tables(name, batch):
    problem = catalog.layers()[name].with_batch(batch)
    spec = problem.spec
    torch.manual_seed(0)
    tensors = {"x": torch.randn(problem.x_shape), "w": torch.randn(spec.w_shape)}
    top, _, left, _ = problem.padding
    layer = dict(stride=spec.stride, padding=(top, left), dilation=spec.dilation,
                 groups=spec.groups)
    ours, exact = ({}, {})
    for function, dtype, result in ((dt.conv2d, torch.float32, ours),
                                    (theirs, torch.float64, exact)):
        x, w = (one.cuda().to(dtype).requires_grad_() for one in tensors.values())
        y = function(x, w, **layer)
        torch.manual_seed(1)
        y.backward(torch.randn(y.shape).cuda().to(dtype))
        result.update(y=y.detach(), x=x.grad, w=w.grad)
    for key, one in ours.items():
        error = (one.double() - exact[key]).norm() / exact[key].norm()
        assert error < 1e-5, key
    assert dt.left_to_pytorch() == []


def network(**options):
    torch.manual_seed(5)
    return torch.nn.Sequential(
        dt.Conv2d(3, 16, 3, 2, 1, bias=False, **options), torch.nn.BatchNorm2d(16),
        dt.DepthwiseConv2d(16, 3, 1, 1, activation="relu6", **options),
        dt.PointwiseConv2d(16, 24, activation="silu", **options), torch.nn.BatchNorm2d(24),
        dt.DepthwiseSeparableConv2d(24, 32, 5, 2, 2, activation="relu", **options),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 10)).cuda()


def curve(model, call=None, steps=20):
    torch.manual_seed(6)
    images, labels = torch.randn(8, 3, 33, 31).cuda(), torch.randint(10, (8,)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy((call or model)(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def by_pytorch(monkeypatch):
    """All of the layers' convolutions by PyTorch's own."""
    monkeypatch.setattr(dt.functional, "reason_for_pytorch", lambda *given: "as a test wants it")


def test_a_loss_curve_is_pytorchs(monkeypatch):
    ours, again = curve(network()), curve(network())
    assert ours == again
    with monkeypatch.context() as patch:
        by_pytorch(patch)
        expected = curve(network())
    assert expected[-1] < expected[0] / 2
    assert ours == pytest.approx(expected, rel=1e-2)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_compiled_network_trains(mode):
    torch._dynamo.reset()
    model = network()
    compiled = torch.compile(model, fullgraph=True, mode=mode)
    assert curve(model, compiled, 5) == pytest.approx(curve(network(), steps=5), rel=1e-2)
    model.eval()
    x = torch.randn(4, 3, 33, 31).cuda()
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)


def test_inference_in_a_captured_graph():
    model, x = network().eval(), torch.randn(4, 3, 33, 31).cuda()
    with torch.inference_mode():
        model(x)
        held, graph = torch.zeros_like(x), torch.cuda.CUDAGraph()
        model(held)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            y = model(held)
        held.copy_(x)
        graph.replay()
        assert torch.equal(y, model(x))


def test_a_training_step_in_a_captured_graph():
    model, x = network(), torch.randn(4, 3, 33, 31).cuda()
    held = torch.zeros_like(x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model.zero_grad(set_to_none=True)
            model(held).square().sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    model.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        model(held).square().sum().backward()
    held.copy_(x)
    graph.replay()
    captured = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad(set_to_none=True)
    model(x).square().sum().backward()
    for one, parameter in zip(captured, model.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad, rtol=1e-4, atol=1e-4)


def test_exported_for_the_gpu_it_keeps_the_operator():
    model, x = network().eval(), torch.randn(4, 3, 33, 31).cuda()
    program = torch.export.export(model, (x,))
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert targets.count("dscore.conv2d.default") == 5
    torch.testing.assert_close(program.module()(x), model(x), rtol=1e-4, atol=1e-4)


def test_what_kernels_do_not_take_is_pytorchs_and_listed():
    x, w = torch.randn(2, 8, 9, 9).cuda().double(), torch.randn(4, 8, 3, 3).cuda().double()
    y = dt.conv2d(x, w, None, 1, 1)
    assert torch.equal(y, torch.nn.functional.conv2d(x, w, None, 1, 1))
    [record] = dt.left_to_pytorch()
    assert record.reason.startswith("dtype float64")


def test_a_remembered_call_is_as_right_as_the_first():
    layer = dt.Conv2d(8, 8, 3, 1, 1, groups=8, activation="relu").cuda()
    torch.manual_seed(0)
    expected = torch.nn.Conv2d.forward(layer, torch.randn(2, 8, 9, 9).cuda())
    for shape in ((2, 8, 9, 9), (2, 8, 9, 9), (1, 8, 9, 9), (2, 8, 9, 9)):
        torch.manual_seed(0)
        x = torch.randn(2, 8, 9, 9).cuda()[:shape[0]]
        with torch.no_grad():
            y = layer(x)
        torch.testing.assert_close(y, torch.relu(expected[:shape[0]]), rtol=1e-4, atol=1e-5)
    with torch.no_grad(), torch.autocast("cuda", torch.float16):
        assert layer(x).dtype is torch.float16
    assert layer(x).requires_grad
    residual, scale = torch.randn(2, 4, 9, 9).cuda(), torch.rand(2, 8, 1, 1).cuda()
    point = dt.PointwiseConv2d(8, 4, activation="relu").cuda()
    with torch.no_grad():
        for _ in range(3):
            y = point(x, residual, scale=scale)
            torch.testing.assert_close(y, torch.relu(torch.nn.Conv2d.forward(
                point, x * scale) + residual), rtol=1e-4, atol=1e-5)
            other = point(x, residual, residual_after=True)
            torch.testing.assert_close(other, torch.relu(torch.nn.Conv2d.forward(
                point, x)) + residual, rtol=1e-4, atol=1e-5)


def test_every_order_of_derivatives_by_operators():
    x, w = torch.randn(2, 8, 9, 9).cuda(), torch.randn(8, 1, 3, 3).cuda()

    def loss(function):
        return lambda w, x: function(x, w, padding=1, groups=8, activation="silu").square().sum()

    for transform in (torch.func.grad, lambda f: torch.vmap(torch.func.grad(f), (None, 0)),
                      lambda f: torch.func.grad(lambda w, x: torch.func.grad(f)(w, x).sum())):
        torch.testing.assert_close(transform(loss(dt.conv2d))(w, x), transform(loss(theirs))(w, x),
                                   rtol=1e-3, atol=1e-3)
