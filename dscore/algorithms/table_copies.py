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

BANKED_LIMIT = Limit("E-TABLE", "banked", "", "",
                     lambda c: (1 * np.asarray(c.tiling.banked), int(c.problem.spec.table)),
                     lambda c: "a table of results, which banked=true copies to each bank of LDS")


def table_bytes(spec: ConvSpec, banked: Any = False) -> Count:
    """Bytes of LDS for the table of a layer."""
    return TABLE * spec.element.bytes * spec.table * np.where(banked, LDS_BANKS, 1)


def with_banked(columns: SimpleNamespace, spec: ConvSpec) -> SimpleNamespace:
    """*columns* with one copy of a table, and, of a layer that has a table, those whose blocks take
    several tiles with a copy in each bank as well: fewer results do not pay for the copies."""
    columns.banked = np.zeros(len(columns.repeat), bool)
    if not spec.table:
        return columns
    banked = select(columns, columns.repeat > 1)
    return concatenate(columns, SimpleNamespace(**{**vars(banked), "banked": ~banked.banked}))
