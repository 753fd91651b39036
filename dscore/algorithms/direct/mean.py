"""Means over pixels by the definition: their tiling, and the footprint of that.

A block has the planes of `thread_c` channels of an image, or with the channels last as many vectors
of channels; its threads share the pixels. Large images of few channels would have few blocks, so
that of vectors the blocks of a `cluster` share the pixels, where a device has clusters.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from dscore.algorithms.base import COMPILER_REGISTERS, Footprint
from dscore.algorithms.columns import Count, ceil_div, power_of_two_within
from dscore.algorithms.registers import launchable
from dscore.core.device import Device
from dscore.core.numerics import WORD_BYTES
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.core.spec import ConvSpec

_VECTOR_BYTES = 16
_MOST_THREADS = 512
# What a thread is to load: vectors of planes, pixels of vectors of channels.
_LOADS = 8
# Blocks that are to be there for each CU before a block takes more planes.
_BLOCKS = 8
# Of vectors of channels: CUs that a block may have to itself before it takes fewer vectors; rounds
# of loads of a thread for which another block of a cluster gains (docs/benchmark_notes.md).
_UNITS_EACH, _ROUNDS = 3, 3
_COMPILED = 32
_SECTOR_BYTES, _LINE_BYTES = 32, 128
_MOST_COLUMNS = 32
# Vectors of channels of a block, at least, where these are single elements.
_LEAST_VECTORS = 2
# Instructions for an element of a vector: a conversion and an addition of floats count as one; of
# bytes (hip_src/support/mean_sums.hpp) a word takes one where they are added to one sum, and two
# and a half to four.
_OF_BYTES = {"nchw": 1 / 4, "nhwc": 5 / 8}


def vector_of(problem: ConvProblem) -> int:
    """Elements that a load has: of a plane, or of the channels that lie last.

    Where these are not of whole vectors it is one; of bytes half a vector, or a word.
    """
    spec = problem.spec
    side = spec.in_channels if spec.layout == "nhwc" else problem.height * problem.width
    vector = _VECTOR_BYTES // spec.element.bytes
    narrower = (vector // 2, WORD_BYTES) if spec.element.exact else ()
    return next((one for one in (vector, *narrower) if side % one == 0), 1)


def lanes_of(problem: ConvProblem, thread_c: Count, wavefront: int) -> Count:
    """Lanes of a wavefront that have the same vector of channels and add their sums by shuffles:
    of integers, whose order of additions is no matter."""
    joins = of_vectors(problem) and problem.spec.element.exact
    return np.where(joins & (wavefront % thread_c == 0), wavefront // thread_c, 1)


def columns(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """The one tiling that is tried."""
    threads, thread_c, cluster = (_of_vectors if of_vectors(problem) else _of_planes)(
        problem, device)
    return SimpleNamespace(threads=np.array([threads]), thread_c=np.array([thread_c]),
                           cluster=np.array([cluster]))


def of_vectors(problem: ConvProblem) -> bool:
    """Whether it is a mean by vectors of channels, which lie last."""
    return problem.operation == "mean" and problem.spec.layout == "nhwc"


def _of_planes(problem: ConvProblem, device: Device) -> tuple[int, int, int]:
    vectors = problem.height * problem.width // vector_of(problem)
    planes = problem.batch * problem.spec.in_channels
    threads = _threads(ceil_div(vectors, _LOADS), device)
    enough = _BLOCKS * device.compute_units
    return threads, next(c for c in (8, 4, 2, 1) if c == 1 or (
        planes >= c * enough and vectors * c <= 2 * _LOADS * threads)), 1


def _of_vectors(problem: ConvProblem, device: Device) -> tuple[int, int, int]:
    vectors, units = ceil_div(problem.spec.in_channels, vector_of(problem)), device.compute_units
    columns = next(c for c in _columns(problem) if c == _least_vectors(problem) or (
        c <= _power(vectors) and problem.batch * ceil_div(vectors, c) * _UNITS_EACH >= units))
    blocks = problem.batch * ceil_div(vectors, columns)
    pixels = ceil_div(problem.height * problem.width, _LOADS)
    wanted = columns * _power(pixels)
    if 2 * blocks > units:
        threads = _threads(wanted, device)
        rounds = ceil_div(pixels, max(threads // columns, 1))
        return threads, columns, _cluster(rounds // _ROUNDS, device)
    # Where CUs would be idle, blocks of fewer threads take these.
    cluster = _cluster(min(units // blocks, wanted // (2 * device.wavefront)), device)
    return _threads(wanted // cluster, device), columns, cluster


def _cluster(wanted: int, device: Device) -> int:
    return int(power_of_two_within(max(wanted, 1), device.cluster_blocks))


def _columns(problem: ConvProblem) -> list[int]:
    """Vectors of channels that a block may have: those of a cache line, or fewer."""
    bytes_ = vector_of(problem) * problem.spec.element.bytes
    most, least = min(_LINE_BYTES // bytes_, _MOST_COLUMNS), _least_vectors(problem)
    return [c for c in (32, 16, 8, 4, 2, 1) if least <= c <= most]


def _least_vectors(problem: ConvProblem) -> int:
    """Vectors of channels of a block at least, so that whole sectors of memory are read."""
    vector = vector_of(problem)
    return _LEAST_VECTORS if vector == 1 else _SECTOR_BYTES // (vector * problem.spec.element.bytes)


def _power(count: int) -> int:
    """The least power of two that is no less."""
    return 1 << (count - 1).bit_length()


def _threads(wanted: int, device: Device) -> int:
    most = min(_MOST_THREADS, device.threads_per_block)
    return min(max(_power(int(wanted)), device.wavefront), most)


def beside(problem: ConvProblem, t: Any) -> Count:
    """Threads that no vector of channels would be for."""
    return t.threads % t.thread_c if of_vectors(problem) else 0 * t.threads


def footprint(problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
    """The footprint of a tiling, or of columns of many."""
    spec, vector, pixels = problem.spec, vector_of(problem), problem.height * problem.width
    last, element = spec.layout == "nhwc", spec.element.bytes
    waves = ceil_div(t.threads, wavefront)
    tile = t.thread_c * (vector if last else 1)
    lanes = lanes_of(problem, t.thread_c, wavefront)
    held = t.threads // lanes * (_VECTOR_BYTES // element) if last else waves * t.thread_c
    blocks = t.cluster * problem.batch * ceil_div(spec.in_channels, tile)
    loads = ceil_div(pixels * tile, t.cluster * t.threads * vector)
    return Footprint(
        threads=t.threads, waves=waves, lds_bytes=spec.element.sums.bytes * held,
        registers=_held(problem, t) + COMPILER_REGISTERS,
        blocks=blocks, utilisation=problem.batch * spec.in_channels * pixels / (
            blocks * t.threads * loads * vector),
        fmas=loads * vector * _work_of(spec, vector), operand_loads=loads,
        global_bytes=tile * (element * ceil_div(pixels, t.cluster) + spec.out_element.bytes),
        steps=1 + loads / 4)


def _work_of(spec: ConvSpec, vector: int) -> float:
    """Instructions for an element."""
    return _OF_BYTES[spec.layout] if spec.element.exact and vector > 1 else 1


def registers(problem: ConvProblem, t: Any, device: Device) -> Count:
    """What compilers want: of several rounds of loads they make the addresses, too."""
    wanted = _COMPILED + 2 * _held(problem, t)
    return np.minimum(wanted, launchable(device, ceil_div(t.threads, device.wavefront)))


def _held(problem: ConvProblem, t: Any) -> Count:
    """Sums, and the vectors that are under way."""
    under_way = _LOADS * _VECTOR_BYTES // WORD_BYTES
    if problem.spec.layout == "nchw":
        return t.thread_c + under_way
    sums = _VECTOR_BYTES if problem.spec.element.exact else _VECTOR_BYTES // 2
    return sums + under_way + 0 * t.thread_c


def overhangs(problem: ConvProblem, t: Any) -> bool:
    """Whether some tile reaches past the channels, or some lane past the pixels."""
    vector, pixels = vector_of(problem), problem.height * problem.width
    if problem.spec.layout == "nhwc":
        tile, steps = t.thread_c * vector, pixels
        step = t.cluster * max(t.threads // t.thread_c, 1)
    else:
        tile, step, steps = t.thread_c, t.threads, pixels // vector
    return bool(problem.spec.in_channels % tile or steps % step)


def caption(plan: Plan, t: Any) -> list[str]:
    """Coverage of a lane, a block and the grid, in words."""
    problem, vector = plan.problem, vector_of(plan.problem)
    last = problem.spec.layout == "nhwc"
    of = f"vectors of {vector} channels" if last else "planes"
    shared = t.cluster * max(t.threads // t.thread_c, 1) if last else t.threads
    tiles = plan.launch.blocks // (t.cluster * problem.batch)
    return [f"a lane: a part in {shared} of the pixels",
            f"a block: {t.thread_c} {of}",
            f"the grid: {problem.batch} (images) x {tiles} (channels)"
            f"{f' x {t.cluster} (sharing the pixels)' * (t.cluster > 1)} blocks"]
