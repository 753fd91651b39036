"""dscore.conv and its kin: arrays of every library, and one table of bad calls."""

import copy
import re
from pathlib import Path

import numpy as np
import pytest

import dscore
from dscore.algorithms.channel_distribution.tiling import ChannelDistributionTiling
from dscore.algorithms.row_reuse.tiling import RowReuseTiling
from dscore.checking import bound
from dscore.core.errors import InfeasibleError, SpecError, UnavailableError
from dscore.core.token import parse_problem

PROBLEM = parse_problem("n2c6h9w7_o12k3s2p0x1x2x0g6_bias_relu6")
X, W, BIAS = bound.sample(PROBLEM, 0)
ASKED = dict(stride=2, padding=((0, 1), (2, 0)), groups=6, activation="relu6")
WANTED = bound.expected(PROBLEM, X, W, BIAS)


def right(y):
    return bound.compare(np.asarray(y), WANTED).ok


def test_numpy():
    y = dscore.conv(X, W, BIAS, **ASKED)
    assert type(y) is np.ndarray
    assert y.shape == PROBLEM.y_shape
    assert y.dtype == np.float32
    assert right(y)


@pytest.mark.parametrize("padding", ["same", "SAME", "Same"])
def test_words_of_padding_are_taken_in_any_case(padding):
    y = dscore.conv(X, W, BIAS, padding=padding, groups=6)
    assert y.shape == (2, 12, 9, 7)
    assert np.array_equal(y, dscore.conv(X, W, BIAS, 1, 1, 1, 6))


def test_inputs_are_left_alone():
    before = copy.deepcopy((X, W, BIAS))
    for array in (X, W, BIAS):
        array.flags.writeable = False
    try:
        assert right(dscore.conv(X, W, BIAS, **ASKED))
    finally:
        for array in (X, W, BIAS):
            array.flags.writeable = True
    for array, kept in zip((X, W, BIAS), before, strict=True):
        assert np.array_equal(array, kept)


@pytest.mark.parametrize("lay_out", [
    np.asfortranarray, lambda a: np.repeat(a, 2, axis=-1)[..., ::2], lambda a: a[..., ::-1].copy(
    )[..., ::-1], lambda a: a.astype(">f4"), lambda a: np.lib.stride_tricks.as_strided(
        np.r_[np.float32(0), a.ravel()][1:], a.shape, a.strides),
], ids=["fortran", "strided", "reversed", "big-endian", "view"])
def test_every_memory_layout_is_right(lay_out):
    y = dscore.conv(lay_out(X), lay_out(W), BIAS, **ASKED)
    assert right(y)
    assert y.dtype == np.dtype("=f4")


def test_a_result_without_elements_is_written_to_its_out():
    """NumPy's strides of a new array without elements are 0, as those of one that is expanded."""
    for make in (np.empty, np.zeros):
        out = make((0, *PROBLEM.y_shape[1:]), np.float32)
        assert dscore.conv(X[:0], W, BIAS, **ASKED, out=out) is out


def test_an_empty_batch_gives_an_empty_result():
    y = dscore.conv(X[:0], W, BIAS, **ASKED)
    assert y.shape == (0, *PROBLEM.y_shape[1:])
    assert y.dtype == np.float32


def test_one_image_gives_one_result():
    alone = np.asfortranarray(X[1])
    y = dscore.conv(alone, W, BIAS, **ASKED)
    assert np.array_equal(y, dscore.conv(X[1:], W, BIAS, **ASKED)[0])
    out = np.full((*y.shape[:2], 2 * y.shape[2]), np.nan, np.float32)[..., ::2]
    assert dscore.conv(alone, W, BIAS, **ASKED, out=out) is out
    assert np.array_equal(out, y)
    with pytest.raises(SpecError, match=r"out has shape \(1, 12, \d+, \d+\), the result has \(12,"):
        dscore.conv(alone, W, BIAS, **ASKED, out=y[None])
    plan = dscore.plan_for(PROBLEM.with_batch(1))
    assert np.array_equal(dscore.conv(alone, W, BIAS, **ASKED, plan=plan), y)


@pytest.mark.parametrize("make", [
    lambda shape: np.full(shape, np.nan, np.float32),
    lambda shape: np.full((*shape[:-1], 2 * shape[-1]), np.nan, np.float32)[..., ::2],
    lambda shape: np.full(shape, np.nan, ">f4"),
], ids=["contiguous", "strided", "big-endian"])
def test_out_is_written_and_returned(make):
    out = make(PROBLEM.y_shape)
    assert dscore.conv(X, W, BIAS, **ASKED, out=out) is out
    assert right(out.astype("=f4"))


def test_out_may_overlap_the_input():
    x, w, _ = bound.sample(parse_problem("n1c4h6w6_o4k3p1g4"), 1)
    alone = dscore.conv(x, w, padding=1, groups=4)
    assert np.array_equal(dscore.conv(x, w, padding=1, groups=4, out=x), alone)


def test_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, w, bias = (torch.from_numpy(array) for array in (X, W, BIAS))
    y = dscore.conv(x, w, bias, **ASKED)
    assert isinstance(y, torch.Tensor)
    assert right(y.numpy())
    assert right(dscore.conv(x.contiguous(memory_format=torch.channels_last), w, bias, **ASKED))
    padded = torch.nn.functional.pad(x, (2, 0, 0, 1))
    theirs = torch.nn.functional.conv2d(padded, w, bias, stride=2, groups=6)
    assert torch.allclose(y, theirs.clamp(0, 6), atol=1e-5)
    out = torch.full(PROBLEM.y_shape, float("nan"))
    assert dscore.conv(x, w, bias, **ASKED, out=out) is out
    assert right(out.numpy())


def test_torch_gradients_are_refused_or_switched_off():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, w, bias = (torch.from_numpy(array) for array in (X, W, BIAS))
    parameter = torch.nn.Parameter(w)
    with pytest.raises(SpecError, match=r"w requires a gradient, and .*dscore\.torch\.conv2d"):
        dscore.conv(x, parameter, bias, **ASKED)
    with torch.no_grad():
        assert right(dscore.conv(x, parameter, bias, **ASKED))


def test_torch_dtypes_the_backend_lacks_are_refused_by_name():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, w = torch.zeros(1, 2, 3, 3), torch.zeros(2, 2, 1, 1)
    with pytest.raises(SpecError, match=r"x is int8, .*quantization=.* or x\.float\(\)"):
        dscore.conv(x.to(torch.int8), w.to(torch.int8))
    with pytest.raises(UnavailableError, match="lies on meta"):
        dscore.conv(torch.zeros(1, 2, 3, 3, device="meta"), torch.zeros(2, 2, 1, 1, device="meta"))


def test_array_api_arrays():
    strict = pytest.importorskip("array_api_strict", reason="array-api-strict is not installed")
    x, w, bias = (strict.asarray(array) for array in (X, W, BIAS))
    y = dscore.conv(x, w, bias, **ASKED)
    assert type(y) is type(x)
    assert right(np.from_dlpack(y))
    one = dscore.conv(x[1, ...], w, bias, **ASKED)
    assert type(one) is type(x)
    assert np.array_equal(np.from_dlpack(one), np.from_dlpack(y)[1])


class OnlyDlpack:
    """A producer that has nothing but the protocol."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device
        self.shape, self.dtype = array.shape, array.dtype

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device


def test_a_bare_producer_is_told_how_to_get_a_result():
    with pytest.raises(SpecError, match=r"has no from_dlpack .* pass np.from_dlpack\(x\)"):
        dscore.conv(OnlyDlpack(X), OnlyDlpack(W), OnlyDlpack(BIAS), **ASKED)


def test_memory_no_backend_reaches_is_refused():
    with pytest.raises(UnavailableError, match="arrays on a GPU are not supported"):
        dscore.conv(OnlyDlpack(X, (2, 0)), OnlyDlpack(W, (2, 0)), groups=6)


def test_a_plan_or_a_tiling_decides_the_kernel():
    x, w, _ = bound.sample(parse_problem("n1c8h5w5_o8k1"), 2)
    wanted = bound.expected(parse_problem("n1c8h5w5_o8k1"), x, w)
    tiling = ChannelDistributionTiling(2, 16, 1, 2, 8)
    for plan in (dscore.plan_for("n1c8h5w5_o8k1", "h200"), tiling, tiling.as_dict()):
        assert bound.compare(dscore.conv(x, w, plan=plan), wanted).ok
    with pytest.raises(InfeasibleError, match="E-LANES"):
        dscore.conv(x, w, plan=ChannelDistributionTiling(1, 4, 1, 1, 8))


ARRAYS = dict(x=np.ones((1, 4, 5, 5), np.float32), w=np.ones((4, 4, 3, 3), np.float32))
F32, OUT = np.float32, np.zeros((1, 4, 3, 3), np.float32)
READ_ONLY = np.zeros((1, 4, 3, 3), np.float32)
READ_ONLY.flags.writeable = False
REFUSED = {
    "x is a list": (dict(x=[[1.0]]), "x must be an array (NumPy, PyTorch, or any with DLPack)"),
    "x is None": (dict(x=None), "x must be an array"),
    "w is a number": (dict(w=3.0), "w must be an array"),
    "x of rank 5": (dict(x=np.ones((1, 1, 4, 5, 5), F32)),
                    "x must have 4 axes (N, C, H, W), or 3 (C, H, W) for one image, got"),
    "x of rank 2": (dict(x=np.ones((5, 5), F32)), "x must have 4 axes"),
    "w of rank 2": (dict(w=np.ones((4, 4), F32)), "w must have 4 axes (out channels"),
    "x of rank 0": (dict(x=np.ones((), F32)), "x must have 4 axes"),
    "channels": (dict(w=np.ones((4, 3, 3, 3), F32)), "x has 4 channels, but w of shape "
                 "(4, 3, 3, 3) with groups=1 takes 3 * 1 = 3"),
    "groups": (dict(groups=2), "takes 4 * 2 = 8"),
    "groups not dividing": (dict(w=np.ones((5, 2, 3, 3), F32), groups=2),
                            "out_channels must be a multiple of groups: 5 % 2 = 1"),
    "groups zero": (dict(groups=0), "groups must be positive, got 0"),
    "groups text": (dict(groups="all"), "groups must be an integer, got 'all'"),
    "no channels": (dict(x=np.ones((1, 0, 5, 5), F32), w=np.ones((4, 0, 3, 3), F32)),
                    "in_channels must be positive, got 0"),
    "no filters": (dict(w=np.ones((0, 4, 3, 3), F32)), "out_channels must be positive, got 0"),
    "no rows": (dict(x=np.ones((1, 4, 0, 5), F32)), "height must be positive, got 0"),
    "no taps": (dict(w=np.ones((4, 4, 0, 3), F32)), "kernel height must be positive, got 0"),
    "kernel too large": (dict(w=np.ones((4, 4, 7, 7), F32)), "is less than the kernel's 7"),
    "stride zero": (dict(stride=0), "stride must be positive, got 0"),
    "stride of three": (dict(stride=(1, 1, 1)), "stride must be an int or (height, width)"),
    "stride float": (dict(stride=1.0), "stride must be an integer, got 1.0"),
    "padding negative": (dict(padding=-1), "padding top must be at least 0, got -1"),
    "padding text": (dict(padding="reflect"), "padding must be one of same, valid"),
    "dilation": (dict(dilation=(1, 0)), "dilation width must be positive, got 0"),
    "activation": (dict(activation="gelu"), "activation must be one of none, relu"),
    "float64": (dict(x=np.ones((1, 4, 5, 5)), w=np.ones((4, 4, 3, 3))),
                "int8; x is float64: pass x.astype(\"float32\"), and so the others"),
    "complex": (dict(x=np.ones((1, 4, 5, 5), "c8"), w=np.ones((4, 4, 3, 3), "c8")),
                "x is complex64"),
    "objects": (dict(x=np.ones((1, 4, 5, 5), object), w=np.ones((4, 4, 3, 3), object)),
                "x is object"),
    "two dtypes": (dict(w=np.ones((4, 4, 3, 3), np.float16)),
                   "all arrays must be of one dtype, got x float32, w float16"),
    "bias shape": (dict(bias=np.ones(3, F32)), "bias must have shape (4,), one per output channel"),
    "bias column": (dict(bias=np.ones((4, 1), F32)), "bias must have shape (4,)"),
    "masked": (dict(x=np.ma.masked_equal(np.ones((1, 4, 5, 5), F32), 1)), "x is a masked array"),
    "out shape": (dict(out=np.zeros((1, 4, 5, 5), F32)),
                  "out has shape (1, 4, 5, 5), the result has (1, 4, 3, 3)"),
    "out dtype": (dict(out=np.zeros((1, 4, 3, 3))), "all arrays must be of one dtype"),
    "out read-only": (dict(out=READ_ONLY), "out is read-only"),
    "out broadcast": (dict(out=np.broadcast_to(OUT[:, :1], OUT.shape)), "out is read-only"),
    "out overlapping itself": (dict(out=np.lib.stride_tricks.as_strided(OUT, OUT.shape,
                                                                        (144, 4, 4, 4))),
                               "out overlaps itself: of its 36 elements"),
    "out is a list": (dict(out=[]), "out must be an array"),
    "backend": (dict(backend="cudnn"), "unknown backend 'cudnn'; there are auto, hip, reference"),
    "plan": (dict(plan="fast"), "plan must be a Plan or a tiling, got str"),
    "plan of another problem": (dict(plan=dscore.plan_for("P13")), "the plan is for n1c64h14w14"),
    "plan of no tiling's fields": (dict(plan=dict(thread_h=1)), "plan: not a RowReuseTiling"),
    "tiling of another kind": (dict(plan=ChannelDistributionTiling(1, 64, 1, 1, 4)),
                               "a ChannelDistributionTiling does not run dense"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_calls_are_refused_with_their_numbers(name):
    change, message = REFUSED[name]
    arguments = {**ARRAYS, **change}
    with pytest.raises(SpecError, match=re.escape(message)) as caught:
        dscore.conv(arguments.pop("x"), arguments.pop("w"), **arguments)
    # Raised by dscore at the door, not in the depths of NumPy.
    assert caught.traceback[-1].path.is_relative_to(Path(dscore.__file__).parent)


def test_mixed_libraries_are_refused():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    with pytest.raises(SpecError, match="must be of one library, got x numpy, w torch"):
        dscore.conv(ARRAYS["x"], torch.ones(4, 4, 3, 3))


def test_nan_in_the_input_reaches_its_outputs_and_no_others():
    x = ARRAYS["x"].copy()
    x[0, 2, 0, 0] = np.nan
    y = dscore.conv(x, ARRAYS["w"])
    assert np.isnan(y[0, :, 0, 0]).all()
    assert np.isnan(y).sum() == 4


def test_questions_take_names_tokens_and_values(tmp_path, monkeypatch):
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path))  # without other tests' compiler reports
    assert dscore.plan_for("P13") == dscore.plan_for(dscore.plan_for("P13").problem)
    assert dscore.solve("P13", rules="paper").legal > 1000
    assert "floor" in str(dscore.explain("D1", "h200"))
    assert str(dscore.plan_for("P13")) in str(dscore.explain(dscore.plan_for("P13")))
    for bad in ("P99", "n1c2", "mobilenet_v2"):
        with pytest.raises(SpecError):
            dscore.plan_for(bad)


def test_a_tiling_is_made_of_its_fields():
    fields = dict(thread_h=3, lanes_h=1, thread_w=1, lanes_w=3, planes=1)
    assert dscore.tiling(fields) == dscore.tiling(**fields) == RowReuseTiling(3, 1, 1, 3, 1)
    assert dscore.tiling(fields, column_reuse=True).column_reuse
    assert dscore.tiling(algorithm="row_reuse", **fields) == dscore.tiling(fields)
    assert dscore.plan_for("n1c1h5w5_o1k3", tiling=fields).tiling == dscore.tiling(fields)
    with pytest.raises(SpecError, match="missing lanes_h, lanes_w, planes"):
        dscore.tiling(thread_h=1, thread_w=1)


def test_trace_counts_the_papers_row_loads():
    strip = dict(thread_w=1, lanes_w=3, planes=1)
    before = dscore.trace("n1c1h5w5_o1k3", dict(thread_h=1, lanes_h=3, **strip))
    after = dscore.trace("n1c1h5w5_o1k3", dict(thread_h=3, lanes_h=1, **strip))
    assert (before.rows_loaded, after.rows_loaded) == (9, 5)
