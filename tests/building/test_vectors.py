"""Vectors of memory move whole: what nvcc makes of kernels' reads, without a GPU."""

import re
import subprocess

import pytest

from dscore.building.codegen import KernelSource, render
from dscore.building.compilers import environment, find_compiler
from dscore.building.headers import sources
from dscore.core import catalog
from dscore.core.errors import UnavailableError
from dscore.core.token import parse_problem
from dscore.solving.solver import solve

# Rings that pass through registers, residuals in each type, and 16-bit sums beside each other.
TOKENS = ("n1c64h14w14_o384k1", "n1c64h14w14_o64k1_bias_residual",
          "n1c64h14w14_o64k1_float16_nhwc_bias_relu_residual",
          "weight_gradient_n1c96h14w14_o96k3p1g96_float16_nhwc",
          "input_gradient_n1c96h14w14_o96k3s2p1g96_bfloat16", "n1c96h14w14_o96k3p1g96_float16_nhwc")


def plans():
    for token in TOKENS:
        space = solve(parse_problem(token), catalog.device("h200"))
        order = [int(at) for at in space.ranked()]
        yield space.plan(order[0])
        through_registers = [at for at in order[:2000] if getattr(space[at], "stages", 0) == 2]
        yield from map(space.plan, through_registers[:1])


@pytest.mark.deep
def test_no_vector_is_read_byte_by_byte(tmp_path):
    try:
        compiler = find_compiler("nvcc")
    except UnavailableError as missing:
        pytest.skip(str(missing))
    unit = tmp_path / "kernels.cu"
    unit.write_text(render([KernelSource(plan) for plan in plans()]))
    subprocess.run([compiler.path, "-std=c++17", "-O3", "-arch=sm_90a", "-I", sources(), "-ptx",
                    unit, "-o", tmp_path / "kernels.ptx"], check=True, capture_output=True,
                   env=environment("nvcc"))
    text = (tmp_path / "kernels.ptx").read_text()
    assert text.count(".entry ") >= len(TOKENS)
    assert re.findall(r"\b(?:ld|st)\.(?:global|shared)\S*\.[usb]8\b", text) == []
