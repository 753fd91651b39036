"""Report on a model's convolutions: plan, expected and measured gain, what is left and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from dscore.core.catalog import event_launch_seconds
from dscore.core.device import Device
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.core.token import problem_token
from dscore.ops import output_of
from dscore.solving.cost import LAUNCH_SECONDS
from dscore.torch.folding import spec_of
from dscore.torch.setting import Setting
from dscore.torch.survey import ConvCall, Survey
from dscore.tuning import shipped_hints

# Time of PyTorch's default over dscore's, by device, kind and batch: geometric means over D1-D30
# and P1-P45 (docs/benchmarks.md). Between these batches the nearest one below counts.
OVER_DEFAULT = {"h200": {"depthwise": {1: 3.06, 8: 3.29, 32: 3.60, 64: 3.72},
                         "pointwise": {1: 4.24, 8: 2.76, 32: 2.24, 64: 2.25}}}


@dataclass(frozen=True)
class LayerReport:
    """One call of a convolution: who computes it, how, and what that gains.

    Gains are times of PyTorch's convolution, with what is folded as functions of its own, over
    dscore's; None where they are not known. `reason` is why PyTorch computes it, else empty.
    """

    name: str
    kind: str
    problem: str
    folded: tuple[str, ...]
    reason: str
    plan: str = ""
    expected_seconds: float | None = None
    expected_gain: float | None = None
    measured_seconds: float | None = None
    measured_gain: float | None = None

    @property
    def gain(self) -> float | None:
        """The measured gain, else the expected one."""
        return self.expected_gain if self.measured_gain is None else self.measured_gain


@dataclass(frozen=True)
class Report:
    """What `accelerate` does to a model, or would do.

    *device*: that the plans are for. *folded*: the parts of the model that run as folded graphs,
    by name, "" for the whole. *unfolded*: by name, why a part has no graph. *kernels*, *compiled*:
    how many kernels were prepared, and had to be compiled. `model` is the accelerated model.
    """

    device: str
    backend: str
    layers: tuple[LayerReport, ...]
    folded: tuple[str, ...] = ()
    unfolded: tuple[tuple[str, str], ...] = ()
    kernels: int = 0
    compiled: int = 0
    note: str = ""
    model: Any = field(default=None, repr=False, compare=False)

    @property
    def replaced(self) -> tuple[LayerReport, ...]:
        """Layers that dscore computes."""
        return tuple(layer for layer in self.layers if not layer.reason)

    @property
    def left(self) -> tuple[LayerReport, ...]:
        """Layers that PyTorch computes."""
        return tuple(layer for layer in self.layers if layer.reason)

    def __str__(self) -> str:
        lines = [f"{len(self.replaced)} of {len(self.layers)} convolutions by dscore "
                 f"({self.backend}, plans for {self.device})"]
        width = max((len(layer.name) for layer in self.layers), default=0)
        lines += [f"  {layer.name:<{width}}  {_layer_text(layer)}" for layer in self.layers]
        lines += [f"  {name or 'the model'} has no graph, and runs module by module: {reason}"
                  for name, reason in self.unfolded]
        return "\n".join([*lines, *[f"  note: {self.note}"] * bool(self.note)])

    def __getstate__(self) -> dict[str, Any]:
        """Without the model, which itself keeps its report."""
        return {**vars(self), "model": None}


def _layer_text(layer: LayerReport) -> str:
    if layer.reason:
        return f"PyTorch's: {layer.reason}"
    gain = "" if layer.gain is None else f", {layer.gain:.1f} times as fast"
    return layer.plan + (f" with {', '.join(layer.folded)}" if layer.folded else "") + gain


def report_on(survey: Survey, setting: Setting) -> Report:
    """The report on a survey."""
    return Report(
        setting.device.name, setting.name, tuple(map(_layer_report, survey.calls)),
        tuple(survey.parts), tuple(survey.unfolded.items()),
        setting.kernels, setting.compiled, setting.note, survey.model)


def _layer_report(call: ConvCall) -> LayerReport:
    kind = spec_of(call.conv, torch.float32).kind
    token = "" if call.problem is None else problem_token(call.problem)
    if call.reason or call.plan is None or call.problem is None:
        return LayerReport(call.name, kind, token, call.folded, call.reason)
    ours = expected_seconds(call.plan)
    peer = peer_seconds(call.problem, call.plan.device, call.folded, ours)
    measured, measured_peer = call.measured or (None, None)
    return LayerReport(
        call.name, kind, token, call.folded, "", call.plan.tiling.name, ours,
        None if peer is None else peer / ours, measured,
        None if measured is None or measured_peer is None else measured_peer / measured)


def expected_seconds(plan: Plan) -> float:
    """The time of a plan as its device's shipped hint states it, else by the cost model."""
    device, microseconds = shipped_hints.timing(plan) or ("", 0.0)
    return microseconds * 1e-6 if device == plan.device.name else plan.cost.seconds


def peer_seconds(problem: ConvProblem, device: Device, folded: Sequence[str],
                 ours: float) -> float | None:
    """The time that PyTorch is expected to take for a layer and for what is folded into it.

    That of the layer is *ours* times the mean of `OVER_DEFAULT`; of the rest, each part is a launch
    that reads its operands and writes its result. None for devices without such means.
    """
    means = OVER_DEFAULT.get(device.name, {}).get(problem.spec.kind)
    if means is None or (problem.spec.dtype, problem.spec.layout) != ("float32", "nchw"):
        return None
    batch = max((one for one in means if one <= problem.batch), default=min(means))
    launch = (event_launch_seconds(device.name) or device.measured_launch_seconds
              or LAUNCH_SECONDS)
    output = output_of(problem)
    tensor = output.elements * output.element.bytes / device.bandwidth
    scale = output.elements * problem.spec.in_channels / problem.spec.out_channels
    passes = sum(launch + (2 * scale * output.element.bytes / device.bandwidth if part == "scale"
                           else (3 if part.startswith("residual") else 2) * tensor)
                 for part in folded)
    return ours * means[batch] + passes
