"""`dscore env`: versions of dscore and its packages, and what each backend lacks here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dscore._version import __version__
from dscore.cli import options
from dscore.cli.commands.devices import backend_records, print_backends
from dscore.cli.show.json import Record, print_json
from dscore.cli.show.text import counted, print_text

if TYPE_CHECKING:
    from dscore.tuning.shipped_hints import Ignored, ShippedHints

_PACKAGES = ("numpy", "cffi", "typer", "rich", "hypothesis", "torch", "cupy", "jax", "hip-python",
             "cuda-bindings")


def env(json: options.Json = False) -> None:
    """Show versions, what each backend lacks, and the shipped hints."""
    import platform

    from dscore.tuning.shipped_hints import all_shipped

    system = {"dscore": __version__,
              "python": f"{platform.python_version()} ({platform.python_implementation()})",
              "platform": platform.platform()}
    packages = {name: _version(name) for name in _PACKAGES}
    if json:
        print_json({**system, "packages": packages, "backends": backend_records(),
                    "hints": [_hints_record(shipped) for shipped in all_shipped()]})
        return
    for name, value in {**system, **packages}.items():
        print(f"{name:<14} {value or 'not installed'}")
    print()
    print_backends()
    for shipped in all_shipped():
        ignored = _ignored(shipped)
        print(f"\n{shipped.device}: {counted(len(shipped.hints), 'hint')} shipped, "
              f"{len(ignored):,} ignored")
        for one in ignored:
            print_text(f"  {one.name}: {one.reason}")


def _ignored(shipped: ShippedHints) -> tuple[Ignored, ...]:
    from dscore.core import catalog
    from dscore.tuning.shipped_hints import Ignored

    device = catalog.devices().get(shipped.device)
    if device is None:
        return (Ignored(shipped.device, "no device of that name is shipped"),)
    return shipped.ignored(device)


def _hints_record(shipped: ShippedHints) -> Record:
    return {"device": shipped.device, "shipped": len(shipped.hints),
            "ignored": [{"name": one.name, "reason": one.reason} for one in _ignored(shipped)]}


def _version(package: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
