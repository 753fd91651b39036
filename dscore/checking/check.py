"""One plan run on random data and held to the error bound, in a fenced and poisoned output."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dscore.checking import bound
from dscore.core.backend import Backend
from dscore.core.errors import DscoreError
from dscore.core.plan import Plan

# Elements before and after the output, which no kernel may touch.
_GUARD = 64
_CANARY = np.float32(-12345.678)


def check_plan(chosen: Backend, plan: Plan, seed: int) -> bound.Accuracy:
    """Run *plan* on random data and hold the result to the bound.

    The output is poisoned with NaN, and guarded on both sides.
    Raises DscoreError where the kernel fails, or writes outside its output.
    """
    x, w, bias = bound.sample(plan.problem, seed)
    out, guarded = guarded_output(plan)
    chosen.compile(plan)(x, w, bias, out)
    require_untouched(plan, guarded)
    return bound.compare(out, bound.expected(plan.problem, x, w, bias))


def guarded_output(plan: Plan) -> tuple[NDArray[Any], NDArray[Any]]:
    """An output full of NaN, and the buffer it lies in, which has canaries on both sides."""
    shape = plan.problem.y_shape
    buffer = np.full(int(np.prod(shape)) + 2 * _GUARD, _CANARY, np.float32)
    out = buffer[_GUARD:-_GUARD].reshape(shape)
    out.fill(np.nan)
    return out, buffer


def require_untouched(plan: Plan, buffer: NDArray[Any]) -> None:
    """Raise DscoreError where a canary changed."""
    changed = np.flatnonzero(np.r_[buffer[:_GUARD], buffer[-_GUARD:]] != _CANARY)
    if changed.size:
        raise DscoreError(f"{plan.name} wrote outside its output ({changed.size} elements "
                          "beside it changed)")


def reproduction(backend: str, plan: Plan, seed: int) -> str:
    """The command that runs one case again."""
    fields = ",".join(f"{name}={value}" for name, value in plan.tiling.as_json().items())
    return (f"dscore run {plan.token} --tiling {fields} --device {plan.device.name} "
            f"--seed {seed} --backend {backend}")
