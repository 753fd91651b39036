"""Quantisation of a trained model to int8, by the ranges of its tensors on calibration batches."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, fx, nn

from dscore.core.errors import SpecError, require_one_of, shown
from dscore.core.spec import LAYOUTS, Kind, Layout
from dscore.core.token import problem_token
from dscore.torch.accelerate import require_module, restore
from dscore.torch.folding import spec_of
from dscore.torch.quantize_calibration import Calibration, relative_error
from dscore.torch.quantize_choice import Choice, Wishes, choice_of, full_name
from dscore.torch.quantize_emission import rewritten
from dscore.torch.quantize_graph import Part, tensors_in
from dscore.torch.quantize_report import QuantizationReport, QuantizedLayer, plan_name
from dscore.torch.quantize_steps import Dequantize, Quantize
from dscore.torch.setting import Setting
from dscore.torch.tracing import gpu_of

# Of a layer: some ten times the error of docs/quantize.md's example.
ERROR_LIMIT = 0.1
_TYPES = (torch.float32, torch.float16)
_LEAST_PERCENTILE, _MOST_PERCENTILE = 50, 100


def quantize(model: nn.Module, calibration_batches: Iterable[Any], *,
             percentile: float | None = None, error_limit: float = ERROR_LIMIT,
             kinds: Sequence[Kind] | None = None, keep: Collection[str] = (),
             layout: Layout = "nhwc", backend: str = "auto") -> Any:
    """Quantised copy of a model: its convolutions in int8, by post-training quantisation.

    - *calibration_batches*: some hundred inputs of the kind that the model will see, in batches; a
      batch is a tensor, or a tuple of the model's inputs. Each is run some four times.
    - *percentile*: of the values, from which on a range leaves them out on each side, as 99.99;
      None for none.
    - *error_limit*: a layer whose error (`QuantizedLayer.error`) is above it stays in floats.
    - *kinds*: of convolutions that are quantised, "depthwise", "pointwise", "dense", "grouped";
      None for the first two, and those of the others that dscore has a kernel of int8 for.
    - *keep*: names of convolutions that stay in floats.
    - *layout*: of the integers in memory; "nhwc" is channels_last, which kernels of int8 prefer.
    - *backend*: "auto", or one by its name, that computes layers of int8 (`dscore.conv`).

    Returns a model in eval mode, with a `report` (print it); *model* stays as it is. Batch norms,
    relu and relu6 become part of the layers. Between layers of int8 tensors stay int8; at their
    borders are `Quantize` and `Dequantize` modules. A model without a graph is quantised in those
    of its modules that have one. On a GPU dscore's kernels compute; on the CPU PyTorch does, the
    same integers.

    Raises SpecError for a model in train mode, no or unfit batches, values that are not finite, and
    a model of which no convolution is reached.

    >>> model = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
    >>> quantized = quantize(model, [torch.randn(2, 8, 6, 6)])
    >>> [(layer.name, layer.folded, layer.result) for layer in quantized.report.layers]
    [('0', ('relu',), 'int8'), ('2', (), 'float32')]
    >>> quantized(torch.randn(1, 8, 6, 6)).shape
    torch.Size([1, 4, 4, 4])
    """
    _require_model(model)
    _require_options(percentile, error_limit, layout)
    wishes = Wishes(error_limit, kinds, keep, layout, backend)
    wishes.require_of(model)
    batches = _batches(calibration_batches)
    setting = Setting(backend, gpu_of(model))
    model = copy.deepcopy(model)
    restore(model)
    calibration = Calibration(model, batches, percentile)
    outside = tuple(_outside(calibration))
    choice = choice_of(calibration, wishes, setting)
    rows = tuple(_row(part, node, choice, setting, layout)
                 for part in calibration.parts for node in part.calls)
    for part in calibration.parts:
        calibration.put(part, rewritten(part, choice.of(part), layout, backend))
    vars(calibration.model)["report"] = _report(calibration, setting, (*rows, *outside), wishes)
    return calibration.model


def _require_model(model: Any) -> None:
    """Raise SpecError for what cannot be quantised."""
    require_module(model)
    training = [name or "the model" for name, one in model.named_modules() if one.training]
    if training:
        raise SpecError(f"{training[0]} is in train mode, in which batch norms and dropouts "
                        "compute something else; call model.eval() before quantize")
    other = next((one.dtype for one in model.parameters()
                  if one.is_floating_point() and one.dtype not in _TYPES), None)
    if other is not None:
        raise SpecError(f"the model is of {other}; quantize takes models of torch.float32 and "
                        "torch.float16, as model.float() is")


def _require_options(percentile: Any, error_limit: Any, layout: Any) -> None:
    require_one_of(layout, "layout", LAYOUTS)
    if percentile is not None and not _LEAST_PERCENTILE < percentile <= _MOST_PERCENTILE:
        raise SpecError(f"percentile must be above {_LEAST_PERCENTILE} and at most "
                        f"{_MOST_PERCENTILE}, as 99.99, got {shown(percentile)}")
    if not error_limit > 0:
        raise SpecError(f"error_limit must be positive, as {ERROR_LIMIT}, got {shown(error_limit)}")


def _batches(batches: Any) -> list[tuple[Any, ...]]:
    """The calibration batches, as tuples of the model's arguments; SpecError for others."""
    if isinstance(batches, Tensor):
        raise SpecError("calibration_batches is one tensor; pass a list of batches, as [x]")
    arguments = [one if isinstance(one, tuple) else (one,) for one in batches]
    if not arguments:
        raise SpecError("there are no calibration batches; pass some of the inputs that the model "
                        "is for, by whose ranges scales are set")
    for number, batch in enumerate(arguments):
        if isinstance(batch[0], list):
            raise SpecError(f"calibration batch {number} is a list; a batch is a tensor, or a "
                            "tuple of the model's inputs. Of a loader of inputs and labels pass "
                            "(x for x, _ in loader)")
    return arguments


def _row(part: Part, node: fx.Node, choice: Choice, setting: Setting, layout: Layout
         ) -> QuantizedLayer:
    """The report on a call."""
    layer = part.calls[node]
    name, kind = full_name(part, part.names()[node]), spec_of(layer.layer.conv, torch.float32).kind
    ranges = part.ranges[layer.x], part.ranges[layer.last]
    error, reason = choice.errors.get(node), choice.reasons.get(node, "")
    if reason:
        return QuantizedLayer(name, kind, reason, "", layer.layer.folded, *ranges, error)
    result = choice.layers[node].quantization.result
    problem = choice.problem(part, node, layout)
    return QuantizedLayer(name, kind, "", problem_token(problem), layer.folded, *ranges, error,
                          result, plan_name(setting, problem))


def _outside(calibration: Calibration) -> Iterator[QuantizedLayer]:
    """The reports on convolutions of no graph."""
    within = {one.layer.conv for part in calibration.parts for one in part.calls.values()}
    for name, conv in calibration.model.named_modules():
        if isinstance(conv, nn.Conv2d) and conv not in within:
            reason = ("the model calls it outside of a graph, or hooks are on it"
                      if name in calibration.seen else "no calibration batch comes to it")
            yield QuantizedLayer(name, spec_of(conv, torch.float32).kind, reason)


def _report(calibration: Calibration, setting: Setting, layers: tuple[QuantizedLayer, ...],
            wishes: Wishes) -> QuantizationReport:
    """The report, with the error of the quantised model on the calibration batches."""
    model, expected = calibration.model, calibration.expected
    with torch.no_grad():
        results = [list(tensors_in(model(*batch))) for batch in calibration.batches()]
    steps = [type(one) for one in model.modules()]
    return QuantizationReport(
        setting.device.name, layers, steps.count(Quantize), steps.count(Dequantize),
        relative_error([*chain(*results)], [*chain(*expected)]), _agreement(results, expected),
        wishes.error_limit, len(results), tuple(part.name for part in calibration.parts),
        tuple(calibration.unfolded.items()), setting.note)


def _agreement(results: list[list[Tensor]], expected: list[list[Tensor]]) -> float | None:
    """The share of rows whose largest element is the same; None where there are no such rows."""
    pairs = [(y[0], target[0]) for y, target in zip(results, expected, strict=True)
             if y and y[0].dim() == len("nc") and y[0].shape[1] > 1]
    rows = sum(len(y) for y, _ in pairs)
    same = sum(int((y.argmax(1) == target.argmax(1)).sum()) for y, target in pairs)
    return same / rows if rows else None
