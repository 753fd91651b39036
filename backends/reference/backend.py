"""Reference backend: its kernels run the modules beside it, an algorithm each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from dscore._version import __version__
from dscore.algorithms.registry import algorithm_of, names
from dscore.backends.host import HostBackend, addresses_of, wall_seconds
from dscore.cache.store import folder_key
from dscore.core.backend import BackendIdentity, Prepared, Progress, require_accepted
from dscore.core.numerics import ACCUMULATOR, FLOATS
from dscore.core.plan import Plan, ResourceUse, Violation
from dscore.core.trace import Trace
from dscore.ops import operands_of

_PACKAGE = "dscore.backends.reference."


@cache
def _is_mirrored(algorithm: str) -> bool:
    """Whether there is a module of that name, for which folders are searched."""
    return find_spec(_PACKAGE + algorithm) is not None


def _lockstep(plan: Plan) -> Callable[..., None]:
    """The function `run` of the module of the algorithm's name, or that of another operation than
    the algorithm's first."""
    algorithm, operation = algorithm_of(plan.tiling), plan.problem.operation
    name = "run" if operation == algorithm.operations[0] else f"run_{operation}"
    run: Callable[..., None] = getattr(import_module(_PACKAGE + algorithm.name), name)
    return run


class ReferenceKernel:
    """A plan run in lockstep: lanes are an array axis, memory is what the plan gives."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.use: ResourceUse = plan.use

    def __call__(self, *arrays: Any, trace: Trace | None = None) -> None:
        """Write the results of the inputs to the other operands, and what was done to *trace*.

        Raises LaunchError where an array does not fit the plan, or the plan's grid, registers or
        LDS do not fit the tiling; the result is then incomplete.
        """
        addresses_of(self.plan, *arrays)  # raises for arrays that do not fit
        flat = {operand.name: array.reshape(-1)
                for operand, array in zip(operands_of(self.plan.problem), arrays, strict=True)
                if array is not None}
        # Infinite and missing values are data, and go through without a warning.
        with np.errstate(all="ignore"):
            _lockstep(self.plan)(self.plan, flat, trace)

    def seconds(self, *arrays: Any, repeats: int) -> list[float]:
        """Wall-clock time of each of *repeats* runs."""
        return wall_seconds(lambda: self(*arrays), repeats)


class ReferenceBackend(HostBackend):
    """Runs every plan, on any machine, slowly and literally."""

    name = "reference"
    compiles = False

    @property
    def algorithms(self) -> tuple[str, ...]:  # type: ignore[override]
        """Algorithms that a module of this folder mirrors."""
        return tuple(filter(_is_mirrored, names()))

    def missing(self) -> str | None:
        """None: NumPy is all it needs."""
        return None

    def refuses(self, plan: Plan) -> tuple[Violation, ...]:
        """Types finer than its registers of float32, and what its algorithm does not run."""
        element = plan.problem.spec.element
        finer = [Violation("E-DTYPE", "dtype", element.name, ", ".join(FLOATS))] * (
            element.bytes > ACCUMULATOR.bytes)
        return (*finer, *algorithm_of(plan.tiling).refuses(plan.problem))

    def prepare(self, plans: Sequence[Plan], progress: Progress | None = None) -> Prepared:
        """Nothing: NumPy runs a plan as it is."""
        return Prepared()

    def compile(self, plan: Plan) -> ReferenceKernel:
        """The kernel of *plan*; UnavailableError names what `refuses` lists."""
        require_accepted(self, plan)
        return ReferenceKernel(plan)

    def identity(self, architecture: str) -> BackendIdentity:
        """The Python sources of the algorithms; nothing is built."""
        return BackendIdentity(folder_key(Path(__file__).parent, (".py",), __version__))
