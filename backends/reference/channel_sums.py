"""Weight gradient of depthwise layers on images whose channels lie side by side (NHWC).

A thread takes a vector of channels and keeps the sums of its taps in registers; it walks over rows
of x, each of which it reads once, with the rows of the gradient over it. A block takes tiles of the
images one after the other, which come to its LDS.
Order of additions, for one tap of a thread: tiles, within these rows of x, within these columns of
the gradient, all ascending, beginning with +0; then the threads of a channel, ascending; then the
blocks of a cluster, ascending; then the slices as tap_sums has it. Products are rounded before they
are added. What lies outside x is +0 · gradient; what the gradient does not have is left out.
On matrix units this is the order of a wavefront, whose channels are those of so many lanes here;
products of fragments off the diagonal are left out.
"""

from __future__ import annotations

from dscore.backends.reference.channel_sums_both import BothKernel
from dscore.backends.reference.channel_sums_lanes import ChannelSumsKernel
from dscore.backends.reference.lockstep import batches
from dscore.backends.reference.machine import Operands, lane_ids
from dscore.backends.reference.tap_sums import added, ascending
from dscore.core.plan import Plan
from dscore.core.trace import Trace


def run(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the weight gradient of *plan* to the operand out."""
    run_shares(ChannelSumsKernel(plan, operands), trace)


def run_gradients(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write both gradients of *plan*, that of x to the operand x_gradient."""
    run_shares(BothKernel(plan, operands), trace)


def run_shares(kernel: ChannelSumsKernel, trace: Trace | None) -> None:
    """Run all blocks of a kernel, and add their sums."""
    plan, operands = kernel.plan, kernel.operands
    for some, first in batches(plan, kernel.clusters, trace, kernel.allocate):
        kernel.place(first + lane_ids(some.count, 1, 1))
        of_blocks = []
        for rank in range(kernel.t.cluster):
            some.begin()
            kernel.accumulate(rank)
            of_blocks.append(kernel.reduced())
        kernel.store(ascending(of_blocks))
    if kernel.t.slices > 1:
        operands["out"][:] = added(kernel.parts)
