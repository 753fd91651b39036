"""Hint files out of tuning records: the fastest right tiling of each problem, to be shipped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from dscore.core.device import Device
from dscore.core.errors import DscoreError, SpecError
from dscore.core.tiling import Tiling
from dscore.core.toml import parse_toml
from dscore.tuning.freshness import CurrentKernels
from dscore.tuning.measurement import (
    Configuration,
    Identity,
    Measurement,
    TuningRecord,
    records_of,
)
from dscore.tuning.paired import PairedRecord, with_pairs
from dscore.tuning.shipped_hints import (
    MICROSECONDS,
    NETWORK,
    Ignored,
    fitting_plan,
    hint_token,
    parse_hints,
    untuned_plan,
)

# What a tiling gains in a network, before a hint names it there.
_LEAST_GAIN = 1.02
_HEAD = """\
# The fastest right tilings on record, by problem; "{us}" is the time that was measured in
# microseconds, "{network}" the network in which a tiling was the fastest. What no longer parses or
# fits is ignored.

device = "{device}"
machine = {machine}
versions = {versions}
measured = {measured}
command = {command}

[hints]
"""


@dataclass(frozen=True)
class Hint:
    """Tiling to try first on a problem, and the record it comes from."""

    problem: str  # the token, as dscore.tuning.shipped_hints looks it up
    tiling: Tiling
    seconds: float
    record: TuningRecord
    outdated: bool  # measured with other kernel sources than those of now

    @property
    def line(self) -> str:
        """Line of the hint in a file."""
        network = self.record.identity.policy.network
        origin = {NETWORK: network} if network else {MICROSECONDS: round(self.seconds * 1e6, 3)}
        return _line(self.problem, {**origin, **self.tiling.as_json()})


@dataclass(frozen=True)
class HintFile:
    """Hints for a device, by problem, and the problems that have none."""

    device: Device
    hints: tuple[Hint, ...]
    left_out: tuple[Ignored, ...]

    def text(self, command: str) -> str:
        """Text of the file, which names *command* as what made it."""
        identities = [one for hint in self.hints for one in _identities(hint.record)]
        environments = [dict(m.environment) for hint in self.hints
                        for m in hint.record.measurements]
        dscores = {f"dscore {one['dscore']}" for one in environments if "dscore" in one}
        sources = {f"kernels {identity.kernels[:8]}" for identity in identities}
        head = _HEAD.format(
            us=MICROSECONDS, network=NETWORK, device=self.device.name, command=json.dumps(command),
            machine=_listed([self.device.title], (one.get("platform", "") for one in environments)),
            versions=_listed(dscores, (identity.compiler for identity in identities), sources),
            measured=_listed(f"{identity.backend} {identity.policy}" for identity in identities))
        return head + "".join(f"{hint.line}\n" for hint in self.hints)

    def onto(self, text: str, shown: str, command: str) -> str:
        """The hint file of *text* with these hints, in place of its own for the same problems.

        Its first comment stays, and what was said of machine, versions and measurements is said
        beside what is new. *shown* names the file in errors. Raises SpecError where *text* is no
        hint file, or one of another device.
        """
        before = parse_hints(text, shown)
        if before.device != self.device.name:
            raise SpecError(f"{shown} holds hints of {before.device}, not of {self.device.name}")
        old, new = (parse_toml(one.encode(), shown) for one in (text, self.text(command)))
        said = {name: _listed_once(str(old.get(name, "")), str(new[name]))
                for name in ("machine", "versions", "measured")}
        lines = {token: _line(token, hint) for token, hint in before.hints.items()}
        lines |= {hint.problem: hint.line for hint in self.hints}
        comment = "".join(takewhile(lambda line: line.startswith("#"), text.splitlines(True)))
        settings = {"device": self.device.name, **said, "command": command}
        return comment + "".join(
            ["\n", *(f"{name} = {json.dumps(value, ensure_ascii=False)}\n"
                     for name, value in settings.items()),
             "\n[hints]\n", *(f"{lines[token]}\n" for token in sorted(lines))])


def _identities(record: TuningRecord) -> tuple[Identity, ...]:
    """Identities of the measurements that a hint goes by."""
    if isinstance(record, PairedRecord):
        return record.identity, record.behind.identity
    return (record.identity,)


def _line(token: str, values: Mapping[str, Any]) -> str:
    listed = ", ".join(f"{name} = {json.dumps(value)}" for name, value in values.items())
    return f"{token} = {{ {listed} }}"


def _listed_once(*texts: str) -> str:
    """The parts of comma-separated *texts*, each once, in their order."""
    return ", ".join(dict.fromkeys(part for text in texts for part in text.split(", ") if part))


def _listed(*groups: Iterable[str]) -> str:
    """Different texts of each group, sorted, as one TOML string."""
    texts = [text for group in groups for text in sorted(set(group)) if text]
    return json.dumps(", ".join(texts), ensure_ascii=False)


def best_hints(measurements: Iterable[Measurement], device: Device) -> HintFile:
    """Hint file of the best right tiling of every problem that was measured on *device*.

    A tiling must fit *device*. Of several records of a problem, one of the kernel sources of now is
    preferred, then one of a network, which the hint names in place of a time, then one with times
    behind a pointwise layer beside the cold ones, by the sum of both (dscore.tuning.paired), then
    one with cold caches, then one without bias and activation. A hint's time is the cold one all
    the same; of a problem timed behind another layer alone there is no hint. In a network a tiling
    must gain 2 % over the one that is taken without records.

    >>> from dscore.core.catalog import device
    >>> best_hints([], device("h200")).hints
    ()
    """
    groups: dict[str, list[TuningRecord]] = {}
    for record in records_of(measurements):
        identity = record.identity
        if (identity.device, identity.architecture) == (device.name, device.architecture):
            groups.setdefault(hint_token(identity.conv_problem), []).append(record)
    kernels = CurrentKernels()
    entries = [_hint(token, groups[token], device, kernels) for token in sorted(groups)]
    return HintFile(device, tuple(entry for entry in entries if isinstance(entry, Hint)),
                    tuple(entry for entry in entries if isinstance(entry, Ignored)))


def _hint(token: str, records: list[TuningRecord], device: Device,
          kernels: CurrentKernels) -> Hint | Ignored:
    """Hint of the preferred record among those that have one."""
    on_device = [record for record in with_pairs(records) if record.identity.policy.clock != "host"]
    timed = [record for record in on_device if record.identity.policy.cache != "behind"]
    if not on_device:
        return Ignored(token, "timed by the host's clock, which says nothing of a device")
    if not timed:
        return Ignored(token, "timed behind another layer alone; a hint states its own time")
    if not any(record.best for record in timed):
        return Ignored(token, "no tiling of it was right")
    reason = "no tiling of it that was right fits any more"
    for record in sorted(timed, key=lambda r: _preference(r, token, kernels)):
        best = _fitting(record, device, _refused(records, record))
        if best is not None and _gains(record, best, device):
            return Hint(token, best.tiling, best.medians[0], record,
                        not kernels.made(record.identity))
        if best is not None:
            reason = (f"no tiling gained {_LEAST_GAIN - 1:.0%} in a network over the one that is "
                      "taken without records")
    return Ignored(token, reason)


def _gains(record: TuningRecord, best: Configuration, device: Device) -> bool:
    """Whether *best* is worth a hint: in a network by what it gains over the plan without records,
    where that was timed there, too. Times of a layer by itself always are.
    """
    if not record.identity.policy.network:
        return True
    usual = untuned_plan(record.identity.conv_problem, device).tiling
    before = record.configurations.get(usual.name)
    if before is None or before.seconds is None or best.seconds is None:
        return usual != best.tiling
    return before.seconds >= _LEAST_GAIN * best.seconds


def _preference(record: TuningRecord, token: str, kernels: CurrentKernels) -> tuple[Any, ...]:
    """Key by which records of a problem are sorted, the preferred ones first."""
    identity, best = record.identity, record.best
    return (not kernels.made(identity), not identity.policy.network,
            not isinstance(record, PairedRecord), identity.policy.rank,
            identity.problem != token, best.seconds if best and best.seconds else 0.0,
            identity.prefix)


def _refused(records: list[TuningRecord], record: TuningRecord) -> set[str]:
    """Tilings that are refused by any record of the same kernels as *record*: one that was wrong
    once is wrong.
    """
    build = record.identity.kernels, record.identity.compiler
    return {refused.tiling.name for other in records for refused in other.refused
            if (other.identity.kernels, other.identity.compiler) == build}


def _fitting(record: TuningRecord, device: Device, refused: set[str]) -> Configuration | None:
    """Best configuration of *record* that fits *device* today and is not *refused*."""
    for configuration in record.ranking:
        if configuration.tiling.name in refused:
            continue
        with suppress(DscoreError):
            fitting_plan(record.identity.conv_problem, device, configuration.tiling)
            return configuration
    return None
