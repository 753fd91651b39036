"""Kernels are made without reading memory: their blocks may come before the kernel before has
ended, and what they read then may be old."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from emulated_runs import altered

from dscore.algorithms import registry
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving import solver

# Of every algorithm, in all types that have kernels of their own.
CASES = {
    "row_reuse": ("n2c3h9w9_o3k3p1g3", "n2c3h9w9_o3k3p1g3_int8"),
    "channel_vectors": ("n1c8h9w9_o8k3p1g8_float16_nhwc", "n1c8h9w9_o8k3p1g8_int8_nhwc"),
    "channel_distribution": ("n1c32h8w8_o32k1",),
    "channel_sums": ("weight_gradient_n2c8h9w9_o8k3p1g8_float16_nhwc",),
    "tap_sums": ("weight_gradient_n2c8h9w9_o8k3p1g8",),
    "gemm": ("n1c32h8w8_o32k1_bias",), "split_k": ("weight_gradient_n2c32h8w8_o32k1",),
    "gemm_universal": ("n1c32h8w8_o32k1_float16_nhwc_bias", "n1c32h8w8_o32k1_int8_nhwc_bias"),
    "warpgroup_gemm": ("n1c64h8w8_o64k1_float16_nhwc_bias", "n1c64h8w8_o64k1_int8_nhwc_bias"),
    "image_gemm": ("n1c64h7w7_o64k1_float16_bias",),
    "plane_gemm": ("n1c64h8w8_o64k1_float16_bias",), "warpgroup_tf32": ("n1c64h8w8_o64k1",),
    "implicit_gemm": ("n1c16h8w8_o16k3p1",), "implicit_warpgroup": ("n1c32h8w8_o32k3p1",),
    "implicit_gemm_universal": ("n1c16h8w8_o16k3p1_float16_nhwc", "n1c16h8w8_o16k3p1_int8_nhwc"),
    "stem": ("n1c3h8w8_o16k3p1_float16_nhwc_bias", "n1c3h8w8_o16k3p1_int8_nhwc_bias"),
    "stem_sums": ("weight_gradient_n2c3h8w8_o16k3p1_float16_nhwc",),
    "winograd": ("n1c16h8w8_o16k3p1_winograd",),
    "direct": ("n1c4h5w5_o4k3p1g2", "n1c4h5w5_o4k3p1g2_int8")}

RUN = """
import pickle, sys
from pathlib import Path
from emulated_runs import result, unoptimised

backend, plans = unoptimised(Path(sys.argv[1])), pickle.loads(sys.stdin.buffer.read())
backend.prepare(plans)
for plan in plans:
    print(plan.name, flush=True)
    result(backend, plan)
print("done")
"""
MADE = "Kernel(args, shape{maps}).run(args)"
UNREADABLE = """{{
      typename Kernel::Arguments unreadable;
      std::memset(&unreadable, 0, sizeof unreadable);
      Kernel(unreadable, shape{maps});
      Kernel(args, shape{maps}).run(args);
    }}"""


def plan_of(name, token):
    space = solver.solve(parse_problem(token), catalog.device("h200"), algorithm=name)
    return space.plan(int(space.ranked()[0]))


def made_of_nothing(folder):
    """Sources whose kernels are made once without operands before they run; what would only be
    fetched is left alone."""
    copy = altered(folder, "support/bulk_copy.hpp", "  if (elements <= 0) return;\n", "  return;\n")
    portable = copy / "support" / "portable.hpp"
    text = portable.read_text()
    for maps in (", maps[0]", ""):
        right = MADE.format(maps=maps) + ";"
        assert text.count(right) == 1, "the source to be altered has moved"
        text = text.replace(right, UNREADABLE.format(maps=maps))
    portable.write_text(text)
    return copy


def run(copy, plans):
    support = Path(__file__).parent.parent / "support"
    paths = os.pathsep.join([str(support), os.environ.get("PYTHONPATH", "")])
    return subprocess.run([sys.executable, "-c", RUN, str(copy)], input=pickle.dumps(plans),
                          capture_output=True, check=False, env={**os.environ, "PYTHONPATH": paths})


def test_kernels_are_made_without_reading_memory(tmp_path):
    assert set(CASES) == set(registry.names()), "an algorithm without a case"
    plans = [plan_of(name, token) for name, tokens in CASES.items() for token in tokens]
    done = run(made_of_nothing(tmp_path), plans)
    assert done.stdout.split()[-1:] == [b"done"], (done.returncode, done.stdout.split()[-1:],
                                                   done.stderr[-2000:])


@pytest.mark.parametrize(("name", "file", "right", "wrong"), [
    ("row_reuse", "integer_walk.hpp", "const Shape &shape) : Block(args, shape) {\n",
     "const Shape &shape) : Block(args, shape) {\n    fill = Results::zero_of(args);\n"),
    ("implicit_gemm_universal", "tiles.hpp", ": Base(args, shape) {}",
     ": Base(args, shape) { read_zero(args); }")])
def test_a_kernel_that_reads_too_early_is_caught(name, file, right, wrong, tmp_path):
    source = made_of_nothing(tmp_path) / name / file
    assert source.read_text().count(right) == 1, "the source to be altered has moved"
    source.write_text(source.read_text().replace(right, wrong))
    plan, copy = plan_of(name, CASES[name][1]), source.parent.parent
    done = run(copy, [plan])
    assert done.returncode < 0
    assert done.stdout.split() == [plan.name.encode()]
