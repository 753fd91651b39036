"""Backends on the host's processor: the members they share, and their checks of NumPy arrays."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dscore.core.device import Device
from dscore.core.errors import LaunchError
from dscore.core.plan import Plan
from dscore.ops import Operand, operands_of


class HostBackend:
    """Members of `Backend` that are the same for every backend that runs on NumPy arrays."""

    any_device = True
    algorithms: tuple[str, ...] | None = None

    def device(self) -> Device:
        """The device of the papers, whose lanes and limits are imitated."""
        from dscore.core import catalog  # reads files that running a plan does not need

        return catalog.device("z100sm")

    def runner(self, device: Device, peers: bool) -> Any:
        """The host's memory and clock; UnavailableError for *peers* without PyTorch."""
        from dscore.measuring.runner import HostRunner, require_torch

        if peers:
            require_torch(gpu=False)
        return HostRunner(device)

    def workers(self) -> tuple[Mapping[str, str], ...]:
        """None of their own: any number of processes may share the host."""
        return ()


def wall_seconds(run: Callable[[], None], repeats: int) -> list[float]:
    """Wall-clock time of each of *repeats* runs on the host."""
    samples = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        samples.append(time.perf_counter() - start)
    return samples


def addresses_of(plan: Plan, *arrays: Any) -> list[int]:
    """Addresses of NumPy arrays, the operands of the plan's operation; 0 for one that is None.

    Raises LaunchError where an array is not of the operand's shape and type, or not C-contiguous.
    """
    return [_address(plan, operand, array)
            for operand, array in zip(operands_of(plan.problem), arrays, strict=True)]


def _address(plan: Plan, operand: Operand, array: Any) -> int:
    name, shape, dtype = operand.name, operand.shape, operand.element.numpy
    if array is None and not operand.present:
        return 0
    if array is None or not operand.present:
        wanted = (f"an array: the layer has a {name} of shape {shape}" if operand.present
                  else f"None: the layer has no {name}")
        raise LaunchError(f"{plan.name}: {name} must be {wanted}")
    if not (isinstance(array, np.ndarray) and array.dtype == dtype
            and array.shape == shape and array.flags.c_contiguous):
        given = f"{getattr(array, 'dtype', type(array).__name__)} of shape {np.shape(array)}"
        raise LaunchError(f"{plan.name}: {name} must be a C-contiguous NumPy array, "
                          f"{dtype} of shape {shape}; got {given}")
    return int(array.ctypes.data)
