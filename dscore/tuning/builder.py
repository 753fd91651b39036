"""Builder of candidates: kernels compiled many at a time, and those among them that do not compile.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from dscore.building.codegen import KERNELS_PER_UNIT
from dscore.building.toolchain import cores
from dscore.core.backend import Backend
from dscore.core.errors import CompileError
from dscore.core.plan import Plan

# Kernels in a row that a compiler refuses before it is the compiler that is taken to be at fault.
_MOST_REFUSALS = 3


def wave_size() -> int:
    """Kernels that the cores of this machine compile side by side."""
    return KERNELS_PER_UNIT * cores()


class Builder:
    """Builder for one backend; it remembers whether anything has compiled yet."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._succeeded = not backend.compiles
        self._refused_in_row = 0
        self.slowest = 0.0  # seconds of a build

    def build(self, plans: Sequence[Plan]) -> dict[str, str]:
        """Build *plans*; returns the reasons of those that do not compile, by tiling.

        Raises CompileError where the compiler refuses everything, for then it is not the kernels.
        """
        if not plans or not self._backend.compiles:
            return {}
        began = time.monotonic()
        try:
            self._backend.prepare(plans)
        except CompileError as failed:
            return self._halves(plans, failed)
        finally:
            self.slowest = max(self.slowest, time.monotonic() - began)
        self._succeeded, self._refused_in_row = True, 0
        return {}

    def _halves(self, plans: Sequence[Plan], failed: CompileError) -> dict[str, str]:
        """Build both halves of *plans*, which do not compile together."""
        if len(plans) > 1:
            half = len(plans) // 2
            return {**self.build(plans[:half]), **self.build(plans[half:])}
        self._refused_in_row += 1
        if not self._succeeded and self._refused_in_row >= _MOST_REFUSALS:
            raise failed
        return {plans[0].tiling.name: shortened(failed)}


def shortened(failed: BaseException) -> str:
    """Text of an error, without the middle of a compiler's long log."""
    text = str(failed) or type(failed).__name__
    return text if len(text) <= 600 else f"{text[:400]} [...] {text[-180:]}"
