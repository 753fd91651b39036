"""Shipped layers and networks against what is published of them."""

from __future__ import annotations

import pytest

from dscore.core import catalog
from dscore.core.catalog import layers, networks
from dscore.core.problem import ConvProblem
from dscore.core.token import parse_problem


def network_problems(name: str) -> list[ConvProblem]:
    return [layer.problem for layer in networks()[name].layers]


def test_the_papers_tables_are_whole():
    kinds = {name: problem.spec.kind for name, problem in layers().items()}
    assert [name for name, kind in kinds.items() if kind == "depthwise"] == [
        f"D{number}" for number in range(1, 31)]
    assert [name for name, kind in kinds.items() if kind == "pointwise"] == [
        f"P{number}" for number in range(1, 46)]
    assert [name for name, kind in kinds.items() if kind == "dense"] == [
        *(f"ResNet-{number}" for number in range(1, 5)),
        *(f"YOLOv3-{number}" for number in range(1, 6)),
        *(f"VGG-{number}" for number in range(1, 4)), "DenseNet-1"]
    every = [*layers(), *networks(), *(layer.name for network in networks().values()
                                       for layer in network.layers)]
    assert len({name.lower() for name in every}) == len(every)


@pytest.mark.parametrize(("name", "token"), [
    ("D1", "n1c32h112w112_o32k3p1g32"),
    ("D8", "n1c480h14w14_o480k3p1g480"),
    ("D9", "n1c480h14w14_o480k5p2g480"),
    ("D13", "n1c144h56w56_o144k5s2p2g144"),
    ("D30", "n1c96h14w14_o96k3s2p1g96"),
    ("P1", "n1c32h112w112_o16k1"),
    ("P19", "n1c80h14w14_o480k1"),
    ("P45", "n1c192h7w7_o1024k1"),
    ("ResNet-4", "n1c512h7w7_o512k3p1"),
    ("YOLOv3-1", "n1c32h128w128_o64k3p1"),
    ("DenseNet-1", "n1c192h56w56_o48k3p1"),
])
def test_layers_are_as_printed(name, token):
    assert layers()[name] == parse_problem(token)


def test_depthwise_padding_keeps_or_halves_the_image():
    for name, problem in layers().items():
        if name.startswith("D") and problem.spec.kind == "depthwise":
            assert problem.out_height == -(-problem.height // problem.spec.stride[0])


def shape(problem: ConvProblem) -> tuple[int, ...]:
    """A layer without its padding, which the paper does not print."""
    spec = problem.spec
    return (spec.in_channels, spec.out_channels, problem.height, problem.width, *spec.kernel,
            *spec.stride, spec.groups)


def test_which_network_a_layer_of_the_paper_comes_from():
    held = {name: {shape(problem) for problem in network_problems(name)} for name in networks()}
    shapes = {name: shape(problem) for name, problem in layers().items()
              if problem.spec.kind in ("depthwise", "pointwise")}
    nowhere = [name for name, one in shapes.items() if not any(one in net for net in held.values())]
    assert nowhere == []
    # ShuffleNetV2 is the paper's at 0.5x: of its layers only D28, which reads the stem, is also
    # in the one of 1.0x.
    half = held.pop("shufflenet_v2_x0_5")
    only_half = [name for name, one in shapes.items()
                 if not any(one in net for net in held.values())]
    assert only_half == ["D22", "D23", "D24", "D29", "D30", "P42", "P43", "P44", "P45"]
    assert shapes["D28"] in half
    # As Table 4 prints P19, it would be in none.
    assert not any((80, 240, 14, 14, 1, 1, 1, 1, 1) in net for net in held.values())


# Networks

# Stages as (expansion, kernel, output channels, repeats, stride of the first).
INVERTED = {
    # Sandler et al. 2018, Table 2
    "mobilenet_v2": [(1, 3, 16, 1, 1), (6, 3, 24, 2, 2), (6, 3, 32, 3, 2), (6, 3, 64, 4, 2),
                     (6, 3, 96, 3, 1), (6, 3, 160, 3, 2), (6, 3, 320, 1, 1)],
    # Tan et al. 2019
    "mnasnet_b1": [(1, 3, 16, 1, 1), (3, 3, 24, 3, 2), (3, 5, 40, 3, 2), (6, 5, 80, 3, 2),
                   (6, 3, 96, 2, 1), (6, 5, 192, 4, 2), (6, 3, 320, 1, 1)],
    # Tan and Le 2019, Table 1
    "efficientnet_b0": [(1, 3, 16, 1, 1), (6, 3, 24, 2, 2), (6, 5, 40, 2, 2), (6, 3, 80, 3, 2),
                        (6, 5, 112, 3, 1), (6, 5, 192, 4, 2), (6, 3, 320, 1, 1)],
}


def inverted_macs(name: str) -> int:
    """Multiply-adds from the table of stages, by sums rather than layer by layer."""
    size, channels, total = 112, 32, 112 * 112 * 27 * 32
    for expansion, kernel, out, repeats, stride in INVERTED[name]:
        for step in [stride] + [1] * (repeats - 1):
            wide, after = channels * expansion, size // step
            total += size**2 * channels * wide * (expansion > 1)
            total += after**2 * wide * (kernel**2 + out)
            total += 2 * wide * (channels // 4) * (name == "efficientnet_b0")
            size, channels = after, out
    return total + size**2 * channels * 1280


def shuffle_macs(widths: tuple[int, int, int]) -> int:
    size, channels, total = 56, 24, 112**2 * 27 * 24
    for out, repeats in zip(widths, (3, 7, 3), strict=True):
        half, after = out // 2, size // 2
        total += after**2 * channels * (9 + half)  # the left branch of the first unit
        total += size**2 * channels * half + after**2 * half * (9 + half)
        total += repeats * after**2 * half * (half + 9 + half)
        size, channels = after, out
    return total + size**2 * channels * 1024


@pytest.mark.parametrize(("name", "derived", "macs", "published"), [
    ("mobilenet_v2", inverted_macs("mobilenet_v2"), 299_494_272, 0.300e9),
    ("mnasnet_b1", inverted_macs("mnasnet_b1"), 313_135_872, 0.315e9),
    ("efficientnet_b0", inverted_macs("efficientnet_b0"), 384_534_752, 0.39e9),
    ("shufflenet_v2", shuffle_macs((116, 232, 464)), 143_883_992, 0.146e9),
    ("shufflenet_v2_x0_5", shuffle_macs((48, 96, 192)), 39_452_448, 0.041e9),
])
def test_multiply_adds(name, derived, macs, published):
    """Against the papers' tables, and what the papers print, which counts the classifier too."""
    total = sum(problem.macs for problem in network_problems(name))
    assert total == derived == macs
    classifier = 1000 * network_problems(name)[-1].spec.out_channels
    assert total + classifier == pytest.approx(published, rel=0.025)


@pytest.mark.parametrize(("name", "parameters"), [
    ("mobilenet_v2", 3_504_872),
    ("mnasnet_b1", 4_383_312),
    ("efficientnet_b0", 5_288_548),
    ("shufflenet_v2", 2_278_604),
    ("shufflenet_v2_x0_5", 1_366_792),
])
def test_parameters_are_those_of_pytorchs_models(name, parameters):
    """With a classifier of 1000 classes, and two normalisation parameters for each bias."""
    convs = networks()[name].layers
    specs = [layer.problem.spec for layer in convs]
    filters = sum(spec.out_channels * spec.products for spec in specs)
    biases = sum(layer.problem.spec.out_channels * (1 if excites(layer) else 2) for layer in convs)
    assert filters + biases + 1000 * (specs[-1].out_channels + 1) == parameters
    assert all(spec.bias for spec in specs)


# As PyTorch's models count: (a) two normalisation parameters for each bias but squeeze and excite;
# (b) what else they have: classifiers, and ConvNeXt's normalisations and factors of channels.
@pytest.mark.parametrize(("name", "count", "others", "parameters"), [
    ("mobilenet_v3_large", 62, 961 * 1280 + 1281 * 1000, 5_483_032),
    ("efficientnet_v2_s", 170, 1281 * 1000, 21_458_488),
    ("convnext_tiny", 58, 769 * 1000 + 2 * (96 + 768) + 2 * (96 + 192 + 384)
     + 3 * (3 * 96 + 3 * 192 + 9 * 384 + 3 * 768), 28_589_128)])
def test_parameters_of_later_networks(name, count, others, parameters):
    convs = networks()[name].layers
    specs = [layer.problem.spec for layer in convs]
    filters = sum(spec.out_channels * spec.products for spec in specs)
    single = [excites(layer) or name == "convnext_tiny" for layer in convs]
    biases = sum(spec.out_channels * (2 - one) for spec, one in zip(specs, single, strict=True))
    assert (len(convs), filters + biases + others) == (count, parameters)


def test_depthwise_layers_of_later_networks():
    def sizes(name):
        return {(problem.spec.in_channels, problem.height) for problem in network_problems(name)
                if problem.spec.kind == "depthwise"}

    assert sizes("convnext_tiny") == {(96, 56), (192, 28), (384, 14), (768, 7)}
    steps = network_problems("mamba_conv1d")
    assert all((one.out_height, one.out_width, one.padding) == (1, 2048, (0, 0, 3, 0))
               and one.spec.kind == "depthwise" for one in steps)


def excites(layer: catalog.NamedProblem) -> bool:
    return layer.label.endswith(("squeeze", "excite"))


@pytest.mark.parametrize("name", INVERTED)
def test_inverted_residuals_chain(name):
    convs = networks()[name].layers
    assert [layer.name for layer in convs] == [f"{name}/{at}" for at in range(1, len(convs) + 1)]
    wide, size, block_in = 3, 224, 0
    for layer in convs:
        problem, spec = layer.problem, layer.problem.spec
        if excites(layer):
            ends = (wide, block_in // 4)
            assert (problem.height, problem.width) == (1, 1)
            assert (spec.in_channels, spec.out_channels) == (
                ends if layer.label.endswith("squeeze") else ends[::-1])
            continue
        assert (spec.in_channels, problem.height, problem.width) == (wide, size, size)
        if layer.label.endswith("expand") or "block 1 " in layer.label:
            block_in = spec.in_channels
        wide, size = spec.out_channels, problem.out_height
    assert (wide, size) == (1280, 7)


@pytest.mark.parametrize("name", ["shufflenet_v2", "shufflenet_v2_x0_5"])
def test_shuffle_units_chain(name):
    stem, *units, head = networks()[name].layers
    wide, size = stem.problem.spec.out_channels, stem.problem.out_height // 2  # the max pooling
    branches: dict[tuple[str, str], list[ConvProblem]] = {}
    for layer in units:
        unit, side, _ = layer.label.split()
        branches.setdefault((unit, side), []).append(layer.problem)
    for (unit, side), branch in branches.items():
        halves = unit.endswith(".1")
        reads, shown = (wide, size) if halves else (wide // 2, size)
        for problem in branch:
            assert (problem.spec.in_channels, problem.height) == (reads, shown)
            reads, shown = problem.spec.out_channels, problem.out_height
        if side == "right":
            assert ((unit, "left") in branches) == halves
            wide, size = 2 * reads, shown
    assert (head.problem.spec.in_channels, head.problem.height) == (wide, size)


@pytest.mark.parametrize(("name", "count", "activation", "linear"), [
    ("mobilenet_v2", 52, "relu6", "project"), ("mnasnet_b1", 52, "relu", "project"),
    ("efficientnet_b0", 81, "silu", ("project", "excite")),
    ("shufflenet_v2", 56, "relu", "depthwise"), ("shufflenet_v2_x0_5", 56, "relu", "depthwise")])
def test_activations_and_padding(name, count, activation, linear):
    convs = networks()[name].layers
    assert len(convs) == count
    for layer in convs:
        spec = layer.problem.spec
        assert spec.activation == (None if layer.label.endswith(linear) else activation)
        expected = "same" if name == "efficientnet_b0" else ((spec.kernel[0] - 1) // 2,) * 4
        assert spec.padding == expected
        assert (spec.kind == "depthwise") == layer.label.endswith("depthwise")
        assert layer.problem.out_height == -(-layer.problem.height // spec.stride[0])
    assert ("same" in {layer.problem.spec.padding for layer in convs}) == (count == 81)
