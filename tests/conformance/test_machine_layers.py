"""Every layer of the papers on gfx906 machine code, as `dscore build --target gfx906` makes it.

Of each launch some blocks run: first, last, at the edges of the image, random ones. In the deep
profile (HYPOTHESIS_PROFILE=deep) three tilings a layer run, of which all blocks of the first.
"""

import os

import pytest
from sampled_blocks import blocks_of, check_blocks, sample

import dscore
from dscore.backends.machine_code.backend import Gfx906Backend
from dscore.checking import bound
from dscore.core import catalog

MISSING = Gfx906Backend().missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
LAYERS = [name for name, problem in catalog.layers().items() if problem.spec.kind != "dense"]
BLOCKS = 24 if DEEP else 4


def plans_of(name):
    """The solver's first tiling, in the deep profile also those a third and two thirds down."""
    space = dscore.solve(name, "z100sm")
    order = space.ranked()
    places = (0, len(order) // 3, 2 * len(order) // 3) if DEEP else (0,)
    return [space.plan(int(order[at])) for at in dict.fromkeys(places)]


@pytest.fixture(scope="module")
def plans():
    return {name: plans_of(name) for name in LAYERS}


@pytest.fixture(scope="module")
def interpreter(plans):
    """The backend with all kernels, which the compiler is called for once."""
    made = Gfx906Backend()
    made.prepare([plan for some in plans.values() for plan in some])
    return made


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_within_the_bound(name, plans, interpreter):
    inputs = bound.sample(plans[name][0].problem, 1)
    wanted = bound.expected(plans[name][0].problem, *inputs)
    for at, plan in enumerate(plans[name]):
        blocks = range(plan.launch.blocks) if DEEP and at == 0 else sample(plan, BLOCKS)
        accuracy = check_blocks(interpreter.compile(plan), blocks, inputs, wanted)
        assert accuracy.ok, f"{plan.name}: {accuracy}"


def test_each_block_has_outputs_and_the_edges_are_among_the_sample(plans):
    assert len(LAYERS) == 75
    for some in plans.values():
        for plan in some:
            owners = blocks_of(plan)
            assert set(owners.flat) <= set(range(plan.launch.blocks))
            assert {0, plan.launch.blocks - 1} <= set(sample(plan, BLOCKS))
