"""The contract of an algorithm: those that are shipped keep it, and a toy of one file is taken."""

import importlib.util
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
import toy_algorithm

import dscore
from dscore.algorithms import base, registry
from dscore.backends.emulated import EmulatedBackend
from dscore.building.library import sources
from dscore.checking.check import check_plan
from dscore.checking.conformance import conformance
from dscore.core import catalog
from dscore.core.errors import SpecError
from dscore.core.token import parse_problem
from dscore.solving import solver

PAPERS = (sources().parent / "docs" / "papers.md")
needs_compiler = pytest.mark.skipif(EmulatedBackend().missing() is not None,
                                    reason=str(EmulatedBackend().missing()))


@pytest.fixture
def toy():
    registry.register("toy", "toy_algorithm:Toy")
    yield registry.algorithm("toy")
    registry.unregister("toy")


@pytest.mark.parametrize("name", registry.names())
def test_an_algorithm_is_whole(name):
    one = registry.algorithm(name)
    assert one.name == one.tiling.algorithm == name
    assert one.include == f'#include "{name}/kernel.hpp"'
    assert (sources() / name / "kernel.hpp").is_file()
    assert importlib.util.find_spec(f"dscore.backends.reference.{name}")
    assert callable(one.cases().templates)
    assert callable(one.cases().problems)
    # Of a network; the papers' layers have more channels.
    first = parse_problem("n1c3h224w224_o32k3s2p1")
    assert any(not one.runs(replace(problem, spec=replace(problem.spec, layout=layout)))
               for problem in (first, *catalog.layers().values()) for layout in one.layouts)
    assert f"`dscore.algorithms.{name}" in PAPERS.read_text()


def test_what_lacks_a_duty_is_refused(monkeypatch):
    class Half(toy_algorithm.Toy):
        footprint = base.Algorithm.footprint

    class Other(toy_algorithm.Toy):
        name = "other"

    for cls, words in ((Half, "abstract method '?footprint"), (Other, "calls itself other"),
                       (object, "not an Algorithm")):
        monkeypatch.setattr(toy_algorithm, "Candidate", cls, raising=False)
        registry.register("toy", "toy_algorithm:Candidate")
        try:
            with pytest.raises(TypeError, match=words):
                registry.algorithm("toy")
        finally:
            registry.unregister("toy")
    with pytest.raises(SpecError, match="unknown algorithm 'toy'; there are warpgroup_gemm, "):
        registry.algorithm("toy")


def test_a_shipped_algorithm_that_a_program_hid_comes_back():
    shipped, order = registry.algorithm("direct"), registry.names()
    registry.register("direct", "toy_algorithm:Toy")
    try:
        assert registry.names() == ("direct", *order[:-1])
        with pytest.raises(TypeError, match="calls itself toy"):
            registry.algorithm("direct")
    finally:
        registry.unregister("direct")
    assert registry.names() == order
    assert type(registry.algorithm("direct")) is type(shipped)


@pytest.mark.parametrize("name", ["direct", "toy"])
def test_what_no_program_registered_is_not_forgotten(name):
    with pytest.raises(SpecError, match=f"the algorithm '{name}' is not registered by a program"):
        registry.unregister(name)
    assert registry.algorithm("direct").name == "direct"


def test_other_threads_miss_no_algorithm_while_one_is_registered():
    problem, missed, done = parse_problem("n1c3h9w9_o8k3"), [], threading.Event()

    def look():
        while not done.is_set():
            try:
                shipped = [one.name for one in registry.running(problem)]
                missed.extend(() if shipped == ["implicit_gemm", "direct"] else [shipped])
            except SpecError as error:
                missed.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(300):
            # The toy runs pointwise layers alone.
            registry.register("toy", "toy_algorithm:Toy")
            registry.unregister("toy")
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert not missed


def test_a_toy_is_solved_explained_and_read(toy, call):
    problem, device = parse_problem("n1c7h5w3_o6k1_bias_relu"), catalog.device("z100sm")
    space = solver.solve(problem, device)
    assert (space.algorithm, len(space)) == (toy, 3)
    plan = space.plan(int(space.ranked()[0]))
    assert registry.tiling_from(plan.tiling.as_json()) == plan.tiling
    assert "toy_t" in plan.name
    # The toy's own limit keeps 0 of 0, and limits that cannot bind are counted only.
    assert "E-LANES" not in call("explain", "n1c7h5w3_o6k1_bias_relu").out
    shown = call("explain", "n1c7h5w3_o6k1_bias_relu", "--verbose").out
    assert "a lane: 1 output" in shown
    assert "E-LANES" in shown
    assert "toy" in call("space", "n1c7h5w3_o6k1_bias_relu").out


@needs_compiler
def test_a_toy_runs_and_conforms_on_the_emulated_device(toy, call):
    report = conformance("emulated", examples=40, seed=1, algorithms=["toy"])
    assert report.ok, report.failures
    assert report.examples == {"toy": 40}
    x = np.random.default_rng(0).standard_normal((2, 7, 5, 3), dtype=np.float32)
    w = np.random.default_rng(1).standard_normal((6, 7, 1, 1), dtype=np.float32)
    tiling = {"algorithm": "toy", "threads": 64}
    y = dscore.conv(x, w, backend="emulated", plan=tiling)
    np.testing.assert_allclose(y, np.einsum("nchw,oc->nohw", x, w[..., 0, 0]), atol=1e-5)
    # A backend that has no kernel of it is given the next algorithm.
    np.testing.assert_allclose(y, dscore.conv(x, w, backend="reference"), atol=1e-5)
    assert call("run", "n1c7h5w3_o6k1", "--backend", "emulated", "--tiling",
                "algorithm=toy,threads=64").code == 0
    assert "E-ALGORITHM" in call("run", "n1c7h5w3_o6k1", "--backend", "reference", "--tiling",
                                 "algorithm=toy,threads=64").err


@needs_compiler
def test_a_bug_in_a_toy_is_found(toy, monkeypatch):
    right, wrong = "c < s.in_channels", "c < s.in_channels - 1"
    assert toy_algorithm.KERNEL.count(right) == 1
    monkeypatch.setattr(type(toy), "include", toy_algorithm.KERNEL.replace(right, wrong))
    problem = parse_problem("n1c9h4w3_o5k1")
    plan = solver.make_plan(problem, catalog.device("z100sm"), toy_algorithm.ToyTiling(128))
    assert not check_plan(EmulatedBackend(), plan, 0).ok
