"""Backends wrong at layers of int8 in one way each: the reference with one step changed."""

import contextlib

import numpy as np

from dscore.backends.reference.backend import ReferenceBackend, ReferenceKernel
from dscore.backends.reference.lockstep import LockstepKernel
from dscore.backends.reference.machine import Blocks


@contextlib.contextmanager
def _replaced(owner, name, function):
    before = getattr(owner, name)
    setattr(owner, name, function(before))
    try:
        yield
    finally:
        setattr(owner, name, before)


class _Kernel(ReferenceKernel):
    def __init__(self, plan, change):
        super().__init__(plan)
        self.change = change

    def __call__(self, *arrays, trace=None):
        with _replaced(*self.change) if self.plan.problem.spec.dtype == "int8" else (
                contextlib.nullcontext()):
            super().__call__(*arrays, trace=trace)


class _Faulty(ReferenceBackend):
    name = "faulty integers"

    def compile(self, plan):
        return _Kernel(plan, self.change)


def _of_16_bits(epilogue):
    return lambda self, blocks, sums, *rest: epilogue(
        self, blocks, sums.astype(np.int16).astype(np.int32), *rest)


class Sum16(_Faulty):
    """Sums wrap at 16 bits."""

    change = LockstepKernel, "_requantised", _of_16_bits


def _half_up(epilogue):
    def changed(*arguments):
        with _replaced(np, "rint", lambda rint: lambda product: np.floor(product + 0.5)):
            return epilogue(*arguments)
    return changed


class HalfUp(_Faulty):
    """A tie between two integers goes to the greater."""

    change = LockstepKernel, "_requantised", _half_up


class ZeroPadding(_Faulty):
    """A padded element is 0, and not the zero point."""

    change = (LockstepKernel, "distances", lambda before: lambda self, values, lanes: before(
        self, values, np.ones_like(lanes)))


def _further(store):
    def changed(self, memory, at, values):
        store(self, memory, at, values)
        if at.count:
            last = np.broadcast_to(~at.masked if at.masked is not None else True, at.index.shape)
            memory[(at.index[last].max() + 1) % memory.size] = values[last][-1]
    return changed


class TailLane(_Faulty):
    """One lane too many stores its result."""

    change = Blocks, "store", _further


# With a layer on which each shows.
FAULTS = {"Sum16": "n1c9h5w5_o4k3_int8", "HalfUp": "n1c30h5w5_o30k3g30_int8_bias",
          "ZeroPadding": "n1c4h5w5_o4k3p1g4_int8", "TailLane": "n1c4h5w5_o3k1_int8_nhwc"}
