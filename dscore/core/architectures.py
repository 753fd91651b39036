"""Architectures of GPUs: the limits that a driver does not report, from the specs' files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from dscore.core.device import Device
from dscore.core.errors import SpecError, UnavailableError
from dscore.core.toml import Table, require_keys, shipped_tables

_FOLDER = "architectures"
_FIELDS = ("vendor", "wavefront", "simds_per_cu", "waves_per_simd", "blocks_per_cu",
           "threads_per_block", "registers_per_cu", "registers_per_thread", "register_granularity",
           "lds_bytes_per_cu", "lds_bytes_per_block", "lds_granularity_bytes", "fp32_lanes_per_cu",
           "transfers_per_clock")
_CAPABILITIES = ("lds_reserved_bytes", "asynchronous_copies", "bulk_copies", "early_start",
                 "warpgroups", "cluster_blocks", "matrix_types")
_DEFAULTS = {field.name: field.default for field in fields(Device)}
# Of several architectures, the figure that all of them keep to: the least, but for granularities
# and what is reserved.
_Pick = Callable[[list[Any]], Any]
_PICKS: dict[str, _Pick] = {
    "register_granularity": max, "lds_granularity_bytes": max, "lds_reserved_bytes": max,
    "matrix_types": lambda lists: tuple(sorted(set.intersection(*map(set, lists)))),
}


@dataclass(frozen=True)
class Architecture:
    """Limits of an architecture, as fields of `dscore.core.device.Device`.

    *transfers_per_clock* is of the memory, for each cycle of its clock as the driver reports it.
    *assumed* are the limits that no source states of this architecture, *source* says where they
    are from.
    """

    name: str
    limits: Mapping[str, Any]
    transfers_per_clock: int
    assumed: tuple[str, ...]
    source: str


def architecture(name: str) -> Architecture:
    """The limits of an architecture as its compiler calls it (sm_89, gfx90a).

    One that no file states, of a family that has others, keeps what all of these keep. Raises
    UnavailableError, with the fix, where no file has its family.

    >>> architecture("sm_89").limits["waves_per_simd"], architecture("gfx1100").limits["wavefront"]
    (12, 32)
    >>> architecture("sm_88").source
    'the least of sm_80, sm_86, sm_87, sm_89'
    """
    known = _known()
    if name in known:
        return known[name]
    family = [one for other, one in known.items() if _family(other) == _family(name)]
    if not family:
        raise UnavailableError(
            f"nothing is known of the architecture {name}; write the limits of the GPU to a .toml "
            "file, as `dscore devices NAME --toml` prints those of a like one, and set "
            "DSCORE_DEVICE to its path")
    return _least(name, family)


def _family(name: str) -> str:
    """What architectures of alike limits have in common: the major version, or all but a stepping.

    >>> _family("sm_120"), _family("sm_86"), _family("gfx90a"), _family("gfx1101")
    ('sm_12', 'sm_8', 'gfx90', 'gfx110')
    """
    return re.sub("(?<=[0-9])[0-9a-f]$", "", name)


def _least(name: str, family: list[Architecture]) -> Architecture:
    limits = {field: _PICKS.get(field, min)([one.limits[field] for one in family])
              for field in family[0].limits}
    assumed = tuple(field for field in limits if field != "vendor")
    return Architecture(name, limits, min(one.transfers_per_clock for one in family), assumed,
                        "the least of " + ", ".join(one.name for one in family))


@lru_cache(maxsize=1)
def _known() -> dict[str, Architecture]:
    tables = shipped_tables(_FOLDER)
    return {name: _architecture(name, table.get("common", {}) | row, f"{shown}: {name}")
            for shown, table in tables.items()
            for name, row in table.items() if name not in ("title", "common")}


def _architecture(name: str, row: Table, shown: str) -> Architecture:
    try:
        require_keys(row, _FIELDS, (*_FIELDS, *_CAPABILITIES, "assumed"))
    except SpecError as error:
        raise SpecError(f"{shown}: {error}") from None
    limits = {field: row.get(field, _DEFAULTS[field])
              for field in (*_FIELDS[:-1], *_CAPABILITIES)}
    limits["matrix_types"] = tuple(limits["matrix_types"])
    return Architecture(name, limits, row["transfers_per_clock"], tuple(row.get("assumed", ())),
                        "the architecture " + name)
