"""Products of pixels by filters (hip_src/pixel_gemm): pointwise layers in NCHW, input gradients.

Order of additions, for one result: the products of its summed channels, ascending, step after step,
beginning with +0, those past the last +0 · +0; then bias, then activation. Products are rounded
before they are added. Here a step's tiles lie in LDS row after row: what the kernel exchanges
there, it reads exchanged.
"""

from __future__ import annotations

import numpy as np

from dscore.algorithms.columns import ceil_div
from dscore.algorithms.pixel_gemm.tiling import shape_of
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
        self.tiles = int(self.shape.tiles_n * self.shape.blocks_p)
        require_launch(plan, self.tiles, int(self.shape.waves) * self.wavefront)

    def allocate(self, blocks: Blocks) -> None:
        """The sums in registers; the ring, what is kept, results and barriers in LDS."""
        t = self.t
        self.sums = blocks.registers("sums", t.tile_n // 2, (
            blocks.count, 2 * t.tile_p)).reshape(blocks.count, t.tile_p, t.tile_n)
        self.allocate_ring(blocks)
        blocks.lds_tile("results", int(self.shape.result_bytes) // self.element.bytes,
                        self.element)
        self.allocate_barriers(blocks, 2 * t.stages)

    def run(self, block: Ints) -> None:
        """The blocks numbered *block*."""
        t, shape = self.t, self.shape
        channel_tile, first = split(block, int(shape.tiles_n))
        self.first_n = channel_tile * t.tile_n
        self.blocks.begin()
        for at in range(t.repeat):
            # A warpgroup's 64 pixels are of one image, those of the next perhaps of another.
            row = lane_ids(t.tile_p)
            number = (first + at * int(shape.blocks_p)) * int(shape.groups) + row // ROWS
            run, self.image = split(number, ceil_div(shape.area, ROWS))
            self.pixel = run * ROWS + row % ROWS
            self._accumulate(at)
            self._store()

    def _accumulate(self, tile: int) -> None:
        """The steps of one of a block's tiles."""
        self.sums.fill(0)
        product = np.empty_like(self.sums)
        for planes, filters in self.each_step(tile, self.first_n, self.t.tile_n):
            for k in range(self.t.step):
                self.blocks.fma(self.sums, planes[:, k, :, None], filters[:, None, :, k], product)

    def planes_of(self, step: int, to: int) -> Floats:
        """A step's planes, by way of LDS: summed channels by pixels."""
        t, shape = self.t, self.shape
        image, pixel = self.image[:, None, :], self.pixel[:, None, :]
        summed = step * t.step + lane_ids(t.step, 1)
        held = (image < self.problem.batch) & (summed < shape.k) & (pixel < shape.area)
        return self.brought(self.planes, (image * shape.k + summed) * shape.area + pixel, held, to)

    def _store(self) -> None:
        """The results of a tile."""
        t, shape = self.t, self.shape
        channel = self.first_n.reshape(-1, 1, 1) + lane_ids(t.tile_n)
        image, pixel = self.image[:, :, None], self.pixel[:, :, None]
        held = (channel < shape.m) & (image < self.problem.batch) & (pixel < shape.area)
        self.store(self.sums.copy(), channel, image, pixel, held)
