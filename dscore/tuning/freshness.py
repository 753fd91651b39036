"""Freshness of tuning records: whether a record still holds, for the kernels and the device of now.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from dscore.core.backend import backend as backend_of
from dscore.core.device import Device
from dscore.core.errors import DscoreError
from dscore.tuning import records
from dscore.tuning.measurement import Identity, Measurement, records_of


@dataclass(frozen=True)
class Stale:
    """Record that no plan goes by, and the reason."""

    identity: Identity
    configurations: int
    reason: str
    # Nothing here tells whether the record holds: a GPU, a compiler or the backend is missing.
    unjudged: bool = False


def stale_records(device: Device | None = None,
                  measurements: Iterable[Measurement] | None = None) -> list[Stale]:
    """Stale records among *measurements*, or in the cache.

    Records must be of *device*; without it, of the device that is here.
    """
    stale = []
    for record in records_of(records.everything() if measurements is None else measurements):
        count = len(record.configurations)
        try:
            reason = _staleness(record.identity, device)
        except DscoreError as missing:
            stale.append(Stale(record.identity, count, str(missing), unjudged=True))
            continue
        if reason:
            stale.append(Stale(record.identity, count, reason))
    return stale


def _staleness(identity: Identity, device: Device | None) -> str:
    """Reason why a record is stale; empty where it holds, DscoreError where nothing here can tell.
    """
    elsewhere = _elsewhere(identity, device)
    if elsewhere:
        return elsewhere
    backend = backend_of(identity.backend)
    now = backend.identity(identity.architecture)
    if now.kernels != identity.kernels:
        return "the kernel sources have changed"
    if device is None and not backend.any_device:
        elsewhere = _elsewhere(identity, backend.device())
        if elsewhere:
            return elsewhere
    if now.compiler != identity.compiler:
        return f"the compiler is {now.compiler}, it was {identity.compiler}"
    return ""


def _elsewhere(identity: Identity, device: Device | None) -> str:
    """Reason that a record is of another device; empty where it is not."""
    if device is None or (identity.device, identity.architecture) == (
            device.name, device.architecture):
        return ""
    return f"measured on {identity.device} ({identity.architecture}), not on {device.name}"


class CurrentKernels:
    """Kernel sources of now, hashed once for each backend."""

    def __init__(self) -> None:
        self._hashes: dict[str, str] = {}

    def made(self, identity: Identity) -> bool:
        """Whether *identity* is of these sources; False where its backend cannot be loaded."""
        name = identity.backend
        if name not in self._hashes:
            self._hashes[name] = ""
            with suppress(DscoreError):
                self._hashes[name] = backend_of(name).identity(identity.architecture).kernels
        return identity.kernels == self._hashes[name]
