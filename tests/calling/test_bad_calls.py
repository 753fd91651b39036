"""Values of rarer arguments: of gradients, quantizations and residuals, refused by name as well."""

import re
from fractions import Fraction

import numpy as np
import pytest

import dscore
from dscore.core.errors import SpecError

X, W = np.ones((1, 4, 5, 5), np.float32), np.ones((4, 4, 3, 3), np.float32)
Y = np.ones((1, 4, 3, 3), np.float32)
JUNK = [True, 10**5000, 2.5, float("nan"), "x" * 5000, b"", [[]], {1: 2}, object(), np.ones(3)]


class Two:
    """An integer that is no int, as those of tensors and of other libraries are."""

    def __index__(self):
        return 2


@pytest.mark.parametrize("option", ["size", "stride", "padding", "dilation", "groups", "backend",
                                    "arithmetic", "plan", "out", "layout"])
def test_options_of_a_gradient_are_refused_by_name(option):
    for junk in JUNK:
        with pytest.raises(SpecError) as caught:
            dscore.input_gradient(Y, W, **{"size": 5, option: (junk,)})
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("groups", [np.uint8(128), np.int8(64), Two()])
def test_any_integer_counts_as_the_groups_of_a_gradient(groups):
    """What NumPy's own of 8 bits is multiplied with must not overflow them."""
    number = groups.__index__()
    w, gradient = np.ones((number, 3, 1, 1), np.float32), np.ones((1, number, 2, 2), np.float32)
    assert dscore.input_gradient(gradient, w, 2, groups=groups).shape == (1, 3 * number, 2, 2)
    x = np.ones((1, 3 * number, 2, 2), np.float32)
    assert dscore.weight_gradient(x, gradient, 1, groups=groups).shape == w.shape


def test_a_result_of_no_images_is_written_to_what_can_take_it():
    x, gradient = X[:0], Y[:0]
    out = np.ones((4, 4, 3, 3), np.float32)
    assert dscore.weight_gradient(x, gradient, 3, out=out) is out
    assert not out.any()
    out.flags.writeable = False
    expanded = np.lib.stride_tricks.as_strided(np.ones(1, np.float32), out.shape, (0,) * 4)
    for wrong, said in ((out, "read-only"), (expanded, "overlaps itself"), (out[:2], "has shape")):
        with pytest.raises(SpecError, match=f"out .*{said}"):
            dscore.weight_gradient(x, gradient, 3, out=wrong)


@pytest.mark.parametrize("after", ["before", "yes", 1, None, [], np.ones(2)])
def test_the_side_of_a_residual_is_true_or_false(after):
    with pytest.raises(SpecError, match="residual_after must be one of True, False; got"):
        dscore.conv(X, W, residual=Y, residual_after=after)


def test_the_axis_that_channels_may_be_in_is_named():
    with pytest.raises(SpecError, match=r'the first axis of an image of x has 4: .*layout="nchw"'):
        dscore.conv(X, W, layout="nhwc")
    with pytest.raises(SpecError, match=r'the last axis of x has 4: .*layout="nhwc"'):
        dscore.conv(X.transpose(0, 2, 3, 1), W)


@pytest.mark.parametrize("number", [10**400, True, "1.5", b"1", bytearray(b"1"), None, 1j])
def test_a_number_of_a_quantization_is_no_text_and_finite(number):
    for name in ("x_scale", "w_scale", "y_scale"):
        if (name, number) != ("y_scale", None):
            with pytest.raises(SpecError, match=f"{name} must be a positive, finite number"):
                dscore.Quantization(**{"x_scale": 1.0, "w_scale": 1.0, "y_scale": 1.0,
                                       name: number})
    with pytest.raises(SpecError, match=re.escape("x_zero_point must be an integer from -128")):
        dscore.Quantization(1.0, 1.0, 1.0, x_zero_point=number)


def test_a_number_of_a_quantization_is_of_any_kind():
    q = dscore.Quantization(Fraction(1, 2), np.float16(0.25), np.array(2.0), x_zero_point=Two())
    assert q == dscore.Quantization(0.5, 0.25, 2.0, x_zero_point=2)


class Wayless:
    """A path that does not say which."""

    def __init__(self, stated=None):
        self.stated = stated

    def __fspath__(self):
        if self.stated is None:
            raise RuntimeError("no path")
        return self.stated


@pytest.mark.parametrize("call", [dscore.load, lambda path: dscore.plan_for("n1c4h5w5_o4k3", path)])
def test_a_path_that_states_none_is_refused(call):
    for path in (Wayless(), Wayless(3), Wayless("no\0where.toml"), b"no\0where.toml"):
        with pytest.raises(SpecError):
            call(path)
