"""Guarded outputs: what a kernel stores beside its output is seen, and harms nothing else."""

from dscore.checking.check import GUARD, GuardedOutput
from dscore.core.token import parse_problem
from dscore.ops import output_of


def test_a_guard_holds_columns_of_a_block_past_the_end():
    """Eight columns of 100 channels: as much as a kernel stored that took twice its lanes."""
    guarded = GuardedOutput(output_of(
        parse_problem("n3c100h15w28_o100k5d2x1g100_float16_nhwc")))
    end = guarded.buffer.size - GUARD
    guarded.buffer[end:end + 8 * 100] = 0
    assert guarded.changed() == 8 * 100
