"""Registers of the direct kernel: what compilers took, within what is predicted."""

import numpy as np
import pytest

from dscore.algorithms.direct import DirectTiling
from dscore.algorithms.registry import case_of
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving.verdict import validate

Z100SM, H200 = catalog.device("z100sm"), catalog.device("h200")
# Problem, threads, channels of a thread, and the registers that hipcc 5.2 took for gfx906: loops
# that it unrolls wholly, by the filter, by a row, and not at all.
HIPCC = [
    ("n1c3h9w9_o8k3s2p1", 64, 1, 37), ("n1c3h9w9_o8k3s2p1", 1024, 4, 38),
    ("n1c3h224w224_o32k3s2p1", 64, 16, 42), ("n1c3h224w224_o32k3s2p1", 256, 32, 60),
    ("n1c16h14w14_o16k3p1", 1024, 1, 26), ("n1c16h14w14_o16k3p1", 256, 16, 42),
    ("n1c3h224w224_o64k7s2p3", 128, 1, 83), ("n1c3h224w224_o64k7s2p3", 256, 8, 89),
    ("n1c3h224w224_o64k7s2p3", 1024, 16, 34), ("n1c64h28w28_o64k5p2g4", 128, 16, 68),
    ("n1c64h14w14_o256k1", 512, 32, 37), ("n2c2h40w40_o2k20g2", 128, 1, 29),
    ("n1c12h28w28_o2k5x1", 64, 1, 67), ("n1c3h112w112_o8k11", 64, 4, 175),
    ("n8c16h112w112_o2k11_bias_silu", 256, 1, 166), ("n1c3h28w28_o2k32x1s2p16_silu", 64, 1, 100),
    ("n1c5h56w56_o2k3s2_relu6", 1024, 2, 50), ("n1c3h112w112_o2k64x2", 64, 1, 19)]
# Those that spilled at the registers which a block of 1,024 threads leaves them.
SPILLED = [("n8c8h56w56_o7k6s2p3", 1024, 8), ("n1c2h112w112_o6k9s2p4g2", 1024, 4),
           ("n1c16h112w112_o8k3x16p1d2_relu6", 1024, 4), ("n1c32h33w47_o8k7", 1024, 4)]
# The same of nvcc 13.0 for sm_90.
NVCC = [("n1c3h224w224_o2k3s2p1", 128, 1, 64), ("n1c3h224w224_o4k3s2p1", 256, 2, 96),
        ("n1c3h224w224_o16k3s2p1", 256, 8, 107), ("n1c3h224w224_o64k3s2p1", 256, 32, 149),
        ("n1c3h224w224_o8k7s2p3", 128, 4, 63), ("n1c3h224w224_o4k5s2p2", 256, 2, 95),
        ("n1c512h7w7_o512k3p1", 1024, 16, 37)]


def predicted(device, token, threads, thread_c):
    return int(case_of(parse_problem(token), device, DirectTiling(threads, thread_c)).wanted)


@pytest.mark.parametrize(("device", "rows", "most_slack"), [(Z100SM, HIPCC, 30), (H200, NVCC, 50)],
                         ids=["hipcc", "nvcc"])
def test_what_compilers_took_is_within_the_prediction(device, rows, most_slack):
    slack = [predicted(device, *row) - registers for *row, registers in rows]
    assert min(slack) >= 0, rows[int(np.argmin(slack))]
    assert np.mean(slack) < most_slack


@pytest.mark.parametrize("row", SPILLED, ids=str)
def test_what_spilled_is_refused(row):
    token, *fields = row
    verdict = validate(parse_problem(token), DirectTiling(*fields), Z100SM)
    assert "E-VGPR-ALLOC" in [violation.code for violation in verdict.violations]


@pytest.mark.parametrize("threads", [32, 128, 256, 512, 1024])
def test_nvcc_keeps_to_what_a_launch_leaves_a_thread(threads):
    """A block's threads share 65,536 registers, which come in eights; a thread has up to 255."""
    assert max(predicted(H200, f"n1c64h9w9_o512k{k}", threads, 32) for k in (1, 3, 7)) <= min(
        65_536 // threads, 255)
    assert validate(parse_problem("n1c64h9w9_o64k3"), DirectTiling(threads, 16), H200).ok
