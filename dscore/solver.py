"""The resource-constraint solver: every tiling that provably fits, ranked, and the plan it makes.

The space of a problem is enumerated as int64 columns, one per tiling field, and judged by the very
constraints that judge a single configuration (dscore.constraints).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import gcd
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .constraints import Case, case_of, keeps_all, overhangs, residency
from .cost import CostColumns, cost
from .device import Device
from .errors import InfeasibleError, SpecError
from .plan import Plan, Rules
from .resources import launch_of, resource_use
from .spec import ConvProblem
from .tiling import STAGINGS, DepthwiseTiling, DirectTiling, PointwiseTiling, Tiling

Axes = dict[str, NDArray[np.int64]]

# Masked pointwise tiles: a wavefront of more columns than this needs more registers than it saves.
_MASKED_WAVE_W = 16
_MASKED_WAVE_C = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128,
                  192, 256)
_DEPTHWISE_THREAD_W = (1, 2, 4, 8)
_DEPTHWISE_THREAD_H = (1, 2, 4, 7, 8, 14, 16)
_DIRECT_THREAD_C = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, eq=False)
class Space:
    """The tilings of one kind that fit a problem and a device, field by field.

    ``len(space)`` counts them, ``space[i]`` is one, ``space.ranked()`` orders them by the cost
    model, best first.
    """

    problem: ConvProblem
    device: Device
    rules: Rules
    kind: type[Tiling]
    masked: bool
    legal: int  # tilings that keep R1–R5, before the resource limits
    case: Case  # the columns, with their footprints
    note: str = ""  # why this kind or space was opened

    def __len__(self) -> int:
        return len(next(iter(vars(self.case.tiling).values())))

    def __getitem__(self, index: int) -> Tiling:
        return self.kind(**{name: _plain(name, column[index])
                            for name, column in vars(self.case.tiling).items()})

    def __iter__(self) -> Iterator[Tiling]:
        return (self[index] for index in range(len(self)))

    @cached_property
    def block_n(self) -> NDArray[np.int64]:
        """Residency of each tiling."""
        return np.broadcast_to(residency(self.case, self.rules), (len(self),))

    @cached_property
    def costs(self) -> CostColumns:
        """The model's estimate for each tiling."""
        return cost(self.case, self.block_n)

    def ranked(self) -> NDArray[np.int64]:
        """Indices by estimated time; among equals fuller lanes, then smaller blocks come first."""
        foot = self.case.foot
        return np.lexsort((np.broadcast_to(foot.threads, (len(self),)),
                           -np.broadcast_to(foot.utilisation, (len(self),)),
                           self.costs.seconds))

    def plan(self, index: int) -> Plan:
        """The plan of one tiling."""
        return make_plan(self.problem, self.device, self[index], self.rules)


def _plain(name: str, value: Any) -> Any:
    if name == "staging":
        return STAGINGS[int(value == STAGINGS[1])]
    return bool(value) if name == "column_reuse" else int(value)


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def _powers_of_two(most: int) -> list[int]:
    return [2**k for k in range(most.bit_length()) if 2**k <= most]


def _grid(**axes: Sequence[int]) -> SimpleNamespace:
    """Every combination of the axes, as columns."""
    columns = np.meshgrid(*(np.asarray(axis, dtype=np.int64) for axis in axes.values()),
                          indexing="ij")
    return SimpleNamespace(**{name: column.ravel()
                              for name, column in zip(axes, columns, strict=True)})


def _kept(columns: SimpleNamespace, keep: Any) -> SimpleNamespace:
    return SimpleNamespace(**{name: column[keep] for name, column in vars(columns).items()})


def _pointwise_exact(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Every block whose tile divides the output, with every group_c of R4.

    The width and channel halves of a tiling are made apart, which keeps the grid small.
    """
    height, width, spec = problem.out_height, problem.out_width, problem.spec
    halves_w = [(n, w) for n in range(1, device.waves_per_block + 1)
                if width % (n // gcd(height, n)) == 0
                for w in _divisors(width // (n // gcd(height, n)))]
    halves_c = [(n, c) for n in range(1, device.waves_per_block + 1) if spec.out_channels % n == 0
                for c in _divisors(spec.out_channels // n)]
    groups = [g for g in _powers_of_two(device.wavefront) if spec.in_channels % g == 0]
    return _joined(halves_w, halves_c, groups)


def _pointwise_masked(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Tiles that need not divide: up to 16 columns of a wave and 16 channels of a thread (R5).

    A tile of which half lies past the output is left out: a smaller one does the same.
    """
    height, width, spec = problem.out_height, problem.out_width, problem.spec
    repeats = range(1, device.waves_per_block + 1)
    most_c = max(2 * spec.out_channels, device.wavefront + 1)
    halves_w = [(n, w) for n in repeats for w in range(1, min(width, _MASKED_WAVE_W) + 1)
                if n // gcd(height, n) * w < 2 * width]
    halves_c = [(n, c) for n in repeats for c in _MASKED_WAVE_C if n * c < most_c]
    groups = [g for g in _powers_of_two(device.wavefront) if g < 2 * spec.in_channels]
    return _joined(halves_w, halves_c, groups)


def _joined(halves_w: list[tuple[int, int]], halves_c: list[tuple[int, int]],
            groups: list[int]) -> SimpleNamespace:
    columns = _grid(w=range(len(halves_w)), c=range(len(halves_c)), group_c=groups)
    (repeat_w, wave_w), (repeat_c, wave_c) = np.array(halves_w).T, np.array(halves_c).T
    return SimpleNamespace(wave_w=wave_w[columns.w], wave_c=wave_c[columns.c],
                           repeat_w=repeat_w[columns.w], repeat_c=repeat_c[columns.c],
                           group_c=columns.group_c)


def _depthwise_columns(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Tiles of a thread and of a block, none of them twice the output in a direction."""
    height, width = problem.out_height, problem.out_width
    heights = sorted({min(h, height) for h in _DEPTHWISE_THREAD_H})
    columns = _grid(thread_h=heights,
                    thread_w=[w for w in _DEPTHWISE_THREAD_W if w < 2 * width],
                    lanes_h=[1, 2, 4, 8],
                    lanes_w=[w for w in _powers_of_two(device.wavefront) if w < 2 * width],
                    planes=[1, 2, 4, 8, 16, 32], staging=[0, 1], column_reuse=[0, 1])
    planes = problem.batch * problem.spec.out_channels
    keep = (columns.lanes_h * columns.thread_h < 2 * height) & (columns.planes < 2 * planes)
    keep &= columns.lanes_w * columns.thread_w < 2 * width
    keep &= columns.planes * columns.lanes_h * columns.lanes_w <= device.threads_per_block
    columns = _kept(columns, keep)
    columns.staging = np.asarray(STAGINGS)[columns.staging]
    columns.column_reuse = columns.column_reuse == 1
    return columns


def _direct_columns(problem: ConvProblem, device: Device) -> SimpleNamespace:
    most = device.waves_per_block
    per_thread = [c for c in _DIRECT_THREAD_C if c < 2 * problem.spec.group_out]
    return _grid(threads=[device.wavefront * waves for waves in range(1, most + 1)],
                 thread_c=per_thread)


def _space(problem: ConvProblem, device: Device, rules: Rules, kind: type[Tiling],
           columns: SimpleNamespace, masked: bool, note: str = "") -> Space:
    legal = _kept(columns, keeps_all(case_of(problem, device, kind, columns), rules, masked,
                                     legality=True))
    case = case_of(problem, device, kind, legal)
    fitting = _kept(legal, keeps_all(case, rules, masked, legality=False))
    count = len(next(iter(vars(legal).values())))
    return Space(problem, device, rules, kind, masked, count,
                 case_of(problem, device, kind, fitting), note)


def solve(problem: ConvProblem, device: Device, rules: Rules = "hardware",
          masked: bool | None = None) -> Space:
    """Every tiling of *problem* that fits *device* under *rules*.

    Pointwise layers get the exact space, or, where it is empty (or *masked* is True), the masked
    one; depthwise layers the row-reuse space; every other layer, and a layer whose own space is
    empty, the direct algorithm. ``space.note`` says so where a space was opened in another's stead.

    Raises InfeasibleError where nothing fits.

    >>> from .catalog import device, layers
    >>> len(solve(layers()["P13"], device("z100sm"), "paper")) > 1000
    True
    """
    empty: list[str] = []
    for space in _spaces(problem, device, rules, masked):
        if len(space):
            return replace(space, note="; ".join(empty))
        empty.append(f"no {'masked' if space.masked else 'exact'} {space.kind.algorithm} tiling "
                     "fits")
    fix = ("masked tilings are not asked for" if masked is False else
           f"it has {device.registers_per_thread} registers per thread and "
           f"{device.lds_bytes_per_cu:,} B of LDS per CU")
    raise InfeasibleError(f"{problem} on {device} by {rules} rules: {'; '.join(empty)}; {fix}")


def _spaces(problem: ConvProblem, device: Device, rules: Rules,
            masked: bool | None) -> Iterator[Space]:
    kind = problem.spec.kind
    if kind == "pointwise":
        if masked is not True:
            yield _space(problem, device, rules, PointwiseTiling,
                         _pointwise_exact(problem, device), False)
        if masked is not False:
            yield _space(problem, device, rules, PointwiseTiling,
                         _pointwise_masked(problem, device), True)
    elif kind == "depthwise":
        yield _space(problem, device, rules, DepthwiseTiling,
                     _depthwise_columns(problem, device), True)
    if kind != "pointwise" or masked is None:
        yield _space(problem, device, rules, DirectTiling,
                     _direct_columns(problem, device), True)


def make_plan(problem: ConvProblem, device: Device, tiling: Tiling, rules: Rules = "hardware",
              block_n: int | None = None) -> Plan:
    """The plan that *tiling* makes, whether or not it fits (dscore.verdict judges that).

    Raises SpecError where the tiling is of another kind than the problem.
    """
    require_kind(problem, tiling)
    case = case_of(problem, device, type(tiling), tiling)
    resident = block_n or int(residency(case, rules))
    return Plan(problem, device, tiling, rules, launch_of(problem, tiling, device.wavefront),
                resource_use(problem, tiling, device.wavefront), int(case.compiled), resident,
                overhangs(problem, tiling, device.wavefront),
                cost(case, resident).one(case.foot.utilisation))


def require_kind(problem: ConvProblem, tiling: Tiling) -> None:
    """Raise SpecError where *tiling* belongs to another kind of convolution than *problem*."""
    if isinstance(tiling, DirectTiling):
        return
    wanted = {"pointwise": PointwiseTiling, "depthwise": DepthwiseTiling}.get(problem.spec.kind)
    if not (wanted and isinstance(tiling, wanted)):
        takes = " or ".join(cls.__name__ for cls in (wanted, DirectTiling) if cls)
        raise SpecError(f"a {type(tiling).__name__} does not run {problem}, a {problem.spec.kind} "
                        f"convolution; it takes a {takes}")


@lru_cache(maxsize=4096)
def best_plan(problem: ConvProblem, device: Device, rules: Rules = "hardware") -> Plan:
    """The plan the cost model ranks first; InfeasibleError where nothing fits."""
    space = solve(problem, device, rules)
    return space.plan(int(space.ranked()[0]))
