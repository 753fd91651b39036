"""Words of int8 that a thread of row reuse has of a row (hip_src/row_reuse/integer_walk.hpp)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dscore.algorithms.columns import Count, ceil_div, once_for_each
from dscore.algorithms.row_reuse.tiling import row_vectors
from dscore.algorithms.row_reuse.view import view_of
from dscore.core.numerics import WORD_BYTES
from dscore.core.problem import ConvProblem


@dataclass(frozen=True)
class RowWords:
    """Counts of a thread."""

    read: Count  # words of a row, as they lie in memory
    words: Count  # of which the columns are
    shifted: Count  # that are made of two each, beside those that begin a word
    dots: Count  # products of four, of a row by a filter row
    taps: int  # registers of taps


@lru_cache(maxsize=4096)
def _words_of(problem: ConvProblem, thread_w: int, loaded: int) -> tuple[int, int, int, int]:
    axis, dilation = view_of(problem).columns, problem.spec.dilation[1]
    aligned = loaded % WORD_BYTES == 0
    lead = axis.first % WORD_BYTES if aligned else 0
    words = ceil_div(lead + int(axis.under(thread_w)), WORD_BYTES)
    _, phases = _of_taps(problem)
    begins: set[int] = set()
    dots = 0
    for c in range(thread_w):
        first = lead + c * axis.stride
        phase = first % phases
        has = {(phase + g * dilation) // WORD_BYTES for g in range(axis.kernel)}
        dots += len(has)
        begins |= {first - phase + word * WORD_BYTES for word in has}
    shifted = sum(begin % WORD_BYTES > 0 for begin in begins)
    return words + (not aligned), words, shifted + (not aligned) * words, dots


def _of_taps(problem: ConvProblem) -> tuple[int, int]:
    """Words of a filter row's taps, and how often these are there, each time a byte further on."""
    span = view_of(problem).columns.span
    words = ceil_div(span, WORD_BYTES)
    spare = words * WORD_BYTES - span
    return words, 4 if spare == 3 and words == 1 else 2 if spare else 1


def words_of(problem: ConvProblem, t: Any) -> RowWords:
    """The words of *t*, a RowReuseTiling or columns of many."""
    loaded, _ = row_vectors(problem, t)
    of_taps, phases = _of_taps(problem)
    taps = problem.spec.kernel[0] * of_taps * phases
    if isinstance(t.thread_w, int):
        read, words, shifted, dots = _words_of(problem, t.thread_w, int(loaded))
        return RowWords(read, words, shifted, dots, taps)
    counts = once_for_each(lambda *columns: np.array([
        _words_of(problem, int(w), int(v)) for w, v in zip(*columns, strict=True)]),
        t.thread_w, loaded)
    return RowWords(counts[:, 0], counts[:, 1], counts[:, 2], counts[:, 3], taps)
