"""The kernels on this machine's GPU: right, on every shape, for arrays of every kind."""

import gc

import numpy as np
import pytest
from refusals import needs

import dscore
from dscore.backends.hip import HipBackend
from dscore.calling.arrays import Dlpack
from dscore.checking import bound
from dscore.checking.check import check_plan
from dscore.checking.conformance import conformance
from dscore.core import catalog
from dscore.core.backend import backend
from dscore.core.errors import SpecError, UnavailableError
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan

HIP = HipBackend()
pytestmark = needs(HIP)

LAYERS = [name for name, problem in catalog.layers().items() if problem.spec.kind != "dense"]
PROBLEM = parse_problem("n2c32h29w31_o64k3s2p0x1x1x1g32_bias_relu6")
OPTIONS = dict(stride=2, padding=((0, 1), (1, 1)), groups=32, activation="relu6")
X, W, BIAS = bound.sample(PROBLEM, 0)


def right(y):
    return bound.compare(np.asarray(y), bound.expected(PROBLEM, X, W, BIAS)).ok


def test_a_thousand_random_cases():
    report = conformance("hip_any", examples=1000, seed=11)
    assert report.ok, report.failures
    assert sum(report.examples.values()) == 1000


@pytest.mark.parametrize("batch", [1, 8, 64])
def test_every_layer_of_the_papers_tables(batch):
    device = HIP.device()
    plans = [dscore.plan_for(catalog.layers()[name].with_batch(batch), device) for name in LAYERS]
    HIP.prepare(plans)
    wrong = {plan.name: str(verdict) for plan in plans
             if not (verdict := check_plan(HIP, plan, 1)).ok}
    assert wrong == {}
    assert len(plans) == 75


def test_numpy_arrays_go_there_and_back():
    y = dscore.conv(X, W, BIAS, **OPTIONS)
    assert type(y) is np.ndarray
    assert right(y)
    assert right(dscore.conv(X, W, BIAS, **OPTIONS, backend="hip"))


def test_what_a_kernel_does_not_write_comes_back_as_it_was():
    plan = dscore.plan_for("P44", HIP.device())
    kernel = HipBackend(sizes="any").compile(plan)
    x, w, _ = bound.sample(plan.problem, 0)
    out = np.full(plan.problem.y_shape, np.nan, np.float32)
    kernel.launch = lambda *addresses: None
    kernel(x, w, None, out)
    assert np.isnan(out).all()


def test_seconds_are_of_the_device():
    plan = dscore.plan_for("P2", HIP.device())
    x, w, _ = bound.sample(plan.problem, 0)
    out = np.empty(plan.problem.y_shape, np.float32)
    samples = HIP.compile(plan).seconds(x, w, None, out, repeats=5)
    assert len(samples) == 5
    device = HIP.device()
    floor = device.floor_seconds(0, 2 * plan.problem.macs, device.fp32_flops)
    assert all(floor / 2 < seconds < 1e-2 for seconds in samples)


def test_plans_for_another_wavefront_are_refused():
    here = HIP.device().wavefront
    other = dscore.plan_for("P44", "z100sm" if here == 32 else "h200")
    with pytest.raises(UnavailableError, match="wavefront is"):
        HIP.compile(other)


@pytest.fixture
def torch():
    module = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not module.cuda.is_available():
        pytest.skip("this PyTorch sees no GPU")
    module.backends.cudnn.allow_tf32 = False
    return module


@pytest.fixture
def tensors(torch):
    return tuple(torch.from_numpy(array).cuda() for array in (X, W, BIAS))


def test_torch_tensors_stay_where_they_are(torch, tensors):
    for _ in range(2):
        y = dscore.conv(*tensors, **OPTIONS)
        assert y.device == tensors[0].device
        assert right(y.cpu())
    out = torch.full(PROBLEM.y_shape, float("nan"), device="cuda")
    assert dscore.conv(*tensors, **OPTIONS, out=out) is out
    assert right(out.cpu())


def test_torch_tensors_of_any_layout(torch, tensors):
    x, w, bias = tensors
    for laid_out in (x.contiguous(memory_format=torch.channels_last), x.flip(3).flip(3),
                     x.repeat_interleave(2, dim=3)[..., ::2]):
        assert right(dscore.conv(laid_out, w, bias, **OPTIONS).cpu())


def test_torch_gradients_are_refused(torch, tensors):
    x, w, bias = tensors
    dscore.conv(x, w, bias, **OPTIONS)
    parameter = torch.nn.Parameter(w)
    with pytest.raises(SpecError, match="requires a gradient"):
        dscore.conv(x, parameter, bias, **OPTIONS)
    with torch.no_grad():
        assert right(dscore.conv(x, parameter, bias, **OPTIONS).cpu())


def test_arrays_that_lie_apart_are_refused(torch, tensors):
    x, w, bias = tensors
    with pytest.raises(SpecError, match="x on GPU 0, w on the host"):
        dscore.conv(x, w.cpu(), bias, **OPTIONS)


def test_the_callers_stream_is_used(torch, tensors):
    """A long product runs first on the stream; only a kernel of that stream waits for it."""
    x, w, bias = tensors
    dscore.conv(x, w, bias, **OPTIONS)
    stream = torch.cuda.Stream()
    late, big = torch.zeros_like(x), torch.randn(8192, 8192, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(10):
            big = big @ big * 1e-4
        late.copy_(x)
        y = dscore.conv(late, w, bias, **OPTIONS)
    stream.synchronize()
    assert right(y.cpu())


def test_a_captured_graph_replays_on_new_data(torch, tensors):
    x, w, bias = tensors
    dscore.conv(x, w, bias, **OPTIONS)
    held = torch.zeros_like(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = dscore.conv(held, w, bias, **OPTIONS)
    held.copy_(x)
    graph.replay()
    torch.cuda.synchronize()
    assert right(y.cpu())


@pytest.mark.parametrize(("token", "algorithm"), [
    ("n8c96h14w14_o96k3p1g96", None), ("n1c64h28w28_o64k5p2g64", None), ("n8c96h14w14_o96k1", None),
    ("n8c96h14w14_o96k1_float16_nhwc", "warpgroup_gemm"),
    ("n8c96h14w14_o96k1_float16_nhwc", "gemm_universal"),
    ("n8c96h14w14_o96k1_float16", "plane_gemm"), ("n8c96h14w14_o96k1_float16", "image_gemm"),
    ("n8c96h16w16_o96k1_float16", "pixel_gemm")])
def test_a_kernel_reads_what_the_one_before_wrote(torch, token, algorithm):
    """Launches of a graph, of which each begins early and fetches ahead, where they may."""
    problem, device = parse_problem(token), HIP.device()
    if algorithm is not None and not device.warpgroups:
        pytest.skip(f"{device.name} has no warpgroups, which {algorithm} takes")
    ahead = [tiling for tiling in dscore.solve(problem, device, algorithm=algorithm)
             if getattr(tiling, "ahead", algorithm is not None)]
    plans = [make_plan(problem, device, tiling) for tiling in (
        dscore.plan_for(token, device).tiling, *ahead[::max(len(ahead) // 8, 1)])]
    HIP.prepare(plans)
    _, w, _ = bound.sample(problem, 1)
    w = torch.as_tensor(w / problem.spec.products**0.5, device="cuda")
    first = torch.randn(problem.x_shape, device="cuda", dtype=w.dtype)
    for plan in plans:
        launch = HIP.kernel_on(plan, 0).launch
        apart, together = (chain(torch, launch, w, first, wait) for wait in (True, False))
        assert torch.equal(apart, together), plan.name
        assert together.abs().max() > 0


def chain(torch, launch, w, first, wait, launches=64):
    """The result of launches that each take the one before's, waiting for it or in one graph."""
    held = [first.clone(), torch.full_like(first, float("nan"))]

    def run(stream):
        for number in range(launches):
            x, y = held[number % 2], held[1 - number % 2]
            launch(x.data_ptr(), w.data_ptr(), 0, y.data_ptr(), stream, 0)
            if wait:
                torch.cuda.synchronize()

    if wait:
        run(0)
    else:
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            run(stream.cuda_stream)
        graph.replay()
        torch.cuda.synchronize()
    assert torch.isfinite(held[launches % 2]).all()
    return held[launches % 2]


def test_nothing_waits_for_the_device(torch, tensors):
    """The call returns while a long product is still running before it."""
    dscore.conv(*tensors, **OPTIONS)
    big = torch.randn(16384, 16384, device="cuda")
    torch.cuda.synchronize()
    end = torch.cuda.Event()
    big @ big
    dscore.conv(*tensors, **OPTIONS)
    end.record()
    assert not end.query()
    torch.cuda.synchronize()


def test_every_device_is_used(torch, tensors):
    if torch.cuda.device_count() < 2:
        pytest.skip("this machine has one GPU")
    for index in range(torch.cuda.device_count()):
        moved = [tensor.to(f"cuda:{index}") for tensor in tensors]
        before = torch.cuda.current_device()
        y = dscore.conv(*moved, **OPTIONS)
        assert y.device.index == index
        assert torch.cuda.current_device() == before
        assert right(y.cpu())
    with pytest.raises(SpecError, match="x on GPU 0, w on GPU 1"):
        dscore.conv(tensors[0], tensors[1].to("cuda:1"), tensors[2], **OPTIONS)


def test_cupy_arrays(torch):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    arrays = tuple(cupy.asarray(array) for array in (X, W, BIAS))
    for _ in range(2):
        y = dscore.conv(*arrays, **OPTIONS)
        assert type(y) is cupy.ndarray
        assert right(cupy.asnumpy(y))
    with cupy.cuda.Stream():
        y = dscore.conv(cupy.asfortranarray(arrays[0]), *arrays[1:], **OPTIONS)
        assert right(cupy.asnumpy(y))


def test_other_libraries_are_told_what_to_do():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    x = jax.numpy.asarray(X)
    if Dlpack("jax").index(x) is None:
        pytest.skip("this JAX sees no GPU")
    with pytest.raises(UnavailableError, match=r"pass torch.from_dlpack\(x\)"):
        dscore.conv(x, jax.numpy.asarray(W), jax.numpy.asarray(BIAS), **OPTIONS)


def test_memory_is_given_back(torch, tensors):
    runtime_bytes = torch.cuda.mem_get_info()[0]
    for _ in range(20):
        backend("hip").compile(dscore.plan_for("P44", HIP.device()))
        dscore.conv(X, W, BIAS, **OPTIONS, backend="hip")
    gc.collect()
    assert runtime_bytes - torch.cuda.mem_get_info()[0] < 64 << 20
