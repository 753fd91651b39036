"""Means over pixels by one kernel, on emulated GPUs; and their exact result."""

import numpy as np
import pytest
from emulated_gpus import Tensor, emulated_gpus
from profiles import deep, mostly_deep

import dscore
from dscore.algorithms.direct import DirectTiling
from dscore.backends.emulated import EmulatedBackend
from dscore.calling.means import integer_operands, mean_call, mean_problem
from dscore.checking import bound
from dscore.checking.check import check_plan
from dscore.core.backend import backend
from dscore.core.errors import InfeasibleError, SpecError
from dscore.core.token import parse_problem, problem_token

MISSING = EmulatedBackend().missing()
needs_host = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
TILINGS = [None, dict(threads=128, thread_c=4)]
TOKENS = ["mean_n2c13h5w7_o13k1_float16_nhwc", "mean_n1c48h9w11_o48k1_nhwc",
          "mean_n2c6h5w7_o6k1_bfloat16", "mean_n3c9h20w20_o9k1"]


@needs_host
@pytest.mark.parametrize("device", [deep("z100sm"), "h200"])
@pytest.mark.parametrize("tiling", [deep(TILINGS[0]), TILINGS[1]])
@pytest.mark.parametrize("token", TOKENS)
def test_kernels_and_reference_are_within_the_bound(token, tiling, device):
    plan = dscore.plan_for(token, device, tiling=tiling)
    results = []
    for name in ("reference", "emulated"):
        accuracy = check_plan(backend(name), plan, 1)
        assert accuracy.ok, f"{name}: {accuracy}"
        results.append(accuracy.got)
    assert results[0] == results[1]  # the order of additions is one


def test_the_exact_result_is_numpy_s_mean_and_another_is_wrong():
    problem = mean_problem((2, 3, 5, 7), "float32", "nhwc")
    assert parse_problem(problem_token(problem)) == problem
    [x] = bound.sample(problem, 0)
    wanted, mean = bound.expected(problem, x), x.astype("f8").mean((1, 2))
    assert np.allclose(wanted.y, mean, atol=1e-15)
    assert bound.compare(mean.astype("f4"), wanted).ok
    left_out = (mean * 35 - x[:, 4, 6]) / 35  # the last pixel
    for wrong in (left_out, mean * 35 / 34, mean.astype("f2"), mean[::-1]):
        assert not bound.compare(wrong, wanted).ok


@needs_host
def test_arrays_on_a_gpu(monkeypatch):
    x = np.random.default_rng(0).standard_normal((2, 24, 6, 6)).astype("f4")
    with emulated_gpus(monkeypatch):
        for keep in (False, True):
            call = mean_call(Tensor(x), keep, "gpu")
            assert call is mean_call(Tensor(x + 1), keep, "gpu")
            y = call(Tensor(x), None).array
            assert y.shape == ((2, 24, 1, 1) if keep else (2, 24))
            assert np.allclose(y.reshape(2, 24), x.mean((2, 3)), atol=1e-6)
    assert mean_call(x, True) is None  # of the host


@pytest.mark.deep
@needs_host
@pytest.mark.parametrize("dtype", ["float32", deep("float16")])
@pytest.mark.parametrize("shape", mostly_deep(
    [(2, 24, 6, 6), (1, 13, 1, 1), (2, 3, 5, 7)], (2, 3, 5, 7)))
def test_int8_arrays_on_a_gpu(shape, dtype, monkeypatch):
    x = np.random.default_rng(0).integers(-128, 128, shape, np.int8)
    pixels = shape[2] * shape[3]
    sums = (x.astype(np.int64) + 7).sum((2, 3)).astype(np.float32)
    wanted = (sums * np.float32(0.3 * (1 / pixels))).astype(dtype)
    with emulated_gpus(monkeypatch):
        for last in (False, True):
            lies = np.moveaxis(np.moveaxis(x, 1, -1).copy(), -1, 1) if last else x
            further = integer_operands(Tensor(lies), 0.3, -7)
            call = mean_call(Tensor(lies), True, "gpu", further, dtype)
            y = call(Tensor(lies), *further, None).array
            assert y.dtype == dtype
            assert np.array_equal(y, wanted[:, :, None, None])
        assert mean_call(Tensor(x), True, "gpu", further, "float32") is not mean_call(
            Tensor(x), True, "gpu", further, "float16")


@pytest.mark.parametrize(("scale", "zero_point", "message"), [
    (0.0, 0, "x_scale must be a positive"), (1.0, 128, "x_zero_point must be an integer"),
    (1e-38, 0, "must be a normal float32")])
def test_scales_and_zero_points_that_int8_does_not_have_are_refused(scale, zero_point, message):
    with pytest.raises(SpecError, match=message):
        integer_operands(np.zeros((1, 2, 3, 3), np.int8), scale, zero_point)


@pytest.mark.parametrize(("shape", "dtype", "layout"), [
    ((32, 32, 112, 112), "float32", "nchw"), ((1, 1152, 7, 7), "float32", "nchw"),
    ((32, 32, 112, 112), "float16", "nhwc"), ((1, 1152, 7, 7), "float16", "nhwc"),
    ((1, 3, 1, 1), "float32", "nhwc"), ((1, 5, 900, 900), "float32", "nchw")])
@pytest.mark.parametrize("device", ["h200", "z100sm"])
def test_the_one_tiling_that_is_tried_fits(shape, dtype, layout, device):
    plan = dscore.plan_for(mean_problem(shape, dtype, layout), device)
    assert isinstance(plan.tiling, DirectTiling)
    assert plan.launch.blocks * plan.tiling.thread_c >= shape[0]
    if layout == "nchw" and shape[0] > 1:  # enough blocks for all of the device
        assert plan.launch.blocks >= plan.device.compute_units


def test_what_is_no_such_layer_is_refused():
    for token in ("mean_n1c4h5w5_o8k1", "mean_n1c4h5w5_o4k3", "mean_n1c4h5w5_o4k1_int8"):
        with pytest.raises(InfeasibleError, match="layer of mean"):
            dscore.plan_for(token, "z100sm")
    with pytest.raises(InfeasibleError, match="beside vectors"):
        dscore.plan_for("mean_n1c40h5w5_o40k1_nhwc", "z100sm",
                        tiling=dict(threads=64, thread_c=3))
