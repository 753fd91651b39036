"""Columns of many tilings: quotients, combinations, and formulas that are computed once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dscore.algorithms.columns import (
    Columns,
    ceil_div,
    combinations,
    distinct,
    floor_div,
    once_for_each,
    remainder,
    remembered,
)

# Around the end of what float64 counts, and around multiples of a divisor.
INTEGERS = st.one_of(st.integers(-100, 1000), st.integers(-2**62, 2**62), st.builds(
    lambda q, b, off: q * b + off, st.integers(0, 2**31), st.integers(1, 2**21),
    st.integers(-1, 1)))
DIVISORS = st.one_of(st.integers(1, 40), st.integers(1, 2**53))


@given(st.lists(st.tuples(INTEGERS, DIVISORS), min_size=1, max_size=20))
def test_quotients_of_columns_are_those_of_integers(pairs):
    a, b = (np.array(column) for column in zip(*pairs, strict=True))
    assert floor_div(a, b).tolist() == [x // y for x, y in pairs]
    assert ceil_div(a, b).tolist() == [-(-x // y) for x, y in pairs]
    assert remainder(a, b).tolist() == [x % y for x, y in pairs]
    assert floor_div(int(a[0]), b).tolist() == [pairs[0][0] // y for _, y in pairs]
    assert floor_div(a, int(b[0])).tolist() == [x // pairs[0][1] for x, _ in pairs]
    assert (ceil_div(7, 2), floor_div(7, 2), remainder(7, 2)) == (4, 3, 1)


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_a_quotient_by_zero_is_numpys():
    assert floor_div(np.array([5, 6]), np.array([0, 4])).tolist() == [0, 1]


VALUES = st.one_of(st.integers(0, 5), st.integers(-2**40, 2**40))


@given(st.lists(st.tuples(VALUES, st.booleans(), VALUES), min_size=1, max_size=40))
def test_combinations_are_those_of_a_set(rows):
    a, b, c = (np.array(column) for column in zip(*rows, strict=True))
    first, inverse = combinations(a, b, c)
    assert [rows[at] for at in first] == sorted(set(rows))
    assert [rows[first[code]] for code in inverse] == rows
    assert all(rows.index(rows[at]) == at for at in first)
    assert distinct(Columns(a=a, c=c)).a.tolist() == [x for x, _ in sorted({
        (x, z) for x, _, z in rows})]


def test_a_formula_sees_each_combination_once():
    seen = []

    def formula(a, b):
        seen.append((a.tolist(), b.tolist()))
        return a * 10 + b

    a = np.array([3, 1, 3, 1])
    assert once_for_each(formula, a, 2).tolist() == [32, 12, 32, 12]
    assert seen == [([1, 3], [2, 2])]


def test_what_is_remembered_belongs_to_its_columns():
    calls = []

    @remembered
    def doubled(factor, t):
        calls.append(factor)
        return factor * t.a

    one, other = Columns(a=np.array([1, 2])), Columns(a=np.array([5]))
    assert [doubled(2, one).tolist(), doubled(2, one).tolist(), doubled(3, one).tolist(),
            doubled(2, other).tolist()] == [[2, 4], [2, 4], [3, 6], [10]]
    assert calls == [2, 3, 2]
    assert vars(one).keys() == {"a"}
