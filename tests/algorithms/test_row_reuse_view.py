"""The view of row reuse: which rows connect with which, counted on whole images."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from dscore.algorithms.row_reuse.view import Axis

axes = st.builds(Axis, st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.just(0),
                 st.just(0), st.integers(0, 12), st.booleans())


def connected(axis, written, tap):
    """The row of the image walked over that a tap connects with row *written* of the other."""
    if not axis.gradient:
        return written * axis.stride + tap * axis.dilation - axis.pad
    row, rest = divmod(written + axis.pad - tap * axis.dilation, axis.stride)
    return row if rest == 0 else None


@given(axes, st.integers(0, 4), st.integers(1, 6))
def test_a_tile_walks_over_what_its_taps_connect_it_with(axis, tile, units):
    size = units * axis.unit
    begin = tile * size
    rows = {(r, f): connected(axis, begin + r, f) for r in range(size) for f in range(axis.kernel)}
    first = axis.first + axis.step(begin)
    for (r, f), row in rows.items():
        assert axis.position(r, f) == (None if row is None else row - first)
    positions = [row - first for row in rows.values() if row is not None]
    assert all(0 <= position < axis.under(size) for position in positions)
    assert len(positions) == axis.products(size)


@given(axes, st.integers(1, 6))
def test_a_written_row_is_complete_after_its_last_tap_and_all_are_in_the_end(axis, units):
    size = units * axis.unit
    complete = [min(axis.complete(i), size) for i in range(int(axis.under(size)) + 1)]
    assert complete[0] == 0
    assert complete[-1] == size
    for i, (before, after) in enumerate(itertools.pairwise(complete)):
        assert before <= after
        for r in range(after):  # none that is given away waits for a later row
            taps = [axis.position(r, f) for f in range(axis.kernel)]
            assert all(position is None or position <= i for position in taps)
        begun = [r for r in range(size)
                 if any(axis.position(r, f) in range(i + 1) for f in range(axis.kernel))]
        # The sums of those under way, and of those given away now, have registers of their own.
        assert len({r % int(axis.live(size)) for r in {*begun, *range(before, after)}
                    if r >= before}) == len({r for r in {*begun, *range(before, after)}
                                             if r >= before})
