"""What the copy engine and the matrix units of warpgroups refuse, of problems and of tilings."""

from __future__ import annotations

import numpy as np

from dscore.algorithms.base import VECTOR_BYTES, Case, Limit
from dscore.algorithms.columns import Count, remainder
from dscore.algorithms.gemm_universal.tiling import gathered
from dscore.algorithms.split_k import MOST_PARTS
from dscore.algorithms.table_copies import BANKED_LIMIT
from dscore.algorithms.warpgroup_gemm.tiling import MOST_BOX, ROW, ROWS, row_of, shape_of
from dscore.core.plan import Violation
from dscore.core.problem import MAX_ELEMENTS, ConvProblem

MOST_STAGES = 8
# Of a warpgroup's images, where rows come as a span: a vector of eight for each thread.
MOST_FACTORS = 1024


def _part_boxes(case: Case) -> Count:
    """Columns that the last box of a tile's results shares with the next tile, where tiles do not
    share all columns evenly; of int8, which leaves by vectors, those of the last vector."""
    problem, t = case.problem, case.tiling
    shape = shape_of(problem, t)
    n, together = shape.sizes.n, _of_box(problem)
    left = (np.asarray(n % together) if problem.spec.element.exact
            else np.where(remainder(n, t.tile_n) > 0, remainder(t.tile_n, together), 0))
    return np.where((shape.tiles_n > 1) & (t.parts * t.cluster == 1), left, 0)


def _of_box(problem: ConvProblem) -> int:
    """Elements of a result that leave together: of a box; of int8 of a vector."""
    spec = problem.spec
    return VECTOR_BYTES // spec.out_element.bytes if spec.element.exact else ROW


def _columns_together(case: Case) -> int:
    """Columns of which an instruction has a multiple."""
    return 16 if case.problem.spec.element.exact else 8


def _most_parts(case: Case) -> int:
    spec = case.problem.spec
    if case.problem.operation != "weight_gradient":
        return 1
    return min(MOST_PARTS, MAX_ELEMENTS // (spec.in_channels * spec.out_channels))


def _most_cluster(case: Case) -> int:
    """Blocks of a cluster; of int8, whose blocks add zero points of their own steps, one."""
    return 1 if case.problem.spec.element.exact else case.device.cluster_blocks


def _span_steps(case: Case) -> Count:
    """Steps of the rows that come as a span; two where they cannot."""
    shape, spec, t = shape_of(case.problem, case.tiling), case.problem.spec, case.tiling
    refused = (spec.scaled and not spec.element.exact) or not shape.sizes.along_a
    taken = ((t.parts * t.cluster == 1) & (t.kept | (t.repeat == 1)) & (not refused)
             & (shape.images * shape.factors <= MOST_FACTORS))
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
    return (spec.element.exact and spec.in_channels <= MOST_BOX
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


def unstored(problem: ConvProblem) -> tuple[Violation, ...]:
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


LIMITS = (
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
          lambda c: "spans=true takes one step of all summed elements, no weight gradient or "
          f"cluster, no scale but int8's with {MOST_FACTORS:,} factors for a warpgroup's images, "
          "and, of repeat > 1, kept=true"),
    BANKED_LIMIT,
    Limit("E-PARTS", "parts", "", "", lambda c: (c.tiling.parts, _most_parts(c)),
          lambda c: "of a weight gradient; each has a result of its own in the workspace"),
)
