"""Layer and network files gone wrong, and the names by which problems are asked for."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files

import pytest
from refusals import message

from dscore.core import catalog
from dscore.core.catalog import find, layers
from dscore.core.token import parse_problem, problem_token
from dscore.core.toml import load_toml

SPECS = files("dscore._specs")

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
     "layer[1].activation must be one of none, relu, relu6, silu, hardswish, sigmoid, hardsigmoid; "
     "got 'tanh'"),
    (GOOD_ROW.replace("channels = 8", "in = 8, out = 9, groups = 2"),
     "layer[1]: out_channels must be a multiple of groups: 9 % 2 = 1"),
    (GOOD_ROW.replace("size = 14", "size = 1").replace("padding = 1", "padding = 0"),
     "layer[1]: no output rows or columns: input height 1 + padding 0+0 = 1 is less than the "
     "kernel's 3 (kernel 3, dilation 1)"),
])
def test_a_wrong_layer_names_file_row_and_field(tmp_path, row, expected):
    path = tmp_path / "mine.toml"
    path.write_text(f'title = "t"\nlayer = [ {{ {GOOD_ROW} }}, {{ {row} }} ]', encoding="utf-8")
    fault = message(catalog._network, load_toml(path), "layers/mine.toml")
    assert fault == f"layers/mine.toml: {expected}"


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
    fault = message(catalog._network, load_toml(path), "networks/mine.toml")
    assert fault == f"networks/mine.toml: {expected}"


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
            "from dscore.core import catalog\n"
            "print('imported'); catalog.layers()")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = out.stdout.split("imported\n")
    assert before == ""
    assert after.count(".toml") == 3  # the three tables, and so the hook sees what it should


@pytest.mark.parametrize(("text", "names"), [
    ("P13", ["P13"]), ("p13", ["P13"]), (" d1 ", ["D1"]),
    ("ResNet-1", ["ResNet-1"]), ("resnet-1", ["ResNet-1"]),
    ("ResNet-1-ResNet-3", ["ResNet-1", "ResNet-2", "ResNet-3"]),
    ("P9-P11", ["P9", "P10", "P11"]), ("P9–p11", ["P9", "P10", "P11"]), ("P9 - P9", ["P9"]),
    ("P9-11", ["P9", "P10", "P11"]), ("ResNet-1-2", ["ResNet-1", "ResNet-2"]),
    ("mobilenet_v2/7-9", [f"mobilenet_v2/{number}" for number in (7, 8, 9)]),
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


FORMS = ("; give a network (convnext_tiny, densenet161, efficientnet_b0, efficientnet_v2_s, "
         "mamba_conv1d, mnasnet_b1, mobilenet_v2, mobilenet_v3_large, resnet50, "
         "shufflenet_v2, shufflenet_v2_x0_5, vgg16, yolov3), a table (depthwise, megakernels, "
         "pointwise), a layer "
         "(mobilenet_v2/7, P13), a range (P1-P45) or a problem (n1c64h14w14_o384k1)")


@pytest.mark.parametrize(("text", "expected"), [
    ("mobilnet_v2", f"nothing is named 'mobilnet_v2' (did you mean mobilenet_v2 or "
                    f"mobilenet_v3_large?){FORMS}"),
    ("resnet1", "nothing is named 'resnet1' (did you mean ResNet-1 or resnet50 or ResNet-4?)"
                f"{FORMS}"),
    ("???", f"nothing is named '???'{FORMS}"),
    ("", f"nothing is named ''{FORMS}"),
    ("mobilenet_v2/53", "nothing is named 'mobilenet_v2/53': mobilenet_v2 has the layers "
                        "mobilenet_v2/1 to mobilenet_v2/52"),
    ("P1-P99", "nothing is named 'P99' in the range 'P1-P99' (did you mean P9 or P39 or P29?)"
               + FORMS),
    ("P13,P14", f"nothing is named 'P13,P14' (several are separated by spaces){FORMS}"),
    ("P1-99", "nothing is named 'P99' in the range 'P1-99' (did you mean P9 or P39 or P29?)"
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


@pytest.mark.parametrize(("text", "names", "end"), [
    ("P13_float16", ["P13_float16"], "_float16"),
    ("p13_NHWC", ["P13_NHWC"], "_nhwc"),
    ("P1-P2_nhwc_bfloat16", ["P1_nhwc_bfloat16", "P2_nhwc_bfloat16"], "_bfloat16_nhwc"),
    ("weight_gradient:D1_float16_nhwc", ["weight_gradient:D1_float16_nhwc"], "_float16_nhwc"),
    ("mobilenet_v2/2_float32", ["mobilenet_v2/2_float32"], "g32_bias_relu6")])
def test_a_name_may_end_in_a_type_and_a_layout(text, names, end):
    layers = find(text, 4)
    assert [layer.name for layer in layers] == names
    assert all(problem_token(layer.problem).endswith(end) for layer in layers)
    assert {layer.problem.batch for layer in layers} == {4}


def test_a_type_that_comes_twice_is_part_of_no_name():
    assert "nothing is named 'P13_float16_bfloat16'" in message(find, "P13_float16_bfloat16")
