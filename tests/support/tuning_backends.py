"""Backends with times of a script, some of whose kernels are at fault, for tests of tuning."""

import itertools
import os
import time
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from dscore.backends.reference.backend import ReferenceBackend
from dscore.core.backend import Prepared
from dscore.core.errors import CompileError, LaunchError
from dscore.core.plan import Plan
from dscore.measuring.runner import HostRunner, KernelSubject
from dscore.measuring.timing import Effort


def scripted_seconds(name: str) -> float:
    return 1e-3 + zlib.crc32(name.encode()) % 999_983 * 1e-9  # another for each name


class _Kernel:
    def __init__(self, kernel: Any, owner: Any) -> None:
        self.kernel, self.owner, self.plan, self.use = kernel, owner, kernel.plan, kernel.use
        if self.role == "spills":
            self.use = replace(kernel.use, spills=1, reported=True)

    @property
    def role(self) -> str:
        return self.owner.roles.get(self.plan.tiling.name, "")

    def __call__(self, *arrays: Any) -> None:
        out = arrays[-1]
        type(self.owner).ran.append(self.plan.tiling.name)
        if self.role == "raises":
            raise ZeroDivisionError("a kernel's own")
        if self.role == "crashes":
            raise LaunchError("illegal memory access")
        if self.role == "interrupts":
            raise KeyboardInterrupt
        self.kernel(*arrays)
        if self.role == "wrong":
            out[0, 0, 0, 0] += 1
        if self.role == "unwritten":
            out[0, 0, 0, 0] = float("nan")
        if self.role == "scribbles":
            out.base[0] = 0

    def seconds(self, *arrays: Any, repeats: int) -> list[float]:
        type(self.owner).timed.append((self.plan.tiling.name, repeats))
        return self.owner.times(self.plan.tiling.name, repeats)


class Scripted(ReferenceBackend):
    """Faults by the names of tilings; faulty kernels are the fastest."""

    name = "scripted"
    any_device = True
    roles: ClassVar[dict[str, str]] = {}
    ran: ClassVar[list[str]] = []
    timed: ClassVar[list[tuple[str, int]]] = []
    compiled: ClassVar[list[list[str]]] = []

    def times(self, name: str, repeats: int) -> list[float]:
        return [1e-9 if self.roles.get(name) else scripted_seconds(name)] * repeats

    def compile(self, plan: Plan) -> Any:
        if self.roles.get(plan.tiling.name) == "uncompiled":
            raise CompileError("ptxas: too much of everything")
        return _Kernel(super().compile(plan), self)


class Compiled(Scripted):
    """Its kernels are built together."""

    name = "compiled"
    compiles = True

    def prepare(self, plans: Sequence[Plan], progress: Any = None) -> Any:
        names = [plan.tiling.name for plan in plans]
        type(self).compiled.append(names)
        bad = [name for name in names if self.roles.get(name) == "uncompiled"]
        if bad or "*" in self.roles:
            raise CompileError(f"{bad} do not compile")


class Device(Scripted):
    """A device that a crash takes with it."""

    name = "device"
    any_device = False
    dead: ClassVar[bool] = False

    def compile(self, plan: Plan) -> Any:
        kernel = super().compile(plan)
        run = kernel.kernel

        def call(x: Any, w: Any, bias: Any, out: Any) -> None:
            if type(self).dead or self.roles.get(plan.tiling.name) == "kills":
                type(self).dead = True
                raise LaunchError("context is destroyed")
            run(x, w, bias, out)

        kernel.kernel = call
        return kernel


class Gpu(Scripted):
    """A GPU by its protocol; the kernels that it was told to build are on a list."""

    name = "gpu of a script"
    compiles = True
    prepared: ClassVar[list[str]] = []

    def device_at(self, index: int) -> Any:
        return self.device()

    def kernel_on(self, plan: Plan, index: int) -> Any:
        return self.compile(plan)

    def prepare(self, plans: Sequence[Plan], progress: Any = None) -> Prepared:
        new = {plan.tiling.name for plan in plans} - set(type(self).prepared)
        type(self).prepared.extend(sorted(new))
        return Prepared(len(plans), len(new))


def behind_seconds(name: str) -> float:
    """What a kernel takes behind another layer, which says nothing of what it takes cold."""
    return scripted_seconds(name[::-1])


class GraphClock:
    """A clock whose graphs take what is launched in them: names of tilings, pointwise ones or not.

    No two times are the same.
    """

    policy = "graph"
    pointwise_seconds = 5e-3

    def __init__(self) -> None:
        self.launched: list[tuple[str, bool]] = []
        self.jitter = itertools.count(1)

    def record(self, work: Any) -> Any:
        self.launched.clear()
        work(0)
        seconds = sum(map(self._seconds, self.launched[-1:] + self.launched, self.launched))
        return lambda: seconds

    def _seconds(self, before: tuple[str, bool], one: tuple[str, bool]) -> float:
        name, pointwise = one
        if pointwise:
            return self.pointwise_seconds
        return behind_seconds(name) if before[1] else scripted_seconds(name)

    def seconds(self, replay: Any) -> float:
        return float(replay()) + next(self.jitter) * 1e-14

    def samples(self, replay: Any, count: int) -> list[float]:
        return [self.seconds(replay) for _ in range(count)]

    def synchronize(self) -> None:
        pass


class GraphRunner(HostRunner):
    """The host's memory, with launches that a graph takes down and nothing runs."""

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        self.clock, self.effort = GraphClock(), Effort()  # type: ignore[assignment]
        self.sets_of: dict[str, Sequence[Any]] = {}  # by tiling, as a subject was last made of them

    def subject(self, backend: Any, plan: Plan, sets: Sequence[Any]) -> Any:
        backend.compile(plan)
        self.sets_of[plan.tiling.name] = sets
        launched = plan.tiling.name, plan.problem.spec.kind == "pointwise"
        return KernelSubject(sets, lambda one, stream: self.clock.launched.append(launched))


class Graphs(Gpu):
    """A GPU whose graphs are captured."""

    name = "graphs"

    def runner(self, device: Any, peers: bool) -> Any:
        return GraphRunner(device)


class Slow(Scripted):
    """Takes $TIMED_SECONDS, never twice the same, and notes what it was asked in $TIMED_LOG."""

    name = "slow"

    def times(self, name: str, repeats: int) -> list[float]:
        time.sleep(float(os.environ.get("TIMED_SECONDS", "0.05")))
        if "TIMED_LOG" in os.environ:
            with open(os.environ["TIMED_LOG"], "a") as log:
                log.write(f"{name}\n")
        return [scripted_seconds(name) + int.from_bytes(os.urandom(4), "big") * 1e-16
                for _ in range(repeats)]
