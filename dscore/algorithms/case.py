"""One tiling on a problem: its case, its use of resources, its launch."""

from __future__ import annotations

from dscore.algorithms.base import Case
from dscore.algorithms.columns import Count
from dscore.algorithms.registry import algorithm_of
from dscore.core.device import Device
from dscore.core.plan import Launch, ResourceUse
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling


def case_of(problem: ConvProblem, device: Device, tiling: Tiling, block_n: Count = 1) -> Case:
    """The case of *tiling*, with its footprint."""
    algorithm = algorithm_of(tiling)
    return Case(problem, device, algorithm, tiling,
                algorithm.footprint(problem, tiling, device.wavefront), block_n)


def resource_use(problem: ConvProblem, tiling: Tiling, wavefront: int) -> ResourceUse:
    """The predicted ResourceUse of one tiling.

    >>> from dscore.algorithms.registry import tiling_from
    >>> from dscore.core.token import parse_problem
    >>> tiling = tiling_from(dict(wave_w=1, wave_c=64, repeat_w=1, repeat_c=4, group_c=16))
    >>> resource_use(parse_problem("n1c320h7w7_o1280k1"), tiling, 64)
    ResourceUse(threads=256, waves=4, lds_bytes=32896, registers=80, spills=0)
    """
    footprint = algorithm_of(tiling).footprint(problem, tiling, wavefront)
    return ResourceUse(int(footprint.threads), int(footprint.waves), int(footprint.lds_bytes),
                       int(footprint.registers))


def launch_of(problem: ConvProblem, tiling: Tiling, wavefront: int) -> Launch:
    """The launch of one tiling."""
    footprint = algorithm_of(tiling).footprint(problem, tiling, wavefront)
    return Launch(int(footprint.blocks), int(footprint.threads), int(footprint.lds_bytes))
