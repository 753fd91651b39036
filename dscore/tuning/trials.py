"""Trials of candidates: each is proven right, only then timed, and kept on record."""

from __future__ import annotations

import math
import platform
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from dscore._version import __version__
from dscore.checking.bound import Accuracy
from dscore.checking.check import check_plan
from dscore.core.backend import Backend
from dscore.core.device import Device
from dscore.core.errors import CompileError, DscoreError, LaunchError, UnavailableError
from dscore.core.numerics import WORD_BYTES
from dscore.core.plan import Plan
from dscore.core.token import parse_problem
from dscore.solving import solver
from dscore.tuning import records
from dscore.tuning.builder import shortened
from dscore.tuning.evaluator import Evaluator, EvaluatorMaker, require_times
from dscore.tuning.measurement import SPILLS, Measurement, TuningRecord
from dscore.tuning.measurement_policy import MeasurementPolicy
from dscore.tuning.paired import BEHIND, PairedRecord

# Candidates that are timed for long: of a search, and of one by halves.
FINALISTS, HALVED_FINALISTS = 8, 2
_TINY = "n1c1h1w1_o1k1"
_T = TypeVar("_T")


@dataclass(frozen=True)
class SearchRequest:
    """Request of a search, in values that another process can be given."""

    backend: str
    device: Device
    top: int | None  # candidates in the model's order; None for all
    seed: int
    evaluator: EvaluatorMaker
    policy: MeasurementPolicy  # of the evaluator's times
    # Whose tilings: a name, or several between commas; None for those that the solver compares.
    algorithm: str | None = None
    halving: bool = False  # see dscore.tuning.halving
    # Makes the evaluator of times behind a pointwise layer, of the one of cold times and what that
    # was made of; None where none are wanted (dscore.tuning.behind).
    behind: Callable[..., Evaluator] | None = None

    @property
    def finalists(self) -> int:
        """Candidates that are timed for long."""
        return HALVED_FINALISTS if self.halving else FINALISTS


class Trials:
    """Trials of one problem on one backend, which share the data and the exact result."""

    def __init__(self, request: SearchRequest, backend: Backend, record: TuningRecord,
                 keep: Callable[[Measurement], object] | None = None) -> None:
        self._request, self._backend, self._keeps = request, backend, keep or records.keep
        self._identity, best = record.identity, record.best
        self.fastest = None if best is None else best.seconds
        self._good = None if best is None else solver.make_plan(
            record.identity.conv_problem, request.device, best.tiling)
        self.known = record  # with what is measured here; other tuners' measurements are not read
        self._crashes: list[Measurement] = []  # not believed before some kernel has run

    @cached_property
    def evaluator(self) -> Evaluator:
        """The evaluator of all trials."""
        request = self._request
        return request.evaluator(self._backend, request.device, self._identity.conv_problem,
                                 request.seed)

    def try_out(self, plan: Plan, repeats: int, unbuilt: str = "") -> None:
        """Check *plan*, time it if it is right, and keep the measurement.

        *unbuilt* is the reason why it does not compile. Raises LaunchError where the device no
        longer runs kernels that it ran before.
        """
        def times() -> tuple[float, tuple[float, ...]]:
            share = self._share(plan, unbuilt)
            return share, require_times(self.evaluator.seconds(plan, repeats))

        timed = self._held_against(plan, times)
        if timed is not None:
            self.add(plan, *timed)

    def check(self, plan: Plan, unbuilt: str = "") -> float | None:
        """Worst error of *plan* as a share of the bound, for a caller who times it; None where it
        is not right, which is kept. For *unbuilt* and LaunchError see `try_out`.
        """
        return self._held_against(plan, lambda: self._share(plan, unbuilt))

    def add(self, plan: Plan, share: float, samples: tuple[float, ...]) -> None:
        """Keep times of *plan*, which is right."""
        self._keep(self._measurement(plan, samples=samples, share=share))
        self._good, median = plan, statistics.median(samples)
        self.fastest = median if self.fastest is None else min(self.fastest, median)
        self._keep_crashes()

    def release(self) -> None:
        """Give the evaluator's data back; the next check draws them anew."""
        self.__dict__.pop("evaluator", None)

    def _held_against(self, plan: Plan, run: Callable[[], _T]) -> _T | None:
        """What *run* returns; None where it shows a fault of the kernel, which is kept."""
        try:
            return run()
        except (UnavailableError, MemoryError, OSError):
            raise  # of this machine, and not of the kernel
        except _NotRightError as wrong:
            self._keep(self._measurement(plan, refused=str(wrong), share=wrong.share))
        except CompileError as failed:
            self._keep(self._measurement(plan, refused=f"not compiled: {shortened(failed)}"))
        except Exception as raised:  # whatever a kernel raises is its failure
            self._crashed(plan, raised)
        return None

    def _share(self, plan: Plan, unbuilt: str) -> float:
        """Worst error of *plan*, which must be right, as a share of the bound."""
        if unbuilt:
            raise CompileError(unbuilt)
        spills = self._backend.compile(plan).use.spills
        if spills:
            raise _NotRightError(f"{SPILLS} {WORD_BYTES * spills} B of a lane to memory", None)
        accuracy = _accuracy(self.evaluator, plan)
        if not accuracy.ok:
            raise _NotRightError(str(accuracy), accuracy.share)
        return accuracy.share

    def _crashed(self, plan: Plan, raised: Exception) -> None:
        """Hold a crash against *plan*, once it is known that the device still works."""
        refused = f"{type(raised).__name__}: {shortened(raised)}"
        self._crashes.append(self._measurement(plan, refused=refused))
        alive = self._alive()
        if self._good is not None:
            self._keep_crashes()
        if not alive:
            raise LaunchError(f"after {plan.name} the device runs nothing any more ({refused}); "
                              "begin again, what was measured is kept") from raised

    def _alive(self) -> bool:
        """Whether the device still runs a kernel that has nothing to do with a crash."""
        if self._backend.any_device:
            return True  # the host, or we would not be here
        plan = self._good or solver.best_plan(parse_problem(_TINY), self._request.device)
        try:
            check_plan(self._backend, plan, self._request.seed)
        except Exception:  # of whichever library the device answers through
            return False
        return True

    def record(self) -> TuningRecord:
        """Record of the problem now."""
        return records.load(self._identity)

    def finish(self) -> None:
        """Raise LaunchError where every kernel crashed: the records take none of that."""
        if self._crashes and self._good is None:
            raise LaunchError(f"no kernel of {self._identity.problem} runs on "
                              f"{self._backend.name}; the first said: {self._crashes[0].refused}")

    def _keep(self, measurement: Measurement) -> None:
        self._keeps(measurement)
        self.known = replace(self.known, measurements=self.known.measurements | {measurement})

    def _keep_crashes(self) -> None:
        """Keep the crashes on record: the kernels were wrong, since others run."""
        while self._crashes:
            self._keep(self._crashes.pop(0))

    def _measurement(self, plan: Plan, samples: tuple[float, ...] = (),
                     share: float | None = None, refused: str = "") -> Measurement:
        known = None if share is None or not math.isfinite(share) else share
        return Measurement(self._identity, plan.tiling, samples, known, refused,
                           self._request.seed, environment())


class PairedTrials:
    """Trials of a problem whose tilings are timed cold, and right after that behind another layer.

    It is used as `Trials` are; its record is that of both.
    """

    def __init__(self, request: SearchRequest, backend: Backend, record: PairedRecord,
                 keep: Callable[[Measurement], object] | None = None) -> None:
        assert request.behind is not None
        make, cold = request.behind, Trials(request, backend, record.cold, keep)
        behind = replace(request, policy=BEHIND,
                         evaluator=lambda *made_of: make(cold.evaluator, *made_of))
        self._cold, self._behind = cold, Trials(behind, backend, record.behind, keep)

    @property
    def known(self) -> PairedRecord:
        """Record with what is measured here."""
        return PairedRecord.of(self._cold.known, self._behind.known)

    @property
    def fastest(self) -> float | None:
        """Seconds of the best so far."""
        best = self.known.best
        return None if best is None else best.seconds

    def try_out(self, plan: Plan, repeats: int, unbuilt: str = "") -> None:
        """`Trials.try_out` in both ways, each as often as it lacks samples; cold ones that are on
        record already are not taken again.
        """
        name = plan.tiling.name
        wanted = repeats + _count(self.known, name)
        for trials in (self._cold, self._behind):
            if _count(trials.known, name) < wanted:
                trials.try_out(plan, wanted - _count(trials.known, name), unbuilt)
            if not _count(trials.known, name):  # it is refused, or crashed
                return

    def record(self) -> PairedRecord:
        """Record of the problem now."""
        return PairedRecord.of(self._cold.record(), self._behind.record())

    def finish(self) -> None:
        """See `Trials.finish`."""
        self._cold.finish()
        self._behind.finish()


def trials_of(request: SearchRequest, backend: Backend, record: TuningRecord,
              keep: Callable[[Measurement], object] | None = None) -> Trials | PairedTrials:
    """Trials whose measurements are added to *record*."""
    if isinstance(record, PairedRecord):
        return PairedTrials(request, backend, record, keep)
    return Trials(request, backend, record, keep)


def _count(record: TuningRecord, name: str) -> int:
    """Number of samples of the tiling of that name."""
    configuration = record.configurations.get(name)
    return 0 if configuration is None else configuration.count


class _NotRightError(Exception):
    """A kernel that ran, and may not win; with the share of the bound where it is known."""

    def __init__(self, reason: str, share: float | None) -> None:
        super().__init__(reason)
        self.share = share


def _accuracy(evaluator: Evaluator, plan: Plan) -> Accuracy:
    try:
        return evaluator.judge(plan)
    except DscoreError as failed:
        # A kernel that wrote outside its output raises the base class itself.
        if type(failed) is DscoreError:
            raise _NotRightError(str(failed), None) from None
        raise


def environment() -> tuple[tuple[str, str], ...]:
    """Versions that a measurement was made with."""
    return (("dscore", __version__), ("numpy", np.__version__),
            ("platform", f"{platform.system()} {platform.machine()}"),
            ("python", platform.python_version()))
