"""Copies of int8's table of results in LDS: one, or one in each bank, where lanes look up different
entries without waiting for one another (hip_src/support/banked_table.hpp)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from dscore.algorithms.base import LDS_BANKS, Limit
from dscore.algorithms.columns import Count, concatenate, select
from dscore.core.spec import ConvSpec
from dscore.ops.quantised import TABLE

# Results of a block from which on the copies are worth a try: a copy is written in some hundred
# clocks, and a wavefront's look-up of one has waited for two more.
LEAST_RESULTS = 16_384

BANKED_LIMIT = Limit("E-TABLE", "banked", "", "",
                     lambda c: (1 * np.asarray(c.tiling.banked), int(c.problem.spec.table)),
                     lambda c: "a table of results, which banked=true copies to each bank of LDS")


def table_bytes(spec: ConvSpec, t: Any) -> Count:
    """Bytes of LDS for the table of a layer by a tiling, or by columns of many."""
    return TABLE * spec.element.bytes * spec.table * np.where(t.banked, LDS_BANKS, 1)


def with_banked(columns: SimpleNamespace, spec: ConvSpec, results: Count) -> SimpleNamespace:
    """*columns*, and, of a layer with a table, those with a copy in each bank as well, where a
    block has so many *results* that these pay for the copies."""
    columns.banked = np.zeros(len(results), bool)
    if not spec.table:
        return columns
    banked = select(columns, results >= LEAST_RESULTS)
    return concatenate(columns, SimpleNamespace(**{**vars(banked), "banked": ~banked.banked}))
