"""Weight gradients of first layers: what is refused is refused by name, networks' first layers are
served by blocks that fill the device, and other devices have the definition."""

import numpy as np
import pytest

from dscore.algorithms.registry import algorithm, running
from dscore.algorithms.stem_sums.tiling import shape_of
from dscore.algorithms.tap_sums import MOST_SLICES
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving.solver import best_plan, solve

H200 = catalog.device("h200")


def of(token):
    return parse_problem(f"weight_gradient_{token}")


@pytest.mark.parametrize(("token", "code"), [
    ("n1c5h9w9_o16k3_float16_nhwc", "E-CHANNELS"), ("n1c3h9w9_o12k3_float16_nhwc", "E-VECTOR"),
    ("n1c3h9w9_o16k1_float16_nhwc", "E-KIND"), ("n1c4h9w9_o16k3g2_float16_nhwc", "E-KIND"),
    ("n1c3h9w9_o16k1x9_float16_nhwc", "E-TAPS"), ("n1c3h9w9_o16k3_nhwc", "E-DTYPE"),
    ("n1c3h9w9_o16k3_float16", "E-LAYOUT"), ("n1c3h9w9_o16k3d2_float16_nhwc", "E-DILATION")])
def test_other_layers_are_refused_by_name(token, code):
    assert code in [one.code for one in algorithm("stem_sums").refuses(of(token))]


@pytest.mark.parametrize("token", ["n128c3h224w224_o32k3s2p1_float16_nhwc",
                                   "n32c3h224w224_o64k7s2p3_bfloat16_nhwc",
                                   "n128c3h32w32_o64k3p1_float16_nhwc",
                                   "n32c3h224w224_o96k4s4_float16_nhwc"])
def test_first_layers_of_networks_are_served(token):
    problem = of(token)
    assert best_plan(problem, H200).tiling.algorithm == "stem_sums"
    space = solve(problem, H200, algorithm="stem_sums")
    t, shape = space.case.tiling, shape_of(problem, space.case.tiling)
    assert np.all(t.slices <= MOST_SLICES)
    assert np.all((t.slices - 1) * shape.unit_slices < shape.units)  # none without a tile
    assert np.max(shape.channel_tiles * t.slices) > 0.9 * H200.compute_units


def test_other_devices_have_the_definition_alone():
    problem = of("n128c3h224w224_o32k3s2p1_float16_nhwc")
    assert best_plan(problem, catalog.device("z100sm")).tiling.algorithm == "direct"
    assert [one.name for one in running(problem)] == ["stem_sums", "direct"]
