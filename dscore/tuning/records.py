"""Tuning records: what was measured, kept in the cache, and read back fast.

Every measurement is a small sealed entry of its own, which is written whole or not at all and never
changed. So nothing is lost when a run is killed or two tuners work on one problem, and nothing
needs a lock; a record is the union of what is found when it is read. The keys begin with what is
asked for, so that a folder's names tell which files to open.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dscore._version import __version__
from dscore.algorithms.case import case_of
from dscore.cache.store import Store
from dscore.core import backend
from dscore.core.backend import Backend
from dscore.core.device import Device
from dscore.core.errors import DscoreError, SpecError
from dscore.core.numerics import Arithmetic
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling
from dscore.core.token import problem_token
from dscore.solving import solver
from dscore.solving.rules import keeps_all
from dscore.tuning.measurement import (
    Configuration,
    Identity,
    Measurement,
    Policy,
    Record,
    lookup,
    records_of,
)

__all__ = ["Configuration", "Identity", "Measurement", "Policy", "Record", "records_of"]

_STORE = Store("tuning")
# A folder changed within this time may change again without its clock showing it.
_TICK_NS = 50_000_000
_MOST_DECIDED = 4096
_Stamp = tuple[tuple[Path, int], ...]
_decided: dict[Any, tuple[_Stamp, Plan | None]] = {}


def identity_of(problem: ConvProblem, device: Device, chosen: Backend,
                policy: Policy) -> Identity:
    """What a measurement made now would be bound to."""
    identity = chosen.identity(device.architecture)
    return Identity(problem_token(problem), chosen.name, device.name, device.architecture,
                    identity.kernels, identity.compiler, policy)


def keep(measurement: Measurement) -> None:
    """Write *measurement* to the cache; it is there when this returns."""
    said = measurement.identity
    _STORE.put(measurement.key, {}, {"measurement": measurement.as_json(), "dscore": __version__,
                                     "target": said.architecture,
                                     "compiler_version": said.compiler})


def load(identity: Identity) -> Record:
    """What the cache knows under *identity*."""
    found = (m for m in _read_keys(identity.prefix) if m.identity == identity)
    return Record(identity, frozenset(found))


def _read_keys(prefix: str) -> Iterable[Measurement]:
    """The sound measurements whose keys begin with *prefix*; what is damaged is a miss."""
    names: set[str] = set()
    for folder in _STORE.folders():
        with contextlib.suppress(OSError), os.scandir(folder) as listed:
            names |= {entry.name[:-5] for entry in listed
                      if entry.name.startswith(prefix) and entry.name.endswith(".json")}
    for name in sorted(names):
        entry = _STORE.get(name)
        with contextlib.suppress(SpecError, KeyError):
            found = None if entry is None else Measurement.of_json(entry.meta["measurement"])
            if found is not None and found.key == name:
                yield found


def current(problem: ConvProblem, device: Device, chosen: Backend) -> list[Record]:
    """The records of *problem* that hold here and now, the preferred policy first."""
    where = lookup(problem_token(problem), chosen.name, device.name, device.architecture)
    found = records_of(_read_keys(where))
    if not found:
        return []
    now = identity_of(problem, device, chosen, found[0].identity.policy)
    kept = [r for r in found if (r.identity.kernels, r.identity.compiler, r.identity.lookup)
            == (now.kernels, now.compiler, now.lookup)]
    return sorted(kept, key=lambda record: record.identity.policy.rank)


def best(problem: ConvProblem, device: Device, chosen: Backend | str) -> Tiling | None:
    """The fastest tiling of *problem* that was found right; None where nothing is known."""
    plan = tuned_plan(problem, device, chosen)
    return None if plan is None else plan.tiling


def tuned_plan(problem: ConvProblem, device: Device, chosen: Backend | str,
               arithmetic: Arithmetic | None = None) -> Plan | None:
    """The plan of the best recorded tiling that fits *device* today; None where there is none.

    Where *arithmetic* is named, of those that compute by it. Read once for each state of the
    cache's folder. Never raises for what the cache holds.
    """
    name = chosen if isinstance(chosen, str) else chosen.name
    stamp, asked = _stamp(), (problem, device, name, arithmetic)
    if not stamp:
        return None
    known = _decided.get(asked)
    if known is not None and known[0] == stamp:
        return known[1]
    plan = _decide(problem, device, chosen, arithmetic)
    if time.time_ns() - max(changed for _, changed in stamp) > _TICK_NS:
        if len(_decided) >= _MOST_DECIDED:
            _decided.clear()
        _decided[asked] = stamp, plan
    return plan


def _stamp() -> _Stamp:
    """The folders there are, and when a file last came or went."""
    found = []
    for folder in _STORE.folders():
        with contextlib.suppress(OSError):
            found.append((folder, os.stat(folder).st_mtime_ns))
    return tuple(found)


def _decide(problem: ConvProblem, device: Device, chosen: Backend | str,
            arithmetic: Arithmetic | None) -> Plan | None:
    with contextlib.suppress(DscoreError, OSError):
        backed = backend.backend(chosen) if isinstance(chosen, str) else chosen
        for record in current(problem, device, backed):
            for configuration in record.ranking:
                case = case_of(problem, device, configuration.tiling)
                fits = configuration.tiling.computes(arithmetic)
                if fits and bool(keeps_all(case, "hardware", masked=True)):
                    return solver.make_plan(problem, device, configuration.tiling)
    return None


@dataclass(frozen=True)
class Stale:
    """Measurements that are ignored, and why."""

    identity: Identity
    configurations: int
    reason: str
    unjudged: bool = False  # what is missing here (a GPU, a compiler) would tell whether they hold


def stale(device: Device | None = None,
          measurements: Iterable[Measurement] | None = None) -> list[Stale]:
    """The records of the cache, or of *measurements*, that no decision here goes by.

    With *device* those are meant that would be made for it, else for the device that is here.
    """
    found = []
    for record in records_of(everything() if measurements is None else measurements):
        count = len(record.configurations)
        try:
            reason = _staleness(record.identity, device)
        except DscoreError as missing:
            found.append(Stale(record.identity, count, str(missing), unjudged=True))
            continue
        if reason:
            found.append(Stale(record.identity, count, reason))
    return found


def _staleness(said: Identity, device: Device | None) -> str:
    """Why a record does not hold now; empty where it does, DscoreError where none can tell."""
    elsewhere = _elsewhere(said, device)
    if elsewhere:
        return elsewhere
    chosen = backend.backend(said.backend)
    identity = chosen.identity(said.architecture)
    if identity.kernels != said.kernels:
        return "the kernel sources have changed"
    if device is None and not chosen.any_device:
        elsewhere = _elsewhere(said, chosen.device())
        if elsewhere:
            return elsewhere
    if identity.compiler != said.compiler:
        return f"the compiler is {identity.compiler}, it was {said.compiler}"
    return ""


def _elsewhere(said: Identity, device: Device | None) -> str:
    """That a record is of another device; empty where it is not."""
    if device is None or (said.device, said.architecture) == (device.name, device.architecture):
        return ""
    return f"measured on {said.device} ({said.architecture}), not on {device.name}"


def everything() -> frozenset[Measurement]:
    """All sound measurements of the cache."""
    found = set()
    for entry in _STORE.entries():
        with contextlib.suppress(SpecError, KeyError):
            found.add(Measurement.of_json(entry.meta["measurement"]))
    return frozenset(found)
