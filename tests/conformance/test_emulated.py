"""The emulated device: right in any lane order, equal to the reference, and a finder of faults."""

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from emulated_runs import (
    ORDERS,
    altered,
    require_caught,
    require_right,
    require_silence,
    result,
    sanitized,
)
from profiles import DEEP, deep, mostly_deep, some

import dscore
from dscore.algorithms import registry
from dscore.algorithms.channel_distribution.tiling import ChannelDistributionTiling
from dscore.algorithms.row_reuse.tiling import RowReuseTiling
from dscore.backends.emulated import EmulatedBackend
from dscore.backends.reference.backend import ReferenceBackend
from dscore.building import library
from dscore.building.library import sources
from dscore.checking import bound
from dscore.checking.check import check_plan
from dscore.checking.conformance import conformance
from dscore.core import catalog
from dscore.core.backend import MISPLACED
from dscore.core.errors import LaunchError
from dscore.core.spec import LAYOUTS

MISSING = EmulatedBackend().missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

LAYERS = ("D9", "D24", "D30", "P24", "P43", "P44", "n1c3h15w15_o8k3s2psame_bias_relu6",
          "n2c6h9w9_o4k3g2_bias_hardswish")


@pytest.fixture(scope="module")
def emulated():
    return EmulatedBackend()


@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_bit_for_bit(sizes):
    plans = some([dscore.plan_for(layer, device) for device in ("z100sm", "h200")
                  for layer in LAYERS])
    emulated = EmulatedBackend(sizes=sizes)
    emulated.prepare(plans)
    for plan in plans:
        ours, theirs = result(emulated, plan), result(ReferenceBackend(), plan)
        assert np.array_equal(ours, theirs), plan.name


@pytest.mark.deep
@pytest.mark.parametrize("order", ORDERS)
def test_no_result_depends_on_the_order_of_lanes(order, monkeypatch, emulated):
    monkeypatch.setenv("DSCORE_LANE_ORDER", order)
    report = conformance("emulated", examples=150, seed=1)
    assert report.ok, report.failures
    assert report.devices == ("z100sm", "h200")


def test_an_unknown_lane_order_is_refused(monkeypatch, emulated):
    monkeypatch.setenv("DSCORE_LANE_ORDER", "backwards")
    with pytest.raises(LaunchError, match="DSCORE_LANE_ORDER is backwards; it is forward, reverse"):
        result(emulated, dscore.plan_for("P44"))


POINTWISE = dscore.plan_for("n1c40h6w6_o48k1", tiling=ChannelDistributionTiling(3, 16, 2, 2, 8))
LDS = dscore.plan_for("n1c6h12w12_o6k3p1g6", tiling=RowReuseTiling(4, 2, 3, 6, 6, "lds"))
REGISTERS = dscore.plan_for("n1c6h12w12_o6k3p1g6", tiling=RowReuseTiling(4, 2, 3, 8, 4,
                                                                          "registers", True))
LOOP_BARRIER = """      put(lds + (group + 1) % 2 * buffer);
      __syncthreads();
"""
# The plan, the file, the source as it is, with its fault, and what is said of it.
FAULTS = {
    "missing barrier in the loop": (
        POINTWISE, "channel_distribution/kernel.hpp", LOOP_BARRIER,
        LOOP_BARRIER.replace("      __syncthreads();\n", ""), "WRONG"),
    "divergent barrier": (
        POINTWISE, "channel_distribution/kernel.hpp", LOOP_BARRIER,
        LOOP_BARRIER.replace("__syncthreads", "if (thread % 3) __syncthreads"),
        "divergent rendezvous"),
    "divergent shuffle": (
        POINTWISE, "channel_distribution/kernel.hpp", "sum += DSCORE_SHFL_DOWN(sum, by, G);",
        "if (lane % 2) sum += DSCORE_SHFL_DOWN(sum, by, G);", "divergent rendezvous"),
    "LDS overrun": (
        POINTWISE, "channel_distribution/kernel.hpp",
        "if (e < t::filter_tile) lds[t::input_tile + e]",
        "if (e < t::filter_tile) lds[t::input_tile + e + 5]", "LDS overrun"),
    "LDS overrun by what stands before LDS": (
        POINTWISE, "channel_distribution/kernel.hpp", "T *lds = block_lds<T, 2 * buffer>();",
        "T *lds = block_lds<T, 2 * buffer>();\n"
        "for (int e = thread; e < 64; e += threads) lds[2 * buffer + e] = lds[e - 64];",
        "LDS overrun"),
    "LDS read before it is written": (
        LDS, "support/bulk_copy.hpp", "const int at = (i * movers + thread) * vector;",
        "const int at = (i * movers + thread + 1) * vector;", "WRONG"),
    "unwritten output": (
        POINTWISE, "channel_distribution/kernel.hpp", "if (lane % G == 0 && o < s.out_channels &&",
        "if (lane % G == 0 && o < s.out_channels - 1 &&", "WRONG"),
    "shuffle width of the reduction": (
        POINTWISE, "channel_distribution/kernel.hpp", "DSCORE_SHFL_DOWN(sum, by, G)",
        "DSCORE_SHFL_DOWN(sum, by, G / 2)", "WRONG"),
    "shuffle width of the columns": (
        REGISTERS, "row_reuse/walk.hpp", "neighbour, t::lanes_w);", "neighbour, t::lanes_w / 2);",
        "WRONG"),
    "registers recycled uncleared": (
        LDS, "row_reuse/walk.hpp", "done[j] = 0.0f;", "done[j] += 0.0f;", "WRONG"),
}


@pytest.mark.parametrize("fault", mostly_deep(
    FAULTS, "registers recycled uncleared", "LDS overrun"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    require_caught(tmp_path, monkeypatch, *FAULTS[fault])
    require_right([FAULTS[fault][0]], monkeypatch)


def test_a_launch_after_a_failed_one_is_right(tmp_path):
    copy = Path(shutil.copytree(sources(), tmp_path / "hip_src"))
    path = copy / "channel_distribution/kernel.hpp"
    path.write_text(path.read_text().replace(
        "__syncthreads();", "if (thread % 3 || s.batch == 1) __syncthreads();"))
    broken = EmulatedBackend(include=copy)
    tiling = ChannelDistributionTiling(3, 16, 2, 2, 8)
    twice = dscore.plan_for("n2c40h6w6_o48k1", tiling=tiling)
    with pytest.raises(LaunchError, match=r"divergent rendezvous: .* \(block 0\)"):
        result(broken, twice)
    assert check_plan(broken, POINTWISE, 0).ok


@pytest.mark.parametrize("sizes", ["any", "fixed"])
def test_a_kernel_refuses_another_layout(sizes):
    kernel = EmulatedBackend(sizes=sizes).compile(POINTWISE)
    kernel._loaded._shape.layout += 1
    x, w, bias = bound.sample(POINTWISE.problem, 0)
    with pytest.raises(LaunchError, match="other sizes, or another layout"):
        kernel(x, w, bias, np.empty(POINTWISE.problem.y_shape, np.float32))


def test_a_library_for_fixed_sizes_refuses_others(emulated):
    fixed = EmulatedBackend(sizes="fixed")
    kernel = fixed.compile(POINTWISE)
    kernel._loaded._shape.height += 1
    x, w, bias = bound.sample(POINTWISE.problem, 0)
    with pytest.raises(LaunchError, match="built for other sizes"):
        kernel(x, w, bias, np.empty(POINTWISE.problem.y_shape, np.float32))


@pytest.mark.parametrize("interpreter", ["cpython", "pypy"])
def test_a_start_from_python(emulated, interpreter, monkeypatch):
    python = SimpleNamespace(implementation=SimpleNamespace(name=interpreter))
    monkeypatch.setattr(library, "sys", python)
    loaded = emulated.compile(POINTWISE)._loaded
    x, w, _ = bound.sample(POINTWISE.problem, 0)
    out = np.full(POINTWISE.problem.y_shape, np.nan, np.float32)
    start = loaded.start_on(0)
    places = [array.ctypes.data for array in (x, w)] + [0, out.ctypes.data, 0]
    assert start(*places) == 0
    assert bound.compare(out, bound.expected(POINTWISE.problem, x, w)).ok
    assert start(0, *places[1:]) == MISPLACED
    for error, wrong in ((TypeError, ["x", *places[1:]]), (OverflowError, [-1, *places[1:]]),
                         (OverflowError, [*places[:4], 2**64])):
        with pytest.raises(error):
            start(*wrong)


@pytest.mark.parametrize("interpreter", ["cpython", "pypy"])
def test_a_start_counts_its_arguments(emulated, interpreter, monkeypatch):
    python = SimpleNamespace(implementation=SimpleNamespace(name=interpreter))
    monkeypatch.setattr(library, "sys", python)
    loaded = emulated.compile(POINTWISE)._loaded
    for wrong in ((), (1,) * 4, (1,) * 6):
        with pytest.raises(TypeError):
            loaded.start_on(0)(*wrong)
    with pytest.raises(TypeError):
        loaded.launch(1, 2, 3)


@pytest.mark.parametrize("interpreter", ["cpython", "pypy"])
def test_a_start_makes_several_launches_in_order(interpreter, monkeypatch, tmp_path):
    # A cache of its own: in another one of both may lie in a library of its own.
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path))
    python = SimpleNamespace(implementation=SimpleNamespace(name=interpreter))
    monkeypatch.setattr(library, "sys", python)
    plans = [dscore.plan_for(f"n1c6h5w5_o4k3p1{activation}") for activation in ("", "_relu")]
    both = EmulatedBackend()
    both.prepare(plans)
    kernels = [both.compile(plan)._loaded for plan in plans]
    assert kernels[0]._library is kernels[1]._library
    x, w, _ = bound.sample(plans[0].problem, 0)
    linear, relu = (bound.expected(plan.problem, x, w) for plan in plans)
    out = np.empty(plans[0].problem.y_shape, np.float32)
    addresses = (x.ctypes.data, w.ctypes.data, 0, out.ctypes.data, 0)

    def code(*order):
        out[...] = np.nan
        return kernels[0]._library.start([kernel.call_on(0) for kernel in order])(*addresses)

    for order, last in ((kernels, relu), (kernels[::-1], linear)):
        assert code(*order) == 0
        assert bound.compare(out, last).ok
    kernels[1]._shape.layout += 1
    assert code(*kernels) not in (0, MISPLACED)
    assert bound.compare(out, linear).ok
    assert code(*kernels[::-1]) not in (0, MISPLACED)
    assert np.isnan(out).all()


def test_the_header_and_python_agree(emulated):
    loaded = emulated.compile(POINTWISE)._loaded
    header = loaded._library._lib
    assert header.DSCORE_MISPLACED == MISPLACED
    assert tuple(map(LAYOUTS.index, ("nchw", "nhwc"))) == (header.DSCORE_NCHW, header.DSCORE_NHWC)
    assert header.dscore_abi() == header.DSCORE_ABI == 11
    plans = [POINTWISE, LDS, dscore.plan_for("P44", "h200"), dscore.plan_for("n1c3h4w4_o4k3p1")]
    assert len({type(plan.tiling) for plan in plans}) == 4
    emulated.prepare(plans)
    for kernel in [emulated.compile(plan)._loaded for plan in plans]:
        assert (kernel.operands, kernel.workspace_bytes) == (4, 0)
        assert kernel._kernel.element_bytes == 4


def test_programs_without_python_load_a_library(emulated, tmp_path):
    path = emulated.compile(POINTWISE)._loaded._library.path
    program = tmp_path / "program.c"
    program.write_text("""#include <dlfcn.h>
int main(int n, char **given) {
  void *library = dlopen(given[1], RTLD_NOW);
  return library ? ((int (*)(void))dlsym(library, "dscore_abi"))() : 0;
}
""")
    subprocess.run(["g++", "-x", "c++", program, "-o", tmp_path / "program", "-ldl"], check=True)
    assert subprocess.run([tmp_path / "program", path], check=False).returncode == 11


def test_arrays_nowhere_or_amid_a_vector_are_not_launched_on(emulated):
    loaded = emulated.compile(POINTWISE)._loaded
    for operand in (0, 1, 3):  # x, w and out
        for at in (0, 4096 + loaded.alignment // 2):
            addresses = [4096, 8192, 0, 12288]
            addresses[operand] = at
            with pytest.raises(LaunchError, match="address is 0, or no multiple"):
                loaded.launch(*addresses)
    with pytest.raises(LaunchError, match="address is 0, or no multiple"):
        loaded.launch(4096, 8192, 1, 12288)


def test_arrays_that_do_not_fit_are_refused(emulated):
    kernel = emulated.compile(POINTWISE)
    x, w, _ = bound.sample(POINTWISE.problem, 0)
    out = np.empty(POINTWISE.problem.y_shape, np.float32)
    for bad in ((x[:, 1:], w, None, out), (x.astype(np.float64), w, None, out),
                (x, w, out[0, 0, 0], out), (x, w, None, out[..., ::-1]), (x, None, None, out)):
        with pytest.raises(LaunchError, match="must be"):
            kernel(*bad)


def test_the_sanitizers_find_nothing(tmp_path):
    """Of every sixth algorithm by default: the compiler takes a second for each example."""
    some = [f"--algorithm={name}" for name in registry.names()[::1 if DEEP else 6]]
    require_silence(sanitized(tmp_path, "conformance", "--examples", "32" if DEEP else "8", *some))


def test_the_sanitizers_would_find_it(tmp_path):
    """A read before the input, which no comparison can see as its value is masked off."""
    copy = altered(
        tmp_path, "direct/kernel.hpp",
        "Sum value = {};",
        "Sum value = static_cast<Sum>(plane[(i - 3) * s.width + j]) * 0;")
    done = sanitized(tmp_path, "run", "n1c1h5w5_o1k3p2_bias", "--tiling", "threads=64,thread_c=1",
                     include=copy)
    assert done.returncode != 0
    assert "AddressSanitizer: use-after-poison" in done.stderr


@pytest.mark.deep
def test_every_shipped_device_can_be_emulated(emulated):
    plans = [dscore.plan_for("n1c9h7w7_o18k1", name) for name in sorted(catalog.devices())]
    emulated.prepare(plans)
    assert all(check_plan(emulated, plan, 1).ok for plan in plans)
