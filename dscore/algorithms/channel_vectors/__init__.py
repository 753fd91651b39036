"""Depthwise layers on images whose channels lie side by side (NHWC): lanes over their vectors.

Forward, and the input gradient of layers with a filter for each channel (row_reuse has `view_of`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.algorithms.base import (
    COMPILER_REGISTERS,
    Algorithm,
    Case,
    Footprint,
    SpaceGenerator,
    Work,
    checker,
)
from dscore.algorithms.channel_vectors import cost
from dscore.algorithms.channel_vectors.limits import LIMITS
from dscore.algorithms.channel_vectors.space import columns_of
from dscore.algorithms.channel_vectors.tiling import (
    FRAGMENT,
    WORD,
    ChannelVectorsTiling,
    copies,
    grid_of,
    grid_size,
    on_units,
    row_words,
    shape_of,
    tap_words,
    threads_of,
)
from dscore.algorithms.columns import Count, ceil_div
from dscore.algorithms.early_start import spread_lds_bytes
from dscore.algorithms.refusal import require_kind
from dscore.algorithms.row_reuse.view import view_of
from dscore.algorithms.table_copies import table_bytes
from dscore.core.device import Device
from dscore.core.numerics import FLOATS, WORD_BYTES
from dscore.core.plan import Plan, Violation
from dscore.core.problem import ConvProblem

# Registers that a compiler takes beside sums, taps and a row; rows that it reads early, and what it
# takes at most above these; the same on matrix units, of a row's fragments. Of 55 random kernels
# for each of gfx906, gfx90a and sm_90 (30 on matrix units) about the least that none exceeded.
_HIPCC, _NVCC, _NVCC_UNITS = 24, 24, 30
_EARLY, _HIPCC_MARGIN, _NVCC_MARGIN = 4, 20, 0
_UNITS_EARLY, _UNITS_MARGIN = 16, 20
# At most, for a table on its way to each bank, of which a thread has several words: of some 100
# kernels for sm_90 one took 14 more than without.
_BANKED = 20
# For the place of a next tile: of 54 kernels for sm_90 about the least that none exceeded.
_REPEATED = 16
# Of int8 hipcc holds filters of more than three columns as they come, too, and what it makes of
# them: so often their words, of 14 kernels.
_FILTERS_HELD = 1.5
# Of a fragment of pixels.
_FRAGMENT_WORDS = 4


def require_alone(problem: ConvProblem) -> tuple[Violation, ...]:
    """Violation of a gradient that is made of layers with a filter for each channel."""
    multiplier = problem.spec.group_out
    return (Violation("E-MULTIPLIER", "channel multiplier", multiplier, 1),) * (multiplier > 1)


class ChannelVectors(Algorithm):
    """Lanes over vectors of channels; each row is added into all rows that taps connect it with."""

    name = "channel_vectors"
    tiling = ChannelVectorsTiling
    operations = ("conv", "input_gradient")
    elements, layouts = (*FLOATS, "int8"), ("nhwc",)
    limits = LIMITS
    spaces = (SpaceGenerator(True, columns_of),)
    weights = cost.WEIGHTS
    own_weights = {"float16": cost.HALVES, "bfloat16": cost.HALVES,  # noqa: RUF012
                   "int8": cost.BYTES}

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        violations = require_kind(problem, self.name, "depthwise")
        return violations or (require_alone(problem) if problem.operation != "conv" else ())

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        shape, view = shape_of(problem, t), view_of(problem)
        rows, taps = view.rows, problem.spec.products
        written = view.planes * rows.written_size * view.columns.written_size
        waves, grid = ceil_div(threads_of(t, wavefront), wavefront), grid_size(problem, t)
        # Lanes that share what a lane would have without matrix units; a wavefront has it twice.
        share = np.where(on_units(t), wavefront // 2, 1)
        return Footprint(
            threads=waves * wavefront, waves=waves,
            lds_bytes=(problem.spec.element.bytes * (shape.tiles + shape.filters)
                       + table_bytes(problem.spec, t.banked)),
            registers=_held(problem, t) + COMPILER_REGISTERS, blocks=grid,
            utilisation=written * share
            / (grid * waves * wavefront * t.repeat * t.vector * t.thread_h * t.thread_w),
            fmas=t.repeat * t.vector * _products(problem, t) // share,
            operand_loads=t.vector * (t.repeat * shape.rows * shape.columns + taps) / share)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        held = _held(problem, t) + _REPEATED * (t.repeat > 1)
        if device.vendor == "nvidia":
            return held + np.where(on_units(t), _NVCC_UNITS, _NVCC)
        spec = problem.spec
        wide = spec.element.exact and spec.kernel[1] >= WORD
        as_they_come = _FILTERS_HELD * spec.products * t.vector / WORD * wide
        # Of a row whose channels have several filters each byte comes to a register of its own.
        single = shape_of(problem, t).columns * t.vector * (spec.element.exact
                                                            and spec.group_out > 1)
        return held + _HIPCC + np.asarray(as_they_come + single, np.int64)

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        shape, fragments = shape_of(problem, t), ceil_div(problem.spec.kernel[1], 2)
        margin = _NVCC_MARGIN if device.vendor == "nvidia" else _HIPCC_MARGIN
        early = t.vector * np.minimum(_EARLY, shape.rows) * shape.columns
        lane = margin + _BANKED * t.banked + early
        units = _UNITS_MARGIN + _FRAGMENT_WORDS * fragments * (
            t.vector // FRAGMENT * np.minimum(_UNITS_EARLY, shape.rows))
        return self.registers(problem, t, device) + np.where(on_units(t), units, lane)

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        view = view_of(problem)
        return bool(view.rows.written_size % (t.lanes_h * t.thread_h)
                    or view.columns.written_size % (t.lanes_w * t.thread_w)
                    or problem.spec.out_channels % (t.vector * t.lanes_c)
                    or threads_of(t, wavefront) % wavefront)

    def work(self, case: Case, grids: Count) -> Work:
        return cost.work(case, grids)

    def traffic(self, case: Case) -> dict[str, Count]:
        return cost.named(case)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        return (t.vector, t.lanes_c, t.thread_h, t.thread_w, t.lanes_h, t.lanes_w, t.bands,
                t.repeat, int(t.ahead), int(on_units(t)), int(t.banked),
                plan.problem.spec.group_out, *_copies(plan), plan.device.wavefront, *_leads(plan))

    def asked_lds_bytes(self, plan: Plan, behind: bool) -> int:
        # In float32 layers of networks lose by it (docs/benchmark_notes.md).
        return spread_lds_bytes(plan) if plan.problem.spec.element.bytes < WORD_BYTES else 0

    def image_arguments(self, plan: Plan) -> str:
        leads = "".join(f"_lead{lead}" for lead in _leads(plan))
        multiplier = plan.problem.spec.group_out
        return "_m{}_e{}x{}x{}".format(multiplier, *_copies(plan)) + leads

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        t: Any = plan.tiling
        rows, columns = t.lanes_h * t.thread_h, t.lanes_w * t.thread_w
        place = row % rows // t.thread_h * t.lanes_w + column % columns // t.thread_w
        wave = (place // 2 * t.lanes_c if on_units(t)
                else place * t.lanes_c // plan.device.wavefront)
        return checker(row, rows, column, columns), wave

    def caption(self, plan: Plan) -> list[str]:
        problem, t = plan.problem, plan.tiling
        assert isinstance(t, ChannelVectorsTiling)
        channels, columns, rows, images = grid_of(problem, t)
        lane = "two places of a wavefront, each" if on_units(t) else "a lane"
        return [f"{lane}: {t.thread_h} rows x {t.thread_w} columns x {t.vector} channels",
                f"a block: {t.lanes_h * t.thread_h} rows x {t.lanes_w * t.thread_w} columns x "
                f"{t.lanes_c * t.vector} channels" + f", {t.repeat} times" * (t.repeat > 1),
                f"the grid: {channels} (channels) x {columns} (columns) x "
                + (f"{ceil_div(rows * images, t.repeat)} (rows of images)" if t.repeat > 1
                   else f"{rows} (rows) x {images} (images)") + " blocks"]


def _products(problem: ConvProblem, t: Any) -> Count:
    """Multiply-adds of a thread's results of one channel; of int8 those of words."""
    view = view_of(problem)
    products = view.rows.products(t.thread_h)
    if problem.spec.element.exact:
        return products * t.thread_w * tap_words(problem.spec) // problem.spec.kernel[0]
    return products * view.columns.products(t.thread_w)


def _held(problem: ConvProblem, t: Any) -> Count:
    """Registers of a thread's sums, taps and a row; on matrix units of its share, and a fragment.
    """
    shape, taps = shape_of(problem, t), problem.spec.products
    live = shape.live_rows * t.thread_w
    if problem.spec.element.exact:
        # Sums, biases and multipliers; taps in words of four, a row's words of four channels, and
        # those that are turned.
        words, phases = row_words(problem.spec, t.thread_w)
        before = tap_words(problem.spec) < problem.spec.kernel[0] * words
        return (t.vector * (live + 2 + tap_words(problem.spec) * phases)
                + t.vector // WORD * shape.columns * (1 + before) + 2 * WORD)
    lane = t.vector * (live + shape.columns + taps)
    return np.where(on_units(t), t.vector // FRAGMENT * (live // 2 + taps) + _FRAGMENT_WORDS, lane)


def _copies(plan: Plan) -> tuple[int, int, int]:
    """Elements that move as one: of the image, of the filters, and of the results."""
    image, filters, results = (int(n) for n in copies(plan.problem, plan.tiling))
    return image, filters, results


def _leads(plan: Plan) -> tuple[int, ...]:
    """The leads of an input gradient's axes."""
    view = view_of(plan.problem)
    return () if plan.problem.operation == "conv" else (view.rows.lead, view.columns.lead)
