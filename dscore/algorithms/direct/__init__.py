"""The direct definition, for every convolution and gradient that has no algorithm of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dscore.algorithms.base import COMPILER_REGISTERS, Algorithm, Footprint, Limit, SpaceGenerator
from dscore.algorithms.columns import Count, ceil_div, grid
from dscore.algorithms.direct import mean
from dscore.algorithms.registers import launchable, roomy
from dscore.core.device import Device
from dscore.core.numerics import ACCUMULATOR, FLOATS
from dscore.core.plan import Plan, Violation
from dscore.core.problem import ConvProblem
from dscore.core.spec import LAYOUTS
from dscore.core.tiling import Tiling
from dscore.ops import output_of
from dscore.ops.mean import MOST_PIXELS

_THREAD_C = (1, 2, 4, 8, 16, 32)
# Loops that hipcc was seen to unroll at most, of which it loads all inputs first: over a filter of
# so many rows, taps and multiply-adds; over all channels of a filter of so many elements. What it
# takes beside these inputs is at most the constants that follow (docs/registers.md).
_UNROLLED_ROWS, _UNROLLED_TAPS, _UNROLLED_FMAS, _UNROLLED_FILTER = 32, 224, 512, 64
_HIPCC, _HIPCC_FILTER, _ADDRESS = 29, 8, 3
# nvcc's: 93 in 100 kernels keep it; what it takes beyond, it takes because it is there.
_NVCC, _NVCC_INPUTS = 82, 16
# Of 1,300 kernels of both, two took three registers more. For elements of 16 bits, which are read
# one by one, hipcc takes up to so many more, as there are taps of all sums.
_MARGIN, _SHORT_TAPS = 4, 48
# What hipcc unrolls where there are registers for it, and takes beside these inputs.
_ROOMY_FMAS, _ROOMY_FILTER, _ROOMY = 1024, 128, 60


# Operations without a filter.
_OF_IMAGES = ("quantise", "mean")


@dataclass(frozen=True)
class DirectTiling(Tiling):
    """Tiling of the direct definition.

    A block of `threads` takes that many consecutive pixels of one image; a thread sums
    `thread_c` output channels of one group for its pixel. Of a filter's gradient a block has one
    tap of one input channel and `thread_c` output channels, and its threads share the pixels. Of a
    mean of images whose channels lie last, blocks of a `cluster` (Hopper's) share them, too.
    """

    threads: int
    thread_c: int
    cluster: int = 1

    algorithm: ClassVar[str] = "direct"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> DirectTiling(256, 4).name
        'direct_t256_c4'
        """
        cluster = f"_x{self.cluster}" * (self.cluster > 1)
        return f"direct_t{self.threads}_c{self.thread_c}{cluster}"


class _Sums(NamedTuple):
    """What an operation sums: channels of a group and pixels of a plane, of how many products."""

    channels: int  # of which a thread has thread_c
    pixels: int  # of one plane, of which a thread has one; 0 where a block sums over all
    products: int


def _sums(problem: ConvProblem) -> _Sums:
    spec, taps = problem.spec, math.prod(problem.spec.kernel)
    pixels = problem.out_height * problem.out_width
    if problem.operation == "weight_gradient":
        return _Sums(spec.group_out, 0, problem.batch * pixels)
    if problem.operation == "input_gradient":
        return _Sums(spec.group_in, problem.height * problem.width, spec.group_out * taps)
    return _Sums(spec.group_out, pixels, spec.products)


def _columns(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Blocks of every number of wavefronts, powers of two of channels a thread."""
    if problem.operation == "mean":
        return mean.columns(problem, device)
    waves = range(1, device.waves_per_block + 1)
    return grid(threads=[device.wavefront * wave for wave in waves],
                thread_c=[c for c in _THREAD_C if c < 2 * _sums(problem).channels], cluster=[1])


class Direct(Algorithm):
    """The direct definition: a thread for each pixel and a few channels."""

    name = "direct"
    operations = ("conv", "input_gradient", "weight_gradient", "quantise", "mean")
    elements = (*FLOATS, "int8")
    layouts, quantises = LAYOUTS, True
    tiling = DirectTiling
    limits = (Limit("E-LANES", "lanes left", "", "",
                    lambda c: (c.tiling.threads % c.device.wavefront, 0),
                    lambda c: f"threads by {c.device.wavefront}"),
              Limit("E-VECTOR", "threads beside vectors", "", "",
                    lambda c: (mean.beside(c.problem, c.tiling), 0),
                    lambda c: "threads of a mean by its vectors of channels"),
              Limit("E-CLUSTER", "cluster", "", "",
                    lambda c: (c.tiling.cluster,
                               c.device.cluster_blocks if mean.of_vectors(c.problem) else 1),
                    lambda c: "of a mean with channels last"))
    spaces = (SpaceGenerator(True, _columns),)

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        if problem.operation not in _OF_IMAGES:
            return ()
        spec, plain = problem.spec, problem.y_shape == problem.x_shape
        of_integers = problem.operation == "mean" and spec.out_dtype is not None
        if (spec.element.exact and not of_integers) or not (plain and spec.kind == "pointwise"):
            wanted = "floats" + ", or int8 with a result of floats" * (problem.operation == "mean")
            return (Violation("E-KIND", f"layer of {problem.operation}", spec.kind,
                              f"{wanted}; 1x1, of as many channels and pixels"),)
        pixels = problem.height * problem.width
        if spec.element.exact and pixels > MOST_PIXELS:
            return (Violation("E-SUM", "pixels of a mean of int8", f"{pixels:,}",
                              f"{MOST_PIXELS:,}, whose sum an int32 holds"),)
        return ()

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        if problem.operation == "mean":
            return mean.footprint(problem, t, wavefront)
        spec, element, sums = problem.spec, problem.spec.element.bytes, _sums(problem)
        channel_tiles, waves = ceil_div(sums.channels, t.thread_c), ceil_div(t.threads, wavefront)
        blocks, share, lds_bytes = spec.groups * channel_tiles, sums.products, 0 * waves
        if sums.pixels:
            blocks = blocks * problem.batch * ceil_div(sums.pixels, t.threads)
        else:  # each tap a block, whose threads share the products
            blocks = blocks * spec.products
            share, lds_bytes = ceil_div(share, t.threads), ACCUMULATOR.bytes * waves * t.thread_c
        loads = share * (t.thread_c + 1)
        return Footprint(
            threads=t.threads, waves=waves, lds_bytes=lds_bytes,
            # Accumulators, a filter element each, the input element.
            registers=2 * t.thread_c + 1 + COMPILER_REGISTERS,
            blocks=blocks,
            utilisation=problem.macs / (blocks * t.threads * t.thread_c * share),
            fmas=share * t.thread_c, operand_loads=loads,
            global_bytes=element * t.threads * (loads + t.thread_c), steps=1 + share / 4)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        if problem.operation == "mean":
            return mean.registers(problem, t, device)
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
        if problem.operation == "mean":
            return mean.registers(problem, t, device)
        wanted = self.registers(problem, t, device) + _MARGIN
        short = problem.spec.element.bytes == 2
        beside = np.minimum(problem.spec.products * t.thread_c, _SHORT_TAPS) * short
        # What nvcc takes hardly follows from the tiling; of gradients neither does hipcc's.
        if device.vendor == "nvidia" or problem.operation != "conv":
            return np.full_like(wanted, device.registers_per_simd_lane)
        if not roomy(device):
            return wanted + beside
        (rows, columns), products = problem.spec.kernel, problem.spec.products
        taps = rows * columns
        inputs = np.where(taps * t.thread_c <= _ROOMY_FMAS, 2 * taps + _ADDRESS * rows, 0)
        whole = products if products <= _ROOMY_FILTER else 0
        return np.maximum(wanted, t.thread_c + np.maximum(inputs, whole) + _ROOMY) + beside

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        if problem.operation == "mean":
            return mean.overhangs(problem, t)
        sums = _sums(problem)
        return bool((sums.pixels or sums.products) % t.threads or sums.channels % t.thread_c)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        layout = f"DSCORE_{plan.problem.spec.layout.upper()}"
        return t.threads, t.thread_c, t.cluster, plan.device.wavefront, layout

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        if plan.problem.operation == "mean":
            return 0, 0
        threads, output = plan.use.threads, output_of(plan.problem)
        pixel = row * output.shape[2 if output.layout == "nhwc" else 3] + column
        if not _sums(plan.problem).pixels:  # a tap, which all wavefronts of its block sum
            return pixel % 2, 0
        return pixel // threads % 2, pixel % threads // plan.device.wavefront

    def caption(self, plan: Plan) -> list[str]:
        problem, t, sums = plan.problem, plan.tiling, _sums(plan.problem)
        assert isinstance(t, DirectTiling)
        if problem.operation == "mean":
            return mean.caption(plan, t)
        channels = problem.spec.groups * ceil_div(sums.channels, t.thread_c)
        if not sums.pixels:
            return [f"a lane: {t.thread_c} output channels, one output in {t.threads}",
                    "a block: a tap of an input channel",
                    f"the grid: {channels} (channels) x {problem.spec.products} (input channels "
                    "and taps) blocks"]
        pixels = ceil_div(sums.pixels, t.threads)
        return [f"a lane: 1 pixel x {t.thread_c} channels",
                f"a block: {t.threads} pixels x {t.thread_c} channels",
                f"the grid: {problem.batch} (images) x {channels} (channels) x {pixels} (pixels) "
                "blocks"]
