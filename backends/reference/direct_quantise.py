"""Quantisation of images, a thread per pixel and a few channels (hip_src/direct/quantise.hpp)."""

from __future__ import annotations

import numpy as np

from dscore.algorithms.columns import ceil_div
from dscore.algorithms.direct import DirectTiling
from dscore.backends.reference.lockstep import Images, integers_of, require_launch
from dscore.backends.reference.machine import Addresses, Blocks, Operands, chunks, lane_ids, split
from dscore.core.plan import Plan
from dscore.core.trace import Trace


def run_quantise(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the integers of x to the operand out; pixel tile fastest, then channel tile, image."""
    problem, t = plan.problem, plan.tiling
    assert isinstance(t, DirectTiling)
    channels, area = problem.spec.in_channels, problem.height * problem.width
    pixel_tiles, channel_tiles = ceil_div(area, t.threads), ceil_div(channels, t.thread_c)
    images = Images(problem.spec.layout == "nhwc")
    require_launch(plan, pixel_tiles * channel_tiles * problem.batch, t.threads)
    multiplier, zero = operands["multiplier"][0], np.float32(operands["zero_point"][0])
    for first, count in chunks(pixel_tiles * channel_tiles * problem.batch,
                               Blocks.at_a_time(plan)):
        blocks = Blocks(plan, count, trace)
        tile, rest = split(first + lane_ids(count, 1, 1), pixel_tiles)
        channel_tile, image = split(rest, channel_tiles)
        pixel = tile * t.threads + lane_ids(t.threads, 1)
        channel = channel_tile * t.thread_c + lane_ids(t.thread_c)
        at = Addresses(images.at(image, channel, pixel, channels, area),
                       (pixel < area) & (channel < channels))
        values = np.empty(at.index.shape, np.float32)
        blocks.load(values, operands["x"], at, "inputs")
        blocks.store(operands["out"], at, integers_of(values, multiplier, zero))
