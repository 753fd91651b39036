"""Matrix units of this machine's GPU: how they round sums, and whether that keeps the bound."""

import numpy as np
import pytest
from adverse import ULP, adverse_split

import dscore
from dscore.backends.hip import HipBackend
from dscore.checking import bound
from dscore.checking.rounding import Rounding
from dscore.core.token import parse_problem

HIP = HipBackend()
pytestmark = [
    pytest.mark.skipif(HIP.missing() is not None, reason=str(HIP.missing())),
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
