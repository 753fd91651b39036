"""Comparison of whole networks: inference and steps of training, by PyTorch's ways and by dscore.

Every method computes in one process, on the same model and data, in turns. Device time is that of
one captured graph, replayed; wall time is that of calls from Python, with the wait for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from dscore.bench import network_methods as methods
from dscore.bench.layer_sequence import Layers
from dscore.bench.network_methods import WAYS, NetworkSubject, Setup
from dscore.bench.network_rows import NetworkRow
from dscore.bench.network_workplace import Workplace
from dscore.bench.summary import OURS
from dscore.calling.prepare import prepare
from dscore.core.errors import DscoreError, SpecError, UnavailableError, require_one_of
from dscore.core.problem import ConvProblem
from dscore.core.token import parse_problem
from dscore.torch.quantize_report import QuantizationReport
from dscore.torch.report import Report

TASKS = ("inference", "training")
# Of the float64 result's largest magnitude, by the type that a network computes in.
MOST_ERROR = {torch.float32: 1e-4, torch.float16: 0.03, torch.bfloat16: 0.2}
# Of a model in int8; more than that is a fault of a kernel or a scale, and not of the type.
MOST_INTEGER_ERROR = 0.5
Begin = Callable[[str], object]
Made = tuple[NetworkSubject, Report | QuantizationReport | None]
Make = Callable[[Setup, str], Made]


@dataclass(frozen=True)
class NetworkComparison:
    """What is compared: networks by name, at batches of an input's *shape*, whose first size they
    replace.
    """

    networks: tuple[str, ...]
    batches: tuple[int, ...]
    shape: tuple[int, ...] = (1, 3, 224, 224)
    tasks: tuple[str, ...] = ("inference",)
    ways: tuple[str, ...] = WAYS
    backend: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        for task in self.tasks:
            require_one_of(task, "a task", TASKS)
        for way in self.ways:
            require_one_of(way, "a way of PyTorch", WAYS)

    def single(self) -> list[NetworkComparison]:
        """A comparison for each network and batch."""
        return [replace(self, networks=(network,), batches=(batch,)) for network in self.networks
                for batch in self.batches]

    def cases(self) -> list[tuple[str, str, int]]:
        """Network, task and batch of each comparison."""
        return [(network, task, batch) for network in self.networks for task in self.tasks
                for batch in self.batches]


def compare(comparison: NetworkComparison, workplace: Workplace,
            begin: Begin = lambda what: None) -> list[NetworkRow]:
    """The rows of all cases, dscore's first in each; *begin* is called with a word on each case."""
    rows = []
    for network, task, batch in comparison.cases():
        begin(f"{network} {task} batch {batch}")
        setup = workplace.setup(network, (batch, *comparison.shape[1:]))
        rows += _case(NetworkRow(network, task, batch, ""), setup, comparison.ways, workplace)
        workplace.runner.release()
    return rows


def _case(case: NetworkRow, setup: Setup, ways: Sequence[str],
          workplace: Workplace) -> list[NetworkRow]:
    """All methods on one network, task and batch: checked, then timed in turns."""
    methods.forget_compiled(ways)
    make = methods.inference if case.task == "inference" else methods.training
    reference = (methods.exact if case.task == "inference" else methods.exact_loss)(setup)
    rows, subjects, reports = [], [], []
    for method in (*methods.own_ways(setup, ways), *ways):
        rows.append(replace(case, method=method, shares={}))
        if made := _made(rows[-1], make, setup, reference):
            subjects.append((rows[-1], made[0]))
            reports.append(made[1])
    _time(subjects, workplace)
    report = next((one for one in reports if one is not None), None)
    _describe(rows, report, setup, workplace)
    return rows


def _made(row: NetworkRow, make: Make, setup: Setup, reference: torch.Tensor) -> Made | None:
    """The subject of a row's method and its report; None, with the fault in the row, where it does
    not run or its result is wrong."""
    try:
        subject, report = make(setup, row.method)
        with subject.settings():
            subject.launch(0, 0)
        row.error = methods.relative_error(subject.result, reference)
        if setup.integers:
            row.agreement = methods.agreement(subject.result, reference)
    except (SpecError, UnavailableError):
        raise
    except (RuntimeError, DscoreError) as failed:  # of PyTorch's compiler, say
        row.fault, row.note = "not run", str(failed).splitlines()[0]
        return None
    most = (MOST_INTEGER_ERROR if setup.integers and row.method == OURS
            else MOST_ERROR[setup.dtype])
    if not row.error <= most:
        row.fault = "wrong"
        row.note = f"its error is {row.error:.1e} of the result, more than {most:.0e}"
        return None
    return subject, report


def _describe(rows: Sequence[NetworkRow], report: Report | QuantizationReport | None,
              setup: Setup, workplace: Workplace) -> None:
    """What dscore did, in the note of its row, and the shares of its layers."""
    if isinstance(report, QuantizationReport):
        rows[0].note = rows[0].note or _integers_note(report, rows[0])
    elif report is not None:
        rows[0].note = rows[0].note or (f"{len(report.replaced)} of {len(report.layers)} "
                                        "convolutions by dscore")
        if rows[0].task == "inference":
            _share(rows, report, setup, workplace)


def _integers_note(report: QuantizationReport, row: NetworkRow) -> str:
    agreement = "" if row.agreement is None else (
        f"; top-1 is that of float64 on {row.agreement:.1%} of the inputs")
    return (f"{len(report.quantized)} of {len(report.layers)} convolutions in int8, "
            f"{report.quantize_steps} quantize and {report.dequantize_steps} dequantize "
            f"steps{agreement}")


def _time(subjects: Sequence[tuple[NetworkRow, NetworkSubject]], workplace: Workplace) -> None:
    calls = [subject for _, subject in subjects]
    for (row, _), device, wall in zip(subjects, workplace.times(calls), workplace.walls(calls),
                                      strict=True):
        row.device, row.wall = device, wall


def _is_of(kind: str, problem: ConvProblem) -> bool:
    return problem.spec.kind == kind


def _share(rows: Sequence[NetworkRow], report: Report, setup: Setup,
           workplace: Workplace) -> None:
    """The shares of dscore's row and of PyTorch's default, from its layers timed by kind."""
    problems = [parse_problem(layer.problem) for layer in report.layers if layer.problem]
    left = {parse_problem(layer.problem) for layer in report.left if layer.problem}
    prepare([problem for problem in problems if problem not in left], backend=setup.backend)
    layers = Layers(problems, workplace.device, setup.backend)
    for row in rows:
        if row.device is None or row.method not in (OURS, "default"):
            continue
        by_dscore = set() if row.method != OURS else set(problems) - left
        subjects = [layers.sequence(kind, by_dscore.__contains__, partial(_is_of, kind))
                    for kind in layers.kinds]
        times = [time.median for time in workplace.times(subjects)]
        whole = max(row.device.median, sum(times))  # what overlaps in the network does not alone
        row.shares = {**{kind: time / whole for kind, time in
                         zip(layers.kinds, times, strict=True)},
                      "other": 1 - sum(times) / whole}
