"""One candidate after another: built with others, proven right, and only then timed and kept."""

from __future__ import annotations

import math
import os
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dscore._version import __version__
from dscore.building.reports import MOST_SPILLS
from dscore.checking.bound import Accuracy
from dscore.checking.check import check_plan
from dscore.core.backend import Backend
from dscore.core.device import Device
from dscore.core.errors import CompileError, DscoreError, LaunchError, UnavailableError
from dscore.core.plan import Plan
from dscore.core.token import parse_problem
from dscore.solving import solver
from dscore.tuning import records
from dscore.tuning.evaluator import Evaluator, EvaluatorMaker, require_times
from dscore.tuning.measurement import Measurement, Policy, Record

# Kernels that one core compiles together, as the units of dscore.building.codegen hold them.
_PER_UNIT = 8
# Kernels in a row that a compiler refuses before it is the compiler that is taken to be at fault.
_MOST_REFUSALS = 3
_TINY = "n1c1h1w1_o1k1"


@dataclass(frozen=True)
class Search:
    """What is searched for, in values that another process can be given."""

    backend: str
    device: Device
    top: int | None  # candidates in the model's order; None for all there are
    seed: int
    evaluator: EvaluatorMaker
    policy: Policy  # of the times that it gives
    algorithm: str | None = None  # whose tilings; None for the solver's choice


def wave_size() -> int:
    """Kernels that the cores of this machine compile side by side."""
    return _PER_UNIT * (os.cpu_count() or 1)


class Builder:
    """Builds kernels many at a time, and finds those among them that do not compile."""

    def __init__(self, chosen: Backend) -> None:
        self._chosen = chosen
        self._succeeded = not chosen.compiles
        self._refused_in_row = 0
        self.slowest = 0.0  # seconds of a build

    def build(self, plans: Sequence[Plan]) -> dict[str, str]:
        """Build *plans*; returns why those that do not compile do not, by tiling.

        Raises CompileError where the compiler refuses everything, for then it is not the kernels.
        """
        if not plans or not self._chosen.compiles:
            return {}
        began = time.monotonic()
        try:
            self._chosen.prepare(plans)
        except CompileError as failed:
            return self._halves(plans, failed)
        finally:
            self.slowest = max(self.slowest, time.monotonic() - began)
        self._succeeded, self._refused_in_row = True, 0
        return {}

    def _halves(self, plans: Sequence[Plan], failed: CompileError) -> dict[str, str]:
        if len(plans) > 1:
            half = len(plans) // 2
            return {**self.build(plans[:half]), **self.build(plans[half:])}
        self._refused_in_row += 1
        if not self._succeeded and self._refused_in_row >= _MOST_REFUSALS:
            raise failed
        return {plans[0].tiling.name: _reason(failed)}


class Trials:
    """One problem on one backend: its data, its exact result, and the judgement of its kernels."""

    def __init__(self, search: Search, chosen: Backend, known: Record) -> None:
        self.search, self.chosen, self.problem = search, chosen, known.identity.stated
        self._identity, best = known.identity, known.best
        self.fastest = None if best is None else best.seconds
        self._good = None if best is None else solver.make_plan(self.problem, search.device,
                                                                best.tiling)
        self._crashes: list[Measurement] = []  # not believed before some kernel has run

    @cached_property
    def _evaluator(self) -> Evaluator:
        search = self.search
        return search.evaluator(self.chosen, search.device, self.problem, search.seed)

    def try_out(self, plan: Plan, repeats: int, unbuilt: str = "") -> None:
        """Check *plan*, time it if it is right, and keep what comes of it.

        Raises LaunchError where the device no longer runs kernels that it ran before.
        """
        try:
            if unbuilt:
                raise CompileError(unbuilt)
            share, samples = self._times(plan, repeats)
        except (UnavailableError, MemoryError, OSError):
            raise  # of this machine, and not of the kernel
        except _NotRightError as wrong:
            records.keep(self._measurement(plan, refused=str(wrong), share=wrong.share))
        except CompileError as failed:
            records.keep(self._measurement(plan, refused=f"not compiled: {_reason(failed)}"))
        except Exception as raised:  # whatever a kernel raises is its failure
            self._crashed(plan, raised)
        else:
            records.keep(self._measurement(plan, samples=samples, share=share))
            self._good, median = plan, statistics.median(samples)
            self.fastest = median if self.fastest is None else min(self.fastest, median)
            self._believe()

    def _times(self, plan: Plan, repeats: int) -> tuple[float, tuple[float, ...]]:
        """The share of the bound that the worst error takes, and the times."""
        spills = self.chosen.compile(plan).use.spills
        if spills > MOST_SPILLS:
            raise _NotRightError(f"spills {spills} registers", None)
        judged = _judged(self._evaluator, plan)
        if not judged.ok:
            raise _NotRightError(str(judged), judged.share)
        return judged.share, require_times(self._evaluator.seconds(plan, repeats))

    def _crashed(self, plan: Plan, raised: Exception) -> None:
        """Hold a crash against *plan*, once it is known that the device still works."""
        refused = f"{type(raised).__name__}: {_reason(raised)}"
        self._crashes.append(self._measurement(plan, refused=refused))
        alive = self._alive()
        if self._good is not None:
            self._believe()
        if not alive:
            raise LaunchError(f"after {plan.name} the device runs nothing any more ({refused}); "
                              "begin again, what was measured is kept") from raised

    def _alive(self) -> bool:
        """Whether the device still runs a kernel that has nothing to do with a crash."""
        if self.chosen.any_device:
            return True  # the host, or we would not be here
        plan = self._good or solver.best_plan(parse_problem(_TINY), self.search.device)
        try:
            check_plan(self.chosen, plan, self.search.seed)
        except Exception:  # of whichever library the device answers through
            return False
        return True

    def record(self) -> Record:
        """What is kept by now."""
        return records.load(self._identity)

    def finish(self) -> None:
        """Raise LaunchError where every kernel crashed: that is not for the records."""
        if self._crashes and self._good is None:
            raise LaunchError(f"no kernel of {self._identity.problem} runs on "
                              f"{self.chosen.name}; the first said: {self._crashes[0].refused}")

    def _believe(self) -> None:
        """Keep the crashes: what was wrong was the kernel, since others run."""
        while self._crashes:
            records.keep(self._crashes.pop(0))

    def _measurement(self, plan: Plan, samples: tuple[float, ...] = (),
                     share: float | None = None, refused: str = "") -> Measurement:
        known = None if share is None or not math.isfinite(share) else share
        return Measurement(self._identity, plan.tiling, samples, known, refused,
                           self.search.seed, environment())


class _NotRightError(Exception):
    """A kernel that ran, and may not win; with the share of the bound where it is known."""

    def __init__(self, reason: str, share: float | None) -> None:
        super().__init__(reason)
        self.share = share


def _judged(evaluator: Evaluator, plan: Plan) -> Accuracy:
    try:
        return evaluator.judge(plan)
    except DscoreError as failed:
        # One that has no kind of its own is that of a kernel which wrote outside its output.
        if type(failed) is DscoreError:
            raise _NotRightError(str(failed), None) from None
        raise


def environment() -> tuple[tuple[str, str], ...]:
    """Versions of what a measurement stood on."""
    return (("dscore", __version__), ("numpy", np.__version__),
            ("platform", f"{platform.system()} {platform.machine()}"),
            ("python", platform.python_version()))


def _reason(failed: BaseException) -> str:
    """What an error says, shortened: a compiler's log is long."""
    text = str(failed) or type(failed).__name__
    return text if len(text) <= 600 else f"{text[:400]} [...] {text[-180:]}"
