"""Backends: the protocol of a way to run plans, and the registry of those there are."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Protocol, runtime_checkable

from dscore.core.device import Device
from dscore.core.errors import SpecError, UnavailableError, did_you_mean, shown
from dscore.core.once import once
from dscore.core.plan import Plan, ResourceUse, Violation

# The code of a start for arrays that must be copied first (hip_src/abi.h).
MISPLACED = -2


class Kernel(Protocol):
    """A plan that is ready to run."""

    plan: Plan
    use: ResourceUse

    def __call__(self, *operands: Any) -> None:
        """Write the result of the other operands to the last; all of it, and nothing else.

        *operands* are those of the plan's operation (dscore.ops): C-contiguous arrays of its
        shapes and element types, None for one that the layer does not have.
        Raises LaunchError where the plan's memory does not suffice.
        """

    def seconds(self, *operands: Any, repeats: int) -> list[float]:
        """Time of each of *repeats* runs, each of which writes the last operand."""


@dataclass(frozen=True)
class BackendIdentity:
    """Kernels and compiler of a backend: a measurement holds as long as both stay the same."""

    kernels: str  # SHA-256, as hexadecimal, of what it runs: its sources, and how they are built
    find_compiler: Callable[[], str] = lambda: "none"  # see `compiler`

    @property
    def compiler(self) -> str:
        """Version of the compiler that builds the kernels; "none" where nothing is built.

        Looked for at each access. Raises UnavailableError where it is missing.
        """
        return self.find_compiler()


@dataclass(frozen=True)
class Prepared:
    """Count of the kernels that some plans need, and of those that had to be compiled for them."""

    kernels: int = 0
    compiled: int = 0


# Called before the first unit is compiled and after each: units done, of how many, the last's name.
Progress = Callable[[int, int, str], None]


@runtime_checkable
class Backend(Protocol):
    """One way of running plans. It never falls back to another one, and is hashable."""

    name: str
    any_device: bool  # runs the plans of every device, and not only those of its own
    compiles: bool  # building a kernel takes long, so that many are better built at once

    @property
    def algorithms(self) -> tuple[str, ...] | None:
        """Names of the algorithms whose tilings it runs; None for all."""

    def missing(self) -> str | None:
        """Reason why this machine cannot run it, with the fix, or None."""

    def device(self) -> Device:
        """The device that plans are made for when the caller names none."""

    def refuses(self, plan: Plan) -> tuple[Violation, ...]:
        """Properties of *plan* that this backend cannot run; empty if it can."""

    def prepare(self, plans: Sequence[Plan], progress: Progress | None = None) -> Prepared:
        """Build the kernels of *plans* at once, so that `compile` finds them."""

    def compile(self, plan: Plan) -> Kernel:
        """The kernel of *plan*; UnavailableError or CompileError where there is none."""

    def identity(self, architecture: str) -> BackendIdentity:
        """Kernels and compiler that run on devices of *architecture* (sm_90, gfx906)."""

    def runner(self, device: Device, peers: bool) -> Any:
        """A dscore.measuring.runner.Runner: the memory and the clock to time kernels with.

        UnavailableError where *peers* of PyTorch are to run there too, and PyTorch cannot.
        """

    def workers(self) -> Sequence[Mapping[str, str]]:
        """Environments of the processes that can time kernels side by side, one for each GPU.

        Empty where any number of processes can, as on the host.
        """


class Launchable(Protocol):
    """A kernel that takes the addresses of its operands, each a multiple of `alignment` bytes.

    Operands come in the operation's order (as x, w, bias, out); 0 stands for no bias.
    ``start_on(device, behind)`` is `launch` for those who look after its code themselves: a
    function of the addresses and a stream that returns 0, MISPLACED, or a code that `failure` tells
    the error of. *behind*: of a launch right behind another one of dscore's on its stream, which
    writes none of its operands but images, residuals and scales: others may be read while that one
    runs.
    """

    start_on: Callable[[int, bool], Callable[..., int]]
    use: ResourceUse

    @property
    def alignment(self) -> int:
        """Bytes."""

    @property
    def workspace_bytes(self) -> int:
        """Memory whose address follows those of the operands; 0 for none."""

    def failure(self, code: int) -> Exception:
        """The error that a start's code stands for."""

    def launch(self, *addresses: int) -> None:
        """Start it without waiting; a stream and a device may follow the operands, else 0."""


@runtime_checkable
class GpuBackend(Backend, Protocol):
    """A backend that also runs on arrays where they lie, on a GPU."""

    def device_at(self, index: int) -> Device:
        """The description of a device of this machine."""

    def kernel_on(self, plan: Plan, index: int) -> Launchable:
        """The kernel of *plan* built for that device."""


# In the order in which "auto" prefers them. Text, so that nothing is imported before its use.
_REGISTRY: dict[str, str] = {
    "hip": "dscore.backends.hip:HipBackend",
    "reference": "dscore.backends.reference.backend:ReferenceBackend",
    "emulated": "dscore.backends.emulated:EmulatedBackend",
    "gfx906": "dscore.backends.machine_code.backend:Gfx906Backend",
}
# Variants of these, which neither "auto" nor a list of backends takes.
_VARIANTS = {"hip_any": "dscore.backends.hip:HipAnySizes",
             "gfx906_any": "dscore.backends.machine_code.backend:Gfx906AnySizes",
             "gfx90a": "dscore.backends.machine_code.backend:Gfx90aBackend"}


def register(name: str, target: str) -> None:
    """Make the backend at *target* ("module:Class") known as *name*, after those there are."""
    _REGISTRY[name] = target
    backend.cache_clear()


def backend_names() -> tuple[str, ...]:
    """Registered backends in the order of preference."""
    return tuple(_REGISTRY)


@once
def backend(name: str) -> Backend:
    """The backend called *name*, or the one at "module:Class"; present on this machine or not.

    Raises SpecError for an unknown name.
    """
    target = name if ":" in name else {**_VARIANTS, **_REGISTRY}.get(name)
    if target is None:
        known = did_you_mean(name, ("auto", *_REGISTRY, *_VARIANTS))
        raise SpecError(f"unknown backend {shown(name)}{known}; there are auto, "
                        f"{', '.join(_REGISTRY)}, and module:Class for one of your own")
    module, _, attribute = target.partition(":")
    try:
        cls = getattr(importlib.import_module(module), attribute)
        if not isinstance(cls, type):
            raise TypeError(f"{attribute} is no class")
        # Before anything is called: the name may be that of any class of Python's.
        _require_members(name, target, cls, _methods(Backend))
        loaded = cls()
    except SpecError:
        raise
    except Exception as failed:  # whatever a module raises while it is imported
        raise SpecError(f"backend {shown(name)} cannot be loaded: {failed}; it is named as "
                        "module:Class, a class that takes no arguments") from failed
    _require_members(name, target, loaded, [*Backend.__annotations__])
    return loaded  # type: ignore[no-any-return]


def _require_members(name: str, target: str, owner: Any, members: list[str]) -> None:
    lacking = [member for member in members if not hasattr(owner, member)]
    if lacking:
        raise SpecError(f"backend {name!r}: {target} lacks {', '.join(lacking)}; "
                        "dscore.core.backend.Backend says what each is")


def _methods(protocol: type) -> list[str]:
    """Properties and methods of a protocol by name."""
    return [name for name, value in vars(protocol).items()
            if isinstance(value, FunctionType | property) and not name.startswith("_")]


def require_name(name: object) -> str:
    """Return the *name* of a backend; SpecError where it is no text."""
    if not isinstance(name, str):
        raise SpecError(f"a backend is named by a text, as auto or reference; got {shown(name)}")
    return name


def choose_backend(name: str = "auto") -> Backend:
    """The backend to run: *name*, or for "auto" the first that this machine can run.

    Raises SpecError for an unknown name, UnavailableError, naming what is missing and the fix,
    where it cannot run.
    """
    if require_name(name) != "auto":
        named = backend(name)
        missing = named.missing()
        if missing is not None:
            raise UnavailableError(f"backend {name} cannot run here: {missing}")
        return named
    for candidate in _REGISTRY:
        if backend(candidate).missing() is None:
            return backend(candidate)
    raise UnavailableError("no backend can run here; `dscore env` says what each one lacks")


def gpu_here() -> Device | None:
    """The GPU of this machine, of the first backend that runs on one; None where there is none."""
    for name in _REGISTRY:
        candidate = backend(name)
        if isinstance(candidate, GpuBackend):
            with suppress(UnavailableError):
                return candidate.device()
    return None


def gpu_device(name: str, index: int | None) -> Device | None:
    """GPU *index* (None: of what lies on the host) for the backend of a name; None where that runs
    on no GPU, or not here."""
    if index is None and name == "auto":
        return None
    with suppress(UnavailableError):
        found = choose_backend("hip" if name == "auto" else name)
        return found.device_at(index or 0) if isinstance(found, GpuBackend) else None
    return None


def refusals(backend: Backend, plan: Plan) -> tuple[Violation, ...]:
    """Violations for which *backend* cannot run *plan*: an algorithm it lacks, or its own."""
    algorithm = plan.tiling.algorithm
    if backend.algorithms is not None and algorithm not in backend.algorithms:
        return (Violation("E-ALGORITHM", "algorithm", algorithm, ", ".join(backend.algorithms)),)
    return backend.refuses(plan)


def require_accepted(backend: Backend, plan: Plan) -> None:
    """Raise UnavailableError where *backend* refuses *plan*, naming every property it refuses."""
    violations = refusals(backend, plan)
    if violations:
        raise UnavailableError(f"backend {backend.name} does not run {plan.token}: "
                               + "; ".join(str(violation) for violation in violations))
