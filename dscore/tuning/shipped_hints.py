"""Hints that are shipped: tilings that were measured elsewhere, and are tried first.

A file of the specs' folder `tunings` holds the hints of one device, a line for each problem;
dscore.tuning.hint_file makes it of tuning records. A hint that no longer parses or fits is ignored,
and `ignored` names it. A problem has a device's own hint, then that of a sibling, a device of the
same architecture with as many compute units; where neither has any, those for problems like it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from itertools import product
from typing import Any

from dscore.algorithms.registry import case_of, require_runs, tiling_from
from dscore.core import catalog
from dscore.core.backend import Backend, refusals
from dscore.core.device import Device
from dscore.core.errors import DscoreError, InfeasibleError, SpecError
from dscore.core.numerics import Arithmetic
from dscore.core.plan import Plan, Rules
from dscore.core.problem import ConvProblem
from dscore.core.spec import COSTLY_ACTIVATIONS
from dscore.core.tiling import Tiling
from dscore.core.token import parse_problem, problem_token
from dscore.core.toml import parse_toml
from dscore.solving.rules import ledger
from dscore.solving.solver import best_plan, make_plan

_FOLDER = "tunings"
# Keys beside those of the tiling: of the time that was measured; and of the network in which a
# tiling was found the fastest, where its time alone and cold was not taken.
MICROSECONDS, NETWORK = "us", "network"


@dataclass(frozen=True)
class Ignored:
    """Hint (or file of hints) that no plan is made of, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False)
class ShippedHints:
    """Hints for one device, as a file states them: each is judged when it is looked up."""

    device: str
    hints: Mapping[str, Any]  # by the `hint_token` of the problem
    fault: str = ""  # why the whole file is ignored

    def plan(self, problem: ConvProblem, device: Device) -> Plan | None:
        """Plan of the hint for *problem*; None where no hint for it fits *device*."""
        choice = _choice((self,), problem, device)
        return None if choice is None else choice.plan

    def microseconds(self, problem: ConvProblem, device: Device) -> float | None:
        """Measured time of the hint that `plan` takes; None where the file states none.

        It is of the problem that the hint is of, as float16 for bfloat16, or without a residual.
        """
        choice = _choice((self,), problem, device)
        return None if choice is None else choice.microseconds

    def ignored(self, device: Device) -> tuple[Ignored, ...]:
        """Hints that no plan for *device* is made of."""
        if self.fault:
            return (Ignored(f"{_FOLDER}/{self.device}.toml", self.fault),)
        return _ignored(self, device)


@dataclass(frozen=True)
class _Choice:
    """A hint that fits: the file that it is of, its microseconds and its plan."""

    device: str
    microseconds: float | None
    plan: Plan


@lru_cache(maxsize=4096)
def _choice(files_read: tuple[ShippedHints, ...], problem: ConvProblem,
            device: Device) -> _Choice | None:
    """That of the first problem like *problem* that has one, in the first of the files."""
    for alike in _alike(problem):
        token = hint_token(alike)
        for hints in files_read:
            with suppress(DscoreError):
                if (hint := hints.hints.get(token)) is not None:
                    plan = fitting_plan(problem, device, _tiling_of(hint))
                    return _Choice(hints.device, _microseconds(hint), plan)
    return None


def _microseconds(hint: Any) -> float | None:
    """The time that a hint states."""
    time = hint.get(MICROSECONDS) if isinstance(hint, dict) else None
    return float(time) if isinstance(time, int | float) else None


def _alike(problem: ConvProblem) -> Iterator[ConvProblem]:
    """The problem, and those whose hints serve it where no file has any of its own.

    One of bfloat16 has that of float16: their kernels are the same but for the type, which takes as
    many bytes and the same instructions. One with a residual, or with an activation that takes
    long, has that of the problem without it.
    """
    given = problem.spec
    for activation, residual in product(dict.fromkeys((given.activation, None)),
                                        dict.fromkeys((given.residual, None))):
        spec = replace(given, activation=activation, residual=residual)
        yield replace(problem, spec=spec)
        if spec.dtype == "bfloat16":
            yield replace(problem, spec=spec.in_form(dtype="float16"))


def hint_token(problem: ConvProblem) -> str:
    """Token that finds the hint for *problem*: without a bias, without an activation that takes few
    instructions, and with the result's own type, as these change no tiling.

    >>> hint_token(parse_problem("n1c8h5w5_o8k3p1g8_float16_bias_relu6"))
    'n1c8h5w5_o8k3p1g8_float16'
    >>> hint_token(parse_problem("n1c8h5w5_o8k3p1g8_float16_bias_silu"))
    'n1c8h5w5_o8k3p1g8_float16_silu'
    """
    costly = problem.spec.activation if problem.spec.activation in COSTLY_ACTIVATIONS else None
    bare = replace(problem.spec.with_own_result(), bias=False, activation=costly)
    return problem_token(replace(problem, spec=bare))


def fitting_plan(problem: ConvProblem, device: Device, tiling: Tiling) -> Plan:
    """Plan of *tiling*, which must keep every limit of the hardware.

    Raises InfeasibleError naming the limits it breaks, SpecError where it does not run *problem*.
    """
    require_runs(problem, tiling)
    checks = ledger(case_of(problem, device, tiling), "hardware", masked=True)
    broken = [str(check.violation) for check in checks if check.violation]
    if broken:
        raise InfeasibleError("; ".join(broken))
    return make_plan(problem, device, tiling)


def _tiling_of(hint: Any) -> Tiling:
    if not isinstance(hint, dict):
        raise SpecError(f"a hint is a table of a tiling's fields, not {hint!r}")
    return tiling_from({name: value for name, value in hint.items()
                        if name not in (MICROSECONDS, NETWORK)}, "hint")


@lru_cache(maxsize=8)
def _ignored(hints: ShippedHints, device: Device) -> tuple[Ignored, ...]:
    return tuple(_without_plan(hints.hints, device))


def _without_plan(hints: Mapping[str, Any], device: Device) -> Iterator[Ignored]:
    for token, hint in hints.items():
        try:
            problem = parse_problem(token)
            if hint_token(problem) != token:
                raise SpecError(f"is not asked for: a hint for it is named {hint_token(problem)}")
            fitting_plan(problem, device, _tiling_of(hint))
        except DscoreError as failed:
            yield Ignored(token, str(failed))


def parse_hints(text: str, shown: str) -> ShippedHints:
    """Hints of a file's *text*; *shown* names the file in an error.

    Raises SpecError where the text is no TOML, or names no device.

    >>> hints = parse_hints('device = "h200"\\n[hints]\\nn1c8h4w4_o8k1 = '
    ...                     '{ us = 1.5, algorithm = "direct", threads = 64, thread_c = 2 }', "x")
    >>> from dscore.core.catalog import device
    >>> hints.plan(parse_problem("n1c8h4w4_o8k1_relu"), device("h200")).tiling
    DirectTiling(threads=64, thread_c=2, cluster=1)
    """
    table = parse_toml(text.encode(), shown)
    device, hints = table.get("device"), table.get("hints", {})
    if not isinstance(device, str):
        raise SpecError(f"{shown}: device must be a text, got {device!r}")
    if not isinstance(hints, dict):
        raise SpecError(f"{shown}: hints must be a table, got {hints!r}")
    return ShippedHints(device, hints)


@lru_cache(maxsize=64)
def shipped(device: str) -> ShippedHints | None:
    """Hints for the device of that name; None where no file of it is shipped."""
    entry = files("dscore._specs").joinpath(_FOLDER).joinpath(f"{device}.toml")
    if not entry.is_file():
        return None
    try:
        hints = parse_hints(entry.read_bytes().decode("utf-8", "replace"),
                            f"{_FOLDER}/{device}.toml")
    except SpecError as failed:
        return ShippedHints(device, {}, str(failed))
    return hints if hints.device == device else ShippedHints(device, {}, f"is of {hints.device}")


def all_shipped() -> list[ShippedHints]:
    """Hints of every device that has a file."""
    files_read = map(shipped, _shipped_names())
    return [hints for hints in files_read if hints is not None]


def _shipped_names() -> list[str]:
    folder = files("dscore._specs").joinpath(_FOLDER)
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    return [name.removesuffix(".toml") for name in names if name.endswith(".toml")]


def hints_for(device: Device) -> tuple[ShippedHints, ...]:
    """Hints for *device*, then those for its siblings, which it takes where it has none of its own
    for the very problem.

    >>> [hints.device for hints in hints_for(catalog.device("h100"))]
    ['h100', 'h200']
    """
    siblings = (name for name in _shipped_names()
                if name != device.name and _siblings(catalog.devices().get(name), device))
    files_read = map(shipped, (device.name, *siblings))
    return tuple(hints for hints in files_read if hints is not None)


def _siblings(one: Device | None, other: Device) -> bool:
    return one is not None and (
        (one.architecture, one.compute_units) == (other.architecture, other.compute_units))


def shipped_plan(problem: ConvProblem, device: Device) -> Plan | None:
    """Plan of the hint for *problem* on *device*; None where there is none that fits.

    Nothing that a file holds makes this raise.

    >>> shipped_plan(parse_problem("n7c3h5w11_o7k1"), catalog.device("h200")) is None
    True
    """
    choice = _choice(hints_for(device), problem, device)
    return None if choice is None else choice.plan


def untuned_plan(problem: ConvProblem, device: Device, rules: Rules = "hardware",
                 backend: Backend | None = None, arithmetic: Arithmetic | None = None) -> Plan:
    """The plan without a look at the records: the shipped hint, else the model's first.

    Hints keep the hardware's limits, so under the paper's rules there are none. A hint that
    *backend* refuses is passed over, and one that does not compute by *arithmetic*.

    >>> from dscore.core.catalog import device, layers
    >>> untuned_plan(layers()["D1"], device("z100sm")).tiling.algorithm
    'row_reuse'
    """
    hint = shipped_plan(problem, device) if rules == "hardware" else None
    if (hint is not None and hint.tiling.computes(arithmetic)
            and not (backend and refusals(backend, hint))):
        return hint
    among = None if backend is None else backend.algorithms
    return best_plan(problem, device, rules, arithmetic, among)


def timing(plan: Plan) -> tuple[str, float] | None:
    """Device that the hint of *plan* was timed on, and the microseconds; None where none states it.

    >>> from dscore.core.catalog import layers
    >>> device, microseconds = timing(shipped_plan(layers()["P13"], catalog.device("h100")))
    >>> device, microseconds > 0
    ('h200', True)
    """
    choice = _choice(hints_for(plan.device), plan.problem, plan.device)
    if choice is None or choice.plan != plan or choice.microseconds is None:
        return None
    return choice.device, choice.microseconds
