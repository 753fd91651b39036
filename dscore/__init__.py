"""dscore: declarative convolution operators for depthwise-separable networks.

State a convolution and a device; dscore finds a tiling that provably fits and runs it.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dscore._version import __version__ as __version__

if not (Path(__file__).parent / "backends").is_dir():
    from dscore._checkout import join

    join()

# Public names and their rooms, entered on first use: importing dscore loads only this file.
_ROOMS = {
    "api": ("conv", "explain", "plan_for", "solve", "trace", "validate"),
    "core.errors": ("CompileError", "DscoreError", "InfeasibleError", "LaunchError", "SpecError",
               "UnavailableError"),
    "core.problem": ("ConvProblem",),
    "core.spec": ("ConvSpec",),
    "core.device": ("Device",),
    "core.plan": ("Plan",),
    "core.tiling": ("RowReuseTiling", "DirectTiling", "GemmTiling", "ChannelDistributionTiling"),
    "solving.verdict": ("InvalidTiling",),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}
__all__ = [*_HOME]  # noqa: PLE0604

if TYPE_CHECKING:
    from dscore.algorithms.channel_distribution.tiling import (
        ChannelDistributionTiling as ChannelDistributionTiling,
    )
    from dscore.algorithms.direct import DirectTiling as DirectTiling
    from dscore.algorithms.gemm.tiling import GemmTiling as GemmTiling
    from dscore.algorithms.row_reuse.tiling import RowReuseTiling as RowReuseTiling
    from dscore.api import conv as conv
    from dscore.api import explain as explain
    from dscore.api import plan_for as plan_for
    from dscore.api import solve as solve
    from dscore.api import trace as trace
    from dscore.api import validate as validate
    from dscore.core.device import Device as Device
    from dscore.core.errors import CompileError as CompileError
    from dscore.core.errors import DscoreError as DscoreError
    from dscore.core.errors import InfeasibleError as InfeasibleError
    from dscore.core.errors import LaunchError as LaunchError
    from dscore.core.errors import SpecError as SpecError
    from dscore.core.errors import UnavailableError as UnavailableError
    from dscore.core.plan import Plan as Plan
    from dscore.core.problem import ConvProblem as ConvProblem
    from dscore.core.spec import ConvSpec as ConvSpec
    from dscore.solving.verdict import InvalidTiling as InvalidTiling


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dscore' has no attribute {name!r}")
    found = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = found  # so that the next use is an ordinary look-up
    return found


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
