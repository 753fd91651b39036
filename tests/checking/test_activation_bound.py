"""Bound of silu and sigmoid: attacked by fast instructions at their worst, and by wrong ones."""

import re

import numpy as np
import pytest
from profiles import deep

import dscore
from dscore.backends.emulated import EmulatedBackend
from dscore.backends.reference.backend import ReferenceBackend
from dscore.building.headers import sources
from dscore.checking import bound
from dscore.core.token import parse_problem

U = 2.0**-24
ARGUMENTS = np.concatenate([np.linspace(-130, 130, 40_001), np.linspace(-2, 2, 1_001),
                            -np.logspace(-30, 6, 100), np.logspace(-30, 6, 100)])


def worst(activation, by_exponential, by_reciprocal, log2_e=1.442695):
    """The accuracy where both instructions err by so many last places."""
    s = ARGUMENTS.astype("f4").reshape(1, 1, 1, -1)
    problem = parse_problem(f"n1c1h1w{s.size}_o1k1_{activation}")
    with np.errstate(over="ignore", under="ignore"):
        power = np.exp2((s * -np.float32(log2_e)).astype("f8")) * (1 + 2 * U * by_exponential)
        power = flushed(power)
        gate = flushed(1 / (np.float32(1) + power).astype("f8") * (1 + 2 * U * by_reciprocal))
        y = s * gate if activation == "silu" else gate
    wanted = bound.expected(problem, s, np.ones((1, 1, 1, 1), "f4"))
    return bound.compare(y, wanted)


def test_kernels_have_the_constant():
    text = (sources() / "support/exponentials.hpp").read_text()
    [constant] = re.findall(r"log2_e = (0x1\.[0-9a-f]+p[+-]\d+)f;", text)
    assert float.fromhex(constant) == np.float32(np.log2(np.e))


def flushed(values):
    rounded = values.astype("f4")
    return np.where(np.abs(rounded) < np.float32(2.0**-126), np.float32(0), rounded)


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
@pytest.mark.parametrize("signs", [(1, 1), (1, -1), (-1, 1), (-1, -1)])
def test_the_worst_that_is_stated_is_within_the_bound_and_near(activation, signs):
    accuracy = worst(activation, 2 * signs[0], signs[1])
    assert accuracy.ok, str(accuracy)
    if signs[0] != signs[1]:  # both make the result larger, or less
        assert accuracy.share > 0.2


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_worse_instructions_are_not(activation):
    assert not worst(activation, 16, -8).ok
    assert not worst(activation, 0, 0, 1.4427).ok


@pytest.mark.parametrize("activation", ["silu", deep("sigmoid")])
@pytest.mark.parametrize("name", ["reference", "emulated"])
def test_backends_keep_it(name, activation):
    backend = {"reference": ReferenceBackend, "emulated": EmulatedBackend}[name]()
    if backend.missing():
        pytest.skip(backend.missing())
    x = ARGUMENTS.astype("f4").reshape(1, 1, 1, -1)
    w = np.ones((1, 1, 1, 1), "f4")
    y = dscore.conv(x, w, activation=activation, backend=name)
    problem = parse_problem(f"n1c1h1w{x.size}_o1k1_{activation}")
    accuracy = bound.compare(y, bound.expected(problem, x, w))
    assert accuracy.ok, str(accuracy)
    ends = dscore.conv(np.float32([[[[np.inf, np.nan]]]]), w, activation=activation, backend=name)
    assert np.isnan(ends[0, 0, 0, 1])
    assert ends[0, 0, 0, 0] == (1 if activation == "sigmoid" else np.inf)
