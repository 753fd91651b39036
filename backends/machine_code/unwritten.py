"""What registers pass on that were never written: compilers move and select for all lanes what only
some go on with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dscore.backends.machine_code.control import Step
from dscore.backends.machine_code.operands import Operand
from dscore.backends.machine_code.waves import Waves


def lanes_written(operand: Operand) -> Callable[[Waves], Any]:
    """Function of the executing lanes in which a register was written; of a constant all."""
    if operand.kind == "v":
        return lambda m: m.v_written[operand.first] & m.live
    if operand.kind == "s":
        return lambda m: np.where(m.s_written[operand.first], m.live, np.uint64(0))
    return lambda m: m.live


def noting(step: Step, lanes_of: Callable[[Waves], Any], destination: Operand) -> Step:
    """The step; of the executing lanes those of *lanes_of* count as written by it."""
    def noted(m: Waves) -> None:
        lanes = lanes_of(m)
        step(m)
        m.v_written[destination.first] = m.v_written[destination.first] & ~m.live | lanes
    return noted


def lanes_selected(sources: Sequence[Operand]) -> Callable[[Waves], Any]:
    """The same as `lanes_written` of V_CNDMASK_B32, which takes one of two operands by a lane's
    bit of the third: the other need not have been written.
    """
    *two, mask = sources
    others, taken = map(lanes_written, two)

    def lanes(m: Waves) -> Any:
        bits = m.s64[:, mask.first // 2]
        return others(m) & ~bits | taken(m) & bits
    return lanes
