"""Products of pixels by filters (hip_src/pixel_gemm): pointwise layers in NCHW, input gradients.

Order of additions, for one result: the products of its summed channels, ascending, step after step,
beginning with +0, those past the last +0 · +0; then bias, then activation. Products are rounded
before they are added. Here a step's tiles lie in LDS row after row: what the kernel exchanges
there, it reads exchanged.
"""

from __future__ import annotations

import numpy as np

from dscore.algorithms.base import BARRIER_BYTES
from dscore.algorithms.columns import ceil_div
from dscore.algorithms.pixel_gemm.tiling import shape_of
from dscore.algorithms.warpgroup_gemm.tiling import ROWS
from dscore.backends.reference.lockstep import batches, require_launch
from dscore.backends.reference.machine import (
    Addresses,
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
    kernel = _Product(plan, operands)
    for blocks, first in batches(plan, kernel.tiles, trace, kernel.allocate):
        kernel.run(first + lane_ids(blocks.count, 1))


run_input_gradient = run


class _Product(PlaneProduct):
    """The geometry of a block, its two tiles, and the blocks that run at present.

    Grid order: tile of channels fastest, then the block's first tile of pixels.
    """

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands, shape_of(plan.problem, plan.tiling))
        self.tiles = int(self.shape.tiles_n * self.shape.blocks_p)
        require_launch(plan, self.tiles, int(self.shape.waves) * self.wavefront)

    def allocate(self, blocks: Blocks) -> None:
        """The sums in registers; the ring, what is kept, results and barriers in LDS."""
        t, shape, size = self.t, self.shape, self.element.bytes
        self.blocks = blocks
        self.sums = blocks.registers("sums", t.tile_n // 2, (
            blocks.count, 2 * t.tile_p)).reshape(blocks.count, t.tile_p, t.tile_n)
        self.stage = int(shape.plane_bytes + (0 if t.kept else shape.filter_bytes)) // size
        blocks.lds_tile("the ring of buffers", t.stages * self.stage, self.element)
        self.kept = blocks.lds_tile("what is kept", int(shape.kept * shape.filter_bytes) // size,
                                    self.element)
        blocks.lds_tile("results", int(shape.result_bytes) // size, self.element)
        blocks.lds_tile("barriers", 2 * t.stages * BARRIER_BYTES // size, self.element)

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
        """The steps of a block; the ring's turns run on from tile to tile."""
        t, shape, size = self.t, self.shape, self.element.bytes
        self.sums.fill(0)
        for step in range(int(shape.steps)):
            ring = (tile * int(shape.steps) + step) % t.stages * self.stage
            planes = self._planes(step, ring)
            to = (self.kept + step * int(shape.filter_bytes) // size if t.kept
                  else ring + int(shape.plane_bytes) // size)
            filters = self.filters(self.first_n, t.tile_n, step, to,
                                   kept=t.kept and tile > 0)
            product = np.empty_like(self.sums)
            for k in range(t.step):
                self.blocks.fma(self.sums, planes[:, k, :, None], filters[:, None, :, k], product)

    def _planes(self, step: int, to: int) -> Floats:
        """A step's planes, by way of LDS: summed channels by pixels."""
        t, shape = self.t, self.shape
        image, pixel = self.image[:, None, :], self.pixel[:, None, :]
        summed = step * t.step + lane_ids(t.step, 1)
        held = (image < self.problem.batch) & (summed < shape.k) & (pixel < shape.area)
        return self.brought(self.planes, (image * shape.k + summed) * shape.area + pixel, held, to)

    def _store(self) -> None:
        """The epilogue, and the stores of results."""
        t, shape = self.t, self.shape
        channel = self.first_n.reshape(-1, 1, 1) + lane_ids(t.tile_n)
        image, pixel = self.image[:, :, None], self.pixel[:, :, None]
        held = (channel < shape.m) & (image < self.problem.batch) & (pixel < shape.area)
        at = Addresses(*np.broadcast_arrays(
            (image * shape.m + channel) * shape.area + pixel, held))
        sums = self.sums
        if self.problem.operation == "conv":
            sums = self.epilogue(self.blocks, sums.copy(), np.broadcast_to(channel, sums.shape), at)
        self.blocks.store(self.out, at, sums)
