"""Packed filters: their values and layout, calls with them, and what they are refused for."""

from dataclasses import replace

import numpy as np
import pytest
import toy_algorithm

import dscore
from dscore import ops
from dscore.algorithms import registry
from dscore.algorithms.direct import Direct
from dscore.calling import kernels
from dscore.checking import bound
from dscore.checking.rounding import Rounding
from dscore.core import catalog
from dscore.core.errors import InfeasibleError, SpecError
from dscore.core.token import parse_problem, problem_token
from dscore.core.winograd import filter_shape, tile_of, transforms
from dscore.solving import solver

FORMS = ("winograd2", "winograd4")
EXACT = "exact_backend:ExactBackend"
X, W, BIAS = bound.sample(parse_problem("n2c6h9w7_o5k3p1_bias"), 0)


class Taking(Direct):
    permission, operations, filters = "winograd", ("conv",), ("plain", *FORMS)


@pytest.fixture
def taking(monkeypatch):
    """The direct algorithm as one that takes packed filters, for backends that do."""
    monkeypatch.setattr(toy_algorithm, "Candidate", Taking, raising=False)
    registry.register("direct", "toy_algorithm:Candidate")
    yield
    registry.unregister("direct")
    kernels.solved_kernel.cache_clear()
    solver.best_plan.cache_clear()


def transformed(w, m):
    """G w Gᵀ by its definition, in the packed order."""
    g = np.array(transforms(m).G, dtype=np.float64)
    packed = np.zeros(filter_shape(m, *w.shape[:2]))
    for out, channel, a, b in np.ndindex(*w.shape[:2], m + 2, m + 2):
        packed[a * (m + 2) + b, channel // 4, out, channel % 4] = g[a] @ w[out, channel] @ g[b]
    return packed


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("channels", [1, 4, 6])
def test_a_packed_filter_is_the_transformed_one_rounded_once(form, channels):
    w = np.asfortranarray(W[:, :channels])
    packed = dscore.pack(w, form)
    assert (packed.shape, packed.form, packed.dtype) == (w.shape, form, np.float32)
    assert packed.array.flags.c_contiguous
    exact = transformed(w, tile_of(form))
    assert np.all(np.abs(packed.array - exact) <= 2.0**-24 * (1 + 1e-6) * np.abs(exact) + 1e-16)
    assert f"{channels} -> 5 channels packed as {form}" in repr(packed)


def test_a_filter_of_pytorch_is_packed_where_it_lies():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    w = torch.nn.Parameter(torch.from_numpy(W))
    with pytest.raises(SpecError, match="w requires a gradient"):
        dscore.pack(w)
    with torch.no_grad():
        packed = dscore.pack(w)
    assert isinstance(packed.array, torch.Tensor)
    assert packed.array.is_contiguous()
    np.testing.assert_array_max_ulp(packed.array.numpy(), dscore.pack(W).array)


def test_a_filter_of_any_library_is_packed_by_dlpack():
    class Other:
        def __init__(self, array):
            self._array = array
            self.shape, self.dtype = array.shape, f"other.{array.dtype}"
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

        def __array_namespace__(self):
            return np

        def __dlpack__(self, **options):
            return self._array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self._array.__dlpack_device__()

    assert np.array_equal(dscore.pack(Other(W.copy())).array, dscore.pack(W).array)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", [
    dict(padding=1), dict(padding=((0, 1), (2, 0)), activation="relu"),
    dict(padding="same", bias=BIAS)])
def test_a_call_with_a_packed_filter_is_the_convolution(taking, form, options):
    plain = dscore.conv(X, W, backend=EXACT, arithmetic="winograd", **options)
    y = dscore.conv(X, dscore.pack(W, form), backend=EXACT, **options)
    assert np.allclose(y, plain, atol=1e-5)
    single = dscore.conv(X[0], dscore.pack(W, form), backend=EXACT, **options)
    assert np.array_equal(single, y[0])


def test_what_is_packed_is_of_that_moment_and_its_holder_alone(taking):
    w = W.copy()
    packed = dscore.pack(w)
    before = dscore.conv(X, packed, backend=EXACT)
    w[...] *= 2
    assert np.array_equal(dscore.conv(X, packed, backend=EXACT), before)
    assert np.allclose(dscore.conv(X, dscore.pack(w), backend=EXACT), 2 * before, rtol=1e-6)
    packed.array[...] *= 4
    assert np.allclose(dscore.conv(X, packed, backend=EXACT), 4 * before, rtol=1e-6)


def test_the_form_is_part_of_a_problem():
    token = "n1c30h9w9_o64k3p1_bias_winograd4"
    problem = parse_problem(token)
    assert problem_token(problem) == token
    assert (problem.spec.arithmetic, problem.spec.filter) == ("winograd", "winograd4")
    assert problem.permitting("sum") == problem
    assert {one.name: one.shape for one in ops.operands_of(problem)}["w"] == (36, 8, 64, 4)
    with pytest.raises(SpecError, match="a filter of the form winograd4 is for 3x3 layers"):
        parse_problem("n1c30h9w9_o64k3s2_winograd4")
    gradient = replace(parse_problem("n1c8h9w9_o8k3_winograd2"), operation="weight_gradient")
    with pytest.raises(SpecError, match="this layer has a filter of the form winograd2"):
        ops.operands_of(gradient)


@pytest.mark.parametrize("call", [
    lambda: dscore.pack(W, "plain"), lambda: dscore.pack(W[..., :2]), lambda: dscore.pack(W[0]),
    lambda: dscore.pack(W.astype(np.float16)), lambda: dscore.pack([1.0]),
    lambda: dscore.conv(X, dscore.pack(W), stride=2),
    lambda: dscore.conv(X, dscore.pack(W), dilation=2),
    lambda: dscore.conv(X, dscore.pack(W[:4, :3]), groups=2),
    lambda: dscore.conv(X[:, :5], dscore.pack(W)),
    lambda: dscore.conv(X, dscore.pack(W), backend="reference", plan=dict(threads=64, thread_c=1)),
])
def test_what_does_not_fit_is_refused(call):
    with pytest.raises(SpecError, match=r"form|3, 3|float32|array|3x3|channels|E-FILTER"):
        call()


@pytest.mark.parametrize("device", ["z100sm", "mi210", "h200"])
@pytest.mark.parametrize("token", ["n1c8h14w14_o1k3p1", "n1c3h14w14_o16k3p1", "n1c8h3w3_o4k3p1"])
@pytest.mark.parametrize("form", FORMS)
def test_packed_filters_of_few_channels_have_plans(device, token, form):
    """Of few tiles, too: one wavefront has all of them."""
    plan = dscore.plan_for(f"{token}_{form}", device)
    assert plan.tiling.outputs == tile_of(form)
    verdict = dscore.validate(plan.problem, plan.tiling, device)
    assert verdict.ok, str(verdict)


def test_a_packed_filter_of_few_channels_is_convolved():
    w = W[:3]
    for form in FORMS:
        y = dscore.conv(X, dscore.pack(w, form), padding=1, backend="reference")
        assert np.allclose(y, dscore.conv(X, w, padding=1, backend="reference"), atol=1e-4)


def test_a_packed_filter_that_fits_nowhere_says_so_and_what_helps():
    tiny = replace(catalog.device("z100sm"), registers_per_thread=20)
    with pytest.raises(InfeasibleError, match="it has 20 registers") as raised:
        dscore.plan_for("n1c8h14w14_o1k3p1_winograd4", tiny)
    assert "a filter packed as winograd4 is for winograd alone" in str(raised.value)
    assert str(raised.value).endswith("pass w itself")


@pytest.mark.parametrize("name", sorted(registry.names()))
def test_an_algorithm_takes_the_forms_that_it_names(name):
    one = registry.algorithm(name)
    problem = parse_problem("n1c8h9w9_o8k3p1_winograd4")
    refused = one.refuses(problem)
    assert (not refused) == ("winograd4" in one.filters)
    if not one.runs(problem) and refused:
        assert [violation.code for violation in refused] == ["E-FILTER"]


@pytest.mark.parametrize("rounding", [Rounding("winograd4"), Rounding("winograd4_tf32x3")])
def test_the_bound_of_a_packed_filter_has_no_roundings_of_its_transform(rounding):
    problem = parse_problem("n2c6h9w7_o5k3p1_bias_winograd4")
    packed = dscore.pack(W).array
    wanted = bound.expected(problem, X, packed, BIAS, rounding=rounding)
    plain = bound.expected(parse_problem("n2c6h9w7_o5k3p1_bias"), X, W, BIAS, rounding=rounding)
    assert np.all(np.abs(wanted.y - plain.y) <= plain.bound)
    assert np.all(wanted.bound < plain.bound)
    for share, ok in ((0.99, True), (1.01, False)):
        assert bound.compare(wanted.y + share * wanted.bound, wanted).ok == ok
