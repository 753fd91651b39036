"""Methods of a comparison: dscore's kernel and PyTorch's ways, each checked before it is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from dscore import api
from dscore.bench import integer_methods, torch_methods
from dscore.bench.rows import NOT_OFFERED
from dscore.bench.summary import FLOAT16, OURS
from dscore.calling import both, gradients
from dscore.calling.pack import PackedFilter
from dscore.checking.bound import Accuracy
from dscore.checking.rounding import rounding_of
from dscore.core.backend import Backend
from dscore.core.errors import DscoreError, LaunchError, SpecError, UnavailableError
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.measuring.runner import Arrays, Judging, Runner, check
from dscore.measuring.timing import Subject, Timing
from dscore.ops import outputs_of, split


@dataclass
class Method:
    """One way to compute a case, or, by its *fault*, why it is not timed."""

    name: str
    plan: str = ""
    kernel: Callable[[Sequence[Arrays]], Subject] | None = None
    call: Callable[[Arrays], Subject] | None = None  # as a user calls
    share: float | None = None  # of the bound
    fault: str = ""
    note: str = ""
    timings: dict[str, Timing] = field(default_factory=dict)

    def failed(self, error: Exception) -> Method:
        """This method, with the fault that *error* is."""
        self.fault = ((error.fault or "wrong") if isinstance(error, DscoreError)
                      else LaunchError.fault)
        self.note = str(error)
        return self

    def judged(self, accuracy: Accuracy) -> None:
        """Keep the worst accuracy; what is wrong is never timed."""
        if self.share is None or not accuracy.share <= self.share:
            self.share = accuracy.share
        if not accuracy.ok:
            self.fault, self.note = "wrong", str(accuracy)


def dscore_method(runner: Runner, backend: Backend, plan: Plan, arrays: Arrays,
                  options: dict[str, Any] | None, judge: Judging) -> Method:
    """dscore's kernel of *plan*, checked; and `dscore.conv`, where *options* for it are given.

    *judge* is of *arrays*, here and in the functions below.
    """
    method = Method(OURS, plan.name, lambda sets: runner.subject(backend, plan, sets),
                    lambda given: _Conv(plan.problem, given, options or {}))
    try:
        method.judged(check(runner, backend, plan, arrays, judge))
        if options is not None and not method.fault:
            y = _Conv(plan.problem, arrays, options).launch(0, 0)
            runner.clock.synchronize()
            results = [y] if len(outputs_of(plan.problem)) == 1 else y
            method.judged(judge(results, rounding_of(plan)))
    except (SpecError, UnavailableError):
        raise
    except DscoreError as error:
        method.failed(error)
    return method


def torch_method(runner: Runner, torch: Any, way: str, problem: ConvProblem,
                 arrays: Arrays, judge: Judging) -> Method:
    """One way of PyTorch, checked."""
    def subject_on(sets: Sequence[Arrays], keep: bool = True) -> torch_methods.TorchSubject:
        inputs = [split(problem, one)[0] for one in sets]
        return torch_methods.TorchSubject(torch, way, problem, inputs, keep)

    method = Method(way, "", subject_on, lambda given: subject_on([given], keep=False))
    try:
        subject = subject_on([arrays])
        with subject.settings():
            subject.launch(0, 0)
        runner.clock.synchronize()
        method.judged(judge(subject.outputs(0), subject.rounding))
    except RuntimeError as error:
        method.failed(error)
    return method


def product_method(runner: Runner, torch: Any, way: str, problem: ConvProblem,
                   arrays: Arrays) -> Method:
    """PyTorch's product of int8 matrices, checked for equality; or why it is not offered."""
    def subject_on(sets: Sequence[Arrays]) -> integer_methods.ProductSubject:
        return integer_methods.ProductSubject(torch, way, problem, sets)

    method = Method(way, "", subject_on, lambda given: subject_on([given]))
    method.note = integer_methods.not_offered(problem, way)
    if method.note:
        method.fault = NOT_OFFERED
        return method
    try:
        subject = subject_on([arrays])
        with subject.settings():
            subject.launch(0, 0)
        runner.clock.synchronize()
        method.judged(subject.accuracy(0))
    except RuntimeError as error:
        method.failed(error)
    return method


def float16_method(runner: Runner, backend: Backend, plan: Plan, sets: Sequence[Arrays],
                   options: dict[str, Any]) -> Method:
    """dscore's float16 kernel of the same layer on *sets* of its own, checked."""
    method = Method(FLOAT16, plan.name,
                    lambda given: runner.subject(backend, plan, sets[:len(given)]),
                    lambda given: _Conv(plan.problem, sets[0], options))
    try:
        method.judged(check(runner, backend, plan, sets[0]))
    except (SpecError, UnavailableError):
        raise
    except DscoreError as error:
        method.failed(error)
    return method


class _Conv:
    """`dscore.conv`, or the function of another operation, as a user calls it."""

    def __init__(self, problem: ConvProblem, arrays: Arrays, options: dict[str, Any]) -> None:
        self.name, self._inputs, spec = OURS, split(problem, arrays)[0], problem.spec
        self._options = {**_written(problem), **options}
        self._call: Callable[..., Any] = api.conv
        if spec.element.exact:
            self._inputs = self._inputs[:3]
            self._options["quantization"] = integer_methods.quantization_of(problem, arrays)
        if spec.filter != "plain":
            x, w, *others = self._inputs
            shape = replace(spec, filter="plain").w_shape
            self._inputs = (x, PackedFilter(w, spec.filter, shape), *others)
        if problem.operation == "input_gradient":
            self._call = gradients.input_gradient
            self._options["size"] = _short((problem.height, problem.width))
        elif problem.operation in ("weight_gradient", "gradients"):
            self._call = both.gradients
            if problem.operation == "weight_gradient":
                self._call = gradients.weight_gradient
                self._options["kernel"] = _short(spec.kernel)
            if spec.widened:
                self._options["out_dtype"] = spec.out_dtype
        elif spec.residual or spec.scaled:
            self._inputs, further = self._inputs[:3], self._inputs[3:]
            names = ["residual"] * (spec.residual is not None) + ["scale"] * spec.scaled
            self._options.update(zip(names, further, strict=True))
            if spec.residual == "after":
                self._options["residual_after"] = True

    def launch(self, index: int, stream: int) -> Any:
        """Call it; its result."""
        return self._call(*self._inputs, **self._options)

    @contextmanager
    def settings(self) -> Iterator[None]:
        yield


def _written(problem: ConvProblem) -> dict[str, Any]:
    """Options of `dscore.conv` as one writes them: no defaults, and a number for two alike."""
    spec, (top, bottom, left, right) = problem.spec, problem.padding
    even = (top, left) == (bottom, right)
    options = {"layout": spec.layout, "stride": _short(spec.stride),
               "dilation": _short(spec.dilation),
               "padding": _short((top, left)) if even else ((top, bottom), (left, right)),
               "groups": spec.groups, "activation": spec.activation,
               "arithmetic": spec.arithmetic}
    defaults = {"layout": "nchw", "stride": 1, "dilation": 1, "padding": 0, "groups": 1,
                "activation": None, "arithmetic": "sum"}
    return {name: value for name, value in options.items() if value != defaults[name]}


def _short(pair: tuple[int, int]) -> int | tuple[int, int]:
    return pair[0] if pair[0] == pair[1] else pair
