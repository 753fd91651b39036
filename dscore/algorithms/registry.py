"""The registry of algorithms: a name a line, imported on use and held to the contract."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from dscore.algorithms.base import Algorithm, Case
from dscore.algorithms.columns import Count
from dscore.core.device import Device
from dscore.core.errors import SpecError, require_one_of, shown
from dscore.core.once import once
from dscore.core.plan import Rules
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling, fields_fault, kind_of, require_fields
from dscore.ops import operands_of

# Of a field's name.
_MOST_CHARACTERS = 64
# In the order in which the solver tries them. Text, so that nothing is imported before its use.
_REGISTRY: dict[str, str] = {
    "warpgroup_gemm": "dscore.algorithms.warpgroup_gemm:WarpgroupGemm",
    "image_gemm": "dscore.algorithms.image_gemm:ImageGemm",
    "pixel_gemm": "dscore.algorithms.pixel_gemm:PixelGemm",
    "plane_gemm": "dscore.algorithms.plane_gemm:PlaneGemm",
    "gemm_universal": "dscore.algorithms.gemm_universal:GemmUniversal",
    "warpgroup_tf32": "dscore.algorithms.warpgroup_tf32:WarpgroupTf32",
    "gemm": "dscore.algorithms.gemm:Gemm",
    "channel_distribution": "dscore.algorithms.channel_distribution:ChannelDistribution",
    "row_reuse": "dscore.algorithms.row_reuse:RowReuse",
    "tap_sums": "dscore.algorithms.tap_sums:TapSums",
    "channel_vectors": "dscore.algorithms.channel_vectors:ChannelVectors",
    "channel_sums": "dscore.algorithms.channel_sums:ChannelSums",
    "split_k": "dscore.algorithms.split_k:SplitK",
    "winograd": "dscore.algorithms.winograd:Winograd",
    "implicit_warpgroup": "dscore.algorithms.implicit_warpgroup:ImplicitWarpgroup",
    "implicit_gemm": "dscore.algorithms.implicit_gemm:ImplicitGemm",
    "stem": "dscore.algorithms.stem:Stem",
    "stem_sums": "dscore.algorithms.stem_sums:StemSums",
    "implicit_gemm_universal":
        "dscore.algorithms.implicit_gemm_universal:ImplicitGemmUniversal",
    "gate": "dscore.algorithms.gate:Gate",
    "direct": "dscore.algorithms.direct:Direct",
}
# Those of `register`, the latest first. Never changed but replaced, so that another thread sees
# all of them at any moment.
_registered: Mapping[str, str] = {}
_change = threading.Lock()


def register(name: str, target: str) -> None:
    """Make the algorithm at *target* ("module:Class") known as *name*, before those there are.

    A shipped algorithm of that name is hidden until `unregister`.
    """
    _replace(lambda others: {name: target, **others}, name)


def unregister(name: str) -> None:
    """Forget an algorithm that `register` made known; a shipped one that it hid is back.

    Raises SpecError for a name that `register` did not make known.
    """
    if name not in _registered:
        raise SpecError(f"the algorithm {name!r} is not registered by a program, which could "
                        f"forget it; of these there are {', '.join(_registered) or 'none'}")
    _replace(dict, name)


def _replace(table: Callable[[dict[str, str]], dict[str, str]], name: str) -> None:
    """Replace what is registered by the table made of all but *name*."""
    global _registered  # noqa: PLW0603
    with _change:
        _registered = table({other: at for other, at in _registered.items() if other != name})
        _made.cache_clear()


def names() -> tuple[str, ...]:
    """The names of all algorithms, in the order in which the solver tries them."""
    return tuple(_targets())


def _targets() -> dict[str, str]:
    """The "module:Class" of each name, in that order."""
    registered = _registered  # read once: another thread may replace it meanwhile
    return {**registered, **_REGISTRY, **registered}


def algorithm(name: str) -> Algorithm:
    """The algorithm of a name.

    Raises SpecError for an unknown name, TypeError for one that does not keep the contract.

    >>> algorithm("gemm").tiling.__name__
    'GemmTiling'
    """
    targets = _targets()
    if name not in targets:
        raise SpecError(f"unknown algorithm {name!r}; there are {', '.join(targets)}")
    return _made(name, targets[name])


def _algorithms() -> list[Algorithm]:
    """All algorithms, in the order in which the solver tries them."""
    return [_made(name, target) for name, target in _targets().items()]


@once
def _made(name: str, target: str) -> Algorithm:
    module, _, attribute = target.partition(":")
    one = getattr(importlib.import_module(module), attribute)()
    _require_whole(one, name)
    return one  # type: ignore[no-any-return]


def _require_whole(one: Any, name: str) -> None:
    """Raise TypeError, naming the duty, where *one* does not keep the contract.

    Python itself refuses to make one that lacks a method of `Algorithm`.
    """
    if not isinstance(one, Algorithm):
        raise TypeError(f"{name} is a {type(one).__name__}, not an Algorithm")
    lacking = [member for member in ("name", "tiling", "limits", "spaces")
               if not hasattr(one, member)]
    if lacking:
        raise TypeError(f"the algorithm {name} lacks {', '.join(lacking)}")
    if (one.name, one.tiling.algorithm) != (name, name):
        raise TypeError(f"the algorithm {name} calls itself {one.name}, "
                        f"its tiling {one.tiling.algorithm}")
    if not one.tiling.__name__.endswith("Tiling"):
        raise TypeError(f"{one.tiling.__name__}: a tiling's class is the kernel's and Tiling")
    for field in fields(one.tiling):
        kind_of(field)


def algorithm_of(tiling: Tiling) -> Algorithm:
    """The algorithm that a tiling is of."""
    return algorithm(tiling.algorithm)


def case_of(problem: ConvProblem, device: Device, tiling: Tiling, block_n: Count = 1,
            reported: int | None = None) -> Case:
    """The case of *tiling* on a problem and a device.

    *reported*: the registers that a compiler took, by which it is judged instead of the predicted.

    >>> from dscore.core.catalog import device, layers
    >>> tiling = tiling_from(dict(wave_w=1, wave_c=64, repeat_w=1, repeat_c=4, group_c=16))
    >>> case_of(layers()["P28"], device("z100sm"), tiling).use
    ResourceUse(threads=256, waves=4, lds_bytes=32896, registers=80, spills=0, reported=False)
    """
    one = algorithm_of(tiling)
    return Case(problem, device, one, tiling, one.footprint(problem, tiling, device.wavefront),
                block_n, reported)


def running(problem: ConvProblem, rules: Rules = "hardware", device: Device | None = None
            ) -> tuple[Algorithm, ...]:
    """The algorithms that run *problem*, of those that suit *device*, in the order in which they
    are tried.

    Raises SpecError for an unknown operation, or one that is not of such a layer.

    >>> from dscore.core.catalog import layers
    >>> [one.name for one in running(layers()["P13"])]
    ['warpgroup_tf32', 'gemm', 'channel_distribution', 'direct']
    """
    operands_of(problem)  # raises for an operation that is unknown, or is not of such a layer
    able = [one for one in _algorithms()
            if (device is None or one.suits(device)) and not one.refuses(problem)]
    return tuple(sorted(able, key=lambda one: rules == "paper" and not one.of_paper))


def require_runs(problem: ConvProblem, tiling: Tiling) -> None:
    """Raise SpecError where the algorithm of *tiling* does not run *problem*."""
    broken = algorithm_of(tiling).refuses(problem)
    if broken:
        able = ", ".join(one.name for one in running(problem)) or "no algorithm that there is"
        raise SpecError(f"a {type(tiling).__name__} does not run {problem}: "
                        f"{'; '.join(map(str, broken))}; it takes a tiling of {able}")


def tiling_from(values: Mapping[str, Any], where: str = "tiling") -> Tiling:
    """The tiling of the algorithm that the key `algorithm` names, with the other values as fields.

    Without the key, as older files are, the names of the fields tell the algorithm.
    Raises SpecError naming what is missing or unknown.

    >>> tiling_from({"algorithm": "direct", "threads": 64, "thread_c": 2})
    DirectTiling(threads=64, thread_c=2, cluster=1)
    >>> tiling_from({"threads": 64, "thread_c": 2})
    DirectTiling(threads=64, thread_c=2, cluster=1)
    """
    for name in values:
        if not isinstance(name, str) or len(name) > _MOST_CHARACTERS:
            raise SpecError(f"{where}: a field is named by a text of at most {_MOST_CHARACTERS} "
                            f"characters, got {shown(name)}")
    arguments = {name: value for name, value in values.items() if name != "algorithm"}
    if "algorithm" not in values:
        return _guessed(set(arguments), where)(**arguments)
    name = require_one_of(values["algorithm"], f"{where}: algorithm", names())
    cls = algorithm(name).tiling
    require_fields(cls, set(arguments), where)
    return cls(**arguments)


def as_tiling(value: Any, where: str = "tiling") -> Tiling:
    """A tiling, from itself or from a mapping of its fields; SpecError for anything else."""
    if isinstance(value, Mapping):
        return tiling_from(value, where)
    if not isinstance(value, Tiling):
        raise SpecError(f"{where} must be a Plan or a tiling, got {type(value).__name__}")
    return value


def _guessed(names: set[str], where: str) -> type[Tiling]:
    """The class of tilings that has fields of these names."""
    classes = [one.tiling for one in _algorithms()]
    for cls in classes:
        if not fields_fault(cls, names):
            return cls
    nearest = max(classes, key=lambda cls: len(names & {one.name for one in fields(cls)}))
    raise SpecError(f"{where}: {fields_fault(nearest, names)}")
