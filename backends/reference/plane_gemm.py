"""Products of filters by planes (hip_src/plane_gemm): pointwise layers in NCHW, input gradients.

Order of additions, for one result: the products of its summed channels, step after step, beginning
with +0, those past the last +0 · +0; in a step `8 * apart` channels after the other, of these the
instructions in their order, and of each its sixteen; then bias, then activation. Products are
rounded before they are added. Here a step's tiles lie in LDS row after row: what the kernel
exchanges there, it reads exchanged; and of a row of a box only the pixels of the tile.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dscore.algorithms.plane_gemm.tiling import EIGHT, shape_of
from dscore.backends.reference.lockstep import require_launch
from dscore.backends.reference.machine import (
    Blocks,
    Floats,
    Ints,
    Operands,
    lane_ids,
    split,
)
from dscore.backends.reference.planes import KeptPlaneProduct
from dscore.core.plan import Plan
from dscore.core.trace import Trace


def run(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the result of *plan* to the operand out."""
    _Product(plan, operands).run_all(trace)


run_input_gradient = run


class _Product(KeptPlaneProduct):
    """The geometry of a block, its two tiles, and the blocks that run at present.

    Grid order: tile of channels fastest, then the block's first tile of pixels.
    """

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands, shape_of(plan.problem, plan.tiling))
        self.tiles = int(self.shape.tiles_m * self.shape.blocks_p)
        require_launch(plan, self.tiles, int(self.shape.waves) * self.wavefront)

    def allocate(self, blocks: Blocks) -> None:
        """The sums in registers; the ring, what is kept, results and barriers in LDS."""
        t, shape = self.t, self.shape
        self.sums = blocks.registers("sums", t.images * t.tile_p // 2, (
            blocks.count, 2 * t.tile_m)).reshape(blocks.count, t.tile_m, t.images, t.tile_p)
        self.allocate_ring(blocks)
        blocks.lds_tile("results", int(shape.groups * shape.results), self.element)
        self.allocate_barriers(blocks, shape.barriers * t.stages)

    def run(self, block: Ints) -> None:
        """The blocks numbered *block*."""
        t, shape = self.t, self.shape
        channel_tile, first = split(block, int(shape.tiles_m))
        self.first_m = channel_tile * t.tile_m
        of_plane = -(-shape.area // t.tile_p)
        self.blocks.begin()
        for at in range(t.repeat):
            tile = first + at * int(shape.blocks_p)
            pixel_tile, images = split(tile, of_plane)
            self.image, self.pixel = images * t.images, pixel_tile * t.tile_p
            self._accumulate(at)
            self._store()

    def _accumulate(self, tile: int) -> None:
        """The steps of one of a block's tiles."""
        self.sums.fill(0)
        product = np.empty_like(self.sums)
        for planes, filters in self.each_step(tile, self.first_m, self.t.tile_m):
            for k in self._order():
                self.blocks.fma(self.sums, filters[:, :, k, None, None],
                                planes[:, None, :, k, :], product)

    def _order(self) -> Iterator[int]:
        """The summed channels of a step, as the instructions have them."""
        apart = self.shape.apart
        for first in range(0, self.t.step, EIGHT * apart):
            for plane in range(apart):
                yield from range(first + plane, first + EIGHT * apart, apart)

    def planes_of(self, step: int, to: int) -> Floats:
        """A step's planes, by way of LDS: images, summed channels, pixels."""
        t, shape, batch = self.t, self.shape, self.problem.batch
        image = self.image.reshape(-1, 1, 1, 1) + lane_ids(t.images, 1, 1)
        summed = step * t.step + lane_ids(t.step, 1)
        pixel = self.pixel.reshape(-1, 1, 1, 1) + lane_ids(t.tile_p)
        held = (image < batch) & (summed < shape.k) & (pixel < shape.area)
        return self.brought(self.planes, (image * shape.k + summed) * shape.area + pixel, held, to)

    def _store(self) -> None:
        """The results of a tile."""
        t, shape = self.t, self.shape
        channel = self.first_m.reshape(-1, 1, 1, 1) + lane_ids(t.tile_m, 1, 1)
        image = self.image.reshape(-1, 1, 1, 1) + lane_ids(t.images, 1)
        pixel = self.pixel.reshape(-1, 1, 1, 1) + lane_ids(t.tile_p)
        held = (channel < shape.m) & (image < self.problem.batch) & (pixel < shape.area)
        self.store(self.sums.copy(), channel, image, pixel, held)
