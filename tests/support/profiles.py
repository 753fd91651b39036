"""The deep profile, HYPOTHESIS_PROFILE=deep: what is marked deep runs in it alone."""

import functools
import os

import pytest

DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
# A parameter that the deep profile alone runs.
deep = functools.partial(pytest.param, marks=pytest.mark.deep)


def examples(count):
    """Number of examples: *count*, by default a quarter, but 10 at least."""
    return count if DEEP else min(count, max(10, count // 4))


def mostly_deep(names, *kept):
    """Parameters of which the default profile runs those *kept*."""
    unknown = {*kept} - {*names}
    assert not unknown, unknown
    return [name if name in kept else deep(name) for name in names]


def some(plans):
    """*plans*; by default the first of each algorithm, operation, element type (of the two of 16
    bits, whose kernels are the same but for the type, one) and layout, and of each number of parts
    that are added later."""
    kinds = {}
    for plan in plans:
        spec = plan.problem.spec
        kind = (plan.tiling.algorithm, plan.problem.operation, spec.element.bytes, spec.layout,
                getattr(plan.tiling, "parts", 1))
        kinds.setdefault(kind, plan)
    return plans if DEEP else [*kinds.values()]


def share(plans, sizes):
    """Plans whose kernels are built for "fixed" or "any" *sizes*: every other; by default `some`.
    """
    return plans[sizes == "fixed"::2] if DEEP else some(plans)
