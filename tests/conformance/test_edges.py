"""Edges that random cases seldom meet, on the emulated device and on the reference."""

import numpy as np
import pytest
from oracle import within_bound

from dscore.algorithms.direct import DirectTiling
from dscore.algorithms.row_reuse.tiling import RowReuseTiling
from dscore.backends.emulated import EmulatedBackend
from dscore.backends.reference.backend import ReferenceBackend
from dscore.checking import bound
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan

Z100SM = catalog.device("z100sm")
# Two tiles of eight lanes side by side: the last lane of the first takes its overlap from memory.
REUSE = make_plan(parse_problem("n1c2h2w35_o2k1x4g2"), Z100SM,
                  RowReuseTiling(2, 2, 1, 8, 2, column_reuse=True))
ACTIVATED = [make_plan(parse_problem(f"n1c2h3w5_o3k1_{activation}"), Z100SM, DirectTiling(64, 1))
             for activation in ("relu6", "hardswish", "sigmoid", "hardsigmoid")]


@pytest.fixture(scope="module", params=["reference", "emulated"])
def backend(request):
    if request.param == "reference":
        return ReferenceBackend()
    emulated = EmulatedBackend()
    if emulated.missing():
        pytest.skip(str(emulated.missing()))
    emulated.prepare([REUSE, *ACTIVATED])
    return emulated


def test_the_last_lane_of_a_row_loads_its_overlap_itself(backend):
    x, w, _ = bound.sample(REUSE.problem, 0)
    out = np.full(REUSE.problem.y_shape, np.nan, np.float32)
    backend.compile(REUSE)(x, w, None, out)
    within_bound(REUSE.problem, out, x, w)


@pytest.mark.parametrize("plan", ACTIVATED, ids=lambda plan: plan.problem.spec.activation)
def test_no_activation_turns_a_nan_into_a_number(backend, plan):
    x, w, _ = bound.sample(plan.problem, 0)
    x[0, 1, 2, 3] = np.nan
    out = np.zeros(plan.problem.y_shape, np.float32)
    backend.compile(plan)(x, w, None, out)
    nan = np.zeros(out.shape, bool)
    nan[0, :, 2, 3] = True
    assert np.array_equal(np.isnan(out), nan)
