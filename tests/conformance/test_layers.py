"""Every layer of the papers on the emulated device: several tilings, both wavefronts, three orders.

All 75 layers take some twenty minutes, and so run in the deep profile alone
(HYPOTHESIS_PROFILE=deep); the others run one small layer of each kind.
"""

import numpy as np
import pytest
from profiles import deep, mostly_deep

import dscore
from dscore.backends.emulated import EmulatedBackend
from dscore.checking import bound
from dscore.core import catalog

MISSING = EmulatedBackend().missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

TABLES = [name for name, problem in catalog.layers().items() if problem.spec.kind != "dense"]


def plans_of(name, device):
    """The solver's first tiling, and those a third and two thirds down its ranking."""
    space = dscore.solve(name, device)
    order = space.ranked()
    return [space.plan(int(order[at])) for at in (0, len(order) // 3, 2 * len(order) // 3)]


@pytest.mark.parametrize("device", ["z100sm", deep("h200")])
@pytest.mark.parametrize("name", mostly_deep(TABLES, "D30"))
def test_a_layer_in_every_order(name, device, monkeypatch):
    emulated, plans = EmulatedBackend(sizes="fixed"), plans_of(name, device)
    emulated.prepare(plans)
    x, w, bias = bound.sample(plans[0].problem, 1)
    wanted = bound.expected(plans[0].problem, x, w, bias)
    for plan in plans:
        results = []
        for order in ("forward", "reverse", "random"):
            monkeypatch.setenv("DSCORE_LANE_ORDER", order)
            out = np.full(plan.problem.y_shape, np.nan, np.float32)
            emulated.compile(plan)(x, w, bias, out)
            verdict = bound.compare(out, wanted)
            assert verdict.ok, f"{plan.name} {order}: {verdict}"
            results.append(out)
        # One order of additions, whatever the order of the lanes.
        assert np.array_equal(results[0], results[1])
        assert np.array_equal(results[0], results[2])
