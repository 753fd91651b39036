"""Times of kernels in a captured graph, by their ends, as a profiler has them.

A kernel may begin before the one in front of it has ended (`Device.early_start`), so its duration
holds the wait for that one. Ends come one after the other: the differences of neighbours add up to
the time of the graph, and part it among its kernels (docs/network_notes.md).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dscore.core.errors import UnavailableError
from dscore.measuring.timing import Clock, Replay

# Replays before those that count: the first ones wait for the host.
_WARM_REPLAYS = 3
# What the profiler has beside the work of a device: waits of the host for it.
_WAITS = "Sync"


@dataclass(frozen=True)
class KernelEnd:
    """Name of a kernel, as the profiler has it, and the seconds at which it ended."""

    name: str
    seconds: float


@dataclass(frozen=True)
class KernelTimes:
    """Seconds from the end before a kernel's to its own, of each replay of a graph."""

    name: str
    samples: tuple[float, ...]


def times_by_ends(ends: Sequence[KernelEnd], replays: int) -> list[KernelTimes]:
    """Times of each kernel of a graph, by the ends of all kernels of so many replays of it.

    Raises UnavailableError where the replays are not told apart: some ends are missing.

    >>> ends = [KernelEnd(name, at) for at, name in enumerate("abababab")]
    >>> times_by_ends(ends, 4)
    [KernelTimes(name='a', samples=(1,)), KernelTimes(name='b', samples=(1,))]
    """
    ordered = sorted(ends, key=lambda end: end.seconds)
    count = len(ordered) // replays
    names = [end.name for end in ordered[:count]]
    if not ordered or [end.name for end in ordered] != names * replays:
        raise UnavailableError(f"the profiler saw {len(ordered)} kernels of {replays} replays of a "
                               "graph, which do not make equal replays; try again where nothing "
                               "else runs on the GPU")
    return [KernelTimes(name, tuple(
        ordered[replay * count + number].seconds - ordered[replay * count + number - 1].seconds
        for replay in range(_WARM_REPLAYS, replays))) for number, name in enumerate(names)]


def kernel_times(torch: Any, clock: Clock, replay: Replay, replays: int) -> list[KernelTimes]:
    """Times of the kernels of a graph of PyTorch's, in *replays* replays but for the first three.

    Raises UnavailableError where PyTorch's profiler sees no kernels of the device.
    """
    profiler = torch.profiler
    replay()
    clock.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a profile has one cycle
        with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(replays):
                replay()
            clock.synchronize()
    on_device = torch.autograd.DeviceType.CUDA
    return times_by_ends(
        [KernelEnd(event.name, event.time_range.end * 1e-6) for event in profile.events()
         if event.device_type == on_device and event.time_range.elapsed_us() > 0
         and _WAITS not in event.name], replays)
