"""Pointwise convolution of 16 bits and int8 in NHWC, and gradients of the former, as products of
matrices by Hopper's warpgroups, whose operands come to LDS by the copy engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.algorithms.base import (
    COMPILER_REGISTERS,
    VECTOR_BYTES,
    Algorithm,
    Case,
    Footprint,
    Limit,
    SpaceGenerator,
    Work,
    require_kind,
)
from dscore.algorithms.columns import Count, remainder
from dscore.algorithms.gemm_universal import MOST_ADDED
from dscore.algorithms.gemm_universal.tiling import gathered
from dscore.algorithms.split_k import MOST_PARTS
from dscore.algorithms.split_k.tiling import SUM_THREADS, sum_rows
from dscore.algorithms.warpgroup_gemm import cost
from dscore.algorithms.warpgroup_gemm.space import columns_of
from dscore.algorithms.warpgroup_gemm.tiling import (
    MOST_BOX,
    ROW,
    ROWS,
    WAVES,
    WarpgroupGemmTiling,
    row_of,
    shape_of,
)
from dscore.core.device import MATRIX_WAVEFRONT, Device
from dscore.core.numerics import ACCUMULATOR, WORD_BYTES
from dscore.core.plan import Launch, Plan, Violation
from dscore.core.problem import MAX_ELEMENTS, ConvProblem

MOST_STAGES = 8
# Registers that nvcc takes beside the sums and rows, and at most (docs/registers.md).
_BESIDE, _MOST_BESIDE = 28, 80
# At most, for where a lane's rows of a span lie, and for four bytes at a time and their factors.
_OF_SPAN, _OF_SCALES = 8, 28


def _part_boxes(case: Case) -> Count:
    """Columns of the last box of results that are those of the next tile, where tiles do not share
    all columns evenly; of int8, which leaves by vectors, those of the last vector."""
    problem, t = case.problem, case.tiling
    shape = shape_of(problem, t)
    n, exact = shape.sizes.n, problem.spec.element.exact
    left = np.where(exact | (remainder(n, t.tile_n) > 0), n if exact else t.tile_n, 0)
    return np.where((shape.tiles_n > 1) & (t.parts * t.cluster == 1),
                    remainder(left, _of_box(problem)), 0)


def _of_box(problem: ConvProblem) -> int:
    """Elements of a result that leave together: of a box; of int8 of a vector."""
    exact, bytes_ = problem.spec.element.exact, problem.spec.out_element.bytes
    return VECTOR_BYTES // bytes_ if exact else ROW


def _columns_together(case: Case) -> int:
    """Columns of which an instruction has a multiple."""
    return 16 if case.problem.spec.element.exact else 8


def _most_parts(case: Case) -> int:
    weights = case.problem.spec.in_channels * case.problem.spec.out_channels
    summed = case.problem.operation == "weight_gradient"
    return min(MOST_PARTS, MAX_ELEMENTS // weights) if summed else 1


def _most_cluster(case: Case) -> int:
    """Blocks of a cluster; of int8, whose blocks add zero points of their own steps, one."""
    return 1 if case.problem.spec.element.exact else case.device.cluster_blocks


def _span_steps(case: Case) -> Count:
    """Steps of the rows that come as a span; two where they cannot."""
    shape, spec, t = shape_of(case.problem, case.tiling), case.problem.spec, case.tiling
    refused = spec.scaled or not shape.sizes.along_a
    taken = (t.parts * t.cluster == 1) & (t.kept | (t.repeat == 1)) & (not refused)
    return np.where(t.spans, np.where(taken, shape.all_steps, 2), 1)


def _unmapped_rows(case: Case) -> Count:
    """Channels of x past whole vectors, where rows come by boxes."""
    spec = case.problem.spec
    return np.where(case.tiling.spans, 0,
                    remainder(spec.in_channels, VECTOR_BYTES // spec.element.bytes))


def _spanned(problem: ConvProblem) -> bool:
    """Whether rows of bytes that have no map may come as spans."""
    spec = problem.spec
    bytes_ = problem.batch * problem.height * problem.width * spec.in_channels
    return (spec.element.exact and not spec.scaled and spec.in_channels <= MOST_BOX
            and bytes_ % VECTOR_BYTES == 0)


def unmapped(problem: ConvProblem, name: str, scales: bool = False,
             spans: bool = False) -> tuple[Violation, ...]:
    """Violation of a pointwise problem whose tensors the copy engine cannot bring as they lie;
    *scales*: whether the algorithm multiplies x by a scale afterwards; *spans*: whether rows
    without a map may come as spans."""
    spec = problem.spec
    if gathered(problem):
        return (Violation("E-STRIDE", f"pixels of {name}", "some, or padding",
                          "all, by stride 1 without padding"),)
    whole = VECTOR_BYTES // spec.element.bytes
    # Results of int8 leave without a map.
    of_results = 8 if spec.element.exact else whole
    whole = 8 if spans and _spanned(problem) else whole
    if spec.in_channels % whole or spec.out_channels % of_results:
        taken = f"multiples of {whole}" + f" and {of_results}" * (of_results != whole)
        return (Violation("E-CHANNELS", f"channels of {name}",
                          f"{spec.in_channels} and {spec.out_channels}",
                          f"{taken}, by which tensors have maps"),)
    if spec.scaled and not scales:
        return (Violation("E-SCALE", f"scale of {name}", "of the input",
                          "none: x comes to LDS as it is"),)
    return ()


def _unstored(problem: ConvProblem) -> tuple[Violation, ...]:
    """Violation of a problem of int8 whose results neither rows nor a span of all can bring."""
    spec, pixels = problem.spec, problem.batch * problem.out_height * problem.out_width
    row_bytes = spec.out_channels * spec.out_element.bytes
    if not spec.element.exact or row_bytes % VECTOR_BYTES == 0:
        return ()
    if spec.out_channels <= MOST_BOX and pixels * row_bytes % VECTOR_BYTES == 0:
        return ()
    return (Violation("E-CHANNELS", "output channels of warpgroup_gemm", str(spec.out_channels),
                      f"results of {VECTOR_BYTES} bytes together: of a pixel, or, up to {MOST_BOX} "
                      "channels, of all"),)


class WarpgroupGemm(Algorithm):
    """Rows by columns of a result, 64 rows by the matrix units of a warpgroup."""

    name = "warpgroup_gemm"
    tiling = WarpgroupGemmTiling
    operations = ("conv", "input_gradient", "weight_gradient")
    elements = ("float16", "bfloat16", "int8")
    layouts = ("nhwc",)
    limits = (
        Limit("E-WARPGROUPS", "warpgroups", "", "",
              lambda c: (1, int(c.device.warpgroups)),
              lambda c: "matrix units that read LDS, and boxes of tensors, of sm_90"),
        Limit("E-TILE", "part warpgroups", "", "",
              lambda c: (remainder(c.tiling.tile_m, ROWS)
                         + remainder(c.tiling.tile_n, _columns_together(c)), 0),
              lambda c: f"{ROWS} rows of a warpgroup; columns by {_columns_together(c)}"),
        Limit("E-BOX", "a tile's side", "", "",
              lambda c: (np.maximum(np.maximum(c.tiling.tile_m, c.tiling.tile_n), c.tiling.step),
                         MOST_BOX),
              lambda c: "of a box, and of an instruction's columns"),
        Limit("E-BOXES", "columns left", "", "", lambda c: (_part_boxes(c), 0),
              lambda c: f"one tile for all columns, or vectors of {_of_box(c.problem)}"
              if c.problem.spec.element.exact else
              f"tiles that share all columns evenly, or boxes of {_of_box(c.problem)}"),
        Limit("E-SLICE", "elements left", "", "",
              lambda c: (remainder(c.tiling.step, row_of(c.problem)), 0),
              lambda c: f"a step in rows of LDS of {row_of(c.problem)}"),
        Limit("E-STAGES", "stages", "", "",
              lambda c: (np.where(c.tiling.stages < 2, MOST_STAGES + 1, c.tiling.stages),
                         MOST_STAGES), lambda c: "two or more"),
        Limit("E-REPEAT", "repeat", "", "",
              lambda c: (np.where(c.tiling.parts * c.tiling.cluster > 1,
                                  c.tiling.repeat + c.tiling.kept, 1), 1),
              lambda c: "parts and clusters have one tile of rows each, and keep none"),
        Limit("E-CLUSTER", "cluster", "", "",
              lambda c: (c.tiling.cluster, _most_cluster(c)),
              lambda c: "blocks that share the steps of 16-bit elements"),
        Limit("E-STEPS", "cluster", "", "",
              lambda c: (c.tiling.cluster, np.maximum(shape_of(c.problem, c.tiling).all_steps, 1)),
              lambda c: "no more blocks than steps"),
        Limit("E-MAP", "input channels left", "", "", lambda c: (_unmapped_rows(c), 0),
              lambda c: f"{VECTOR_BYTES // c.problem.spec.element.bytes} channels, of which a map "
              "has multiples; others come with spans=true"),
        Limit("E-SPAN", "steps of a span", "", "", lambda c: (_span_steps(c), 1),
              lambda c: "spans=true takes one step of all summed elements, no scale, weight "
              "gradient or cluster, and, of repeat > 1, kept=true"),
        Limit("E-PARTS", "parts", "", "", lambda c: (c.tiling.parts, _most_parts(c)),
              lambda c: "of a weight gradient; each has a result of its own in the workspace"),
    )
    spaces = (SpaceGenerator(True, columns_of),)
    compared = True  # small layers gemm_universal takes faster
    weights = cost.WEIGHTS
    own_weights = {"weight_gradient": cost.WEIGHT_GRADIENT,  # noqa: RUF012
                   "int8": cost.BYTES}

    def suits(self, device: Device) -> bool:
        return device.warpgroups

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        if kind := require_kind(problem, self.name, "pointwise"):
            return kind
        return unmapped(problem, self.name, scales=True, spans=True) or _unstored(problem)

    def chain(self, problem: ConvProblem, t: Any) -> int:
        return int(shape_of(problem, t).steps * t.step + t.parts + t.cluster)

    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        shape = shape_of(problem, t)
        blocks = t.cluster * shape.tiles_n * shape.blocks_m * t.parts
        depth, sums = shape.steps * t.step * t.repeat, _sums(t)
        return Footprint(
            threads=shape.waves * wavefront, waves=shape.waves, lds_bytes=shape.lds_bytes,
            registers=sums + COMPILER_REGISTERS, blocks=blocks,
            utilisation=problem.macs / (blocks * t.repeat * t.tile_m * t.tile_n
                                        * (shape.steps * t.step)),
            fmas=sums * depth,
            # The units read both operands for all lanes of a warpgroup.
            operand_loads=(ROWS + t.tile_n) / (ROWS * 2) * depth)

    def arithmetic(self, problem: ConvProblem, t: Any) -> Any:
        return "sum" if problem.spec.element.exact else "matrix16"

    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        return _sums(t) + _rows(problem, t) + _BESIDE

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        scaled = problem.spec.element.exact and problem.spec.scaled
        return (_sums(t) + _rows(problem, t) + _MOST_BESIDE + _OF_SPAN * t.spans
                + _OF_SCALES * scaled)

    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        sizes = shape_of(problem, t).sizes
        return bool(sizes.m % t.tile_m or sizes.n % t.tile_n or sizes.k % t.step)

    def workspace_bytes(self, problem: ConvProblem, t: Any) -> int:
        weights = problem.spec.out_channels * problem.spec.in_channels
        return int(ACCUMULATOR.bytes * t.parts * weights) if t.parts > 1 else 0

    def further_launches(self, problem: ConvProblem, t: Any) -> tuple[Launch, ...]:
        if t.parts == 1:
            return ()
        rows = sum_rows(t.parts)
        vectors = problem.spec.out_channels * problem.spec.in_channels // MOST_ADDED
        bytes_ = ACCUMULATOR.bytes * MOST_ADDED * SUM_THREADS if rows > 1 else 0
        return (Launch(-(-vectors // (SUM_THREADS // rows)), SUM_THREADS, bytes_),)

    def work(self, case: Case, grids: Count) -> Work:
        return cost.work(case, grids)

    def traffic(self, case: Case) -> dict[str, Count]:
        return cost.named(case)

    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        t: Any = plan.tiling
        shape = shape_of(plan.problem, t)
        return (t.tile_m, t.tile_n, t.step, t.stages, t.repeat, int(shape.kept), t.parts,
                t.cluster, int(shape.span), int(shape.images), int(shape.factors),
                f"DSCORE_{plan.problem.spec.layout.upper()}", plan.device.wavefront)

    def image_arguments(self, plan: Plan) -> str:
        shape = shape_of(plan.problem, plan.tiling)
        counted = dict(steps=shape.kept, images=shape.images, factors=shape.factors,
                       span=shape.span)
        return "".join(f"_{int(count)}_{of}" for of, count in counted.items() if count)

    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        t: Any = plan.tiling
        if plan.problem.operation == "weight_gradient":
            return 0, 0
        of_input = plan.problem.operation == "input_gradient"
        pixel = row * (plan.problem.width if of_input else plan.problem.out_width) + column
        return pixel // t.tile_m % 2, pixel % t.tile_m // (ROWS // 4)

    def caption(self, plan: Plan) -> list[str]:
        t: Any = plan.tiling
        shape = shape_of(plan.problem, t)
        m, n, k = {"conv": ("pixels", "channels", "input channels"),
                   "input_gradient": ("pixels", "channels", "output channels"),
                   "weight_gradient": ("output channels", "input channels", "pixels")}[
                       plan.problem.operation]
        shares = (f" x {t.cluster} (sharing the steps)" * (t.cluster > 1)
                  + f" x {t.parts} (parts of the {k})" * (t.parts > 1))
        return [f"a warpgroup: {ROWS} {m} x {t.tile_n} {n}",
                f"a block: {t.tile_m} {m} x {t.tile_n} {n}" + f", {t.repeat} times" * (t.repeat > 1)
                + f"; {t.step} {k} a step" + ", all of whose columns stay" * t.kept
                + "; rows as one span" * t.spans,
                f"the grid: {shape.tiles_n} ({n}) x {shape.blocks_m} ({m}){shares} blocks"]


def _rows(problem: ConvProblem, t: Any) -> Count:
    """Words of the rows that a lane has in registers: of a span's one step; scaled, of two."""
    elements = t.step * ROWS // (WAVES * MATRIX_WAVEFRONT)
    words = elements * problem.spec.element.bytes // WORD_BYTES
    return words * (2 * problem.spec.scaled + t.spans)


def _sums(t: Any) -> Count:
    """Of a lane of a warpgroup."""
    return t.tile_n * ROWS // 128
