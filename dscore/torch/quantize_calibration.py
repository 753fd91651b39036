"""Calibration of a model: its graphs run on batches, for ranges, errors and results."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn

from dscore.core.errors import SpecError, shown
from dscore.torch.example import arguments_seen, copied
from dscore.torch.quantize_graph import Observed, Observer, Part, parts_of, tensors_in
from dscore.torch.quantize_values import range_of
from dscore.torch.tracing import evaluating

Batch = tuple[Any, ...]
# Of the float graph's result on a calibration batch: more is a graph that was traced wrongly.
_MOST_DIFFERENCE = 0.02


class Calibration:
    """Calibration of a *model*, a copy that is changed, on batches: its parts and their ranges.

    `expected` are the model's results on the batches, `seen` the arguments of its modules, and
    `unfolded` says by name why a module has no graph. Raises SpecError for batches that the model
    does not take, values that are not finite, and a model without convolutions in graphs.
    """

    def __init__(self, model: nn.Module, batches: list[Batch], percentile: float | None) -> None:
        self.model, self._batches = model, batches
        self.seen: dict[str, Batch] = {}
        with evaluating(model):
            self.expected = [self._result(*numbered) for numbered in enumerate(self._batches)]
            self.parts, self.unfolded = parts_of(model, self.seen)
        self._places = {part: _places(model, part, self.parts) for part in self.parts}
        if not any(part.calls for part in self.parts):
            raise SpecError(_no_convolution(model, self.unfolded))
        self._observe_ranges(percentile)

    def batches(self) -> Iterator[Batch]:
        """Copies of the batches: a model may overwrite its input, as by an activation in place."""
        for batch in self._batches:
            yield copied(batch)

    def results(self, observer: Observer) -> Iterator[list[Tensor]]:
        """The results on each batch in floats, after the *observer* saw the values of all nodes."""
        for part in self.parts:
            self.put(part, Observed(part, observer))
        try:
            with torch.no_grad():
                for batch in self.batches():
                    yield list(tensors_in(self.model(*batch)))
        finally:
            for part in self.parts:
                self.put(part, part.module)

    def put(self, part: Part, module: nn.Module) -> None:
        """Set a *module* in the places of a part."""
        if not part.name:
            self.model = module
        for parent, name in self._places[part]:
            setattr(parent, name, module)

    def _result(self, number: int, batch: Batch) -> list[Tensor]:
        """The model's result on a batch; what its modules are called with is `seen` then."""
        if not all(bool(one.isfinite().all()) for one in tensors_in(batch)):
            raise SpecError(f"calibration batch {number} has values that are NaN or infinite; "
                            "leave such inputs out")
        try:
            seen, result = arguments_seen(self.model, batch)
        except Exception as failed:  # whatever a model raises on what it does not take
            shapes = ", ".join(str(tuple(one.shape)) for one in tensors_in(batch)) or shown(batch)
            reason = (str(failed).splitlines() or [""])[0]
            raise SpecError(f"calibration batch {number}, of shape {shapes}, is none that the "
                            f"model takes: {type(failed).__name__}: {reason}") from failed
        self.seen = {**seen, **self.seen}
        return list(tensors_in(result))

    def _observe_ranges(self, percentile: float | None) -> None:
        """Find the ranges of all values that a layer of int8 would take or make."""
        owners = {value: part for part in self.parts for value in part.observed}
        number = 0

        def observe(node: fx.Node, value: Any, operands: dict[fx.Node, Any]) -> None:
            part = owners.get(node)
            if part is None:
                return
            new = range_of(value, percentile)
            if not new.finite:
                raise SpecError(f"calibration batch {number} makes {node.name} NaN or infinite, of "
                                "which there is no range; look at the model's inputs and weights")
            part.ranges[node] = part.ranges[node].joined(new) if node in part.ranges else new
            if node in part.calls:
                x, *_ = operands.values()
                part.shapes.setdefault(node, tuple(x.shape))

        for results in self.results(observe):
            error = relative_error(results, self.expected[number])
            if not error <= _MOST_DIFFERENCE:
                raise SpecError("as PyTorch traces the model, its result on calibration batch "
                                f"{number} is another one, by {error:.1%}; its graph depends on "
                                "values. Quantise modules of it that do not")
            number += 1
        for part in self.parts:
            part.share_ranges()


def _places(model: nn.Module, part: Part, parts: list[Part]) -> list[tuple[nn.Module, str]]:
    """The modules outside of all parts that have a part, with its names there: a module may be in
    a list several times."""
    within = {module for one in parts for module in one.module.modules()}
    return [(parent, name) for parent in model.modules() if parent not in within
            for name, module in parent._modules.items() if module is part.module]


def squares(y: Tensor, expected: Tensor) -> tuple[float, float]:
    """The sums of squares of a difference, and of what is expected.

    >>> squares(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]))
    (4.0, 17.0)
    """
    exact = expected.double()
    return float((y.double() - exact).square().sum()), float(exact.square().sum())


def root(difference: float, expected: float) -> float:
    """The relative error of two sums of squares.

    >>> root(1.0, 4.0), root(0.0, 0.0), root(1.0, 0.0)
    (0.5, 0.0, inf)
    """
    if not expected:
        return math.inf if difference else 0.0
    return math.sqrt(difference / expected)


def relative_error(results: list[Tensor], expected: list[Tensor]) -> float:
    """The relative error of results, of all tensors together; infinite where shapes differ."""
    if [one.shape for one in results] != [one.shape for one in expected]:
        return math.inf
    pairs = [squares(*both) for both in zip(results, expected, strict=True)]
    return root(sum(one for one, _ in pairs), sum(one for _, one in pairs))


def _no_convolution(model: nn.Module, unfolded: dict[str, str]) -> str:
    """The error of a model of which nothing can be quantised."""
    if not any(isinstance(one, nn.Conv2d) for one in model.modules()):
        return "the model has no torch.nn.Conv2d, which quantize makes layers of int8 of"
    reasons = "; ".join(f"{name or 'the model'}: {reason}" for name, reason in unfolded.items())
    return ("no calibration batch comes to a convolution in a graph" + f" ({reasons})" * bool(
        reasons) + "; call the model's convolutions from modules that torch.fx traces")
