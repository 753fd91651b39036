"""The judgement of one configuration: every limit with its numbers, and what nearby would fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dscore.algorithms.registry import algorithm_of, case_of, require_runs
from dscore.core.device import Device
from dscore.core.errors import InfeasibleError, require_int
from dscore.core.plan import Check, ResourceUse, Rules, Violation
from dscore.core.problem import ConvProblem
from dscore.core.text import MOST_COLUMNS, fold
from dscore.core.tiling import MOST_COUNT, Tiling
from dscore.solving.rules import keeps_all, ledger
from dscore.solving.solver import Space, solve

MOST_SUGGESTIONS = 4


class InvalidTiling(InfeasibleError):
    """A configuration breaks a limit; `verdict` holds all of them.

    >>> import dscore
    >>> mine = dict(wave_w=1, wave_c=64, repeat_w=1, repeat_c=4, group_c=16)
    >>> try:
    ...     dscore.validate("P28", mine, block_n=2).require()
    ... except InvalidTiling as error:
    ...     print([violation.code for violation in error.verdict.violations])
    ['E-LDS', 'E-LDS-ALLOC']
    """

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(str(verdict))
        self.verdict = verdict


@dataclass(frozen=True)
class Suggestion:
    """A configuration that fits, and how it differs from the one that was judged.

    Fields of the tiling change, or `block_n`, or `masked`.
    """

    changes: tuple[tuple[str, Any, Any], ...]  # field, from, to
    tiling: Tiling
    block_n: int
    masked: bool
    use: ResourceUse
    gain: str

    def __str__(self) -> str:
        return ", ".join("masked=true" if name == "masked" else f"{name} {old}->{new}"
                         for name, old, new in self.changes) + f" ({self.gain})"


@dataclass(frozen=True)
class Verdict:
    """Whether a tiling fits a problem and a device under a rule set, and why.

    ``ok`` is the answer, ``ledger`` every constraint with used, allowed and slack, ``violations``
    those that are broken, ``nearest`` configurations that fit. ``print(verdict)`` shows them.
    """

    problem: ConvProblem
    device: Device
    tiling: Tiling
    rules: Rules
    block_n: int
    masked: bool  # whether tiles may reach past the output
    ledger: tuple[Check, ...]
    nearest: tuple[Suggestion, ...]

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The broken limits."""
        return tuple(v for v in (check.violation for check in self.ledger) if v)

    @property
    def ok(self) -> bool:
        """Whether every limit is kept."""
        return not self.violations

    def require(self) -> None:
        """Raise InvalidTiling, with the verdict as its message, unless `ok`."""
        if not self.ok:
            raise InvalidTiling(self)

    def text(self, columns: int = MOST_COLUMNS, every_limit: bool = False) -> str:
        """The verdict, folded at *columns*; limits that cannot bind are counted only.

        *every_limit* shows these limits, too.
        """
        head = "Valid" if self.ok else "InvalidTiling"
        lines = [*fold(f"{head}: {self.problem} on {self.device}", 4, columns),
                 *fold(f"  {'config':<13}  {self.tiling.brief()} block_n={self.block_n}"
                       + " masked=true" * self.masked, 17, columns)]
        lines += ledger_lines(sorted(self.ledger, key=lambda check: check.slack >= 0), columns,
                              every_limit)
        if self.nearest:
            heads = ("  nearest valid  ", *["               | "] * len(self.nearest))
            lines += [line for head, suggestion in zip(heads, self.nearest, strict=False)
                      for line in fold(f"{head}{suggestion}", 19, columns)]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__  # what Python's prompt shows


def ledger_lines(checks: Iterable[Check], columns: int = MOST_COLUMNS,
                 every_limit: bool = False) -> list[str]:
    """The ledger as text, a line a limit, and the number of those that cannot bind.

    *every_limit* shows all. Details give way where they would pass *columns*, then equations.
    """
    checks = tuple(checks)
    shown = [check for check in checks if every_limit or _may_bind(check)]
    lines: list[str] = []
    for detailed, sourced in ((True, True), (False, True), (False, False)):
        lines = _aligned([_ledger_row(check, detailed, sourced) for check in shown])
        if max(map(len, lines), default=0) <= columns:
            break
    folded = len(checks) - len(shown)
    count = f"{folded} more limit{'s hold' if folded > 1 else ' holds'}"
    return lines + [f"  {count}" if shown else f"  all {folded} limits hold"] * (folded > 0)


def _may_bind(check: Check) -> bool:
    """Whether a limit is broken, or would be if the tiling used twice of it.

    Tilings grow by factors of two. A limit of 0 asks for a property, which there is no more of.
    """
    return check.slack < 0 or (check.allowed > 0 and 2 * check.used > check.allowed)


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)
                             ).rstrip() for row in rows]


def _ledger_row(check: Check, detailed: bool, sourced: bool) -> tuple[str, ...]:
    unit = f" {check.unit}" if check.unit else ""
    slack = (f"{check.slack:,}{unit} spare" if check.slack >= 0
             else f"over by {-check.slack:,}{unit}")
    detail = f" ({check.detail})" if detailed and check.detail else ""
    source = f"{check.source}  " if sourced and check.source else ""
    return (check.limit, f"used {check.used:,}{unit}", f"limit {check.allowed:,}{unit}{detail}",
            slack, f"{source}{check.code}")


def validate(problem: ConvProblem, tiling: Tiling, device: Device, rules: Rules = "hardware",
             block_n: int = 1, masked: bool = False) -> Verdict:
    """Judge *tiling* at a residency of *block_n* blocks per CU.

    *masked* admits tiles that reach past the output (their excess lanes are predicated).
    Raises SpecError where the tiling is of another kind than the problem.

    >>> from dscore.core.catalog import device, layers
    >>> from dscore.algorithms.channel_distribution import ChannelDistributionTiling
    >>> verdict = validate(layers()["P28"], ChannelDistributionTiling(1, 64, 1, 4, 16),
    ...                    device("z100sm"), block_n=2)
    >>> verdict.violations[0]
    Violation(code='E-LDS', limit='shared memory', used=32896, allowed=32768, unit='B')
    """
    require_int(block_n, "block_n", at_most=MOST_COUNT)
    require_runs(problem, tiling)
    lines = ledger(case_of(problem, device, tiling, block_n), rules, masked)
    verdict = Verdict(problem, device, tiling, rules, block_n, masked, lines, ())
    return verdict if verdict.ok else replace(verdict, nearest=_nearest(verdict))


def _nearest(verdict: Verdict) -> tuple[Suggestion, ...]:
    """One suggestion for each field that alone mends it; where none does, the least changes.

    `masked` counts as a field, and so does `block_n`.
    """
    if not algorithm_of(verdict.tiling).suits(verdict.device):
        return ()
    candidates = [_as_it_is(verdict)]
    try:
        space = solve(verdict.problem, verdict.device, verdict.rules, verdict.masked or None,
                      verdict.tiling.algorithm)
    except InfeasibleError:
        space = None
    if space is not None:
        candidates += _by_fields(verdict, space)
    suggestions = {s.changes: s for s in candidates if s}.values()
    fewest = min((len(s.changes) for s in suggestions), default=0)
    nearest = [s for s in suggestions if len(s.changes) == fewest]
    return tuple(sorted(nearest, key=lambda s: s.changes[0][0] == "block_n")[:MOST_SUGGESTIONS])


def _as_it_is(verdict: Verdict) -> Suggestion | None:
    """The same tiling, with tiles that may reach past the output, or fewer blocks on a CU."""
    device, tiling = verdict.device, verdict.tiling
    # A block has one wavefront at least, so no CU holds more blocks than wavefronts.
    for block_n in range(min(verdict.block_n, device.waves_per_cu), 0, -1):
        if _keeps(verdict, tiling, block_n, masked=True):
            suggestion = _suggestion(verdict, tiling, block_n)
            return suggestion if block_n == verdict.block_n else replace(
                suggestion, gain=f"limit {device.lds_bytes_per_cu // block_n:,} B")
    return None


def _by_fields(verdict: Verdict, space: Space) -> list[Suggestion | None]:
    """Tilings at the judged residency that differ in the fewest fields, by the least factor."""
    columns, fields = vars(space.case.tiling), verdict.tiling.as_dict()
    differs = np.array([columns[name] != value for name, value in fields.items()])
    factor = np.array([_octaves(columns[name], value) for name, value in fields.items()])
    fits = keeps_all(replace(space.case, block_n=verdict.block_n), verdict.rules, space.masked)
    changes = np.where(fits, differs.sum(axis=0), len(fields) + 1)
    distance = factor.sum(axis=0)
    if changes.min(initial=len(fields) + 1) > len(fields):
        return []
    order = np.lexsort((space.costs.seconds, distance, changes))
    fewest = [i for i in order if changes[i] == changes[order[0]]]
    nearest_by_field: dict[bytes, int] = {}
    for index in fewest:
        nearest_by_field.setdefault(differs[:, index].tobytes(), int(index))
    return [_suggestion(verdict, space[index], verdict.block_n)
            for index in nearest_by_field.values()]


def _octaves(column: Any, value: Any) -> Any:
    """Distance between two values of a field, in factors of two; 1 for names and switches."""
    if isinstance(value, bool | str):
        return (column != value) * 1.0
    return np.abs(np.log2(column / value))


def _keeps(verdict: Verdict, tiling: Tiling, block_n: int, masked: bool) -> bool:
    case = case_of(verdict.problem, verdict.device, tiling, block_n)
    return bool(keeps_all(case, verdict.rules, masked))


def _suggestion(verdict: Verdict, tiling: Tiling, block_n: int) -> Suggestion:
    """The suggestion of a configuration that fits, masked where it does not fit otherwise."""
    use = case_of(verdict.problem, verdict.device, tiling).use
    masked = verdict.masked or not _keeps(verdict, tiling, block_n, masked=False)
    before = {**verdict.tiling.as_dict(), "block_n": verdict.block_n, "masked": verdict.masked}
    after = {**tiling.as_dict(), "block_n": block_n, "masked": masked}
    changes = tuple((name, before[name], after[name]) for name in after
                    if before[name] != after[name])
    return Suggestion(changes, tiling, block_n, masked, use,
                      f"{use.lds_bytes:,} B, {use.registers} registers")
