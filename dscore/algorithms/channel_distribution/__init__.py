"""Channel distribution with dynamic tiling (Liu et al. 2024, §5.1) for pointwise layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.algorithms.base import (
    COMPILER_REGISTERS,
    Algorithm,
    Case,
    Footprint,
    Limit,
    SpaceGenerator,
    Work,
    checker,
)
from dscore.algorithms.channel_distribution import cost
from dscore.algorithms.channel_distribution.space import exact_columns, masked_columns
from dscore.algorithms.channel_distribution.tiling import (
    ChannelDistributionShape,
    ChannelDistributionTiling,
    shape_of,
)
from dscore.algorithms.columns import Count, ceil_div, power_of_two_within
from dscore.algorithms.refusal import require_kind
from dscore.algorithms.registers import roomy
from dscore.core.device import Device
from dscore.core.plan import Plan, Violation
from dscore.core.problem import ConvProblem

# Memory moves in segments; half a segment more is met on average where a run of elements begins.
SEGMENT_BYTES = 64
# Registers that a compiler takes beside results and operands: (k, c) of k · buffered + c, the
# least that no kernel without spills exceeded (docs/registers.md).
_HIPCC, _NVCC = (3, 14), (4, 50)
# What it takes at most: some more, and of wide tiles more for each.
_MARGIN, _ROOMY_MARGIN, _HIPCC_MOST, _NVCC_MOST = 8, 40, (5, 0), (5, 50)


def _moved_bytes(run: Count, whole: int, element_bytes: int) -> Count:
    """Bytes moved for *run* elements side by side; rows taken *whole* follow one another."""
    moved = ceil_div(run * element_bytes + SEGMENT_BYTES // 2, SEGMENT_BYTES) * SEGMENT_BYTES
    return np.where(run >= whole, run * element_bytes, moved)


def _buffered(problem: ConvProblem, shape: ChannelDistributionShape, threads: Count) -> Count:
    """Registers of a thread for what it holds of the next channel group."""
    elements = ceil_div(shape.input_tile, threads) + ceil_div(shape.filter_tile, threads)
    return problem.spec.element.registers * elements


def _block(case: Case) -> ChannelDistributionShape:
    return shape_of(case.problem, case.tiling, case.device.wavefront)


def _rows(plan: Plan) -> int:
    """Output rows of a block."""
    return int(shape_of(plan.problem, plan.tiling, plan.device.wavefront).rows)


class ChannelDistribution(Algorithm):
    """Lanes share the input channels of an output, whose parts are added by shuffles."""

    name = "channel_distribution"
    tiling = ChannelDistributionTiling
    limits = (
        Limit("E-DIV-W", "columns left", "", "R2",
              lambda c: (c.problem.out_width % _block(c).columns, 0),
              lambda c: f"{_block(c).columns} must divide {c.problem.out_width}", exact_only=True),
        Limit("E-DIV-C", "channels left", "", "R3",
              lambda c: (c.problem.spec.out_channels % _block(c).channels, 0),
              lambda c: f"{_block(c).channels} must divide {c.problem.spec.out_channels}",
              exact_only=True),
        Limit("E-GROUP", "group_c", "", "R4",
              lambda c: (c.tiling.group_c,
                         power_of_two_within(c.tiling.group_c, c.device.wavefront)),
              lambda c: f"a power of two up to {c.device.wavefront}"),
        Limit("E-DIV-G", "channels left", "", "R4",
              lambda c: (c.problem.spec.in_channels % c.tiling.group_c, 0),
              lambda c: f"group_c must divide {c.problem.spec.in_channels}", exact_only=True),
        Limit("E-LANES", "lanes left", "", "R5",
              lambda c: (c.tiling.wave_c * c.tiling.group_c % c.device.wavefront, 0),
              lambda c: f"wave_c*group_c by {c.device.wavefront}"),
    )
    spaces = SpaceGenerator(False, exact_columns), SpaceGenerator(True, masked_columns)
    of_paper = True

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        scaled = (Violation("E-SCALE", "scale of the input", "one", "none"),)
        return require_kind(problem, self.name, "pointwise") + scaled * problem.spec.scaled

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        spec, shape = problem.spec, shape_of(problem, t, wavefront)
        element, threads = spec.element.bytes, shape.wave_n * wavefront
        # Eq. 5 and 6: results, operands, and the registers of the double buffer.
        results, operands = t.wave_w * shape.thread_c, t.wave_w + shape.thread_c
        images = problem.batch * ceil_div(problem.out_height, shape.rows)
        blocks = images * ceil_div(problem.out_width, shape.columns) * ceil_div(
            spec.out_channels, shape.channels)
        lanes = blocks * shape.rows * shape.columns * shape.channels * (shape.steps * t.group_c)
        row_bytes = shape.rows * _moved_bytes(shape.columns, problem.out_width, element)
        filter_bytes = shape.channels * _moved_bytes(t.group_c, spec.in_channels, element)
        return Footprint(
            threads=threads, waves=shape.wave_n,
            lds_bytes=element * (shape.input_tile + shape.filter_tile) * 2,
            registers=results + operands + _buffered(problem, shape, threads) + COMPILER_REGISTERS,
            blocks=blocks, utilisation=problem.macs / lanes,
            fmas=results * shape.steps, operand_loads=operands * shape.steps,
            global_bytes=(row_bytes * t.group_c + filter_bytes) * shape.steps
            + row_bytes * shape.channels,
            # The first group is waited for, and the double buffer hides about half of the others.
            steps=1 + shape.steps / 2)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        factor, constant = _NVCC if device.vendor == "nvidia" else _HIPCC
        shape = shape_of(problem, t, device.wavefront)
        buffered = _buffered(problem, shape, shape.wave_n * device.wavefront)
        return (t.wave_w * shape.thread_c + t.wave_w + shape.thread_c
                + factor * buffered + constant)

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        factor, constant = _NVCC_MOST if device.vendor == "nvidia" else _HIPCC_MOST
        shape = shape_of(problem, t, device.wavefront)
        buffered = _buffered(problem, shape, shape.wave_n * device.wavefront)
        early = t.wave_w * shape.thread_c + t.wave_w + shape.thread_c + factor * buffered + constant
        margin = _ROOMY_MARGIN if roomy(device) else _MARGIN
        return np.maximum(self.registers(problem, t, device), early) + margin

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        shape, spec = shape_of(problem, t, wavefront), problem.spec
        return bool(problem.out_width % shape.columns or spec.out_channels % shape.channels
                    or spec.in_channels % t.group_c)

    def work(self, case: Case, grids: Count) -> Work | None:
        return cost.work(case) if case.weights else None

    def traffic(self, case: Case) -> dict[str, Count]:
        return cost.named(case)

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
        rows, columns = (ceil_div(problem.out_height, shape.rows),
                         ceil_div(problem.out_width, shape.columns))
        channels = ceil_div(problem.spec.out_channels, shape.channels)
        return [f"a wavefront: {t.wave_w} columns x {t.wave_c} channels; {t.repeat_w} of them on "
                f"the plane, {t.repeat_c} along the channels",
                f"a block: {shape.rows} rows x {shape.columns} columns x {shape.channels} channels",
                f"the grid: {problem.batch} (images) x {channels} (channels) x {rows} (rows) x "
                f"{columns} (columns) blocks"]
