"""Shipped networks of dense layers against what is published of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dscore.core.catalog import NamedProblem, layers, networks


def convs_of(name: str) -> Sequence[NamedProblem]:
    return networks()[name].layers


def filters(name: str) -> int:
    return sum(layer.problem.spec.out_channels * layer.problem.spec.products
               for layer in convs_of(name))


def test_parameters_are_those_of_pytorchs_models():
    """With their classifiers of 1000 classes; a normalisation has two parameters a channel."""
    biases = {name: sum(layer.problem.spec.out_channels for layer in convs_of(name))
              for name in ("vgg16", "resnet50")}
    dense = [4096 * (1 + 25088), 4096 * (1 + 4096), 1000 * (1 + 4096)]
    assert filters("vgg16") + biases["vgg16"] + sum(dense) == 138_357_544
    assert filters("resnet50") + 2 * biases["resnet50"] + 1000 * (1 + 2048) == 25_557_032
    # One normalisation before each convolution but the stem, one after that, and one at the end.
    normalised = 96 + 2208 + sum(layer.problem.spec.in_channels
                                 for layer in convs_of("densenet161")[1:])
    assert filters("densenet161") + 2 * normalised + 1000 * (1 + 2208) == 28_681_000


def test_the_authors_file_of_yolov3_has_these_parameters():
    """yolov3.weights has 248,007,048 bytes: 20 of them, then float32 numbers, four for each channel
    that is normalised, one for each other."""
    channels = sum(layer.problem.spec.out_channels * (1 if "detect" in layer.label else 4)
                   for layer in convs_of("yolov3"))
    assert 20 + 4 * (filters("yolov3") + channels) == 248_007_048


@pytest.mark.parametrize(("name", "macs", "published"), [
    ("vgg16", 15_346_630_656, 15.47e9 - 123.6e6),  # torchvision's, less the classifier's
    ("resnet50", 4_087_136_256, 4.09e9 - 2e6), ("densenet161", 7_725_699_072, 7.73e9 - 2e6),
    # The authors' 65.86 billion operations at 416x416.
    ("yolov3", 12_471_304_192, 65.86e9 / 2 * (256 / 416)**2)])
def test_multiply_adds(name, macs, published):
    total = sum(layer.problem.macs for layer in convs_of(name))
    assert total == macs
    assert total == pytest.approx(published, rel=0.002)


@pytest.mark.parametrize(("name", "count", "kinds"), [
    ("vgg16", 13, {"dense"}), ("resnet50", 53, {"dense", "pointwise"}),
    ("yolov3", 75, {"dense", "pointwise"}), ("densenet161", 160, {"dense", "pointwise"})])
def test_padding_keeps_or_halves_the_image(name, count, kinds):
    convs = convs_of(name)
    assert len(convs) == count
    assert {layer.problem.spec.kind for layer in convs} == kinds
    for layer in convs:
        spec = layer.problem.spec
        assert spec.padding == ((spec.kernel[0] - 1) // 2,) * 4
        assert layer.problem.out_height == -(-layer.problem.height // spec.stride[0])


def reads(layer: NamedProblem) -> tuple[int, int]:
    return layer.problem.spec.in_channels, layer.problem.height


def gives(layer: NamedProblem) -> tuple[int, int]:
    return layer.problem.spec.out_channels, layer.problem.out_height


def test_bottlenecks_chain():
    stem, *blocks = convs_of("resnet50")
    before = gives(stem)[0], gives(stem)[1] // 2  # the max pooling
    made: dict[str, tuple[int, int]] = {}
    for layer in blocks:
        block, part = layer.label.split()
        if part in ("reduce", "shortcut"):
            assert reads(layer) == before
        else:
            assert reads(layer) == made["reduce" if part == "conv" else "conv"]
        made[part] = gives(layer)
        if part == "expand":
            assert made.get("shortcut", before) == gives(layer)
            assert ("shortcut" in made) == block.endswith(".1")
            assert layer.problem.spec.activation is None
            before, made = gives(layer), {}
    assert before == (2048, 7)


def test_dense_blocks_chain():
    stem, *rest = convs_of("densenet161")
    wide, size = gives(stem)[0], gives(stem)[1] // 2
    for layer in rest:
        if layer.label.endswith("grow"):
            assert reads(layer) == (192, size)
            wide += gives(layer)[0]
            continue
        assert reads(layer) == (wide, size)
        if layer.label.startswith("transition"):
            wide, size = gives(layer)[0], size // 2
    assert (wide, size) == (2208, 7)


def test_darknet_and_its_heads_chain():
    stages, before, reduced, entered = {}, (3, 256), (0, 0), 0
    for layer in convs_of("yolov3"):
        part = layer.label.split()[-1]
        if layer.label.endswith("down"):
            stages[before[1]] = before
        if part == "enter":
            stages.setdefault(8, (1024, 8))
            # The last 1x1 convolution but the one that detects, made twice as large.
            assert reads(layer) == reduced
            entered = gives(layer)[0] + stages[2 * reads(layer)[1]][0]
            before = entered, 2 * reads(layer)[1]
            continue
        assert reads(layer) == before
        if part == "reduce" and layer.label.startswith("head"):
            reduced = gives(layer)
        if part != "detect":
            before = gives(layer)
        else:
            assert gives(layer)[0] == 3 * (4 + 1 + 80)
    assert (entered, before) == (384, (256, 32))


def test_layers_of_the_third_paper_are_theirs():
    of_networks = {"ResNet": "resnet50", "YOLOv3": "yolov3", "VGG": "vgg16"}
    for name, problem in layers().items():
        network = of_networks.get(name.partition("-")[0])
        if network:
            held = [layer.problem for layer in convs_of(network)]
            assert any((one.x_shape, one.y_shape, one.spec.kernel) == (
                problem.x_shape, problem.y_shape, problem.spec.kernel) for one in held), name
