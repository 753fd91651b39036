"""Kernels of plans in lockstep: the grid's blocks, addresses of images, the epilogue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from dscore.backends.reference.machine import (
    Addresses,
    Blocks,
    Bools,
    Floats,
    Ints,
    Operands,
    Tensor,
    chunks,
)
from dscore.core.errors import LaunchError
from dscore.core.plan import Plan
from dscore.core.trace import Trace
from dscore.ops.quantised import FLOATS_OF_X, beside_of, points_of

_MINUS_LOG2_E = np.float32(-np.log2(np.e))


def require_launch(plan: Plan, blocks: int, threads: int) -> None:
    """LaunchError where the plan's grid is not the one that the tiling covers the output with."""
    for what, planned, needed in (("blocks", plan.launch.blocks, blocks),
                                  ("threads of a block", plan.launch.threads, threads),
                                  ("threads of its resource use", plan.use.threads, threads)):
        if planned != needed:
            raise LaunchError(f"{plan.name}: the plan launches {planned} {what}, the tiling needs "
                              f"{needed}; take them from its algorithm's case")


def activate(sums: Floats, activation: str | None) -> Floats:
    """The activation of *sums* in place, every operation rounded to float32; a NaN stays one.

    silu and sigmoid rest on NumPy's exp2, so that other implementations agree with it to a few
    roundings only (hip_src/support/exponentials.hpp).
    """
    if activation in ("relu", "relu6"):
        np.maximum(sums, np.float32(0), out=sums)
    if activation == "relu6":
        np.minimum(sums, np.float32(6), out=sums)
    if activation in ("silu", "sigmoid"):
        # exp2 overflows to inf for a large negative sum, and the quotient is 0, as it should.
        gates = np.float32(1) / (np.float32(1) + np.exp2(sums * _MINUS_LOG2_E))
        np.multiply(gates, sums if activation == "silu" else np.float32(1), out=sums)
    if activation in ("hardswish", "hardsigmoid"):
        gate = np.clip(sums + np.float32(3), np.float32(0), np.float32(6)) / np.float32(6)
        np.multiply(gate, sums if activation == "hardswish" else np.float32(1), out=sums)
    return sums


def integers_of(values: Floats, multiplier: np.float32, zero_point: np.float32) -> Floats:
    """Integers of int8 for *values*, as floats; the product is rounded to float32."""
    with np.errstate(over="ignore"):
        steps = np.rint(values * multiplier)
    return np.clip(steps + zero_point, np.float32(-128), np.float32(127))


def batches(plan: Plan, total: int, trace: Trace | None,
            allocate: Callable[[Blocks], None]) -> Iterator[tuple[Blocks, int]]:
    """The blocks of a grid of *total*, as many together as fit memory, and the first's number.

    *allocate* is called on blocks before they first run.
    """
    blocks = None
    for first, count in chunks(total, Blocks.at_a_time(plan)):
        if blocks is None or blocks.count != count:
            blocks = Blocks(plan, count, trace)
            allocate(blocks)
        yield blocks, first


class Images(NamedTuple):
    """Where images of a layout have their elements (hip_src/support/common.hpp)."""

    last: bool  # channels are

    def channel_step(self, area: int) -> int:
        """From a channel to the next, each of *area* pixels."""
        return 1 if self.last else area

    def pixel_step(self, channels: int) -> int:
        """From a pixel to the next in its row."""
        return channels if self.last else 1

    def at(self, image: Ints, channel: Ints, pixel: Ints, channels: int, area: int) -> Ints:
        """A pixel of a channel."""
        if self.last:
            return (image * area + pixel) * channels + channel
        return (image * channels + channel) * area + pixel

    def of_group(self, plane: Ints, groups: int, channels: int, area: int) -> Ints:
        """The first pixel of a group of *channels* in an image; *plane* counts both, groups faster.
        """
        return self.at(plane // groups, plane % groups * channels, 0 * plane, groups * channels,
                       area)


class LockstepKernel:
    """Kernel of a plan on its operands: the base of the algorithms' kernels."""

    def __init__(self, plan: Plan, operands: Operands) -> None:
        self.plan, self.problem, self.wavefront = plan, plan.problem, plan.device.wavefront
        self.t: Any = plan.tiling
        self.operands, self.out = operands, operands["out"]
        self.layout = Images(self.problem.spec.layout == "nhwc")

    def epilogue(self, blocks: Blocks, sums: Floats, channel: Ints, at: Addresses) -> Floats:
        """*sums* with the bias of each lane's output *channel*, the residual and the activation.

        *at* is where the lanes store them. In place.
        """
        spec = self.problem.spec
        if spec.element.exact:
            return self._requantised(blocks, sums, channel, at)
        if spec.bias:
            mask = None if at.masked is None else ~at.masked
            np.add(sums, self._loaded(blocks, "bias", "biases", Addresses(channel, mask)),
                   out=sums)
        if spec.residual == "before":
            np.add(sums, self._loaded(blocks, "residual", "residuals", at), out=sums)
        activate(sums, spec.activation)
        if spec.residual == "after":
            np.add(sums, self._loaded(blocks, "residual", "residuals", at), out=sums)
        return sums

    def _requantised(self, blocks: Blocks, sums: Floats, channel: Ints, at: Addresses) -> Floats:
        """The results of int32 *sums*, as floats (hip_src/support/requantised.hpp)."""
        spec = self.problem.spec
        mask = None if at.masked is None else ~at.masked
        lanes = Addresses(channel, mask)
        if spec.bias:
            sums = sums + self._loaded(blocks, "bias", "biases", lanes, dtype=np.int32)
        multiplier = self._loaded(blocks, "multiplier", "multipliers", lanes)
        products: Floats = sums.astype(np.float32) * multiplier
        if not spec.out_element.exact:
            return activate(products, spec.activation)
        if spec.residual:
            distance = self._loaded(blocks, "residual", "residuals", at) - np.float32(
                self._point("residual_zero_point"))
            products += distance * self._ratio("residual")
        zero, low, high = self.operands["points"][1:4].astype(np.float32)
        results: Floats = np.minimum(np.maximum(np.rint(products) + zero, low), high)
        if spec.table:
            entries = Addresses(results.astype(np.int64), mask)
            return self._loaded(blocks, "table", "tables", entries)
        return results

    def _point(self, name: str) -> int:
        return int(self.operands["points"][points_of(self.problem.spec).index(name)])

    def _ratio(self, name: str) -> np.float32:
        """That of the residual, or of what is scaled."""
        return np.float32(self.operands["ratios"][beside_of(self.problem.spec).index(name)])

    def load_x(self, blocks: Blocks, values: Any, at: Addresses, advance: int = 0,
               **counted: Any) -> None:
        """Elements of x, to *values* as large as *at*; of floats the integers that they become."""
        if self.problem.spec.in_dtype is None:
            blocks.load(values, self.operands["x"], at, "inputs", advance, **counted)
            return
        floats = np.empty(values.shape, np.float32)
        blocks.load(floats, self.operands["x"], at, "inputs", advance, **counted)
        values[...] = integers_of(floats, self._ratio(FLOATS_OF_X),
                                  np.float32(self._point("x_zero_point")))
        np.copyto(values, 0, where=~np.broadcast_to(at.live, values.shape))

    def distances(self, values: Ints, lanes: Bools) -> None:
        """Subtract x's zero point from *values* of x in place, but of lanes that have none."""
        if self.problem.spec.element.exact:
            np.subtract(values, self.operands["points"][0], out=values, where=lanes)

    def scaled(self, blocks: Blocks, values: Floats, at: Addresses, advance: int = 0) -> None:
        """Multiply *values* of x in place by the scales *at* their images and channels."""
        if not self.problem.spec.scaled:
            return
        scales = self._loaded(blocks, "scale", "scales", at, advance)
        if not self.problem.spec.element.exact:
            np.multiply(values, scales, out=values)
            return
        most = np.finfo(np.float16).max
        factors = np.clip(scales * self._ratio("input"), -most, most).astype(np.float16)
        products = (values - self._point("input_zero_point")) * factors.astype(np.float32)
        zero = np.float32(self._point("scaled_zero_point"))
        results = np.clip(np.rint(products) + zero, -128, 127)
        np.copyto(values, results.astype(np.int32), where=at.live)

    def _loaded(self, blocks: Blocks, name: str, what: Tensor, at: Addresses,
                advance: int = 0, dtype: type[np.generic] = np.float32) -> Floats:
        values = np.empty(at.index.shape, dtype=dtype)
        blocks.load(values, self.operands[name], at, what, advance)
        return values
