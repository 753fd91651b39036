"""Registers that a device leaves a thread, whatever its kernel wants.

Each algorithm predicts what compilers take (`Algorithm.registers`, `Algorithm.most_registers`);
docs/registers.md has the measurements.
"""

from __future__ import annotations

import numpy as np

from dscore.algorithms.columns import Count, ceil_div, floor_div
from dscore.core.device import Device


def launchable(device: Device, waves: Count) -> Count:
    """The most registers with which a block of *waves* wavefronts starts, which compilers keep to.

    Kernels state their threads to the compiler (`__launch_bounds__` in hip_src/support). Where a
    file holds twice what a thread can name, as on gfx90a, the other half are accumulators, in
    which hipcc keeps what does not fit.
    """
    share = floor_div(device.registers_per_simd_lane, ceil_div(waves, device.simds_per_cu))
    accumulators = roomy(device) and (
        device.registers_per_simd_lane == 2 * device.registers_per_thread)
    return np.clip(share // device.register_granularity * device.register_granularity, 1,
                   device.registers_per_thread * (2 if accumulators else 1))


def roomy(device: Device) -> bool:
    """Whether it is AMD's and has more registers than its threads can name, as from gfx90a on.

    hipcc then takes more for the same kernel: it loses no wavefronts by that, or fewer.
    """
    return (device.vendor != "nvidia"
            and device.registers_per_simd_lane > device.registers_per_thread)
