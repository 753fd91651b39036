"""Traffic of a wavefront of first layers, and the work that the cost model makes of it."""

from __future__ import annotations

from dscore.algorithms.base import VECTOR_BYTES, Case, Work
from dscore.algorithms.columns import Count, ceil_div
from dscore.algorithms.stem.tiling import (
    EIGHT,
    PIECE,
    copy_of,
    group_of,
    half_taps,
    halves_of,
    shape_of,
    steps_of,
)
from dscore.core.numerics import WORD_BYTES

# Clocks of a SIMD for an instruction of each kind: `unit`, of a word of pixels whose channels are
# put side by side with those that are not there; `filter`, of a word of filters; `piece`, beside
# products and results; `result`, of a sum, and `activation` more of one that needs an exponential,
# or a look into a table. Of a wavefront, which others do not shorten: `wait`, for memory, `stage`,
# for it again; `tile`, at a barrier; `turn`, for a piece's pixels and results, and `chain`, for a
# product that the next one adds to. Fitted to 310 tilings of eight layers on an H200, 10 % off.
WEIGHTS = {"wavefront": 87.3, "load": 2.04, "unit": 2.4, "filter": 5.85, "lds_load": 1.0,
           "piece": 12.0, "result": 2.99, "activation": 6.18, "store": 2.0, "product": 2.0,
           "lds": 2.46, "line": 0.983, "wait": 311.0, "stage": 250.0, "tile": 144.0, "turn": 94.4,
           "chain": 21.8, "serial": 1.83, "block": 1850.0, "memory": 1.45, "loaded": 2.19,
           "first": 146.0, "norm": 3.0, "fill": 0.0816}


def pieces_each(case: Case) -> Count:
    """Pieces of 16 pixels of a wavefront, of all tiles of a block, in the mean."""
    t = case.tiling
    return t.repeat * shape_of(case.problem, t).pieces / t.waves_p


def lds_loads(case: Case) -> Count:
    """Reads of LDS of a piece: two for each half of a fragment."""
    return 2 * case.problem.spec.kernel[0] * halves_of(case.problem)


def named(case: Case) -> dict[str, Count]:
    """The traffic of a case by the names of `Algorithm.traffic`."""
    problem, t, shape = case.problem, case.tiling, shape_of(case.problem, case.tiling)
    pieces, filters = pieces_each(case), steps_of(problem) * shape.columns * 2
    # Of a filter a lane reads elements.
    reads = pieces * lds_loads(case) + filters * half_taps(problem)
    stores = pieces * 2 * shape.columns / group_of(problem, t)
    return {"LDS reads": reads, "LDS clocks": reads,
            "global loads": t.repeat * shape.turns * shape.copies + filter_vectors(case),
            "global stores": stores}


def filter_vectors(case: Case) -> Count:
    """Copies of filters of a thread."""
    shape = shape_of(case.problem, case.tiling)
    return ceil_div(case.tiling.tile_n * case.problem.spec.products,
                    EIGHT * case.device.wavefront * shape.waves)


def work(case: Case) -> Work:
    """The work of a case."""
    weight, problem, t = case.weights, case.problem, case.tiling
    shape, traffic, size = shape_of(problem, t), named(case), problem.spec.element.bytes
    pieces, filters = pieces_each(case), steps_of(problem) * shape.columns * 2
    words = shape.unit_bytes / WORD_BYTES
    of_result = weight["result"] + weight["activation"] * problem.spec.costly_results
    writes = t.repeat * shape.turns * max(shape.unit_bytes / VECTOR_BYTES, 1)
    elements = t.repeat * shape.units * shape.copies * copy_of(problem)
    loaded = (problem.spec.in_element.bytes * elements
              + size * t.tile_n * problem.spec.products)
    return Work(
        issue=weight["wavefront"] + weight["load"] * traffic["global loads"]
        + weight["unit"] * t.repeat * shape.turns * words + weight["filter"] * filters
        + weight["lds_load"] * (traffic["LDS reads"] + writes)
        + pieces * (weight["piece"] + of_result * shape.columns * 4)
        + weight["store"] * traffic["global stores"],
        products=weight["product"] * pieces * steps_of(problem) * shape.columns,
        lds=weight["lds"] * (traffic["LDS clocks"] + 4 * writes),
        lines=weight["line"] * traffic["global stores"] * PIECE / 4,
        # Units that do not come at once are waited for again; the next tile's come meanwhile.
        waits=weight["wait"] + weight["stage"] * ceil_div(shape.turns, shape.together)
        + weight["tile"] * (t.repeat - 1)
        + pieces * (weight["turn"] + weight["chain"] * steps_of(problem)),
        fill_bytes=weight["fill"] * shape.lds_bytes,
        l2_bytes=weight["loaded"] * case.footprint.blocks * loaded)
