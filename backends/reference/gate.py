"""Gates of squeeze-and-excitation, an image by a cluster of blocks (hip_src/gate/kernel.hpp).

The order of additions is stated there.
"""

from __future__ import annotations

import numpy as np

from dscore.algorithms.gate.tiling import RowProducts, shape_of
from dscore.backends.reference.direct_mean import means_of
from dscore.backends.reference.lockstep import LockstepKernel, activate, batches, require_launch
from dscore.backends.reference.machine import Addresses, Blocks, Floats, Ints, Operands, lane_ids
from dscore.backends.reference.tap_sums import ascending
from dscore.core.plan import Plan
from dscore.core.trace import Trace
from dscore.ops import operation


def run(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the gates of x to the operand out. Blocks of the same rank in their clusters run
    together."""
    kernel = _Gate(plan, operands)
    for some, first in batches(plan, plan.problem.batch, trace, kernel.allocate):
        kernel.run(first + lane_ids(some.count, 1, 1))


run_hard_gate = run


class _Gate(LockstepKernel):
    """The steps of a cluster's blocks, one rank after the other."""

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands)
        spec = self.problem.spec
        self.element = spec.element.sums
        self.channels, self.between = spec.in_channels, spec.out_channels
        self.area = self.problem.height * self.problem.width
        self.shape = shape_of(self.problem, self.t, self.wavefront)
        require_launch(plan, self.problem.batch * self.t.cluster, self.t.threads)

    def allocate(self, blocks: Blocks) -> None:
        """Registers: sums, the elements of a vector; and LDS."""
        shape = self.shape
        self.blocks = blocks
        self.sums = blocks.registers("sums", shape.unit)
        self.values = blocks.registers("a vector", shape.vector)
        self.held = [blocks.lds_tile(name, int(count)) for name, count in shape.lds.items()]

    def run(self, image: Ints) -> None:
        """The gates of some images."""
        ranks, slices = range(self.t.cluster), int(self.shape.slices)
        sums = [self.sums_of(image, rank) for rank in ranks]
        partial = []
        for rank in ranks:
            mine = rank % slices
            first, count = self.channels_of(rank)
            begin = rank // slices * int(self.shape.share)
            own = ascending([sums[other * slices + mine] for other in range(self.t.sharers)])
            means = means_of(self.problem, self.operands, own[:, begin:begin + count])
            partial.append(self.products("w", self.shape.first, means, self.between, first,
                                         self.channels))
        between = self.biased(ascending(partial), "bias", 0)
        activate(between, self.problem.spec.activation)
        for rank in ranks:
            first, count = self.channels_of(rank)
            if count:
                self.finish(image, between, first, count)

    def finish(self, image: Ints, between: Floats, first: int, count: int) -> None:
        """The second layer, of the channels from *first* on."""
        gates = self.products("second_w", self.shape.second, between, count,
                              first * self.between, self.between)
        gates = activate(self.biased(gates, "second_bias", first),
                         operation(self.problem.operation).activation(self.problem))
        at = Addresses(image[:, 0] * self.channels + first + lane_ids(1, count))
        self.blocks.store(self.out, at, gates)

    def channels_of(self, rank: int) -> tuple[int, int]:
        """The first channel with which a block goes on, and how many these are."""
        shape = self.shape
        mine, sharer = rank % int(shape.slices), rank // int(shape.slices)
        first = mine * int(shape.slice) + sharer * int(shape.share)
        within = int(shape.slice) - sharer * int(shape.share)
        return first, max(min(int(shape.share), within, self.channels - first), 0)

    def sums_of(self, image: Ints, rank: int) -> Floats:
        """The sums of the channels of these blocks' slices, over their share of the pixels."""
        shape, (parts, columns) = self.shape, (int(self.shape.parts), int(self.shape.columns))
        self.blocks.begin()
        thread, last = lane_ids(*self.sums.shape[2:])[None], self.layout.last
        column, part = ((thread % columns, thread // columns) if last
                        else (thread // parts, thread % parts))
        live = part < parts if last else column < columns
        sums = np.zeros((self.blocks.count, parts, int(shape.slice)), self.element.numpy)
        for first in range(0, int(shape.slice_units), columns):
            unit = first + column
            self.sum_unit(image, rank, unit, part, live & (unit < shape.slice_units))
            for i in range(shape.unit):
                of = np.broadcast_to(live & (unit < shape.slice_units), thread.shape)[0]
                sums[:, part[0][of], (unit * shape.unit + i)[0][of]] = self.sums[i][:, of]
        self.blocks.lds_write(self.held[0], sums.reshape(self.blocks.count, -1),
                              element=self.element)
        return self.joined(sums)

    def sum_unit(self, image: Ints, rank: int, unit: Ints, part: Ints, live: np.ndarray) -> None:
        """The sums of a unit by each thread."""
        shape, slices = self.shape, int(self.shape.slices)
        channel = rank % slices * int(shape.slice) + unit * shape.unit
        live, self.sums[:] = live & (channel < self.channels), 0
        last, end = self.layout.last, self.area
        step = self.channels if last else shape.vector
        base = (image * self.area * self.channels + channel if last
                else (image * self.channels + channel) * self.area)
        for place in range(0, end if last else end // shape.vector,
                           int(shape.parts) * self.t.sharers):
            at = place + rank // slices * int(shape.parts) + part
            there = live & (at * (1 if last else shape.vector) < end)
            for i in range(shape.vector):
                self.blocks.load(self.values[i], self.operands["x"],
                                 Addresses(base + at * step + i, there), "inputs", operand=True)
                to = self.sums[i if last else 0]
                np.add(to, self.values[i], out=to, where=there)

    def joined(self, sums: Floats) -> Floats:
        """The parts' sums added: the runs', if there are several, and then these."""
        if self.shape.runs > 1:
            each = int(self.shape.of_run)
            runs = [ascending(list(np.moveaxis(sums[:, at:at + each], 1, 0)))
                    for at in range(0, sums.shape[1], each)]
            return ascending(runs)
        return ascending(list(np.moveaxis(sums, 1, 0)))

    def products(self, name: str, by: RowProducts, numbers: Floats, rows: int, first: int,
                 step: int) -> Floats:
        """Products of *rows* of a filter, *step* elements apart in memory, by *numbers*."""
        vector, lanes, count = int(by.vector), int(by.lanes), numbers.shape[1]
        sums = np.zeros((numbers.shape[0], rows, lanes), np.float32)
        row, lane = lane_ids(rows, 1), lane_ids(1, lanes)
        element = np.empty((rows, lanes), np.float32)
        product = np.empty_like(sums)
        for start in range(0, count, lanes * vector):
            for k in range(vector):
                at = start + lane * vector + k
                there = np.broadcast_to(at < count, element.shape)
                self.blocks.load(element, self.operands[name],
                                 Addresses(first + row * step + at, there), "filters",
                                 operand=True)
                number = np.where(at < count, numbers[:, np.minimum(at, count - 1)], 0)
                self.blocks.fma(sums, number.astype(np.float32), element[None], product,
                                np.broadcast_to(there, sums.shape), True)
        while lanes > 1:
            lanes //= 2
            sums = sums[..., :lanes] + sums[..., lanes:2 * lanes]
        return sums[..., 0]

    def biased(self, sums: Floats, name: str, first: int) -> Floats:
        """Sums with the biases of the channels from *first* on."""
        if not self.problem.spec.bias:
            return sums
        biases = np.empty(sums.shape, np.float32)
        channel = first + lane_ids(1, sums.shape[1]) + 0 * lane_ids(len(sums), 1)
        self.blocks.load(biases, self.operands[name], Addresses(channel), "biases")
        return sums + biases
