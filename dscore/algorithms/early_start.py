"""What tilings that work ahead have in common: on devices whose blocks may come while the kernel
before still runs (`Device.early_start`), and then ask the L2 cache for what they will read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from dscore.algorithms.base import Limit
from dscore.algorithms.columns import Count, ceil_div, concatenate, select
from dscore.core.device import Device
from dscore.core.plan import Plan
from dscore.ops import operands_of

AHEAD_LIMIT = Limit("E-AHEAD", "ahead", "", "",
                    lambda c: (1 * np.asarray(c.tiling.ahead), int(c.device.early_start)),
                    lambda c: "needs a device with an early start")
# Blocks for each compute unit up to which row_reuse was seen to gain by working ahead
# (docs/benchmark_notes.md).
_MOST_BLOCKS = 32
# Elements of all operands of the smallest layer whose blocks are spread. Blocks of less may lie
# together: the next kernel's gain more by room beside them (docs/benchmark_notes.md).
_SPREAD_ELEMENTS = 1 << 20


def spread_lds_bytes(plan: Plan) -> int:
    """LDS that a launch asks for of each block, by which a compute unit has room for an even share
    of the blocks and no more; 0 where it has no room for more anyway.

    Blocks that come while the kernel before still runs crowd on the compute units that it leaves
    first, as many as have room there. A grid that the device could hold twice so takes half of the
    compute units, and twice the time.
    """
    device, launch = plan.device, plan.launch
    elements = sum(one.elements for one in operands_of(plan.problem))
    share, unit = ceil_div(launch.blocks, device.compute_units), device.lds_granularity_bytes
    reserved = device.lds_reserved_bytes
    asked = device.lds_bytes_per_cu // (share + 1) // unit * unit + unit - reserved
    fits = (share * (asked + reserved) <= device.lds_bytes_per_cu
            and asked <= device.lds_bytes_per_block)
    crowds = (share + 1) * plan.use.waves <= device.waves_per_cu and asked > launch.lds_bytes
    spread = device.early_start and elements >= _SPREAD_ELEMENTS and fits and crowds
    return int(asked) if spread else 0


def packing(tiling: Any, grids: Count, several_tiles: Count = False
            ) -> Count:
    """The work of the CU that has most, over an even share, at worst: of a grid that fills the
    device *grids* times.

    Blocks that come early take what room there is beside the grid before. Where that is too little
    for all and the device holds all of a grid, the CUs that end first take the rest. Blocks
    of *several_tiles* crowd on those CUs however few they are.
    """
    ahead = np.asarray(tiling.ahead) & ((grids > 1 / 2) | several_tiles) & (grids < 1)
    return np.where(ahead, 1 / grids, 1.0)


def with_ahead(columns: SimpleNamespace, blocks: Count, device: Device,
               able: Count = True) -> SimpleNamespace:
    """The columns as they are, and working ahead where those that are *able* may gain by it."""
    first, *_ = vars(columns).values()
    plain = SimpleNamespace(**vars(columns), ahead=np.zeros(len(first), dtype=bool))
    if not device.early_start:
        return plain
    ahead = SimpleNamespace(**vars(columns), ahead=np.ones(len(first), dtype=bool))
    few = blocks <= _MOST_BLOCKS * device.compute_units
    return concatenate(plain, select(ahead, few & able))
