"""Floors that no kernel undercuts: times of a copy, a matrix product and a launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from dscore.core.device import Device
from dscore.measuring.timing import Clock, Effort, Subject, device_times

# Several times any cache, so that the share of it that stays there does not count.
_COPY_BYTES = 4 << 30
_PRODUCT_SIZE = 8192
_HOST_COPY_BYTES = 64 << 20
_HOST_PRODUCT_SIZE = 1024
# Those whose products have a rate of their own.
_SHORT_TYPES = ("float16", "bfloat16", "int8")


@dataclass(frozen=True)
class Floors:
    """The bounds of a machine, and where the figures come from.

    *flops_per_second* are of float32, those of other element types *by_type*, where they are known.
    """

    bytes_per_second: float
    flops_per_second: float | None
    launch_seconds: float
    source: str
    by_type: Mapping[str, float] = field(default_factory=dict)

    def rate(self, dtype: str) -> float | None:
        """Operations per second on elements of *dtype*; None where nobody knows them."""
        return self.flops_per_second if dtype == "float32" else self.by_type.get(dtype)

    def seconds(self, moved_bytes: float, flops: float, dtype: str = "float32") -> float:
        """The least time that a problem of elements of *dtype* can take.

        Operations whose rate is not known are left out: kernels would undercut another type's.
        """
        rate = self.rate(dtype)
        return max(moved_bytes / self.bytes_per_second, flops / rate if rate else 0.0,
                   self.launch_seconds)


class Calls:
    """A subject that does the same whatever the set."""

    def __init__(self, name: str, call: Callable[[], Any]) -> None:
        self.name, self._call = name, call

    def launch(self, index: int, stream: int) -> None:
        """Call it."""
        self._call()

    @contextmanager
    def settings(self) -> Iterator[None]:
        """Nothing."""
        yield


def stated_floors(device: Device) -> Floors:
    """Those of a device's description, where nothing here can measure them."""
    rates = {name: rate for name in _SHORT_TYPES if (rate := device.matrix_rate(name))}
    return Floors(device.bandwidth, device.fp32_flops, device.measured_launch_seconds or 0.0,
                  f"the description of {device.name}", rates)


def measured_floors(clock: Clock, subjects: Sequence[Subject], copied_bytes: int,
                    product_flops: float, effort: Effort) -> Floors:
    """The floors from a launch, a product, and one or more copies, of which the fastest counts."""
    launch, product, *copies = [
        device_times(clock, [subject], 1, effort)[0].median for subject in subjects]
    return Floors(2 * copied_bytes / min(copies), product_flops / product, launch,
                  "measured in this run")


def torch_floors(torch: Any, clock: Clock, index: int, effort: Effort) -> Floors:
    """Those of a GPU: through PyTorch, with TF32 off, on normal random data."""
    device = f"cuda:{index}"
    free = int(torch.cuda.mem_get_info(index)[0])
    count = min(_COPY_BYTES, free // 4) // 4
    source = torch.randn(count, device=device)
    target, one = torch.empty_like(source), torch.randn(1, device=device)
    a, b = (torch.randn(_PRODUCT_SIZE, _PRODUCT_SIZE, device=device) for _ in range(2))
    out = torch.empty_like(a)
    # A copy within a graph may be given to a copy engine, which reaches less than a kernel does.
    subjects = [_Exact(torch, "launch", one.neg_),
                _Exact(torch, "product", lambda: torch.mm(a, b, out=out)),
                _Exact(torch, "copy", lambda: target.copy_(source)),
                _Exact(torch, "kernel", lambda: torch.neg(source, out=target))]
    floors = measured_floors(clock, subjects, 4 * count, 2.0 * _PRODUCT_SIZE**3, effort)
    return replace(floors, by_type=_matrix_rates(torch, clock, a, b, effort))


def _matrix_rates(torch: Any, clock: Clock, a: Any, b: Any, effort: Effort) -> dict[str, float]:
    """Operations per second of products in other types, where PyTorch has them: matrix units'."""
    rates = {}
    for dtype in _SHORT_TYPES:
        short = getattr(torch, dtype)
        left, right = ((32 * one).clamp(-128, 127).to(short) if dtype == "int8" else one.to(short)
                       for one in (a, b))
        call = (partial(torch._int_mm, left, right.t()) if dtype == "int8"
                else partial(torch.mm, left, right))
        try:
            timing, = device_times(clock, [_Exact(torch, dtype, call)], 1, effort)
        except RuntimeError:  # of a GPU without them
            continue
        rates[dtype] = 2.0 * a.shape[0] ** 3 / timing.median
    return rates


class _Exact(Calls):
    """With TF32 off."""

    def __init__(self, torch: Any, name: str, call: Callable[[], Any]) -> None:
        super().__init__(name, call)
        self._torch = torch

    @contextmanager
    def settings(self) -> Iterator[None]:
        matmul = self._torch.backends.cuda.matmul
        before, matmul.allow_tf32 = matmul.allow_tf32, False
        try:
            yield
        finally:
            matmul.allow_tf32 = before


def host_floors(clock: Clock, effort: Effort) -> Floors:
    """Those of this host's processor, by NumPy."""
    rng = np.random.default_rng(0)
    source = rng.standard_normal(_HOST_COPY_BYTES // 4, dtype=np.float32)
    target = np.empty_like(source)
    a, b = (rng.standard_normal((_HOST_PRODUCT_SIZE, _HOST_PRODUCT_SIZE), dtype=np.float32)
            for _ in range(2))
    out = np.empty_like(a)
    subjects = [Calls("launch", lambda: None), Calls("product", lambda: np.matmul(a, b, out=out)),
                Calls("copy", lambda: np.copyto(target, source))]
    return measured_floors(clock, subjects, source.nbytes, 2.0 * _HOST_PRODUCT_SIZE**3, effort)
