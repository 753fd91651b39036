"""Property-based conformance of a backend: random plans held to the error bound, and shrunk."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, configuration, given, reject, settings
from hypothesis import seed as hypothesis_seed
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy, just, tuples

from dscore.algorithms import registry
from dscore.algorithms.templates import Template
from dscore.checking.cases import ConformanceCase, cases, cases_on, templates
from dscore.checking.check import check_plan, reproduction
from dscore.core import catalog
from dscore.core.backend import Backend, choose_backend, refusals, require_accepted
from dscore.core.device import Device
from dscore.core.errors import SpecError
from dscore.core.plan import Plan

# A backend that compiles draws about this many shapes for each tiling: as many runs of one kernel,
# where sizes are its arguments. An algorithm has so many tilings, at least and at most: more
# kernels would be waited for longer than they find.
_SHAPES_PER_KERNEL = 8
_LEAST_KERNELS, _MOST_KERNELS = 3, 64


class _Enough(BaseException):
    """End of draws. Hypothesis would take an Exception for a failure, and run it again."""


@dataclass(frozen=True)
class Failure:
    """A minimal case that failed, its fault, and the line that runs it again."""

    algorithm: str
    plan: Plan
    seed: int
    message: str
    reproduce: str


@dataclass(frozen=True)
class Report:
    """What a conformance run did: examples by algorithm, failures, seconds."""

    backend: str
    devices: tuple[str, ...]
    seed: int
    examples: dict[str, int]
    failures: tuple[Failure, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether every example passed."""
        return not self.failures


def conformance(backend: str = "auto", examples: int = 200, seed: int = 0,
                devices: Sequence[Device] = (), algorithms: Sequence[str] = (),
                progress: Callable[[], object] = lambda: None, dtype: str | None = None
                ) -> Report:
    """Hold *backend* to the bound on *examples* random cases, shared among *algorithms* (all).

    Cases whose plan the backend refuses are not counted; UnavailableError where it refuses all.

    *devices* are those whose plans are drawn; by default the backend's own and, where it runs
    them, one of wavefront 64 and one of 32. *progress* is called once an example. *dtype* is the
    element type of all cases, of the algorithms that take it; None for any.

    >>> conformance("reference", examples=6).ok
    True
    """
    subject, began = choose_backend(backend), time.perf_counter()
    targets = tuple(devices) or _devices_of(subject)
    names = _names(algorithms, dtype, targets)
    shares = {name: examples // len(names) + (index < examples % len(names))
              for index, name in enumerate(names)}
    counts, failures = dict.fromkeys(names, 0), []
    with _hypothesis_elsewhere():
        drawn = {name: cases(name, targets, _pool(subject, name, share, seed, targets, dtype),
                             dtype)
                 for name, share in shares.items() if share}
        if subject.compiles:
            subject.prepare([plan for name, strategy in drawn.items()
                             for plan in _rehearsed(subject, strategy, shares[name], seed)])
        for name, strategy in drawn.items():
            counts[name], failure = _search(subject, backend, name, strategy, shares[name], seed,
                                            progress)
            failures += [failure] if failure else []
    return Report(subject.name, tuple(device.name for device in targets), seed, counts,
                  tuple(failures), time.perf_counter() - began)


def _names(algorithms: Sequence[str], dtype: str | None, devices: Sequence[Device]
           ) -> tuple[str, ...]:
    """The algorithms to draw cases of; SpecError where one was asked for that lacks the type, or
    suits none of the devices."""
    for name in algorithms:
        if not any(map(registry.algorithm(name).suits, devices)):
            raise SpecError(f"{name} suits none of {', '.join(one.name for one in devices)}")
    names = tuple(algorithms) or tuple(
        name for name in registry.names()
        if any(map(registry.algorithm(name).suits, devices)))
    taking = tuple(name for name in names
                   if dtype is None or dtype in registry.algorithm(name).elements)
    lacking = [name for name in names if name not in taking]
    if not taking or (algorithms and lacking):
        raise SpecError(f"no kernel of {', '.join(lacking)} takes {dtype}; "
                        "leave the algorithm out, or the element type")
    return taking


@contextmanager
def _hypothesis_elsewhere() -> Iterator[None]:
    """Keep what hypothesis notes down out of the folder the user happens to be in."""
    with tempfile.TemporaryDirectory() as folder:
        configuration.set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            configuration.set_hypothesis_home_dir(None)


def _devices_of(backend: Backend) -> tuple[Device, ...]:
    """The backend's device and, for one that runs any device's plans, both wavefront sizes."""
    own = backend.device()
    if backend.any_device:
        return tuple({device.name: device for device in (
            own, catalog.device("z100sm"), catalog.device("h200"))}.values())
    return (own,)


def _search(backend: Backend, backend_name: str, name: str,
            drawn: SearchStrategy[ConformanceCase], examples: int, seed: int,
            progress: Callable[[], object]) -> tuple[int, Failure | None]:
    """Cases run for one algorithm, and the minimal failure if there is one."""
    ran, failed, refused = 0, None, None

    @hypothesis_seed(seed)
    @_settings(examples)
    @given(drawn)
    def holds(case: ConformanceCase) -> None:
        nonlocal ran, failed, refused
        if refusals(backend, case.plan):
            refused = case.plan
            reject()
        if failed is None:
            ran += 1
            progress()
        message = _fault(backend, case)
        if message:
            # Hypothesis runs the minimal case last, so this ends as the minimal one.
            failed = Failure(name, case.plan, case.seed, message,
                             reproduction(backend_name, case.plan, case.seed))
            raise AssertionError(message)

    try:
        holds()
    except AssertionError:
        pass
    except Unsatisfiable:
        if refused is None:
            raise
        require_accepted(backend, refused)
    return ran, failed


def _settings(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None, database=None,
                    print_blob=False, phases=(Phase.generate, Phase.shrink),
                    suppress_health_check=list(HealthCheck), report_multiple_bugs=False)


def _pool(backend: Backend, name: str, examples: int, seed: int,
          devices: tuple[Device, ...], dtype: str | None) -> list[Template]:
    """Templates for all examples of a backend that compiles; none where each may have its own."""
    if not backend.compiles:
        return []
    count = min(max(examples // _SHAPES_PER_KERNEL, _LEAST_KERNELS), _MOST_KERNELS)
    pool: dict[Template, None] = {}

    @hypothesis_seed(seed)
    @_settings(4 * count)
    @given(templates(name, devices, dtype).flatmap(
        lambda template: tuples(just(template), cases_on(template))))
    def collect(drawn: tuple[Template, ConformanceCase]) -> None:
        template, case = drawn
        if not refusals(backend, case.plan):
            pool[template] = None
        if len(pool) == count:
            raise _Enough

    with suppress(_Enough):
        collect()
    return list(pool)


def _rehearsed(backend: Backend, drawn: SearchStrategy[ConformanceCase], examples: int,
               seed: int) -> list[Plan]:
    """Plans of all the examples that hypothesis will draw with this seed, none of which is run.

    Their kernels are then built at once, of which one may serve many plans.
    """
    plans = []

    @hypothesis_seed(seed)
    @_settings(examples)
    @given(drawn)
    def collect(case: ConformanceCase) -> None:
        if refusals(backend, case.plan):
            reject()
        plans.append(case.plan)

    with suppress(Unsatisfiable):  # the run itself says why
        collect()
    return plans


def _fault(backend: Backend, case: ConformanceCase) -> str:
    """What is wrong with one case; empty if nothing."""
    try:
        verdict = check_plan(backend, case.plan, case.seed)
    except Exception as raised:  # whatever a kernel raises is its failure, to be shrunk
        return f"{type(raised).__name__}: {raised}"
    return "" if verdict.ok else str(verdict)
