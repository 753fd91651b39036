"""Depthwise layers on images whose channels lie side by side (NHWC): lanes over their vectors.

Forward, and the input gradient of layers with a filter for each channel (row_reuse has `view_of`).
"""

from __future__ import annotations

from typing import Any

from dscore.algorithms.base import (
    COMPILER_REGISTERS,
    Algorithm,
    Case,
    Footprint,
    Limit,
    SpaceGenerator,
    Work,
    checker,
    require_kind,
)
from dscore.algorithms.channel_vectors import cost
from dscore.algorithms.channel_vectors.space import columns_of
from dscore.algorithms.channel_vectors.tiling import (
    ChannelVectorsTiling,
    blocks,
    copies,
    grid_of,
    shape_of,
    vector_elements,
)
from dscore.algorithms.columns import Count, ceil_div, power_of_two_within
from dscore.algorithms.row_reuse.view import view_of
from dscore.core.device import Device
from dscore.core.numerics import FLOATS
from dscore.core.plan import Plan, Violation
from dscore.core.problem import ConvProblem

# Registers that a compiler takes beside sums, taps and a row, and what it takes at most above that
# (docs/registers.md).
_HIPCC, _NVCC = 24, 24
_HIPCC_MARGIN, _NVCC_MARGIN = 24, 24
# A thread's rows are unrolled (row_reuse has these numbers' reasons).
MOST_UNROLLED_ROWS = 32
MOST_UNROLLED_COLUMNS = 256
MOST_UNROLLED_FMAS = 4096


def _beside_units(case: Case) -> Count:
    """Rows and columns of a thread that are no multiple of the axis' unit."""
    t, view = case.tiling, view_of(case.problem)
    return t.thread_h % view.rows.unit + t.thread_w % view.columns.unit


def _units(case: Case) -> str:
    view = view_of(case.problem)
    return f"a thread has {view.rows.unit}n rows x {view.columns.unit}n columns"


class ChannelVectors(Algorithm):
    """Lanes over vectors of channels; each row is added into all rows that taps connect it with."""

    name = "channel_vectors"
    tiling = ChannelVectorsTiling
    operations = ("conv", "input_gradient")
    elements, layouts = FLOATS, ("nhwc",)
    limits = (
        Limit("E-VECTOR", "vector", "", "",
              lambda c: (c.tiling.vector,
                         power_of_two_within(c.tiling.vector, vector_elements(c.problem))),
              lambda c: f"a power of two up to {vector_elements(c.problem)}"),
        Limit("E-BANDS", "bands", "", "",
              lambda c: (c.tiling.bands, shape_of(c.problem, c.tiling).rows),
              lambda c: "of a row at least"),
        Limit("E-AHEAD", "ahead", "", "",
              lambda c: (1 * c.tiling.ahead, int(c.device.early_start)),
              lambda c: "needs a device with an early start"),
        Limit("E-UNIT", "rows and columns left", "", "",
              lambda c: (_beside_units(c), 0), _units),
        Limit("E-ROWS", "unrolled rows", "", "",
              lambda c: (shape_of(c.problem, c.tiling).rows, MOST_UNROLLED_ROWS),
              legality=False, hardware=True),
        Limit("E-COLUMNS", "unrolled columns", "", "",
              lambda c: (view_of(c.problem).columns.under(c.tiling.thread_w),
                         MOST_UNROLLED_COLUMNS),
              legality=False, hardware=True),
        Limit("E-CODE", "unrolled FMAs", "", "",
              lambda c: (c.footprint.fmas, MOST_UNROLLED_FMAS), legality=False, hardware=True),
    )
    spaces = (SpaceGenerator(True, columns_of),)
    weights = cost.WEIGHTS

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        violations = require_kind(problem, self.name, "depthwise")
        if not violations and problem.operation != "conv" and problem.spec.group_out > 1:
            return (Violation("E-MULTIPLIER", "channel multiplier", problem.spec.group_out, 1),)
        return violations

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        shape, view = shape_of(problem, t), view_of(problem)
        rows, columns, taps = view.rows, view.columns, problem.spec.products
        written = view.planes * rows.written_size * columns.written_size
        waves, grid = ceil_div(t.lanes_c * t.lanes_w * t.lanes_h, wavefront), blocks(problem, t)
        return Footprint(
            threads=waves * wavefront, waves=waves,
            lds_bytes=problem.spec.element.bytes * (shape.tile + shape.filters),
            registers=t.vector * (shape.live_rows * t.thread_w + shape.columns + taps)
            + COMPILER_REGISTERS,
            blocks=grid,
            utilisation=written
            / (grid * waves * wavefront * t.vector * t.thread_h * t.thread_w),
            fmas=t.vector * rows.products(t.thread_h) * columns.products(t.thread_w),
            operand_loads=t.vector * (shape.rows * shape.columns + taps))

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        shape = shape_of(problem, t)
        return (t.vector * (shape.live_rows * t.thread_w + shape.columns + problem.spec.products)
                + (_NVCC if device.vendor == "nvidia" else _HIPCC))

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        shape = shape_of(problem, t)
        margin = _NVCC_MARGIN if device.vendor == "nvidia" else _HIPCC_MARGIN
        return self.registers(problem, t, device) + margin + t.vector * shape.columns

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        view = view_of(problem)
        return bool(view.rows.written_size % (t.lanes_h * t.thread_h)
                    or view.columns.written_size % (t.lanes_w * t.thread_w)
                    or problem.spec.out_channels % (t.vector * t.lanes_c)
                    or t.lanes_c * t.lanes_w * t.lanes_h % wavefront)

    def work(self, case: Case, grids: Count) -> Work:
        return cost.work(case, grids)

    def traffic(self, case: Case) -> dict[str, Count]:
        return cost.named(case)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        return (t.vector, t.lanes_c, t.thread_h, t.thread_w, t.lanes_h, t.lanes_w, t.bands,
                int(t.ahead), plan.problem.spec.group_out, *_copies(plan), plan.device.wavefront,
                *_leads(plan))

    def image_arguments(self, plan: Plan) -> str:
        leads = "".join(f"_lead{lead}" for lead in _leads(plan))
        multiplier = plan.problem.spec.group_out
        return "_m{}_e{}x{}x{}".format(multiplier, *_copies(plan)) + leads

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        t: Any = plan.tiling
        rows, columns = t.lanes_h * t.thread_h, t.lanes_w * t.thread_w
        group = row % rows // t.thread_h * t.lanes_w + column % columns // t.thread_w
        return (checker(row, rows, column, columns),
                group * t.lanes_c // plan.device.wavefront)

    def caption(self, plan: Plan) -> list[str]:
        problem, t = plan.problem, plan.tiling
        assert isinstance(t, ChannelVectorsTiling)
        channels, columns, rows, images = grid_of(problem, t)
        return [f"a lane: {t.thread_h} rows x {t.thread_w} columns x {t.vector} channels",
                f"a block: {t.lanes_h * t.thread_h} rows x {t.lanes_w * t.thread_w} columns x "
                f"{t.lanes_c * t.vector} channels",
                f"the grid: {channels} (channels) x {columns} (columns) x {rows} (rows) x "
                f"{images} (images) blocks"]


def _copies(plan: Plan) -> tuple[int, int, int]:
    """Elements that move as one: of the image, of the filters, and of the results."""
    image, filters, results = (int(n) for n in copies(plan.problem, plan.tiling))
    return image, filters, results


def _leads(plan: Plan) -> tuple[int, ...]:
    """The leads of an input gradient's axes."""
    view = view_of(plan.problem)
    return () if plan.problem.operation == "conv" else (view.rows.lead, view.columns.lead)
