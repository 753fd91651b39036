"""Text pictures of how wavefronts tile an output plane (after Figure 7 of Liu et al. 2024)."""

from __future__ import annotations

import math

from dscore.algorithms.geometry import matrix_shape, pointwise_shape
from dscore.core.plan import Plan
from dscore.core.tiling import ChannelDistributionTiling, DirectTiling, GemmTiling, RowReuseTiling

MOST_ROWS = 16
MOST_COLUMNS = 64
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def owner(plan: Plan, row: int, column: int) -> tuple[int, int]:
    """The (block, wavefront in the block) that computes an output of channel 0 of image 0.

    Blocks are told apart by their parity only: 0 or 1, as on a chess board.
    """
    tiling, wavefront = plan.tiling, plan.device.wavefront
    if isinstance(tiling, ChannelDistributionTiling):
        shape = pointwise_shape(plan.problem, tiling, wavefront)
        rows, columns = int(shape.rows), int(shape.columns)
        wave = row % rows * int(shape.waves_per_row) + column % columns // tiling.wave_w
    elif isinstance(tiling, RowReuseTiling):
        rows, columns = tiling.lanes_h * tiling.thread_h, tiling.lanes_w * tiling.thread_w
        lane = row % rows // tiling.thread_h * tiling.lanes_w + column % columns // tiling.thread_w
        wave = lane // wavefront
    elif isinstance(tiling, GemmTiling):
        pixel = row * plan.problem.out_width + column
        return pixel // tiling.tile_p % 2, pixel % tiling.tile_p // tiling.wave_p
    else:
        pixel = row * plan.problem.out_width + column
        return pixel // tiling.threads % 2, pixel % tiling.threads // wavefront
    return (row // rows + column // columns) % 2, wave


def wavefront_map(plan: Plan) -> list[str]:
    """The corner of an output plane: a letter per output, the wavefront of its block.

    Upper and lower case alternate between blocks.
    """
    height, width = plan.problem.out_height, plan.problem.out_width
    rows, columns = min(height, MOST_ROWS), min(width, MOST_COLUMNS)
    lines = []
    for row in range(rows):
        owners = (owner(plan, row, column) for column in range(columns))
        line = "".join((_LETTERS.lower() if odd else _LETTERS)[wave % 26] for odd, wave in owners)
        lines.append(line + (" …" if columns < width else ""))
    return lines + ["…"] * (rows < height)


def caption(plan: Plan) -> list[str]:
    """What a block and the grid cover, in words."""
    problem, tiling, wavefront = plan.problem, plan.tiling, plan.device.wavefront
    out, rows, columns = problem.spec.out_channels, problem.out_height, problem.out_width
    if isinstance(tiling, ChannelDistributionTiling):
        shape = pointwise_shape(problem, tiling, wavefront)
        tile = (int(shape.rows), int(shape.columns), tiling.repeat_c * tiling.wave_c)
        each = (f"a wavefront: {tiling.wave_w} columns x {tiling.wave_c} channels; "
                f"{tiling.repeat_w} of them on the plane, {tiling.repeat_c} along the channels")
        grid = _tiles(rows, tile[0]), _tiles(columns, tile[1]), _tiles(out, tile[2])
        block = f"a block: {tile[0]} rows x {tile[1]} columns x {tile[2]} channels"
        count = f"{grid[2]} (channels) x {grid[0]} (rows) x {grid[1]} (columns)"
        return [each, block, f"the grid: {problem.batch} (images) x {count} blocks"]
    if isinstance(tiling, RowReuseTiling):
        high, wide = tiling.lanes_h * tiling.thread_h, tiling.lanes_w * tiling.thread_w
        planes = _tiles(problem.batch * out, tiling.planes)
        return [f"a lane: {tiling.thread_h} rows x {tiling.thread_w} columns",
                f"a block: {high} rows x {wide} columns x {tiling.planes} planes",
                f"the grid: {planes} (planes) x {_tiles(rows, high)} (rows) x "
                f"{_tiles(columns, wide)} (columns) blocks"]
    if isinstance(tiling, GemmTiling):
        return _matrix_caption(plan, tiling)
    return _direct_caption(plan, tiling)


def _matrix_caption(plan: Plan, t: GemmTiling) -> list[str]:
    shape = matrix_shape(plan.problem, t, plan.device.wavefront)
    sharing = f", {t.slices} sharing the input channels" * (t.slices > 1)
    cluster = f"{t.cluster} (sharing the steps) x " * (t.cluster > 1)
    return [f"a wavefront: {t.wave_c} channels x {t.wave_p} pixels{sharing}",
            f"a block: {t.tile_c} channels x {t.tile_p} pixels, counted through all images; "
            f"{t.step_c} input channels a step",
            f"the grid: {cluster}{shape.channel_tiles} (channels) x {shape.pixel_tiles} (pixels) "
            "blocks"]


def _direct_caption(plan: Plan, tiling: DirectTiling) -> list[str]:
    problem = plan.problem
    pixels = _tiles(problem.out_height * problem.out_width, tiling.threads)
    channels = problem.spec.groups * _tiles(problem.spec.group_out, tiling.thread_c)
    return [f"a lane: 1 pixel x {tiling.thread_c} channels",
            f"a block: {tiling.threads} pixels x {tiling.thread_c} channels",
            f"the grid: {problem.batch} (images) x {channels} (channels) x {pixels} (pixels) "
            "blocks"]


def _tiles(size: int, tile: int) -> int:
    return math.ceil(size / tile)
