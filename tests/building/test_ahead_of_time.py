"""Plans into libraries: what is compared with what, for which device, and what compilers report."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from profiles import mostly_deep
from refusals import message

from dscore import api
from dscore.algorithms.gemm.tiling import GemmTiling
from dscore.building import ahead_of_time, compilers
from dscore.building.ahead_of_time import (
    MOST_SPILLS,
    Comparison,
    build,
    device_for,
    report_of,
    write_kernels,
)
from dscore.building.codegen import KERNELS_PER_UNIT, KernelSource
from dscore.building.library import Library, sources
from dscore.building.reports import Report
from dscore.building.toolchain import target
from dscore.core import catalog
from dscore.core.errors import CompileError, SpecError

# Every family of kernels: exact and masked pointwise, depthwise by registers and by LDS, direct.
SPREAD = ("P42", "P13", "n1c3h13w13_o7k1_bias_relu6", "D27", "D4", "n1c8h9w9_o8k3p1_silu")
KINDS = {"emulated": "host", "gfx906": "hip", "gfx90a": "hip", "sm_90": "nvcc"}
DEVICES = {"emulated": "z100sm", "gfx906": "z100sm", "gfx90a": "gfx90a", "sm_90": "h200"}
SMALL = ("n1c4h5w5_o8k3p1g4_bias_relu6", "n2c8h6w5_o7k1", "n1c3h7w7_o4k3s2p1")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))


def require(name: str) -> None:
    missing = compilers.missing_compiler(KINDS[name])
    if missing:
        pytest.skip(missing)


def kernels_of(layers: tuple[str, ...], device: str, sizes: str = "fixed") -> list[KernelSource]:
    return [KernelSource(api.plan_for(layer, device), sizes) for layer in layers]


def altered(plan, **use):
    return dataclasses.replace(plan, use=dataclasses.replace(plan.use, **use))


def report(symbol: str, registers: int = 10, **fields: int) -> Report:
    return Report(symbol, registers, **{"lds_bytes": 0, "spills": 0, "scratch_bytes": 0, **fields})


# Devices of a target.

@pytest.mark.parametrize(("name", "device"), [
    ("emulated", "z100sm"), ("gfx906", "gfx906"), ("gfx908", "gfx908"), ("gfx90a", "gfx90a"),
    ("gfx90a:xnack-", "gfx90a"), ("sm_90", "h200"), ("sm_90a", "h200"), ("sm_80", "a100"),
    ("sm_75", "rtx2080ti"), ("sm_72", "xavier"), ("sm_70", "v100")])
def test_a_target_has_a_device_to_plan_for(name, device):
    assert device_for(target(name)).name == device


@pytest.mark.parametrize(("name", "device"), [
    ("gfx906", "z100sm"), ("sm_90", "h100"), ("emulated", "h200")])
def test_another_device_of_the_target_may_be_named(name, device):
    assert device_for(target(name), catalog.device(device)).name == device


def test_a_device_of_another_target_is_refused_with_the_numbers():
    fault = message(device_for, target("gfx906"), catalog.device("h200"))
    assert all(part in fault for part in ("sm_90", "wavefronts of 32", "gfx906",
                                          "wavefronts of 64", "z100sm"))
    narrow = dataclasses.replace(catalog.device("z100sm"), wavefront=32)
    assert "wavefronts of 32, the target gfx906" in message(device_for, target("gfx906"), narrow)


def test_a_target_without_a_shipped_device_asks_for_one():
    assert "no device is shipped for the target gfx1030" in message(device_for, target("gfx1030"))
    own = dataclasses.replace(catalog.device("h200"), architecture="gfx1030")
    assert device_for(target("gfx1030"), own) is own


# Reports.

def test_a_report_is_found_by_the_whole_name():
    short, long = "n1c64__a__z100sm", "n1c64__a__z100sm_max"
    reports = {symbol: report(symbol) for symbol in (
        f"_ZN6dscore5entryIN12_GLOBAL__N_1{len(name)}{name}EEEv11dscore_argsNT_5ShapeE"
        for name in (long, short, "x" + short))}
    for name in (short, long):
        one = report_of(name, reports)
        assert one is not None
        assert f"{len(name)}{name}EEE" in one.symbol
    assert report_of("n1c64__a__z100", reports) is None
    assert report_of(short, {}) is None


def test_a_comparison_tells_what_shows_the_solver_wrong():
    plan = api.plan_for("D27")

    def compared(**use: int) -> Comparison:
        return Comparison(plan, plan.use, report("s", **{"lds_bytes": plan.use.lds_bytes, **use}))

    assert compared().faults == ()
    assert compared(lds_bytes=4).faults == ("LDS differs",)
    assert compared(spills=1).faults == ("spills",)
    more = compared(registers=plan.compiled_registers, accumulators=3)
    assert (more.excess, more.faults) == (3, ())
    silent = Comparison(plan, plan.use, None)
    assert (silent.lds_exact, silent.spills, silent.excess, silent.faults) == (True, 0, 0, ())


def test_spills_of_a_plan_that_the_hardware_rules_refuse_are_no_fault():
    tiling = dict(wave_w=28, wave_c=32, repeat_w=1, repeat_c=1, group_c=16)
    plan = api.plan_for("n1c64h28w28_o32k1", "z100sm", "paper", tiling)
    assert plan.use.registers > 256
    assert Comparison(plan, plan.use, report(
        "s", 256, spills=9, lds_bytes=plan.use.lds_bytes)).faults == ()


@pytest.mark.parametrize(("device", "spills", "faults"), [
    ("h200", MOST_SPILLS, ()), ("h200", MOST_SPILLS + 1, ("spills",)), ("z100sm", 1, ("spills",))])
def test_a_few_words_that_nvcc_spills_are_no_fault(device, spills, faults):
    plan = api.plan_for("D27", device)
    compared = Comparison(plan, plan.use, report(
        "s", spills=spills, lds_bytes=plan.use.lds_bytes))
    assert (compared.faults, compared.tolerated) == (faults, not faults)


@pytest.mark.parametrize(("device", "planned", "held", "exact"), [
    ("h200", 1680, 1680, True), ("h200", 1680, 1792, True), ("h200", 1680, 1696, False),
    ("h200", 1680, 1664, False), ("h200", 50228, 0, True), ("h200", 50228, 50228, False),
    ("z100sm", 1656, 1664, False)])
def test_ptxas_may_round_lds_up(device, planned, held, exact):
    plan = altered(api.plan_for("D27", device), lds_bytes=planned)
    assert Comparison(plan, plan.use, report("s", lds_bytes=held)).lds_exact == exact


# Building.

def test_no_kernel_takes_images_for_constant():
    """On sm_90 the kernel before may still write them while one begins (support/portable.hpp)."""
    kernels = list(sources().rglob("*.hpp"))
    assert sources() / "row_reuse/kernel.hpp" in kernels
    for source in kernels:
        match = re.search(r"__ldg\(|ld\.global\.nc|__restrict__|__constant__", source.read_text())
        assert match is None, f"{source.name}: {match}"


@pytest.mark.deep
@pytest.mark.parametrize(("layer", "tiling"), [
    ("P31", dict(wave_w=1, wave_c=12, repeat_w=1, repeat_c=16, group_c=32)),
    ("P31", dict(tile_c=64, tile_p=128, wave_c=32, wave_p=64, lanes_c=8, slices=1, step_c=32,
                 stages=3)),
    ("D1", dict(thread_h=14, thread_w=2, lanes_h=8, lanes_w=56, planes=1, staging="both"))])
def test_blocks_may_have_more_lds_than_cuda_gives_statically(layer, tiling):
    require("sm_90")
    plan = api.plan_for(layer, "h200", tiling=tiling)
    assert plan.use.lds_bytes > 48 * 1024
    compared, = build([KernelSource(plan)], target("sm_90"), jobs=1).kernels.values()
    assert not compared.faults


@pytest.mark.parametrize("sizes", ["fixed", "any"])
def test_an_emulated_library_holds_each_kernel_once(sizes):
    require("emulated")
    kernels = kernels_of((*SMALL, SMALL[0]), "z100sm", sizes)
    steps: list[tuple[int, int, str]] = []
    built = build(kernels, target("emulated"), jobs=1,
                  progress=lambda *step: steps.append(step))
    assert list(built.kernels) == [kernel.name for kernel in kernels[:3]]
    assert steps == [(0, 1, ""), (1, 1, "kernels")]
    assert (built.ok, built.compiled) == (True, 3)
    library, = built.libraries
    table = Library(library).kernels
    for name, kernel in built.kernels.items():
        assert kernel.reported is None
        assert (table[name].threads, table[name].lds_bytes) == (
            kernel.plan.use.threads, kernel.plan.use.lds_bytes)
    assert build(kernels, target("emulated")).compiled == 0


@pytest.mark.skipif(shutil.which("nm") is None, reason="no nm on this machine")
def test_emulated_libraries_share_no_variable():
    require("emulated")
    library, = build(kernels_of(SMALL[:1], "z100sm", "any"), target("emulated")).libraries
    listed = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True,
                            text=True, check=True).stdout.splitlines()
    names = {line.split()[-1] for line in listed}
    assert any(name.startswith("dscore_") for name in names)
    assert [name for name in names if re.match("_Z[A-Z]*6dscore", name)] == []  # the C++ names


@pytest.mark.parametrize("change", [{"lds_bytes": 12}, {"threads": 128}])
def test_a_plan_with_other_numbers_than_the_kernel_does_not_compile(change):
    require("emulated")
    plan = altered(api.plan_for(SMALL[0]), **change)
    with pytest.raises(CompileError, match=r"static assertion failed: (LDS bytes|threads)"):
        build([KernelSource(plan)], target("emulated"))


def test_a_file_replaces_what_was_there_or_leaves_it(tmp_path):
    kernel = KernelSource(api.plan_for(SMALL[0]))
    source = tmp_path / "made.so"
    source.write_bytes(b"new")
    built = ahead_of_time.BuiltKernels(
        target("emulated"), compilers.Compiler("host", shutil.which("true")),
        {kernel.name: Comparison(kernel.plan, kernel.plan.use, None)}, (source,), 1, 0.0)
    (tmp_path / "out.so").write_bytes(b"old")
    write_kernels(tmp_path / "out.so", [kernel], built)
    assert (tmp_path / "out.so").read_bytes().startswith(b"new")
    with pytest.raises(SpecError, match="cannot be written"):
        write_kernels(tmp_path / "nosuch" / "out.so", [kernel], built)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made.so", "out.so"]


def require_as_planned(kernel):
    reported = kernel.reported
    assert reported is not None
    assert kernel.lds_exact
    assert (reported.spills, reported.scratch_bytes) == (0, 0)
    assert 0 < reported.registers <= kernel.plan.device.registers_per_thread
    return reported


@pytest.mark.deep  # .ci/run has them build more layers
@pytest.mark.parametrize("name", ["gfx906", "gfx90a", "sm_90"])
def test_gpu_compilers_report_what_was_planned(name):
    require(name)
    built = build(kernels_of(SPREAD, DEVICES[name]), target(name), jobs=2)
    assert len(built.kernels) == len(SPREAD)
    assert built.ok
    for kernel in built.kernels.values():
        reported = require_as_planned(kernel)
        assert (reported.occupancy_waves is None) == (name == "sm_90")


@pytest.mark.deep
@pytest.mark.parametrize("name", ["gfx906", "gfx90a", "sm_90"])
def test_gpu_compilers_build_products_of_matrices(name):
    require(name)
    device = catalog.device(DEVICES[name])
    lanes = 4 * device.wavefront // 8  # pixels of a row of lanes
    fields = dict(tile_c=64, tile_p=2 * lanes, wave_c=32, wave_p=lanes, lanes_c=8, slices=2,
                  step_c=16, stages=2)
    tilings = [fields]
    if device.asynchronous_copies:
        tilings += [fields | dict(stages=4, cluster=2),
                    fields | dict(tile_p=64, wave_p=32, stages=3, arithmetic="tf32x3")]
    # Moved by vectors, and element by element.
    kernels = [KernelSource(api.plan_for(token, device, tiling=tiling)) for tiling in (
        GemmTiling(**one) for one in tilings)
        for token in ("n2c64h14w14_o96k1", "n2c33h7w7_o70k1s2_bias_relu6")]
    built = build(kernels, target(name), jobs=2)
    for kernel in built.kernels.values():
        require_as_planned(kernel)


@pytest.mark.parametrize("name", mostly_deep(("emulated", "gfx906", "sm_90"), "emulated"))
def test_more_kernels_than_a_unit_holds_make_one_library(name):
    require(name)
    layers = tuple(f"n1c8h{size}w8_o8k1" for size in range(1, KERNELS_PER_UNIT + 2))
    units: list[str] = []
    built = build(kernels_of(layers, DEVICES[name]), target(name), jobs=1,
                  progress=lambda done, total, unit: units.append(unit))
    assert len(built.kernels) == len(layers)
    assert units == ["", "kernels_0", "kernels_1"]
    assert all((kernel.reported is None) == (name == "emulated")
               for kernel in built.kernels.values())
    if name == "emulated":
        library, = built.libraries
        assert set(Library(library).kernels) == set(built.kernels)
