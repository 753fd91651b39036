"""Kernels of calls: of the plan that a problem gets or a caller names, for arrays of the host, or
prepared for those on a GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from typing import Any, TypeVar

from dscore.calling import choice
from dscore.calling.arrays import GpuAdapter
from dscore.calling.call_cache import PreparedCall
from dscore.calling.gpu_arrays import capturing
from dscore.core.backend import (
    Backend,
    GpuBackend,
    Kernel,
    Launchable,
    choose_backend,
    require_accepted,
)
from dscore.core.device import Device
from dscore.core.errors import UnavailableError
from dscore.core.numerics import Arithmetic
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.core.spec import Layout
from dscore.ops import Operand, operands_of, output_of

_K = TypeVar("_K", bound=Kernel | Launchable)


def prepared(problem: ConvProblem, adapter: GpuAdapter, index: int, inputs: tuple[Any, ...],
             name: str = "auto", arithmetic: Arithmetic | None = None,
             plan: choice.PlanLike | None = None, shape: tuple[int, ...] = (),
             axes: Layout | None = None) -> PreparedCall:
    """The prepared call of a problem by the backend *name*, for arrays like *inputs* on a GPU.

    *inputs* are the operands but the result, None for one that is missing; they are not checked
    against the problem. *shape* is the result's, where it is not the problem's own; *axes* is the
    layout of the arrays' axes, where it is not that of the memory. The call takes the inputs, and
    out or None.
    """
    name = "hip" if name == "auto" else name
    backend = choose_backend(name)
    if not isinstance(backend, GpuBackend):
        raise UnavailableError(f"x lies on GPU {index}, and backend {backend.name} runs host "
                               "arrays; copy it to the host, or take backend hip")
    accepted = accepted_plan(problem, backend.device_at(index), backend, name, arithmetic, plan)
    kernel = _kernel(backend, accepted, partial(backend.kernel_on, index=index), arithmetic,
                     plan is not None)
    output = output_of(problem)
    return PreparedCall(adapter, index, inputs, shape or output.shape, kernel,
                        operands_of(problem) if axes == "nchw" else (),
                        _changed(problem, output))


def _changed(problem: ConvProblem, output: Operand) -> str | None:
    """The element type of an *output* where that is not its first input's."""
    given = operands_of(problem)[0].element
    return None if output.element == given else output.element.name


def compiled(problem: ConvProblem, name: str, arithmetic: Arithmetic | None = None,
              plan: choice.PlanLike | None = None) -> Kernel:
    """The kernel of the backend *name* for host arrays."""
    backend = choose_backend(name)
    name = backend.name if name == "auto" else name
    accepted = accepted_plan(problem, backend.device(), backend, name, arithmetic, plan)
    return _kernel(backend, accepted, backend.compile, arithmetic, plan is not None)


def _kernel(backend: Backend, plan: Plan, kernel_of: Callable[[Plan], _K],
            arithmetic: Arithmetic | None, demanded: bool) -> _K:
    """The kernel of *plan*; unless that was *demanded*, of a later one where it spills."""
    with _explained_waits(backend):
        if not demanded:
            return choice.unspilled(plan, kernel_of, _spills, backend, arithmetic)[1]
        kernel = kernel_of(plan)
    if _spills(kernel):
        warnings.warn(f"{choice.PassedOver(plan, _spills(kernel))}: it runs, because this plan was "
                      "asked for; without one, conv takes the next that does not spill",
                      RuntimeWarning, stacklevel=2)
    return kernel


def _spills(kernel: Kernel | Launchable) -> int:
    return kernel.use.spills


def _explained_waits(backend: Backend) -> AbstractContextManager[None]:
    """Context in which a long build tells what the call waits for; not while a graph is captured.
    """
    if not backend.compiles or capturing():
        return nullcontext()
    from dscore.building.kernels import explained_waits  # only for a backend that builds

    return explained_waits()


# Kept for plans that dscore decides; the kernel of a caller's own plan is made at each call.
solved_kernel = lru_cache(maxsize=1024)(compiled)


def accepted_plan(problem: ConvProblem, device: Device, backend: Backend, name: str,
                  arithmetic: Arithmetic | None, plan: choice.PlanLike | None) -> Plan:
    """The caller's *plan*, else the one that *problem* gets; the backend must accept it."""
    accepted = (choice.default_plan(problem, device, backend, name, arithmetic) if plan is None
                else choice.callers_plan(problem, device, plan, arithmetic))
    require_accepted(backend, accepted)
    return accepted
