"""Methods of a comparison of whole networks: PyTorch's ways and dscore, for inference and training.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.experimental import optimization

from dscore.bench.summary import COMPILED, FLOAT16, OURS
from dscore.core.errors import SpecError
from dscore.core.numerics import Permission
from dscore.core.spec import Layout
from dscore.torch.accelerate import accelerate
from dscore.torch.quantize import quantize
from dscore.torch.quantize_report import QuantizationReport
from dscore.torch.report import Report

# PyTorch's: as it is; channels_last; by torch.compile in both layouts. In inference batch norms are
# folded into convolutions for all of them, by PyTorch's own means.
WAYS = ("default", "channels_last", "compile", "compile_channels_last")
# Of inputs as the comparison has them, by which a quantised model's scales are set.
_CALIBRATION_BATCHES, _CALIBRATION_SEED = 4, 1
_LEARNING_RATE, _MOMENTUM = 1e-3, 0.9
Call = Callable[[], Tensor]


class NetworkSubject:
    """A call of a network, as a subject to be timed; *gradients*: whether they are recorded."""

    def __init__(self, name: str, call: Call, gradients: bool) -> None:
        self.name, self._call, self._gradients = name, call, gradients
        self.result: Any = None

    def launch(self, index: int, stream: int) -> None:
        """Start it on PyTorch's current stream."""
        self.result = None  # gives its memory to the next result
        self.result = self._call()

    @contextmanager
    def settings(self) -> Iterator[None]:
        """Those of the comparison, and whether gradients are recorded."""
        with settings(), torch.set_grad_enabled(self._gradients):
            yield


@contextmanager
def settings() -> Iterator[None]:
    """Float32 without TF32, and cuDNN's choice by trial, for what is timed and for what
    `accelerate` chooses by time before.
    """
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32
    cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = True, False, False
    try:
        yield
    finally:
        cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = before


@dataclass(frozen=True)
class Setup:
    """Model to be compared, and what it is called with; *backend* is dscore's.

    The methods work on copies. *kinds* restricts which convolutions dscore computes. In *dtype* the
    whole model infers, and trains under autocast; *last*: dscore's copy has the channels last.
    *integers*: dscore's copy is quantised to int8, and *dtype* is of what is around its layers, and
    of its peers, of which dscore's own float model is one.
    """

    model: nn.Module
    arguments: tuple[Tensor, ...]
    backend: str = "auto"
    measure: bool | None = None
    kinds: tuple[Any, ...] | None = None
    arithmetic: Permission = "sum"
    dtype: torch.dtype = torch.float32
    last: bool = False
    integers: bool = False

    @property
    def autocast(self) -> torch.autocast:
        """Context of a training's forward pass: of mixed precision for 16 bits."""
        device = self.arguments[0].device.type
        return torch.autocast(device, self.dtype if self.short else None, enabled=self.short)

    @property
    def short(self) -> bool:
        """Whether it computes in 16 bits."""
        return self.dtype is not torch.float32

    def accelerated(self, model: nn.Module) -> tuple[nn.Module, tuple[Tensor, ...], Report]:
        """The model by dscore, what it is called with, and the report."""
        model, arguments = _laid_out(model, self.arguments, "channels_last" if self.last else "")
        report = accelerate(model, arguments, backend=self.backend, measure=self.measure,
                            kinds=self.kinds, arithmetic=self.arithmetic)
        return model, arguments, report


    def quantised(self) -> tuple[nn.Module, tuple[Tensor, ...], QuantizationReport]:
        """The model in int8, calibrated on random batches, what it is called with, the report."""
        layout: Layout = "nhwc" if self.last else "nchw"
        generator = torch.Generator(self.arguments[0].device).manual_seed(_CALIBRATION_SEED)
        batches = [tuple(_random_like(one, generator) for one in self.arguments)
                   for _ in range(_CALIBRATION_BATCHES)]
        model = quantize(self.model.eval().float(), batches, backend=self.backend, layout=layout)
        report: QuantizationReport = model.report
        model, arguments = _laid_out(model.to(self.dtype), self.arguments,
                                     "channels_last" if self.last else "")
        return model, arguments, report


@settings()
def inference(setup: Setup, way: str
              ) -> tuple[NetworkSubject, Report | QuantizationReport | None]:
    """The call of one method in eval mode, and dscore's report."""
    report: Report | QuantizationReport | None = None
    setup = replace(setup, arguments=tuple(
        one.to(setup.dtype) if one.is_floating_point() else one for one in setup.arguments))
    model = copy.deepcopy(setup.model).eval()
    if way == OURS and setup.integers:
        model, arguments, report = setup.quantised()
    elif way in (OURS, COMPILED, FLOAT16):
        model, arguments, report = replace(setup, last=setup.last or way == FLOAT16).accelerated(
            model.to(setup.dtype))
    else:
        model, arguments = _laid_out(_fused(model.to(setup.dtype)), setup.arguments, way)
    called = _compiled(model, way)
    return NetworkSubject(way, lambda: called(*arguments), gradients=False), report


@settings()
def training(setup: Setup, way: str) -> tuple[NetworkSubject, Report | None]:
    """One step of training by one method: forward, loss, backward, SGD with momentum."""
    model, report = copy.deepcopy(setup.model).train(), None
    if way in (OURS, COMPILED):
        with setup.autocast:
            model, arguments, report = setup.accelerated(model)
    else:
        model, arguments = _laid_out(model, setup.arguments, way)
    optimizer = torch.optim.SGD(model.parameters(), _LEARNING_RATE, _MOMENTUM)
    called, targets = _compiled(model, way), _targets(setup)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with setup.autocast:
            loss = _loss(called(*arguments), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()
    return NetworkSubject(way, step, gradients=True), report


def exact(setup: Setup) -> Tensor:
    """The output in float64 by PyTorch, of the model as it is."""
    model = copy.deepcopy(setup.model).eval().double()
    with torch.no_grad():
        return _output(model(*(one.double() for one in setup.arguments)))


def exact_loss(setup: Setup) -> Tensor:
    """The loss of the first step in float64 by PyTorch."""
    model = copy.deepcopy(setup.model).train().double()
    with torch.no_grad():
        return _loss(model(*(one.double() for one in setup.arguments)), _targets(setup))


def relative_error(result: Tensor, reference: Tensor) -> float:
    """The largest error over the largest magnitude; infinite for a result that is not finite."""
    error = (result.double() - reference).abs().max() / reference.abs().max().clamp_min(1e-300)
    return float(error) if bool(torch.isfinite(result).all()) else float("inf")


def agreement(result: Tensor, reference: Tensor) -> float | None:
    """Share of the rows whose largest element is that of *reference*; None for no rows of classes.
    """
    if result.dim() != 2:
        return None
    return float((result.argmax(1) == reference.argmax(1)).double().mean())


def _random_like(one: Tensor, generator: torch.Generator) -> Tensor:
    if not one.is_floating_point():
        return one
    return torch.randn(one.shape, generator=generator, device=one.device)


def with_statistics(model: nn.Module, arguments: tuple[Tensor, ...], passes: int = 4) -> nn.Module:
    """The model, its batch norms with statistics of its own, as after a training.

    Untrained ones would let what flows through a network vanish.
    """
    norms = [one for one in model.modules() if isinstance(one, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = None  # the mean over all passes
    model.train()
    with torch.no_grad():
        for _ in range(passes):
            model(*(torch.randn_like(one) for one in arguments))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return model.eval()


def own_ways(setup: Setup, ways: Sequence[str]) -> tuple[str, ...]:
    """dscore's methods beside PyTorch's *ways*: by torch.compile where one of these is."""
    if setup.integers:
        return OURS, FLOAT16
    return (OURS, COMPILED) if any(map(_by_compiler, ways)) else (OURS,)


def forget_compiled(ways: Sequence[str]) -> None:
    """Have torch.compile forget what it compiled for other cases, of which it keeps a few only."""
    if any(map(_by_compiler, ways)):
        torch.compiler.reset()


def undropped(model: nn.Module) -> nn.Module:
    """The model without chance: dropouts and stochastic depths drop nothing.

    Two methods draw other random numbers, and their losses could not be compared.
    """
    for module in model.modules():
        if any(word in type(module).__name__ for word in ("Dropout", "StochasticDepth")):
            module.p = 0.0  # type: ignore[assignment]
    return model


def _fused(model: nn.Module) -> nn.Module:
    """The model with batch norms in its convolutions, where PyTorch can trace it."""
    try:
        return optimization.fuse(model)
    except Exception:  # of a model that PyTorch cannot trace: it stays as it is
        return model


def _laid_out(model: nn.Module, arguments: tuple[Tensor, ...],
              way: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    if not way.endswith("channels_last"):
        return model, arguments
    layout = torch.channels_last
    return (model.to(memory_format=layout),  # type: ignore[call-overload]
            tuple(one.contiguous(memory_format=layout) if one.dim() == 4 else one
                  for one in arguments))


def _compiled(model: nn.Module, way: str) -> Callable[..., Any]:
    return torch.compile(model, dynamic=False) if _by_compiler(way) else model


def _by_compiler(way: str) -> bool:
    return way == COMPILED or way.startswith("compile")


def _targets(setup: Setup) -> Tensor | None:
    """Random classes for the outputs; None where these are no logits."""
    with torch.no_grad():
        output = _output(copy.deepcopy(setup.model).eval()(*setup.arguments))
    if output.dim() != 2:
        return None
    generator = torch.Generator().manual_seed(0)
    classes = torch.randint(output.shape[1], (output.shape[0],), generator=generator)
    return classes.to(output.device)


def _loss(output: Any, targets: Tensor | None) -> Tensor:
    if targets is None:
        return _output(output).square().mean()
    return nn.functional.cross_entropy(_output(output), targets)


def _output(output: Any) -> Tensor:
    """The tensor that is compared: the output, or the first one of several."""
    while isinstance(output, tuple | list) and output:
        output = output[0]
    if isinstance(output, dict) and output:
        output = next(iter(output.values()))
    if not isinstance(output, Tensor):
        raise SpecError(f"the network returns a {type(output).__name__}; tensors are compared")
    return output
