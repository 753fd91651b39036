"""The direct definition, for every convolution that has no algorithm of its own."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from dscore.algorithms.base import COMPILER_REGISTERS, Algorithm, Footprint, Limit, SpaceGenerator
from dscore.algorithms.columns import Count, ceil_div, grid
from dscore.algorithms.registers import launchable, roomy
from dscore.core.device import Device
from dscore.core.plan import Plan, Violation
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling

_THREAD_C = (1, 2, 4, 8, 16, 32)
# Loops that hipcc was seen to unroll at most, of which it loads all inputs first: over a filter of
# so many rows, taps and multiply-adds; over all channels of a filter of so many elements. What it
# takes beside these inputs is at most the constants that follow (docs/registers.md).
_UNROLLED_ROWS, _UNROLLED_TAPS, _UNROLLED_FMAS, _UNROLLED_FILTER = 32, 224, 512, 64
_HIPCC, _HIPCC_FILTER, _ADDRESS = 29, 8, 3
# nvcc's: 93 in 100 kernels keep it; what it takes beyond, it takes because it is there.
_NVCC, _NVCC_INPUTS = 82, 16
# Of 1,300 kernels of both, two took three registers more.
_MARGIN = 4
# What hipcc unrolls where there are registers for it, and takes beside these inputs.
_ROOMY_FMAS, _ROOMY_FILTER, _ROOMY = 1024, 128, 36


@dataclass(frozen=True)
class DirectTiling(Tiling):
    """Tiling of the direct definition.

    A block of `threads` takes that many consecutive pixels of one image; a thread sums
    `thread_c` output channels of one group for its pixel.
    """

    threads: int
    thread_c: int

    algorithm: ClassVar[str] = "direct"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> DirectTiling(256, 4).name
        'direct_t256_c4'
        """
        return f"direct_t{self.threads}_c{self.thread_c}"


def _columns(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Blocks of every number of wavefronts, powers of two of channels a thread."""
    waves = range(1, device.waves_per_block + 1)
    return grid(threads=[device.wavefront * wave for wave in waves],
                thread_c=[c for c in _THREAD_C if c < 2 * problem.spec.group_out])


class Direct(Algorithm):
    """The direct definition: a thread for each pixel and a few output channels."""

    name = "direct"
    tiling = DirectTiling
    limits = (Limit("E-LANES", "lanes left", "", "",
                    lambda c: (c.tiling.threads % c.device.wavefront, 0),
                    lambda c: f"threads by {c.device.wavefront}"),)
    spaces = (SpaceGenerator(True, _columns),)

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        return ()

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        spec, element = problem.spec, problem.spec.element.bytes
        channel_tiles = spec.groups * ceil_div(spec.group_out, t.thread_c)
        pixels = problem.out_height * problem.out_width
        blocks = problem.batch * channel_tiles * ceil_div(pixels, t.threads)
        loads = spec.products * (t.thread_c + 1)
        return Footprint(
            threads=t.threads, waves=ceil_div(t.threads, wavefront), lds_bytes=0 * t.threads,
            # Accumulators, a filter element each, the input element.
            registers=2 * t.thread_c + 1 + COMPILER_REGISTERS,
            blocks=blocks,
            utilisation=problem.macs / (blocks * t.threads * t.thread_c * spec.products),
            fmas=spec.products * t.thread_c, operand_loads=loads,
            global_bytes=element * t.threads * (loads + t.thread_c), steps=1 + spec.products / 4)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        if device.vendor == "nvidia":
            held = 2 * t.thread_c + 2 * min(problem.spec.products, _NVCC_INPUTS) + _NVCC
            return np.minimum(held, launchable(device, ceil_div(t.threads, device.wavefront)))
        (rows, columns), products = problem.spec.kernel, problem.spec.products
        taps = rows * columns
        unrolled = ((taps * t.thread_c <= _UNROLLED_FMAS) & (taps <= _UNROLLED_TAPS)
                    & (rows <= _UNROLLED_ROWS))
        inputs = np.where(unrolled, taps + _ADDRESS * rows, columns)
        whole = products + _HIPCC_FILTER if products <= _UNROLLED_FILTER else 0
        return t.thread_c + np.maximum(inputs + _HIPCC, whole)

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        wanted = self.registers(problem, t, device) + _MARGIN
        if device.vendor == "nvidia":  # what it takes hardly follows from the tiling
            return np.full_like(wanted, device.registers_per_simd_lane)
        if not roomy(device):
            return wanted
        (rows, columns), products = problem.spec.kernel, problem.spec.products
        taps = rows * columns
        inputs = np.where(taps * t.thread_c <= _ROOMY_FMAS, 2 * taps + _ADDRESS * rows, 0)
        whole = products if products <= _ROOMY_FILTER else 0
        return np.maximum(wanted, t.thread_c + np.maximum(inputs, whole) + _ROOMY)

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        return bool(problem.out_height * problem.out_width % t.threads
                    or problem.spec.group_out % t.thread_c)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        return t.threads, t.thread_c, plan.device.wavefront

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        threads = plan.use.threads
        pixel = row * plan.problem.out_width + column
        return pixel // threads % 2, pixel % threads // plan.device.wavefront

    def caption(self, plan: Plan) -> list[str]:
        problem, t = plan.problem, plan.tiling
        assert isinstance(t, DirectTiling)
        pixels = ceil_div(problem.out_height * problem.out_width, t.threads)
        channels = problem.spec.groups * ceil_div(problem.spec.group_out, t.thread_c)
        return [f"a lane: 1 pixel x {t.thread_c} channels",
                f"a block: {t.threads} pixels x {t.thread_c} channels",
                f"the grid: {problem.batch} (images) x {channels} (channels) x {pixels} (pixels) "
                "blocks"]
