"""Setting of an acceleration: the backend and the device that the plans are made for."""

from __future__ import annotations

from collections.abc import Iterable

from dscore import api
from dscore.calling import choice
from dscore.calling.prepare import prepare
from dscore.core.backend import Backend, GpuBackend, choose_backend, require_accepted
from dscore.core.device import Device
from dscore.core.errors import require_one_of
from dscore.core.numerics import PERMISSIONS, Permission
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.tuning.shipped_hints import untuned_plan


class Setting:
    """Setting for a model on GPU *gpu* or elsewhere (None), or for a *device* wherever it is.

    *arithmetic* is what its problems permit; `note` says what is assumed. Raises UnavailableError
    where the backend cannot run.
    """

    def __init__(self, name: str, gpu: int | None = None, device: Device | None = None,
                 arithmetic: Permission = "sum") -> None:
        self.arithmetic = require_one_of(arithmetic, "arithmetic", PERMISSIONS)
        self.name, self.note = name, ""
        self.kernels = self.compiled = 0
        self._prepared: set[ConvProblem] = set()
        self._backend: Backend | None = None
        if device is not None:
            self.device = device
        elif gpu is not None or name != "auto":
            self._backend = choose_backend("hip" if name == "auto" else name)
            on_gpu = gpu is not None and isinstance(self._backend, GpuBackend)
            self.device = (self._backend.device_at(gpu or 0) if on_gpu  # type: ignore[attr-defined]
                           else self._backend.device())
        else:
            self.device, assumed = api.assumed_device()
            self.note = f"plans are for {assumed}" if assumed else ""

    @property
    def computes(self) -> bool:
        """Whether kernels run for this setting."""
        return self._backend is not None

    def say(self, words: str) -> None:
        """Add to the note."""
        self.note += "; " * bool(self.note) + words

    def plan_of(self, problem: ConvProblem) -> Plan:
        """The plan that a call takes; SpecError or InfeasibleError where there is none."""
        if self._backend is None:
            return untuned_plan(problem, self.device)
        plan = choice.default_plan(problem, self.device, self._backend, self.name)
        require_accepted(self._backend, plan)
        return plan

    def prepare(self, problems: Iterable[ConvProblem]) -> None:
        """Compile the kernels of problems in parallel, where any run here."""
        new = [one for one in dict.fromkeys(problems) if one not in self._prepared]
        if self._backend is None or not new:
            return
        prepared = prepare(new, backend=self._backend.name if self.name == "auto" else self.name)
        self._prepared.update(new)
        self.kernels += prepared.kernels
        self.compiled += prepared.compiled
