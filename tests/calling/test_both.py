"""Both gradients of arrays: the same as one by one, in every form that a caller may take."""

import threading
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import dscore
from dscore.algorithms.registry import running
from dscore.calling import both
from dscore.core.token import parse_problem

TILING = dict(algorithm="channel_sums", vector=2, lanes_c=3, thread_h=4, thread_w=2, lanes_h=1,
              lanes_w=2, slices=2)


def arrays(dtype=np.float32, layout="nhwc", channels=6, outs=6, groups=6, batch=2, kernel=3):
    """x, the output's gradient, w, of stride 2 and padding 1."""
    rng = np.random.default_rng(0)
    x, gradient = ((batch, channels, 9, 8), (batch, outs, 5, 4))
    if layout == "nhwc":
        x, gradient = ((shape[0], *shape[2:], shape[1]) for shape in (x, gradient))
    return [rng.standard_normal(shape).astype(dtype)
            for shape in (x, gradient, (outs, channels // groups, kernel, kernel))]


def one_by_one(x, gradient, w, *options, backend="reference", layout="nhwc", out_dtype=None):
    size = x.shape[1:3] if layout == "nhwc" else x.shape[2:]
    return (dscore.input_gradient(gradient, w, size, *options, backend=backend, layout=layout),
            dscore.weight_gradient(x, gradient, w.shape[2:], *options, backend=backend,
                                   layout=layout, out_dtype=out_dtype))


@pytest.fixture
def kernels(monkeypatch):
    """Whether one kernel made both, call by call."""
    ways, on_host, by_two = [], both._on_host, both.by_two
    monkeypatch.setattr(both, "_on_host", lambda call: ways.append("one") or on_host(call))
    monkeypatch.setattr(both, "by_two", lambda *given: ways.append("two") or by_two(*given))
    return ways


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_the_same_as_one_by_one(dtype, layout, kernels):
    given = arrays(dtype, layout)
    ours = dscore.gradients(*given, 2, 1, 1, 6, layout=layout, backend="reference")
    for one, other in zip(ours, one_by_one(*given, 2, 1, 1, 6, layout=layout), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one.astype(float), other.astype(float), rtol=2e-2, atol=2e-2)
    assert kernels == ["one" if layout == "nhwc" else "two"]


@pytest.mark.parametrize(("channels", "outs", "groups", "kernel"), [
    (6, 12, 6, 3), (6, 4, 1, 3), (6, 4, 2, 3)], ids=["multiplier", "dense", "grouped"])
def test_layers_without_such_a_kernel_have_one_for_each(channels, outs, groups, kernel, kernels):
    given = arrays(channels=channels, outs=outs, groups=groups, kernel=kernel)
    ours = dscore.gradients(*given, 2, 1, 1, groups, layout="nhwc", backend="reference")
    for one, other in zip(ours, one_by_one(*given, 2, 1, 1, groups), strict=True):
        np.testing.assert_array_equal(one, other)
    assert kernels == ["two"]


def test_a_plan_of_the_callers_is_taken():
    given = arrays()
    ours = dscore.gradients(*given, 2, 1, 1, 6, layout="nhwc", backend="reference", plan=TILING)
    for one, other in zip(ours, one_by_one(*given, 2, 1, 1, 6), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    with pytest.raises(dscore.DscoreError, match="E-UNIT"):
        dscore.gradients(*given, 2, 1, 1, 6, layout="nhwc", backend="reference",
                         plan={**TILING, "thread_h": 3})


def test_sums_of_float32():
    given = arrays(np.float16)
    of_x, of_w = dscore.gradients(*given, 2, 1, 1, 6, layout="nhwc", backend="reference",
                                  out_dtype="float32")
    assert (of_x.dtype, of_w.dtype) == (np.float16, np.float32)
    assert not np.array_equal(of_w, of_w.astype(np.float16))
    with pytest.raises(dscore.SpecError, match="out_dtype"):
        dscore.gradients(*given, 2, 1, 1, 6, layout="nhwc", backend="reference", out_dtype="int8")


def test_a_batch_of_none():
    x, gradient, w = arrays()
    of_x, of_w = dscore.gradients(x[:0], gradient[:0], w, 2, 1, 1, 6, layout="nhwc",
                                  backend="reference")
    assert of_x.shape == (0, 9, 8, 6)
    assert not of_w.any()


@pytest.mark.parametrize(("change", "words"), [
    (lambda x, g, w: (x, g, w[:4]), r"w has shape \(4, 1, 3, 3\)"),
    (lambda x, g, w: (x, g, w[0]), "w must have 4 axes"),
    (lambda x, g, w: (x, g[:1], w), r"gradient has shape .*\(2, 5, 4, 6\) .'gradients depthwise"),
    (lambda x, g, w: (x[0], g, w), "x must have 4 axes"),
    (lambda x, g, w: (x, g, w.astype(np.float16)), "must be of one dtype, .* w float16"),
    (lambda x, g, w: (x, None, w), "gradient must be an array .* got NoneType"),
], ids=["few filters", "no filters", "batch", "image", "types", "nothing"])
def test_what_does_not_fit_is_named(change, words):
    with pytest.raises(dscore.SpecError, match=words):
        dscore.gradients(*change(*arrays()), 2, 1, 1, 6, layout="nhwc", backend="reference")


def test_options_are_checked():
    given = arrays()
    for options, words in (({"backend": "none"}, "backend"), ({"layout": "chwn"}, "layout"),
                           ({"arithmetic": "int"}, "arithmetic"), ({"groups": 4}, "groups")):
        with pytest.raises(dscore.SpecError, match=words):
            dscore.gradients(*given, 2, 1, **{"groups": 6, "layout": "nhwc",
                                              "backend": "reference", **options})


def test_one_kernel_is_taken_where_it_is_expected_to_be_faster():
    problem, h200 = parse_problem("gradients_n32c144h56w56_o144k3p1g144_float16_nhwc"), "h200"
    assert both.takes_both(problem, lambda one: dscore.plan_for(one, h200))
    assert not both.takes_both(parse_problem("gradients_n32c16h9w9_o8k1_nhwc"), dscore.plan_for)
    assert [one.name for one in running(problem)] == ["channel_sums"]
    seconds = {"gradients": 3.0, "input_gradient": 1.0, "weight_gradient": 1.0}

    def plan_of(one):
        made = dscore.plan_for(one, h200)
        return replace(made, cost=replace(made.cost, seconds=seconds[one.operation]))

    assert not both.takes_both(problem, plan_of)
    seconds["weight_gradient"] = 2.5
    assert both.takes_both(problem, plan_of)


def test_sixteen_threads_call_for_the_first_time():
    given, results = arrays(channels=7, outs=7, groups=7), []

    def call():
        results.append(dscore.gradients(*given, 2, 1, 1, 7, layout="nhwc", backend="reference"))

    threads = [threading.Thread(target=call) for _ in range(16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(results) == 16
    for of_x, of_w in results:
        np.testing.assert_array_equal(of_x, results[0][0])
        np.testing.assert_array_equal(of_w, results[0][1])
