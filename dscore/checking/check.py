"""Check of one plan: a run in a guarded and poisoned output, held to the error bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from dscore.checking import bound
from dscore.checking.rounding import rounding_of
from dscore.core.backend import Backend, Kernel
from dscore.core.errors import DscoreError
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.ops import Operand, outputs_of, parts_of

# Elements on each side of a checked output: as many bytes as keep it aligned for any load, and room
# for some pixels of many channels, which a kernel that takes one row or column too many stores. On
# the host what lies past them is the heap, and the process dies of it anywhere.
GUARD = 4096
_CANARY = -12288.0  # exact in every floating-point type
_INTEGER_CANARY = 85
_Result = TypeVar("_Result")


class Guarded(Protocol):
    """An output full of NaN, or of `Element.poison`, with elements on both sides that no kernel may
    change."""

    out: Any

    def changed(self) -> int:
        """How many elements beside the output were changed."""


class GuardedOutput:
    """A guarded output, in an array that *full* makes of a shape and a value."""

    def __init__(self, output: Operand,
                 full: Callable[[tuple[int, ...], float], Any] | None = None) -> None:
        make = full or partial(np.full, dtype=output.element.numpy)
        self._canary = _INTEGER_CANARY if output.element.exact else _CANARY
        self.buffer = make((output.elements + 2 * GUARD,), self._canary)
        self.out = self.buffer[GUARD:-GUARD].reshape(output.shape)
        self.out[...] = output.element.poison

    def changed(self) -> int:
        """How many elements beside the output were changed."""
        return sum(int((side != self._canary).sum())
                   for side in (self.buffer[:GUARD], self.buffer[-GUARD:]))


def guarded_outputs(problem: ConvProblem) -> list[GuardedOutput]:
    """Guarded outputs for all results of a problem."""
    return [GuardedOutput(output) for output in outputs_of(problem)]


def run_guarded(plan: Plan, guarded: Sequence[Guarded], run: Callable[..., _Result]) -> _Result:
    """The result of *run*, which is given the guarded outputs and runs the kernel of *plan*.

    Raises DscoreError where the kernel changed an element outside its outputs.
    """
    result = run(*(one.out for one in guarded))
    changed = sum(one.changed() for one in guarded)
    if changed:
        raise DscoreError(f"{plan.name} wrote outside its output ({changed} elements beside it "
                          "changed)")
    return result


def check_kernel(plan: Plan, kernel: Kernel, *inputs: Any) -> bound.Accuracy:
    """Accuracy of one guarded run of *kernel* on NumPy arrays, by the bound of its arithmetic.

    Raises DscoreError where the kernel fails, or writes outside its output.
    """
    guarded = guarded_outputs(plan.problem)
    wanted = [bound.expected(part.problem, *part.inputs_of(inputs), rounding=rounding_of(plan))
              for part in parts_of(plan.problem)]
    for one, expected in zip(guarded, wanted, strict=True):
        if np.issubdtype(one.out.dtype, np.integer):  # so that what is not written is wrong
            one.out[...] = ~expected.y.astype(one.out.dtype)
    run_guarded(plan, guarded, lambda *outs: kernel(*inputs, *outs))
    return bound.worst_of(map(bound.compare, (one.out for one in guarded), wanted))


def check_plan(backend: Backend, plan: Plan, seed: int) -> bound.Accuracy:
    """`check_kernel` of *plan* on random data."""
    return check_kernel(plan, backend.compile(plan), *bound.sample(plan.problem, seed))


def reproduction(backend: str, plan: Plan, seed: int) -> str:
    """The command that runs one case again."""
    fields = ",".join(f"{name}={value}" for name, value in plan.tiling.as_json().items())
    return (f"dscore run {plan.token} --tiling {fields} --device {plan.device.name} "
            f"--seed {seed} --backend {backend}")
