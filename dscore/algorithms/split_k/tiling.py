"""The tiling of the split sum over pixels, and the geometry of its blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dscore.algorithms.base import BARRIER_BYTES, VECTOR_BYTES
from dscore.algorithms.columns import Count, ceil_div, floor_div, remembered
from dscore.core.numerics import FLOAT32_ARITHMETICS, Arithmetic
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling, choice

# Of the kernel that adds the parts (hip_src/split_k/sum.hpp).
SUM_THREADS = 256
# Words of a buffer behind its last plane, whose pixels are read by eights.
OVERREAD = 8


@dataclass(frozen=True)
class SplitKTiling(Tiling):
    """Tiling of the weight gradient of a pointwise convolution, a product of matrices whose sums
    run over the pixels of all images.

    A block computes `tile_o` output channels by `tile_i` input channels, a wavefront `wave_o` by
    `wave_i` of these, by `lanes_o` rows of lanes. The pixels come `step` at a time through a ring
    of `stages` LDS buffers: two are filled through registers, three or more by asynchronous copies.
    `slices` groups of wavefronts share the pixels of a step. With `planes` a step is one whole
    image of each slice, where the channels of a tile are one piece of memory: it is for planes
    that are no whole vectors. The steps are shared by `parts`, whose sums a second kernel adds, and
    those of a part by the blocks of a `cluster` (Hopper's), which add their sums themselves.
    `arithmetic`: "plain" multiplies and adds in float32; "tf32x3" makes each product of three TF32
    ones on matrix units (NVIDIA), which errs by about 2**-22 of it; there `lanes_o` is 8.
    """

    tile_o: int
    tile_i: int
    wave_o: int
    wave_i: int
    lanes_o: int
    slices: int
    step: int
    stages: int
    parts: int = 1
    planes: bool = False
    arithmetic: Arithmetic = choice(*FLOAT32_ARITHMETICS, default="plain")
    cluster: int = 1

    algorithm: ClassVar[str] = "split_k"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> SplitKTiling(64, 64, 32, 32, 8, 1, 32, 3, 5, False, "tf32x3").name
        'split_k_t64x64_w32x32_l8_s1_p32x3_n5_tf32x3'
        """
        return (f"split_k_t{self.tile_o}x{self.tile_i}_w{self.wave_o}x{self.wave_i}"
                f"_l{self.lanes_o}_s{self.slices}_p{self.step}x{self.stages}"
                f"{f'_n{self.parts}' if self.parts > 1 else ''}"
                f"{f'_x{self.cluster}' if self.cluster > 1 else ''}{'_planes' * self.planes}"
                f"{'' if self.arithmetic == 'plain' else '_' + self.arithmetic}")

    def computes(self, arithmetic: Arithmetic | None) -> bool:
        return arithmetic in (None, self.arithmetic)


@remembered
def splits(t: Any) -> Any:
    """Whether products are made of three TF32 ones."""
    return np.asarray(t.arithmetic) == "tf32x3"


def pixels_of(problem: ConvProblem) -> int:
    """Pixels that are summed, of all images."""
    return problem.batch * problem.out_height * problem.out_width


def pieces(problem: ConvProblem) -> bool:
    """Whether whole planes of channels are pieces of whole vectors, of gradient and input alike.
    """
    spec, most = problem.spec, VECTOR_BYTES // problem.spec.element.bytes
    return bool(most > 1 and spec.stride == (1, 1) and not any(problem.padding)
                and spec.in_channels % most == 0 and spec.out_channels % most == 0)


def vectors_of(problem: ConvProblem, planes: Any = False) -> tuple[Any, Any, int]:
    """Elements that lie side by side at multiples of 16 bytes, of an image of the gradient, of the
    input (of a channel each, or of all in *planes*), and of a row of the result.
    """
    spec, most = problem.spec, VECTOR_BYTES // problem.spec.element.bytes
    whole = problem.out_height * problem.out_width % most == 0
    same = whole and spec.stride == (1, 1) and not any(problem.padding)
    return (np.where(planes, most, most if whole else 1)[()],
            np.where(planes, most, most if same else 1)[()],
            most if spec.in_channels % most == 0 else 1)


def rows_of(t: Any) -> tuple[Count, Count]:
    """Words of a row of pixels in a buffer, and of a row of sums: they begin some banks apart.

    Planes lie as in memory.
    """
    pixels = t.step + np.where(splits(t), np.where(t.step % 16 == 8, 0, 8),
                               np.where(t.step % 8 == 0, 4, 0))
    return (np.where(t.planes, t.step // t.slices, pixels)[()],
            t.tile_i + np.where(t.tile_i % 16 == 0, 8, 0))


def sum_rows(parts: int) -> int:
    """Rows of threads that share the parts in the kernel that adds them, about eight parts each.

    >>> [sum_rows(parts) for parts in (2, 9, 256, 1000)]
    [1, 2, 32, 32]
    """
    rows = 1
    while rows < 32 and rows * 8 < parts:
        rows *= 2
    return rows


@dataclass(frozen=True)
class SplitKShape:
    """The geometry of a block."""

    waves: Count
    sums: Count  # outputs of a lane
    step_sums: Count  # of a lane, of a step that is summed apart: on matrix units, one of several
    operands: Count  # elements that a lane holds for one step of its multiplication
    fetched: Count  # elements that a thread takes of one step's tiles
    buffer: Count  # elements of one LDS buffer
    barriers: Count  # bytes of LDS, of bulk copies
    joined: Count  # elements of LDS for the sums of all slices
    steps: Count  # of the block that has most
    all_steps: Count
    tiles: Count


@remembered
def shape_of(problem: ConvProblem, t: Any, wavefront: int) -> SplitKShape:
    """Geometry of *t*, a SplitKTiling or columns of many."""
    # What no tiling may be has at least one of each, so that its rules can be judged.
    waves = np.maximum(floor_div(t.tile_o, t.wave_o) * floor_div(t.tile_i, t.wave_i),
                       1) * t.slices
    lanes_i, threads = np.maximum(floor_div(wavefront, t.lanes_o), 1), waves * wavefront
    vector_g, vector_x, _ = vectors_of(problem, t.planes)
    pixel_row, sum_row = rows_of(t)
    images = np.where(t.planes, t.slices, 1)
    all_steps = ceil_div(pixels_of(problem), t.step)
    steps = ceil_div(all_steps, t.parts * t.cluster)
    sums = np.maximum(t.wave_o * t.wave_i // wavefront, 1)
    return SplitKShape(
        waves=waves, sums=sums, step_sums=np.where(splits(t) & (steps > 1), sums, 0),
        # Four pixels of both at a time; on matrix units eight, in two parts.
        operands=np.where(splits(t), t.wave_o // 2 + t.wave_i // 2,
                          4 * (floor_div(t.wave_o, t.lanes_o) + floor_div(t.wave_i, lanes_i))),
        fetched=vector_g * ceil_div(t.tile_o * t.step, vector_g * threads)
        + vector_x * ceil_div(t.tile_i * t.step, vector_x * threads),
        buffer=images * (t.tile_o + t.tile_i) * pixel_row + OVERREAD * t.planes,
        barriers=np.where(t.planes & (t.stages > 2), BARRIER_BYTES * t.stages, 0),
        joined=t.slices * t.tile_o * sum_row,
        steps=steps, all_steps=all_steps,
        tiles=ceil_div(problem.spec.out_channels, t.tile_o)
        * ceil_div(problem.spec.in_channels, t.tile_i))
