"""Kernels ahead of time as a user meets them: built, prepared, carried to another machine."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_calls import Call, process, unwrapped

import dscore
from dscore.backends.emulated import EmulatedBackend
from dscore.building import compilers
from dscore.building.library import Library
from dscore.calling import kernels
from dscore.checking import bound
from dscore.core import backend as backends
from dscore.core.errors import CompileError, SpecError

ONE, TWO, THREE = "n1c4h5w5_o8k3p1g4", "n2c8h6w5_o7k1", "n1c3h7w7_o4k3s2p1"
needs_host = pytest.mark.skipif(compilers.missing_compiler("host") is not None,
                                reason="no g++ or clang++ on this machine")
COUNTING = """#!/bin/sh
[ "$1" = --version ] || echo "$@" >> "HERE/calls"
exec REAL "$@"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """A cache of the test's own, and the count of the compiler's calls."""
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    path, log = tmp_path / "counting", tmp_path / "calls"
    real = compilers.find_compiler("host").path
    path.write_text(COUNTING.replace("HERE", str(tmp_path)).replace("REAL", real))
    path.chmod(0o755)
    monkeypatch.setenv("DSCORE_CXX", str(path))
    forget(monkeypatch)
    return lambda: len(log.read_text().splitlines()) if log.exists() else 0


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this process know of no kernel, as a new one would."""
    monkeypatch.setattr(backends.backend, "_values", {})
    kernels.solved_kernel.cache_clear()


def convolved(token: str) -> tuple[Any, Any]:
    problem = dscore.api.problem_of(token)
    x, w, _ = bound.sample(problem, 0)
    options = dict(stride=problem.spec.stride, padding=problem.spec.padding,
                   groups=problem.spec.groups)
    return dscore.conv(x, w, backend="emulated", **options), dscore.conv(
        x, w, backend="reference", **options)


@needs_host
def test_what_was_built_is_run_and_called_without_a_compiler(call: Call, calls, monkeypatch):
    assert call("build", ONE, THREE, "--target", "emulated").code == 0
    built = calls()
    assert built > 0
    forget(monkeypatch)
    assert call("run", ONE, "--backend", "emulated").code == 0
    forget(monkeypatch)
    result = call("prepare", THREE, ONE, "--backend", "emulated")
    assert result.out.startswith("2 layers, 2 kernels for emulated on z100sm: 0 compiled, 2 found")
    forget(monkeypatch)
    for token in (ONE, THREE):
        ours, reference = convolved(token)
        np.testing.assert_allclose(ours, reference, rtol=1e-4, atol=1e-5)
    assert calls() == built


@pytest.mark.parametrize("failure", [None, CompileError("one of them does not compile")])
def test_run_compiles_several_layers_at_once(call: Call, monkeypatch, failure):
    prepared = []

    def prepare(self, plans, progress=None):
        prepared.append([plan.token for plan in plans])
        if failure is not None:
            raise failure

    monkeypatch.setattr(EmulatedBackend, "prepare", prepare)
    monkeypatch.setattr(EmulatedBackend, "missing", lambda self: None)
    monkeypatch.setattr(EmulatedBackend, "compile",
                        lambda self, plan: backends.backend("reference").compile(plan))
    result = call("run", ONE, TWO, ONE, THREE, "--backend", "emulated")
    assert (result.code, prepared) == (0, [[ONE, TWO, THREE]])
    assert call("run", ONE, ONE, "--backend", "emulated").code == 0
    assert call("run", ONE, TWO, "--backend", "reference").code == 0
    assert len(prepared) == 1


@needs_host
@pytest.mark.deep
def test_what_a_call_or_prepare_built_is_found_by_all(json_of: Callable[..., Any], calls,
                                                      monkeypatch):
    convolved(ONE)
    data = json_of("prepare", ONE, TWO, "--backend", "emulated")
    assert (data["layers"], data["kernels"], data["compiled"], data["found"]) == (2, 2, 1, 1)
    assert data["device"] == "z100sm"
    before, results = calls(), []
    forget(monkeypatch)
    threads = [threading.Thread(target=lambda token=token: results.append(convolved(token)))
               for token in (ONE, TWO) * 8]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 16
    for ours, reference in results:
        np.testing.assert_allclose(ours, reference, rtol=1e-4, atol=1e-5)
    data = json_of("build", ONE, TWO, ONE, "--target", "emulated")
    assert (data["compiled"], data["sizes"], len(data["libraries"])) == (0, "any", 2)
    assert calls() == before


@needs_host
def test_a_file_carries_kernels_to_a_machine_without_a_compiler(
        json_of: Callable[..., Any], call: Call, calls, tmp_path, monkeypatch):
    out = tmp_path / "layers.so"
    assert json_of("build", ONE, "--target", "emulated", "--out", out)["out"] == str(out)
    assert len(Library(out).kernels) == 1
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("DSCORE_CXX", "/nosuch/cxx")
    forget(monkeypatch)
    refused = call("run", ONE, "--backend", "emulated")
    assert refused.code == 3
    assert "/nosuch/cxx" in refused.err
    monkeypatch.setenv("DSCORE_LIBRARIES", str(out))
    for command in ("prepare", "bench"):
        options = ["--peer", "none", "--cache", "hot"] if command == "bench" else []
        result = call(command, ONE, "--backend", "emulated", *options)
        assert (result.code, result.err) == (0, ""), command
    done = process("run", ONE, "--backend", "emulated")
    assert (done.returncode, done.stderr) == (0, "")
    lacking = call("run", TWO, "--backend", "emulated")
    assert lacking.code == 3
    assert f"no kernel of {TWO} for emulated is in {out}" in unwrapped(lacking.err)
    assert not (tmp_path / "elsewhere" / "libraries").exists()


def test_a_report_counts_layers_of_names_problems_and_tokens():
    problem = dscore.api.problem_of(ONE)
    steps: list[tuple[int, int, str]] = []
    report = dscore.prepare([problem, ONE, "P1-P3"], batch=2, backend="reference",
                            progress=lambda *step: steps.append(step))
    assert (report.layers, report.kernels, report.compiled, report.found) == (5, 0, 0, 0)
    assert (report.backend, report.device, steps) == ("reference", "z100sm", [])
    assert dscore.prepare("mobilenet_v2", backend="reference").layers == 52


@pytest.mark.parametrize("layers", ["Q1", ["P1", "nothing"], 3, None])
def test_what_names_no_layer_is_refused(layers):
    with pytest.raises(SpecError):
        dscore.prepare(layers, backend="reference")


def test_a_backend_that_compiles_nothing_says_so(call: Call):
    out = call("prepare", ONE, "--backend", "reference").out
    assert "the backend reference compiles nothing; --backend emulated compiles" in out
    assert "compiles nothing" not in call("prepare", ONE, "--backend", "reference", "-q").out


def test_prepare_of_bad_usage(call: Call):
    assert call("prepare").code == 2
    assert call("prepare", "Q1").code == 2
    assert call("prepare", "P1", "--backend", "nosuch").code == 2
    assert "dscore prepare mobilenet_v2" in call("--help").out


def test_importing_dscore_loads_no_compiler_code_for_prepare():
    code = ("import sys, dscore; dscore.prepare, dscore.load; "
            "print([m for m in ('cffi', 'subprocess') if m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
