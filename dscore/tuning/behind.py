"""Times of depthwise kernels behind the pointwise layer that writes their input, as in a network.

Launches of one kernel behind itself overlap: the next one's rows are on their way while this one
computes. Behind another layer a kernel takes its longest chain (docs/network_notes.md). A pointwise
and a depthwise layer in turn rank the latter's tilings as networks do; for pointwise layers no such
two layers were found.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import cached_property

from dscore.checking.bound import Accuracy
from dscore.core.backend import Backend, GpuBackend
from dscore.core.device import Device
from dscore.core.errors import DscoreError, SpecError, UnavailableError
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.core.spec import ConvSpec
from dscore.core.token import problem_token
from dscore.measuring.runner import Arrays, KernelSubject
from dscore.measuring.timing import Subject
from dscore.tuning import records
from dscore.tuning.evaluator import RunnerEvaluator
from dscore.tuning.measurement_policy import MeasurementPolicy
from dscore.tuning.paired import COLD
from dscore.tuning.shipped_hints import untuned_plan

# Sets of data in turn: by so many tilings rank as in networks.
SETS = 3
# Graphs and samples of the pointwise layer alone; as of all graphs, the fastest counts.
_GRAPHS, _SAMPLES = 3, 4
# Expansions of inverted residuals make six channels of one, and kernels take eight at a time.
_EXPANSION, _CHANNELS = 6, 8


def follows_pointwise(problem: ConvProblem) -> bool:
    """Whether *problem* is timed behind a pointwise layer: a depthwise layer, forward.

    >>> from dscore.core.catalog import layers
    >>> follows_pointwise(layers()["D1"]), follows_pointwise(layers()["P1"])
    (True, False)
    """
    return problem.operation == "conv" and problem.spec.kind == "depthwise"


def layer_before(problem: ConvProblem) -> ConvProblem:
    """The pointwise layer whose output is the input of *problem*.

    >>> from dscore.core.token import parse_problem
    >>> problem_token(layer_before(parse_problem("n8c384h14w14_o384k3p1g384_float16_nhwc")))
    'n8c64h14w14_o384k1_float16_nhwc_bias'
    """
    given = problem.spec
    channels = max(_CHANNELS, given.in_channels // _EXPANSION // _CHANNELS * _CHANNELS)
    spec = ConvSpec(channels, given.in_channels, (1, 1), dtype=given.dtype, layout=given.layout,
                    bias=True)
    return ConvProblem(spec, problem.batch, problem.height, problem.width)


def plan_before(problem: ConvProblem, device: Device, backend: Backend) -> Plan:
    """Plan of `layer_before` as a call takes it: the one on record, else that of no tuning."""
    before = layer_before(problem)
    return (records.tuned_plan(before, device, backend)
            or untuned_plan(before, device, backend=backend))


def require_graphs(backend: Backend, policy: MeasurementPolicy) -> None:
    """Raise SpecError where *backend* does not time by graphs of a GPU, but by *policy*."""
    if not isinstance(backend, GpuBackend) or policy != COLD:
        raise SpecError("kernels are timed behind another layer in graphs of a GPU, and backend "
                        f"{backend.name} has none here (it times by '{policy}'); tune without "
                        "behind")


class BehindEvaluator:
    """Depthwise kernels in graphs in which the pointwise layer before them writes their input.

    A time is that of both layers without that of the pointwise layer in a graph of its own.
    *cold* judges, and has the clock.
    """

    def __init__(self, cold: RunnerEvaluator, backend: Backend, device: Device,
                 problem: ConvProblem, seed: int) -> None:
        self._cold, self._backend, self._device = cold, backend, device
        self._problem, self._seed = problem, seed

    def judge(self, plan: Plan) -> Accuracy:
        return self._cold.judge(plan)

    def seconds(self, plan: Plan, repeats: int) -> Sequence[float]:
        before = self._before
        behind = self._cold.runner.subject(self._backend, plan, self._sets[1])

        def start(index: int, stream: int) -> None:
            before.launch(index, stream)
            behind.launch(index, stream)

        both = KernelSubject(range(SETS), start)
        times = self._cold.timed(plan.tiling.name, both, SETS, repeats, beside=self._alone)
        return self._require_longer(times)

    def _require_longer(self, times: Sequence[float]) -> Sequence[float]:
        """*times*, where both layers took longer than the pointwise one alone."""
        if min(times) > 0:
            return times
        before, behind = map(problem_token, (layer_before(self._problem), self._problem))
        raise UnavailableError(
            f"{before} and {behind} took {-min(times) * 1e6:.2f} us less in turn than the former "
            "alone, so that no time is left for the latter: tune it where nothing else runs on "
            "the GPU, or without behind")

    @cached_property
    def _sets(self) -> tuple[list[Arrays], list[Arrays]]:
        """Operands of both layers; the output of the first is x of the second."""
        first, second = (self._cold.runner.sets(problem, SETS, self._seed)
                         for problem in (layer_before(self._problem), self._problem))
        return first, [(one[-1], *other[1:]) for one, other in zip(first, second, strict=True)]

    @cached_property
    def _before(self) -> Subject:
        """The pointwise kernel; where it fails, that is no fault of the kernels behind it."""
        try:
            plan = plan_before(self._problem, self._device, self._backend)
            return self._cold.runner.subject(self._backend, plan, self._sets[0])
        except DscoreError as failed:
            token = problem_token(layer_before(self._problem))
            raise UnavailableError(f"the layer {token}, behind which others are to be timed, "
                                   f"does not run: {failed}; leave behind out") from failed

    @cached_property
    def _alone(self) -> float:
        """Seconds of the pointwise layer in graphs of its own."""
        return min(statistics.median(self._cold.timed("before", self._before, SETS, _SAMPLES))
                   for _ in range(_GRAPHS))
