"""emit and build as a user meets them, with a real compiler, a fake hipcc and none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_calls import SMALL, Call, squeezed, unwrapped, words
from fake_compilers import fake_hipcc

from dscore import api
from dscore.building import ahead_of_time, compilers
from dscore.building.ahead_of_time import BuiltKernels, Comparison
from dscore.building.compilers import Compiler
from dscore.building.reports import Report
from dscore.core.numerics import ELEMENTS, Element

THREE = (SMALL, "n2c8h6w5_o7k1", "n1c3h7w7_o4k3s2p1")
needs_host = pytest.mark.skipif(compilers.missing_compiler("host") is not None,
                                reason="no g++ or clang++ on this machine")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def hipcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes a fake hipcc that reports these numbers, and has dscore use it."""

    def made(**reported: Any) -> Path:
        path = fake_hipcc(tmp_path / "hipcc", **reported)
        monkeypatch.setenv("DSCORE_HIPCC", str(path))
        return path

    return made


@pytest.mark.parametrize("command", ["emit", "build"])
def test_every_command_has_help_and_json(call: Call, command: str) -> None:
    out = call(command, "--help").out
    assert "--json" in out
    assert f"dscore {command} " in out
    assert f"dscore {command} " in call("--help").out


# emit

def test_emit_prints_the_unit_with_the_plans_numbers(call: Call) -> None:
    plan, out = api.plan_for("P13"), call("emit", "P13").out
    assert f"static_assert({plan.name}::threads == {plan.use.threads}" in out
    assert f"static_assert({plan.name}::lds_bytes == {plan.use.lds_bytes}" in out
    assert '#include "gemm/kernel.hpp"' in out
    assert "in_channels = 64, height = 14, width = 14, out_channels = 384" in out


def test_emit_as_json_and_for_any_sizes(json_of: Callable[..., Any]) -> None:
    fixed, any_size = json_of("emit", "D4"), json_of("emit", "D4", "--sizes", "any")
    assert fixed["name"] == fixed["plan"]["name"] == api.plan_for("D4").name
    assert any_size["name"].startswith("any_3x3x")
    assert "dscore_shape" in any_size["unit"]
    assert "_sizes" not in any_size["unit"]


def test_emit_takes_a_tiling_a_batch_and_rules(json_of: Callable[..., Any]) -> None:
    fields = "wave_w=1,wave_c=64,repeat_w=1,repeat_c=4,group_c=8"
    data = json_of("emit", "P28", "--tiling", fields, "--batch", 3, "--rules", "paper",
                   "--device", "gfx906")
    assert data["name"] == "n3c320h7w7_o1280k1__channel_distribution_w1c64_r1x4_g8__gfx906"
    assert data["plan"]["rules"] == "paper"
    assert "dscore::ChannelDistributionTiling<1, 64, 1, 4, 8, 1, 64>" in data["unit"]


def test_emit_permits_an_arithmetic(call: Call, json_of: Callable[..., Any]) -> None:
    layer = ("emit", "n64c64h56w56_o64k3p1", "--device", "h200")
    plain, data = json_of(*layer), json_of(*layer, "--arithmetic", "winograd")
    assert plain["plan"]["tiling"]["algorithm"] != "winograd"
    assert data["plan"]["problem"] == "n64c64h56w56_o64k3p1_winograd"
    assert '#include "winograd/kernel.hpp"' in data["unit"]
    wrong = call(*layer, "--arithmetic", "exact")
    assert wrong.code == 2
    assert "--arithmetic must be one of sum, winograd; got 'exact'" in unwrapped(wrong.err)


# build, with a real host compiler

@needs_host
def test_build_makes_one_library_of_layers(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "layers.so"
    result = call("build", *THREE, SMALL, "--target", "emulated", "--out", out, "--jobs", 1)
    assert result.code == 0, result.err
    assert result.err == ""
    lines = result.out.splitlines()
    assert words(lines[0]) == ["layer", "tiling", "threads", "LDS", "B", "regs"]
    assert "(+1)" in result.out, "the layer that came twice is built once"
    assert lines[-1].startswith("3 kernels, LDS exact, ")
    assert lines[-1].endswith(f" s, {out}")
    assert out.read_bytes()[:4] == b"\x7fELF"
    again = call("build", *THREE, "--target", "emulated").out.splitlines()[-1]
    assert " s from the cache, " in again


@needs_host
def test_build_as_json(json_of: Callable[..., Any]) -> None:
    data = json_of("build", SMALL, SMALL, "--target", "emulated", "--sizes", "any", "--batch", 2)
    assert (data["target"], data["device"], data["sizes"], data["ok"]) == (
        "emulated", "z100sm", "any", True)
    kernel, = data["kernels"]
    assert kernel["layers"] == ["n2" + SMALL[2:]] * 2
    assert kernel["plan"]["use"] == kernel["predicted"]
    assert (kernel["reported"], kernel["faults"], kernel["lds_exact"]) == (None, [], True)
    assert (data["compiled"], data["out"]) == (1, None)
    library, = data["libraries"]
    assert Path(library).exists()


@needs_host
def test_a_plan_that_is_not_the_kernels_ends_with_4(call: Call,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    plan = api.plan_for(SMALL)
    use = dataclasses.replace(plan.use, lds_bytes=plan.use.lds_bytes + 4)
    monkeypatch.setattr(api, "plan_for", lambda *_: dataclasses.replace(plan, use=use))
    result = call("build", SMALL, "--target", "emulated")
    assert (result.code, result.out) == (4, "")
    assert "static assertion failed: LDS bytes" in result.err


# build, with a fake hipcc

def test_what_is_reported_stands_beside_the_plan(call: Call, json_of: Callable[..., Any],
                                                 hipcc: Callable[..., Path]) -> None:
    # Both plans have the same LDS, which the fake compiler reports of all kernels.
    plan = api.plan_for("P30")
    hipcc(vgprs=120, lds=plan.use.lds_bytes)
    result = call("build", "P28", "P30", "P28", "--target", "gfx906", "--device", "z100sm")
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert max(map(len, lines[:-1])) <= 100
    row = next(line for line in lines if line.startswith("P30 "))
    most = plan.compiled_registers
    # The line has no room for the threads.
    assert words(row)[2:] == [*[f"{plan.use.lds_bytes:,}"] * 2, str(most), "120", "0", "7",
                              f"+{120 - most}", "regs"]
    assert lines[-1].startswith("2 kernels, LDS exact, 0 spills, registers within the "
                                "prediction: 0 of 2, ")
    kernel = json_of("build", "P30", "--target", "gfx906")["kernels"][0]
    assert kernel["reported"]["occupancy_waves"] == 7
    assert kernel["excess_registers"] == 120 - api.plan_for("P30", "gfx906").compiled_registers
    assert kernel["plan"]["device"] == "gfx906"


@pytest.mark.parametrize(("said", "verdict", "summary"), [
    ({"lds": 4}, "LDS differs", "1 kernel, LDS differs in 1, 0 spills"),
    ({"spills": 2}, "spills", "1 kernel, LDS exact, 1 kernel with spills")])
def test_a_kernel_that_shows_the_solver_wrong_ends_with_1(
        said: dict[str, int], verdict: str, summary: str, call: Call, tmp_path: Path,
        hipcc: Callable[..., Path]) -> None:
    hipcc(**said)
    out = tmp_path / "out.so"
    result = call("build", "input_gradient:VGG-1", "--target", "gfx906", "--out", out)
    assert result.code == 1
    assert result.out.splitlines()[3].endswith(verdict)
    assert summary in unwrapped(result.out)
    assert squeezed(f"nothing was copied to {out}") in squeezed(result.out)
    assert not out.exists()


def test_a_few_words_that_nvcc_spills_are_said(call: Call, monkeypatch: pytest.MonkeyPatch,
                                               tmp_path: Path) -> None:
    plan = api.plan_for("D30", "h200")
    said = Report("s", 40, lds_bytes=plan.use.lds_bytes, spills=3, scratch_bytes=16)
    compiler = Compiler("nvcc", "nvcc")
    monkeypatch.setattr(compilers, "find_compiler", lambda kind, **options: compiler)
    monkeypatch.setattr(ahead_of_time, "build", lambda kernels, aim, **_: BuiltKernels(
        aim, compiler, {kernels[0].name: Comparison(plan, plan.use, said)},
        (tmp_path / "library.so",), 0, 0.0))
    result = call("build", "D30", "--target", "sm_90")
    assert result.code == 0, result.err
    assert result.out.splitlines()[3].endswith("4 words spilled")
    assert "1 kernel with spills, 1 of them of up to 8 words, which are no fault, registers" in (
        unwrapped(result.out))


def test_a_failing_compiler_ends_with_4(call: Call, hipcc: Callable[..., Path]) -> None:
    path = hipcc(then="echo no such thing >&2; exit 3")
    result = call("build", "D22", "--target", "gfx906")
    assert (result.code, result.out) == (4, "")
    assert f"{path} (fake 1.0) failed with status 3" in unwrapped(result.err)
    assert "no such thing" in result.err


@pytest.mark.parametrize(("name", "variable", "value"), [
    ("gfx906", "DSCORE_HIPCC", "/nosuch/hipcc"), ("sm_90", "DSCORE_NVCC", "/nosuch/nvcc"),
    ("emulated", "DSCORE_CXX", "nosuch++")])
def test_a_missing_compiler_ends_with_3(call: Call, monkeypatch: pytest.MonkeyPatch, name: str,
                                        variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    result = call("build", SMALL, "--target", name)
    assert (result.code, result.out) == (3, "")
    assert value in result.err
    record = {"emulated": "host", "gfx906": "hip", "sm_90": "nvcc"}[name]
    compilers_shown = call("devices").out.partition("\ncompiler ")[2].splitlines()
    assert value in next(line for line in compilers_shown if line.startswith(record + " "))


def test_devices_tells_the_compilers(json_of: Callable[..., Any],
                                     hipcc: Callable[..., Path]) -> None:
    path = hipcc()
    found = {record["kind"]: record for record in json_of("devices")["compilers"]}
    assert list(found) == ["host", "hip", "nvcc"]
    assert found["hip"] == {"kind": "hip", "targets": "gfx...", "path": str(path),
                            "version": "fake 1.0", "origin": "DSCORE_HIPCC", "missing": None,
                            "needs_no_rocm": False, "others": found["hip"]["others"]}


@pytest.mark.parametrize(("line", "part"), [
    ("build P1", "Missing option '--target'"),
    ("build P1 --target gfx", "unknown target 'gfx'; there are emulated, gfx<processor>"),
    ("build P1 --target gfx906 --device h200", "wavefronts of 32, the target gfx906"),
    ("build P1 --target gfx1030", "no device is shipped for the target gfx1030"),
    ("build P1 --target emulated --sizes some", "--sizes must be one of fixed, any"),
    ("build P1 --target emulated --jobs 0", "--jobs must be positive"),
    ("build P1 --target emulated --out nosuch/x.so", "there is no folder nosuch"),
    ("build Q1 --target emulated", "nothing is named 'Q1'"),
    ("build P1 --target emulated --rules lax", "rules must be one of paper, hardware"),
    ("emit P1-P3", "names 3 layers"),
    ("emit P1 --sizes some", "--sizes must be one of fixed, any"),
    ("cache", "Missing command"),
    ("cache empty", "No such command 'empty'"),
    ("cache clear --stale", "No such option: --stale"),
    ("cache prune --max-size 5", "--max-size must be a number and one of B, kB"),
    ("cache prune --older-than 5MB", "--older-than must be a number and one of s, m, h, d, w"),
])
def test_bad_usage_is_refused(call: Call, line: str, part: str) -> None:
    result = call(*line.split())
    assert (result.code, result.out) == (2, "")
    assert part in result.err


def test_a_type_without_a_kernel_ends_with_1(
        call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ELEMENTS, "float64", Element("float64", 8, "double", 2.0**-53))
    for command in (["emit"], ["build", "--target", "emulated"]):
        result = call(*command, "n1c4h5w5_o8k3p1g4_float64")
        assert (result.code, result.out) == (1, "")
        assert "E-DTYPE: dtype of direct is float64, allowed float32, float16" in result.err
