"""Channel distribution with dynamic tiling (Liu et al. 2024, §5.1) for pointwise layers."""

from __future__ import annotations

import math
from typing import Any

from dscore.algorithms.base import Algorithm, Footprint, SpaceGenerator, checker, require_kind
from dscore.algorithms.channel_distribution import resources
from dscore.algorithms.channel_distribution.space import exact_columns, masked_columns
from dscore.algorithms.channel_distribution.tiling import ChannelDistributionTiling, shape_of
from dscore.algorithms.columns import Count
from dscore.core.device import Device
from dscore.core.plan import Plan, Violation
from dscore.core.problem import ConvProblem

__all__ = ["ChannelDistribution", "ChannelDistributionTiling"]


class ChannelDistribution(Algorithm):
    """Lanes share the input channels of an output, whose parts are added by shuffles."""

    name = "channel_distribution"
    tiling = ChannelDistributionTiling
    limits = resources.LIMITS
    spaces = SpaceGenerator(False, exact_columns), SpaceGenerator(True, masked_columns)
    of_paper = True

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        return require_kind(problem, self.name, "pointwise")

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        return resources.footprint(problem, t, wavefront)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        return resources.registers(problem, t, device)

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        return resources.overhangs(problem, t, wavefront)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        return (t.wave_w, t.wave_c, t.repeat_w, t.repeat_c, t.group_c, _rows(plan),
                plan.device.wavefront)

    def image_arguments(self, plan: Plan) -> str:
        return f"_h{_rows(plan)}"

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        t: Any = plan.tiling
        shape = shape_of(plan.problem, t, plan.device.wavefront)
        rows, columns = int(shape.rows), int(shape.columns)
        wave = row % rows * int(shape.waves_per_row) + column % columns // t.wave_w
        return checker(row, rows, column, columns), wave

    def caption(self, plan: Plan) -> list[str]:
        problem, t = plan.problem, plan.tiling
        assert isinstance(t, ChannelDistributionTiling)
        shape = shape_of(problem, t, plan.device.wavefront)
        rows = math.ceil(problem.out_height / int(shape.rows))
        columns = math.ceil(problem.out_width / int(shape.columns))
        channels = math.ceil(problem.spec.out_channels / int(shape.channels))
        return [f"a wavefront: {t.wave_w} columns x {t.wave_c} channels; {t.repeat_w} of them on "
                f"the plane, {t.repeat_c} along the channels",
                f"a block: {shape.rows} rows x {shape.columns} columns x {shape.channels} channels",
                f"the grid: {problem.batch} (images) x {channels} (channels) x {rows} (rows) x "
                f"{columns} (columns) blocks"]


def _rows(plan: Plan) -> int:
    """Output rows of a block."""
    return int(shape_of(plan.problem, plan.tiling, plan.device.wavefront).rows)
