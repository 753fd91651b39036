"""Random plans of every algorithm, whose kernels are compiled to hold the bounds of registers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from dscore.algorithms.registry import algorithm, names
from dscore.core import catalog
from dscore.core.device import Device
from dscore.core.errors import DscoreError
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.core.spec import ACTIVATIONS, LAYOUTS, ConvSpec
from dscore.solving.solver import solve

LAYERS = [layer.problem for layer in catalog.find("D1-D30") + catalog.find("P1-P45")]
KERNELS = ((1, 2), (2, 2), (1, 3), (3, 1), (3, 3), (3, 3), (3, 3), (3, 5), (5, 3), (5, 5), (5, 5),
           (6, 6), (7, 7), (7, 7), (9, 9), (11, 11), (1, 7), (7, 1), (16, 1), (3, 16))
IMAGES = ((7, 7), (9, 9), (12, 16), (14, 14), (28, 28), (33, 47), (56, 56), (112, 112))


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
        operation = random.choice(algorithm(name).operations)
        problem = _problem(random, name, operation)
        while algorithm(name).refuses(problem):
            problem = _problem(random, name, operation)
        try:
            space = solve(problem, device, algorithm=name)
        except DscoreError:  # nothing fits
            continue
        yield space.plan(random.randrange(len(space)))


def _problem(random: Random, name: str, operation: str) -> ConvProblem:
    """A layer of the papers in half of the cases, else any that the algorithm may run."""
    if name not in ("direct", "stem", "stem_sums") and random.random() < 0.5:
        layer = random.choice(LAYERS)
        return replace(layer, operation=operation,
                       spec=replace(layer.spec, **_type_and_layout(random, name)))
    while True:
        try:
            return replace(_any_problem(random, name, operation == "conv"), operation=operation)
        except DscoreError:  # a kernel larger than its image
            continue


def _type_and_layout(random: Random, name: str) -> dict[str, Any]:
    """Element type and layout of a layer; float32 but for algorithms that are for others."""
    if name in ("image_gemm", "plane_gemm", "stem", "stem_sums", "warpgroup_gemm"):
        [layout] = algorithm(name).layouts
        return {"dtype": random.choice(algorithm(name).elements), "layout": layout}
    if name not in ("gemm_universal", "implicit_gemm_universal"):
        return {"layout": random.choice(algorithm(name).layouts)}
    dtype = random.choice(algorithm(name).elements)
    return {"dtype": dtype, "layout": "nhwc" if dtype == "float32" else random.choice(LAYOUTS)}


def _any_problem(random: Random, name: str, forward: bool) -> ConvProblem:
    epilogue = {"bias": forward and random.random() < 0.3,
                "activation": random.choice((*ACTIVATIONS, *[None] * 8)) if forward else None}
    stride = random.choice(((1, 1), (1, 1), (2, 2), (1, 2), (3, 3)))
    batch, image = random.choice((1, 1, 2, 8)), random.choice(IMAGES)
    epilogue |= _type_and_layout(random, name)
    channels, out = (random.choice((3, 8, 16, 17, 40, 96, 256, 512)) for _ in "io")
    if name in ("stem", "stem_sums"):
        channels = random.choice((1, 2, 3, 3, 3, 4))
        out = random.choice((8, 16, 24, 32, 48, 64, 96))
    if name in ("gemm", "gemm_universal", "image_gemm", "plane_gemm", "warpgroup_gemm",
                "warpgroup_tf32", "channel_distribution", "split_k"):
        spec = ConvSpec.make(channels, out, 1, stride=stride, **epilogue)
        return ConvProblem(spec, batch, *image)
    if name == "winograd":
        spec = ConvSpec.make(channels, out, 3, padding=random.choice((0, 1)),
                             arithmetic="winograd", **epilogue)
        return ConvProblem(spec, batch, *image)
    kernel = random.choice(KERNELS)
    depthwise = name in ("row_reuse", "tap_sums", "channel_vectors", "channel_sums")
    groups = channels if depthwise else 1
    out = channels * random.choice((1, 1, 2)) if depthwise else out
    spec = ConvSpec.make(channels, out, kernel, stride=stride, groups=groups,
                         padding=random.choice((0, kernel[0] // 2)),
                         dilation=random.choice(((1, 1), (1, 1), (1, 1), (2, 2), (1, 3))),
                         **epilogue)
    return ConvProblem(spec, batch, *image)
