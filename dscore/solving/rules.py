"""Every limit that a device sets to a tiling, and the ledger of these with the algorithm's own.

Two rule sets: ``paper`` holds R1–R5 and Eq. 1–7 of Liu et al. 2024 as printed; ``hardware`` adds
what these leave out: the registers that compilers take and one thread can name, allocation
granularity, wavefronts counted per SIMD, the static LDS limit of a block, blocks per CU, and how
much code a compiler unrolls.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from dscore.algorithms.base import Algorithm, Case, Limit
from dscore.algorithms.columns import Count, ceil_div, floor_div
from dscore.core.errors import SpecError
from dscore.core.plan import RULES, Check, Rules


def _per_block(case: Case) -> str:
    """Derivation of the limit of Eq. 1."""
    kib = f"{case.device.lds_bytes_per_cu // 1024} KiB"
    return kib if case.block_n == 1 else f"{kib} / block_n={case.block_n}"


def _registers_left(case: Case) -> Count:
    """Eq. 2."""
    return floor_div(case.device.registers_per_cu,
                     case.block_n * case.footprint.waves * case.device.wavefront)


def _round_up(value: Count, granularity: int) -> Count:
    return ceil_div(value, granularity) * granularity


def _allocated(case: Case) -> Count:
    """LDS that a block takes of its compute unit, with what its driver keeps."""
    device = case.device
    return (_round_up(case.footprint.lds_bytes, device.lds_granularity_bytes)
            + device.lds_reserved_bytes)


def _kept_by_driver(case: Case) -> str:
    kept = case.device.lds_reserved_bytes
    return f"{kept:,} B of it kept by the driver" if kept else ""


DEVICE_LIMITS = (
    Limit("E-LDS", "shared memory", "B", "Eq. 4",
          lambda c: (c.footprint.lds_bytes, c.device.lds_bytes_per_cu // c.block_n), _per_block,
          legality=False),
    Limit("E-VGPR", "registers", "", "Eq. 7",
          lambda c: (c.registers, _registers_left(c)), lambda c: c.origin, legality=False),
    Limit("E-THREADS", "threads", "", "R1",
          lambda c: (c.footprint.threads, c.device.threads_per_block)),
    Limit("E-WAVES", "wavefronts", "", "§5.1.2",
          lambda c: (c.block_n * c.footprint.waves, c.device.waves_per_cu), legality=False),
    Limit("E-VGPR-MAX", "thread limit", "", "",
          lambda c: (c.wanted, c.device.registers_per_thread), lambda c: c.origin,
          legality=False, hardware=True),
    Limit("E-VGPR-ALLOC", "per SIMD", "", "",
          lambda c: (_round_up(c.wanted, c.device.register_granularity),
                     floor_div(c.device.registers_per_simd_lane, c.waves_per_simd)),
          lambda c: f"{c.device.registers_per_simd_lane} / {c.waves_per_simd} wavefronts",
          legality=False, hardware=True),
    Limit("E-LDS-BLOCK", "block limit", "B", "",
          lambda c: (c.footprint.lds_bytes, c.device.lds_bytes_per_block),
          legality=False, hardware=True),
    Limit("E-LDS-ALLOC", "allocated", "B", "",
          lambda c: (_allocated(c), c.device.lds_bytes_per_cu // c.block_n), _kept_by_driver,
          legality=False, hardware=True),
    Limit("E-BLOCKS", "blocks", "", "", lambda c: (c.block_n, c.device.blocks_per_cu),
          legality=False, hardware=True),
)


@lru_cache(maxsize=64)
def limits_of(algorithm: Algorithm, rules: Rules, masked: bool) -> tuple[Limit, ...]:
    """The limits of *rules* for an algorithm's tilings: the paper's, then those of the hardware.

    Raises SpecError for an unknown rule set.
    """
    if rules not in RULES:
        raise SpecError(f"rules must be one of {', '.join(RULES)}, got {rules!r}")
    limits = sorted((*DEVICE_LIMITS, *algorithm.limits), key=lambda limit: limit.hardware)
    return tuple(limit for limit in limits if not (limit.hardware and rules == "paper")
                 and not (masked and limit.exact_only))


def ledger(case: Case, rules: Rules, masked: bool) -> tuple[Check, ...]:
    """Every limit of *rules* with what the tiling uses and may use."""
    return tuple(limit.check(case) for limit in limits_of(case.algorithm, rules, masked))


def keeps_all(case: Case, rules: Rules, masked: bool, legality: bool | None = None) -> Any:
    """Mask of the columns that keep every limit of *rules* (or, for one tiling, whether it does).

    *legality* True judges by R1–R5 and the like alone, False by the resource limits alone.
    """
    keep: Any = True
    for limit in limits_of(case.algorithm, rules, masked):
        if legality in (None, limit.legality):
            used, allowed = limit.measure(case)
            keep = keep & (used <= allowed)
    return keep


def residency(case: Case, rules: Rules) -> Count:
    """The most blocks of a tiling that one CU holds under *rules* (at least 1).

    A tiling that is valid at some residency is valid at every lower one, so this is derived and
    not searched (Block_N of Liu et al. 2024, §5.1.2).
    """
    device, footprint = case.device, case.footprint
    blocks = np.minimum(floor_div(device.waves_per_cu, footprint.waves),
                        floor_div(device.lds_bytes_per_cu, np.maximum(footprint.lds_bytes, 1)))
    threads = footprint.waves * device.wavefront
    blocks = np.minimum(blocks, floor_div(device.registers_per_cu, case.registers * threads))
    if rules == "hardware":
        registers = _round_up(case.wanted, device.register_granularity)
        waves = device.simds_per_cu * floor_div(device.registers_per_simd_lane, registers)
        blocks = np.minimum(np.minimum(blocks, floor_div(waves, footprint.waves)),
                            device.blocks_per_cu)
        blocks = np.minimum(blocks, floor_div(device.lds_bytes_per_cu,
                                              np.maximum(_allocated(case), 1)))
    return np.maximum(blocks, 1)
