"""Tilings that were measured elsewhere and travel with the package: hints, to be tried first.

A file of the specs' folder `tunings` holds those of one device, a line a problem;
dscore.tuning.hint_file makes it of records. A hint that no longer parses or fits is ignored, and
can be named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from dscore.algorithms.case import case_of
from dscore.algorithms.registry import require_runs, tiling_from
from dscore.core import catalog
from dscore.core.device import Device
from dscore.core.errors import DscoreError, InfeasibleError, SpecError
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling
from dscore.core.token import parse_problem, problem_token
from dscore.solving.rules import ledger
from dscore.solving.solver import make_plan

_FOLDER = "tunings"
# What a hint holds beside the fields of its tiling: the time that was measured.
MICROSECONDS = "us"


@dataclass(frozen=True)
class Ignored:
    """A hint (or a file of them) that no plan is made of, and why."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False)
class Tunings:
    """The hints for one device, as stated: each is judged when it is asked for."""

    device: str
    hints: Mapping[str, Any]  # by what `hint_token` makes of the problem
    fault: str = ""  # why all of the file is ignored

    def plan(self, problem: ConvProblem, device: Device) -> Plan | None:
        """The plan of the hint for *problem*; None where there is none that fits *device*."""
        stated = self.hints.get(hint_token(problem))
        with suppress(DscoreError):
            return None if stated is None else fitting_plan(problem, device, _tiling_of(stated))
        return None

    def microseconds(self, problem: ConvProblem) -> float | None:
        """The time that was measured with the hint for *problem*; None where it is not stated."""
        stated = self.hints.get(hint_token(problem))
        taken = stated.get(MICROSECONDS) if isinstance(stated, dict) else None
        return float(taken) if isinstance(taken, int | float) else None

    def ignored(self, device: Device) -> tuple[Ignored, ...]:
        """What no plan for *device* is made of."""
        if self.fault:
            return (Ignored(f"{_FOLDER}/{self.device}.toml", self.fault),)
        return tuple(_ignored(self.hints, device))


def hint_token(problem: ConvProblem) -> str:
    """The token by which the hint for *problem* is found: bias and activation change no tiling.

    >>> hint_token(parse_problem("n1c8h5w5_o8k3p1g8_float16_bias_relu6"))
    'n1c8h5w5_o8k3p1g8_float16'
    """
    bare = replace(problem.spec, bias=False, activation=None)
    return problem_token(replace(problem, spec=bare))


def fitting_plan(problem: ConvProblem, device: Device, tiling: Tiling) -> Plan:
    """The plan of *tiling*, which keeps every limit of the hardware.

    Raises InfeasibleError naming those it breaks, SpecError where it is of another kind.
    """
    require_runs(problem, tiling)
    checks = ledger(case_of(problem, device, tiling), "hardware", masked=True)
    broken = [str(check.violation) for check in checks if check.violation]
    if broken:
        raise InfeasibleError("; ".join(broken))
    return make_plan(problem, device, tiling)


def _tiling_of(stated: Any) -> Tiling:
    if not isinstance(stated, dict):
        raise SpecError(f"a hint is a table of a tiling's fields, not {stated!r}")
    return tiling_from({name: value for name, value in stated.items() if name != MICROSECONDS},
                       "hint")


def _ignored(hints: Mapping[str, Any], device: Device) -> Iterator[Ignored]:
    for token, stated in hints.items():
        try:
            problem = parse_problem(token)
            if hint_token(problem) != token:
                raise SpecError(f"is not asked for: a hint for it is named {hint_token(problem)}")
            fitting_plan(problem, device, _tiling_of(stated))
        except DscoreError as failed:
            yield Ignored(token, str(failed))


def tunings_of(text: str, shown: str) -> Tunings:
    """The hints that a file's *text* states; *shown* names the file in an error.

    Raises SpecError where it is no TOML, or names no device.

    >>> told = tunings_of('device = "h200"\\n[hints]\\n'
    ...                   'n1c8h4w4_o8k1 = { us = 1.5, threads = 64, thread_c = 2 }', "mine")
    >>> told.plan(parse_problem("n1c8h4w4_o8k1_relu"), catalog.device("h200")).tiling
    DirectTiling(threads=64, thread_c=2)
    """
    table = catalog.parse_toml(text.encode(), shown)
    device, hints = table.get("device"), table.get("hints", {})
    if not isinstance(device, str):
        raise SpecError(f"{shown}: device must be a text, got {device!r}")
    if not isinstance(hints, dict):
        raise SpecError(f"{shown}: hints must be a table, got {hints!r}")
    return Tunings(device, hints)


@lru_cache(maxsize=64)
def shipped(device: str) -> Tunings | None:
    """The hints that are shipped for the device of that name; None where there are none."""
    entry = files("dscore._specs").joinpath(_FOLDER).joinpath(f"{device}.toml")
    if not entry.is_file():
        return None
    try:
        found = tunings_of(entry.read_bytes().decode("utf-8", "replace"),
                           f"{_FOLDER}/{device}.toml")
    except SpecError as failed:
        return Tunings(device, {}, str(failed))
    return found if found.device == device else Tunings(device, {}, f"is of {found.device}")


def all_shipped() -> list[Tunings]:
    """The hints of every device."""
    folder = files("dscore._specs").joinpath(_FOLDER)
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    found = (shipped(name.removesuffix(".toml")) for name in names if name.endswith(".toml"))
    return [one for one in found if one is not None]


def shipped_plan(problem: ConvProblem, device: Device) -> Plan | None:
    """The plan of the hint that is shipped for *problem* on *device*; None where there is none.

    Never raises for what a file holds.

    >>> shipped_plan(parse_problem("n7c3h5w11_o7k1"), catalog.device("h200")) is None
    True
    """
    found = shipped(device.name)
    return None if found is None else found.plan(problem, device)
