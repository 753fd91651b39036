"""Depthwise layers by row reuse (Liu et al. 2024, §4.2) and column reuse (Lu et al. 2021).

A thread walks over its rows once; a row is added to every row that taps connect it with. A
convolution walks over x and writes the output, an input gradient walks over the output's gradient
and writes that of x. Through LDS a block's rows come whole, in one piece as they lie in memory;
what a thread does with them is the same.
Order of additions, for one written element: rows that are walked over (filter rows ascending, of an
input gradient descending), within these filter columns, ascending, beginning with +0; then bias,
then activation. Products are rounded before they are added. A row outside the image is left out; a
column outside it is +0 · w. Of int8, sums are of int32, and what is multiplied is the distance of x
from its zero point. Matrix units add columns of an input gradient ascending, which are filter
columns descending.
"""

from __future__ import annotations

from dscore.algorithms.row_reuse.tiling import RowReuseTiling
from dscore.backends.reference.lockstep import batches
from dscore.backends.reference.machine import Operands, lane_ids
from dscore.backends.reference.row_lanes import ThroughLds, ThroughRegisters
from dscore.backends.reference.row_units import UnitsKernel
from dscore.core.plan import Plan
from dscore.core.trace import Trace


def run(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the convolution of *plan*, or its input gradient, to the operand out."""
    assert isinstance(plan.tiling, RowReuseTiling)
    kind = (UnitsKernel if plan.tiling.computes("matrix16") else
            ThroughRegisters if plan.tiling.staging == "registers" else ThroughLds)
    kernel = kind(plan, operands)
    for blocks, first in batches(plan, kernel.grid, trace, kernel.allocate):
        blocks.begin()
        kernel.place(first + lane_ids(blocks.count, 1, 1))
        kernel.stage()
        kernel.walk()


run_input_gradient = run
