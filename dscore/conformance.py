"""Property-based conformance of a backend: random plans held to the error bound, and shrunk."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed

from . import accuracy, catalog
from .backend import Backend, choose_backend
from .device import Device
from .errors import DscoreError
from .plan import Plan
from .strategies import KINDS, ConformanceCase, cases

# Elements before and after the output, which no kernel may touch.
_GUARD = 64
_CANARY = np.float32(-12345.678)


@dataclass(frozen=True)
class Failure:
    """The minimal case found, what was wrong with it, and the line that runs it again."""

    kind: str
    plan: Plan
    seed: int
    message: str
    reproduce: str


@dataclass(frozen=True)
class Report:
    """What a conformance run did: examples by kind, failures, seconds."""

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


def check_plan(chosen: Backend, plan: Plan, seed: int) -> accuracy.Accuracy:
    """Run *plan* on random data and hold the result to the bound.

    The output is poisoned with NaN, and guarded on both sides.
    Raises DscoreError where the kernel fails, or writes outside its output.
    """
    x, w, bias = accuracy.sample(plan.problem, seed)
    out, guarded = guarded_output(plan)
    chosen.compile(plan)(x, w, bias, out)
    require_untouched(plan, guarded)
    return accuracy.compare(out, accuracy.expected(plan.problem, x, w, bias))


def guarded_output(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """An output full of NaN, and the buffer it lies in, which has canaries on both sides."""
    shape = plan.problem.y_shape
    buffer = np.full(int(np.prod(shape)) + 2 * _GUARD, _CANARY, np.float32)
    out = buffer[_GUARD:-_GUARD].reshape(shape)
    out.fill(np.nan)
    return out, buffer


def require_untouched(plan: Plan, buffer: np.ndarray) -> None:
    """Raise DscoreError where a canary changed."""
    changed = np.flatnonzero(np.r_[buffer[:_GUARD], buffer[-_GUARD:]] != _CANARY)
    if changed.size:
        raise DscoreError(f"{plan.name} wrote {changed.size} elements outside its output")


def reproduction(backend: str, plan: Plan, seed: int) -> str:
    """The command that runs one case again."""
    fields = ",".join(f"{name}={value}" for name, value in plan.tiling.as_dict().items())
    return (f"dscore run {plan.token} --tiling {fields} --device {plan.device.name} "
            f"--seed {seed} --backend {backend}")


def conformance(backend: str = "auto", examples: int = 200, seed: int = 0,
                devices: Sequence[Device] = (), kinds: Sequence[str] = KINDS,
                progress: Callable[[], object] = lambda: None) -> Report:
    """Hold *backend* to the bound on *examples* random cases, shared among *kinds*.

    *devices* are those whose plans are drawn; by default the backend's own and, where it runs
    them, one of wavefront 64 and one of 32. *progress* is called once an example.

    >>> conformance("reference", examples=6).ok
    True
    """
    chosen, began = choose_backend(backend), time.perf_counter()
    targets = tuple(devices) or _devices_of(chosen)
    counts, failures = {}, []
    for index, kind in enumerate(kinds):
        share = examples // len(kinds) + (index < examples % len(kinds))
        ran, failure = _search(chosen, backend, kind, share, seed, targets, progress)
        counts[kind] = ran
        failures += [failure] if failure else []
    return Report(chosen.name, tuple(device.name for device in targets), seed, counts,
                  tuple(failures), time.perf_counter() - began)


def _devices_of(chosen: Backend) -> tuple[Device, ...]:
    """The backend's device and, for one that runs any device's plans, both wavefront sizes."""
    own = chosen.device()
    if chosen.any_device:
        return tuple({device.name: device for device in (
            own, catalog.device("z100sm"), catalog.device("h200"))}.values())
    return (own,)


def _search(chosen: Backend, asked: str, kind: str, examples: int, seed: int,
            devices: tuple[Device, ...], progress: Callable[[], object]
            ) -> tuple[int, Failure | None]:
    """Cases run for one kind, and the minimal failure if there is one."""
    ran, failed = 0, None

    @hypothesis_seed(seed)
    @settings(max_examples=max(examples, 1), deadline=None, database=None, print_blob=False,
              phases=(Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck),
              report_multiple_bugs=False)
    @given(cases(kind, devices))
    def holds(case: ConformanceCase) -> None:
        nonlocal ran, failed
        if failed is None:
            ran += 1
            progress()
        message = _fault(chosen, case)
        if message:
            # Hypothesis runs the minimal case last, so this ends as the minimal one.
            failed = Failure(kind, case.plan, case.seed, message,
                             reproduction(asked, case.plan, case.seed))
            raise AssertionError(message)

    try:
        if examples:
            holds()
    except AssertionError:
        pass
    return ran, failed


def _fault(chosen: Backend, case: ConformanceCase) -> str:
    """What is wrong with one case; empty if nothing."""
    try:
        verdict = check_plan(chosen, case.plan, case.seed)
    except Exception as raised:  # whatever a kernel raises is its failure, to be shrunk
        return f"{type(raised).__name__}: {raised}"
    return "" if verdict.ok else str(verdict)
