"""Depthwise layers on images whose channels lie side by side (NHWC).

The pixels under a block come to its LDS, zeros for those outside the image, and its filters behind
them. A thread takes a vector of channels; it walks over its rows once, each of which is added to
every row that taps connect it with. A convolution walks over x and writes the output, an input
gradient walks over the output's gradient and writes that of x.
Order of additions, for one written element: rows that are walked over (filter rows ascending, of an
input gradient descending), within these filter columns, ascending, beginning with +0; then bias,
then activation. Products are rounded before they are added. What lies outside the image is +0 · w.
"""

from __future__ import annotations

from dscore.algorithms.channel_vectors.tiling import ChannelVectorsTiling
from dscore.backends.reference.channel_lanes import LanesKernel
from dscore.backends.reference.channel_units import UnitsKernel
from dscore.backends.reference.lockstep import batches
from dscore.backends.reference.machine import Operands, lane_ids
from dscore.core.plan import Plan
from dscore.core.trace import Trace


def run(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the convolution of *plan*, or its input gradient, to the operand out."""
    assert isinstance(plan.tiling, ChannelVectorsTiling)
    units = plan.tiling.computes("matrix16")
    kernel = (UnitsKernel if units else LanesKernel)(plan, operands)
    for blocks, first in batches(plan, kernel.grid, trace, kernel.allocate):
        blocks.begin()
        for turn in range(plan.tiling.repeat):
            kernel.place(first + lane_ids(blocks.count, 1, 1), turn)
            kernel.stage(turn)
            kernel.walk()


run_input_gradient = run
