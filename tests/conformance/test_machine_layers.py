"""Layers of the papers on gfx906 machine code, as `dscore build --target gfx906` makes it.

Of each launch some blocks run: first, last, at the edges of the image, random ones. Compilers take
most of the time, so that the smallest layer of each filter and stride runs; in the deep profile
(HYPOTHESIS_PROFILE=deep) all 75, with three tilings each and all blocks of the first.
"""

import pytest
from profiles import DEEP
from sampled_blocks import blocks_of, check_blocks, sample

import dscore
from dscore.backends.machine_code.backend import Gfx906Backend
from dscore.checking import bound
from dscore.core import catalog

MISSING = Gfx906Backend().missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))



TABLES = [name for name, problem in catalog.layers().items() if problem.spec.kind != "dense"]
SMALLEST = {(problem.spec.kernel, problem.spec.stride): name for name, problem in sorted(
    catalog.layers().items(), key=lambda item: -item[1].macs) if name in TABLES}
LAYERS = TABLES if DEEP else [*SMALLEST.values()]
BLOCKS = 24 if DEEP else 4


def plans_of(name):
    """The solver's first tiling; in the deep profile also those a third and two thirds down."""
    space = dscore.solve(name, "z100sm")
    order = space.ranked()
    places = (0, len(order) // 3, 2 * len(order) // 3) if DEEP else (0,)
    return [space.plan(int(order[at])) for at in dict.fromkeys(places)]


# One test, so that one worker of pytest-xdist builds all kernels, in one go.
@pytest.mark.deep
def test_every_layer_is_within_the_bound():
    plans, interpreter, wrong = {name: plans_of(name) for name in LAYERS}, Gfx906Backend(), []
    assert len(TABLES) == 75
    interpreter.prepare([plan for some in plans.values() for plan in some])
    for name, some in plans.items():
        inputs = bound.sample(some[0].problem, 1)
        wanted = bound.expected(some[0].problem, *inputs)
        for at, plan in enumerate(some):
            every = range(plan.launch.blocks)
            numbers = every if DEEP and at == 0 else sample(plan, BLOCKS)
            assert {*blocks_of(plan).flat} <= {*every}
            assert {0, every[-1]} <= {*numbers}
            accuracy = check_blocks(interpreter.compile(plan), numbers, inputs, wanted)
            wrong += [] if accuracy.ok else [f"{name}: {plan.name}: {accuracy}"]
    assert wrong == []
