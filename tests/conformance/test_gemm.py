"""The product of matrices on the emulated device: equal to the reference, and its faults caught."""

import numpy as np
import pytest
from emulated_runs import (
    altered,
    checked_under_sanitizers,
    reports_of,
    require_bit_equal,
    require_caught,
    require_right,
    require_silence,
    result,
)
from profiles import deep, mostly_deep, share

from dscore.algorithms.gemm.tiling import GemmTiling
from dscore.backends.emulated import EmulatedBackend
from dscore.backends.reference.backend import ReferenceBackend
from dscore.building.library import sources
from dscore.building.toolchain import Unit, build_library, target
from dscore.checking import bound
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan

MISSING = EmulatedBackend().missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

# Channels, pixels and steps that end with a tile, a vector, both or neither; images of which a
# tile takes part, one or several.
TOKENS = ("n1c32h8w8_o32k1", "n2c37h5w7_o29k1_bias_relu6", "n3c40h3w4_o45k1_bias",
          "n2c23h6w7_o19k1s2p1_bias_hardswish", "n5c17h3w3_o9k1_relu")
GRADIENTS = ("input_gradient_n1c32h8w8_o32k1", "input_gradient_n2c37h5w7_o29k1",
             "input_gradient_n2c40h3w4_o45k1", "input_gradient_n2c23h6w7_o19k1s2p1")


def tiling(tile, wave, lanes_c, slices, step, cluster=1, arithmetic="plain"):
    return GemmTiling(*tile, *wave, lanes_c, slices, *step, cluster, arithmetic)


TILINGS = {
    "z100sm": (tiling((16, 64), (16, 64), 4, 1, (4, 2)), tiling((32, 32), (16, 16), 16, 2, (16, 2)),
               tiling((24, 64), (8, 32), 8, 3, (24, 2))),
    "h200": (tiling((32, 64), (16, 32), 8, 1, (16, 2)), tiling((32, 16), (16, 8), 16, 2, (8, 3)),
             tiling((8, 32), (4, 32), 4, 4, (16, 4), 3), tiling((16, 32), (8, 16), 8, 2, (8, 2), 2),
             tiling((16, 32), (16, 16), 8, 1, (8, 2), 1, "tf32x3"),
             tiling((24, 64), (8, 32), 8, 2, (16, 3), 1, "tf32x3"),
             tiling((16, 48), (8, 48), 8, 1, (24, 4), 2, "tf32x3"))}
# Each tiling on two of the problems, and on a gradient.
PLANS = [make_plan(parse_problem(token), catalog.device(device), t)
         for device, tilings in TILINGS.items() for number, t in enumerate(tilings)
         for token in (TOKENS[number % 5], TOKENS[(number + 3) % 5], GRADIENTS[number % 4])]


@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_bit_for_bit_in_every_order(sizes, monkeypatch):
    require_bit_equal(share(PLANS, sizes), sizes, monkeypatch)


def planned(t, token="n2c37h5w7_o29k1_bias"):
    return make_plan(parse_problem(token), catalog.device("h200"), t)


FETCHED = planned(tiling((16, 32), (8, 16), 8, 2, (8, 2)))
RING = planned(tiling((16, 32), (8, 16), 8, 1, (8, 3)))
SLICES = planned(tiling((8, 16), (8, 16), 8, 3, (12, 3)))
CLUSTER = planned(tiling((16, 32), (8, 16), 8, 2, (8, 3), 3))
SPLIT = planned(tiling((16, 32), (8, 32), 8, 1, (8, 2), 1, "tf32x3"), "n1c36h4w6_o29k1")
TURNED = planned(tiling((16, 32), (16, 16), 8, 1, (8, 3)), "input_gradient_n1c20h5w7_o18k1")
GAPS = planned(tiling((16, 32), (16, 16), 8, 1, (8, 2)), "input_gradient_n1c20h5w7_o18k1s2")
SPLIT_TURNED = planned(tiling((32, 32), (32, 32), 8, 1, (8, 3), 1, "tf32x3"),
                       "input_gradient_n1c36h4w6_o29k1")

WAIT = "    wait_copies<t::stages - 2>();\n"
BARRIER = "    __syncthreads();\n"
PUT = "    arrived(lds + (step + 1) % 2 * t::buffer, step + 1);\n"
JOIN = ("slice_threads;\n  __syncthreads();\n  DSCORE_UNROLL\n"
        "  for (int i = 0; i < t::accumulators; i++)\n    if (slice > 0)")
# Where the source to be altered lies, if not in gemm/kernel.hpp.
FILES = {"last channel masked": "gemm/tiles.hpp", "gap of a stride not left out": "gemm/tiles.hpp",
         **dict.fromkeys(("copies not waited for", "missing barrier in the ring",
                          "ring one buffer short", "missing barrier after the fetched"),
                         "support/ring.hpp"),
         **dict.fromkeys(("slice dropped", "sums over what is still multiplied",
                          "cluster not waited for", "small parts left out"),
                         "support/joined_sums.hpp")}
# The plan, the source as it is, with its fault, and what is said of it.
FAULTS = {
    "copies not waited for": (RING, WAIT, "", "WRONG"),
    "missing barrier in the ring": (
        RING, BARRIER + "    const int ahead", "    const int ahead", "WRONG"),
    "ring one buffer short": (
        RING, "if (ahead < steps) kernel.copy(lds + ahead % t::stages",
        "if (ahead < steps) kernel.copy(lds + ahead % (t::stages - 1)", "WRONG"),
    "missing barrier after the fetched": (FETCHED, PUT + BARRIER, PUT, "WRONG"),
    "slice dropped": (SLICES, "other < t::slices - 1;", "other < t::slices - 2;", "WRONG"),
    "sums over what is still multiplied": (
        SLICES, JOIN, JOIN.replace("  __syncthreads();\n", ""), "WRONG"),
    "cluster not waited for": (
        CLUSTER, "= sums[i];\n  cluster_barrier();", "= sums[i];", "WRONG"),
    "last channel masked": (
        FETCHED, "== 0 || channel < depth(s);", "== 0 || channel < depth(s) - 1;",
        "WRONG"),
    "channels past the last stored": (
        FETCHED, "!wanted(channel_of(i))", "!wanted(channel_of(i) - 1)",
        "wrote outside its output"),
    "channels of a vector of filters turned exchanged": (
        TURNED, "a[i / beside].at[i % beside]", "a[i / beside].at[beside - 1 - i % beside]",
        "WRONG"),
    "gap of a stride not left out": (
        GAPS, "row % Layer::stride_h == 0", "true", "WRONG"),
    "half of a fragment of filters turned": (
        SPLIT_TURNED, "filters + (k + half) * t::filter_row + n * 8",
        "filters + k * t::filter_row + n * 8", "WRONG"),
    "channels of a fragment exchanged": (
        SPLIT, "b[n][0] = Halves(two.at[0]), b[n][1] = Halves(two.at[1]);",
        "b[n][1] = Halves(two.at[0]), b[n][0] = Halves(two.at[1]);", "WRONG"),
    "small parts left out": (SPLIT, "int term = 0; term < 3;", "int term = 2; term < 3;", "WRONG"),
}


@pytest.mark.parametrize("fault", mostly_deep(
    FAULTS, "small parts left out", "channels past the last stored"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    plan, right, wrong, words = FAULTS[fault]
    name = FILES.get(fault, "gemm/kernel.hpp")
    require_caught(tmp_path, monkeypatch, plan, name, right, wrong, words)


@pytest.mark.deep
def test_without_a_fault_nothing_is_said(monkeypatch):
    require_right([FETCHED, RING, SLICES, CLUSTER, SPLIT, TURNED, GAPS, SPLIT_TURNED], monkeypatch)


@pytest.mark.deep
def test_copies_are_made_at_once_or_when_they_are_waited_for(tmp_path, monkeypatch):
    """One order finds a wait that is missing, the others a copy that comes too early."""
    waiting = reports_of(
        RING, altered(tmp_path / "wait", "support/ring.hpp", WAIT, ""), monkeypatch)
    assert waiting["forward"].startswith("WRONG")
    assert waiting["reverse"].startswith("right")
    early = reports_of(RING, altered(
        tmp_path / "early", "support/ring.hpp", "ahead < steps) kernel.copy(lds + ahead %",
        "ahead < steps) kernel.copy(lds + step %"), monkeypatch)
    assert early["reverse"].startswith("WRONG")


# NVIDIA's own NaN, the same with a sign, NumPy's, a signalling one.
@pytest.mark.parametrize("bits", [0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000, 0x7F800001])
def test_a_nan_of_any_bits_stays_one(bits):
    x, w, _ = bound.sample(SPLIT.problem, 0)
    x.view(np.uint32)[0, 5, 1, 2] = bits
    out = np.zeros(SPLIT.problem.y_shape, np.float32)
    EmulatedBackend().compile(SPLIT)(x, w, None, out)
    assert np.isnan(out[0, :, 1, 2]).all()
    assert np.count_nonzero(np.isnan(out)) == 29


def test_arrays_that_begin_amid_a_vector():
    def amid(array):
        memory = np.zeros(array.size + 8, np.float32)
        first = -(memory.ctypes.data // 4) % 4 + 1
        view = memory[first:first + array.size].reshape(array.shape)
        view[...] = array
        return view

    x, w, _ = bound.sample(SPLIT.problem, 0)
    out = amid(np.zeros(SPLIT.problem.y_shape, np.float32))
    EmulatedBackend().compile(SPLIT)(amid(x), amid(w), None, out)
    assert np.array_equal(out, result(ReferenceBackend(), SPLIT))


WIDTHS = """#include "gemm/kernel.hpp"
template <class T>
using Kernel = dscore::Gemm<T, dscore::GemmTiling<8, 32, 4, 32, 4, 8, 32, 2, 1, false, 1, 1, 32>,
                            dscore::Layer<1, 1, 1, 1, 1, 1>, dscore_shape,
                            dscore::Epilogue<T, false, dscore::Activation::none>>;
// Two buffers of 1,472 elements, or 1,792 sums of 4 bytes.
static_assert(Kernel<float>::lds_bytes == 2 * 1472 * 4, "buffers");
static_assert(Kernel<unsigned short>::lds_bytes == 1792 * 4, "sums");
"""


def test_lds_holds_the_sums_of_elements_of_any_width():
    build_library([Unit("widths", WIDTHS)], target("emulated"), include=sources())


@pytest.mark.deep
def test_the_sanitizers_find_nothing(tmp_path):
    plan = planned(tiling((16, 32), (8, 16), 8, 2, (16, 3), 2, "tf32x3"), "n3c20h3w4_o29k1")
    require_silence(checked_under_sanitizers(tmp_path, [plan]))
