"""dscore: declarative convolution operators for depthwise-separable networks.

State a convolution and a device; dscore finds a tiling that provably fits and runs it.

    conv(x, w)            the convolution of arrays, on the device that they lie on
    input_gradient(g, w, size), weight_gradient(x, g, kernel)   its gradients
    gradients(x, g, w)    both of them, by one kernel where that is faster
    plan_for(problem)     the plan of a problem: its tiling, launch, resources, estimate
    explain(problem)      the plan with its reasons: limits, picture, floor
    solve(problem)        every tiling that fits
    validate(problem, t)  the verdict on one tiling: each limit with used and allowed
    trace(problem)        what the lanes of a plan load, multiply and store
    tiling(...)           a tiling from its fields
    Quantization(...)     scales and zero points of a convolution of int8
    pack(w)               a PackedFilter: transformed beforehand, for many calls
    prepare(layers)       the kernels of many layers, compiled at once
    load(path)            kernels from a file of `dscore build --out`

``import dscore.torch`` has the same for networks in PyTorch, with gradients and modules.

A problem is a layer's name ("P13", "mobilenet_v2/7"), a token ("n1c64h14w14_o384k1") or a
ConvProblem, which is a ConvSpec on an input size. A Device is one by its name ("h200"), or a TOML
file's path. Errors are of the family DscoreError: SpecError, InfeasibleError (of which
InvalidTiling), UnavailableError, CompileError, LaunchError. A Plan is a value to print and to hand
to conv; an Array is that of NumPy, PyTorch, CuPy or any library with DLPack.

>>> import dscore, numpy as np
>>> dscore.conv(np.ones((1, 2, 4, 4), np.float32), np.ones((8, 2, 1, 1), np.float32)).shape
(1, 8, 4, 4)
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dscore._version import __version__ as __version__

if not (Path(__file__).parent / "backends").is_dir():
    from dscore._checkout import join

    join()

# Public names by their modules, imported on first use: importing dscore loads only this file.
_MODULES = {
    "api": ("conv", "explain", "plan_for", "solve", "tiling", "trace", "validate"),
    "calling.arrays": ("Array",),
    "calling.both": ("gradients",),
    "calling.gradients": ("input_gradient", "weight_gradient"),
    "calling.pack": ("PackedFilter", "pack"),
    "calling.prepare": ("load", "prepare"),
    "calling.quantization": ("Quantization",),
    "core.errors": ("CompileError", "DscoreError", "InfeasibleError", "LaunchError", "SpecError",
                    "UnavailableError"),
    "core.problem": ("ConvProblem",),
    "core.spec": ("ConvSpec",),
    "core.device": ("Device",),
    "core.plan": ("Plan",),
    "solving.verdict": ("InvalidTiling",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = [*_MODULE_OF]  # noqa: PLE0604

if TYPE_CHECKING:
    from dscore.api import conv as conv
    from dscore.api import explain as explain
    from dscore.api import plan_for as plan_for
    from dscore.api import solve as solve
    from dscore.api import tiling as tiling
    from dscore.api import trace as trace
    from dscore.api import validate as validate
    from dscore.calling.arrays import Array as Array
    from dscore.calling.both import gradients as gradients
    from dscore.calling.gradients import input_gradient as input_gradient
    from dscore.calling.gradients import weight_gradient as weight_gradient
    from dscore.calling.pack import PackedFilter as PackedFilter
    from dscore.calling.pack import pack as pack
    from dscore.calling.prepare import load as load
    from dscore.calling.prepare import prepare as prepare
    from dscore.calling.quantization import Quantization as Quantization
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
    if name not in _MODULE_OF:
        from difflib import get_close_matches

        close = " or ".join(get_close_matches(name, __all__))
        raise AttributeError(f"module 'dscore' has no attribute {name!r}"
                             + f"; did you mean {close}?" * bool(close))
    value = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value  # so that the next use is an ordinary look-up
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
