"""Where kernels are measured: what such a place offers, and this machine's processor as one."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import numpy as np

from dscore.checking import bound
from dscore.checking.bound import Accuracy
from dscore.core.backend import Backend, GpuBackend
from dscore.core.device import Device
from dscore.core.errors import DscoreError, UnavailableError
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.measuring.clocks import HostEngine
from dscore.measuring.floors import Floors, host_floors
from dscore.measuring.timing import Effort, Engine, Subject

Arrays = tuple[Any, Any, Any, Any]  # x, w, bias or None, out
# Elements before and after a checked output: as many bytes as keep it aligned for any load.
FENCE = 256
_CANARY = -12345.678


class Ground(Protocol):
    """A place with data in it, a clock, and kernels that run there."""

    engine: Engine
    effort: Effort
    title: str  # of the machine's processor or GPU
    versions: str  # of what is used there
    on_host: bool
    calls: bool  # whether `dscore.conv` takes arrays of that place
    most_sets: int
    cache_bytes: int
    room_bytes: float  # for all copies of all sets

    def sets(self, problem: ConvProblem, count: int, seed: int) -> list[Arrays]:
        """So many sets of normal random data, with an output each."""

    def subject(self, chosen: Backend, plan: Plan, sets: Sequence[Arrays]) -> Subject:
        """The kernel of *plan*, to be launched on any of *sets*."""

    def fenced(self, arrays: Arrays) -> tuple[Arrays, Callable[[], bool]]:
        """The same inputs with an output of NaN, and whether what lies beside it is untouched."""

    def judge(self, problem: ConvProblem, arrays: Arrays, y: Any, tf32: bool = False) -> Accuracy:
        """How *y* compares with the exact result."""

    def floors(self) -> Floors:
        """What no kernel undercuts there."""

    def alone(self) -> AbstractContextManager[None]:
        """Keeps other processes of dscore from measuring there meanwhile; may be nested."""

    def release(self) -> None:
        """Give back what is no longer used."""


class Kernels:
    """A dscore kernel on sets of data; *start* takes a set and a stream."""

    def __init__(self, sets: Sequence[Any], start: Callable[[Any, int], None]) -> None:
        self.name, self._sets, self._start = "dscore", sets, start

    def launch(self, index: int, stream: int) -> None:
        """Start it."""
        self._start(self._sets[index], stream)

    @contextmanager
    def settings(self) -> Iterator[None]:
        """Nothing."""
        yield


def check(ground: Ground, chosen: Backend, plan: Plan, arrays: Arrays) -> Accuracy:
    """Run *plan* once in a poisoned and fenced output, and hold the result to the bound.

    Raises DscoreError where the kernel fails, or writes outside its output.
    """
    fenced, untouched = ground.fenced(arrays)
    ground.subject(chosen, plan, [fenced]).launch(0, 0)
    ground.engine.synchronize()
    if not untouched():
        raise DscoreError(f"{plan.name} wrote outside its output")
    return ground.judge(plan.problem, arrays, fenced[3])


def ground_for(chosen: Backend, device: Device, peers: bool) -> Ground:
    """Where *chosen* runs: its GPU, through PyTorch where that is there, else the host.

    Raises UnavailableError where *peers* of PyTorch are asked for, and it is not there for it.
    """
    on_gpu = isinstance(chosen, GpuBackend)
    torch = require_torch(on_gpu) if peers else _torch_with_gpu() if on_gpu else None
    if not on_gpu:
        return HostGround(device)
    from dscore.measuring.gpu_runners import RuntimeGround, TorchGround
    from dscore.measuring.vendor_runtime import runtime

    index = int(getattr(chosen, "index", 0))
    if torch is not None:
        return TorchGround(torch, device, index)
    return RuntimeGround(runtime(getattr(chosen, "vendor", "nvidia")), device, index)


def require_torch(gpu: bool) -> Any:
    """PyTorch; UnavailableError where it is missing, or sees no GPU though one is asked for."""
    try:
        import torch
    except ImportError as absent:
        raise UnavailableError(f"PyTorch is not installed ({absent}); pip install dscore[torch], "
                               "or measure without it: --peer none") from absent
    if gpu and not torch.cuda.is_available():
        raise UnavailableError(f"this PyTorch ({torch.__version__}) sees no GPU; install its build "
                               "for CUDA or ROCm, or measure without it: --peer none")
    return torch


def _torch_with_gpu() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


class HostGround:
    """NumPy arrays; the time is that of calls on this machine's processor."""

    on_host, calls, most_sets = True, True, 8

    def __init__(self, device: Device) -> None:
        self.engine: Engine = HostEngine()
        self.effort = Effort(turns=3, replay_seconds=0.0, total_seconds=7e-3, most_replays=3,
                             fewest_replays=1, probe_launches=1)
        self.title = f"host {platform.machine()}, {os.cpu_count()} cores"
        self.versions = f"numpy {np.__version__}"
        self.cache_bytes, self.room_bytes = device.l2_bytes, 2.0**31

    def sets(self, problem: ConvProblem, count: int, seed: int) -> list[Arrays]:
        return [(*bound.sample(problem, seed + at), np.empty(problem.y_shape, np.float32))
                for at in range(count)]

    def subject(self, chosen: Backend, plan: Plan, sets: Sequence[Arrays]) -> Subject:
        kernel = chosen.compile(plan)
        return Kernels(sets, lambda arrays, stream: kernel(*arrays))

    def fenced(self, arrays: Arrays) -> tuple[Arrays, Callable[[], bool]]:
        out, untouched = fenced_output(np.full, arrays[3].shape, np.float32)
        return (*arrays[:3], out), untouched

    def judge(self, problem: ConvProblem, arrays: Arrays, y: Any, tf32: bool = False) -> Accuracy:
        return bound.compare(np.asarray(y), bound.expected(problem, *arrays[:3]))

    def floors(self) -> Floors:
        return host_floors(self.engine, self.effort)

    def alone(self) -> AbstractContextManager[None]:
        return nullcontext()  # its times are no figures for anything else

    def release(self) -> None:
        """Nothing: NumPy gives back by itself."""


def fenced_output(full: Callable[..., Any], shape: Any, dtype: Any,
            **place: Any) -> tuple[Any, Callable[[], bool]]:
    """An output of NaN between canaries, from a library's `full`."""
    size = int(np.prod(shape))
    buffer = full((size + 2 * FENCE,), _CANARY, dtype=dtype, **place)
    kept = buffer[:FENCE] + 0
    out = buffer[FENCE:-FENCE].reshape(shape)
    out[...] = float("nan")
    return out, lambda: bool((buffer[:FENCE] == kept).all() and (buffer[-FENCE:] == kept).all())
