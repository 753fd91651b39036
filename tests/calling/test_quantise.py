"""Quantisation of floats on a GPU by one kernel, on emulated GPUs; and its exact result."""

import numpy as np
import pytest
from emulated_gpus import Tensor, emulated_gpus
from profiles import deep

import dscore
from dscore.backends.emulated import EmulatedBackend
from dscore.calling.quantise import flat_problem, is_step, quantised_flat
from dscore.checking import bound
from dscore.checking.check import check_plan
from dscore.core.backend import backend
from dscore.core.errors import InfeasibleError, SpecError
from dscore.core.token import parse_problem, problem_token

MISSING = EmulatedBackend().missing()
needs_host = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
TILINGS = [dict(threads=64, thread_c=8), dict(threads=128, thread_c=3)]
TOKENS = ["quantise_n2c13h5w7_o13k1_float16_nhwc", "quantise_n1c16h9w11_o16k1_nhwc",
          "quantise_n2c6h5w7_o6k1_bfloat16"]


@needs_host
@pytest.mark.parametrize("tiling", TILINGS)
@pytest.mark.parametrize("token", TOKENS)
def test_kernels_and_reference_are_exact(token, tiling):
    plan = dscore.plan_for(token, "z100sm", tiling=tiling)
    for name in ("reference", "emulated"):
        accuracy = check_plan(backend(name), plan, 1)
        assert accuracy.ok, f"{name}: {accuracy}"
        assert accuracy.arithmetic == "exact"


def test_the_result_is_that_of_the_stated_arithmetic():
    problem = parse_problem("quantise_n1c4h1w3_o4k1_nhwc")
    x = np.float32([0.5, 1.5, 2.5, -0.5, -1.5, 1e9, -1e9, 63.4, 130, -127.6, 0.2, 3e38])
    y = bound.expected(problem, x.reshape(problem.x_shape), np.float32([1]), np.int32([3])).y
    assert y.ravel().tolist() == [3, 5, 5, 3, 1, 127, -128, 66, 127, -125, 3, 127]


@pytest.mark.parametrize("elements", [1, 48, 96 * 7, 3 * 11 * 13, 2**20 + 16, 8209])
def test_any_count_is_an_image_of_vectors(elements):
    problem = flat_problem(elements, "float16")
    assert np.prod(problem.x_shape) == elements
    assert elements % 16 or problem.spec.in_channels == 16
    assert parse_problem(problem_token(problem)) == problem


@needs_host
@pytest.mark.parametrize(("dtype", "layout"), [("float32", "nhwc"), deep("float16", "nchw")])
def test_layers_whose_kernels_take_integers_alone_have_a_step(dtype, layout, monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 8, 6, 5)).astype(dtype)
    w = rng.integers(-99, 99, (8, 1, 3, 3), np.int8)
    q = dscore.Quantization(0.02, 0.01, 0.1, x_zero_point=3)
    x = x if layout == "nchw" else np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    wanted = dscore.conv(x, w, groups=8, padding=1, quantization=q, layout=layout,
                         backend="reference")
    with emulated_gpus(monkeypatch):
        # Of two sizes, so that more than one call is prepared, and again.
        for given in (x, x[:1].copy(), x):
            out = Tensor(np.empty((len(given), *wanted.shape[1:]), np.int8))
            for into in (None, out):
                y = dscore.conv(Tensor(given), Tensor(w), groups=8, padding=1, quantization=q,
                                layout=layout, backend="gpu", out=into)
                assert np.array_equal(y.array, wanted[:len(given)])
            assert y is out
        none = dscore.conv(Tensor(x[:0].copy()), Tensor(w), groups=8, padding=1, quantization=q,
                           layout=layout, backend="gpu")
        assert (none.shape, none.dtype) == ((0, *wanted.shape[1:]), np.int8)


@needs_host
@pytest.mark.parametrize(("token", "device", "step"), [
    ("n1c3h9w8_o8k3_int8_infloat16_nhwc", "h200", False),
    ("n1c3h9w8_o8k3_int8_infloat16_nhwc", "z100sm", True),
    ("n1c8h9w8_o8k1_int8_infloat16", "h200", True)])
def test_where_a_step_of_its_own_is_faster(token, device, step, monkeypatch):
    with emulated_gpus(monkeypatch):
        assert is_step(parse_problem(token), "gpu", ("z100sm", "h200").index(device)) == step
        assert not is_step(parse_problem(token), "reference", 0)


@needs_host
def test_arrays_on_a_gpu_are_quantised(monkeypatch):
    x = np.random.default_rng(0).standard_normal(96 * 5).astype("f4")
    with emulated_gpus(monkeypatch):
        for zero in (0, 9):
            y = quantised_flat(Tensor(x), Tensor(np.float32([40])), Tensor(np.int32([zero])), "gpu")
            steps = np.rint(x * np.float32(40)) + zero
            assert np.array_equal(y.array.ravel(), np.clip(steps, -128, 127))
    with pytest.raises(SpecError, match="lies on the host"):
        quantised_flat(x, np.float32([40]), np.int32([0]))


def test_what_is_no_such_layer_is_refused():
    for token in ("quantise_n1c4h5w5_o8k1", "quantise_n1c4h5w5_o4k3", "quantise_n1c4h5w5_o4k1s2"):
        with pytest.raises(InfeasibleError, match="layer of quantise"):
            dscore.plan_for(token, "z100sm")
