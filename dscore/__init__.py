"""dscore: declarative convolution operators for depthwise-separable networks.

State a convolution and a device; dscore finds a tiling that provably fits and runs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public names and their rooms, entered on first use: importing dscore loads only this file.
_ROOMS = {
    "api": ("conv", "explain", "plan_for", "solve", "trace", "validate"),
    "errors": ("CompileError", "DscoreError", "InfeasibleError", "LaunchError", "SpecError",
               "UnavailableError"),
    "spec": ("ConvProblem", "ConvSpec"),
    "device": ("Device",),
    "plan": ("Plan",),
    "tiling": ("DepthwiseTiling", "DirectTiling", "MatrixTiling", "PointwiseTiling"),
    "verdict": ("InvalidTiling",),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}
__all__ = [*_HOME]  # noqa: PLE0604

if TYPE_CHECKING:
    from .api import conv as conv
    from .api import explain as explain
    from .api import plan_for as plan_for
    from .api import solve as solve
    from .api import trace as trace
    from .api import validate as validate
    from .device import Device as Device
    from .errors import CompileError as CompileError
    from .errors import DscoreError as DscoreError
    from .errors import InfeasibleError as InfeasibleError
    from .errors import LaunchError as LaunchError
    from .errors import SpecError as SpecError
    from .errors import UnavailableError as UnavailableError
    from .plan import Plan as Plan
    from .spec import ConvProblem as ConvProblem
    from .spec import ConvSpec as ConvSpec
    from .tiling import DepthwiseTiling as DepthwiseTiling
    from .tiling import DirectTiling as DirectTiling
    from .tiling import MatrixTiling as MatrixTiling
    from .tiling import PointwiseTiling as PointwiseTiling
    from .verdict import InvalidTiling as InvalidTiling


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dscore' has no attribute {name!r}")
    found = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = found  # so that the next use is an ordinary look-up
    return found


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
