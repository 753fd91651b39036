"""Report on a quantised model: ranges, errors and plans of its layers, what stays float and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dscore.core.errors import InfeasibleError, UnavailableError
from dscore.core.problem import ConvProblem
from dscore.torch.quantize_values import Range
from dscore.torch.setting import Setting


@dataclass(frozen=True)
class QuantizedLayer:
    """One call of a convolution in a quantised model.

    *x*, *y*: the ranges of input and result on the calibration batches; *result*: the type of the
    result. *error*: the root of the mean square of what the layer of int8 differs by from the
    layer in floats, on the same inputs, over that of the latter's result. *plan*: the tiling that
    computes it. *reason* is why it stays in floats, else empty.
    """

    name: str
    kind: str
    reason: str = ""
    problem: str = ""
    folded: tuple[str, ...] = ()
    x: Range | None = None
    y: Range | None = None
    error: float | None = None
    result: str = ""
    plan: str = ""


@dataclass(frozen=True)
class QuantizationReport:
    """What `quantize` did to a model.

    *quantize_steps*, *dequantize_steps*: the modules at borders of int8. *error*: of the model's
    results on the calibration batches, as of a layer. *agreement*: the share of rows of these
    results whose largest element is the same; None where there are no rows of classes. *parts*:
    names of the graphs, "" for the whole model; *unfolded*: by name, why a module has none. Of a
    model of `from_pt2e` there is no error, and ranges are those that the scales state.
    """

    device: str
    layers: tuple[QuantizedLayer, ...]
    quantize_steps: int
    dequantize_steps: int
    error: float | None = None
    agreement: float | None = None
    error_limit: float = 0.0
    batches: int = 0
    parts: tuple[str, ...] = ("",)
    unfolded: tuple[tuple[str, str], ...] = ()
    note: str = field(default="", compare=False)

    @property
    def quantized(self) -> tuple[QuantizedLayer, ...]:
        """Layers of int8."""
        return tuple(layer for layer in self.layers if not layer.reason)

    @property
    def kept(self) -> tuple[QuantizedLayer, ...]:
        """Layers that stay in floats."""
        return tuple(layer for layer in self.layers if layer.reason)

    def __str__(self) -> str:
        rows = [("layer", "x from", "to", "y from", "to", "error", "result", "plan or reason"),
                *map(_row, self.layers)]
        agreement = "" if self.agreement is None else f", top-1 agreement {self.agreement:.1%}"
        lines = [f"{len(self.quantized)} of {len(self.layers)} convolutions in int8 (plans for "
                 f"{self.device}), {self.quantize_steps} quantize and {self.dequantize_steps} "
                 "dequantize steps"]
        if self.error is not None:
            lines += [f"on {self.batches} calibration batches: error {self.error:.2%}{agreement}"]
        lines += _aligned(rows)
        lines += [f"  {name or 'the model'} has no graph; its modules have their own: {reason}"
                  for name, reason in self.unfolded]
        return "\n".join([*lines, *[f"  note: {self.note}"] * bool(self.note)])


def plan_name(setting: Setting, problem: ConvProblem) -> str:
    """The tiling of a problem's plan, or in words why there is none."""
    try:
        return setting.plan_of(problem).tiling.name
    except (InfeasibleError, UnavailableError) as failed:
        return str(failed).splitlines()[0]


def _row(layer: QuantizedLayer) -> tuple[str, ...]:
    bounds = [bound for one in (layer.x, layer.y) for bound in
              (("", "") if one is None else (f"{one.low:.3g}", f"{one.high:.3g}"))]
    error = "" if layer.error is None else f"{layer.error:.2%}"
    return (layer.name, *bounds, error, layer.result or "float",
            f"kept: {layer.reason}" if layer.reason else layer.plan)


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows as lines, the columns between the first and the last two to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(
        cell.rjust(width) if 0 < at < len(row) - 2 else cell.ljust(width)
        for at, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in rows]
