"""Weight gradient of depthwise layers on images whose channels lie side by side (NHWC), alone or
together with the input's."""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.algorithms.base import (
    COMPILER_REGISTERS,
    Algorithm,
    Case,
    Footprint,
    Limit,
    SpaceGenerator,
    Work,
    checker,
)
from dscore.algorithms.channel_sums import cost
from dscore.algorithms.channel_sums.space import columns_of
from dscore.algorithms.channel_sums.tiling import (
    ChannelSumsTiling,
    channel_tiles,
    copies,
    makes_both,
    shape_of,
    sums_on_units,
    threads_of,
)
from dscore.algorithms.channel_vectors import require_alone
from dscore.algorithms.channel_vectors.limits import (
    MOST_UNROLLED_COLUMNS,
    MOST_UNROLLED_ROWS,
    UNIT_LIMIT,
)
from dscore.algorithms.channel_vectors.tiling import (
    FRAGMENT,
    UNIT_VECTORS,
    on_units,
    vector_elements,
)
from dscore.algorithms.columns import Count, ceil_div, power_of_two_within
from dscore.algorithms.early_start import AHEAD_LIMIT
from dscore.algorithms.gemm import CLUSTER_LIMIT
from dscore.algorithms.refusal import require_kind
from dscore.algorithms.row_reuse.view import axes_of
from dscore.algorithms.tap_sums import MOST_SLICES
from dscore.algorithms.tap_sums.tiling import parts_bytes, parts_launches
from dscore.core.device import Device
from dscore.core.numerics import FLOATS
from dscore.core.plan import Launch, Plan, Violation
from dscore.core.problem import ConvProblem

# Registers that a compiler takes beside sums and rows; rows that it reads early, and what it takes
# at most above these; hipcc wants the early rows as well, else it spills. Of 50 random kernels for
# each of gfx906, gfx90a and sm_90 about the least that none exceeded.
_HIPCC, _NVCC = 24, 40
# Of both gradients: with fewer, to which a limit for several blocks holds nvcc, some spilled.
# hipcc reads no rows early there, but takes some for addresses of taps.
_NVCC_BOTH, _HIPCC_BOTH = 72, 44
_EARLY, _HIPCC_MARGIN, _NVCC_MARGIN, _FEW_TAPS = 8, 28, 76, 24

# On matrix units, beside sums and fragments, and above that for fragments that nvcc reads early
# where a launch leaves it registers; registers of the sums of two taps of a group.
_NVCC_UNITS, _NVCC_UNITS_MARGIN, _PAIR_SUMS, _FRAGMENT_WORDS = 28, 70, 4, 4

# Of what is unrolled, as channel_vectors counts it; of both gradients less: nvcc left one of 11,200
# rolled, which took three times as long as others.
_MOST_UNROLLED, _MOST_UNROLLED_BOTH, _HIPCC_MOST_UNROLLED = 12_000, 8_000, 1_600


class ChannelSums(Algorithm):
    """A thread sums the products of its taps over rows of x, each of which it reads once; of both
    gradients over rows of the output's, which it also adds into those of x's."""

    name = "channel_sums"
    tiling = ChannelSumsTiling
    operations = ("weight_gradient", "gradients")
    elements, layouts = FLOATS, ("nhwc",)
    limits = (
        Limit("E-VECTOR", "vector", "", "",
              lambda c: (c.tiling.vector, power_of_two_within(c.tiling.vector, _most_channels(c))),
              lambda c: f"a power of two up to {_most_channels(c)}"),
        Limit("E-MATRIX", "matrix units", "", "",
              lambda c: (1 * on_units(c.tiling), int(sums_on_units(c.problem, c.device))),
              lambda c: "of NVIDIA, elements of 16 bits, a filter for each channel, the weight "
                        "gradient alone"),
        Limit("E-FRAGMENT", "columns and channels of a wavefront", "", "",
              lambda c: (_beside_fragments(c), 0),
              lambda c: f"{FRAGMENT} columns, of {' or '.join(map(str, UNIT_VECTORS))} channels"),
        Limit("E-SLICES", "slices", "", "",
              lambda c: (c.tiling.slices * c.tiling.cluster,
                         np.minimum(shape_of(c.problem, c.tiling).units,
                                    MOST_SLICES * c.tiling.cluster)),
              lambda c: f"blocks that share the images' tiles; slices at most {MOST_SLICES}"),
        Limit("E-BANDS", "bands", "", "",
              lambda c: (c.tiling.bands, shape_of(c.problem, c.tiling).rows),
              lambda c: "of a row at least"),
        CLUSTER_LIMIT,
        AHEAD_LIMIT,
        UNIT_LIMIT,
        Limit("E-ROWS", "unrolled rows", "", "",
              lambda c: (shape_of(c.problem, c.tiling).rows, MOST_UNROLLED_ROWS),
              legality=False, hardware=True),
        Limit("E-COLUMNS", "unrolled columns", "", "",
              lambda c: (axes_of(c.problem)[1].under(c.tiling.thread_w), MOST_UNROLLED_COLUMNS),
              legality=False, hardware=True),
        Limit("E-CODE", "unrolled FMAs", "", "",
              lambda c: (_tried(c), _most_unrolled(c)), legality=False, hardware=True),
    )
    spaces = (SpaceGenerator(True, columns_of),)
    weights = cost.WEIGHTS
    own_weights = {"float16": cost.HALVES, "bfloat16": cost.HALVES,  # noqa: RUF012
                   "gradients float16": cost.BOTH, "gradients bfloat16": cost.BOTH}

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        violations = require_kind(problem, self.name, "depthwise")
        return violations or (require_alone(problem) if makes_both(problem) else ())

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        shape = shape_of(problem, t)
        waves = ceil_div(threads_of(t, wavefront), wavefront)
        rows, columns = axes_of(problem)
        grid, macs = channel_tiles(problem, t) * t.slices * t.cluster, problem.macs
        if makes_both(problem):
            macs = (2 * problem.batch * problem.spec.out_channels * rows.products(rows.written_size)
                    * columns.products(columns.written_size))
        # Lanes that share what a lane would have without matrix units.
        share = np.where(on_units(t), wavefront, 1)
        fmas = _unrolled(problem, t) * shape.unit_slices / share
        own, taps = t.thread_h * t.thread_w, problem.spec.products * makes_both(problem)
        return Footprint(
            threads=waves * wavefront, waves=waves, lds_bytes=shape.lds_bytes,
            registers=_held(problem, t) + COMPILER_REGISTERS, blocks=grid,
            utilisation=macs / (grid * waves * wavefront * fmas), fmas=fmas,
            operand_loads=t.vector * ((shape.rows * shape.columns + own) * shape.unit_slices + taps)
            / share)

    def chain(self, problem: ConvProblem, t: Any) -> int:
        # A wavefront's pixels, and the sums that are added to its own.
        return int(shape_of(problem, t).unit_slices * t.thread_h * t.thread_w
                   + t.lanes_h * t.lanes_w + t.cluster + t.slices)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        if device.vendor == "nvidia":
            own = _NVCC_BOTH if makes_both(problem) else _NVCC
            return _held(problem, t) + np.where(on_units(t), _NVCC_UNITS, own)
        if makes_both(problem):
            return _held(problem, t) + _HIPCC_BOTH + problem.spec.products
        return _held(problem, t) + _HIPCC + _early(problem, t)

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        wanted = self.registers(problem, t, device)
        if device.vendor == "nvidia":
            return wanted + np.where(on_units(t), _NVCC_UNITS_MARGIN,
                                     _NVCC_MARGIN + _early(problem, t))
        # Of many taps it holds the sums a second time in part.
        return wanted + _HIPCC_MARGIN + t.vector * max(problem.spec.products - _FEW_TAPS, 0)

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        rows, columns = axes_of(problem)
        return bool(rows.written_size % (t.lanes_h * t.thread_h)
                    or columns.written_size % (t.lanes_w * t.thread_w)
                    or problem.spec.out_channels % (t.vector * t.lanes_c)
                    or shape_of(problem, t).units % (t.slices * t.cluster)
                    or threads_of(t, wavefront) % wavefront)

    def workspace_bytes(self, problem: ConvProblem, t: Any) -> int:
        return parts_bytes(problem, t.slices)

    def further_launches(self, problem: ConvProblem, t: Any) -> tuple[Launch, ...]:
        return parts_launches(problem, t.slices)

    def work(self, case: Case, grids: Count) -> Work:
        return cost.work(case, grids)

    def traffic(self, case: Case) -> dict[str, Count]:
        return cost.named(case)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        return (t.vector, t.lanes_c, t.thread_h, t.thread_w, t.lanes_h, t.lanes_w, t.slices,
                t.stages, t.bands, t.cluster, int(t.ahead), int(on_units(t)),
                plan.problem.spec.group_out, *_copies(plan), plan.device.wavefront,
                *_leads(plan), _resident(plan))

    def image_arguments(self, plan: Plan) -> str:
        leads = "".join(f"_lead{lead}" for lead in _leads(plan) if makes_both(plan.problem))
        return "_m{}_e{}x{}".format(plan.problem.spec.group_out, *_copies(plan)) + leads

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        t: Any = plan.tiling
        rows, columns = t.lanes_h * t.thread_h, t.lanes_w * t.thread_w
        group = row % rows // t.thread_h * t.lanes_w + column % columns // t.thread_w
        wave = group * t.lanes_c // (1 if on_units(t) else plan.device.wavefront)
        return checker(row, rows, column, columns), wave

    def caption(self, plan: Plan) -> list[str]:
        problem, t = plan.problem, plan.tiling
        assert isinstance(t, ChannelSumsTiling)
        shape = shape_of(problem, t)
        place = "a wavefront" if on_units(t) else "a lane"
        image = "x" if makes_both(problem) else "the gradient"
        return [f"{place}: {t.thread_h} rows x {t.thread_w} columns x {t.vector} channels of "
                f"{image}, all taps",
                f"a block: {t.lanes_h * t.thread_h} rows x {t.lanes_w * t.thread_w} columns x "
                f"{shape.channels} channels at a time, {shape.unit_slices} times",
                f"the grid: {channel_tiles(problem, t)} (channels) x {t.slices} (slices)"
                f"{f' x {t.cluster} (sharing a slice)' * (t.cluster > 1)} blocks"]


def _most_channels(case: Case) -> Count:
    """Channels that a lane takes at most, or on matrix units a wavefront."""
    return np.where(on_units(case.tiling), UNIT_VECTORS[-1], vector_elements(case.problem))


def _beside_fragments(case: Case) -> Count:
    """What differs of a wavefront's columns and channels on matrix units from whole fragments."""
    t = case.tiling
    return np.where(on_units(t), np.abs(t.thread_w - FRAGMENT) + t.vector % FRAGMENT, 0)


def _unrolled(problem: ConvProblem, t: Any) -> Count:
    """FMAs of a thread for one tile."""
    if not makes_both(problem):
        return t.vector * t.thread_h * t.thread_w * problem.spec.products
    rows, columns = axes_of(problem)
    return 2 * t.vector * rows.products(t.thread_h) * columns.products(t.thread_w)


def _most_unrolled(case: Case) -> int:
    if case.device.vendor != "nvidia":
        return _HIPCC_MOST_UNROLLED
    return _MOST_UNROLLED_BOTH if makes_both(case.problem) else _MOST_UNROLLED


def _tried(case: Case) -> Count:
    """FMAs of a thread for one tile as if every row met every tap."""
    t, spec = case.tiling, case.problem.spec
    share = np.where(on_units(t), case.device.wavefront, 1)
    tried = shape_of(case.problem, t).rows * spec.products * t.thread_w * t.vector // share
    return (1 + makes_both(case.problem)) * tried


def _held(problem: ConvProblem, t: Any) -> Count:
    """Registers of a thread's sums, a walked row, and its own rows that this meets; of both
    gradients also of taps, and of as many rows of x's gradient."""
    shape, spec = shape_of(problem, t), problem.spec
    held = spec.products + shape.live_rows * t.thread_w
    lane = t.vector * ((1 + makes_both(problem)) * held + shape.columns)
    # Of matrix units: sums of pairs of taps, twos of rows of the gradient that a filter row is
    # still to meet, and a step's fragments of x.
    rows, (kernel_h, kernel_w) = axes_of(problem)[0], spec.kernel
    pairs = kernel_h * (kernel_w // 2) + kernel_w % 2 * ceil_div(kernel_h, 2)
    twos = (kernel_h - 1) * rows.dilation // rows.stride + 2
    words = _PAIR_SUMS * pairs + 2 * twos + _FRAGMENT_WORDS * ceil_div(kernel_w, 2)
    return np.where(on_units(t), t.vector // FRAGMENT * words, lane)


def _early(problem: ConvProblem, t: Any) -> Count:
    """Registers of the rows that compilers read before they add the first."""
    shape = shape_of(problem, t)
    return t.vector * np.minimum(_EARLY, shape.rows) * (shape.columns + t.thread_w)


def _copies(plan: Plan) -> tuple[int, int]:
    """Elements that come to LDS as one, of the walked image and of the threads' own."""
    walked, own = (int(n) for n in copies(plan.problem, plan.tiling))
    return walked, own


def _resident(plan: Plan) -> int:
    """Blocks for which nvcc keeps registers small; of the weight gradient alone it needs no limit.
    """
    limited = makes_both(plan.problem) and plan.device.vendor == "nvidia"
    return plan.block_n if limited else 1


def _leads(plan: Plan) -> tuple[int, int]:
    """The leads of the axes, of both gradients; else 0."""
    rows, columns = axes_of(plan.problem)
    return rows.lead, columns.lead
