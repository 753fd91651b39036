"""Products of matrices by warpgroups (hip_src/warpgroup_gemm): pointwise layers, their gradients.

Of int8, sums are of int32, of which those of the columns times x's zero point are taken off.

Order of additions, for one result: the products of its summed elements, ascending in each step,
beginning with +0, those past the last +0 · +0; then the blocks of a cluster, each of which has a
share of its part's steps; then the parts (backends/reference/split_k.py); then bias, then
activation. Products are rounded before they are added. Elements of x that are scaled are rounded to
their type, as lanes do between LDS and the matrix units. Here a step's tiles lie in LDS row after
row: what the kernel exchanges there, it reads exchanged.
"""

from __future__ import annotations

import numpy as np

from dscore.algorithms.base import BARRIER_BYTES
from dscore.algorithms.warpgroup_gemm.tiling import barriers_of, shape_of
from dscore.backends.reference.lockstep import LockstepKernel, batches, require_launch
from dscore.backends.reference.machine import (
    Addresses,
    Blocks,
    Floats,
    Ints,
    Operands,
    lane_ids,
    split,
)
from dscore.backends.reference.split_k import sum_of_parts
from dscore.core.plan import Plan
from dscore.core.trace import Trace


def run(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the result of *plan* to the operand out."""
    kernel = _Product(plan, operands)
    for blocks, first in batches(plan, kernel.tiles, trace, kernel.allocate):
        for part in range(kernel.t.parts):
            kernel.run_part(first + lane_ids(blocks.count, 1), part)
    if kernel.t.parts > 1:
        kernel.out[...] = sum_of_parts(kernel.workspace)


run_input_gradient = run_weight_gradient = run


class _Product(LockstepKernel):
    """The geometry of a block, its two tiles, and the blocks that run at present.

    Grid order: block of the cluster fastest, then column tile, the block's first row tile, part.
    Blocks of the same rank in their clusters run together.
    """

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands)
        self.shape = shape_of(self.problem, self.t)
        self.sizes, self.element = self.shape.sizes, self.problem.spec.element
        self.a_name, self.b_name = {
            "conv": ("x", "w"), "input_gradient": ("gradient", "w"),
            "weight_gradient": ("gradient", "x")}[self.problem.operation]
        self.tiles = int(self.shape.blocks_m * self.shape.tiles_n)
        require_launch(plan, self.tiles * self.t.cluster * self.t.parts,
                       int(self.shape.waves) * self.wavefront)
        if self.t.parts > 1:
            self.workspace = np.full((self.t.parts, self.sizes.m * self.sizes.n), np.nan,
                                     np.float32)

    def allocate(self, blocks: Blocks) -> None:
        """The sums in registers; the ring, what is kept, results and barriers in LDS."""
        t, shape, size = self.t, self.shape, self.element.bytes
        self.blocks = blocks
        self.sums = blocks.registers("sums", t.tile_n // 2, (blocks.count, 2 * t.tile_m)).reshape(
            blocks.count, t.tile_m, t.tile_n)
        self.stage = int(shape.bytes_a + (0 if t.kept else shape.bytes_b)) // size
        blocks.lds_tile("the ring of buffers", t.stages * self.stage, self.element)
        self.kept = blocks.lds_tile("what is kept", int(shape.kept * shape.bytes_b) // size,
                                    self.element)
        blocks.lds_tile("results", int(shape.results_bytes) // size, self.element)
        blocks.lds_tile("sums of a cluster", int(shape.handed_bytes) // size, self.element)
        blocks.lds_tile("barriers", barriers_of(self.problem, t) * BARRIER_BYTES // size,
                        self.element)

    def run_part(self, block: Ints, part: int) -> None:
        """The blocks numbered *block* that have a part of the steps."""
        column_tile, row_block = split(block, int(self.shape.tiles_n))
        self.first_n = column_tile * self.t.tile_n
        self.blocks.begin()
        for at in range(self.t.repeat):
            self.first_m = (row_block + at * int(self.shape.blocks_m)) * self.t.tile_m
            self._store(part, self._joined(part, at))

    def _joined(self, part: int, at: int) -> Floats:
        """The sums of a tile: of a cluster, those of its blocks, ascending."""
        steps, cluster = int(self.shape.steps), self.t.cluster
        self._accumulate(part * cluster * steps, at)
        joined = self.sums.copy() if cluster > 1 else self.sums
        for rank in range(1, cluster):
            self.blocks.begin()
            self._accumulate((part * cluster + rank) * steps, at)
            np.add(joined, self.sums, out=joined)
        return joined

    def _accumulate(self, first: int, tile: int) -> None:
        """The steps of a block; the ring's turns run on from tile to tile."""
        t, shape, exact = self.t, self.shape, self.element.exact
        self.sums.fill(0)
        if tile == 0:
            self.column_sums = np.zeros((self.blocks.count, 1, t.tile_n), np.int32)
        steps = max(min(int(shape.steps), int(shape.all_steps) - first), 0)
        for step in range(steps):
            ring = (tile * steps + step) % t.stages * self.stage
            a = self._bring(self.a_name, self.first_m, t.tile_m, self.sizes.m, self.sizes.along_a,
                            first + step, ring)
            to = (self.kept + step * int(shape.bytes_b) // self.element.bytes if t.kept
                  else ring + int(shape.bytes_a) // self.element.bytes)
            b = self._bring(self.b_name, self.first_n, t.tile_n, self.sizes.n, self.sizes.along_b,
                            first + step, to, kept=t.kept and tile > 0)
            if exact and tile == 0:
                self.column_sums[:, 0] += b.sum(-1, dtype=np.int32)
            product = np.empty_like(self.sums)
            for k in range(t.step):
                self.blocks.fma(self.sums, a[:, :, k, None], b[:, None, :, k], product)
        if exact:
            self.sums -= self.operands["points"][0] * self.column_sums

    def _bring(self, name: str, first: Ints, extent: int, all_extent: int, along: bool, step: int,
               to: int, kept: bool = False) -> Floats:
        """A step's tile of an operand, by way of LDS: results' rows (or columns) by summed
        elements, zeros where there are none."""
        t, count, k = self.t, self.blocks.count, self.sizes.k
        spans = t.spans and name == self.a_name
        width = int(self.shape.span) // self.element.bytes if spans else t.step
        summed = step * t.step + lane_ids(width)
        of = first.reshape(count, 1, 1) + lane_ids(extent, 1)
        at = of * k + summed if along else summed * all_extent + of
        held = np.broadcast_to((of < all_extent) & (summed < k), at.shape)
        tile = np.empty((count, extent * width), self.element.sums.numpy)
        words = lane_ids(extent * width)
        if not kept:
            self.blocks.load(tile, self.operands[name],
                             Addresses(at.reshape(count, -1), held.reshape(count, -1)),
                             "filters" if name == "w" else "inputs")
            self.blocks.lds_write(to, tile, words, self.element)
        self.blocks.lds_read(tile, Addresses(words), to, element=self.element)
        if name == "x" and self.problem.spec.scaled:
            image = of // (self.problem.out_height * self.problem.out_width)
            scales = np.broadcast_to(image * k + summed, at.shape)
            self.scaled(self.blocks, tile, Addresses(scales.reshape(count, -1),
                                                     held.reshape(count, -1)))
            tile[...] = tile.astype(self.element.numpy)
        rows = tile.reshape(count, extent, width)
        return np.pad(rows, ((0, 0), (0, 0), (0, t.step - width)))

    def _store(self, part: int, sums: Floats) -> None:
        """The epilogue, and the stores of results."""
        m, n = self.sizes.m, self.sizes.n
        row = self.first_m.reshape(-1, 1, 1) + lane_ids(self.t.tile_m, 1)
        column = self.first_n.reshape(-1, 1, 1) + lane_ids(self.t.tile_n)
        held = (row < m) & (column < n)
        at = Addresses(*np.broadcast_arrays(row * n + column, held))
        if self.t.parts > 1:
            self.blocks.store(self.workspace[part], at, sums)
            return
        if self.problem.operation == "conv":
            sums = self.epilogue(self.blocks, sums.copy(), np.broadcast_to(column, sums.shape), at)
        self.blocks.store(self.out, at, sums)
