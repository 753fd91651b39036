"""Description of the GPU that is here: the shipped one, that of a file, or one of its driver.

A description made of the driver's properties lacks the bandwidth and the time of a launch. Both are
measured once for a kind of GPU and a driver, and kept in the cache.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

from dscore._version import __version__
from dscore.cache.store import Store, key
from dscore.core import catalog
from dscore.core.device import Device
from dscore.core.driver import Description, DriverProperties, described, of_file, shipped_device
from dscore.core.errors import DscoreError, SpecError, UnavailableError
from dscore.core.once import once
from dscore.measuring.clocks import VendorClock
from dscore.measuring.timing import Effort, NoGraphError, Replay, Work, device_times
from dscore.measuring.vendor_runtime import VENDORS, Runtime, missing_runtime, runtime

# Names the description to be used: a device's name, a file, or "driver" for one of the driver's
# properties alone.
VARIABLE = "DSCORE_DEVICE"
_STORE = Store("devices")
# A copy of the measurement takes about so long, and exceeds the last-level cache so often.
_COPY_SECONDS = 0.3e-3
_CACHE_TIMES = 4
# Some 20 copies and 200 launches in all.
_EFFORT = Effort(turns=2, replay_seconds=6e-4, total_seconds=2e-3, most_replays=3,
                 probe_launches=2, most_launches=256)
_PATTERN = 0x5A  # no zeros: a memory that compresses would be faster with them


@dataclass(frozen=True)
class Figures:
    """Bytes per second of a copy, both directions counted, and seconds of a launch in a graph."""

    bytes_per_second: float
    launch_seconds: float


def description(runtime: Runtime, index: int, measure: bool = True) -> Description:
    """The description of a device of *runtime*.

    Without *measure*, as within a capture, a figure that is not on record yet stays an estimate.
    Raises UnavailableError where nothing is known of the device's architecture, SpecError where
    DSCORE_DEVICE names what is no device of its architecture.
    """
    setting = os.environ.get(VARIABLE, "")
    if measure:
        return _measured_description(runtime, index, setting)
    return _described(runtime, index, setting, measure=False)


@once
def _measured_description(runtime: Runtime, index: int, setting: str) -> Description:
    return _described(runtime, index, setting, measure=True)


def _described(runtime: Runtime, index: int, setting: str, measure: bool) -> Description:
    properties = runtime.driver_properties(index)
    if setting not in ("", "driver"):
        return of_file(_fitting(catalog.device(setting), properties), f"{VARIABLE}={setting}")
    shipped = None if setting else shipped_device(properties)
    if shipped is not None:
        return of_file(shipped, f"the shipped file {shipped.name}.toml")
    made = described(properties)
    figures = _on_record(runtime, properties)
    if figures is None and measure:
        figures = _figures(runtime, index, properties, made.device)
    return made if figures is None else made.with_figures(
        "measured", measured_bandwidth_bytes_per_second=figures.bytes_per_second,
        measured_launch_seconds=figures.launch_seconds)


def _fitting(device: Device, properties: DriverProperties) -> Device:
    if device.architecture != properties.architecture:
        raise SpecError(f"{VARIABLE} names {device.name} ({device.architecture}), but "
                        f"{properties.title} is {properties.architecture}")
    return device


def _record_key(runtime: Runtime, properties: DriverProperties) -> str:
    return key("device", repr(sorted(asdict(properties).items())), str(runtime.driver_version()))


def _on_record(runtime: Runtime, properties: DriverProperties) -> Figures | None:
    """The figures that were kept of this kind of GPU with its driver of today."""
    entry = _STORE.get(_record_key(runtime, properties))
    if entry is None:
        return None
    with suppress(KeyError, TypeError, ValueError):
        figures = Figures(*(float(entry.meta[name]) for name in (
            "bytes_per_second", "launch_seconds")))
        if 0 < figures.bytes_per_second < float("inf") and 0 < figures.launch_seconds < 1:
            return figures
    return None


def _figures(runtime: Runtime, index: int, properties: DriverProperties,
             device: Device) -> Figures | None:
    """The figures measured now and kept; None where they cannot be, or another process measures."""
    # From its import on, filelock has Python ask a hook at each call of id() (sys.addaudithook),
    # which makes a call of dscore.conv take 5 % longer: only a process that measures may pay that.
    from dscore.measuring.gpu_lock import gpu_lock

    try:
        with gpu_lock(runtime.slot(index), wait=False):
            # That of a process that came first counts, so that all of them plan alike.
            figures = _on_record(runtime, properties) or measured(runtime, index, device)
    except (DscoreError, OSError):
        return None
    with suppress(UnavailableError):  # no folder can be written
        _STORE.put(_record_key(runtime, properties), {}, {
            **asdict(figures), "title": properties.title, "target": properties.architecture,
            "compiler_version": f"driver {runtime.driver_version()}", "dscore": __version__})
    return figures


def measured(runtime: Runtime, index: int, device: Device) -> Figures:
    """The figures of a GPU, in less than 0.1 s: medians of copies and of small fills.

    Raises LaunchError or UnavailableError where the device or its bindings cannot.
    """
    size = int(max(_CACHE_TIMES * device.l2_bytes, device.bandwidth * _COPY_SECONDS / 2))
    try:
        clock, size = VendorClock(runtime, index), min(size, device.memory_bytes // 16)
        with runtime.on(index), _buffers(runtime, size) as (target, source):
            fill = _Stream("fill", lambda stream: runtime.fill(target, _PATTERN, 4, stream))
            copy = _Stream("copy", lambda stream: runtime.copy(target, source, size, stream))
            launch, = device_times(clock, [fill], 1, _EFFORT)
            # Of a graph's copies a copy engine may be in charge, which reaches less.
            copies = [device_times(one, [copy], 1, _EFFORT)[0].median
                      for one in (clock, _Eager(runtime, index))]
    except (AttributeError, TypeError) as failed:
        raise UnavailableError(f"the bindings lack a call: {failed}") from failed
    return Figures(_rounded(2 * size / min(copies)), _rounded(launch.median))


def _rounded(figure: float) -> float:
    """Two digits: what a next measurement would find as well, so that plans stay the same."""
    return float(f"{figure:.2g}")


class _Stream:
    """Subject of device_times: a call of the runtime on a stream."""

    def __init__(self, name: str, call: Work) -> None:
        self.name, self._call = name, call

    def launch(self, index: int, stream: int) -> None:
        self._call(stream)

    @contextmanager
    def settings(self) -> Iterator[None]:
        yield


class _Eager(VendorClock):
    """A clock that makes no graphs."""

    def record(self, work: Work) -> Replay:
        raise NoGraphError("not asked for")


@contextmanager
def _buffers(runtime: Runtime, size: int) -> Iterator[list[int]]:
    """Two buffers of device memory, filled."""
    addresses: list[int] = []
    try:
        for _ in range(2):
            addresses.append(runtime.allocate(size))
            runtime.fill(addresses[-1], _PATTERN, size)
        yield addresses
    finally:
        runtime.synchronize()
        for address in addresses:
            runtime.free(address)


def descriptions_here(measure: bool = True) -> list[Description]:
    """The descriptions of this machine's GPUs, alike ones once; UnavailableError without a GPU.

    No compiler is needed.
    """
    missing = {vendor: missing_runtime(vendor) for vendor in VENDORS}
    present = [vendor for vendor, reason in missing.items() if reason is None]
    if not present:
        raise UnavailableError("no GPU is here: " + "; ".join(map(str, missing.values())))
    found: dict[Device, Description] = {}
    for vendor in present:
        for index in range(runtime(vendor).count()):
            one = description(runtime(vendor), index, measure)
            found.setdefault(one.device, one)
    return list(found.values())
