"""`dscore devices`: the known devices, every figure of one, and what this machine can run."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Annotated

import typer

from dscore.cli import options
from dscore.cli.show.json import Record, print_json
from dscore.cli.show.text import print_table, print_text

if TYPE_CHECKING:
    from dscore.building.compiler_places import Kind
    from dscore.core.device import Device
    from dscore.core.driver import Description

_COLUMNS = ("name", "title", "made for", ">wave", ">CUs", ">LDS/CU", ">registers/CU", ">GB/s")
_SPARE = ("registers/CU", "LDS/CU", "wave")
_TARGETS: dict[Kind, str] = {"host": "emulated", "hip": "gfx...", "nvcc": "sm_..."}


def devices(
    name: Annotated[str | None, typer.Argument(
        metavar="[NAME|FILE.toml]", show_default=False,
        help="Show every figure of this device.")] = None,
    here: Annotated[bool, typer.Option(
        "--here", help="Show the GPU of this machine, and the origin of each figure.")] = False,
    toml: Annotated[bool, typer.Option(
        "--toml", help="Print a device file, which --device and DSCORE_DEVICE take.")] = False,
    json: options.Json = False,
) -> None:
    """Show the known devices, and the backends and compilers of this machine.

    \b
    dscore devices
    dscore devices rtx4090
    dscore devices --here
    dscore devices --here --toml > mine.toml
    """
    from dscore.core.errors import SpecError

    if name is not None and here:
        raise SpecError(f"--here is the GPU of this machine; leave it or {name} out")
    if toml and name is None and not here:
        raise SpecError("--toml prints one device: name it, or add --here")
    if name is not None:
        _show_named(name, toml, json)
    elif here:
        _show_here(toml, json)
    else:
        _show_all(json)


def _show_all(json: bool) -> None:
    """The table of shipped devices, the backends and the compilers."""
    from dscore.core import catalog

    shipped = catalog.devices().values()
    if json:
        print_json({"devices": [asdict(device) for device in shipped],
                    "gpus": gpu_records(), "backends": backend_records(),
                    "compilers": compiler_records()})
        return
    print_table(_COLUMNS, [_row(device) for device in shipped], spare=_SPARE)
    for device in shipped:
        if device.assumed:
            print_text(f"{device.name}: assumed, as no source states them: "
                       f"{', '.join(device.assumed)}")
    print()
    print_backends()
    for gpu in gpu_records():
        print_text("; not through ".join([gpu_text(gpu), *gpu["passed_over"]]))
    print()
    print_compilers()


def _row(device: Device) -> tuple[str, ...]:
    return (device.name, device.title, f"{device.vendor} {device.architecture}",
            str(device.wavefront), str(device.compute_units),
            f"{device.lds_bytes_per_cu // 1024} KiB", f"{device.registers_per_cu:,}",
            f"{device.bandwidth_bytes_per_second / 1e9:,.0f}")


def _show_named(name: str, toml: bool, json: bool) -> None:
    """Every figure of a device of a file, with a word where it is assumed."""
    from dscore.core import catalog
    from dscore.core.driver import device_file, of_file

    device = catalog.device(name)
    if json:
        print_json(asdict(device))
    elif toml:
        print(device_file(of_file(device, "")), end="")
    else:
        width = max(map(len, _rows(device)))
        for field, value in _rows(device).items():
            print(f"{field:<{width}}  {value}" + " (assumed)" * (field in device.assumed))


def _show_here(toml: bool, json: bool) -> None:
    """Every figure of the GPUs of this machine, with its origin."""
    from dscore.core.driver import device_file
    from dscore.core.errors import SpecError
    from dscore.measuring.gpu_description import descriptions_here

    described = descriptions_here()
    if toml and len(described) > 1:
        titles = ", ".join(one.device.title for one in described)
        raise SpecError(f"there are several GPUs here ({titles}); choose one by "
                        "CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES")
    if json:
        print_json([{**asdict(one.device), "origins": dict(one.origins)} for one in described])
    elif toml:
        print(device_file(described[0]), end="")
    else:
        for number, one in enumerate(described):
            print("\n" * (number > 0), end="")
            _print_origins(one)


def _print_origins(description: Description) -> None:
    rows, origins = _rows(description.device), description.origins
    width, most = max(map(len, rows)), max(len(rows[field]) for field in origins if field in rows)
    for field, value in rows.items():
        print_text(f"{field:<{width}}  {value:<{most}}  {origins.get(field, '')}".rstrip(),
                   hanging=width + 2)


def _rows(device: Device) -> dict[str, str]:
    """The figures as texts; which are assumed, each of them says itself."""
    return {field.name: _shown(field.name, getattr(device, field.name))
            for field in fields(device) if field.name != "assumed"}


def _shown(name: str, value: object) -> str:
    if value is None:
        return "not measured"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        listed = (f"{one[0]} {one[1] / 1e12:,.5g}" if isinstance(one, tuple) else str(one)
                  for one in value)
        unit = " TFLOP/s" * (name.endswith("_flops") and bool(value))
        return ", ".join(listed) + unit or ("not measured" if "measured" in name else "none")
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


def gpu_records() -> list[Record]:
    """GPUs that the vendors' runtimes find, through which bindings, and which were passed over."""
    from dscore.core.errors import LaunchError
    from dscore.measuring import vendor_runtime

    gpus: list[Record] = []
    for vendor in vendor_runtime.VENDORS:
        record: Record = {"vendor": vendor, "architecture": None, "through": None,
                          "passed_over": []}
        try:
            here = vendor_runtime.runtime(vendor)
            record |= {"through": here.source, "passed_over": list(here.passed_over)}
            gpus += [record | dict(zip(("name", "architecture"), here.identity(index), strict=True))
                     for index in range(here.count())]
        except ImportError:
            continue
        except (AttributeError, OSError, RuntimeError, LaunchError) as failed:
            gpus.append(record | {"name": str(failed)})
    return gpus


def gpu_text(gpu: Record) -> str:
    """A GPU's name, architecture, and what dscore reaches it through."""
    known = ", ".join(filter(None, (gpu["name"], gpu["architecture"])))
    return f"{known}, through {gpu['through']}" if gpu["through"] else known


def compiler_records() -> list[Record]:
    """Each kind of compiler: which one is taken and why, or why none is, and which others are here.
    """
    from dscore.building.compiler_places import KINDS

    return [_compiler_record(kind) for kind in KINDS]


def _compiler_record(kind: Kind) -> Record:
    from dscore.building.compilers import all_compilers, find_compiler, own_flags, refusal
    from dscore.core.errors import UnavailableError

    record: Record = {"kind": kind, "targets": _TARGETS[kind], "path": None, "version": None,
                      "origin": None, "needs_no_rocm": False, "missing": None, "others": []}
    try:
        others = all_compilers(kind)
        record["others"] = [{"path": other.path, "origin": other.origin, "refused": refusal(other),
                             "needs_no_rocm": other.needs_no_rocm} for other in others]
        compiler = find_compiler(kind)
        record["others"] = [other for other in record["others"] if other["path"] != compiler.path]
        record |= {"path": compiler.path, "origin": compiler.origin, "version": compiler.version,
                   "needs_no_rocm": compiler.needs_no_rocm}
        own_flags(compiler)
    except UnavailableError as missing:
        record["missing"] = str(missing)
    return record


def print_compilers() -> None:
    """The compilers as a table: which, where and why, or why there is none and how to mend that."""
    records = compiler_records()
    print_table(("compiler", "builds for", "on this machine"), [
        (record["kind"], record["targets"], record["missing"] or
         f"present at {record['path']}, from {record['origin']}"
         f"{', in place of hipcc' * record['needs_no_rocm']} ({record['version']})")
        for record in records], verdict=True)
    for record in records:
        for other in record["others"]:
            print_text(other_text(other, record))


def other_text(other: Record, record: Record) -> str:
    """Line on a compiler that stands behind the one of *record*: what it is taken for, or why not.
    """
    shown = f"{other['path']}, from {other['origin']}"
    if other["needs_no_rocm"] and not other["refused"] and record["path"]:
        return f"also taken: {shown}, for architectures that {record['path']} does not know"
    return f"not taken: {shown}: {other['refused'] or 'searched after ' + str(record['origin'])}"
