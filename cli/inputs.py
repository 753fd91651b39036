"""The texts of a command line as values of the library, and back: tilings, layers, plans."""

from __future__ import annotations

import re
import shlex
from typing import Any

from dscore.algorithms.registry import tiling_from
from dscore.checking import check
from dscore.core import catalog
from dscore.core.catalog import NamedProblem
from dscore.core.errors import SpecError
from dscore.core.plan import Plan
from dscore.core.tiling import Tiling

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_SWITCHES = {"true": True, "false": False}


def tiling_of(text: str | None) -> Tiling | None:
    """Tiling of a text such as ``algorithm=direct,threads=64,thread_c=2``; None for no text.

    Without ``algorithm`` the names of the fields tell it.
    Raises SpecError naming the part that does not fit.
    """
    if text is None:
        return None
    try:
        return tiling_from(_fields_of(text))
    except SpecError as error:
        raise SpecError(f"--tiling: {str(error).removeprefix('tiling: ')}") from None


def _fields_of(text: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if not name or not value:
            raise SpecError(f"{part.strip()!r} is not FIELD=VALUE; a tiling is written as in "
                            "wave_w=1,wave_c=64,repeat_w=1,repeat_c=4,group_c=8")
        if name in fields:
            raise SpecError(f"{name} comes twice")
        fields[name] = (int(value) if _INTEGER.fullmatch(value)
                        else _SWITCHES.get(value.lower(), value))
    return fields


def layers_of(texts: list[str], batch: int | None) -> list[NamedProblem]:
    """The layers that all of *texts* name, in order."""
    return [layer for text in texts for layer in catalog.find(text, batch)]


def reproduction(backend: str, plan: Plan, seed: int, device: str | None) -> str:
    """The command that runs *plan* again; *device* is what the user called its device.

    A device from a file is known by its path only, and rules other than the default must be named.
    """
    line = check.reproduction(backend, plan, seed)
    if device is not None:
        named, given = f"--device {plan.device.name} ", f"--device {shlex.quote(device)} "
        line = line.replace(named, given)
    return line + (f" --rules {plan.rules}" if plan.rules != "hardware" else "")
