"""Products of whole images by filters (hip_src/image_gemm): pointwise layers in NCHW, gradients.

Order of additions, for one result: the products of its summed channels, ascending in each step,
beginning with +0, those past the last +0 · +0. The blocks of a cluster have steps that follow one
another, of which each of a block's slices has every so many-th; the slices' sums are added in their
order, then the blocks'; then bias, then activation. Products are rounded before they are added.
Here a step's filters lie in LDS row after row: what the kernel exchanges there, it reads exchanged;
and of a plane's pairs of pixels all lie there, those past the last one as zeros.
"""

from __future__ import annotations

import numpy as np

from dscore.algorithms.base import BARRIER_BYTES
from dscore.algorithms.image_gemm.tiling import PAIR, barriers_of, shape_of
from dscore.algorithms.warpgroup_gemm.tiling import ROWS
from dscore.backends.reference.lockstep import require_launch
from dscore.backends.reference.machine import (
    Blocks,
    Floats,
    Ints,
    Operands,
    lane_ids,
    split,
)
from dscore.backends.reference.planes import PlaneProduct
from dscore.core.plan import Plan
from dscore.core.trace import Trace


def run(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the result of *plan* to the operand out."""
    _Product(plan, operands).run_all(trace)


run_input_gradient = run


class _Product(PlaneProduct):
    """The geometry of a block, its two tiles, and the blocks that run at present.

    Grid order: block of the cluster fastest, then tile of channels, then that of images. Blocks of
    the same rank in their clusters run together. Rows of a block are its pixels by pairs, of all
    instructions.
    """

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands, shape_of(plan.problem, plan.tiling))
        self.tiles = int(self.shape.tiles_n * self.shape.blocks_i)
        self.rows = int(self.t.groups * self.shape.rows) * ROWS
        pair, of_pair = split(lane_ids(self.rows), PAIR)[::-1]
        self.image_of, self.pixel_of = pair // int(self.shape.pairs), of_pair + pair % int(
            self.shape.pairs) * PAIR
        require_launch(plan, self.tiles * self.t.cluster, int(self.shape.waves) * self.wavefront)

    def allocate(self, blocks: Blocks) -> None:
        """The sums in registers; the ring, what slices and blocks hand over, results and barriers
        in LDS. What slices hand over and results may lie where the ring was."""
        t, shape, size = self.t, self.shape, self.element.bytes
        lanes = t.slices * self.rows * 2 // int(shape.rows)
        self.sums = blocks.registers("sums", int(shape.rows) * t.tile_n // 2, (
            blocks.count, lanes)).reshape(t.slices, blocks.count, self.rows, t.tile_n)
        self.stage = int(shape.stage_bytes) // size
        blocks.lds_tile("the ring, sums of slices, and results", int(shape.work_bytes) // size,
                        self.element)
        blocks.lds_tile("sums of a cluster", int(shape.sent_bytes) // size, self.element)
        blocks.lds_tile("barriers", int(barriers_of(t)) * BARRIER_BYTES // size, self.element)

    def run(self, block: Ints) -> None:
        """The blocks numbered *block*."""
        channel_tile, image_block = split(block, int(self.shape.tiles_n))
        self.first_n = channel_tile * self.t.tile_n
        self.blocks.begin()
        for number in range(self.t.repeat):
            tile = image_block + number * int(self.shape.blocks_i)
            of_images, part = split(tile, self.t.parts)[::-1]
            self.image = (of_images * self.t.images).reshape(-1, 1) + self.image_of
            self.pixel = (part * int(self.shape.part)).reshape(-1, 1) + self.pixel_of
            self.held = ((self.image_of < self.t.images) & (self.image < self.problem.batch)
                         & (self.pixel_of < int(self.shape.part)) & (
                             self.pixel < self.shape.area))
            joined = self._accumulate(number, 0)
            for rank in range(1, self.t.cluster):
                joined += self._accumulate(number, rank)
            self._store(joined)

    def _accumulate(self, tile: int, rank: int) -> Floats:
        """A tile's sums of block *rank* of its cluster, of this block's steps."""
        t, shape, all_steps = self.t, self.shape, int(self.shape.all_steps)
        first, end = (all_steps * number // t.cluster for number in (rank, rank + 1))
        self.sums.fill(0)
        for step in range(end - first):
            ring = (tile * (end - first) + step) % t.stages * self.stage
            filters = self.filters(self.first_n, t.tile_n, first + step, ring)
            planes = self._planes(first + step,
                                  ring + int(shape.filter_bytes) // self.element.bytes)
            own = self.sums[step % t.slices]
            product = np.empty_like(own)
            for k in range(t.step):
                self.blocks.fma(own, planes[:, :, k, None], filters[:, None, :, k], product)
        sums: Floats = self.sums[0].copy()
        for other in self.sums[1:]:
            sums += other
        return sums

    def _planes(self, step: int, to: int) -> Floats:
        """A step's planes, by way of LDS, as rows: pixels by summed channels."""
        summed = step * self.t.step + lane_ids(self.t.step)
        image = self.image[:, :, None]
        at = (image * self.shape.k + summed) * self.shape.area + self.pixel[:, :, None]
        tile = np.zeros(np.broadcast_shapes(at.shape, summed.shape), np.float32)
        # What lies past the last pixel nobody reads from LDS either.
        rows = int(self.t.images * self.shape.part)
        order = np.argsort(~((self.image_of < self.t.images)
                             & (self.pixel_of < int(self.shape.part))), kind="stable")[:rows]
        held = self.held[:, order, None] & (summed < self.shape.k)
        tile[:, order] = self.brought(self.planes, at[:, order], held, to)
        return tile

    def _store(self, sums: Floats) -> None:
        """The results of a tile, of the blocks' joined sums."""
        channel = self.first_n.reshape(-1, 1, 1) + lane_ids(self.t.tile_n)
        held = self.held[:, :, None] & (channel < self.shape.m)
        self.store(sums, channel, self.image[:, :, None], self.pixel[:, :, None], held)
