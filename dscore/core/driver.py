"""GPUs as their drivers report them: which shipped device one is, else a description made of it.

A description has each figure from the driver where that is reliable, else from the GPU's
architecture (`dscore.core.architectures`), and says of each where it is from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from dscore.core import catalog
from dscore.core.architectures import Architecture, architecture
from dscore.core.device import Device
from dscore.core.errors import SpecError, UnavailableError

# Words of a driver's name that tell no part from another.
_COMMON = {"nvidia", "tesla", "quadro", "geforce", "amd", "instinct", "hygon", "dcu", "tm", "r"}
# Drivers keep up to a tenth of the memory for themselves, and for error correction.
_MEMORY_SHARE = 0.12
# Where a driver reports no clock of the memory: the float32 operations for each byte of it that
# the shipped devices have, about (a T4 25, an MI100 19, a Z100SM 14).
_FLOPS_PER_BYTE = 20.0


@dataclass(frozen=True)
class DriverProperties:
    """Properties of a GPU as its driver reports them; 0 for a figure that it does not report.

    Names are those of `dscore.core.device.Device`; the bus is that of the memory.
    """

    vendor: str
    title: str
    architecture: str
    compute_units: int = 0
    wavefront: int = 0
    threads_per_block: int = 0
    threads_per_cu: int = 0
    blocks_per_cu: int = 0
    registers_per_cu: int = 0
    lds_bytes_per_cu: int = 0
    lds_bytes_per_block: int = 0
    l2_bytes: int = 0
    memory_bytes: int = 0
    clock_hz: float = 0.0
    memory_clock_hz: float = 0.0
    memory_bus_bits: int = 0


@dataclass(frozen=True)
class Description:
    """Device of this machine, with the origin of each of its figures, in words."""

    device: Device
    origins: Mapping[str, str]

    def with_figures(self, source: str, **figures: float) -> Description:
        """The description with *figures* in place of those it has, and their *source*."""
        return Description(replace(self.device, **figures),  # type: ignore[arg-type]
                           {**self.origins, **dict.fromkeys(figures, source)})


def of_file(device: Device, shown: str) -> Description:
    """The description of a device that a file states; *shown* names the file.

    >>> of_file(catalog.device("z100sm"), "the shipped file").origins["clock_hz"]
    'the shipped file, assumed'
    """
    return Description(device, {
        field.name: ", ".join(filter(None, (shown, "assumed" * (field.name in device.assumed))))
        for field in fields(Device) if getattr(device, field.name) != field.default})


def shipped_device(properties: DriverProperties) -> Device | None:
    """The shipped device that a GPU is: of its architecture, compute units, memory and name.

    >>> t4 = DriverProperties("nvidia", "Tesla T4", "sm_75", 40, memory_bytes=15_843_721_216)
    >>> shipped_device(t4).name
    't4'
    """
    words = _words(properties.title)
    for device in catalog.devices().values():
        memory = abs(device.memory_bytes - properties.memory_bytes)
        if (device.architecture == properties.architecture
                and device.compute_units == properties.compute_units
                and memory <= _MEMORY_SHARE * device.memory_bytes
                and words in [_words(name) for name in device.driver_names]):
            return device
    return None


def _words(title: str) -> set[str]:
    return set(re.findall("[a-z0-9]+", title.lower())) - _COMMON


def described(properties: DriverProperties) -> Description:
    """The device that a driver reports, with the limits of its architecture.

    Raises UnavailableError where nothing is known of the architecture, or where the driver
    contradicts it.

    >>> made = described(DriverProperties("nvidia", "NVIDIA RTX 4000 Ada", "sm_89", 48, 32,
    ...     memory_bytes=20 << 30, clock_hz=2.175e9, memory_clock_hz=9.001e9, memory_bus_bits=160))
    >>> made.device.name, made.device.bandwidth_bytes_per_second / 1e9
    ('nvidia_rtx_4000_ada_48cu', 360.04)
    >>> made.origins["waves_per_simd"], made.origins["compute_units"]
    ('the architecture sm_89', 'the driver')
    """
    limits = architecture(properties.architecture)
    values: dict[str, Any] = dict(limits.limits)
    origins = dict.fromkeys(values, limits.source)
    origins |= dict.fromkeys(limits.assumed, f"{limits.source}, assumed")
    reported = _reported(properties, limits)
    for field, value in reported.items():
        values[field], origins[field] = value, "the driver"
    values["lds_bytes_per_cu"] = max(values["lds_bytes_per_cu"], values["lds_bytes_per_block"])
    assumed = [field for field in limits.assumed if field not in reported]
    for field, (value, source) in _estimates(properties, limits, values).items():
        values[field], origins[field] = value, source
        assumed.append(field)
    try:
        device = Device(**values | _identity(properties), assumed=tuple(assumed))
    except SpecError as error:
        raise UnavailableError(f"the driver of {properties.title} reports no GPU that dscore can "
                               f"plan for: {error}") from None
    return Description(device, origins)


def _reported(properties: DriverProperties, limits: Architecture) -> dict[str, Any]:
    """The figures that the driver states, by field."""
    simds, wavefront = limits.limits["simds_per_cu"], limits.limits["wavefront"]
    if properties.wavefront not in (0, wavefront):
        raise UnavailableError(
            f"the driver of {properties.title} reports wavefronts of {properties.wavefront}, "
            f"kernels for {properties.architecture} have {wavefront}")
    if not properties.compute_units:
        raise UnavailableError(f"the driver of {properties.title} reports no compute units")
    figures = {field.name: getattr(properties, field.name) for field in fields(Device)
               if field.default is MISSING and hasattr(properties, field.name)
               and field.name not in ("vendor", "architecture")}
    figures["waves_per_simd"] = properties.threads_per_cu // (simds * wavefront)
    return {field: value for field, value in figures.items() if value}


def _identity(properties: DriverProperties) -> dict[str, Any]:
    """The name of a described device: never that of a shipped one, of which hints are."""
    # A table on a terminal shows it.
    printable = "".join(filter(str.isprintable, properties.title)).strip()
    title = printable or f"{properties.vendor} {properties.architecture}"
    slug = re.sub("[^a-z0-9]+", "_", title.lower()).strip("_")
    slug = slug if slug[:1].isalpha() else f"gpu_{slug}"
    return {"name": f"{slug[:48]}_{properties.compute_units}cu", "title": title,
            "architecture": properties.architecture, "driver_names": (title,)}


def _estimates(properties: DriverProperties, limits: Architecture,
               values: Mapping[str, Any]) -> dict[str, tuple[float, str]]:
    """Estimates of what the driver does not report, each with its reason."""
    estimates: dict[str, tuple[float, str]] = {
        field: (value, "assumed: the driver does not report it") for field, value in (
            ("clock_hz", 1e9), ("l2_bytes", 1 << 20), ("memory_bytes", 1 << 30))
        if field not in values}
    stated = {**{field: value for field, (value, _) in estimates.items()}, **values}
    clock, bits = properties.memory_clock_hz, properties.memory_bus_bits
    bandwidth = limits.transfers_per_clock * clock * bits / 8
    reason = f"assumed: {bits:,} bits * {clock / 1e6:,.0f} MHz * {limits.transfers_per_clock}"
    if not bandwidth:
        flops = 2.0 * stated["fp32_lanes_per_cu"] * stated["compute_units"] * stated["clock_hz"]
        bandwidth, reason = flops / _FLOPS_PER_BYTE, "assumed: a byte for 20 float32 operations"
    return estimates | {"bandwidth_bytes_per_second": (bandwidth, reason)}


def device_file(description: Description) -> str:
    """The TOML file of a description, each figure with its origin.

    >>> print(device_file(of_file(catalog.device("v100"), "data sheet")).splitlines()[5])
    compute_units = 80  # data sheet
    """
    lines = []
    for field in fields(Device):
        value = getattr(description.device, field.name)
        if value != field.default:
            origin = description.origins.get(field.name)
            lines.append(f"{field.name} = {_toml(value)}" + (f"  # {origin}" if origin else ""))
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = "".join(f"\\u{ord(one):04x}" if ord(one) < 32 or one in '"\\\x7f' else one
                          for one in value)
        return f'"{escaped}"'
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return f"{{ {', '.join(f'{name} = {_toml(rate)}' for name, rate in value)} }}"
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(one) for one in value)}]"
    return f"{value:_}" if isinstance(value, int) else repr(value)
