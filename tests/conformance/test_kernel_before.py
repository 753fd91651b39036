"""Kernels behind another one: what that one writes, images, residuals and scales, is read after its
end alone (KernelBefore in hip_src/support/early_start.hpp)."""

import numpy as np
import pytest
from emulated_runs import ORDERS, altered, unoptimised
from profiles import deep
from refusals import needs

from dscore.algorithms.gate.tiling import GateTiling
from dscore.backends.emulated import EmulatedBackend
from dscore.building.library import _ffi
from dscore.checking import bound
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.ops import operands_of
from dscore.solving.solver import make_plan, solve

needs_compiler = needs(EmulatedBackend())
H200 = catalog.device("h200")
# What the kernel before may write.
IMAGES = ("x", "residual", "scale", "gradient")
# The emulated kernel before: at the first wait for it, what it writes comes to its place.
LATE = """
inline struct {
  void *to;
  const void *from;
  unsigned long long bytes;
} late[4];
inline int late_count;
inline void end_kernel_before() {
  while (late_count > 0) {
    --late_count;
    std::memcpy(late[late_count].to, late[late_count].from, late[late_count].bytes);
  }
}
extern "C" __attribute__((weak, visibility("default"))) void dscore_late(
    void *to, const void *from, unsigned long long bytes) {
  late[late_count++] = {to, from, bytes};
}
"""
STRUCT, WAIT = "struct KernelBefore {\n", "  __device__ void wait() const {\n"

GATES = [make_plan(parse_problem("gate_n2c40h7w7_o10k1_float16_nhwc_bias_relu"), H200,
                   GateTiling(64, 4, 2)),
         make_plan(parse_problem("gate_n2c48h9w9_o7k1_int8_outfloat16_nhwc_bias_relu"), H200,
                   GateTiling(64, 4, 4))]


def first_plan(token, name):
    space = solve(parse_problem(token), H200, algorithm=name)
    return space.plan(int(space.ranked()[0]))


# Of each walk and kind of product, tables, residuals and scales among them.
PLANS = {token: first_plan(token, name) for name, tokens in {
    "channel_vectors": (
        "n2c24h9w9_o24k3p1g24_nhwc_bias", "n2c32h14w14_o32k5p2g32_float16_nhwc_bias_silu",
        "n2c32h14w14_o32k5s2p2g32_int8_nhwc_bias_table",
        "n2c48h7w7_o48k3p1g48_int8_nhwc_bias_residual",
        "input_gradient_n2c32h9w9_o32k3p1g32_float16_nhwc"),
    "warpgroup_gemm": (
        "n2c64h7w7_o32k1_float16_nhwc_bias_scaled_residual",
        "n2c16h14w14_o96k1_int8_nhwc_bias_table", "n1c288h9w9_o48k1_int8_nhwc_bias_residual",
        "n2c160h7w7_o64k1_int8_nhwc_bias_scaled_residual",
        "input_gradient_n2c64h7w7_o32k1_bfloat16_nhwc")}.items() for token in tokens}


def late_sources(folder):
    """Kernel sources whose waits end the kernel before."""
    copy = altered(folder, "support/early_start.hpp", STRUCT, LATE + STRUCT)
    early_start = copy / "support" / "early_start.hpp"
    text = early_start.read_text()
    assert text.count(WAIT) == 1, "the source to be altered has moved"
    early_start.write_text(text.replace(WAIT, f"{WAIT}    end_kernel_before();\n"))
    return copy


def behind(backend, plan):
    """The result of a launch behind a kernel that writes the images of random data."""
    inputs, outs = bound.sample(plan.problem, 1), bound.blank(plan.problem)
    loaded = backend.compile(plan)._loaded
    _ffi().cdef("void dscore_late(void *to, const void *from, unsigned long long bytes);",
                override=True)
    arrays = []
    for operand, array in zip(operands_of(plan.problem), inputs, strict=False):
        given = array
        if operand.name in IMAGES and array is not None:
            given = np.full_like(array, 77)
            loaded._library._lib.dscore_late(
                *(_ffi().cast("void *", one.ctypes.data) for one in (given, array)), array.nbytes)
        arrays.append(given)
    addresses = [0 if one is None else one.ctypes.data for one in (*arrays, *outs)]
    assert loaded.start_on(0, True)(*addresses, 0) == 0
    return [np.array(one) for one in outs]


def equal_in(order, late, plan, monkeypatch):
    """Whether a launch behind another gives what one by itself does, in an order of lanes."""
    wanted = bound.blank(plan.problem)
    EmulatedBackend().compile(plan)(*bound.sample(plan.problem, 1), *wanted)
    monkeypatch.setenv("DSCORE_LANE_ORDER", order)
    return all(map(np.array_equal, wanted, behind(late, plan)))


@needs_compiler
@pytest.mark.parametrize("plan", [
    GATES[0], deep(GATES[1]), *(plan if "_table" in token else deep(plan)
                                for token, plan in PLANS.items())], ids=lambda plan: plan.name)
def test_images_are_read_behind_the_end_of_the_kernel_before(plan, tmp_path, monkeypatch):
    late = unoptimised(late_sources(tmp_path))
    assert all(equal_in(order, late, plan, monkeypatch) for order in ORDERS)


FAULTS = {
    "a gate": (GATES[0], "gate/kernel.hpp", "    before.wait_for_images();\n", ""),
    "a tile": (PLANS["n2c32h14w14_o32k5s2p2g32_int8_nhwc_bias_table"],
               "channel_vectors/block.hpp", "    before.wait_for_images();\n", ""),
    "a copy": (PLANS["n2c160h7w7_o64k1_int8_nhwc_bias_scaled_residual"],
               "warpgroup_gemm/copies.hpp", "    before.wait_for_images();\n", "")}


@needs_compiler
@pytest.mark.parametrize("fault", [deep("a gate"), "a tile", deep("a copy")])
def test_a_kernel_that_does_not_wait_is_caught(fault, tmp_path, monkeypatch):
    plan, name, right, wrong = FAULTS[fault]
    copy = late_sources(tmp_path)
    text = (copy / name).read_text()
    assert text.count(right) == 1, "the source to be altered has moved"
    (copy / name).write_text(text.replace(right, wrong))
    late = unoptimised(copy)
    assert not all(equal_in(order, late, plan, monkeypatch) for order in ORDERS)
