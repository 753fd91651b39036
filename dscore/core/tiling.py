"""Tilings: how a kernel cuts a problem into blocks, wavefronts and lanes; the base of all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, Literal

from dscore.core.errors import SpecError, did_you_mean, require_int, require_one_of
from dscore.core.numerics import Arithmetic

FieldKind = Literal["count", "choice", "switch"]
# Beyond what any device holds, and small enough that the solver's products stay exact in int64.
MOST_COUNT = 2**16


def choice(*names: str, default: Any = MISSING) -> Any:
    """A field of a tiling that is one of *names*."""
    return field(default=default, metadata={"names": names})


def kind_of(one: Field[Any]) -> FieldKind:
    """Kind of a field: a count (a positive int), a choice among names, or a switch (a bool)."""
    if "names" in one.metadata:
        return "choice"
    # Text where annotations are postponed.
    kinds: dict[Any, FieldKind] = {"int": "count", int: "count", "bool": "switch", bool: "switch"}
    if one.type not in kinds:
        raise TypeError(f"{one.name}: a tiling's field is an int, a bool or a choice, "
                        f"not {one.type}")
    return kinds[one.type]


@dataclass(frozen=True)
class Tiling(ABC):
    """The template arguments of an algorithm's kernel, field for field.

    Each algorithm has a subclass. Raises SpecError where a count is not positive or too large, or
    a choice is none of its names.
    """

    algorithm: ClassVar[str]

    def __post_init__(self) -> None:
        for one in fields(self):
            value, kind = getattr(self, one.name), kind_of(one)
            if kind == "count":
                value = require_int(value, one.name, at_most=MOST_COUNT)
                object.__setattr__(self, one.name, value)
            else:
                names = one.metadata["names"] if kind == "choice" else (True, False)
                require_one_of(value, one.name, names)

    @property
    @abstractmethod
    def name(self) -> str:
        """Part of a plan's canonical name; a C identifier that begins with the algorithm's."""

    @classmethod
    def required(cls) -> frozenset[str]:
        """Names of the fields that have no default."""
        return frozenset(one.name for one in fields(cls) if one.default is MISSING)

    @classmethod
    def of_row(cls, row: dict[str, Any]) -> Tiling:
        """The tiling of one row of columns, whose values are NumPy's."""
        plain = {"count": int, "choice": str, "switch": bool}
        return cls(**{one.name: plain[kind_of(one)](row[one.name]) for one in fields(cls)})

    def computes(self, arithmetic: Arithmetic | None) -> bool:
        """Whether the kernel multiplies and adds by *arithmetic*; None admits any. Tilings of one
        `arithmetic`, where they have such a field, answer alike.
        """
        return arithmetic in (None, "plain")

    def as_dict(self) -> dict[str, Any]:
        """Field names and values, in order."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def as_json(self) -> dict[str, Any]:
        """The fields behind the name of the algorithm, as files and JSON hold a tiling."""
        return {"algorithm": self.algorithm, **self.as_dict()}

    def brief(self) -> str:
        """The fields as a line of a ledger shows them."""
        return str(self)

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.as_dict().items())


def fields_fault(cls: type[Tiling], names: set[str]) -> str:
    """Reason why fields of these names do not make a *cls*; empty if they do."""
    known = [one.name for one in fields(cls)]
    missing, extra = sorted(cls.required() - names), sorted(names - set(known))
    faults = [f"missing {', '.join(missing)}"] * bool(missing)
    unknown = ", ".join(name + did_you_mean(name, known) for name in extra)
    faults += [f"unknown {unknown}"] * bool(extra)
    if not faults:
        return ""
    return f"not a {cls.__name__}: {'; '.join(faults)}; its fields are {', '.join(known)}"


def require_fields(cls: type[Tiling], names: set[str], where: str) -> None:
    """Raise SpecError, naming what is missing and what is unknown, unless they make a *cls*."""
    fault = fields_fault(cls, names)
    if fault:
        raise SpecError(f"{where}: {fault}")
