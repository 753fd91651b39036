"""Backends with times of a script, some of whose kernels are at fault, for tests of tuning."""

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

    def __call__(self, x: Any, w: Any, bias: Any, out: Any) -> None:
        type(self.owner).ran.append(self.plan.tiling.name)
        if self.role == "raises":
            raise ZeroDivisionError("a kernel's own")
        if self.role == "crashes":
            raise LaunchError("illegal memory access")
        if self.role == "interrupts":
            raise KeyboardInterrupt
        self.kernel(x, w, bias, out)
        if self.role == "wrong":
            out[0, 0, 0, 0] += 1
        if self.role == "unwritten":
            out[0, 0, 0, 0] = float("nan")
        if self.role == "scribbles":
            out.base[0] = 0

    def seconds(self, x: Any, w: Any, bias: Any, out: Any, repeats: int) -> list[float]:
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
