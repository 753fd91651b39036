"""Patches of results that matrix units make by Toeplitz matrices: geometry, limits and work.

A patch is eight results, `thread_w` columns by 8 / `thread_w` rows. Under it lie up to eight
columns of pairs of rows, the sixteen summed elements of a product of fragments
(hip_src/row_reuse/toeplitz_walk.hpp).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dscore.algorithms.base import Case, Limit, Work
from dscore.algorithms.columns import Count, ceil_div, remembered
from dscore.algorithms.row_reuse.tiling import (
    UNIT_LANES,
    on_units,
    row_vectors,
    staged,
)
from dscore.algorithms.row_reuse.view import view_of
from dscore.core.device import Device
from dscore.core.problem import ConvProblem

# Results of a patch, columns of one, and columns that may lie under it.
PATCH, PATCH_WIDTHS, WINDOW = 8, (2, 4), 8
# Registers of a fragment, whose lane has two results of each of two patches.
FRAGMENT_WORDS = 4


@dataclass(frozen=True)
class PatchShape:
    """The geometry of patches, and counts of a wavefront for one plane."""

    height: Count  # rows of a patch
    width: Count  # columns under one
    lead: Count  # columns before these in the window, which begins with a word
    pairs: Count  # of rows under one
    step: Count  # pairs from one to the next
    live: Count  # that are summed at a time
    products: Count  # of fragments
    words: Count  # that a lane reads from LDS
    stores: Count  # of a lane


@remembered
def patches_of(problem: ConvProblem, t: Any) -> PatchShape:
    """The patches of *t*, a RowReuseTiling or columns of many; where it has none, of no meaning."""
    view = view_of(problem)
    rows, columns = view.rows, view.columns
    height = np.maximum(PATCH // t.thread_w, 1)
    count, width = np.maximum(t.thread_h // height, 1), columns.under(t.thread_w)
    pairs, step = ceil_div(rows.under(height), 2), np.maximum(rows.step(height) // 2, 1)
    walked = (count - 1) * step + pairs
    loaded, stored = row_vectors(problem, t)
    # Two columns come as one where rows begin with a word, and all lie in words of the window.
    words = (loaded % 2 == 0) & (width + columns.first % 2 <= WINDOW)
    halves = np.where(t.lanes_h * t.lanes_w > UNIT_LANES // 2, 2, 1)
    return PatchShape(height, width, np.where(words, columns.first % 2, 0), pairs, step,
                      np.minimum(count, ceil_div(pairs, step)), count * pairs,
                      walked * 2 * halves * np.where(words, 1, 2),
                      count * halves * np.where(stored % 2 == 0, 1, 2))


def has_units(problem: ConvProblem, device: Device) -> bool:
    """Whether matrix units can multiply by Toeplitz matrices: those of NVIDIA alone, as their
    fragments are of a wavefront of 32; elements of 16 bits."""
    spec = problem.spec
    return (device.vendor == "nvidia" and spec.dtype in device.matrix_types
            and not spec.element.exact and spec.out_element == spec.element)


def held(problem: ConvProblem, t: Any) -> Count:
    """Registers of sums and a fragment of rows; of taps and a bias for each plane of a wavefront.
    """
    patches = patches_of(problem, t)
    return FRAGMENT_WORDS * (patches.live + 1) + t.repeat * (2 * patches.pairs + 1)


def rows_beside_pairs(problem: ConvProblem, thread_w: Count) -> Count:
    """Whether a patch of so many columns is not over whole pairs of rows."""
    rows, height = view_of(problem).rows, PATCH // thread_w
    step = rows.step(height)
    return 1 * ((height % rows.unit != 0) | (step % 2 != 0) | (step == 0))


def _on_units(case: Case, count: Count) -> Count:
    return np.where(on_units(case.tiling), count, 0)


def _beside(case: Case) -> Count:
    """What differs of a lane's rows and columns from whole patches over pairs of rows."""
    t, problem = case.tiling, case.problem
    width = np.minimum(t.thread_w, PATCH)
    return (1 - np.isin(t.thread_w, PATCH_WIDTHS) + t.thread_h % patches_of(problem, t).height
            + rows_beside_pairs(problem, width))


def _planes_left(case: Case) -> Count:
    t = case.tiling
    return np.where(on_units(t), t.planes % t.repeat, t.repeat - 1)


LIMITS = (
    Limit("E-MATRIX", "matrix units", "", "",
          lambda c: (1 * on_units(c.tiling),
                     np.where(staged(c.tiling), int(has_units(c.problem, c.device)), 0)),
          lambda c: "of NVIDIA, elements of 16 bits through LDS"),
    Limit("E-PAIRS", "rows and columns beside patches", "", "",
          lambda c: (_on_units(c, _beside(c)), 0),
          lambda c: f"{' or '.join(map(str, PATCH_WIDTHS))} columns, of {PATCH} results, over "
                    "pairs of rows"),
    Limit("E-WINDOW", "columns under a patch", "", "",
          lambda c: (_on_units(c, patches_of(c.problem, c.tiling).width), WINDOW)),
    Limit("E-REPEAT", "planes left", "", "", lambda c: (_planes_left(c), 0),
          lambda c: "on matrix units planes are a multiple of repeat; else it is 1"),
)


def work(case: Case) -> Work:
    """The work of a case on matrix units."""
    weight, problem, t = case.weights, case.problem, case.tiling
    patches, footprint = patches_of(problem, t), case.footprint
    both = np.asarray(t.staging) == "both"
    # Of eight lanes of patches, so many stand one above the other.
    strips = 8 / np.minimum(t.lanes_w, 8)
    # Of a plane; those of all planes stand in the code one after the other.
    instructions = (weight["word"] * patches.words + patches.products
                    + weight["tap"] * patches.pairs)
    return Work(
        issue=weight["units"] + t.repeat * instructions, products=0.0,
        lds=weight["bank"] * t.repeat * (patches.words + both * patches.stores),
        lines=np.where(both, 0, weight["segment"] * t.repeat * patches.stores
                       * strips * patches.height),
        waits=weight["code"] * t.repeat * instructions + weight["left"] * both,
        fill_bytes=weight["fill"] * footprint.lds_bytes, l2_bytes=0.0)
