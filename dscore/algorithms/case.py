"""What a limit is, and the case that it is judged for: one tiling, or columns of many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dscore.algorithms.geometry import Count, ceil_div
from dscore.algorithms.registers import compiled_registers
from dscore.algorithms.resources import Footprint, footprint
from dscore.core.device import Device
from dscore.core.plan import Check
from dscore.core.problem import ConvProblem
from dscore.core.tiling import TILINGS, Tiling


@dataclass(frozen=True)
class Case:
    """One tiling (or columns of many) on a problem and a device, at a residency of `block_n`."""

    problem: ConvProblem
    device: Device
    kind: type[Tiling]
    tiling: Any
    foot: Footprint
    block_n: Count = 1

    @property
    def compiled(self) -> Count:
        """Registers that the device's compiler takes at most."""
        return compiled_registers(self.problem, self.device, self.kind, self.tiling)

    @property
    def waves_per_simd(self) -> Count:
        """Wavefronts on the fullest SIMD when block_n blocks are spread evenly."""
        return ceil_div(self.block_n * self.foot.waves, self.device.simds_per_cu)


def case_of(problem: ConvProblem, device: Device, kind: type[Tiling], tiling: Any,
            block_n: Count = 1) -> Case:
    """The case of *tiling*, with its footprint."""
    return Case(problem, device, kind, tiling,
                footprint(problem, kind, tiling, device.wavefront), block_n)


# What the resource limits count; every other constraint is a rule of legality.
_SPENT = ("E-LDS", "E-VGPR", "E-WAVES", "E-BLOCKS", "E-ROWS", "E-COLUMNS", "E-CODE")


@dataclass(frozen=True)
class Constraint:
    """A named limit: `measure` gives (used, allowed), and used <= allowed keeps it."""

    code: str
    limit: str
    unit: str
    source: str
    measure: Callable[[Case], tuple[Count, Count]]
    detail: Callable[[Case], str] = lambda case: ""
    kinds: tuple[type[Tiling], ...] = tuple(TILINGS.values())
    exact_only: bool = False  # dropped where tiles may reach past the output, masked

    @property
    def legality(self) -> bool:
        """Whether it says what a tiling is (R1–R5), and not what it may spend."""
        return not self.code.startswith(_SPENT)

    def check(self, case: Case) -> Check:
        """The ledger line of one configuration."""
        used, allowed = self.measure(case)
        return Check(self.code, self.limit, int(used), int(allowed), self.unit, self.source,
                     self.detail(case))


def power_of_two_within(value: Count, most: int) -> Count:
    """The largest power of two that neither *value* nor *most* falls short of."""
    return 2 ** np.log2(np.minimum(value, most)).astype(np.int64)
