"""Shipped devices, layers and networks against what is published of them, and files gone wrong."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from dscore import catalog
from dscore.catalog import device, devices, find, layers, load_toml, networks
from dscore.device import Device
from dscore.errors import SpecError
from dscore.notation import parse_problem
from dscore.spec import ConvProblem

SPECS = files("dscore._specs")


def message(call, *args) -> str:
    with pytest.raises(SpecError) as caught:
        call(*args)
    return str(caught.value)


def network_problems(name: str) -> list[ConvProblem]:
    return [layer.problem for layer in networks()[name].layers]


# Devices

# float32 TFLOPS of the data sheets, a product of three fields.
DATA_SHEET = {"gfx906": 13.3, "gfx908": 23.1, "gfx90a": 47.9 / 2, "gfx942": 163.4,
              "rtx2080ti": 13.4, "xavier": 1.41, "v100": 15.7, "a100": 19.5, "h100": 67,
              "h200": 67}


def test_every_device_file_is_a_device_of_its_name():
    stems = [entry.name.removesuffix(".toml") for entry in SPECS.joinpath("devices").iterdir()]
    assert list(devices()) == sorted(stems)
    assert {one: device(one).name for one in stems} == {one: one for one in stems}
    assert {"z100sm", *DATA_SHEET} == set(stems)


@pytest.mark.parametrize("name", DATA_SHEET)
def test_peak_is_the_data_sheets(name):
    nominal = dataclasses.replace(device(name), measured_fp32_flops=None)
    assert nominal.fp32_flops == pytest.approx(DATA_SHEET[name] * 1e12, rel=0.01)


def test_z100sm_is_the_papers():
    z = device("z100sm")
    assert (z.compute_units, z.wavefront, z.simds_per_cu, z.waves_per_cu) == (64, 64, 4, 40)
    assert (z.registers_per_cu, z.registers_per_thread) == (65_536, 256)
    assert (z.lds_bytes_per_cu, z.threads_per_block) == (64 * 1024, 1024)
    assert (z.vendor, z.architecture) == ("hygon", "gfx906")


@pytest.mark.parametrize(("name", "threads", "registers"), [
    ("gfx906", 2560, 256), ("gfx908", 2560, 256), ("gfx90a", 2048, 512), ("gfx942", 2048, 512),
    ("rtx2080ti", 1024, 512), ("xavier", 2048, 512), ("v100", 2048, 512), ("a100", 2048, 512),
    ("h100", 2048, 512), ("h200", 2048, 512)])
def test_residency_is_the_manuals(name, threads, registers):
    one = device(name)
    assert one.waves_per_cu * one.wavefront == threads
    assert one.registers_per_simd_lane == registers
    # A limit that binds below one wave per block slot would make the smallest launch impossible.
    assert one.blocks_per_cu <= one.waves_per_cu
    assert one.registers_per_simd_lane % one.register_granularity == 0
    assert one.lds_bytes_per_block % one.lds_granularity_bytes == 0


def test_h200_carries_what_was_measured():
    one = device("h200")
    assert one.bandwidth == pytest.approx(2 * 4 * 2**30 / 3096.998405e-6, rel=1e-7)
    assert one.fp32_flops == pytest.approx(2 * 8192**3 / 21458.94775e-6, rel=1e-7)
    assert one.floor_seconds(0, 0) == 1.0656e-6
    assert one.bandwidth < one.bandwidth_bytes_per_second


def test_names_are_found_in_any_case_and_answers_are_copies():
    assert device("Z100SM") is device("z100sm")
    devices().clear()
    layers().clear()
    networks().clear()
    assert all((devices(), layers(), networks()))


def user_file(folder: Path, **changes: object) -> Path:
    """z100sm as a user's file, with lines replaced, or left out where the change is None."""
    lines = SPECS.joinpath("devices/z100sm.toml").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.partition(" ")[0] not in changes]
    path = folder / "mine.toml"
    path.write_text("\n".join(kept + [f"{key} = {value}" for key, value in changes.items()
                                      if value is not None]), encoding="utf-8")
    return path


def test_a_users_file_is_a_device(tmp_path):
    path = user_file(tmp_path, name='"mine"', lds_bytes_per_block=32_768)
    expected = dataclasses.replace(device("z100sm"), name="mine", lds_bytes_per_block=32_768)
    assert device(path) == device(str(path)) == expected


@pytest.mark.parametrize(("changes", "expected"), [
    ({"registers_per_cu": 0}, "registers_per_cu must be positive, got 0"),
    ({"registers_per_cu": 65536.0}, "registers_per_cu must be an integer, got 65536.0"),
    ({"registers_per_cu": "true"}, "registers_per_cu must be an integer, got True"),
    ({"clock_hz": "nan"}, "clock_hz must be positive and finite, got nan"),
    ({"bandwidth_bytes_per_second": "inf"},
     "bandwidth_bytes_per_second must be positive and finite, got inf"),
    ({"clock_hz": '"fast"'}, "clock_hz must be a number, got 'fast'"),
    ({"wavefront": 48}, "wavefront must be a power of two, got 48"),
    ({"vendor": '"acme"'}, "vendor must be one of hygon, amd, nvidia, host; got 'acme'"),
    ({"lds_bytes_per_block": 65537},
     "lds_bytes_per_block must be at most lds_bytes_per_cu 65536, got 65537"),
    ({"wavefront": None}, "wavefront is missing"),
    ({"title": None, "l2_bytes": None}, "title is missing (and l2_bytes)"),
    ({"l2_byte": 1}, "unknown key 'l2_byte' (did you mean l2_bytes?)"),
    ({"colour": 1}, "unknown key 'colour'"),
])
def test_a_wrong_device_names_file_and_field(tmp_path, changes, expected):
    path = user_file(tmp_path, **changes)
    assert message(device, path) == f"{path}: {expected}"


def test_an_unknown_device_is_answered_with_names():
    shipped = ", ".join(devices())
    assert message(device, "z100") == (
        "no device is named 'z100' (did you mean z100sm or v100 or h100?); shipped are "
        f"{shipped}; or give the path of a .toml file")
    assert message(device, "##").startswith("no device is named '##'; shipped are a100, ")
    assert message(device, 3) == "a device is a name or the path of a .toml file, got 3"


# Files

@pytest.mark.parametrize(("raw", "reason"), [
    (b"a = 1\nb = \xff", "not UTF-8: byte 0xff (at line 2)"),
    (b"a = 1\nb = ", "not TOML: Invalid value (at end of document)"),
    (b"a = 1\na = 2", "not TOML: Cannot overwrite a value (at end of document)"),
    (b"a = 1\n] = 2\n", "not TOML: Invalid statement (at line 2, column 1)"),
])
def test_an_unreadable_file_names_the_line(tmp_path, raw, reason):
    path = tmp_path / "bad.toml"
    path.write_bytes(raw)
    assert message(load_toml, path) == f"{path}: {reason}"
    assert message(device, path) == f"{path}: {reason}"


def test_a_file_that_is_none(tmp_path):
    missing, folder = tmp_path / "missing.toml", tmp_path / "folder.toml"
    folder.mkdir()
    assert message(load_toml, missing) == f"{missing}: cannot be read: No such file or directory"
    assert message(device, folder).startswith(f"{folder}: cannot be read: ")
    assert "cannot be read" in message(load_toml, "null\0.toml")


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "9" * 100_000])
def test_a_hostile_file_is_refused(tmp_path, text):
    path = tmp_path / "bad.toml"
    path.write_text(text, encoding="utf-8")
    assert message(load_toml, path).startswith(f"{path}: not TOML: ")


def test_a_byte_order_mark_and_windows_lines_are_read(tmp_path):
    path = tmp_path / "windows.toml"
    path.write_bytes(b"\xef\xbb\xbfa = 1\r\nb = 2\r\n")
    assert load_toml(path) == {"a": 1, "b": 2}


GOOD_ROW = 'name = "A", channels = 8, size = 14, kernel = 3, stride = 2, padding = 1'


@pytest.mark.parametrize(("row", "expected"), [
    (GOOD_ROW.replace("stride = 2", "stride = 0"), "layer[1].stride must be positive, got 0"),
    (GOOD_ROW.replace("stride = 2", "stride = nan"), "layer[1].stride must be an integer, got nan"),
    (GOOD_ROW.replace("kernel = 3", "kernel = [3, 0]"),
     "layer[1].kernel width must be positive, got 0"),
    (GOOD_ROW.replace("padding = 1", 'padding = "full"'),
     "layer[1].padding must be one of same, valid; got 'full'"),
    (GOOD_ROW.replace("size = 14", "size = inf"), "layer[1].size must be an integer, got inf"),
    (GOOD_ROW.replace("channels = 8", "channels = -8"),
     "layer[1].channels must be positive, got -8"),
    (GOOD_ROW.replace("channels", "in"), "layer[1].out is missing"),
    (GOOD_ROW.replace("size = 14, kernel = 3,", ""), "layer[1].size is missing (and kernel)"),
    (GOOD_ROW.replace("stride", "strid"), "layer[1]: unknown key 'strid' (did you mean stride?)"),
    (GOOD_ROW + ", in = 8", "layer[1].channels stands for in, out and groups; leave out in"),
    (GOOD_ROW.replace('"A"', "7"), "layer[1].name must be a text, got 7"),
    (GOOD_ROW + ', activation = "tanh"',
     "layer[1].activation must be one of none, relu, relu6, silu, hardswish; got 'tanh'"),
    (GOOD_ROW.replace("channels = 8", "in = 8, out = 9, groups = 2"),
     "layer[1]: out_channels must be a multiple of groups: 9 % 2 = 1"),
    (GOOD_ROW.replace("size = 14", "size = 1").replace("padding = 1", "padding = 0"),
     "layer[1]: no output rows or columns: input height 1 + padding 0+0 = 1 is less than the "
     "kernel's 3 (kernel 3, dilation 1)"),
])
def test_a_wrong_layer_names_file_row_and_field(tmp_path, row, expected):
    path = tmp_path / "mine.toml"
    path.write_text(f'title = "t"\nlayer = [ {{ {GOOD_ROW} }}, {{ {row} }} ]', encoding="utf-8")
    found = message(catalog._network, load_toml(path), "layers/mine.toml")
    assert found == f"layers/mine.toml: {expected}"


@pytest.mark.parametrize(("text", "expected"), [
    ("", "title is missing (and layer)"),
    ('title = "t"\nlayer = []', "layer must be an array of tables, got []"),
    ('title = "t"\nlayer = 3', "layer must be an array of tables, got 3"),
    ('title = "t"\nlayer = [3]', "layer[0] must be a table, got 3"),
    ('title = 3\nlayer = [{}]', "title must be a text, got 3"),
    ('title = "t"\ncommon = 3\nlayer = [{}]', "common must be a table, got 3"),
    ('title = "t"\nlayers = [{}]', "unknown key 'layers' (did you mean layer?)"),
])
def test_a_wrong_network_names_file_and_field(tmp_path, text, expected):
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    found = message(catalog._network, load_toml(path), "networks/mine.toml")
    assert found == f"networks/mine.toml: {expected}"


def test_a_row_overrides_what_is_common():
    table = {"title": "t", "common": {"kernel": 1, "activation": "relu", "bias": True},
             "layer": [{"in": 4, "out": 6, "size": [5, 7]},
                       {"channels": 6, "size": 5, "kernel": 3, "activation": "none"}]}
    first, second = catalog._network(table, "networks/mine.toml").layers
    assert first.problem == parse_problem("n1c4h5w7_o6k1_bias_relu")
    assert second.problem == parse_problem("n1c6h5w5_o6k3g6_bias")
    assert (first.name, second.name) == ("mine/1", "mine/2")


def test_importing_reads_no_specification():
    code = ("import sys\n"
            "sys.addaudithook(lambda e, a: e == 'open' and str(a[0]).endswith('.toml') and "
            "print(a[0]))\n"
            "from dscore import catalog\n"
            "print('imported'); catalog.layers()")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = out.stdout.split("imported\n")
    assert before == ""
    assert after.count(".toml") == 3  # the three tables, and so the hook sees what it should


# Layers

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
    asked = {name: shape(problem) for name, problem in layers().items()
             if problem.spec.kind in ("depthwise", "pointwise")}
    nowhere = [name for name, one in asked.items() if not any(one in net for net in held.values())]
    assert nowhere == []
    # ShuffleNetV2 is the paper's at 0.5x: of its layers only D28, which reads the stem, is also
    # in the one of 1.0x.
    half = held.pop("shufflenet_v2_x0_5")
    only_half = [name for name, one in asked.items()
                 if not any(one in net for net in held.values())]
    assert only_half == ["D22", "D23", "D24", "D29", "D30", "P42", "P43", "P44", "P45"]
    assert asked["D28"] in half
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
    found = networks()[name].layers
    specs = [layer.problem.spec for layer in found]
    filters = sum(spec.out_channels * spec.products for spec in specs)
    biases = sum(layer.problem.spec.out_channels * (1 if excites(layer) else 2) for layer in found)
    assert filters + biases + 1000 * (specs[-1].out_channels + 1) == parameters
    assert all(spec.bias for spec in specs)


def excites(layer: catalog.NamedProblem) -> bool:
    return layer.label.endswith(("squeeze", "excite"))


@pytest.mark.parametrize("name", INVERTED)
def test_inverted_residuals_chain(name):
    found = networks()[name].layers
    assert [layer.name for layer in found] == [f"{name}/{at}" for at in range(1, len(found) + 1)]
    wide, size, block_in = 3, 224, 0
    for layer in found:
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
    found = networks()[name].layers
    assert len(found) == count
    for layer in found:
        spec = layer.problem.spec
        assert spec.activation == (None if layer.label.endswith(linear) else activation)
        expected = "same" if name == "efficientnet_b0" else ((spec.kernel[0] - 1) // 2,) * 4
        assert spec.padding == expected
        assert (spec.kind == "depthwise") == layer.label.endswith("depthwise")
        assert layer.problem.out_height == -(-layer.problem.height // spec.stride[0])
    assert ("same" in {layer.problem.spec.padding for layer in found}) == (count == 81)


# Names

@pytest.mark.parametrize(("text", "names"), [
    ("P13", ["P13"]), ("p13", ["P13"]), (" d1 ", ["D1"]),
    ("ResNet-1", ["ResNet-1"]), ("resnet-1", ["ResNet-1"]),
    ("ResNet-1-ResNet-3", ["ResNet-1", "ResNet-2", "ResNet-3"]),
    ("P9-P11", ["P9", "P10", "P11"]), ("P9–p11", ["P9", "P10", "P11"]), ("P9 - P9", ["P9"]),
    ("P1-P45", [f"P{number}" for number in range(1, 46)]),
    ("D1-D30", [f"D{number}" for number in range(1, 31)]),
    ("depthwise", [f"D{number}" for number in range(1, 31)]),
    ("mobilenet_v2/7", ["mobilenet_v2/7"]),
    ("mobilenet_v2/7-mobilenet_v2/9", [f"mobilenet_v2/{number}" for number in (7, 8, 9)]),
    ("MobileNet_V2", [f"mobilenet_v2/{number}" for number in range(1, 53)]),
    ("n1c8h5w5_o8k3s2psameg8", ["n1c8h5w5_o8k3s2p1g8"]),
])
def test_find_resolves_every_form(text, names):
    assert [layer.name for layer in find(text)] == names


def test_find_replaces_the_batch():
    assert all(layer.problem.batch == 1 for layer in find("mobilenet_v2"))
    assert {layer.problem.batch for layer in find("mobilenet_v2", batch=16)} == {16}
    (one,) = find("P13", 8)
    assert one.name == "P13"
    assert one.problem == layers()["P13"].with_batch(8)
    (token,) = find("n4c64h14w14_o384k1", 8)
    assert (token.name, token.problem.batch) == ("n8c64h14w14_o384k1", 8)
    assert find("mobilenet_v2/3", 2)[0].label == "block 1 project"
    assert message(find, "P13", 0) == "batch must be positive, got 0"


FORMS = ("; give a network (efficientnet_b0, mnasnet_b1, mobilenet_v2, shufflenet_v2, "
         "shufflenet_v2_x0_5), a table (depthwise, megakernels, pointwise), a layer "
         "(mobilenet_v2/7, P13), a range (P1-P45) or a problem (n1c64h14w14_o384k1)")


@pytest.mark.parametrize(("text", "expected"), [
    ("mobilnet_v2", f"nothing is named 'mobilnet_v2' (did you mean mobilenet_v2?){FORMS}"),
    ("resnet1", "nothing is named 'resnet1' (did you mean ResNet-1 or ResNet-4 or ResNet-3?)"
                f"{FORMS}"),
    ("???", f"nothing is named '???'{FORMS}"),
    ("", f"nothing is named ''{FORMS}"),
    ("mobilenet_v2/53", "nothing is named 'mobilenet_v2/53': mobilenet_v2 has the layers "
                        "mobilenet_v2/1 to mobilenet_v2/52"),
    ("P1-P99", "nothing is named 'P99' in the range 'P1-P99' (did you mean P9 or P39 or P29?)"
               + FORMS),
    ("P9-P8", "the range 'P9-P8' is empty: its ends must be layers of one table or network, the "
              "earlier first"),
    ("D1-P9", "the range 'D1-P9' is empty: its ends must be layers of one table or network, the "
              "earlier first"),
])
def test_find_says_what_comes_close(text, expected):
    assert message(find, text) == expected


def test_a_token_that_is_none_is_answered_as_a_token():
    assert message(find, "n1c64h14w14").startswith("not a problem: 'n1c64h14w14'")


def test_every_field_of_a_device_is_needed_or_measured():
    optional = {field.name for field in dataclasses.fields(Device)
                if field.default is not dataclasses.MISSING}
    assert all(name.startswith("measured_") for name in optional)
    for entry in SPECS.joinpath("devices").iterdir():
        assert set(load_toml(Path(str(entry)))) >= {
            field.name for field in dataclasses.fields(Device)} - optional
