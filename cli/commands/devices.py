"""`dscore devices`: the known devices, every figure of one, and what this machine can run."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Annotated

import typer

from dscore.cli import options
from dscore.cli.show.json import Record, print_json
from dscore.cli.show.text import print_table

if TYPE_CHECKING:
    from dscore.building.compilers import Kind
    from dscore.core.device import Device

_COLUMNS = ("name", "title", "made for", ">wave", ">CUs", ">LDS/CU", ">registers/CU", ">GB/s")
_SPARE = ("registers/CU", "LDS/CU", "wave")
_TARGETS: dict[Kind, str] = {"host": "emulated", "hip": "gfx...", "nvcc": "sm_..."}


def devices(
    name: Annotated[str | None, typer.Argument(
        metavar="[NAME|FILE.toml]", show_default=False,
        help="Show every figure of this device.")] = None,
    json: options.Json = False,
) -> None:
    """Show the known devices, and the backends and compilers of this machine.

    \b
    dscore devices
    dscore devices h200
    dscore devices mine.toml --json
    """
    _show_one(name, json) if name else _show_all(json)


def _show_all(json: bool) -> None:
    """The table of shipped devices, the backends and the compilers."""
    from dscore.core import catalog

    shipped = catalog.devices().values()
    if json:
        print_json({"devices": [asdict(device) for device in shipped],
                    "backends": backend_records(), "compilers": _compiler_records()})
        return
    print_table(_COLUMNS, [_row(device) for device in shipped], spare=_SPARE)
    print()
    print_backends()
    print()
    _print_compilers()


def _row(device: Device) -> tuple[str, ...]:
    return (device.name, device.title, f"{device.vendor} {device.architecture}",
            str(device.wavefront), str(device.compute_units),
            f"{device.lds_bytes_per_cu // 1024} KiB", f"{device.registers_per_cu:,}",
            f"{device.bandwidth_bytes_per_second / 1e9:,.0f}")


def _show_one(name: str, json: bool) -> None:
    """Every figure of one device."""
    from dscore.core import catalog

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
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    for ending, scale, unit in (("bytes_per_second", 1e9, "GB/s"), ("_hz", 1e6, "MHz"),
                                ("_flops", 1e12, "TFLOP/s"), ("_seconds", 1e-6, "µs")):
        if name.endswith(ending):
            return f"{float(value) / scale:,.6g} {unit}"  # type: ignore[arg-type]
    return f"{value:,}" + (" B" if "bytes" in name else "")


def backend_records() -> list[Record]:
    """Each registered backend, and what it misses on this machine."""
    from dscore.core.backend import backend, backend_names

    missing = {name: backend(name).missing() for name in backend_names()}
    return [{"name": name, "present": reason is None, "missing": reason}
            for name, reason in missing.items()]


def print_backends() -> None:
    """The backends as a table: present, or why not and how to mend that."""
    print_table(("backend", "on this machine"),
                [(record["name"], record["missing"] or "present") for record in backend_records()],
                verdict=True)


def _compiler_records() -> list[Record]:
    """Each kind of compiler: which one is found, or why none is."""
    from dscore.building.compilers import KINDS

    return [_compiler_record(kind) for kind in KINDS]


def _compiler_record(kind: Kind) -> Record:
    from dscore.building.compilers import find_compiler
    from dscore.core.errors import UnavailableError

    record = {"kind": kind, "targets": _TARGETS[kind], "path": None, "version": None}
    try:
        compiler = find_compiler(kind)
        return {**record, "path": compiler.path, "version": compiler.version, "missing": None}
    except UnavailableError as missing:
        return {**record, "missing": str(missing)}


def _print_compilers() -> None:
    """The compilers as a table: which and where, or why there is none and how to mend that."""
    print_table(("compiler", "builds for", "on this machine"), [
        (record["kind"], record["targets"],
         record["missing"] or f"present at {record['path']} ({record['version']})")
        for record in _compiler_records()], verdict=True)
