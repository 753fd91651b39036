"""Refusals that algorithms share: of an operation, a kind of layers, a type, a layout, an
arithmetic, a filter."""

from __future__ import annotations

from dscore.core.numerics import FilterForm, Permission
from dscore.core.plan import Violation
from dscore.core.problem import ConvProblem


def wrong_operation(problem: ConvProblem, name: str, operations: tuple[str, ...]
                    ) -> tuple[Violation, ...]:
    """Violation of an algorithm that has *operations*, where the problem's is another."""
    if problem.operation in operations:
        return ()
    return (Violation("E-OPERATION", f"operation of {name}", problem.operation,
                      ", ".join(operations)),)


def require_kind(problem: ConvProblem, name: str, kind: str) -> tuple[Violation, ...]:
    """Violation of an algorithm that runs one kind of layers, where *problem* is of another."""
    if problem.spec.kind == kind:
        return ()
    return (Violation("E-KIND", f"layer of {name}", problem.spec.kind, kind),)


def unquantised(problem: ConvProblem, name: str, quantises: bool) -> tuple[Violation, ...]:
    """Violation of an algorithm that does not quantise x, where the layer has one of floats."""
    if problem.spec.in_dtype is None or quantises:
        return ()
    return (Violation("E-FLOATS", f"x of {name}", problem.spec.in_dtype,
                      f"{problem.spec.dtype}: quantise x beforehand"),)


def untaken(problem: ConvProblem, name: str, elements: tuple[str, ...],
            layouts: tuple[str, ...]) -> tuple[Violation, ...]:
    """Violations of an algorithm that takes *elements* and *layouts*, where these are others."""
    spec = problem.spec
    given = (("E-DTYPE", "dtype", spec.dtype, elements),
             ("E-LAYOUT", "layout", spec.layout, layouts))
    return tuple(Violation(code, f"{what} of {name}", value, ", ".join(taken))
                 for code, what, value, taken in given if value not in taken)


def unmet(problem: ConvProblem, name: str, permission: Permission,
          filters: tuple[FilterForm, ...]) -> tuple[Violation, ...]:
    """Violation of an algorithm that needs a permission, and takes *filters* of some forms."""
    spec = problem.spec
    if permission not in ("sum", spec.arithmetic):
        return (Violation("E-ARITHMETIC", f"arithmetic of {name}", permission,
                          f'{spec.arithmetic}, unless arithmetic="{permission}" permits it'),)
    if spec.filter not in filters:
        return (Violation("E-FILTER", f"filter of {name}", spec.filter, ", ".join(filters)),)
    return ()
