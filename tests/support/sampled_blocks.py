"""Some blocks of a launch: which outputs are theirs, and whether they write these and no others.

The outputs of a block are worked out here from the tiling alone, apart from the library.
"""

import math

import numpy as np

from dscore.checking import bound
from dscore.checking.check import GuardedOutput, run_guarded
from dscore.ops import output_of


def blocks_of(plan):
    """Number of the block that writes each output, in the output's shape."""
    problem, t = plan.problem, plan.tiling
    channels, height, width = problem.spec.out_channels, problem.out_height, problem.out_width
    image, *rest = np.indices(problem.y_shape, dtype=np.int32, sparse=True)
    last = problem.spec.layout == "nhwc"  # channels are
    channel, row, column = (rest[-1], *rest[:-1]) if last else rest
    return _NUMBERS[t.algorithm](problem, t, image, channel, row, column, channels, height,
                                 width) + np.zeros(problem.y_shape, np.int32)


def _tiles(size, tile):
    return -(-size // tile)


def _rows(problem, t, image, channel, row, column, channels, height, width):
    rows, columns = t.lanes_h * t.thread_h, t.lanes_w * t.thread_w
    plane_tile = (image * channels + channel) // t.planes
    return (plane_tile * _tiles(height, rows) + row // rows) * _tiles(width, columns) + (
        column // columns)


def _channels(problem, t, image, channel, row, column, channels, height, width):
    rows, columns, deep = t.lanes_h * t.thread_h, t.lanes_w * t.thread_w, t.vector * t.lanes_c
    tile = (image * _tiles(height, rows) + row // rows) * _tiles(width, columns)
    return (tile + column // columns) * _tiles(channels, deep) + channel // deep


def _matrices(problem, t, image, channel, row, column, channels, height, width):
    pixel = (image * height + row) * width + column
    tile = pixel // t.tile_p * _tiles(channels, t.tile_c) + channel // t.tile_c
    return tile * t.cluster


def _rows_of_channels(problem, t, image, channel, row, column, channels, height, width):
    pixel, columns = (image * height + row) * width + column, _tiles(channels, t.tile_n)
    return (pixel // (t.tile_m * t.repeat) * columns + channel // t.tile_n) * t.cluster


def _groups_of_matrices(problem, t, image, channel, row, column, channels, height, width):
    group, within = np.divmod(channel, problem.spec.group_out)
    pixel_tile = ((image * height + row) * width + column) // t.tile_p
    tile = (pixel_tile * problem.spec.groups + group) * _tiles(problem.spec.group_out, t.tile_c) + (
        within // t.tile_c)
    return tile * t.cluster


def _distribution(problem, t, image, channel, row, column, channels, height, width):
    rows = math.gcd(height, t.repeat_w)
    columns, deep = t.repeat_w // rows * t.wave_w, t.repeat_c * t.wave_c
    tile = image * _tiles(channels, deep) + channel // deep
    return (tile * _tiles(height, rows) + row // rows) * _tiles(width, columns) + column // columns


def _direct(problem, t, image, channel, row, column, channels, height, width):
    group, within = np.divmod(channel, problem.spec.group_out)
    tile = (image * problem.spec.groups + group) * _tiles(problem.spec.group_out, t.thread_c)
    return (tile + within // t.thread_c) * _tiles(height * width, t.threads) + (
        row * width + column) // t.threads


_NUMBERS = {"row_reuse": _rows, "channel_vectors": _channels, "gemm": _matrices,
            "warpgroup_tf32": _matrices, "gemm_universal": _rows_of_channels,
            "channel_distribution": _distribution, "implicit_gemm": _groups_of_matrices,
            "implicit_warpgroup": _groups_of_matrices,
            "implicit_gemm_universal": _groups_of_matrices, "direct": _direct}


def sample(plan, most, seed=0):
    """Numbers of at most *most* blocks: first and last, edges of the image, else random ones."""
    blocks = plan.launch.blocks
    last = plan.problem.spec.layout == "nhwc"  # channels are
    owners = blocks_of(plan)[(-1, ..., -1) if last else (-1, -1)]  # corners are edges of the image
    chosen = [0, blocks - 1, *(int(owners[at]) for at in ((0, -1), (-1, 0), (-1, -1), (0, 0)))]
    chosen += np.random.default_rng(seed).permutation(blocks)[:most].tolist()
    return sorted([*dict.fromkeys(chosen)][:most])


def check_blocks(kernel, numbers, inputs, wanted):
    """Accuracy of these blocks' outputs; AssertionError where another output was written.

    *wanted* is what `bound.expected` says of the *inputs*.
    """
    plan, guarded = kernel.plan, GuardedOutput(output_of(kernel.plan.problem))
    before = guarded.out.view(np.uint32).flat[0]
    run_guarded(plan, [guarded], lambda out: kernel.run_blocks(numbers, *inputs, out))
    own = np.isin(blocks_of(plan), numbers)
    others = guarded.out.view(np.uint32)[~own]
    assert (others == before).all(), f"{plan.name}: blocks {numbers} wrote outputs of others"
    return bound.compare(np.where(own, guarded.out, wanted.y), wanted)
