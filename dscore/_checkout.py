"""A checkout as a package: `backends/`, `cli/` and the data stand beside `dscore/` in it.

In a checkout ``import dscore`` finds this very folder, whatever is installed; without this the
packages below would be missing, or those of another version would be mixed in.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
# As pyproject.toml maps them (a test compares both).
FOLDERS = {"dscore.backends": "backends", "dscore.cli": "cli", "dscore._hip_src": "hip_src",
           "dscore._specs": "specs"}


class CheckoutFinder:
    """Finds the packages of `FOLDERS` beside this one."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        """The specification of one of them; None for any other module."""
        if name not in FOLDERS:
            return None
        folder = ROOT / FOLDERS[name]
        return spec_from_file_location(name, folder / "__init__.py",
                                       submodule_search_locations=[str(folder)])


def join() -> None:
    """Make them part of the package, unless it is an installed one."""
    if CheckoutFinder not in sys.meta_path and all(
            (ROOT / folder / "__init__.py").is_file() for folder in FOLDERS.values()):
        sys.meta_path.insert(0, CheckoutFinder)
