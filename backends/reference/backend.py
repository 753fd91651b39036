"""The reference backend: the GPU algorithms step by step in NumPy, the measure of other kernels."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from dscore.algorithms.registry import algorithm_of
from dscore.core.backend import require_accepted
from dscore.core.device import Device
from dscore.core.errors import LaunchError
from dscore.core.plan import Plan, ResourceUse, Violation
from dscore.core.trace import Trace

__all__ = ["ReferenceBackend", "ReferenceKernel", "Trace"]

_ROOMS = "dscore.backends.reference."


def _lockstep(plan: Plan) -> Callable[..., None]:
    """What runs a plan: the function `run` of the module of its algorithm's name."""
    run: Callable[..., None] = import_module(_ROOMS + plan.tiling.algorithm).run
    return run


def wall_seconds(run: Callable[[], None], repeats: int) -> list[float]:
    """Wall-clock time of each of *repeats* runs on the host."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return taken


class ReferenceKernel:
    """A plan run in lockstep: lanes are an array axis, memory is what the plan gives."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.use: ResourceUse = plan.use

    def __call__(self, x: Any, w: Any, bias: Any, out: Any, trace: Trace | None = None) -> None:
        """Write ``activation(conv(x, w) + bias)`` to *out*, and what was done to *trace*.

        Raises LaunchError where an array does not fit the plan, or the plan's grid, registers or
        LDS do not fit the tiling; *out* is then incomplete.
        """
        problem, spec = self.plan.problem, self.plan.problem.spec
        for name, array, shape in (("x", x, problem.x_shape), ("w", w, spec.w_shape),
                                   ("bias", bias, (spec.out_channels,) if spec.bias else None),
                                   ("out", out, problem.y_shape)):
            self._require_array(name, array, shape)
        flat = [None if array is None else array.reshape(-1) for array in (x, w, bias, out)]
        # Infinite and missing values are data, and go through without a warning.
        with np.errstate(all="ignore"):
            _lockstep(self.plan)(self.plan, *flat, trace)

    def _require_array(self, name: str, array: Any, shape: tuple[int, ...] | None) -> None:
        if shape is None and array is None:
            return
        if shape is None or array is None:
            wanted = "no bias" if shape is None else f"a {name} of shape {shape}"
            raise LaunchError(f"{self.plan.name}: the layer has {wanted}")
        if not (isinstance(array, np.ndarray) and array.dtype == np.float32
                and array.shape == shape and array.flags.c_contiguous):
            given = f"{getattr(array, 'dtype', type(array).__name__)} of shape {np.shape(array)}"
            raise LaunchError(f"{self.plan.name}: {name} must be a C-contiguous NumPy array, "
                              f"float32 of shape {shape}; got {given}")

    def seconds(self, x: Any, w: Any, bias: Any, out: Any, repeats: int) -> list[float]:
        """Wall-clock time of each of *repeats* runs."""
        return wall_seconds(lambda: self(x, w, bias, out), repeats)


class ReferenceBackend:
    """Runs every float32 NCHW plan, on any machine, slowly and literally."""

    name = "reference"
    any_device = True
    compiles = False

    def missing(self) -> str | None:
        """None: NumPy is all it needs."""
        return None

    def device(self) -> Device:
        """The device of the papers, whose lanes and limits are imitated."""
        from dscore.core import (
            catalog,  # reads the device files, which running a plan does not need
        )

        return catalog.device("z100sm")

    def refuses(self, plan: Plan) -> tuple[Violation, ...]:
        """Element types and layouts other than float32 NCHW, and a tiling of another family."""
        spec, refused = plan.problem.spec, []
        if spec.dtype != "float32":
            refused.append(Violation("E-DTYPE", "dtype", spec.dtype, "float32"))
        if spec.layout != "nchw":
            refused.append(Violation("E-LAYOUT", "layout", spec.layout, "nchw"))
        if find_spec(_ROOMS + plan.tiling.algorithm) is None:
            refused.append(Violation("E-ALGORITHM", "algorithm", plan.tiling.algorithm,
                                     "one of dscore's own"))
        refused += algorithm_of(plan.tiling).runs(plan.problem)
        return tuple(refused)

    def prepare(self, plans: Sequence[Plan]) -> None:
        """Nothing: NumPy runs a plan as it is."""

    def compile(self, plan: Plan) -> ReferenceKernel:
        """The kernel of *plan*; UnavailableError names what `refuses` lists."""
        require_accepted(self, plan)
        return ReferenceKernel(plan)
