"""What products of filters with planes have in common: how both come to a block by way of LDS
(hip_src/plane_gemm, hip_src/pixel_gemm, hip_src/image_gemm)."""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.backends.reference.lockstep import LockstepKernel
from dscore.backends.reference.machine import (
    Addresses,
    Blocks,
    Bools,
    Floats,
    Ints,
    Operands,
    lane_ids,
)
from dscore.core.plan import Plan


class PlaneProduct(LockstepKernel):
    """A product of filters with planes of x, or of the output's gradient, in NCHW.

    *shape* is the geometry of the plan's tiling: `m` channels of results, `k` summed ones, and
    whether the filters lie `along` these.
    """

    blocks: Blocks  # that run at present

    def __init__(self, plan: Plan, operands: Operands, shape: Any) -> None:
        super().__init__(plan, operands)
        self.shape, self.element = shape, self.problem.spec.element
        self.planes = "x" if self.problem.operation == "conv" else "gradient"

    def filters(self, first: Ints, count: int, step: int, to: int, kept: bool = False) -> Floats:
        """A step's filters of *count* channels from *first* on, by the summed ones."""
        shape = self.shape
        summed = step * self.t.step + lane_ids(self.t.step)
        of = first.reshape(-1, 1, 1) + lane_ids(count, 1)
        at = of * shape.k + summed if shape.along else summed * shape.m + of
        return self.brought("w", at, (of < shape.m) & (summed < shape.k), to, kept)

    def brought(self, name: str, at: Ints, held: Bools, to: int, kept: bool = False) -> Floats:
        """What lies at addresses of an operand, zeros where none are *held*, as LDS has it from
        element *to* on. What is *kept* there was brought before."""
        at, held = np.broadcast_arrays(at, held)
        count = at.shape[0]
        words = lane_ids(at.size // count)
        tile = np.empty((count, words.size), np.float32)
        if not kept:
            self.blocks.load(tile, self.operands[name],
                             Addresses(at.reshape(count, -1), held.reshape(count, -1)),
                             "filters" if name == "w" else "inputs")
            self.blocks.lds_write(to, tile, words, self.element)
        self.blocks.lds_read(tile, Addresses(words), to, element=self.element)
        return tile.reshape(at.shape)
