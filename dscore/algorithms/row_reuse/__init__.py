"""Row reuse (Liu et al. 2024, §4.2) and column reuse (Lu et al. 2021) for depthwise layers.

Forward, and for the input gradient of layers with a filter for each channel (`view_of`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.algorithms.base import (
    BARRIER_BYTES,
    COMPILER_REGISTERS,
    Algorithm,
    Case,
    Footprint,
    Limit,
    SpaceGenerator,
    Work,
    checker,
)
from dscore.algorithms.columns import Count, ceil_div, power_of_two_within
from dscore.algorithms.early_start import AHEAD_LIMIT
from dscore.algorithms.refusal import require_kind
from dscore.algorithms.registers import roomy
from dscore.algorithms.row_reuse import cost, patches
from dscore.algorithms.row_reuse.space import columns_of
from dscore.algorithms.row_reuse.tiling import (
    UNIT_LANES,
    RowReuseTiling,
    blocks,
    on_units,
    row_vectors,
    shape_of,
    staged,
    waves_of,
)
from dscore.algorithms.row_reuse.view import view_of
from dscore.algorithms.row_reuse.words import words_of
from dscore.core.device import Device
from dscore.core.numerics import FLOATS
from dscore.core.plan import Plan, Violation
from dscore.core.problem import ConvProblem

# Registers that a compiler takes beside rows and sums: (k, c) of k · taps + c, from registers and
# through LDS, the least that no kernel without spills exceeded (docs/registers.md); of nvcc's from
# registers 92 in 100 keep it: what it takes beyond, it takes because it is there.
_HIPCC = (2, 15), (3, 25)
_NVCC = (1, 33), (1, 42)
# The same beside sums, taps and all rows under a filter, which compilers may load before they add
# the first.
_HIPCC_EARLY, _NVCC_EARLY = 4, 28
# And what some take above what they want; more of large filters.
_MARGIN, _ROOMY_MARGIN, _TAPS_OF_MARGIN = 4, 20, 10
# The same of int8, beside sums and words: what compilers take, and what some take more.
_HIPCC_WORDS, _NVCC_WORDS = (10, 8), (20, 58)
# Beside sums, fragments and the matrices of taps, and what some take more.
_NVCC_UNITS, _UNITS_MARGIN = 40, 54
# A thread's rows are unrolled: hipcc leaves a loop of 35 rolled, and its rows in scratch memory
# (docs/registers.md); 2,048 FMAs are 16 KiB of code, half an instruction cache of the GCN.
MOST_UNROLLED_ROWS = 32
MOST_UNROLLED_COLUMNS = 256
MOST_UNROLLED_FMAS = 2048


def _columns_left(case: Case) -> Count:
    t, width = case.tiling, view_of(case.problem).columns.written_size
    return np.where(staged(t), np.maximum(width - t.lanes_w * t.thread_w, 0), 0)


def _rows_left(case: Case) -> Count:
    t, height = case.tiling, view_of(case.problem).rows.written_size
    return np.where(staged(t) & (t.planes > 1),
                    np.maximum(height - t.lanes_h * t.thread_h, 0), 0)


def _no_floats(case: Case) -> Count:
    """Whether elements of int8 would be passed between lanes."""
    return 1 * (np.asarray(case.tiling.column_reuse)
                & (staged(case.tiling) | case.problem.spec.element.exact))


def _wider(case: Case) -> Count:
    """Whether results that are wider than elements would pass LDS as these."""
    wider = case.problem.spec.out_element != case.problem.spec.element
    return 1 * (wider & (np.asarray(case.tiling.staging) == "both"))


def _beside_units(case: Case) -> Count:
    """Rows and columns of a thread that are no multiple of the axis' unit."""
    t, view = case.tiling, view_of(case.problem)
    return t.thread_h % view.rows.unit + t.thread_w % view.columns.unit


def _units(case: Case) -> str:
    view = view_of(case.problem)
    return f"a thread has {view.rows.unit}n rows x {view.columns.unit}n columns"


class RowReuse(Algorithm):
    """Each row is loaded once, and added into all the rows that taps connect it with."""

    name = "row_reuse"
    tiling = RowReuseTiling
    operations = ("conv", "input_gradient")
    elements = (*FLOATS, "int8")
    limits = (
        Limit("E-SHUFFLE", "lanes_w", "", "",
              lambda c: (np.where(c.tiling.column_reuse, c.tiling.lanes_w, 0),
                         power_of_two_within(c.tiling.lanes_w, c.device.wavefront)),
              lambda c: f"a power of two up to {c.device.wavefront}"),
        Limit("E-REUSE", "column reuse", "", "",
              lambda c: (_no_floats(c), 0), lambda c: "of floats, from registers only"),
        Limit("E-BOTH", "results through LDS", "", "", lambda c: (_wider(c), 0),
              lambda c: "of the type of elements"),
        *patches.LIMITS,
        AHEAD_LIMIT,
        Limit("E-SPAN", "columns left", "", "", lambda c: (_columns_left(c), 0),
              lambda c: "through LDS a block takes whole rows"),
        Limit("E-SPAN-H", "rows left", "", "", lambda c: (_rows_left(c), 0),
              lambda c: "through LDS several planes are whole"),
        Limit("E-UNIT", "rows and columns left", "", "",
              lambda c: (_beside_units(c), 0), _units),
        Limit("E-ROWS", "unrolled rows", "", "",
              lambda c: (shape_of(c.problem, c.tiling).rows, MOST_UNROLLED_ROWS),
              legality=False, hardware=True),
        Limit("E-COLUMNS", "unrolled columns", "", "",
              lambda c: (shape_of(c.problem, c.tiling).reach, MOST_UNROLLED_COLUMNS),
              legality=False, hardware=True),
        Limit("E-CODE", "unrolled FMAs", "", "",
              lambda c: (np.where(on_units(c.tiling), 0, c.footprint.fmas), MOST_UNROLLED_FMAS),
              legality=False, hardware=True),
    )
    spaces = (SpaceGenerator(True, columns_of),)
    of_paper = True
    weights = cost.WEIGHTS
    own_weights = {"float16": cost.HALVES, "bfloat16": cost.HALVES}  # noqa: RUF012

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        violations = require_kind(problem, self.name, "depthwise")
        if not violations and problem.operation != "conv" and problem.spec.group_out > 1:
            return (Violation("E-MULTIPLIER", "channel multiplier", problem.spec.group_out, 1),)
        if problem.spec.element.exact and problem.spec.residual:
            # Results leave in vectors of LDS, which a residual's need not be in memory.
            return (*violations, Violation("E-RESIDUAL", "residual of int8", "one", "none"))
        return violations

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        shape, element, view = shape_of(problem, t), problem.spec.element.bytes, view_of(problem)
        rows, columns, taps = view.rows, view.columns, problem.spec.products
        written = view.planes * rows.written_size * columns.written_size
        waves, grid = waves_of(t, wavefront), blocks(problem, t)
        # Lanes that share what a lane would have without matrix units.
        share = np.where(on_units(t), wavefront // UNIT_LANES, 1)
        return Footprint(
            threads=waves * wavefront, waves=waves,
            lds_bytes=element * (shape.span_in + shape.span_out)
            + np.where(staged(t), BARRIER_BYTES, 0),
            registers=_held(problem, t) + COMPILER_REGISTERS,
            blocks=grid,
            utilisation=written * share
            / (grid * waves * wavefront * t.repeat * t.thread_h * t.thread_w),
            fmas=t.repeat * rows.products(t.thread_h) * (
                words_of(problem, t).dots if problem.spec.element.exact
                else columns.products(t.thread_w)) // share,
            operand_loads=t.repeat * (shape.rows * shape.columns + taps) / share)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        shape, taps = shape_of(problem, t), problem.spec.products
        if problem.spec.element.exact:
            rest, _ = _NVCC_WORDS if device.vendor == "nvidia" else _HIPCC_WORDS
            return _held(problem, t) + rest
        direct, through_lds = (factor * taps + constant for factor, constant in (
            _NVCC if device.vendor == "nvidia" else _HIPCC))
        lanes = shape.live_rows * t.thread_w + shape.columns + np.where(staged(t), through_lds,
                                                                        direct)
        return np.where(on_units(t), _held(problem, t) + _NVCC_UNITS, lanes)

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        shape, axis = shape_of(problem, t), view_of(problem).rows
        if problem.spec.element.exact:
            early = np.minimum(axis.positions, shape.rows) * words_of(problem, t).read
            _, more = _NVCC_WORDS if device.vendor == "nvidia" else _HIPCC_WORDS
            return self.registers(problem, t, device) + early + more
        rest = _NVCC_EARLY if device.vendor == "nvidia" else _HIPCC_EARLY
        columns = shape.reach if roomy(device) else shape.columns
        early = np.minimum(axis.positions, shape.rows) * columns
        taps = problem.spec.products
        margin = (_ROOMY_MARGIN + 3 * taps if roomy(device)
                  else _MARGIN + taps // _TAPS_OF_MARGIN)
        registers = self.registers(problem, t, device)
        lanes = np.maximum(registers + margin, shape.live_rows * t.thread_w + taps + early + rest)
        return np.where(on_units(t), registers + _UNITS_MARGIN, lanes)

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        view, lanes = view_of(problem), t.lanes_h * t.lanes_w
        left = lanes % UNIT_LANES if on_units(t) else t.planes * lanes % wavefront
        return bool(view.rows.written_size % (t.lanes_h * t.thread_h)
                    or view.columns.written_size % (t.lanes_w * t.thread_w)
                    or view.planes % t.planes or left)

    def work(self, case: Case, grids: Count) -> Work:
        return cost.work(case, grids)

    def traffic(self, case: Case) -> dict[str, Count]:
        return cost.named(case)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        return (t.thread_h, t.thread_w, t.lanes_h, t.lanes_w, t.planes,
                f"dscore::Staging::{t.staging}", int(t.column_reuse), int(t.ahead),
                int(on_units(t)), t.repeat,
                *_spans(plan), *_vectors(plan), plan.device.wavefront, *_leads(plan))

    def image_arguments(self, plan: Plan) -> str:
        leads = "".join(f"_lead{lead}" for lead in _leads(plan))
        return "_e{}x{}_v{}o{}x{}".format(*_spans(plan), *_vectors(plan)) + leads

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        t: Any = plan.tiling
        rows, columns = t.lanes_h * t.thread_h, t.lanes_w * t.thread_w
        lane = row % rows // t.thread_h * t.lanes_w + column % columns // t.thread_w
        lanes = UNIT_LANES if on_units(t) else plan.device.wavefront
        return checker(row, rows, column, columns), lane // lanes

    def caption(self, plan: Plan) -> list[str]:
        problem, t = plan.problem, plan.tiling
        assert isinstance(t, RowReuseTiling)
        high, wide, view = t.lanes_h * t.thread_h, t.lanes_w * t.thread_w, view_of(problem)
        planes = ceil_div(view.planes, t.planes)
        rows = ceil_div(view.rows.written_size, high)
        columns = ceil_div(view.columns.written_size, wide)
        lane = f"a {UNIT_LANES}th of a wavefront" if on_units(t) else "a lane"
        return [f"{lane}: {t.thread_h} rows x {t.thread_w} columns",
                f"a block: {high} rows x {wide} columns x {t.planes} planes",
                f"the grid: {planes} (planes) x {rows} (rows) x {columns} (columns) blocks"]


def _held(problem: ConvProblem, t: Any) -> Count:
    """Registers of sums, a row and the taps; of int8 words, and which of their bytes lie in the
    image; on matrix units fragments, and two words of a matrix of taps for each pair of rows."""
    shape = shape_of(problem, t)
    live = shape.live_rows * t.thread_w
    if problem.spec.element.exact:
        of_row = words_of(problem, t)
        return live + of_row.read + 2 * of_row.words + of_row.taps
    lanes = live + shape.columns + problem.spec.products
    return np.where(on_units(t), patches.held(problem, t), lanes)


def _spans(plan: Plan) -> tuple[int, int]:
    """Elements of LDS for a block's rows and results."""
    shape = shape_of(plan.problem, plan.tiling)
    return int(shape.span_in), int(shape.span_out)


def _vectors(plan: Plan) -> tuple[int, int, int]:
    """Columns of a vector, the first that one begins with, and those of a result."""
    loaded, stored = (int(v) for v in row_vectors(plan.problem, plan.tiling))
    return loaded, -view_of(plan.problem).columns.first % loaded, stored


def _leads(plan: Plan) -> tuple[int, ...]:
    """The leads of an input gradient's axes."""
    view = view_of(plan.problem)
    return () if plan.problem.operation == "conv" else (view.rows.lead, view.columns.lead)
