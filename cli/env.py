"""`dscore env`: versions of what dscore stands on, and what each backend lacks here."""

from __future__ import annotations

import platform
from importlib import metadata

from dscore._version import __version__
from dscore.cli.devices import backend_records, print_backends
from dscore.cli.output import counted, print_json, print_text
from dscore.cli.records import Record
from dscore.core import catalog
from dscore.tuning.shipped_hints import Ignored, ShippedHints, all_shipped

PACKAGES = ("numpy", "cffi", "typer", "rich", "hypothesis", "torch", "cupy", "jax", "hip-python",
            "cuda-bindings")


def run(json: bool) -> None:
    """Print it as a table or as JSON."""
    system = {"dscore": __version__,
              "python": f"{platform.python_version()} ({platform.python_implementation()})",
              "platform": platform.platform()}
    packages = {name: _version(name) for name in PACKAGES}
    if json:
        print_json({**system, "packages": packages, "backends": backend_records(),
                    "hints": [_hints_record(found) for found in all_shipped()]})
        return
    for name, value in {**system, **packages}.items():
        print(f"{name:<14} {value or 'not installed'}")
    print()
    print_backends()
    for found in all_shipped():
        ignored = _ignored(found)
        print(f"\n{found.device}: {counted(len(found.hints), 'hint')} shipped, "
              f"{len(ignored):,} ignored")
        for one in ignored:
            print_text(f"  {one.name}: {one.reason}")


def _ignored(found: ShippedHints) -> tuple[Ignored, ...]:
    device = catalog.devices().get(found.device)
    if device is None:
        return (Ignored(found.device, "no device of that name is shipped"),)
    return found.ignored(device)


def _hints_record(found: ShippedHints) -> Record:
    return {"device": found.device, "shipped": len(found.hints),
            "ignored": [{"name": one.name, "reason": one.reason} for one in _ignored(found)]}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
