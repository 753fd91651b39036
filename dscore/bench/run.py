"""dscore beside PyTorch: every kernel checked, then timed in turns on the same data."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dscore import api
from dscore._version import __version__
from dscore.bench import torch_methods
from dscore.bench.methods import Entrant, ours, theirs
from dscore.bench.rows import Key, Row, append_rows, key_of, read_rows
from dscore.bench.summary import OURS
from dscore.building.compilers import Kind, find_compiler
from dscore.building.library import sources
from dscore.cache.store import key
from dscore.core.backend import Backend, choose_backend, require_accepted
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
from dscore.core.spec import ConvProblem
from dscore.core.token import problem_token
from dscore.measuring import runner
from dscore.measuring.timing import device_times, eager_times, set_count

CACHES = ("cold", "hot", "eager")
Planner = Callable[[ConvProblem, Device], Plan]
# Every way of PyTorch may hold inputs of its own and outputs, beside those of dscore.
_COPIES_OF_SETS = 2 * len(torch_methods.WAYS)


@dataclass(frozen=True)
class Comparison:
    """What is compared: layers at batches (none: their own), and how.

    *ways* are PyTorch's (none: dscore alone), *caches* some of CACHES (none: what is possible).
    *planner* makes the plans; by default they are those that `dscore.conv` runs.
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

    def __init__(self, asked: Comparison) -> None:
        for cache in asked.caches:
            require_one_of(cache, "a state of the cache", CACHES)
        self.asked = asked
        self.backend = choose_backend(asked.backend)
        self.device = asked.device or self.backend.device()
        self.cases = _cases(asked)
        self.ground = runner.ground_for(self.backend, self.device, bool(asked.ways))
        self._torch = runner.require_torch(not self.ground.on_host) if asked.ways else None
        self.caches = asked.caches or (CACHES if self.ground.calls else ("cold", "hot"))
        if "eager" in self.caches and not self.ground.calls:
            raise UnavailableError("eager calls on a GPU need arrays there, and PyTorch with a "
                                   "GPU is not here; leave eager out: --cache cold,hot")
        with self.ground.alone():
            self.floors = self.ground.floors()
        self.title = f"{self.ground.title} ({self.device.name})"
        self.versions = self._versions()
        self._plans: dict[str, Plan | DscoreError] = {}

    def _versions(self) -> str:
        content = key(*(path.read_bytes() for path in sorted(sources().glob("*.h*"))))[:8]
        torch = f", torch {self._torch.__version__}" if self._torch and self.ground.on_host else ""
        compiler = f", {_compiler(self.backend)}" if self.backend.compiles else ""
        return (f"dscore {__version__} kernels {content}, backend {self.backend.name}{compiler}, "
                f"python {platform.python_version()}, {self.ground.versions}{torch}")

    def plan(self, case: NamedProblem) -> Plan | DscoreError:
        """The plan of a case, or why there is none."""
        token = problem_token(case.problem)
        if token not in self._plans:
            planner = self.asked.planner or api.plan_for
            try:
                made = planner(case.problem, self.device)
                require_accepted(self.backend, made)
                self._plans[token] = made
            except InfeasibleError as nothing:
                self._plans[token] = nothing
        return self._plans[token]

    def prepare(self, cases: Sequence[NamedProblem]) -> None:
        """Build the kernels of *cases* at once; what does not compile is told by its case."""
        plans = [plan for case in cases if isinstance(plan := self.plan(case), Plan)]
        try:
            self.backend.prepare(plans)
        except CompileError:
            return

    def missing(self, cases: Sequence[NamedProblem], done: dict[Key, Row]) -> list[NamedProblem]:
        """The cases of which any row is not among *done*: only a whole one was side by side.

        A kernel that was not built or did not start is given another chance.
        """
        def settled(key: Key) -> bool:
            return key in done and not (done[key].method == OURS
                                        and done[key].fault in ("not compiled", "not run"))

        return [case for case in cases if not all(map(settled, self.keys(case)))]

    def keys(self, case: NamedProblem) -> list[Key]:
        """The keys of the rows that a case has."""
        plan, token = self.plan(case), problem_token(case.problem)
        named = {OURS: plan.name if isinstance(plan, Plan) else ""}
        return [key_of(case.name, token, method, cache, named.get(method, ""), self.title,
                       self.versions)
                for cache in self.caches for method in (OURS, *self.ways(case))]

    def ways(self, case: NamedProblem) -> list[str]:
        """PyTorch's ways that are asked for and can do a case."""
        return torch_methods.ways_for(case.problem, self.asked.ways, self.asked.tf32)

    def rows(self, case: NamedProblem) -> tuple[Row, ...]:
        """Check and time one case, with the GPU kept from other processes of dscore."""
        with self.ground.alone():
            return self._rows(case)

    def _rows(self, case: NamedProblem) -> tuple[Row, ...]:
        ground, problem = self.ground, case.problem
        room = ground.room_bytes / _COPIES_OF_SETS
        count = set_count(problem.compulsory_bytes, ground.cache_bytes, int(room),
                          ground.most_sets) if "cold" in self.caches else 1
        try:
            sets = ground.sets(problem, count, self.asked.seed)
            entrants = self._entrants(case, sets[0])
            for cache in self.caches:
                self._time(cache, [one for one in entrants if not one.fault], sets)
        except RuntimeError as failed:  # of PyTorch, after a kernel or for want of memory
            raise LaunchError(f"{case.name} ({problem_token(problem)}): {failed}") from failed
        finally:
            ground.release()
        return tuple(self._row(case, one, cache) for cache in self.caches
                     for one in entrants)

    def _entrants(self, case: NamedProblem, arrays: runner.Arrays) -> list[Entrant]:
        plan, ground = self.plan(case), self.ground
        if isinstance(plan, Plan):
            first = ours(ground, self.backend, plan, arrays,
                         self._options(plan) if "eager" in self.caches else None)
        else:
            first = Entrant(OURS).failed(plan)
        return [first, *(theirs(ground, self._torch, way, case.problem, arrays)
                         for way in self.ways(case))]

    def _options(self, plan: Plan) -> dict[str, Any]:
        """How `dscore.conv` is told of a plan that it would not choose itself."""
        own = self.asked.planner is None and self.device == self.backend.device()
        return {"backend": self.asked.backend, **({} if own else {"plan": plan})}

    def _time(self, cache: str, entrants: list[Entrant], sets: list[runner.Arrays]) -> None:
        engine, effort = self.ground.engine, self.ground.effort
        if cache == "eager":
            calls = [one.call(sets[0]) for one in entrants if one.call]
            timings = eager_times(engine, calls, effort)
        else:
            used = sets if cache == "cold" else sets[:1]
            subjects = [one.kernel(used) for one in entrants if one.kernel]
            timings = device_times(engine, subjects, len(used), effort)
        for one, timing in zip(entrants, timings, strict=True):
            one.timings[cache] = timing

    def _row(self, case: NamedProblem, one: Entrant, cache: str) -> Row:
        problem, timing = case.problem, one.timings.get(cache)
        flops = 2 * problem.macs
        floor = self.floors.seconds(problem.compulsory_bytes, flops)
        median, low, high = (None, None, None) if timing is None else (
            timing.median * 1e6, *(quartile * 1e6 for quartile in timing.quartiles))
        return Row(problem.spec.kind, case.name, problem.batch, one.method, cache, median, low,
                   high, problem.compulsory_bytes, flops, floor * 1e6, not one.fault, one.share,
                   timing.policy if timing else "", timing.sets if timing else 0,
                   timing.launches if timing else 0, len(timing.samples) if timing else 0,
                   one.fault, one.note, problem_token(problem), one.plan, self.title,
                   self.versions)


def _compiler(chosen: Backend) -> str:
    """The compiler that builds a backend's kernels, without its place."""
    kinds: dict[str, Kind] = {"amd": "hip", "nvidia": "nvcc"}
    found = find_compiler(kinds.get(getattr(chosen, "vendor", ""), "host"))
    return f"{found.kind} {found.version}"


def _cases(asked: Comparison) -> list[NamedProblem]:
    """Every layer at every batch, none of them twice."""
    cases = [layer if batch is None else replace(layer, problem=layer.problem.with_batch(batch))
             for batch in asked.batches or (None,) for layer in asked.layers]
    for case in cases:
        spec = case.problem.spec
        if spec.dtype != "float32" or spec.layout != "nchw":
            raise SpecError(f"{case.name}: float32 layers in NCHW are compared, not {spec.dtype} "
                            f"in {spec.layout}")
    return list(dict.fromkeys(cases))


def bench(asked: Comparison, out: Path | None = None,
          begin: Callable[[str], object] = lambda what: None) -> list[Row]:
    """Every row of a comparison, in order; see `dscore.bench.summary` for what they come to.

    Rows are kept in the CSV file *out* as they are measured; a case whose rows it holds is not
    measured again. *begin* is called with a word on each case.

    >>> from dscore.core.catalog import find
    >>> rows = bench(Comparison(tuple(find("n1c4h5w5_o8k1")), backend="reference", ways=(),
    ...                         caches=("hot",)))
    >>> [(row.method, row.cache, row.correct) for row in rows]
    [('dscore', 'hot', True)]
    """
    run = Bench(asked)
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
