"""Comparison of dscore with PyTorch: every kernel checked, then timed in turns on the same data."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dscore import ops
from dscore._version import __version__
from dscore.algorithms.registry import running
from dscore.bench import integer_methods, torch_methods
from dscore.bench.methods import (
    Method,
    dscore_method,
    float16_method,
    product_method,
    torch_method,
)
from dscore.bench.rows import Key, Row, append_rows, key_of, read_rows
from dscore.bench.summary import FLOAT16, OURS
from dscore.calling.choice import default_plan, unspilled
from dscore.core.backend import choose_backend, require_accepted
from dscore.core.catalog import NamedProblem
from dscore.core.device import Device
from dscore.core.errors import (
    CompileError,
    DscoreError,
    InfeasibleError,
    LaunchError,
    SpecError,
    UnavailableError,
    require_one_of,
)
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.core.token import problem_token
from dscore.measuring.runner import Arrays, Judging, require_torch, runner_of
from dscore.measuring.timing import device_times, eager_times, set_count
from dscore.ops import compulsory_bytes, parts_instead

CACHES = ("cold", "hot", "eager")
Planner = Callable[[ConvProblem, Device], Plan]
# Every way of PyTorch may hold inputs of its own and outputs, beside those of dscore.
_COPIES_OF_SETS = 2 * len(torch_methods.WAYS)


@dataclass(frozen=True)
class Comparison:
    """What is compared: layers at batches (none: their own), and how.

    *ways* are PyTorch's (none: dscore alone), *caches* some of CACHES (none: what is possible).
    *planner* makes the plans; by default they are those that `dscore.conv` runs: the fastest that
    were tuned here, else those of an untuned machine.
    """

    layers: tuple[NamedProblem, ...]
    batches: tuple[int, ...] = ()
    backend: str = "auto"
    ways: tuple[str, ...] = torch_methods.WAYS
    caches: tuple[str, ...] = ()
    device: Device | None = None
    planner: Planner | None = None
    tf32: bool = False
    seed: int = 0


class Bench:
    """A comparison on this machine.

    Raises UnavailableError where the backend, or PyTorch for its ways, is missing; SpecError for
    what cannot be measured.
    """

    def __init__(self, comparison: Comparison) -> None:
        for cache in comparison.caches:
            require_one_of(cache, "a state of the cache", CACHES)
        self.comparison = comparison
        self.backend = choose_backend(comparison.backend)
        self.device = comparison.device or self.backend.device()
        self.cases = _cases(comparison)
        self.runner = runner_of(self.backend, self.device, bool(comparison.ways))
        self._torch = require_torch(not self.runner.on_host) if comparison.ways else None
        self.caches = comparison.caches or (CACHES if self.runner.calls else ("cold", "hot"))
        if "eager" in self.caches and not self.runner.calls:
            raise UnavailableError("eager calls on a GPU need arrays there, and PyTorch with a "
                                   "GPU is not here; leave eager out: --cache cold,hot")
        with self.runner.exclusive():
            self.floors = self.runner.floors()
        self.title = f"{self.runner.title} ({self.device.name})"
        self.versions = self._versions()
        self._plans: dict[str, Plan | DscoreError] = {}

    def _versions(self) -> str:
        identity = self.backend.identity(self.backend.device().architecture)
        torch = f", torch {self._torch.__version__}" if self._torch and self.runner.on_host else ""
        compiler = f", {identity.compiler}" if self.backend.compiles else ""
        return (f"dscore {__version__} kernels {identity.kernels[:8]}, "
                f"backend {self.backend.name}{compiler}, "
                f"python {platform.python_version()}, {self.runner.versions}{torch}")

    def plan(self, case: NamedProblem) -> Plan | DscoreError:
        """The plan of a case, or why there is none."""
        token = problem_token(case.problem)
        if token not in self._plans:
            planner = self.comparison.planner
            try:
                plan = (planner(case.problem, self.device) if planner else default_plan(
                    case.problem, self.device, self.backend, self.comparison.backend))
                require_accepted(self.backend, plan)
                self._plans[token] = plan
            except InfeasibleError as error:
                self._plans[token] = error
        return self._plans[token]

    def prepare(self, cases: Sequence[NamedProblem]) -> None:
        """Build the kernels of *cases* at once; what does not compile is told by its case.

        Where a kernel spills, its case has the plan that `dscore.conv` takes instead, unless the
        comparison has a planner of its own.
        """
        plans = [plan for case in (*cases, *map(_in_float16, filter(self._has_float16, cases)))
                 if isinstance(plan := self.plan(case), Plan)]
        try:
            self.backend.prepare(plans)
        except CompileError:
            return
        for plan in plans if self.comparison.planner is None else ():
            with suppress(DscoreError):  # which is told by its case
                self._plans[problem_token(plan.problem)] = unspilled(
                    plan, self.backend.compile, lambda kernel: kernel.use.spills, self.backend)[0]

    def missing(self, cases: Sequence[NamedProblem], done: dict[Key, Row]) -> list[NamedProblem]:
        """The cases of which any row is not among *done*, as all rows of a case are timed together.

        A kernel that was not built or did not start is tried again.
        """
        def settled(key: Key) -> bool:
            return key in done and not (done[key].method == OURS
                                        and done[key].fault in ("not compiled", "not run"))

        return [case for case in cases if not all(map(settled, self.keys(case)))]

    def keys(self, case: NamedProblem) -> list[Key]:
        """The keys of the rows that a case has."""
        plan, token = self.plan(case), problem_token(case.problem)
        named = {OURS: plan.name if isinstance(plan, Plan) else ""}
        if self._has_float16(case):
            other = self.plan(_in_float16(case))
            named[FLOAT16] = other.name if isinstance(other, Plan) else ""
        return [key_of(case.name, token, method, cache, named.get(method, ""), self.title,
                       self.versions)
                for cache in self.caches for method in (OURS, *self.ways(case))]

    def ways(self, case: NamedProblem) -> list[str]:
        """PyTorch's ways that the comparison names and that can do a case; of int8 its peers."""
        if case.problem.spec.element.exact:
            return integer_methods.integer_ways(case.problem) if self.comparison.ways else []
        return torch_methods.ways_for(case.problem, self.comparison.ways, self.comparison.tf32)

    def _has_float16(self, case: NamedProblem) -> bool:
        return FLOAT16 in self.ways(case)

    def rows(self, case: NamedProblem) -> tuple[Row, ...]:
        """Check and time one case, with the GPU kept from other processes of dscore."""
        with self.runner.exclusive():
            return self._rows(case)

    def _rows(self, case: NamedProblem) -> tuple[Row, ...]:
        runner, problem = self.runner, case.problem
        room = runner.room_bytes / _COPIES_OF_SETS
        count = set_count(compulsory_bytes(problem), runner.cache_bytes, int(room),
                          runner.most_sets) if "cold" in self.caches else 1
        try:
            sets = runner.sets(problem, count, self.comparison.seed)
            if problem.spec.element.exact:
                for arrays in sets:
                    integer_methods.give_whole_range(arrays)
            methods = self._methods(case, sets)
            for cache in self.caches:
                self._time(cache, [method for method in methods if not method.fault], sets)
        except RuntimeError as failed:  # of PyTorch, after a kernel or for want of memory
            raise LaunchError(f"{case.name} ({problem_token(problem)}): {failed}") from failed
        finally:
            runner.release()
        return tuple(self._row(case, method, cache) for cache in self.caches
                     for method in methods)

    def _methods(self, case: NamedProblem, sets: list[Arrays]) -> list[Method]:
        plan, runner = self.plan(case), self.runner
        judge = runner.judge_of(case.problem, sets[0])
        if isinstance(plan, Plan):
            first = dscore_method(runner, self.backend, plan, sets[0], self._options(plan)
                                  if "eager" in self.caches else None, judge)
        else:
            first = Method(OURS).failed(plan)
        return [first, *(self._peer(way, case, sets, judge) for way in self.ways(case))]

    def _peer(self, way: str, case: NamedProblem, sets: list[Arrays], judge: Judging) -> Method:
        runner, problem = self.runner, case.problem
        if way == FLOAT16:
            plan = self.plan(_in_float16(case))
            if not isinstance(plan, Plan):
                return Method(way).failed(plan)
            return float16_method(runner, self.backend, plan, runner.sets(
                plan.problem, len(sets), self.comparison.seed), self._options(plan))
        if problem.spec.element.exact:
            return product_method(runner, self._torch, way, problem, sets[0])
        return torch_method(runner, self._torch, way, problem, sets[0], judge)

    def _options(self, plan: Plan) -> dict[str, Any]:
        """Options of `dscore.conv` that name the plan, where it would choose another one."""
        own = self.comparison.planner is None and self.device == self.backend.device()
        return {"backend": self.comparison.backend, **({} if own else {"plan": plan})}

    def _time(self, cache: str, methods: list[Method], sets: list[Arrays]) -> None:
        clock, effort = self.runner.clock, self.runner.effort
        if cache == "eager":
            calls = [method.call(sets[0]) for method in methods if method.call]
            timings = eager_times(clock, calls, effort)
        else:
            used = sets if cache == "cold" else sets[:1]
            subjects = [method.kernel(used) for method in methods if method.kernel]
            timings = device_times(clock, subjects, len(used), effort)
        for method, timing in zip(methods, timings, strict=True):
            method.timings[cache] = timing

    def _row(self, case: NamedProblem, method: Method, cache: str) -> Row:
        problem, timing = case.problem, method.timings.get(cache)
        flops, operation = ops.flops(problem), problem.operation.replace("_", " ")
        kind = problem.spec.kind + f" {operation}" * (problem.operation != "conv")
        floor = self.floors.seconds(compulsory_bytes(problem), flops, problem.spec.dtype)
        median, low, high = (None, None, None) if timing is None else (
            timing.median * 1e6, *(quartile * 1e6 for quartile in timing.quartiles))
        return Row(kind, case.name, problem.batch, method.name, cache, median, low,
                   high, compulsory_bytes(problem), flops, floor * 1e6, not method.fault,
                   method.share, timing.policy if timing else "", timing.sets if timing else 0,
                   timing.launches if timing else 0, len(timing.samples) if timing else 0,
                   method.fault, method.note, problem_token(problem), method.plan, self.title,
                   self.versions)


def _in_float16(case: NamedProblem) -> NamedProblem:
    return replace(case, problem=integer_methods.in_float16(case.problem))


def _cases(comparison: Comparison) -> list[NamedProblem]:
    """Every layer at every batch, none of them twice."""
    cases = [layer if batch is None else replace(layer, problem=layer.problem.with_batch(batch))
             for batch in comparison.batches or (None,) for layer in comparison.layers]
    for case in cases:
        spec = case.problem.spec
        known = torch_methods.OPERATIONS
        if comparison.ways and case.problem.operation not in known:
            raise SpecError(f"{case.name}: PyTorch has {', '.join(known)} to compare with, not "
                            f"{case.problem.operation}; leave PyTorch out: --peer none")
        if not running(case.problem):
            raise SpecError(f"{case.name}: no algorithm runs {spec.kind} layers in {spec.dtype} "
                            f"and {spec.layout}" + parts_instead(case.problem))
    return list(dict.fromkeys(cases))


def bench(comparison: Comparison, out: Path | None = None,
          begin: Callable[[str], object] = lambda what: None) -> list[Row]:
    """Every row of a comparison, in order; `dscore.bench.summary` sums them up.

    Rows are kept in the CSV file *out* as they are measured; a case whose rows it holds is not
    measured again. *begin* is called with a word on each case.

    >>> from dscore.core.catalog import find
    >>> rows = bench(Comparison(tuple(find("n1c4h5w5_o8k1")), backend="reference", ways=(),
    ...                         caches=("hot",)))
    >>> [(row.method, row.cache, row.correct) for row in rows]
    [('dscore', 'hot', True)]
    """
    run = Bench(comparison)
    done = read_rows(out) if out is not None else {}
    measure(run, done, out, begin)
    return [done[key] for case in run.cases for key in run.keys(case)]


def measure(run: Bench, done: dict[Key, Row], out: Path | None,
            begin: Callable[[str], object]) -> None:
    """Add to *done*, and to the file, the rows that are missing."""
    cases = run.missing(run.cases, done)
    run.prepare(cases)
    for case in cases:
        begin(f"{case.name} batch {case.problem.batch}")
        rows = run.rows(case)
        done.update({row.key: row for row in rows})
        if out is not None:
            append_rows(out, rows)
