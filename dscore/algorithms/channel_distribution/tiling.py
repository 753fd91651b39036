"""The tiling of channel distribution, and the geometry of its blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dscore.algorithms.columns import Count, ceil_div
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling


@dataclass(frozen=True)
class ChannelDistributionTiling(Tiling):
    """Tiling of channel distribution, dynamic (Liu et al. 2024, §5.1, Table 1).

    A wavefront computes `wave_w` columns of `wave_c` output channels, `group_c` input channels at
    a time; a block is `repeat_w` x `repeat_c` wavefronts.
    """

    wave_w: int
    wave_c: int
    repeat_w: int
    repeat_c: int
    group_c: int

    algorithm: ClassVar[str] = "channel_distribution"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> ChannelDistributionTiling(1, 64, 1, 4, 16).name
        'channel_distribution_w1c64_r1x4_g16'
        """
        return (f"channel_distribution_w{self.wave_w}c{self.wave_c}"
                f"_r{self.repeat_w}x{self.repeat_c}_g{self.group_c}")

    def brief(self) -> str:
        return str(self).replace(f"repeat_w={self.repeat_w} repeat_c={self.repeat_c}",
                                 f"repeat=({self.repeat_w},{self.repeat_c})")


@dataclass(frozen=True)
class ChannelDistributionShape:
    """The geometry of a block (R1–R5)."""

    wave_n: Count
    rows: Count  # output rows of a block: gcd(H, repeat_w)
    waves_per_row: Count  # wavefronts side by side in a row
    columns: Count  # output columns of a block
    channels: Count  # output channels of a block
    thread_c: Count  # output channels of a thread
    input_tile: Count  # elements of one LDS input buffer
    filter_tile: Count  # elements of one LDS filter buffer
    steps: Count  # channel groups


def shape_of(problem: ConvProblem, t: Any, wavefront: int) -> ChannelDistributionShape:
    """Geometry of *t*, a ChannelDistributionTiling or columns of many."""
    rows = np.gcd(problem.out_height, t.repeat_w)
    waves_per_row = t.repeat_w // rows
    return ChannelDistributionShape(
        wave_n=t.repeat_w * t.repeat_c, rows=rows, waves_per_row=waves_per_row,
        columns=waves_per_row * t.wave_w, channels=t.repeat_c * t.wave_c,
        thread_c=t.wave_c * t.group_c // wavefront,
        input_tile=t.repeat_w * t.wave_w * t.group_c,
        filter_tile=t.repeat_c * t.wave_c * t.group_c,
        steps=ceil_div(problem.spec.in_channels, t.group_c))
