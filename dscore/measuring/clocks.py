"""Clocks of a device: PyTorch's events and graphs, a vendor's runtime's, and the host's own."""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import pairwise
from typing import Any

from dscore.core.errors import LaunchError
from dscore.measuring.timing import NoGraphError, Policy, Replay, Work
from dscore.measuring.vendor_runtime import Runtime


class HostClock:
    """The host's clock, for calls that return when they are done."""

    policy: Policy = "host"

    def record(self, work: Work) -> Replay:
        return self.repeat(work)

    def repeat(self, work: Work) -> Replay:
        return lambda: work(0)

    def seconds(self, replay: Replay) -> float:
        began = self.now()
        replay()
        return self.now() - began

    def samples(self, replay: Replay, count: int) -> list[float]:
        return [self.seconds(replay) for _ in range(count)]

    def synchronize(self) -> None:
        """Nothing: a call has returned when it is done."""

    def now(self) -> float:
        return time.perf_counter()


class TorchClock:
    """A GPU's clock through PyTorch: its graphs, and events on a stream of their own."""

    policy: Policy = "graph"

    def __init__(self, torch: Any, index: int) -> None:
        self._torch, self._device = torch, torch.device("cuda", index)
        with torch.cuda.device(self._device):
            self._stream = torch.cuda.Stream()
            self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def record(self, work: Work) -> Replay:
        # Not torch.cuda.graph: it collects garbage and empties the allocator every time.
        self.synchronize()
        graph = self._torch.cuda.CUDAGraph()
        with self._torch.cuda.device(self._device), self._torch.cuda.stream(self._stream):
            try:
                # Of this thread alone: others may load kernels meanwhile (dscore.tuning.halving).
                graph.capture_begin(capture_error_mode="thread_local")
                work(self._stream.cuda_stream)
                graph.capture_end()
            except (RuntimeError, LaunchError) as failed:
                # What failed first is told: of a broken capture these two may be refused.
                for end in (graph.capture_end, self._torch.cuda.synchronize):
                    with suppress(RuntimeError):
                        end()
                raise NoGraphError(str(failed)) from failed
        replay: Replay = graph.replay
        return replay

    def repeat(self, work: Work) -> Replay:
        return lambda: work(self._stream.cuda_stream)

    def seconds(self, replay: Replay) -> float:
        with self._torch.cuda.device(self._device), self._torch.cuda.stream(self._stream):
            # Keeps the device busy until the host has submitted what is timed.
            replay()
            self._start.record()
            replay()
            self._end.record()
            self._end.synchronize()
        return float(self._start.elapsed_time(self._end)) * 1e-3

    def samples(self, replay: Replay, count: int) -> list[float]:
        events = [self._torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        with self._torch.cuda.device(self._device), self._torch.cuda.stream(self._stream):
            for event in events:  # the first replay is not timed, as in `seconds`
                replay()
                event.record()
            events[-1].synchronize()
        return [float(start.elapsed_time(end)) * 1e-3 for start, end in pairwise(events)]

    def synchronize(self) -> None:
        self._torch.cuda.synchronize(self._device)

    def now(self) -> float:
        return time.perf_counter()


class VendorClock:
    """A GPU's clock through its vendor's own runtime, for machines without PyTorch."""

    policy: Policy = "graph"

    def __init__(self, runtime: Runtime, index: int) -> None:
        self._runtime, self._index = runtime, index
        with runtime.on(index):
            self._stream = runtime.stream()
            self._start, self._end = runtime.event(), runtime.event()

    def record(self, work: Work) -> Replay:
        with self._runtime.on(self._index):
            self._runtime.synchronize()
            try:
                return self._runtime.capture(self._stream, lambda: work(int(self._stream)))
            except (LaunchError, AttributeError, TypeError) as failed:
                raise NoGraphError(str(failed)) from failed

    def repeat(self, work: Work) -> Replay:
        return lambda: work(int(self._stream))

    def seconds(self, replay: Replay) -> float:
        runtime = self._runtime
        with runtime.on(self._index):
            replay()  # as in TorchClock
            runtime.record(self._start, self._stream)
            replay()
            runtime.record(self._end, self._stream)
            return runtime.elapsed_seconds(self._start, self._end)

    def samples(self, replay: Replay, count: int) -> list[float]:
        return [self.seconds(replay) for _ in range(count)]

    def synchronize(self) -> None:
        with self._runtime.on(self._index):
            self._runtime.synchronize()

    def now(self) -> float:
        return time.perf_counter()
