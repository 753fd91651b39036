"""Row reuse (Liu et al. 2024, §4.2) and column reuse (Lu et al. 2021) for depthwise layers."""

from __future__ import annotations

import math
from typing import Any

from dscore.algorithms.base import (
    Algorithm,
    Case,
    Footprint,
    SpaceGenerator,
    Work,
    checker,
    require_kind,
)
from dscore.algorithms.columns import Count
from dscore.algorithms.row_reuse import cost, resources
from dscore.algorithms.row_reuse.space import columns_of
from dscore.algorithms.row_reuse.tiling import RowReuseTiling, row_vectors, shape_of
from dscore.core.device import Device
from dscore.core.plan import Plan, Violation
from dscore.core.problem import ConvProblem

__all__ = ["RowReuse", "RowReuseTiling"]


class RowReuse(Algorithm):
    """Each input row is loaded once, and added into all output rows that it lies under."""

    name = "row_reuse"
    tiling = RowReuseTiling
    limits = resources.LIMITS
    spaces = (SpaceGenerator(True, columns_of),)
    of_paper = True
    weights = cost.WEIGHTS

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        return require_kind(problem, self.name, "depthwise")

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        return resources.footprint(problem, t, wavefront)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        return resources.registers(problem, t, device)

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        return resources.overhangs(problem, t, wavefront)

    def work(self, case: Case, grids: Count) -> Work:
        return cost.work(case, grids)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        return (t.thread_h, t.thread_w, t.lanes_h, t.lanes_w, t.planes,
                f"dscore::Staging::{t.staging}", int(t.column_reuse), int(t.ahead),
                *_spans(plan), *_vectors(plan), plan.device.wavefront)

    def image_arguments(self, plan: Plan) -> str:
        return "_e{}x{}_v{}o{}x{}".format(*_spans(plan), *_vectors(plan))

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        t: Any = plan.tiling
        rows, columns = t.lanes_h * t.thread_h, t.lanes_w * t.thread_w
        lane = row % rows // t.thread_h * t.lanes_w + column % columns // t.thread_w
        return checker(row, rows, column, columns), lane // plan.device.wavefront

    def caption(self, plan: Plan) -> list[str]:
        problem, t = plan.problem, plan.tiling
        assert isinstance(t, RowReuseTiling)
        high, wide = t.lanes_h * t.thread_h, t.lanes_w * t.thread_w
        planes = math.ceil(problem.batch * problem.spec.out_channels / t.planes)
        rows, columns = math.ceil(problem.out_height / high), math.ceil(problem.out_width / wide)
        return [f"a lane: {t.thread_h} rows x {t.thread_w} columns",
                f"a block: {high} rows x {wide} columns x {t.planes} planes",
                f"the grid: {planes} (planes) x {rows} (rows) x {columns} (columns) blocks"]


def _spans(plan: Plan) -> tuple[int, int]:
    """Elements of LDS for a block's rows and results."""
    shape = shape_of(plan.problem, plan.tiling)
    return int(shape.span_in), int(shape.span_out)


def _vectors(plan: Plan) -> tuple[int, int, int]:
    """Columns of a vector, the first that one begins with, and those of a result."""
    loaded, stored = (int(v) for v in row_vectors(plan.problem, plan.tiling))
    return loaded, plan.problem.padding[2] % loaded, stored
