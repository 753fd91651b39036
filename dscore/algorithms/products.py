"""What the products of matrices count, and the cost model's work that is alike in them.

Their operands come step by step through a ring of LDS buffers, and lanes or matrix units multiply
what they read of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dscore.algorithms.base import LDS_BANKS, Case
from dscore.algorithms.columns import Count


@dataclass(frozen=True)
class ProductTraffic:
    """Counts per wavefront of a product of matrices."""

    fmas: Count
    splits: Count  # instructions that make two TF32 of a float32
    products: Count  # instructions of the matrix units
    lds_loads: Count
    lds_clocks: Count
    fragments: Count  # rounds of loads and products that follow one another
    copies: Count  # from memory to LDS, that pass by themselves
    stores: Count
    joined: Count  # sums that pass through LDS
    load_bytes: Count  # of all blocks

    def named(self, case: Case) -> dict[str, Count]:
        """The traffic by the names of `Algorithm.traffic`."""
        return {"multiply-adds": self.fmas, "LDS reads": self.lds_loads,
                "LDS clocks": self.lds_clocks * (case.device.wavefront / LDS_BANKS),
                "global loads": self.copies, "global stores": self.stores}

    def issue(self, weight: Mapping[str, float]) -> Count:
        """Clocks of a SIMD that issues a wavefront's instructions, but for the matrix units'."""
        return (weight["wavefront"] + weight["lds_load"] * self.lds_loads
                + weight["split"] * self.splits + weight["fma"] * self.fmas
                + weight["copy"] * self.copies + weight["store"] * self.stores
                + weight["join"] * self.joined)


def ring_waits(weight: Mapping[str, float], rounds: Count, stages: Count) -> Count:
    """Clocks in which a block waits for memory: for its first steps, and in each turn of the ring,
    once that is full.

    >>> float(ring_waits({"wait": 100.0}, 12, 4))
    250.0
    """
    turns = np.maximum(0, rounds / np.maximum(stages - 1, 1) - 1)
    return weight["wait"] * (1 + turns / 2)
