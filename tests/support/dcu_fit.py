"""Fit of the cost model's weights of the DCU Z100SM, and how well the model predicts.

    python tests/support/dcu_fit.py

prints the weights (as specs/weights/z100sm.toml has them) and the figures of docs/model.md, in
sample and with each layer left out in turn.

z100sm_liu2024.csv has what Liu et al. measured and published ("Optimizing depthwise separable
convolution on DCU", CCF Transactions on High Performance Computing, 2024) on a Hygon DCU Z100SM:
microseconds of their kernels on the odd-numbered layers of its Tables 3 and 4, as the mean of three
processes, and for pointwise layers the tiling that won. A time is that of one cold launch between
two events.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dscore.algorithms.channel_distribution.cost import traffic_of
from dscore.core import catalog
from dscore.core.problem import ConvProblem
from dscore.ops import compulsory_bytes
from dscore.solving.solver import Space, solve

Array = NDArray[np.float64]

DATA = Path(__file__).with_name("z100sm_liu2024.csv")
Z100SM = catalog.device("z100sm")
FIELDS = ("wave_w", "wave_c", "repeat_w", "repeat_c", "group_c")
JUDGED = (8, 16, 32, 64)  # batches; a single image's time is little but the launch
# Spread of measured over predicted times that the fit expects, and how sure a winner is: tilings
# whose estimates differ by a twelfth are told apart e : 1.
SPREAD, CERTAINTY = 0.12, 12.0


@dataclass(frozen=True)
class Timing:
    """One measurement: a layer at a batch, its time, and for pointwise layers the tiling."""

    layer: str
    problem: ConvProblem
    seconds: float
    tiling: dict[str, int]


@dataclass(frozen=True)
class Figures:
    """How well times are predicted at the judged batches, and where the winners stand."""

    correlation: float  # of the logarithms
    spread: float  # standard deviation of log(measured / predicted)
    first: float | None = None  # share of the winners within the first 32, over all batches

    def __str__(self) -> str:
        first = "" if self.first is None else f", {self.first:.1%} of winners in the first 32"
        return f"correlation {self.correlation:.3f}, spread {self.spread:.3f}{first}"


def timings(kind: str) -> list[Timing]:
    """The measurements of one kind of layers."""
    layers = catalog.layers()
    with DATA.open(newline="") as lines:
        return [Timing(row["layer"], layers[row["layer"]].with_batch(int(row["batch"])),
                       float(row["microseconds"]) * 1e-6,
                       {name: int(row[name]) for name in FIELDS if row[name]})
                for row in csv.DictReader(lines) if row["kind"] == kind]


def figures(measured: Sequence[Timing], predicted: Array, ranks: Array | None = None) -> Figures:
    """Figures of *predicted* seconds, and of the winners' *ranks* from 1."""
    judged = np.array([one.problem.batch in JUDGED for one in measured])
    log = np.log([one.seconds for one in measured])
    correlation = np.corrcoef(log[judged], np.log(predicted)[judged])[0, 1]
    return Figures(float(correlation), float((log - np.log(predicted))[judged].std()),
                   None if ranks is None else float((ranks <= 32).mean()))


def space_of(timing: Timing) -> tuple[Space, int]:
    """The space that the winner of a pointwise layer is of, and its index there."""
    space = solve(timing.problem, Z100SM, "paper", algorithm="channel_distribution")
    columns = vars(space.case.tiling)
    [index] = np.flatnonzero(np.all([columns[name] == timing.tiling[name] for name in FIELDS],
                                    axis=0))
    return space, int(index)


def shipped_pointwise(measured: Sequence[Timing]) -> tuple[Array, Array]:
    """Seconds that the model predicts for the winners, and their ranks."""
    pairs = [space_of(one) for one in measured]
    return (np.array([space.costs.seconds[index] for space, index in pairs]),
            np.array([1 + int(np.flatnonzero(space.ranked() == index)[0])
                      for space, index in pairs]))


def shipped_depthwise(measured: Sequence[Timing]) -> Array:
    """Seconds that the model predicts for its own first tilings: the paper's are not known."""
    return np.array([solve(one.problem, Z100SM, algorithm="row_reuse").costs.seconds.min()
                     for one in measured])


# A model form: its names, and the seconds that it predicts with their gradient by the names.
Predict = Callable[[Array], tuple[Array, Array]]


def minimum(objective: Callable[[Array], tuple[float, Array]], start: Array,
            most: int = 200) -> Array:
    """Minimum of a smooth function that gives its value and gradient (BFGS with backtracking)."""
    at, inverse = start, np.eye(start.size)
    value, gradient = objective(at)
    for _ in range(most):
        step = -inverse @ gradient
        step *= min(1.0, 1.0 / np.abs(step).max())  # at most a factor of e
        while True:
            there = objective(at + step)
            if there[0] <= value + 1e-4 * gradient @ step or np.abs(step).max() < 1e-9:
                break
            step = step / 2
        change, moved = there[1] - gradient, step
        at, gain, (value, gradient) = at + step, value - there[0], there
        if gain < 1e-7 * max(abs(value), 1.0):
            return at
        if (curved := change @ moved) > 0:
            left = np.eye(start.size) - np.outer(moved, change) / curved
            inverse = left @ inverse @ left.T + np.outer(moved, moved) / curved
    return at


def fit_depthwise(measured: Sequence[Timing]) -> tuple[float, float]:
    """Seconds of a launch, and bytes that memory moves for a compulsory one.

    Least squares of logarithms. Other parts than memory have the weights of all devices.
    """
    seconds = np.array([one.seconds for one in measured])
    moved = np.array([compulsory_bytes(one.problem) for one in measured]) / Z100SM.bandwidth

    def objective(logs: Array) -> tuple[float, Array]:
        launch, memory = np.exp(logs)
        predicted = launch + memory * moved
        wrong = np.log(predicted / seconds)
        return float(wrong @ wrong / 2), np.array(
            [wrong @ (launch / predicted), wrong @ (memory * moved / predicted)])
    launch, memory = np.exp(minimum(objective, np.log([4e-5, 3.0])))
    return float(launch), float(memory)


# What the weights of channel distribution weigh, and where the search for them begins.
WEIGHTS = {"fma": 4.0, "lds_load": 4.0, "copy": 8.0, "shuffle": 8.0}
NORM = 2.0


@dataclass(frozen=True)
class Pointwise:
    """The spaces of some measurements, one after the other, with what the model asks of them."""

    measured: Sequence[Timing]
    sizes: Array
    winners: Array  # places in the joined spaces
    work: Array  # seconds for each weight of 1, over (weights, tilings)
    memory: Array  # seconds by the nominal bandwidth

    @staticmethod
    def of(measured: Sequence[Timing]) -> Pointwise:
        """The spaces of *measured*."""
        spaces, places = zip(*map(space_of, measured), strict=True)
        sizes = np.array([len(space) for space in spaces])
        memory = [np.full(len(one), compulsory_bytes(one.problem) / Z100SM.bandwidth)
                  for one in spaces]
        return Pointwise(measured, sizes, np.cumsum(sizes) - sizes + np.array(places),
                         np.concatenate([_work(one) for one in spaces], axis=1),
                         np.concatenate(memory))

    def predict(self, logs: Array, memory: float) -> tuple[Array, Array]:
        """Seconds of all tilings, and the gradient of their logarithms by *logs*.

        *logs* are of the weights and of the seconds from an event to the first data.
        """
        weights, launch = np.exp(logs[:-1]), np.exp(logs[-1])
        work = weights @ self.work
        overlapped = np.hypot(work, memory * self.memory)
        seconds = launch + overlapped
        by_work = weights[:, None] * self.work * (work / overlapped)
        return seconds, np.vstack([by_work, np.full(work.size, launch)]) / seconds

    def ranks(self, seconds: Array) -> Array:
        """Ranks of the winners in their spaces, from 1."""
        starts = np.cumsum(self.sizes) - self.sizes
        faster = seconds < np.repeat(seconds[self.winners], self.sizes)
        return 1 + np.add.reduceat(faster.astype(float), starts)

    def fit(self, memory: float, used: NDArray[np.bool_], start: Array | None = None) -> Array:
        """Logarithms of the weights and the launch, by the measurements *used*.

        Least squares of the winners' logarithms, and the likelihood that they win.
        """
        starts = np.cumsum(self.sizes) - self.sizes
        log = np.log([one.seconds for one in self.measured])

        def objective(logs: Array) -> tuple[float, Array]:
            seconds, gradient = self.predict(logs, memory)
            wrong = (np.log(seconds[self.winners]) - log) * used / SPREAD**2
            value = float(wrong @ (np.log(seconds[self.winners]) - log)) / 2
            # Relative to the winner, so that nothing overflows.
            share = (seconds / np.repeat(seconds[self.winners], self.sizes)) ** -CERTAINTY
            sums = np.add.reduceat(share, starts)
            share *= np.repeat(used / sums, self.sizes)
            of_winners = gradient[:, self.winners]
            return value + float(used @ np.log(sums)), (
                of_winners @ (wrong + CERTAINTY * used) - CERTAINTY * (gradient @ share))
        first = np.log([*WEIGHTS.values(), 8e-5]) if start is None else start
        return minimum(objective, first)


def _work(space: Space) -> Array:
    """Seconds that a weight of one clock costs, for each of WEIGHTS, of all tilings of a space."""
    case, traffic = space.case, traffic_of(space.case)
    counts = (traffic.fmas, traffic.lds_loads, traffic.copies, traffic.shuffles)
    uneven = case.algorithm.work(case, 1.0).uneven  # type: ignore[union-attr]
    lanes = Z100SM.fp32_lanes_per_cu * Z100SM.compute_units * Z100SM.clock_hz
    waves = case.footprint.blocks * case.footprint.waves * uneven * Z100SM.wavefront / lanes
    return np.stack([waves * np.broadcast_to(count, (len(space),)) for count in counts])


def left_out(layers: Sequence[str]) -> Iterator[NDArray[np.bool_]]:
    """Masks of the measurements of each layer in turn."""
    names = np.array(layers)
    return (names == layer for layer in dict.fromkeys(layers))


def report() -> None:
    """Print weights and figures."""
    depthwise, pointwise = timings("depthwise"), Pointwise.of(timings("pointwise"))
    launch, memory = fit_depthwise(depthwise)
    print(f"event_launch_seconds = {launch:.3g}, memory = {memory:.3g}")
    out = np.empty(len(depthwise))
    for rows in left_out([one.layer for one in depthwise]):
        fitted = fit_depthwise([one for one, left in zip(depthwise, rows, strict=True) if not left])
        out[rows] = [fitted[0] + fitted[1] * compulsory_bytes(one.problem) / Z100SM.bandwidth
                     for one, left in zip(depthwise, rows, strict=True) if left]
    print(f"depthwise, each layer left out: {figures(depthwise, out)}")
    print(f"depthwise, shipped weights: {figures(depthwise, shipped_depthwise(depthwise))}")
    every = np.ones(len(pointwise.measured), bool)
    logs = pointwise.fit(memory, every)
    first = (np.exp(logs[-1]) - launch) * Z100SM.clock_hz
    print(", ".join(f"{name} = {value:.3g}" for name, value in zip(
        [*WEIGHTS, "first"], [*np.exp(logs[:-1]), first], strict=True)))
    out, ranks = np.empty(every.size), np.empty(every.size)
    for rows in left_out([one.layer for one in pointwise.measured]):
        seconds, _ = pointwise.predict(pointwise.fit(memory, ~rows, logs), memory)
        out[rows] = seconds[pointwise.winners][rows]
        ranks[rows] = pointwise.ranks(seconds)[rows]
    print(f"pointwise, each layer left out: {figures(pointwise.measured, out, ranks)}")
    print("pointwise, shipped weights: "
          f"{figures(pointwise.measured, *shipped_pointwise(pointwise.measured))}")


if __name__ == "__main__":
    report()
