"""Gains measured: dscore's way of each layer beside PyTorch's, on the GPU that a model lies on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dscore.core.problem import ConvProblem
from dscore.measuring.clocks import TorchClock
from dscore.measuring.gpu_lock import gpu_lock
from dscore.measuring.timing import Clock, Effort, device_times
from dscore.measuring.torch_runner import slot_of
from dscore.ops import Operand, channels_first, operands_of
from dscore.torch.functional import conv2d
from dscore.torch.layer import Epilogue, Layer
from dscore.torch.remainder import by_pytorch

# Some 60 ms for a layer: a network has a few dozen.
_EFFORT = Effort(turns=3, total_seconds=5e-3, probe_launches=10)


class Way:
    """A way to compute a layer on one set of data: a subject to be timed."""

    def __init__(self, name: str, compute: Callable[[], Tensor]) -> None:
        self.name, self.compute = name, compute
        self.result: Any = None

    def launch(self, index: int, stream: int) -> None:
        """Start it on PyTorch's current stream."""
        self.result = None  # gives its memory to the next result
        self.result = self.compute()

    @contextmanager
    def settings(self) -> Iterator[None]:
        """PyTorch as its user has set it, without gradients."""
        with torch.no_grad():
            yield


def measured(problems: Sequence[ConvProblem], device: torch.device, clock: Clock | None = None,
             backend: str = "auto", effort: Effort = _EFFORT
             ) -> dict[ConvProblem, tuple[float, float]]:
    """Seconds of dscore and of PyTorch for each problem, by their medians.

    Both compute on the same random data, with what is folded; PyTorch by functions of its own. The
    data are in the cache, as a layer's input is that was just written. No other process measures
    on the GPU meanwhile; a *clock* that is given is the caller's, and so is what it measures.
    """
    index = device.index or 0
    exclusive = nullcontext if clock else partial(gpu_lock, slot_of(torch, index))
    clock = clock or TorchClock(torch, index)
    seconds = {}
    for problem in dict.fromkeys(problems):
        with exclusive():
            timings = device_times(clock, ways(problem, device, backend), 1, effort)
        ours, theirs = (timing.median for timing in timings)
        seconds[problem] = ours, theirs
    return seconds


def ways(problem: ConvProblem, device: torch.device, backend: str) -> tuple[Way, Way]:
    """dscore's way and PyTorch's, on random data of the problem's shapes."""
    spec, generator = problem.spec, torch.Generator(device).manual_seed(0)

    def filled(operand: Operand) -> Tensor | None:
        if not operand.present:
            return None
        data = torch.randn(operand.shape, generator=generator, device=device,
                           dtype=getattr(torch, operand.element.name))
        return channels_first(torch, operand, data)  # type: ignore[no-any-return]

    operands = {one.name: filled(one) for one in operands_of(problem)[:-1]}
    x, w, bias, residual, scale = map(operands.get, ("x", "w", "bias", "residual", "scale"))
    assert x is not None
    assert w is not None
    layer = Layer(spec.stride, problem.padding, spec.dilation, spec.groups)
    epilogue = Epilogue(spec.activation, spec.residual == "after")
    top, bottom, left, right = problem.padding
    options: Any = dict(activation=spec.activation, residual=residual, scale=scale,
                        residual_after=epilogue.residual_after, backend=backend,
                        arithmetic=None if spec.arithmetic == "sum" else spec.arithmetic)
    return (Way("dscore", lambda: conv2d(x, w, bias, spec.stride, ((top, bottom), (left, right)),
                                         spec.dilation, spec.groups, **options)),
            Way("PyTorch", lambda: by_pytorch(x, w, bias, residual, scale, layer, epilogue)))
