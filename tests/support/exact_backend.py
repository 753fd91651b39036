"""A backend in NumPy's float64, by the direct definition: what numerical derivatives need."""

import numpy as np

from dscore.backends.host import HostBackend, addresses_of, wall_seconds
from dscore.core.backend import BackendIdentity, Prepared
from dscore.ops import operation
from dscore.ops.conv import activated


class ExactKernel:
    def __init__(self, plan):
        self.plan, self.use = plan, plan.use

    def __call__(self, *arrays):
        addresses_of(self.plan, *arrays)
        problem, *inputs = self.plan.problem, *(a for a in arrays[:-1] if a is not None)
        exact = operation(problem.operation).exact(np, problem, *inputs)
        y = activated(np, exact.y, problem.spec.activation)
        arrays[-1][...] = y if exact.after is None else y + exact.after

    def seconds(self, *arrays, repeats):
        return wall_seconds(lambda: self(*arrays), repeats)


class ExactBackend(HostBackend):
    name, compiles = "exact", False

    def missing(self):
        return None

    def refuses(self, plan):
        return ()

    def prepare(self, plans, progress=None):
        return Prepared()

    def compile(self, plan):
        return ExactKernel(plan)

    def identity(self, architecture):
        return BackendIdentity("exact")
