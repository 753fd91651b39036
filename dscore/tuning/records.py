"""Database of tuning records: measurements in the cache, and the plan that the best of them makes.

Every measurement is a small sealed entry of its own, which is written whole or not at all and never
changed. So nothing is lost when a run is killed or two tuners work on one problem, and nothing
needs a lock: a record is the union of the entries that are there when it is read. The keys begin
with the problem and the device, so that the names in the folder tell which files to open.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from dscore._version import __version__
from dscore.algorithms.registry import case_of
from dscore.cache.store import Store
from dscore.core.backend import Backend
from dscore.core.backend import backend as backend_of
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
    Identity,
    Measurement,
    TuningRecord,
    lookup,
    records_of,
)
from dscore.tuning.measurement_policy import MeasurementPolicy
from dscore.tuning.paired import BEHIND, PairedRecord, with_pairs

_STORE = Store("tuning")
# A folder changed within this time may change again without its clock showing it.
_TICK_NS = 50_000_000
_MOST_DECISIONS = 4096
_Stamp = tuple[tuple[Path, int], ...]
_decisions: dict[Any, tuple[_Stamp, Plan | None]] = {}


def identity_of(problem: ConvProblem, device: Device, backend: Backend,
                policy: MeasurementPolicy) -> Identity:
    """Identity of a measurement made here and now."""
    identity = backend.identity(device.architecture)
    return Identity(problem_token(problem), backend.name, device.name, device.architecture,
                    identity.kernels, identity.compiler, policy)


def keep(measurement: Measurement) -> None:
    """Write *measurement* to the cache; it is there when this returns."""
    identity = measurement.identity
    _STORE.put(measurement.key, {}, {"measurement": measurement.as_json(), "dscore": __version__,
                                     "target": identity.architecture,
                                     "compiler_version": identity.compiler})


def load(identity: Identity) -> TuningRecord:
    """Record of *identity* in the cache."""
    measurements = (m for m in _read_keys(identity.prefix) if m.identity == identity)
    return TuningRecord(identity, frozenset(measurements))


def load_paired(identity: Identity) -> PairedRecord:
    """Record of *identity*, which is cold, and of the same behind a pointwise layer."""
    return PairedRecord.of(load(identity), load(replace(identity, policy=BEHIND)))


def _read_keys(prefix: str) -> Iterator[Measurement]:
    """Measurements whose keys begin with *prefix*; a damaged one is a miss."""
    names: set[str] = set()
    for folder in _STORE.folders():
        with contextlib.suppress(OSError), os.scandir(folder) as listed:
            names |= {entry.name[:-5] for entry in listed
                      if entry.name.startswith(prefix) and entry.name.endswith(".json")}
    for name in sorted(names):
        entry = _STORE.get(name)
        with contextlib.suppress(SpecError, KeyError):
            measurement = None if entry is None else Measurement.of_json(entry.meta["measurement"])
            if measurement is not None and measurement.key == name:
                yield measurement


def current(problem: ConvProblem, device: Device, backend: Backend) -> list[TuningRecord]:
    """Records of *problem* that hold here and now, the preferred policy first."""
    digits = lookup(problem_token(problem), backend.name, device.name, device.architecture)
    records = records_of(_read_keys(digits))
    if not records:
        return []
    now = identity_of(problem, device, backend, records[0].identity.policy)
    holding = [r for r in records if (r.identity.kernels, r.identity.compiler, r.identity.lookup)
               == (now.kernels, now.compiler, now.lookup)]
    return sorted(holding, key=lambda record: record.identity.policy.rank)


def best(problem: ConvProblem, device: Device, backend: Backend | str) -> Tiling | None:
    """Tiling of `tuned_plan`."""
    plan = tuned_plan(problem, device, backend)
    return None if plan is None else plan.tiling


def tuned_plan(problem: ConvProblem, device: Device, backend: Backend | str,
               arithmetic: Arithmetic | None = None) -> Plan | None:
    """Plan of the best tiling on record that fits *device* today; None where there is none.

    *arithmetic* leaves only the tilings that compute by it. The cache is read once for each state
    of its folder; nothing in it makes this raise.
    """
    name = backend if isinstance(backend, str) else backend.name
    stamp, request = _stamp(), (problem, device, name, arithmetic)
    if not stamp:
        return None
    decision = _decisions.get(request)
    if decision is not None and decision[0] == stamp:
        return decision[1]
    plan = _decide(problem, device, backend, arithmetic)
    if time.time_ns() - max(changed for _, changed in stamp) > _TICK_NS:
        if len(_decisions) >= _MOST_DECISIONS:
            _decisions.clear()
        _decisions[request] = stamp, plan
    return plan


def _stamp() -> _Stamp:
    """Folders of the cache, each with the time at which a file last came or went."""
    stamps = []
    for folder in _STORE.folders():
        with contextlib.suppress(OSError):
            stamps.append((folder, os.stat(folder).st_mtime_ns))
    return tuple(stamps)


def _decide(problem: ConvProblem, device: Device, backend: Backend | str,
            arithmetic: Arithmetic | None) -> Plan | None:
    with contextlib.suppress(DscoreError, OSError):
        backend = backend_of(backend) if isinstance(backend, str) else backend
        records = current(problem, device, backend)
        if problem.spec.widened and not records:
            narrow = replace(problem, spec=problem.spec.with_own_result())
            records = current(narrow, device, backend)
        refused = {one.tiling for record in records for one in record.refused}
        for tiling in (one.tiling for record in with_pairs(records) for one in record.ranking):
            case = case_of(problem, device, tiling)
            fits = tiling not in refused and tiling.computes(arithmetic)
            if fits and bool(keeps_all(case, "hardware", masked=True)):
                return solver.make_plan(problem, device, tiling)
    return None


def everything() -> frozenset[Measurement]:
    """All measurements of the cache, but for damaged ones."""
    measurements = set()
    for entry in _STORE.entries():
        with contextlib.suppress(SpecError, KeyError):
            measurements.add(Measurement.of_json(entry.meta["measurement"]))
    return frozenset(measurements)
