"""Pointwise convolution as a product of matrices, in register tiles, plain or on matrix units."""

from __future__ import annotations

from typing import Any

from dscore.algorithms.base import Algorithm, Case, Footprint, SpaceGenerator, Work, require_kind
from dscore.algorithms.columns import Count
from dscore.algorithms.gemm import cost, resources
from dscore.algorithms.gemm.space import columns_of
from dscore.algorithms.gemm.tiling import GemmTiling, shape_of, vectors_of
from dscore.core.device import Device
from dscore.core.plan import Plan, Violation
from dscore.core.problem import ConvProblem

__all__ = ["Gemm", "GemmTiling"]


class Gemm(Algorithm):
    """Filters by pixels, the pixels of all images counted through."""

    name = "gemm"
    tiling = GemmTiling
    limits = resources.LIMITS
    spaces = (SpaceGenerator(True, columns_of),)
    weights = cost.WEIGHTS

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        return require_kind(problem, self.name, "pointwise")

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        return resources.footprint(problem, t, wavefront)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        return resources.registers(problem, t, device)

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        return resources.overhangs(problem, t, wavefront)

    def work(self, case: Case, grids: Count) -> Work:
        return cost.work(case)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        return (t.tile_c, t.tile_p, t.wave_c, t.wave_p, t.lanes_c, t.slices, t.step_c, t.stages,
                t.cluster, int(t.arithmetic == "tf32x3"), *vectors_of(plan.problem),
                plan.device.wavefront)

    def image_arguments(self, plan: Plan) -> str:
        return "_v{}x{}".format(*vectors_of(plan.problem))

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        t: Any = plan.tiling
        pixel = row * plan.problem.out_width + column
        return pixel // t.tile_p % 2, pixel % t.tile_p // t.wave_p

    def caption(self, plan: Plan) -> list[str]:
        t: Any = plan.tiling
        shape = shape_of(plan.problem, t, plan.device.wavefront)
        sharing = f", {t.slices} sharing the input channels" * (t.slices > 1)
        cluster = f"{t.cluster} (sharing the steps) x " * (t.cluster > 1)
        return [f"a wavefront: {t.wave_c} channels x {t.wave_p} pixels{sharing}",
                f"a block: {t.tile_c} channels x {t.tile_p} pixels, counted through all images; "
                f"{t.step_c} input channels a step",
                f"the grid: {cluster}{shape.channel_tiles} (channels) x {shape.pixel_tiles} "
                "(pixels) blocks"]
