"""Specs, problems and their tokens: what is accepted, what it means, and what is refused."""

import math
import re
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dscore.algorithms.channel_distribution.tiling import ChannelDistributionTiling
from dscore.algorithms.direct import DirectTiling
from dscore.algorithms.gemm.tiling import GemmTiling
from dscore.algorithms.registry import names, tiling_from
from dscore.algorithms.row_reuse.tiling import RowReuseTiling
from dscore.algorithms.templates import pairs
from dscore.core import catalog, sizes
from dscore.core.device import Device
from dscore.core.errors import SpecError
from dscore.core.numerics import FLOAT_RESULTS, FLOATS, PERMISSIONS, layer_types
from dscore.core.problem import ConvProblem
from dscore.core.spec import ACTIVATIONS, CLAMPS, LAYOUTS, ConvSpec
from dscore.core.token import parse_problem, problem_token
from dscore.ops import compulsory_bytes


@st.composite
def problems(draw):
    groups, dtype = draw(st.integers(1, 4)), draw(st.sampled_from(layer_types()))
    out_dtype = draw(st.sampled_from((None, *FLOAT_RESULTS))) if dtype == "int8" else None
    in_dtype = draw(st.sampled_from((None, *FLOATS))) if dtype == "int8" else None
    taken = ACTIVATIONS if dtype != "int8" else CLAMPS * bool(out_dtype)
    spec = ConvSpec.make(
        groups * draw(st.integers(1, 5)), groups * draw(st.integers(1, 5)), draw(pairs(5)),
        stride=draw(pairs(3)),
        padding=draw(st.one_of(st.just("same"), st.tuples(*[st.integers(0, 3)] * 4))),
        dilation=draw(pairs(3)), groups=groups, dtype=dtype, out_dtype=out_dtype, in_dtype=in_dtype,
        layout=draw(st.sampled_from(LAYOUTS)), bias=draw(st.booleans()),
        activation=draw(st.sampled_from((None, *taken))),
        arithmetic=draw(st.sampled_from(("sum",) if dtype == "int8" else PERMISSIONS)))
    try:
        return ConvProblem(spec, draw(st.integers(1, 3)), draw(st.integers(1, 30)),
                           draw(st.integers(1, 30)), draw(st.sampled_from(("conv", "a", "n_c"))))
    except SpecError:
        assume(False)


@given(problems())
def test_a_token_gives_the_problem_back(problem):
    token = problem_token(problem)
    again = parse_problem(token)
    assert problem_token(again) == token
    assert token.isidentifier()
    assert again.spec.arithmetic == problem.spec.arithmetic
    for name in ("operation", "padding", "x_shape", "y_shape", "macs"):
        assert getattr(again, name) == getattr(problem, name)
    assert compulsory_bytes(replace(again, operation="conv")) == compulsory_bytes(
        replace(problem, operation="conv"))


@given(problems())
def test_the_output_is_what_fits_in_the_padded_input(problem):
    top, bottom, left, right = problem.padding
    for size, out, axis in ((problem.height + top + bottom, problem.out_height, 0),
                            (problem.width + left + right, problem.out_width, 1)):
        span, stride = problem.spec.span[axis], problem.spec.stride[axis]
        starts = [at for at in range(0, size, stride) if at + span <= size]
        assert out == len(starts)


@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 4), st.integers(1, 3))
def test_same_padding_is_tensorflows(size, kernel, stride, dilation):
    spec = ConvSpec.make(1, 1, kernel, stride=stride, padding="same", dilation=dilation)
    problem = ConvProblem(spec, 1, size, size)
    before, after, *_ = problem.padding
    assert problem.out_height == math.ceil(size / stride)
    assert after - before in (0, 1)  # the odd row comes last
    if before + after:  # no more than needed for the last output
        last_end = (problem.out_height - 1) * stride + (kernel - 1) * dilation + 1
        assert last_end == size + before + after


@pytest.mark.parametrize(("padding", "sides"), [
    (2, (2, 2, 2, 2)), ((1, 2), (1, 1, 2, 2)), (((0, 1), (2, 3)), (0, 1, 2, 3)),
    ([4, 3, 2, 1], (4, 3, 2, 1)), ("valid", (0, 0, 0, 0)), ("same", "same"),
    ((1, (0, 2)), (1, 1, 0, 2)),
])
def test_padding_forms(padding, sides):
    assert sizes.sides_of(padding) == sides


@pytest.mark.parametrize(("spec", "kind"), [
    (dict(in_channels=8, out_channels=4, kernel=1), "pointwise"),
    (dict(in_channels=8, out_channels=8, kernel=3, groups=8), "depthwise"),
    (dict(in_channels=8, out_channels=16, kernel=1, groups=8), "depthwise"),
    (dict(in_channels=1, out_channels=4, kernel=3), "depthwise"),
    (dict(in_channels=1, out_channels=4, kernel=1), "pointwise"),
    (dict(in_channels=8, out_channels=8, kernel=1, groups=2), "grouped"),
    (dict(in_channels=8, out_channels=8, kernel=3), "dense"),
])
def test_kinds(spec, kind):
    assert ConvSpec.make(**spec).kind == kind


LAYER = dict(in_channels=8, out_channels=8, kernel=3)
REFUSED = [
    (dict(in_channels=0), "in_channels must be positive, got 0"),
    (dict(out_channels=-3), "out_channels must be positive, got -3"),
    (dict(in_channels=2.5), "in_channels must be an integer, got 2.5"),
    (dict(in_channels=True), "in_channels must be an integer, got True"),
    (dict(in_channels="8"), "in_channels must be an integer, got '8'"),
    (dict(kernel=0), "kernel must be positive, got 0"),
    (dict(kernel=(3, 0)), "kernel width must be positive, got 0"),
    (dict(kernel=(3, 3, 3)), "kernel must be an int or (height, width), got (3, 3, 3)"),
    (dict(kernel=float("nan")), "kernel must be an integer, got nan"),
    (dict(stride=0), "stride must be positive, got 0"),
    (dict(dilation=-1), "dilation must be positive, got -1"),
    (dict(padding=-1), "padding top must be at least 0, got -1"),
    (dict(padding="full"), "padding must be one of same, valid; got 'full'"),
    (dict(padding=(1, 2, 3)), "got (1, 2, 3)"),
    (dict(padding=1.5), "padding top must be an integer, got 1.5"),
    (dict(padding=None), "padding top must be an integer, got None"),
    (dict(groups=3), "in_channels must be a multiple of groups: 8 % 3 = 2"),
    (dict(out_channels=9, groups=2), "out_channels must be a multiple of groups: 9 % 2 = 1"),
    (dict(dtype="float64"), "dtype must be one of float32, float16, bfloat16, int8"),
    (dict(layout="chwn"), "layout must be one of nchw, nhwc; got 'chwn'"),
    (dict(bias=1), "bias must be one of True, False; got 1"),
    (dict(activation="gelu"),
     "activation must be one of none, relu, relu6, silu, hardswish, sigmoid, hardsigmoid"),
    (dict(arithmetic="plain"), "arithmetic must be one of sum, winograd; got 'plain'"),
    (dict(activations="relu"), "unexpected keyword argument 'activations'"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED, ids=[str(case[0]) for case in REFUSED])
def test_bad_layers_are_refused_with_their_numbers(change, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        ConvSpec.make(**{**LAYER, **change})


@pytest.mark.parametrize(("sizes", "message"), [
    ((0, 5, 5), "batch must be positive, got 0"),
    ((1, -5, 5), "height must be positive, got -5"),
    ((1, 5, 2), "input width 2 + padding 0+0 = 2 is less than the kernel's 3"),
    ((1, 2, 5), "input height 2 + padding 0+0 = 2 is less than the kernel's 3"),
    ((2**15, 2**8, 2**8), "more than the 2146435072 that kernels can index; split the batch"),
])
def test_bad_sizes_are_refused_with_their_numbers(sizes, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        ConvProblem(ConvSpec.make(**LAYER), *sizes)


@pytest.mark.parametrize(("change", "message"), [
    (dict(padding=(0, 3 * 10**9, 0, 0)), "height with its padding is 3000000004, more than the"),
    (dict(padding=(0, 0, 2**30, 0)), "width with its padding is 1073741829, more than the 10737"),
    (dict(padding=(0, 2**29, 0, 0), stride=2**15), "536870912 rows of padding below an input"),
    (dict(padding=(2**29, 0, 0, 0), stride=2**15), "536870912 rows of padding above an input"),
    (dict(stride=2**15 + 1), "stride is 32769x32769, more than 32768")])
def test_padding_and_strides_are_no_larger_than_kernels_can_count(change, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        ConvProblem(ConvSpec.make(**{**LAYER, **change}), 1, 4, 5)


# The most that kernels can count, and one more; strides keep the output small.
@pytest.mark.parametrize(("sizes", "padding", "more", "message"), [
    ((1, 1), (0, 2**30 - 1, 0, 0), (0, 2**30, 0, 0), "the height with its padding is 1073741825"),
    ((1, 1), (0, 0, 2**30 - 1, 0), (0, 0, 2**30, 0), "the width with its padding is 1073741825"),
    ((1, 2**20), (2047, 0, 0, 0), (2048, 0, 0, 0), "2048 rows of padding above an input"),
    ((1000, 2**20), (0, 1047, 0, 0), (0, 1048, 0, 0), "1048 rows of padding below an input")])
def test_the_most_that_kernels_can_count_is_taken(sizes, padding, more, message):
    def problem(sides):
        return ConvProblem(ConvSpec.make(1, 1, 1, stride=2**15, padding=sides), 1, *sizes)

    assert problem(padding).padding == padding
    with pytest.raises(SpecError, match=message):
        problem(more)


def test_the_most_elements_are_taken():
    spec = ConvSpec.make(1, 1, 1, stride=2**15)
    assert math.prod(ConvProblem(spec, 1, 2047, 2**20).x_shape) == 2**31 - 2**20
    with pytest.raises(SpecError, match="more than the 2146435072 that kernels can index"):
        ConvProblem(spec, 1, 2048, 2**20)


@pytest.mark.parametrize(("token", "elements"), [
    ("n2c3h5w7_o4k3x2", 2 * 3 * 5 * 7 + 4 * 3 * 3 * 2 + 2 * 4 * 3 * 6),
    ("n2c3h5w7_o4k3x2_bias", 2 * 3 * 5 * 7 + 4 * 3 * 3 * 2 + 4 + 2 * 4 * 3 * 6),
    ("n1c8h5w5_o16k3g8_bias_relu", 8 * 25 + 16 * 9 + 16 + 16 * 9)])
def test_every_operand_is_moved_once_at_least(token, elements):
    problem = parse_problem(token)
    assert compulsory_bytes(problem) == 4 * elements
    short = replace(problem, spec=replace(problem.spec, dtype="bfloat16"))
    assert compulsory_bytes(short) == 2 * elements


@pytest.mark.parametrize("token", [
    "", "P13", "n1c8h5w5", "n1c8h5_o8k3", "n1c8h5w5_o8", "n1c8h5w5_o8k3z2", "n1c8h5w5_o8k3p1x2x3",
    "n1c8h5w5_o8k3_gelu", "n1c8h5w5_o8k3_relu_relu6", "n1c8h5w5_o8k3g3", "n0c8h5w5_o8k3",
    "n-1c8h5w5_o8k3", "n1c8h5w5_o8k3s0", "n1c8h5w5_o8k9", "n1c8h5w5__o8k3",
])
def test_bad_tokens_are_refused(token):
    with pytest.raises(SpecError):
        parse_problem(token)


@pytest.mark.parametrize(("values", "message"), [
    (dict(wave_w=1, wave_c=64, repeat_w=1, repeat_c=4), "missing group_c"),
    (dict(wave_w=1, wave_c=64, repeat_w=1, repeat_c=4, group_c=16, wave_h=2), "unknown wave_h"),
    (dict(wave_w=0, wave_c=64, repeat_w=1, repeat_c=4, group_c=16), "wave_w must be positive"),
    (dict(threads=64, thread_c=1.5), "thread_c must be an integer, got 1.5"),
    (dict(thread_h=1, thread_w=1, lanes_h=1, lanes_w=1, planes=1, staging="l2"),
     "staging must be one of registers, lds, both; got 'l2'"),
    (dict(), "missing"),
])
def test_bad_tilings_are_refused(values, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        tiling_from(values)


TILINGS = [ChannelDistributionTiling(1, 64, 1, 4, 16), DirectTiling(64, 2),
           GemmTiling(64, 64, 32, 32, 8, 1, 16, 3, 2, "tf32x3"),
           RowReuseTiling(7, 1, 1, 7, 8, "both", ahead=True)]


@pytest.mark.parametrize("tiling", TILINGS)
def test_a_tiling_is_read_with_and_without_its_algorithm(tiling):
    assert tiling_from(tiling.as_json()) == tiling_from(tiling.as_dict()) == tiling
    assert list(tiling.as_json()) == ["algorithm", *tiling.as_dict()]


@pytest.mark.parametrize(("algorithm", "message"), [
    ("fourier", f"hint: algorithm must be one of {', '.join(names())}; "
                "got 'fourier'"),
    ([], "hint: algorithm must be one of"), (None, "hint: algorithm must be one of"),
    ("gemm", "hint: not a GemmTiling: missing lanes_c, slices, stages, step_c, tile_c, tile_p, "
             "wave_c, wave_p; unknown thread_c, threads; its fields are tile_c, ")])
def test_a_wrong_algorithm_is_refused(algorithm, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        tiling_from({"algorithm": algorithm, **DirectTiling(64, 2).as_dict()}, "hint")


def test_equal_specs_are_equal_values():
    spec = ConvSpec.make(np.int64(8), 8, (np.int32(3), 3))
    assert spec == ConvSpec.make(8, 8, 3)
    assert hash(spec) == hash(ConvSpec.make(8, 8, 3))
    assert type(spec.in_channels) is int
    assert ChannelDistributionTiling(np.int64(1), 64, 1, 4, 16) == ChannelDistributionTiling(
        1, 64, 1, 4, 16)


def test_a_device_names_the_field_that_is_wrong():
    good = {name: getattr(catalog.device("z100sm"), name) for name in Device.__dataclass_fields__}
    for change, message in [
        (dict(registers_per_cu=0), "registers_per_cu must be positive, got 0"),
        (dict(wavefront=48), "wavefront must be one of 32, 64; got 48"),
        (dict(clock_hz=float("nan")), "clock_hz must be positive and finite, got nan"),
        (dict(bandwidth_bytes_per_second=-1.0), "must be positive and finite, got -1.0"),
        (dict(clock_hz="fast"), "clock_hz must be a number, got 'fast'"),
        (dict(name="Z 100"), "name must be lower-case letters"),
        (dict(vendor="intel"), "vendor must be one of"),
        (dict(lds_bytes_per_block=1 << 17), "lds_bytes_per_block must be at most lds_bytes_per_cu"),
        (dict(threads_per_block=1000), "threads_per_block must be a multiple of wavefront"),
        (dict(registers_per_cu=65535), "registers_per_cu must be a multiple of"),
    ]:
        with pytest.raises(SpecError, match=re.escape(message)):
            Device(**{**good, **change})


class Faulty:
    """An object that raises whatever is asked of it."""

    def __repr__(self):
        raise RuntimeError("no representation")


class Few:
    """An integer that is no int."""

    def __index__(self):
        return 128


@pytest.mark.parametrize("name", [field.name for field in fields(Device)])
def test_junk_in_a_devices_field_is_refused_in_a_few_words(name):
    optional = getattr(catalog.device("gfx906"), name) is None
    free_text = name in ("title", "architecture")
    for junk in (None, 10**5000, "x" * 5000, object(), Faulty(), [10**5000], b"x"):
        if (junk is None and optional) or (isinstance(junk, str) and free_text):
            continue
        with pytest.raises(SpecError) as caught:
            replace(catalog.device("gfx906"), **{name: junk})
        assert len(str(caught.value)) < 1000


def test_a_devices_counts_are_plain_ints():
    device = replace(catalog.device("z100sm"), threads_per_block=Few(), wavefront=np.uint8(64))
    assert device == replace(device, threads_per_block=128, wavefront=64)
    assert {type(device.threads_per_block), type(device.wavefront)} == {int}
