"""Matrix units of this machine's GPU: how they round sums, and whether that keeps the bound."""

import numpy as np
import pytest
from adverse import ULP, adverse_split
from refusals import needs

import dscore
from dscore.backends.hip import HipBackend
from dscore.checking import bound
from dscore.checking.rounding import Rounding
from dscore.core.errors import InfeasibleError
from dscore.core.token import parse_problem

HIP = HipBackend()
pytestmark = [
    needs(HIP),
    pytest.mark.skipif(HIP.missing() is None and "tf32" not in HIP.device().matrix_types,
                       reason="this GPU has no matrix units of TF32")]


def summed(x, w):
    """The sum of the products of *x* and *w*, of 16 channels or more, with its accuracy."""
    problem = parse_problem(f"n1c{x.size}h4w4_o8k1")
    images = np.ascontiguousarray(np.broadcast_to(x[None, :, None, None], problem.x_shape))
    filters = np.ascontiguousarray(np.broadcast_to(w[None, :, None, None], problem.spec.w_shape))
    y = dscore.conv(images, filters, backend="hip", arithmetic="tf32x3")
    wanted = bound.expected(problem, images, filters, rounding=Rounding("tf32x3"))
    return float(y[0, 0, 0, 0]), bound.compare(y, wanted)


@pytest.mark.parametrize("lost", [0.5, 1.0])
@pytest.mark.parametrize("channels", [16, 24, 64, 256])
def test_adverse_operands_keep_the_bound(channels, lost, capsys):
    _, accuracy = summed(*adverse_split(channels, lost))
    with capsys.disabled():
        print(f"\n{channels} channels, {lost} ulp: {accuracy}")
    assert accuracy.ok


def summed_in_16_bits(x, w, dtype):
    """The same for elements of 16 bits, by matrix units."""
    problem = parse_problem(f"n1c{x.size}h4w4_o8k1_{dtype}")
    images, filters = (np.ascontiguousarray(np.broadcast_to(
        one.reshape(shape), whole)).astype(problem.spec.element.numpy) for one, shape, whole in (
            (x, (1, -1, 1, 1), problem.x_shape), (w, (1, -1, 1, 1), problem.spec.w_shape)))
    try:
        y = dscore.conv(images, filters, backend="hip", arithmetic="matrix16")
    except InfeasibleError as absent:
        pytest.skip(f"no kernel multiplies on matrix units here: {absent}")
    wanted = bound.expected(problem, images, filters, rounding=Rounding("matrix16"))
    return float(y[0, 0, 0, 0]), bound.compare(y, wanted)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("count", [64, 1024, 2**15])
def test_sums_of_16_bits_keep_their_bound_where_units_cut_off(dtype, count, capsys):
    # 1 and many products just below its last place in float32; then -1, so that what is left shows.
    x, w = (np.full(count, part) for part in (2.0**-12, 2.0**-11 * (1 - 2.0**-6)))
    x[0] = w[0] = w[-1] = 1
    x[-1] = -1
    y, accuracy = summed_in_16_bits(x, w, dtype)
    with capsys.disabled():
        exact = (count - 2) * 2.0**-23 * (1 - 2.0**-6)
        print(f"\n{dtype}, {count} products: {y / exact:.1%} of what is left is kept; {accuracy}")
    assert accuracy.ok


def test_a_step_loses_no_more_than_a_place_of_float32_for_each_product(capsys):
    # TF32 numbers, whose small parts are zero: 1 and seven times a part of its last place.
    kept = {}
    for places in range(6):
        part = 2.0**-places
        x, w = np.zeros(16, np.float32), np.ones(16, np.float32)
        x[:8] = 1, *[part * ULP] * 7
        y, accuracy = summed(x, w)
        kept[part] = (y - 1) / ULP
        assert accuracy.ok
        assert 0 <= kept[part] <= np.ceil(7 * part)
    with capsys.disabled():
        print("\nof seven parts of a last place are kept:",
              ", ".join(f"7 x {part:g}: {places:g}" for part, places in kept.items()))
