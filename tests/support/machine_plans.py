"""Plans of small kernels for gfx906, one for each form of machine code, and their results."""

import os
from pathlib import Path

import numpy as np
from filelock import FileLock
from profiles import DEEP

from dscore.algorithms.channel_distribution.tiling import ChannelDistributionTiling
from dscore.algorithms.channel_vectors.tiling import ChannelVectorsTiling
from dscore.algorithms.direct import DirectTiling
from dscore.algorithms.gemm.tiling import GemmTiling
from dscore.algorithms.gemm_universal.tiling import GemmUniversalTiling
from dscore.algorithms.implicit_gemm.tiling import ImplicitGemmTiling
from dscore.algorithms.implicit_gemm_universal.tiling import ImplicitGemmUniversalTiling
from dscore.algorithms.row_reuse.tiling import RowReuseTiling
from dscore.algorithms.winograd.tiling import WinogradTiling
from dscore.backends.machine_code import disassembly
from dscore.backends.machine_code.objects import kernel_object
from dscore.building.codegen import KernelSource
from dscore.checking import bound
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan

Z100SM = catalog.device("z100sm")


def plan(token, tiling):
    return make_plan(parse_problem(token), Z100SM, tiling)


# Each algorithm with what differs in its machine code, small enough for the interpreter's tests.
PLANS = {
    "gemm": plan("n1c20h9w7_o37k1", GemmTiling(32, 32, 16, 32, 8, 1, 16, 2)),
    "gemm, slices": plan("n1c72h6w6_o24k1_bias_relu6", GemmTiling(16, 32, 16, 32, 8, 4, 32, 2)),
    "gemm, hardswish": plan("n2c9h5w5_o16k1_hardswish", GemmTiling(16, 32, 8, 32, 8, 1, 8, 2)),
    "gemm, silu": plan("n1c8h5w5_o16k1_bias_silu", GemmTiling(16, 32, 8, 32, 8, 1, 8, 2)),
    "gemm, sigmoid": plan("n1c9h3w5_o16k1_sigmoid", GemmTiling(16, 32, 8, 32, 8, 1, 8, 2)),
    "universal": plan("n1c20h5w7_o24k1_nhwc_bias_relu",
                      GemmUniversalTiling(16, 32, 8, 32, 8, 1, 16, 2)),
    "universal, repeated": plan("n2c9h4w5_o13k1s1x2p1_nhwc_bias_hardswish", GemmUniversalTiling(
        8, 32, 8, 32, 8, 1, 12, 2, repeat=3, staged=True)),
    "implicit gemm": plan("n1c5h6w7_o9k3p1_bias_relu",
                          ImplicitGemmTiling(8, 32, 8, 32, 4, 1, 4, 2, 120)),
    "implicit gemm, groups": plan("n2c8h7w6_o12k3s2p1g2",
                                  ImplicitGemmTiling(16, 16, 8, 16, 8, 2, 4, 2, 140)),
    "implicit universal": plan("n1c13h6w7_o9k3p1_nhwc_bias_relu", ImplicitGemmUniversalTiling(
        8, 32, 8, 32, 4, 1, 8, 2, 120)),
    "distribution": plan("n1c48h4w6_o16k1_bias_relu",
                         ChannelDistributionTiling(2, 16, 3, 1, 8)),
    "distribution, masked": plan("n2c7h5w5_o9k1s2_hardswish",
                                 ChannelDistributionTiling(3, 4, 1, 2, 16)),
    "rows": plan("n1c5h9w13_o5k3p1g5_bias", RowReuseTiling(3, 2, 2, 8, 3)),
    "rows through LDS": plan("n2c6h11w14_o6k5s2p2g6_relu",
                             RowReuseTiling(2, 1, 3, 7, 6, staging="both")),
    "column reuse": plan("n1c3h7w35_o6k3x4p1d1x2g3_hardswish",
                         RowReuseTiling(2, 2, 2, 8, 3, column_reuse=True)),
    "channel vectors": plan("n1c13h9w7_o13k3p1g13_bias_relu_nhwc",
                            ChannelVectorsTiling(4, 2, 3, 2, 2, 4)),
    "channel vectors, multiplier": plan("n2c6h8w9_o12k5x3s2p2x1g6_hardswish_nhwc",
                                        ChannelVectorsTiling(2, 8, 2, 3, 1, 2, 2)),
    "winograd": plan("n1c5h9w7_o11k3p1_bias_relu_winograd", WinogradTiling(
        4, 16, 8, 8, 8, 8, 8, 8, 2, 6, 4, 3, lead=2, blocks=5)),
    "winograd, unfused": plan("n2c3h5w6_o9k3_winograd", WinogradTiling(
        2, 16, 8, 8, 8, 8, 8, 4, 2, 4, 4, 5, fused=False)),
    "direct": plan("n2c12h9w6_o8k3s2p1g4_bias", DirectTiling(64, 2)),
}

FURTHER = ("gemm, silu", "gemm, sigmoid", "universal, repeated", "implicit gemm, groups",
           "distribution", "channel vectors, multiplier", "winograd, unfused")
PLANS = {name: one for name, one in PLANS.items() if DEEP or name not in FURTHER}


def prepared(backend):
    """*backend* with the kernels of all plans: one worker builds them, others wait and find them.
    """
    # Beside the cache, which only dscore writes to.
    with FileLock(Path(os.environ["DSCORE_CACHE_DIR"]).with_name("machine_plans.lock")):
        backend.prepare([*PLANS.values()])
    return backend


def result_of(kernel, seed=0, scale=1, infinite=0):
    """The result of random data, larger by a factor *scale*.

    One element in *infinite* of the image and of the filters is infinite.
    """
    out = np.full(kernel.plan.problem.y_shape, np.nan, np.float32)
    inputs = [one if one is None else np.float32(scale) * one
              for one in bound.sample(kernel.plan.problem, seed)]
    if infinite:
        for one in inputs[:2]:
            one.flat[seed % infinite::infinite] = np.inf
    kernel(*inputs, out)
    return out


def opcodes(backend, plan):
    """How often each opcode stands in the machine code of a plan's kernel."""
    source = KernelSource(plan, backend.sizes)
    stored = backend._stored[source.name]
    kernel = kernel_object(stored.library, source.name, backend.architecture)
    code = disassembly.disassemble(kernel, backend.architecture)
    return [one.opcode for one in code]
