"""What takes part in a comparison: dscore's kernel and PyTorch's ways, each checked first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dscore import api
from dscore.bench import torch_methods
from dscore.bench.summary import OURS
from dscore.checking.bound import Accuracy
from dscore.core.backend import Backend
from dscore.core.errors import (
    CompileError,
    DscoreError,
    InfeasibleError,
    LaunchError,
    SpecError,
    UnavailableError,
)
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.measuring import runner
from dscore.measuring.timing import Subject, Timing

_FAULTS = {InfeasibleError: "infeasible", CompileError: "not compiled", LaunchError: "not run"}


@dataclass
class Entrant:
    """A method that takes part in a case, or, by its *fault*, why it does not."""

    method: str
    plan: str = ""
    kernel: Callable[[Sequence[runner.Arrays]], Subject] | None = None
    call: Callable[[runner.Arrays], Subject] | None = None  # as a user calls
    share: float | None = None  # of the bound
    fault: str = ""
    note: str = ""
    timings: dict[str, Timing] = field(default_factory=dict)

    def failed(self, error: Exception) -> Entrant:
        """Keep out, for *error*."""
        unknown = "wrong" if isinstance(error, DscoreError) else "not run"
        self.fault = next((said for kind, said in _FAULTS.items() if isinstance(error, kind)),
                          unknown)
        self.note = str(error)
        return self

    def judged(self, verdict: Accuracy) -> None:
        """Keep the worst verdict; what is wrong is never timed."""
        if self.share is None or not verdict.share <= self.share:
            self.share = verdict.share
        if not verdict.ok:
            self.fault, self.note = "wrong", str(verdict)


def ours(ground: runner.Ground, chosen: Backend, plan: Plan, arrays: runner.Arrays,
         options: dict[str, Any] | None) -> Entrant:
    """dscore's kernel of *plan*, checked; and `dscore.conv`, where *options* for it are given."""
    one = Entrant(OURS, plan.name, lambda sets: ground.subject(chosen, plan, sets),
                  lambda given: _Conv(plan.problem, given, options or {}))
    try:
        one.judged(runner.check(ground, chosen, plan, arrays))
        if options is not None and not one.fault:
            y = _Conv(plan.problem, arrays, options).launch(0, 0)
            ground.engine.synchronize()
            one.judged(ground.judge(plan.problem, arrays, y))
    except (SpecError, UnavailableError):
        raise
    except DscoreError as error:
        one.failed(error)
    return one


def theirs(ground: runner.Ground, torch: Any, way: str, problem: ConvProblem,
           arrays: runner.Arrays) -> Entrant:
    """One way of PyTorch, checked."""
    def made(sets: Sequence[runner.Arrays], keep: bool = True) -> torch_methods.TorchSubject:
        return torch_methods.TorchSubject(torch, way, problem, [one[:3] for one in sets], keep)

    one = Entrant(way, "", made, lambda given: made([given], keep=False))
    try:
        subject = made([arrays])
        with subject.settings():
            subject.launch(0, 0)
        ground.engine.synchronize()
        one.judged(ground.judge(problem, arrays, subject.results[0], subject.tf32))
    except RuntimeError as error:
        one.failed(error)
    return one


class _Conv:
    """`dscore.conv` as a user calls it."""

    def __init__(self, problem: ConvProblem, arrays: runner.Arrays,
                 options: dict[str, Any]) -> None:
        self.name, self._arrays = OURS, arrays[:3]
        self._options = {**_written(problem), **options}

    def launch(self, index: int, stream: int) -> Any:
        """Call it; its result."""
        return api.conv(*self._arrays, **self._options)

    @contextmanager
    def settings(self) -> Iterator[None]:
        yield


def _written(problem: ConvProblem) -> dict[str, Any]:
    """The options of `dscore.conv` as one writes them: no defaults, and a number for two alike."""
    spec, (top, bottom, left, right) = problem.spec, problem.padding
    even = (top, left) == (bottom, right)
    said = {"stride": _short(spec.stride), "dilation": _short(spec.dilation),
            "padding": _short((top, left)) if even else ((top, bottom), (left, right)),
            "groups": spec.groups, "activation": spec.activation}
    defaults = {"stride": 1, "dilation": 1, "padding": 0, "groups": 1, "activation": None}
    return {name: value for name, value in said.items() if value != defaults[name]}


def _short(pair: tuple[int, int]) -> int | tuple[int, int]:
    return pair[0] if pair[0] == pair[1] else pair
