"""Implicit product of matrices: what its algorithms have in common, in words and pictures."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from dscore.algorithms.base import Algorithm
from dscore.algorithms.implicit_gemm.tiling import pixels_of, taps_of
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem


class ImplicitProduct(Algorithm):
    """Tiles of output channels by pixels, of the images' part under them and its taps."""

    unit: ClassVar[str] = "a wavefront"  # that has a part of a block's tile

    @abstractmethod
    def shape(self, problem: ConvProblem, t: Any, wavefront: int) -> Any:
        """Sizes of a block's part that follow from a tiling, `channel_tiles` and `pixel_tiles`
        among them."""

    def own_tile(self, t: Any) -> tuple[int, int]:
        """Channels and pixels of a unit."""
        return t.wave_c, t.wave_p

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        spec = problem.spec
        return bool(spec.group_out % t.tile_c or spec.group_in % t.step_c
                    or pixels_of(problem) % t.tile_p)

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        t: Any = plan.tiling
        pixel = row * plan.problem.out_width + column
        return pixel // t.tile_p % 2, pixel % t.tile_p // t.wave_p

    def caption(self, plan: Plan) -> list[str]:
        t: Any = plan.tiling
        shape = self.shape(plan.problem, t, plan.device.wavefront)
        sharing = f", {t.slices} sharing the input channels" * (t.slices > 1)
        cluster = f"{t.cluster} (sharing the steps) x " * (t.cluster > 1)
        groups = f" x {plan.problem.spec.groups} (groups)" * (plan.problem.spec.groups > 1)
        channels, pixels = self.own_tile(t)
        return [f"{self.unit}: {channels} channels x {pixels} pixels{sharing}",
                f"a block: {t.tile_c} channels x {t.tile_p} pixels, counted through all images; "
                f"{t.step_c} input channels a step, of each {taps_of(plan.problem)} taps and "
                f"{t.patch} elements",
                f"the grid: {cluster}{shape.channel_tiles} (channels){groups} x "
                f"{shape.pixel_tiles} (pixels) blocks"]
