"""A toy backend in one module: the toy operation in loops of Python's, on the host."""

import itertools
import math
from hashlib import sha256
from pathlib import Path

from dscore.backends.host import HostBackend, addresses_of, wall_seconds
from dscore.core.backend import BackendIdentity, Prepared, require_accepted


class ToyKernel:
    first = 0  # channel of the sum; any other is a bug

    def __init__(self, plan):
        self.plan, self.use = plan, plan.use

    def __call__(self, *arrays):
        addresses_of(self.plan, *arrays)
        x, scale, out = arrays
        least = {None: -math.inf, "relu": 0}[self.plan.problem.spec.activation]
        for image, row, column in itertools.product(*map(range, out.shape)):
            channels = range(self.first, len(scale))
            total = sum(x[image, c, row, column] * scale[c] for c in channels)
            out[image, row, column] = max(total, least)

    def seconds(self, *arrays, repeats):
        return wall_seconds(lambda: self(*arrays), repeats)


class ToyBackend(HostBackend):
    name, compiles, algorithms = "toy", False, ("sum_pixels",)

    def missing(self):
        return None

    def refuses(self, plan):
        return ()

    def prepare(self, plans, progress=None):
        return Prepared()  # nothing is built

    def compile(self, plan):
        require_accepted(self, plan)
        return ToyKernel(plan)

    def identity(self, architecture):
        return BackendIdentity(sha256(Path(__file__).read_bytes()).hexdigest())
