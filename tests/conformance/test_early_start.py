"""Kernels are made without reading memory: their blocks may come before the kernel before has
ended, and what they read then may be old."""

import os
import pickle
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from emulated_runs import altered
from profiles import deep
from random_plans import random_problem

from dscore.algorithms.registry import algorithm, names
from dscore.core import catalog
from dscore.core.errors import InfeasibleError
from dscore.core.numerics import ELEMENTS
from dscore.solving import solver

H200 = catalog.device("h200")

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
MADE = "run(Kernel(args, shape{maps}))"
UNREADABLE = """{{
      typename Kernel::Arguments unreadable;
      std::memset(&unreadable, 0, sizeof unreadable);
      Kernel(unreadable, shape{maps});
      run(Kernel(args, shape{maps}));
    }}"""


def small_plans(name):
    """Of each operation and width of element that an algorithm takes the plan for the smallest of
    some layers, forward ones with a bias."""
    one, random, kinds = algorithm(name), Random(name), {}
    for _ in range(200):
        problem = random_problem(random, one, images=((7, 7), (8, 8), (9, 9)))
        kinds.setdefault((problem.operation, problem.spec.element.bytes), []).append(problem)
    assert {width for _, width in kinds} == {ELEMENTS[dtype].bytes for dtype in one.elements}
    for (operation, _), problems in kinds.items():
        biased = [problem for problem in problems if problem.spec.bias]
        assert biased or operation != "conv"
        yield next(first_plans(name, sorted(biased or problems, key=lambda one: one.macs)))


def first_plans(name, problems):
    """The solver's first plans, of problems that any tiling fits."""
    for problem in problems:
        with suppress(InfeasibleError):
            space = solver.solve(problem, H200, algorithm=name)
            yield space.plan(int(space.ranked()[0]))


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


@pytest.mark.deep
def test_kernels_are_made_without_reading_memory(tmp_path):
    plans = [plan for name in names() for plan in small_plans(name)]
    done = run(made_of_nothing(tmp_path), plans)
    assert done.stdout.split()[-1:] == [b"done"], (done.returncode, done.stdout.split()[-1:],
                                                   done.stderr[-2000:])


@pytest.mark.parametrize(("name", "file", "right", "wrong"), [
    deep("row_reuse", "integer_walk.hpp", "const Shape &shape) : Block(args, shape) {\n",
         "const Shape &shape) : Block(args, shape) {\n    fill = Results::zero_of(args);\n"),
    ("implicit_gemm_universal", "tiles.hpp", ": Base(args, shape) {}",
     ": Base(args, shape) { read_zero(args); }")])
def test_a_kernel_that_reads_too_early_is_caught(name, file, right, wrong, tmp_path):
    source = made_of_nothing(tmp_path) / name / file
    assert source.read_text().count(right) == 1, "the source to be altered has moved"
    source.write_text(source.read_text().replace(right, wrong))
    problem = random_problem(Random(name), algorithm(name), ["int8"], images=[(8, 8)])
    [plan], copy = first_plans(name, [problem]), source.parent.parent
    done = run(copy, [plan])
    assert done.returncode < 0
    assert done.stdout.split() == [plan.name.encode()]
