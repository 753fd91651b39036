"""`dscore env`: what dscore finds on this machine, as text to paste into an issue."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dscore._version import __version__
from dscore.cli import options
from dscore.cli.commands.devices import (
    backend_records,
    compiler_records,
    gpu_records,
    gpu_text,
    other_text,
)
from dscore.cli.show.json import Record, print_json
from dscore.cli.show.text import counted, print_text

if TYPE_CHECKING:
    from dscore.tuning.shipped_hints import Ignored, ShippedHints

_PACKAGES = ("numpy", "cffi", "typer", "rich", "hypothesis", "torch", "cupy", "jax", "hip-python",
             "cuda-bindings", "cuda-toolkit")
# What dscore, its compilers or the vendors' runtimes go by, beside all that begins with DSCORE_.
_VARIABLES = ("XDG_CACHE_HOME", "TMPDIR", "CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX", "ROCM_PATH",
              "DTK_ROOT", "DTK_HOME", "HIP_PATH", "HIP_PLATFORM", "HIP_CLANG_PATH",
              "HIP_DEVICE_LIB_PATH", "CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH",
              "LD_LIBRARY_PATH", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS",
              "HIPCC_COMPILE_FLAGS_APPEND", "HIPCC_LINK_FLAGS_APPEND", "CUDA_VISIBLE_DEVICES",
              "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
# What kernel modules say of themselves. No library is asked, because a broken one may crash.
_MODULES = {"nvidia": "/proc/driver/nvidia/version", "amdgpu": "/sys/module/amdgpu/version"}


def env(json: options.Json = False) -> None:
    """Show what dscore finds here, as text to paste into an issue.

    Versions, compilers, GPUs and drivers, backends, the cache, variables, shipped hints. What
    cannot be told is named with its error.
    """
    sections: dict[str, Callable[[], Any]] = {
        "dscore": lambda: __version__, "kernels": _kernels, "python": _python,
        "platform": _platform, "packages": _packages, "torch's CUDA": _torch_cuda,
        "compilers": compiler_records, "gpus": gpu_records, "drivers": _drivers,
        "backends": backend_records, "cache": _cache, "variables": _variables, "hints": _hints}
    record: Record = {name: _told(section) for name, section in sections.items()}
    if json:
        print_json(record)
        return
    print("```text")
    for name, value in _lines(record):
        print_text(f"{name:<14} {value}".rstrip(), hanging=15)
    print("```")


def _told(section: Callable[[], Any]) -> Any:
    """What a section tells; where it fails, whatever is broken, the error's text."""
    try:
        return section()
    except Exception as failed:  # this command is for machines on which something is broken
        return {"error": f"{type(failed).__name__}: {failed}"}


def _lines(record: Record) -> Iterator[tuple[str, str]]:
    """Name and value of every line of text; the name is empty in a line that goes on."""
    shown: dict[str, Callable[[Any], Iterable[tuple[str, str]]]] = {
        "packages": _package_lines, "compilers": _compiler_lines, "gpus": _gpu_lines,
        "drivers": dict.items, "backends": _backend_lines, "cache": _cache_lines,
        "variables": _variable_lines, "hints": _hint_lines}
    for name, value in record.items():
        if isinstance(value, dict) and set(value) == {"error"}:
            yield name, value["error"]
        elif name in shown:
            yield from shown[name](value)
        elif value is not None:
            yield name, value


def _kernels() -> str:
    """First digits of the hash of the kernel sources."""
    from dscore.building.headers import sources
    from dscore.cache.store import folder_key

    return folder_key(sources(), (".hpp", ".h"))[:16]


def _python() -> str:
    import platform

    return f"{platform.python_version()} ({platform.python_implementation()})"


def _platform() -> str:
    import platform

    return platform.platform()


def _packages() -> dict[str, str | None]:
    from importlib import metadata

    versions: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def _torch_cuda() -> str | None:
    """Release of CUDA that the installed PyTorch was built for."""
    from dscore.building import cuda_releases

    release = cuda_releases.torch_release()
    return None if release is None else cuda_releases.text(release)


def _package_lines(versions: dict[str, str | None]) -> Iterator[tuple[str, str]]:
    yield from ((name, version) for name, version in versions.items() if version)
    yield "not installed", ", ".join(name for name, version in versions.items() if not version)


def _compiler_lines(records: list[Record]) -> Iterator[tuple[str, str]]:
    for record in records:
        name = "nvcc" if record["kind"] == "nvcc" else f"{record['kind']} compiler"
        if record["path"]:
            yield name, (f"{record['path']}, from {record['origin']}"
                         f"{', in place of hipcc' * record['needs_no_rocm']} "
                         f"({record['version'] or 'version unknown'})")
            name = ""
        if record["missing"]:
            yield name, record["missing"]
        for other in record["others"]:
            yield "", other_text(other, record)


def _gpu_lines(gpus: list[Record]) -> Iterator[tuple[str, str]]:
    for number, gpu in enumerate(gpus):
        yield f"GPU {number}", gpu_text(gpu)
        yield from (("", f"not through {one}") for one in gpu["passed_over"])
    if not gpus:
        yield "GPU", "none found"


def _drivers() -> dict[str, str]:
    """The drivers here by name, and the release of CUDA that NVIDIA's admits."""
    from dscore.building import cuda_releases

    drivers = {f"driver {name}": Path(path).read_text().splitlines()[0].strip()
               for name, path in _MODULES.items() if os.path.exists(path)}
    release = cuda_releases.driver_release()
    return drivers | ({} if release is None else {"driver's CUDA": cuda_releases.text(release)})


def _backend_lines(records: list[Record]) -> Iterator[tuple[str, str]]:
    for record in records:
        yield "backend", f"{record['name']}: {record['missing'] or 'present'}"


def _cache() -> Record:
    """The configured folder of the cache, its files and their bytes."""
    from dscore.cache.folders import configured_root

    root = configured_root()
    sizes = [path.lstat().st_size for path in root.rglob("*") if path.is_file()] if root else []
    return {"folder": root and str(root), "files": len(sizes), "bytes": sum(sizes)}


def _cache_lines(record: Record) -> Iterator[tuple[str, str]]:
    yield "cache", (f"{record['folder'] or 'no folder, for there is no home'}, "
                    f"{counted(record['files'], 'file')}, {record['bytes'] / 1e6:,.1f} MB")


def _variables() -> dict[str, str]:
    return {name: value for name, value in sorted(os.environ.items())
            if name.startswith("DSCORE_") or name in _VARIABLES}


def _variable_lines(variables: dict[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in variables.items():
        yield "variable", f"{name}={value}"


def _hints() -> list[Record]:
    from dscore.tuning.shipped_hints import all_shipped

    return [{"device": shipped.device, "shipped": len(shipped.hints),
             "ignored": [{"name": one.name, "reason": one.reason} for one in _ignored(shipped)]}
            for shipped in all_shipped()]


def _ignored(shipped: ShippedHints) -> tuple[Ignored, ...]:
    from dscore.core import catalog
    from dscore.tuning.shipped_hints import Ignored

    device = catalog.devices().get(shipped.device)
    if device is None:
        return (Ignored(shipped.device, "no device of that name is shipped"),)
    return shipped.ignored(device)


def _hint_lines(records: list[Record]) -> Iterator[tuple[str, str]]:
    for record in records:
        yield "hints", (f"{record['device']}: {counted(record['shipped'], 'hint')} shipped, "
                        f"{len(record['ignored']):,} ignored")
        for one in record["ignored"]:
            yield "", f"{one['name']}: {one['reason']}"
