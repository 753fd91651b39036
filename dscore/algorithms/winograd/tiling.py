"""The tiling of Winograd's convolution, and the sizes that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dscore.algorithms.base import BARRIER_BYTES, VECTOR_BYTES
from dscore.algorithms.columns import Count, ceil_div
from dscore.core.numerics import ACCUMULATOR, FLOAT32_ARITHMETICS, Arithmetic
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling, choice
from dscore.core.winograd import tile_of

# Channels that lie side by side in the workspace, and tiles (or filters) that are permuted among
# themselves so that lanes reading four of these channels each meet no bank of LDS twice.
CHUNK = 4
PERMUTED = 8
# The workspace begins at a multiple of these bytes, and so do its parts.
ALIGNMENT_BYTES = 128
# Counters before those of the task groups, and of each group (hip_src/winograd/scheduler.hpp).
HEAD_COUNTERS, GROUP_COUNTERS = 8, 4
# Of LDS: two tasks of the persistent kernel's blocks.
_TASK_BYTES = 32


@dataclass(frozen=True)
class WinogradTiling(Tiling):
    """Tiling of a dense 3x3 convolution by Winograd's F(m x m, 3x3), m being `outputs`.

    Four kinds of tasks pass transformed tiles through memory. A product task sums the channels of
    `planes` of the (m + 2)² products of matrices, for `tile_k` output channels by `tile_t` tiles, a
    wavefront `wave_k` by `wave_t` of these, by `lanes_k` rows of `lanes_t` lanes. The channels come
    `step` at a time through a ring of `stages` LDS buffers: two are filled through registers, three
    or more by asynchronous copies. A task of the inputs, or of the filters, transforms
    `input_channels`; one of the outputs `output_channels`. A task group is the tasks of `tile_t`
    tiles.

    *fused*: one persistent kernel of `blocks` blocks, resident together or not, runs all tasks, in
    the order of Algorithm 1 of Jia et al. 2020: `groups` task groups in a round (their M), inputs
    `lead` rounds before the products that read them (their D_IG, over the tasks of a round), and
    outputs `lag` rounds after these (D_GO). The workspace holds `spare` rounds more than the order
    needs; with 1, tasks wait for those of the round before. Otherwise each kind of tasks is a
    kernel of its own.
    `arithmetic`: "plain" multiplies and adds in float32; "tf32x3" makes each product of three TF32
    ones on matrix units (NVIDIA); there the lanes are 8 by 4.
    """

    outputs: int
    tile_k: int
    tile_t: int
    wave_k: int
    wave_t: int
    lanes_k: int
    lanes_t: int
    step: int
    stages: int
    planes: int
    input_channels: int
    output_channels: int
    groups: int = 1
    lead: int = 1
    lag: int = 1
    spare: int = 1
    blocks: int = 1
    fused: bool = True
    arithmetic: Arithmetic = choice(*FLOAT32_ARITHMETICS, default="plain")

    algorithm: ClassVar[str] = "winograd"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> WinogradTiling(4, 64, 64, 32, 32, 8, 4, 16, 3, 2, 16, 8, 2, 3, 4, 2, 264).name
        'winograd_f4_t64x64_w32x32_l8x4_s16x3_p2_i16_o8_m2_d3x4_r2_b264'
        """
        mapping = (f"_m{self.groups}_d{self.lead}x{self.lag}_r{self.spare}_b{self.blocks}"
                   if self.fused else "_unfused")
        return (f"winograd_f{self.outputs}_t{self.tile_k}x{self.tile_t}"
                f"_w{self.wave_k}x{self.wave_t}_l{self.lanes_k}x{self.lanes_t}_s{self.step}x{self.stages}"
                f"_p{self.planes}_i{self.input_channels}_o{self.output_channels}{mapping}"
                f"{'' if self.arithmetic == 'plain' else '_' + self.arithmetic}")

    def computes(self, arithmetic: Arithmetic | None) -> bool:
        return arithmetic in (None, self.arithmetic)


def splits(t: Any) -> Any:
    """Whether products are made of three TF32 ones."""
    return np.asarray(t.arithmetic) == "tf32x3"


@dataclass(frozen=True)
class WinogradShape:
    """Sizes of a tiling, or of columns of many, on a problem.

    A filter that comes transformed has no tasks. In the letters of Jia et al. 2020, section 5.1:
    `filter_tasks` N_F, `task_groups` N_G; of each group `input_tasks` S_I, `product_tasks` S_G and
    `output_tasks` S_O.
    """

    rows: Count  # tiles of an image, downwards and across
    columns: Count
    tiles: Count  # of all images
    planes: Count  # products of matrices, (m + 2)²
    depth: Count  # input channels, up to a whole step
    k_blocks: Count
    waves: Count
    sums: Count  # of a lane
    operands: Count  # registers of a lane for one step of its multiplication
    fetched: Count  # elements that a thread takes of one step
    buffer: Count  # elements of one LDS buffer
    task_groups: Count
    filter_tasks: Count
    input_tasks: Count
    product_tasks: Count
    output_tasks: Count
    rounds: Count
    input_slots: Count  # task groups whose transformed inputs the workspace holds
    product_slots: Count  # and whose products

    @property
    def tasks(self) -> Count:
        """Tasks of all kinds."""
        return self.filter_tasks + self.task_groups * (
            self.input_tasks + self.product_tasks + self.output_tasks)


def shape_of(problem: ConvProblem, t: Any) -> WinogradShape:
    """Sizes of *t*, a WinogradTiling or columns of many."""
    spec = problem.spec
    rows, columns = ceil_div(problem.out_height, t.outputs), ceil_div(problem.out_width, t.outputs)
    tiles, planes = problem.batch * rows * columns, (t.outputs + 2) ** 2
    # What no tiling may be has at least one of each, so that its rules can be judged.
    waves = np.maximum((t.tile_k // t.wave_k) * (t.tile_t // t.wave_t), 1)
    wavefront = t.lanes_k * t.lanes_t
    depth = ceil_div(spec.in_channels, t.step) * t.step
    k_blocks, groups = ceil_div(spec.out_channels, t.tile_k), ceil_div(tiles, t.tile_t)
    inputs, rounds = ceil_div(depth, t.input_channels), ceil_div(groups, t.groups)
    buffer = t.step * (t.tile_k + t.tile_t)
    held = np.where(t.fused, t.groups, groups)
    return WinogradShape(
        rows, columns, tiles, planes, depth, k_blocks, waves,
        sums=np.maximum(t.wave_k * t.wave_t // wavefront, 1),
        # Four channels of both at a time; on matrix units a lane's share of sixteen, in two parts.
        operands=np.where(splits(t), t.wave_k + t.wave_t,
                          4 * (t.wave_k // t.lanes_k + t.wave_t // t.lanes_t)),
        fetched=4 * ceil_div(buffer, 4 * waves * wavefront), buffer=buffer,
        task_groups=groups, filter_tasks=0 * inputs if tile_of(spec.filter) else k_blocks * inputs,
        input_tasks=inputs,
        product_tasks=k_blocks * (planes // t.planes),
        output_tasks=ceil_div(spec.out_channels, t.output_channels), rounds=rounds,
        input_slots=np.minimum(np.where(t.fused, (t.lead + t.spare) * held, held), groups),
        product_slots=np.minimum(np.where(t.fused, (t.lag + t.spare) * held, held), groups))


def ring_bytes(problem: ConvProblem, t: Any) -> Count:
    """LDS of a product's buffers and, where bulk copies fill these, of a barrier for each.

    Filters that come transformed are in several pieces, which threads copy.
    """
    bulk = (t.stages > 2) & (tile_of(problem.spec.filter) == 0)
    return (ACCUMULATOR.bytes * t.stages * shape_of(problem, t).buffer
            + np.where(bulk, BARRIER_BYTES * t.stages, 0))


def lds_bytes(problem: ConvProblem, t: Any) -> Count:
    """LDS of a block of the first kernel."""
    return np.where(t.fused, ring_bytes(problem, t) + _TASK_BYTES, 0)


@dataclass(frozen=True)
class Workspace:
    """Bytes of the parts of the workspace, in their order; each begins at ALIGNMENT_BYTES.

    Transformed filters U lie by plane, block of output channels, chunk of four channels and output
    channel; transformed inputs V by slot of a task group, plane, chunk and tile; products M by
    slot, plane, output channel and tile.
    """

    counters: Count
    filters: Count
    inputs: Count
    products: Count

    @property
    def bytes(self) -> Count:
        """All parts, wherever the memory begins."""
        return (ALIGNMENT_BYTES + self.counters + self.filters + self.inputs + self.products)


def counter_bytes(shape: WinogradShape, t: Any) -> Count:
    """Bytes of the counters, which are zero when the fused kernel starts; 0 of the other form."""
    counters = HEAD_COUNTERS + GROUP_COUNTERS * shape.task_groups
    return np.where(t.fused, ceil_div(4 * counters, ALIGNMENT_BYTES) * ALIGNMENT_BYTES, 0)


def workspace_of(problem: ConvProblem, t: Any) -> Workspace:
    """The workspace of *t*, a WinogradTiling or columns of many."""
    shape = shape_of(problem, t)
    channels = shape.k_blocks * t.tile_k
    plane = ACCUMULATOR.bytes * shape.planes
    filters = 0 if tile_of(problem.spec.filter) else plane * channels * shape.depth
    return Workspace(counter_bytes(shape, t), filters,
                     plane * shape.input_slots * t.tile_t * shape.depth,
                     plane * shape.product_slots * t.tile_t * channels)


def vectors_of(problem: ConvProblem) -> tuple[int, int]:
    """Elements of a row of the input, and of the output, that move as one: 4, 2 or 1.

    Tiles of the input begin with whole vectors where one column of padding is before them.
    """
    most = VECTOR_BYTES // problem.spec.element.bytes

    def whole(width: int) -> int:
        return next(vector for vector in (4, 2, 1) if vector <= most and width % vector == 0)

    return (whole(problem.width) if problem.padding[2] == 1 else 1), whole(problem.out_width)
