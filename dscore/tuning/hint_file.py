"""Hints out of tuning records: the fastest right tiling of each problem, as a file to ship."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from dscore.core import backend
from dscore.core.device import Device
from dscore.core.errors import DscoreError
from dscore.core.tiling import Tiling
from dscore.tuning.measurement import Configuration, Measurement, Record, records_of
from dscore.tuning.shipped_hints import MICROSECONDS, Ignored, fitting_plan, hint_token

_HEAD = """\
# The fastest right tilings on record, by problem; "{us}" is the time that was measured in
# microseconds. What no longer parses or fits is ignored.

device = "{device}"
machine = {machine}
versions = {versions}
measured = {measured}
command = {command}

[hints]
"""


@dataclass(frozen=True)
class Hint:
    """The tiling to try first on a problem, and the record it comes from."""

    problem: str  # the token, as dscore.tuning.shipped_hints looks it up
    tiling: Tiling
    seconds: float
    record: Record
    outdated: bool  # other kernel sources than today's were measured

    @property
    def line(self) -> str:
        """The hint as it stands in a file."""
        fields = {MICROSECONDS: round(self.seconds * 1e6, 3), **self.tiling.as_json()}
        said = ", ".join(f"{name} = {json.dumps(value)}" for name, value in fields.items())
        return f"{self.problem} = {{ {said} }}"


@dataclass(frozen=True)
class Hints:
    """The hints for a device, by problem, and the problems for which there is none."""

    device: Device
    hints: tuple[Hint, ...]
    left_out: tuple[Ignored, ...]

    def text(self, command: str) -> str:
        """The file, which says that *command* made it."""
        said = [hint.record.identity for hint in self.hints]
        ran = [dict(m.environment) for hint in self.hints for m in hint.record.measurements]
        dscores = {f"dscore {one['dscore']}" for one in ran if "dscore" in one}
        sources = {f"kernels {one.kernels[:8]}" for one in said}
        head = _HEAD.format(
            us=MICROSECONDS, device=self.device.name, command=json.dumps(command),
            machine=_listed([self.device.title], (one.get("platform", "") for one in ran)),
            versions=_listed(dscores, (one.compiler for one in said), sources),
            measured=_listed(f"{one.backend} {one.policy}" for one in said))
        return head + "".join(f"{hint.line}\n" for hint in self.hints)


def _listed(*groups: Iterable[str]) -> str:
    """The different texts of each group, sorted, as one TOML string."""
    texts = [text for group in groups for text in sorted(set(group)) if text]
    return json.dumps(", ".join(texts), ensure_ascii=False)


def hints_of(measurements: Iterable[Measurement], device: Device) -> Hints:
    """The best right tiling of every problem that was measured on *device*, if it fits there.

    Of several records of a problem, one of today's kernel sources is preferred, then one with
    cold caches, then one without bias and activation.

    >>> from dscore.core.catalog import device
    >>> hints_of([], device("h200")).hints
    ()
    """
    together: dict[str, list[Record]] = {}
    for record in records_of(measurements):
        said = record.identity
        if (said.device, said.architecture) == (device.name, device.architecture):
            together.setdefault(hint_token(said.stated), []).append(record)
    todays = _Todays()
    found, left_out = [], []
    for token in sorted(together):
        made = _hint(token, together[token], device, todays)
        if isinstance(made, Hint):
            found.append(made)
        else:
            left_out.append(made)
    return Hints(device, tuple(found), tuple(left_out))


class _Todays:
    """The kernel sources of today, hashed once for each backend."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def made(self, record: Record) -> bool:
        """Whether *record* is of them; not where its backend is not to be had."""
        name = record.identity.backend
        if name not in self._known:
            self._known[name] = ""
            with suppress(DscoreError):
                self._known[name] = backend.backend(name).identity(
                    record.identity.architecture).kernels
        return record.identity.kernels == self._known[name]


def _hint(token: str, found: list[Record], device: Device, todays: _Todays) -> Hint | Ignored:
    """The hint of the record that is preferred among those that have one."""
    timed = [record for record in found if record.identity.policy.clock != "host"]
    if not timed:
        return Ignored(token, "timed by the host's clock, which says nothing of a device")
    if not any(record.best for record in timed):
        return Ignored(token, "no tiling of it was right")
    for record in sorted(timed, key=lambda r: (
            not todays.made(r), r.identity.policy.rank, r.identity.problem != token,
            r.best.seconds if r.best and r.best.seconds else 0.0, r.identity.prefix)):
        best = _fitting(record, device, _refused(found, record))
        if best is not None and best.seconds is not None:
            return Hint(token, best.tiling, best.seconds, record, not todays.made(record))
    return Ignored(token, "no tiling of it that was right fits any more")


def _refused(found: list[Record], record: Record) -> set[str]:
    """Tilings that any record of the very kernels of *record* refuses: wrong once is wrong."""
    made = record.identity.kernels, record.identity.compiler
    return {refused.tiling.name for other in found for refused in other.refused
            if (other.identity.kernels, other.identity.compiler) == made}


def _fitting(record: Record, device: Device, refused: set[str]) -> Configuration | None:
    """The best of *record* that fits *device* today and is not *refused*."""
    for configuration in record.ranking:
        if configuration.tiling.name in refused:
            continue
        with suppress(DscoreError):
            fitting_plan(record.identity.stated, device, configuration.tiling)
            return configuration
    return None
