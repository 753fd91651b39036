"""Dense and grouped convolutions of elements of 16 bits and of int8, and of images whose channels
lie side by side, as products of matrices without a copy of the unfolded images."""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.algorithms.base import (
    COMPILER_REGISTERS,
    Case,
    Footprint,
    Limit,
    SpaceGenerator,
    Work,
)
from dscore.algorithms.columns import (
    Count,
    ceil_div,
    floor_div,
    power_of_two_within,
    remainder,
)
from dscore.algorithms.gemm import CLUSTER_LIMIT, LEAST_SPLIT_CHANNELS, MOST_STAGES, TILE_LIMIT
from dscore.algorithms.gemm_universal.tiling import on_units, splits
from dscore.algorithms.implicit_gemm.product import ImplicitProduct
from dscore.algorithms.implicit_gemm.tiling import taps_of, under_tile
from dscore.algorithms.implicit_gemm_universal import cost
from dscore.algorithms.implicit_gemm_universal.space import columns_of
from dscore.algorithms.implicit_gemm_universal.tiling import (
    FOUR,
    TOGETHER,
    ImplicitGemmUniversalTiling,
    lds_bytes,
    piece_of,
    reads_single,
    shape_of,
    takes_whole,
    vectors_of,
)
from dscore.algorithms.registers import roomy
from dscore.core.device import MATRIX_WAVEFRONT, Device
from dscore.core.numerics import ACCUMULATOR, FLOATS, WORD_BYTES
from dscore.core.plan import Plan, Violation
from dscore.core.problem import ConvProblem
from dscore.core.spec import LAYOUTS

LEAST_SPLIT_PRODUCTS = LEAST_SPLIT_CHANNELS  # each is a channel of gemm's sums
# Registers that a compiler takes beside sums, operands, places and what is fetched
# (docs/registers.md), and at most in place of these.
_HIPCC, _NVCC = 44, 52
_HIPCC_MORE, _ROOMY, _NVCC_MOST, _NVCC_LEAST = 6, 68, 92, 94
# The same of int8; but rings of two buffers take as many as those of floats.
_NVCC_BYTES_MOST, _NVCC_BYTES_LEAST = 70, 72


def _fragment_c(case: Case) -> Count:
    columns = 8 if case.device.wavefront == MATRIX_WAVEFRONT else 16
    return np.where(on_units(case.tiling), columns, case.tiling.lanes_c)


def _fragment_p(case: Case) -> Count:
    return np.where(on_units(case.tiling), 16, np.maximum(
        floor_div(case.device.wavefront, case.tiling.lanes_c), 1))


def _lanes(case: Case) -> Count:
    t = case.tiling
    return np.where(on_units(t) & (t.lanes_c != 8), case.device.wavefront + 1, t.lanes_c)


def _unaligned(case: Case) -> Count:
    """Elements by which rows of tiles miss whole vectors of the output."""
    row = case.tiling.tile_c if case.problem.spec.layout == "nhwc" else case.tiling.tile_p
    return remainder(row, vectors_of(case.problem)[1])


def _unmatched(case: Case) -> Count:
    """Whether a tiling's matrix units are not the device's, or not for elements of the type."""
    t, element, types = case.tiling, case.problem.spec.element, case.device.matrix_types
    tf32 = ("tf32" in types and element == ACCUMULATOR
            and case.problem.spec.products >= LEAST_SPLIT_PRODUCTS)
    unit = np.asarray(t.arithmetic) == ("matrix8" if element.exact else "matrix16")
    return np.where(splits(t), 1 - tf32, 1 * (on_units(t) & (
        np.logical_not(unit) | (element.name not in types) | (element == ACCUMULATOR))))


class ImplicitGemmUniversal(ImplicitProduct):
    """Unfolded images by filters, the pixels of all images counted through."""

    name = "implicit_gemm_universal"
    tiling = ImplicitGemmUniversalTiling
    elements = (*FLOATS, "int8")
    layouts = LAYOUTS
    limits = (
        TILE_LIMIT,
        Limit("E-FRAGMENT", "part fragments", "", "",
              lambda c: (remainder(c.tiling.wave_c, _fragment_c(c))
                         + remainder(c.tiling.wave_p, _fragment_p(c)), 0),
              lambda c: f"{_fragment_c(c)} channels x {_fragment_p(c)} pixels"),
        Limit("E-LANES", "lanes_c", "", "",
              lambda c: (_lanes(c), power_of_two_within(c.tiling.lanes_c, c.device.wavefront)),
              lambda c: "a power of two; 8 on matrix units"),
        Limit("E-SLICE", "channels left", "", "",
              lambda c: (remainder(c.tiling.step_c, c.tiling.slices * FOUR), 0),
              lambda c: "step_c by slices, in fours"),
        Limit("E-VECTOR", "elements left", "", "", lambda c: (_unaligned(c), 0),
              lambda c: "tile_p, in NHWC tile_c, by vectors of the output"),
        Limit("E-PATCH", "under a tile", "", "",
              lambda c: (under_tile(c.problem, c.tiling.tile_p), c.tiling.patch),
              lambda c: "patch has all elements of a channel under tile_p pixels"),
        Limit("E-STAGES", "stages", "", "",
              lambda c: (c.tiling.stages, MOST_STAGES if c.device.asynchronous_copies else 2),
              lambda c: "more than 2 need asynchronous copies"),
        CLUSTER_LIMIT,
        Limit("E-SPLIT", "matrix units", "", "", lambda c: (_unmatched(c), 0),
              lambda c: "matrix units of the element type; tf32x3: of TF32, "
              f"{LEAST_SPLIT_PRODUCTS} summed products or more"),
    )
    spaces = (SpaceGenerator(True, columns_of),)
    weights = cost.WEIGHTS
    own_weights = {"int8": cost.BYTES}  # noqa: RUF012

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        kind, spec = problem.spec.kind, problem.spec
        if spec.layout == "nchw" and spec.element == ACCUMULATOR:
            return (Violation("E-LAYOUT", f"layout of {self.name}", "nchw",
                              "nhwc, or nchw of elements of 16 or 8 bits"),)
        if kind in ("dense", "grouped"):
            return ()
        return (Violation("E-KIND", f"layer of {self.name}", kind, "dense or grouped"),)

    def shape(self, problem: ConvProblem, t: Any, wavefront: int) -> Any:
        return shape_of(problem, t, wavefront)

    def chain(self, problem: ConvProblem, t: Any) -> int:
        steps = ceil_div(ceil_div(problem.spec.group_in, t.step_c), t.cluster)
        # Of three TF32 products a step is summed apart; of 16 bits, whose results are rounded more
        # coarsely, all of a block's steps in one sum.
        products = t.step_c // t.slices * taps_of(problem)
        return int((products + steps if splits(t) else products * steps) + t.slices + t.cluster)

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        shape = shape_of(problem, t, wavefront)
        tiles = problem.spec.groups * shape.channel_tiles * shape.pixel_tiles
        depth = shape.steps * t.step_c * taps_of(problem)
        depth_lane = floor_div(depth, t.slices)
        # Matrix units take their operands from all of a wavefront's lanes together.
        read = np.where(on_units(t), (t.wave_c + t.wave_p) / wavefront,
                        t.wave_c / t.lanes_c + t.wave_p * t.lanes_c / wavefront)
        return Footprint(
            threads=shape.waves * wavefront, waves=shape.waves,
            lds_bytes=lds_bytes(problem, t, shape),
            registers=shape.sums + _held(problem, t, shape) + COMPILER_REGISTERS,
            blocks=t.cluster * tiles,
            utilisation=problem.macs / (t.cluster * tiles * t.tile_c * t.tile_p * depth),
            fmas=shape.sums * depth_lane, operand_loads=read * depth_lane)

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        shape = shape_of(problem, t, device.wavefront)
        rest = _NVCC if device.vendor == "nvidia" else _HIPCC
        return shape.sums + _held(problem, t, shape) + rest

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        wanted = self.registers(problem, t, device)
        if device.vendor != "nvidia":
            # Of each turn of a ring of two an address.
            shape = shape_of(problem, t, device.wavefront)
            turns = np.where(t.stages == 2, shape.filter_turns + shape.image_turns, 0)
            return wanted + 2 * turns + _HIPCC_MORE + _ROOMY * roomy(device)
        if not problem.spec.element.exact:
            return np.maximum(wanted + _NVCC_MOST - _NVCC, _NVCC_LEAST)
        most = np.where(t.stages == 2, _NVCC_MOST, _NVCC_BYTES_MOST)
        return np.maximum(wanted + most - _NVCC, _NVCC_BYTES_LEAST)

    def work(self, case: Case, grids: Count) -> Work:
        return cost.work(case)

    def traffic(self, case: Case) -> dict[str, Count]:
        return cost.named(case)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        return (t.tile_c, t.tile_p, t.wave_c, t.wave_p, t.lanes_c, t.slices, t.step_c, t.stages,
                t.patch, t.cluster, f"dscore::Products::{t.arithmetic}", *vectors_of(plan.problem),
                f"DSCORE_{plan.problem.spec.layout.upper()}", plan.device.wavefront)

    def image_arguments(self, plan: Plan) -> str:
        return "_v{}x{}".format(*vectors_of(plan.problem))


def _held(problem: ConvProblem, t: Any, shape: Any) -> Count:
    """Registers of a thread's operands or of what passes through it to LDS at once, of its places,
    of what it fetches, as rings of two are filled by itself, and of a step's sums."""
    element = problem.spec.element
    piece, whole = piece_of(problem, t), takes_whole(problem, t)
    taps = taps_of(problem)
    # Single elements of 16 bits take a register each until they are joined.
    alone = reads_single(problem)
    filters = np.where(whole, ceil_div(element.bytes * piece * taps, WORD_BYTES), piece)
    images = np.where(alone, piece, ceil_div(element.bytes * piece, WORD_BYTES))
    # Bytes are put in another order by words, of which all are read before the first is written.
    turned = 2 if element.exact else 1
    through = np.maximum(np.where(whole, turned, TOGETHER) * filters, np.where(
        alone, TOGETHER * images, 0))
    operands = sum(ceil_div(element.bytes * count, WORD_BYTES)
                   for count in (shape.operands_c, shape.operands_p))
    fetched = shape.filter_turns * filters + shape.image_turns * images
    in_order = filters * (element.exact & whole)
    return (np.where(splits(t), shape.sums, 0) + shape.places
            + np.where(t.stages == 2, operands + fetched + in_order,
                       np.maximum(operands, through)))
