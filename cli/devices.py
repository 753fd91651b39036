"""`dscore devices`: the devices that are known, all figures of one, and what is on this machine."""

from __future__ import annotations

from dataclasses import asdict, fields

from dscore.building.compilers import KINDS, Kind, find_compiler
from dscore.cli.output import print_json, print_table
from dscore.cli.records import Record
from dscore.core import catalog
from dscore.core.backend import backend, backend_names
from dscore.core.device import Device
from dscore.core.errors import UnavailableError

_COLUMNS = ("name", "title", "made for", ">wave", ">CUs", ">LDS/CU", ">registers/CU", ">GB/s")
_TARGETS: dict[Kind, str] = {"host": "emulated", "hip": "gfx...", "nvcc": "sm_..."}


def show_all(json: bool) -> None:
    """The table of shipped devices, the backends and the compilers."""
    known = catalog.devices().values()
    if json:
        print_json({"devices": [asdict(device) for device in known],
                    "backends": backend_records(), "compilers": compiler_records()})
        return
    print_table(_COLUMNS, [_row(device) for device in known])
    print()
    print_backends()
    print()
    print_compilers()


def _row(device: Device) -> tuple[str, ...]:
    return (device.name, device.title, f"{device.vendor} {device.architecture}",
            str(device.wavefront), str(device.compute_units),
            f"{device.lds_bytes_per_cu // 1024} KiB", f"{device.registers_per_cu:,}",
            f"{device.bandwidth_bytes_per_second / 1e9:,.0f}")


def show_one(name: str, json: bool) -> None:
    """Every figure of one device."""
    device = catalog.device(name)
    if json:
        print_json(asdict(device))
        return
    width = max(len(field.name) for field in fields(device))
    for field in fields(device):
        print(f"{field.name:<{width}}  {_shown(field.name, getattr(device, field.name))}")


def _shown(name: str, value: object) -> str:
    if value is None:
        return "not measured"
    if isinstance(value, str):
        return value
    for ending, scale, unit in (("bytes_per_second", 1e9, "GB/s"), ("_hz", 1e6, "MHz"),
                                ("_flops", 1e12, "TFLOP/s"), ("_seconds", 1e-6, "µs")):
        if name.endswith(ending):
            return f"{float(value) / scale:,.6g} {unit}"  # type: ignore[arg-type]
    return f"{value:,}" + (" B" if "bytes" in name else "")


def backend_records() -> list[Record]:
    """Each registered backend, and what it misses on this machine."""
    missing = {name: backend(name).missing() for name in backend_names()}
    return [{"name": name, "present": reason is None, "missing": reason}
            for name, reason in missing.items()]


def print_backends() -> None:
    """The backends as a table: present, or why not and how to mend that."""
    print_table(("backend", "on this machine"),
                [(record["name"], record["missing"] or "present") for record in backend_records()],
                verdict=True)


def compiler_records() -> list[Record]:
    """Each kind of compiler: which one is found, or why none is."""
    return [_compiler_record(kind) for kind in KINDS]


def _compiler_record(kind: Kind) -> Record:
    found = {"kind": kind, "targets": _TARGETS[kind], "path": None, "version": None}
    try:
        compiler = find_compiler(kind)
    except UnavailableError as missing:
        return {**found, "missing": str(missing)}
    return {**found, "path": compiler.path, "version": compiler.version, "missing": None}


def print_compilers() -> None:
    """The compilers as a table: which and where, or why there is none and how to mend that."""
    print_table(("compiler", "builds for", "on this machine"), [
        (record["kind"], record["targets"],
         record["missing"] or f"present at {record['path']} ({record['version']})")
        for record in compiler_records()], verdict=True)
