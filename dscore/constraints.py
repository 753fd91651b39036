"""Every limit a tiling must keep, each stated once, for one configuration or for columns of many.

Two rule sets: ``paper`` holds the legality rules R1–R5 and Eq. 1–7 of Liu et al. 2024 as printed;
``hardware`` adds what these leave out: the registers that compilers take (dscore.registers) and one
thread can name, allocation granularity, wavefronts counted per SIMD, the static LDS limit of a
block, blocks per CU, and how much code a compiler unrolls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .device import Device
from .errors import SpecError
from .plan import Check, Rules
from .registers import compiled_registers
from .resources import Count, Footprint, ceil_div, depthwise_shape, footprint, pointwise_shape
from .spec import ConvProblem
from .tiling import DepthwiseTiling, DirectTiling, PointwiseTiling, Tiling


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
_SPENT = ("E-LDS", "E-VGPR", "E-WAVES", "E-BLOCKS", "E-ROWS", "E-CODE")


@dataclass(frozen=True)
class Constraint:
    """A named limit: `measure` gives (used, allowed), and used <= allowed keeps it."""

    code: str
    limit: str
    unit: str
    source: str
    measure: Callable[[Case], tuple[Count, Count]]
    detail: Callable[[Case], str] = lambda case: ""
    kinds: tuple[type[Tiling], ...] = (PointwiseTiling, DepthwiseTiling, DirectTiling)
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


def _power_of_two_within(value: Count, most: int) -> Count:
    """The largest power of two that neither *value* nor *most* falls short of."""
    return 2 ** np.log2(np.minimum(value, most)).astype(np.int64)


def _block(case: Case) -> Any:
    return pointwise_shape(case.problem, case.tiling, case.device.wavefront)


def _per_block(case: Case) -> str:
    """How Eq. 1 comes to its limit."""
    kib = f"{case.device.lds_bytes_per_cu // 1024} KiB"
    return kib if case.block_n == 1 else f"{kib} / block_n={case.block_n}"


def _registers_left(case: Case) -> Count:
    """Eq. 2."""
    return case.device.registers_per_cu // (case.block_n * case.foot.waves
                                            * case.device.wavefront)


def _round_up(value: Count, granularity: int) -> Count:
    return ceil_div(value, granularity) * granularity


_POINTWISE: tuple[type[Tiling], ...] = (PointwiseTiling,)
# A depthwise thread's rows are unrolled: hipcc leaves a loop of 35 rolled, and its rows in scratch
# memory (docs/registers.md); 2,048 FMAs are 16 KiB of code, half an instruction cache of the GCN.
MOST_UNROLLED_ROWS = 32
MOST_UNROLLED_FMAS = 2048

PAPER: tuple[Constraint, ...] = (
    Constraint("E-LDS", "shared memory", "B", "Eq. 4",
               lambda c: (c.foot.lds_bytes, c.device.lds_bytes_per_cu // c.block_n), _per_block),
    Constraint("E-VGPR", "registers", "", "Eq. 7",
               lambda c: (c.foot.registers, _registers_left(c))),
    Constraint("E-THREADS", "threads", "", "R1",
               lambda c: (c.foot.threads, c.device.threads_per_block)),
    Constraint("E-WAVES", "wavefronts", "", "§5.1.2",
               lambda c: (c.block_n * c.foot.waves, c.device.waves_per_cu)),
    Constraint("E-DIV-W", "columns left", "", "R2",
               lambda c: (c.problem.out_width % _block(c).columns, 0),
               lambda c: f"{_block(c).columns} must divide {c.problem.out_width}",
               _POINTWISE, exact_only=True),
    Constraint("E-DIV-C", "channels left", "", "R3",
               lambda c: (c.problem.spec.out_channels % _block(c).channels, 0),
               lambda c: f"{_block(c).channels} must divide {c.problem.spec.out_channels}",
               _POINTWISE, exact_only=True),
    Constraint("E-GROUP", "group_c", "", "R4",
               lambda c: (c.tiling.group_c,
                          _power_of_two_within(c.tiling.group_c, c.device.wavefront)),
               lambda c: f"a power of two up to {c.device.wavefront}", _POINTWISE),
    Constraint("E-DIV-G", "channels left", "", "R4",
               lambda c: (c.problem.spec.in_channels % c.tiling.group_c, 0),
               lambda c: f"group_c must divide {c.problem.spec.in_channels}",
               _POINTWISE, exact_only=True),
    Constraint("E-LANES", "lanes left", "", "R5",
               lambda c: (c.tiling.wave_c * c.tiling.group_c % c.device.wavefront, 0),
               lambda c: f"wave_c*group_c by {c.device.wavefront}", _POINTWISE),
    Constraint("E-SHUFFLE", "lanes_w", "", "",
               lambda c: (np.where(c.tiling.column_reuse, c.tiling.lanes_w, 0),
                          _power_of_two_within(c.tiling.lanes_w, c.device.wavefront)),
               lambda c: f"a power of two up to {c.device.wavefront}", (DepthwiseTiling,)),
    Constraint("E-LANES", "lanes left", "", "",
               lambda c: (c.tiling.threads % c.device.wavefront, 0),
               lambda c: f"threads by {c.device.wavefront}", (DirectTiling,)),
)

HARDWARE: tuple[Constraint, ...] = (
    *PAPER,
    Constraint("E-VGPR-MAX", "thread limit", "", "",
               lambda c: (c.compiled, c.device.registers_per_thread)),
    Constraint("E-VGPR-ALLOC", "per SIMD", "", "",
               lambda c: (_round_up(c.compiled, c.device.register_granularity),
                          c.device.registers_per_simd_lane // c.waves_per_simd),
               lambda c: f"{c.device.registers_per_simd_lane} / {c.waves_per_simd} wavefronts"),
    Constraint("E-LDS-BLOCK", "block limit", "B", "",
               lambda c: (c.foot.lds_bytes, c.device.lds_bytes_per_block)),
    Constraint("E-LDS-ALLOC", "allocated", "B", "",
               lambda c: (_round_up(c.foot.lds_bytes, c.device.lds_granularity_bytes),
                          c.device.lds_bytes_per_cu // c.block_n)),
    Constraint("E-ROWS", "unrolled rows", "", "",
               lambda c: (depthwise_shape(c.problem, c.tiling).rows, MOST_UNROLLED_ROWS),
               kinds=(DepthwiseTiling,)),
    Constraint("E-CODE", "unrolled FMAs", "", "",
               lambda c: (c.foot.fmas, MOST_UNROLLED_FMAS), kinds=(DepthwiseTiling,)),
    Constraint("E-BLOCKS", "blocks", "", "",
               lambda c: (c.block_n, c.device.blocks_per_cu)),
)

_RULE_SETS: dict[str, tuple[Constraint, ...]] = {"paper": PAPER, "hardware": HARDWARE}


def rule_set(rules: Rules, kind: type[Tiling], masked: bool) -> tuple[Constraint, ...]:
    """The constraints of *rules* that apply to tilings of *kind*.

    Raises SpecError for an unknown rule set.
    """
    if rules not in _RULE_SETS:
        raise SpecError(f"rules must be one of {', '.join(_RULE_SETS)}, got {rules!r}")
    return tuple(constraint for constraint in _RULE_SETS[rules]
                 if kind in constraint.kinds and not (masked and constraint.exact_only))


def ledger(case: Case, rules: Rules, masked: bool) -> tuple[Check, ...]:
    """Every constraint of *rules* with what the configuration uses and may use."""
    return tuple(constraint.check(case) for constraint in rule_set(rules, case.kind, masked))


def keeps_all(case: Case, rules: Rules, masked: bool, legality: bool | None = None) -> Any:
    """Which of the columns keep every constraint of *rules* (or, for one tiling, whether).

    *legality* True asks for R1–R5 alone, False for the resource limits alone.
    """
    kept: Any = True
    for constraint in rule_set(rules, case.kind, masked):
        if legality in (None, constraint.legality):
            used, allowed = constraint.measure(case)
            kept = kept & (used <= allowed)
    return kept


def residency(case: Case, rules: Rules) -> Count:
    """The most blocks of a tiling that one CU holds under *rules* (at least 1).

    A tiling that is valid at some residency is valid at every lower one, so this is derived and
    not searched (Block_N of Liu et al. 2024, §5.1.2).
    """
    device, foot = case.device, case.foot
    blocks = np.minimum(device.waves_per_cu // foot.waves,
                        device.lds_bytes_per_cu // np.maximum(foot.lds_bytes, 1))
    threads = foot.waves * device.wavefront
    blocks = np.minimum(blocks, device.registers_per_cu // (foot.registers * threads))
    if rules == "hardware":
        registers = _round_up(case.compiled, device.register_granularity)
        waves = device.simds_per_cu * (device.registers_per_simd_lane // registers)
        allocated = _round_up(foot.lds_bytes, device.lds_granularity_bytes)
        blocks = np.minimum(np.minimum(blocks, waves // foot.waves), device.blocks_per_cu)
        blocks = np.minimum(blocks, device.lds_bytes_per_cu // np.maximum(allocated, 1))
    return np.maximum(blocks, 1)


def overhangs(problem: ConvProblem, tiling: Tiling, wavefront: int) -> bool:
    """Whether some tile of *tiling* reaches past the problem, so that lanes are predicated."""
    spec = problem.spec
    if isinstance(tiling, PointwiseTiling):
        shape = pointwise_shape(problem, tiling, wavefront)
        return bool(problem.out_width % shape.columns or spec.out_channels % shape.channels
                    or spec.in_channels % tiling.group_c)
    if isinstance(tiling, DepthwiseTiling):
        return bool(problem.out_height % (tiling.lanes_h * tiling.thread_h)
                    or problem.out_width % (tiling.lanes_w * tiling.thread_w)
                    or problem.batch * spec.out_channels % tiling.planes
                    or tiling.planes * tiling.lanes_h * tiling.lanes_w % wavefront)
    return bool(problem.out_height * problem.out_width % tiling.threads
                or spec.group_out % tiling.thread_c)
