"""Gates of squeeze-and-excitation by one kernel: means over pixels, two layers, activations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from dscore.algorithms.base import (
    COMPILER_REGISTERS,
    Algorithm,
    Footprint,
    Limit,
    SpaceGenerator,
)
from dscore.algorithms.columns import Count, ceil_div, power_of_two_within, remainder
from dscore.algorithms.gate.tiling import GateTiling, RowProducts, shape_of, vector_of
from dscore.algorithms.refusal import require_kind
from dscore.algorithms.registers import launchable
from dscore.core.device import Device
from dscore.core.numerics import FLOATS, WORD_BYTES
from dscore.core.plan import Plan, Violation
from dscore.core.problem import ConvProblem
from dscore.core.spec import LAYOUTS
from dscore.ops.mean import MOST_PIXELS

# Vectors of x that a thread has under way; words of a filter's rows that it holds at most, of many
# threads and of few (hip_src/gate/kernel.hpp).
_LOADS, _MANY_THREADS, _MOST_WORDS = 8, 256, (24, 48)
# Registers that each compiler wants beside what a thread holds, and takes at most: of 128 to 192
# random kernels (docs/registers.md). For vectors of four bytes nvcc took up to 16 more.
_NVCC, _NVCC_MOST, _HIPCC, _HIPCC_MOST, _NVCC_WORDS = 44, 74, 60, 104, 16
# Threads of a block. Of images of up to so many pixels blocks have a share of the channels each,
# of larger ones all blocks share the pixels. Where clusters as large as can be would be more blocks
# than there are compute units, an image with few pixels has so many (docs/benchmark_notes.md).
_THREADS, _FEW_PIXELS, _FEW_BLOCKS = 256, 512, 4


def _columns(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """The one tiling that is tried."""
    many = problem.height * problem.width > _FEW_PIXELS
    wide = many or problem.batch * device.cluster_blocks <= device.compute_units
    cluster = int(power_of_two_within(device.cluster_blocks if wide else _FEW_BLOCKS,
                                      device.cluster_blocks))
    return SimpleNamespace(threads=np.array([min(_THREADS, device.threads_per_block)]),
                           cluster=np.array([cluster]), sharers=np.array([cluster if many else 1]))


class Gate(Algorithm):
    """An image by the blocks of a cluster."""

    name = "gate"
    operations = ("gate", "hard_gate")
    elements = (*FLOATS, "int8")
    layouts = LAYOUTS
    tiling = GateTiling
    limits = (Limit("E-LANES", "lanes left", "", "",
                    lambda c: (remainder(c.tiling.threads, c.device.wavefront), 0),
                    lambda c: f"threads by {c.device.wavefront}"),
              Limit("E-CLUSTER", "cluster", "", "",
                    lambda c: (c.tiling.cluster, c.device.cluster_blocks),
                    lambda c: "blocks that read one another's LDS"),
              Limit("E-SHARERS", "part slices", "", "",
                    lambda c: (remainder(c.tiling.cluster, c.tiling.sharers), 0),
                    lambda c: "sharers divide the cluster"))
    spaces = (SpaceGenerator(True, _columns),)

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        wrong = require_kind(problem, self.name, "pointwise")
        pixels = problem.height * problem.width
        if problem.spec.element.exact and pixels > MOST_PIXELS:
            wrong += (Violation("E-SUM", "pixels of a mean of int8", f"{pixels:,}",
                                f"{MOST_PIXELS:,}, whose sum an int32 holds"),)
        return wrong

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        shape, spec = shape_of(problem, t, wavefront), problem.spec
        pixels, element = problem.height * problem.width, spec.element.bytes
        loads = ceil_div(pixels * spec.in_channels, t.cluster * t.threads * shape.vector)
        products = sum(_elements(one) for one in (shape.first, shape.second))
        blocks = t.cluster * problem.batch
        return Footprint(
            threads=t.threads, waves=ceil_div(t.threads, wavefront), lds_bytes=shape.lds_bytes,
            registers=_held(problem, t, wavefront) + COMPILER_REGISTERS, blocks=blocks,
            utilisation=problem.batch * spec.in_channels * pixels / (
                blocks * t.threads * loads * shape.vector),
            fmas=loads * shape.vector + products, operand_loads=loads + products,
            global_bytes=element * ceil_div(pixels * spec.in_channels, t.cluster)
            + 2 * spec.out_element.bytes * shape.share * spec.out_channels, steps=3 + loads / 8)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        compiled = _NVCC if device.vendor == "nvidia" else _HIPCC
        return compiled + _held(problem, t, device.wavefront)

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        held, most = _held(problem, t, device.wavefront), _HIPCC_MOST
        if device.vendor == "nvidia":
            words = problem.spec.element.exact and vector_of(problem) == WORD_BYTES
            most = _NVCC_MOST + _NVCC_WORDS * words
        return np.minimum(held + most, launchable(device, ceil_div(t.threads, device.wavefront)))

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        shape = shape_of(problem, t, wavefront)
        pixels = problem.height * problem.width // (1 if shape.unit > 1 else shape.vector)
        return bool(problem.spec.in_channels % shape.share or pixels % (shape.parts * t.sharers)
                    or t.threads % shape.columns)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        spec = plan.problem.spec
        return (t.threads, t.cluster, t.sharers, spec.in_channels, spec.out_channels,
                vector_of(plan.problem), plan.device.wavefront, f"DSCORE_{spec.layout.upper()}")

    def image_arguments(self, plan: Plan) -> str:
        spec = plan.problem.spec
        return f"_c{spec.in_channels}_m{spec.out_channels}_v{vector_of(plan.problem)}"

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        return 0, 0

    def caption(self, plan: Plan) -> list[str]:
        t: Any = plan.tiling
        shape = shape_of(plan.problem, t, plan.device.wavefront)
        sharing = f" by {t.sharers} (sharing the pixels)" * (t.sharers > 1)
        return [f"a lane: a part in {shape.parts * t.sharers} of the pixels of {shape.unit} "
                f"channel{'s' * (shape.unit > 1)}",
                f"a block: {shape.slice} channels, and {shape.share} results",
                f"the grid: {plan.problem.batch} (images) x {shape.slices} (channels){sharing} "
                "blocks"]


def _elements(one: RowProducts) -> Count:
    """Elements of a filter that a lane multiplies."""
    return one.rounds * one.loads * one.vector


def _held(problem: ConvProblem, t: Any, wavefront: int) -> Count:
    """Sums and vectors of x that are under way, and the elements of both filters that come early.
    """
    shape, spec = shape_of(problem, t, wavefront), problem.spec
    words = ceil_div(shape.vector * spec.element.bytes, WORD_BYTES)
    most = np.where(t.threads > _MANY_THREADS, *_MOST_WORDS)
    filters = 0
    for one in (shape.first, shape.second):
        of_load = np.maximum(one.vector * spec.out_element.bytes // WORD_BYTES, 1)
        span = np.minimum(one.loads, np.maximum(most // of_load, 1))
        rounds = np.minimum(one.rounds, np.maximum(most // (one.loads * of_load), 1))
        filters = filters + of_load * span * rounds
    return shape.unit + _LOADS * words + filters
