"""Every limit a tiling must keep, each stated once, for one configuration or for columns of many.

Two rule sets: ``paper`` holds the legality rules R1–R5 and Eq. 1–7 of Liu et al. 2024 as printed;
``hardware`` adds what these leave out: the registers that compilers take and one
thread can name, allocation granularity, wavefronts counted per SIMD, the static LDS limit of a
block, blocks per CU, and how much code a compiler unrolls.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.algorithms.case import Case, Constraint, power_of_two_within
from dscore.algorithms.geometry import Count, ceil_div, depthwise_shape, pointwise_shape
from dscore.core.errors import SpecError
from dscore.core.plan import Check, Rules
from dscore.core.problem import ConvProblem
from dscore.core.tiling import (
    ChannelDistributionTiling,
    DirectTiling,
    GemmTiling,
    RowReuseTiling,
    Tiling,
)


def _block(case: Case) -> Any:
    return pointwise_shape(case.problem, case.tiling, case.device.wavefront)


def _staged(case: Case) -> Any:
    return np.asarray(case.tiling.staging) != "registers"


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


_POINTWISE: tuple[type[Tiling], ...] = (ChannelDistributionTiling,)
# A depthwise thread's rows are unrolled: hipcc leaves a loop of 35 rolled, and its rows in scratch
# memory (docs/registers.md); 2,048 FMAs are 16 KiB of code, half an instruction cache of the GCN.
MOST_UNROLLED_ROWS = 32
MOST_UNROLLED_COLUMNS = 256
MOST_UNROLLED_FMAS = 2048
MOST_STAGES = 16

# A product of three TF32 ones errs by about 12 * 2**-24 at worst, which the bound of a float32
# result admits from 16 products on (docs/model.md).
LEAST_SPLIT_CHANNELS = 16


def _split(case: Case) -> Any:
    return np.asarray(case.tiling.arithmetic) == "tf32x3"


def _fragment_c(case: Case) -> Count:
    return np.where(_split(case), 8, case.tiling.lanes_c)


def _fragment_p(case: Case) -> Count:
    return np.where(_split(case), 16, 4 * np.maximum(
        case.device.wavefront // case.tiling.lanes_c, 1))


_TILES: tuple[type[Tiling], ...] = (GemmTiling,)
_MATRIX: tuple[Constraint, ...] = (
    Constraint("E-TILE", "part wavefronts", "", "",
               lambda c: (c.tiling.tile_c % c.tiling.wave_c + c.tiling.tile_p % c.tiling.wave_p, 0),
               lambda c: "wave_c divides tile_c, wave_p tile_p", _TILES),
    Constraint("E-FRAGMENT", "part fragments", "", "",
               lambda c: (c.tiling.wave_c % _fragment_c(c) + c.tiling.wave_p % _fragment_p(c), 0),
               lambda c: f"{_fragment_c(c)} channels x {_fragment_p(c)} pixels", _TILES),
    Constraint("E-LANES", "lanes_c", "", "",
               lambda c: (np.where(_split(c) & (c.tiling.lanes_c != 8), c.device.wavefront + 1,
                                   c.tiling.lanes_c),
                          power_of_two_within(c.tiling.lanes_c, c.device.wavefront)),
               lambda c: "a power of two; 8 for tf32x3", _TILES),
    Constraint("E-SLICE", "channels left", "", "",
               lambda c: (c.tiling.step_c % (c.tiling.slices * np.where(_split(c), 8, 4)), 0),
               lambda c: "step_c by slices, in eights (plain: fours)", _TILES),
    Constraint("E-STAGES", "stages", "", "",
               lambda c: (np.where(c.tiling.stages < 2, MOST_STAGES + 1, c.tiling.stages),
                          MOST_STAGES if c.device.copies_to_lds else 2),
               lambda c: "more than 2 need asynchronous copies", _TILES),
    Constraint("E-CLUSTER", "cluster", "", "",
               lambda c: (c.tiling.cluster, c.device.most_cluster_blocks), kinds=_TILES),
    Constraint("E-SPLIT", "tf32x3", "", "",
               lambda c: (1 * _split(c), int(c.device.copies_to_lds and c.device.wavefront == 32
                          and c.problem.spec.in_channels >= LEAST_SPLIT_CHANNELS)),
               lambda c: f"NVIDIA, {LEAST_SPLIT_CHANNELS} input channels or more", _TILES),
)

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
                          power_of_two_within(c.tiling.group_c, c.device.wavefront)),
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
                          power_of_two_within(c.tiling.lanes_w, c.device.wavefront)),
               lambda c: f"a power of two up to {c.device.wavefront}", (RowReuseTiling,)),
    *_MATRIX,
    Constraint("E-REUSE", "column reuse", "", "",
               lambda c: (1 * (np.asarray(c.tiling.column_reuse) & _staged(c)), 0),
               lambda c: "from registers only", (RowReuseTiling,)),
    Constraint("E-AHEAD", "ahead", "", "",
               lambda c: (1 * np.asarray(c.tiling.ahead), int(c.device.begins_early)),
               lambda c: "kernels begin early from sm_90 on", (RowReuseTiling,)),
    Constraint("E-SPAN", "columns left", "", "",
               lambda c: (np.where(_staged(c), np.maximum(
                   c.problem.out_width - c.tiling.lanes_w * c.tiling.thread_w, 0), 0), 0),
               lambda c: "through LDS a block takes whole rows", (RowReuseTiling,)),
    Constraint("E-SPAN-H", "rows left", "", "",
               lambda c: (np.where(_staged(c) & (c.tiling.planes > 1), np.maximum(
                   c.problem.out_height - c.tiling.lanes_h * c.tiling.thread_h, 0), 0), 0),
               lambda c: "through LDS several planes are whole", (RowReuseTiling,)),
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
               kinds=(RowReuseTiling,)),
    Constraint("E-COLUMNS", "unrolled columns", "", "",
               lambda c: (depthwise_shape(c.problem, c.tiling).reach, MOST_UNROLLED_COLUMNS),
               kinds=(RowReuseTiling,)),
    Constraint("E-CODE", "unrolled FMAs", "", "",
               lambda c: (c.foot.fmas, MOST_UNROLLED_FMAS), kinds=(RowReuseTiling,)),
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
    if isinstance(tiling, ChannelDistributionTiling):
        shape = pointwise_shape(problem, tiling, wavefront)
        return bool(problem.out_width % shape.columns or spec.out_channels % shape.channels
                    or spec.in_channels % tiling.group_c)
    if isinstance(tiling, GemmTiling):
        return bool(spec.out_channels % tiling.tile_c or spec.in_channels % tiling.step_c
                    or problem.batch * problem.out_height * problem.out_width % tiling.tile_p)
    if isinstance(tiling, RowReuseTiling):
        return bool(problem.out_height % (tiling.lanes_h * tiling.thread_h)
                    or problem.out_width % (tiling.lanes_w * tiling.thread_w)
                    or problem.batch * spec.out_channels % tiling.planes
                    or tiling.planes * tiling.lanes_h * tiling.lanes_w % wavefront)
    return bool(problem.out_height * problem.out_width % tiling.threads
                or spec.group_out % tiling.thread_c)
