"""Means over pixels of int8 in quantised models: by dscore's kernel, and by PyTorch, as equal bits.

The kernel is the reference's, on tensors of the host that are taken for those of a GPU.
"""

import copy

import numpy as np
import pytest
from profiles import deep

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch_gpu import NAME, torch_gpu  # noqa: E402

from dscore.calling.quantization import Quantization  # noqa: E402
from dscore.core.errors import InfeasibleError, SpecError  # noqa: E402
from dscore.torch.quantize_gates import GateMean  # noqa: E402
from dscore.torch.quantize_pooling import MeanOfPixels, mean_problem  # noqa: E402

# Of one pixel, of odd channels, of more than 257 pixels.
SHAPES = [(2, 32, 6, 5), (1, 13, 1, 1), (3, 7, 3, 3), (1, 24, 20, 15)]


@pytest.fixture
def launches(monkeypatch):
    with torch_gpu(monkeypatch) as launches:
        yield launches


def images(shape, seed=0):
    return torch.randint(-128, 128, shape, dtype=torch.int8,
                         generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("last", [False, True])
def test_the_kernel_gives_pytorch_s_bits(shape, dtype, last, launches):
    q = images(shape)
    q = q.contiguous(memory_format=torch.channels_last) if last else q
    for scale, zero_point, keepdim in ((0.0123, 0, True), (3.7, -128, False), (1e-3, 127, True)):
        plain = MeanOfPixels(scale, zero_point, keepdim).to(dtype)
        mean = MeanOfPixels(scale, zero_point, keepdim, NAME).to(dtype)
        wanted, y = plain(q), mean(q)
        assert (y.dtype, y.shape) == (dtype, wanted.shape)
        assert torch.equal(y, wanted)
    assert launches == ["mean"] * 3


@pytest.mark.parametrize("value", [-128, 127])
def test_long_sums(value, launches):
    q = torch.full((1, 3, 40, 50), value, dtype=torch.int8)
    for zero_point in (-128, 127):
        y = MeanOfPixels(0.5, zero_point, backend=NAME)(q)
        assert torch.equal(y, MeanOfPixels(0.5, zero_point)(q))
        assert torch.allclose(y, torch.tensor(0.5 * (value - zero_point)))


def test_multipliers_are_those_of_a_pointwise_layer(launches):
    """Of scales of many digits, the kernel's multiplier is the one that was made before."""
    q = images((1, 4, 7, 3))
    for scale in np.random.default_rng(0).uniform(1e-4, 9, 50):
        mean = MeanOfPixels(float(scale), 5, backend=NAME)
        mean(q)
        [(multiplier, zero_point)] = mean._constants.values()
        assert multiplier.numpy() == Quantization(float(scale), 1.0 / 21).multiplier
        assert zero_point.tolist() == [5]


def test_launches(launches):
    q = images((2, 32, 6, 6)).contiguous(memory_format=torch.channels_last)
    for dtype in (torch.float32, torch.float16):
        mean = MeanOfPixels(0.5, 3, backend=NAME).to(dtype)
        launch, y = mean.launch_of(q), mean(q)
        assert [one if isinstance(one, int) else one.dtype for one in launch.operands] == [
            0, torch.float32, torch.int32]
        new = launch.new()
        assert (new.shape, new.dtype) == (y.shape, dtype)
        assert torch.equal(launch.call(q, *launch.constants, new), y)
        assert mean.launch_of(q[:, :, 1:]) is None  # which is copied
    assert mean.bfloat16().launch_of(q) is None  # which is converted
    assert MeanOfPixels(0.5, 3).launch_of(q) is None  # by PyTorch
    gate = GateMean(0.5, 3, backend=NAME).bfloat16()
    assert gate.launch_of(q).new().dtype is torch.float16


def test_a_scale_that_is_set_anew_is_taken(launches):
    q = images((1, 8, 5, 5))
    mean = MeanOfPixels(0.5, 3, backend=NAME)
    mean(q)
    mean.set_extra_state({"scale": 0.75, "zero_point": -3})
    assert torch.equal(mean(q), MeanOfPixels(0.75, -3)(q))
    assert copy.deepcopy(mean)._constants == {}
    assert torch.equal(copy.deepcopy(mean)(q), mean(q))


@pytest.mark.parametrize("dtype", [deep(torch.float32), torch.float16, deep(torch.bfloat16)])
@pytest.mark.parametrize("backend", [NAME, "auto"])
def test_programs_have_an_operator(dtype, backend, launches):
    q, mean = images((2, 8, 5, 5)), MeanOfPixels(0.5, 3, False, backend).to(dtype)
    y = mean(q)
    launches.clear()
    compiled = torch.compile(mean, fullgraph=True, backend="eager")
    assert torch.equal(compiled(q), y)
    assert launches == ["mean"] * (backend == NAME)
    program = torch.export.export(mean, (q,)).run_decompositions({})
    assert "quantized_mean" in program.graph_module.code
    assert torch.equal(program.module()(q), y)
    constants = 0.5, 3, False, str(dtype).removeprefix("torch."), backend
    torch.library.opcheck(torch.ops.dscore.quantized_mean.default, (q, *constants))


def test_what_is_not_the_kernel_s(launches):
    mean = MeanOfPixels(0.5, 3, backend=NAME)
    assert mean(images((0, 8, 5, 5))).shape == (0, 8, 1, 1)
    with pytest.raises(SpecError, match="MeanOfPixels must be of"):
        mean(images((1, 8, 5, 5)).float())
    with pytest.raises(InfeasibleError, match="whose sum an int32 holds"):
        mean(torch.zeros(1, 1, 2902, 2902, dtype=torch.int8))


def test_backends_of_the_host():
    q = images((2, 8, 5, 5))
    mean = MeanOfPixels(0.5, 3, backend="reference")
    assert torch.equal(mean(q), MeanOfPixels(0.5, 3)(q))
    assert torch.equal(torch.compile(mean, fullgraph=True, backend="eager")(q), mean(q))


def test_problems():
    problem = mean_problem((2, 8, 5, 6), "nhwc", torch.float16)
    assert (problem.operation, problem.x_shape) == ("mean", (2, 5, 6, 8))
    assert (problem.spec.dtype, problem.spec.out_dtype) == ("int8", "float16")
    assert mean_problem((2, 8, 5, 6), "nchw", torch.bfloat16).spec.out_dtype == "float32"
