"""Plans assigned to problems for a while, as whoever tunes a whole network tries them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from dscore.calling import choice, gates, means
from dscore.calling.call_cache import CALLS
from dscore.calling.kernels import solved_kernel
from dscore.core.plan import Plan


@contextmanager
def assigned(plans: Mapping[str, Plan]) -> Iterator[choice.Assignment]:
    """Context in which calls take these *plans*, by the tokens of their problems, in place of those
    that they would choose. What it yields has the latter, of all problems that are asked for.

    Calls in inference are prepared anew, in the context and after it; what was linked or captured
    before stays as it was. It holds for all threads of the process, and is for one at a time.

    >>> from dscore import plan_for
    >>> from dscore.core.backend import backend
    >>> plan = plan_for("n1c8h4w4_o8k1", "z100sm")
    >>> with assigned({}) as assignment:
    ...     _ = choice.default_plan(plan.problem, plan.device, backend("reference"), "reference")
    >>> assignment.defaults == {"n1c8h4w4_o8k1": plan}
    True
    """
    assignment = choice.Assignment(plans)
    choice.ASSIGNMENTS.append(assignment)
    forget_calls()
    try:
        yield assignment
    finally:
        choice.ASSIGNMENTS.remove(assignment)
        forget_calls()


def forget_calls() -> None:
    """Forget the plans of all calls in inference, so that they are chosen anew."""
    for forget in (CALLS.clear, gates.forget, means.forget, solved_kernel.cache_clear):
        forget()
