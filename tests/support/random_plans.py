"""Random problems and plans of any algorithm, drawn by what it says that it computes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from dscore.algorithms.base import Algorithm
from dscore.algorithms.registry import algorithm, names
from dscore.core import catalog
from dscore.core.device import Device
from dscore.core.errors import DscoreError
from dscore.core.numerics import ACCUMULATOR, FLOAT_RESULTS
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.core.spec import ACTIVATIONS, ConvSpec
from dscore.ops import operands_of, operation
from dscore.solving.solver import solve

LAYERS = [layer.problem for layer in catalog.find("D1-D30") + catalog.find("P1-P45")]
KERNELS = ((1, 2), (2, 2), (1, 3), (3, 1), (3, 3), (3, 3), (3, 3), (3, 5), (5, 3), (5, 5), (5, 5),
           (6, 6), (7, 7), (7, 7), (9, 9), (11, 11), (1, 7), (7, 1), (16, 1), (3, 16))
IMAGES = ((7, 7), (9, 9), (12, 16), (14, 14), (28, 28), (33, 47), (56, 56), (112, 112))
CHANNELS = (3, 8, 16, 17, 40, 96, 256, 512)


def random_plans(device: Device, count: int, seed: int) -> list[Plan]:
    """Different plans for *device* that keep its limits, as many of each algorithm."""
    plans = dict[str, Plan]()
    drawn = _drawn(device, Random(seed))
    while len(plans) < count:
        plan = next(drawn)
        plans.setdefault(plan.name, plan)
    return [*plans.values()]


def _drawn(device: Device, random: Random) -> Iterator[Plan]:
    suiting = [name for name in names() if algorithm(name).suits(device)]
    for name in itertools.cycle(suiting):
        problem = random_problem(random, algorithm(name))
        try:
            space = solve(problem, device, algorithm=name)
        except DscoreError:  # nothing fits
            continue
        yield space.plan(random.randrange(len(space)))


def random_problem(random: Random, one: Algorithm, dtypes: Sequence[str] = (),
                   images: Sequence[tuple[int, int]] = ()) -> ConvProblem:
    """A problem that *one* computes, of any of *dtypes* (of its own): a made-up layer on any of
    *images*; without these, a layer of the papers in half of the cases."""
    while True:
        typed = {"dtype": random.choice(dtypes or one.elements),
                 "layout": random.choice(one.layouts)}
        try:
            problem = (_of_papers(random, typed) if not images and random.random() < 0.5
                       else _made_up(random, typed, images or IMAGES))
            problem = replace(problem, operation=random.choice(one.operations)).permitting(
                one.permission)
            problem = _with_result(random, problem)
            operands_of(problem)
        except DscoreError:  # a kernel larger than its image, a gradient of int8 or with a bias
            continue
        if not one.refuses(problem):
            return problem


def _with_result(random: Random, problem: ConvProblem) -> ConvProblem:
    """The problem, in half of the cases with float32 sums, where its operation has these; of int8
    images, of which another operation than a convolution makes floats, with a result of these."""
    if problem.spec.element.exact and problem.operation != "conv":
        return replace(problem, spec=replace(problem.spec,
                                             out_dtype=random.choice(FLOAT_RESULTS)))
    short = problem.spec.element.bytes < ACCUMULATOR.bytes
    if not (operation(problem.operation).widens and short and random.random() < 0.5):
        return problem
    return replace(problem, spec=replace(problem.spec, out_dtype=ACCUMULATOR.name))


def _of_papers(random: Random, typed: dict[str, Any]) -> ConvProblem:
    layer = random.choice(LAYERS)
    return replace(layer, spec=replace(layer.spec, **typed))


def _made_up(random: Random, typed: dict[str, Any],
             images: Sequence[tuple[int, int]]) -> ConvProblem:
    """A dense, pointwise or depthwise layer, or the first one of a network."""
    kind = random.choice(("dense", "pointwise", "depthwise", "first"))
    channels, out = (random.choice(CHANNELS) for _ in "io")
    kernel = 1 if kind == "pointwise" else random.choice(KERNELS)
    if kind == "first":
        channels, out = random.choice((1, 2, 3, 3, 3, 4)), random.choice((8, 16, 24, 48, 64, 96))
    if kind == "depthwise":
        out = channels * random.choice((1, 1, 2))
    spec = ConvSpec.make(
        channels, out, kernel, groups=channels if kind == "depthwise" else 1,
        stride=random.choice(((1, 1), (1, 1), (2, 2), (1, 2), (3, 3))),
        padding=0 if kernel == 1 else random.choice((0, kernel[0] // 2)),
        dilation=random.choice(((1, 1), (1, 1), (1, 1), (2, 2), (1, 3))),
        bias=random.random() < 0.3,
        activation=random.choice((*ACTIVATIONS, *[None] * 8)), **typed)
    return ConvProblem(spec, random.choice((1, 1, 2, 8)), *random.choice(images))
