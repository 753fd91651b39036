"""Pictures of plans: which wavefront of a block computes what."""

import pytest

import dscore
from dscore.solving.explain import wavefront_map


@pytest.mark.parametrize("token", [
    "n1c96h7w5_o96k3p1g96_nhwc", "n1c96h7w5_o96k3p1g96", "n1c96h7w5_o40k1_float16_nhwc",
    "input_gradient_n1c96h7w5_o96k3s2p1g96_nhwc", "gradients_n1c96h7w5_o96k3s2p1g96_nhwc"])
def test_a_picture_is_of_a_plane_whatever_the_layout(token):
    """In NHWC the last axis is of channels, which are no columns."""
    lines = wavefront_map(dscore.plan_for(token, "h200"))
    assert [len(line) for line in lines] == [5] * 7


@pytest.mark.parametrize("algorithm", ["gemm", "warpgroup_tf32"])
def test_tilings_that_fit_are_counted_of_all_algorithms_that_are_compared(algorithm):
    spaces = {name: dscore.solve("P13", "h200", algorithm=name)
              for name in ("gemm", "warpgroup_tf32")}
    plan = spaces[algorithm].plan(0)
    assert dscore.explain(plan).considered == sum(map(len, spaces.values()))


@pytest.mark.parametrize(("token", "words"), [
    ("gradients_n1c8h5w5_o4k1_nhwc", "channel_sums does not run it .E-KIND: .* take input_gradient "
                                     "and weight_gradient one by one"),
    ("gradients_n1c8h5w5_o8k3g8", "E-LAYOUT: .* take input_gradient and weight_gradient"),
    ("gradients_n1c8h5w5_o16k3g8_nhwc", "E-MULTIPLIER: .* take input_gradient"),
    ("input_gradient_n1c8h5w5_o8k3g8_int8", "has the element type int8; leave that out"),
])
def test_what_no_algorithm_makes_is_refused_with_what_there_is(token, words):
    with pytest.raises(dscore.DscoreError, match=words):
        dscore.plan_for(token, "h200")
