"""Texts of a command line as values of the library: tilings, layers, plans; and plans as texts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast, get_args

from dscore.core.errors import (
    InfeasibleError,
    SpecError,
    UnavailableError,
    require_int,
    require_one_of,
    shown,
)
from dscore.core.numerics import PERMISSIONS

if TYPE_CHECKING:
    from dscore.bench.network_workplace import Workplace
    from dscore.bench.run import Planner
    from dscore.building.codegen import Sizes
    from dscore.core.backend import Backend
    from dscore.core.catalog import NamedProblem
    from dscore.core.device import Device
    from dscore.core.numerics import Permission
    from dscore.core.plan import Plan, Rules
    from dscore.core.problem import ConvProblem
    from dscore.core.spec import Layout
    from dscore.core.tiling import Tiling

_BATCH = re.compile(r"-?[0-9]{1,4000}")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_FIELDS_OF_A_NAME = ("it is a tiling's name, and `dscore space LAYER --json` has the fields of "
                     "each tiling")
_SWITCHES = {"true": True, "false": False}


def tiling_of(text: str | None) -> Tiling | None:
    """Tiling of a text such as ``algorithm=direct,threads=64,thread_c=2``; None for no text.

    Without ``algorithm`` the names of the fields tell it.
    Raises SpecError naming the part that does not fit.
    """
    if text is None:
        return None
    from dscore.algorithms.registry import tiling_from

    try:
        return tiling_from(_fields_of(text))
    except SpecError as error:
        raise SpecError(f"--tiling: {str(error).removeprefix('tiling: ')}") from None


def planner_of(text: str | None) -> Planner | None:
    """Plans by a tiling, or by the first-ranked one of those that have the stated fields.

    Of a text that names the algorithm, as ``algorithm=winograd,fused=true``, fields may be missing.
    Raises SpecError as `tiling_of` does.
    """
    if text is None:
        return None
    from dscore import api
    from dscore.algorithms.registry import algorithm, names

    values = _fields_of(text)
    name = values.pop("algorithm", None)
    if name not in names() or algorithm(name).tiling.required() <= set(values):
        tiling = tiling_of(text)
        return lambda problem, device: api.plan_for(problem, device, tiling=tiling)

    def first(problem: ConvProblem, device: Device) -> Plan:
        space = api.solve(problem, device, algorithm=name).having(**values)
        best = space.first() if len(space) else None
        if best is None:
            raise InfeasibleError(f"{problem} on {device}: no tiling has {text}")
        return space.plan(best)

    return first


def _fields_of(text: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    # With spaces in place of commas, as `dscore explain` prints a tiling.
    for part in re.split(r"\s*,\s*|\s+", re.sub(r"\s*=\s*", "=", text.strip())):
        name, _, value = part.partition("=")
        if not name or not value:
            raise SpecError(f"{part!r} is not FIELD=VALUE; " + (_FIELDS_OF_A_NAME if _is_name(part)
                            else "a tiling is written as in "
                            "wave_w=1,wave_c=64,repeat_w=1,repeat_c=4,group_c=8"))
        if name in fields:
            raise SpecError(f"{name} comes twice")
        fields[name] = (int(value) if _INTEGER.fullmatch(value)
                        else _SWITCHES.get(value.lower(), value))
    return fields


def _is_name(text: str) -> bool:
    """Whether *text* is the name of a tiling, as tables show it."""
    from dscore.algorithms.registry import names

    return any(text.startswith(f"{name}_") for name in names())


def batches_of(text: str | None) -> tuple[int, ...] | None:
    """Those of ``1,8,64``; None for no text."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(map(_BATCH.fullmatch, parts)):
        raise SpecError("--batch must be an integer, or several between commas as in 1,8,64; got "
                        f"{shown(text)}")
    return tuple(require_int(int(part), "--batch") for part in parts)


def names_of(text: str, option: str, choices: tuple[str, ...]) -> tuple[str, ...]:
    """Names of a list as ``default,matmul``, each once; SpecError for one that is not among
    *choices*.

    >>> names_of("cold, hot", "--cache", ("cold", "hot", "eager"))
    ('cold', 'hot')
    """
    return tuple(dict.fromkeys(require_one_of(part.strip(), option, choices)
                               for part in text.split(",")))


def is_problem(text: str) -> bool:
    """Whether a layer is stated as a problem, which has a batch; not by a name.

    >>> is_problem("input_gradient:n8c64h14w14_o384k1"), is_problem("D4_float16")
    (True, False)
    """
    from dscore.core.token import parse_problem

    with suppress(SpecError):
        parse_problem(text.rpartition(":")[2])
        return True
    return False


def layers_of(texts: list[str], batches: int | Sequence[int] | None, arithmetic: str = "sum"
              ) -> list[NamedProblem]:
    """The layers that all of *texts* name, in order, with what they permit; at each batch."""
    from dscore.core import catalog

    each = batches if isinstance(batches, Sequence) else [batches]
    layers = [layer for batch in each for text in texts for layer in catalog.find(text, batch)]
    return [replace(layer, problem=_permitting(layer.problem, arithmetic)) for layer in layers]


def plan_of(layer: str, device: str | None, rules: str, tiling: str | None,
            batch: int | None, arithmetic: str = "sum") -> Plan:
    """The plan of one layer, with a *tiling* or a *batch* where these are stated."""
    from dscore import api

    return api.plan_for(problem_of(layer, batch, arithmetic), device, cast("Rules", rules),
                        tiling_of(tiling))


def problem_of(layer: str, batch: int | None, arithmetic: str = "sum") -> ConvProblem:
    """The problem of one layer, with a *batch* where that is stated, and what it permits."""
    from dscore import api

    problem = _permitting(api.problem_of(layer), arithmetic)
    return problem if batch is None else problem.with_batch(batch)


def _permitting(problem: ConvProblem, arithmetic: str) -> ConvProblem:
    """*problem*, with the permission of ``--arithmetic`` unless it has one of its own."""
    require_one_of(arithmetic, "--arithmetic", PERMISSIONS)
    return problem if arithmetic == "sum" else problem.permitting(cast("Permission", arithmetic))


def measuring_backend(name: str, instead: str) -> Backend:
    """The backend whose kernels a command times: one for GPUs, unless the user names another.

    Raises UnavailableError, which tells what to do *instead*, where "auto" finds no GPU.
    """
    from dscore.core import backend as backends

    chosen = backends.choose_backend(name)
    if name != "auto" or isinstance(chosen, backends.GpuBackend):
        return chosen
    known = {name: backends.backend(name) for name in backends.backend_names()}
    hosts = " or ".join(f"--backend {name}" for name, one in known.items()
                        if not isinstance(one, backends.GpuBackend) and one.missing() is None)
    raise UnavailableError("this measures a GPU, and none can be used here "
                           f"({missing_for_gpus()}). {instead}. {hosts} times this "
                           "computer's processor, which says nothing of a GPU")


def missing_for_gpus() -> str:
    """What each backend for GPUs misses here, with the fix."""
    from dscore.core import backend as backends

    known = map(backends.backend, backends.backend_names())
    return "; ".join(f"{one.name}: {one.missing()}" for one in known
                     if isinstance(one, backends.GpuBackend))


def require_torch_package() -> None:
    """Raise UnavailableError where PyTorch, which models are made of, is missing or too old."""
    try:
        import dscore.torch  # noqa: F401
    except ImportError as absent:
        raise UnavailableError(f"models need PyTorch: {absent}; pip install dscore[torch]"
                               ) from absent


def image_shape_of(text: str) -> tuple[int, ...]:
    """The shape of a batch of images, as ``1x3x224x224``."""
    from dscore.torch.models import shapes_of

    shapes = shapes_of(text)
    if len(shapes) != 1 or len(shapes[0]) != len("nchw"):
        raise SpecError(f"--input: {text} is not the shape of one batch of images, as 1x3x224x224")
    return shapes[0]


def workplace_of(backend: str, seed: int, arithmetic: str, dtype: str | None, layout: str | None
                 ) -> Workplace:
    """The device on which whole networks run, in a type and a layout; int8 is laid out NHWC."""
    from dscore.bench.network_workplace import Workplace

    usual = "nhwc" if dtype == "int8" else "nchw"
    return Workplace(backend, seed, cast("Permission", arithmetic), dtype or "float32",
                     cast("Layout", layout or usual))


def sizes_of(text: str) -> Sizes:
    """Where a kernel has its image sizes from; SpecError for a word that ``--sizes`` lacks."""
    from dscore.building.codegen import Sizes

    return cast("Sizes", require_one_of(text, "--sizes", get_args(Sizes)))


def reproduction(backend: str, plan: Plan, seed: int, device: str | None) -> str:
    """The command that runs *plan* again; *device* is what the user called its device.

    A device from a file is known by its path only, and rules other than the default must be named.
    """
    from dscore.checking import check

    line = check.reproduction(backend, plan, seed)
    if device is not None:
        line = line.replace(f"--device {plan.device.name} ", f"--device {shlex.quote(device)} ")
    return line + (f" --rules {plan.rules}" if plan.rules != "hardware" else "")
