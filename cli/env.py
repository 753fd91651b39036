"""`dscore env`: versions of what dscore stands on, and what each backend lacks here."""

from __future__ import annotations

import platform
from importlib import metadata

from dscore import __version__

from .devices import backend_records, print_backends
from .output import print_json

PACKAGES = ("numpy", "cffi", "typer", "rich", "hypothesis", "torch", "cupy", "jax", "hip-python",
            "cuda-bindings")


def run(json: bool) -> None:
    """Print it as a table or as JSON."""
    system = {"dscore": __version__,
              "python": f"{platform.python_version()} ({platform.python_implementation()})",
              "platform": platform.platform()}
    packages = {name: _version(name) for name in PACKAGES}
    if json:
        print_json({**system, "packages": packages, "backends": backend_records()})
        return
    for name, value in {**system, **packages}.items():
        print(f"{name:<14} {value or 'not installed'}")
    print()
    print_backends()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
