"""GPUs of which no file is shipped: plans for what a made-up driver reports, built and emulated."""

import numpy as np
import pytest
from emulated_runs import result
from made_up_driver import MI250, RTX_4080, made_up

from dscore.backends import hip
from dscore.backends.emulated import EmulatedBackend
from dscore.building import kernels
from dscore.building.ahead_of_time import build, device_for
from dscore.building.codegen import KernelSource
from dscore.building.compilers import missing_compiler
from dscore.building.toolchain import target
from dscore.checking.check import check_plan
from dscore.core import backend as backends
from dscore.core import catalog
from dscore.core.errors import UnavailableError
from dscore.core.token import parse_problem
from dscore.measuring import gpu_description
from dscore.solving.verdict import validate
from dscore.tuning.shipped_hints import untuned_plan

SMALL = tuple(map(parse_problem, ("n1c6h9w7_o6k3p1g6", "n2c20h6w5_o24k1_bias_relu6")))
PARTS = pytest.mark.parametrize(("properties", "architecture", "compiler"), [
    (RTX_4080, "sm_89", "nvcc"), (MI250, "gfx90a", "hip")], ids=["sm_89", "gfx90a"])


@pytest.fixture
def backend(properties, monkeypatch):
    """The backend of a machine whose driver reports *properties*, and whose compiler is there."""
    runtime, _ = made_up(properties)
    monkeypatch.setattr(hip, "runtime", lambda vendor: runtime)
    monkeypatch.setattr(hip.HipBackend, "vendor", runtime.vendor)
    return hip.HipBackend()


@PARTS
def test_an_unknown_part_plans_every_layer(backend, architecture, compiler):
    device = backend.device()
    assert device.architecture == architecture
    assert device.name not in catalog.devices()
    for problem in list(catalog.layers().values())[::8]:
        plan = untuned_plan(problem.with_batch(8), device, backend=backend)
        assert plan.device == device
        assert validate(plan.problem, plan.tiling, device, masked=plan.masked).ok
        assert backend.refuses(plan) == ()


@pytest.mark.deep
@PARTS
def test_its_kernels_are_built_for_its_target(backend, architecture, compiler):
    device = backend.device()
    assert device_for(target(architecture), device) is device
    missing = missing_compiler(compiler)
    if missing:
        pytest.skip(missing)
    plans = [untuned_plan(problem, device, backend=backend) for problem in SMALL]
    built = build([KernelSource(plan) for plan in plans], target(architecture))
    assert built.ok
    assert len(built.kernels) == len(SMALL)


@PARTS
def test_the_emulated_run_of_its_plans_is_right(backend, architecture, compiler):
    plans = [untuned_plan(problem, backend.device(), backend=backend) for problem in SMALL]
    emulated = EmulatedBackend()
    emulated.prepare(plans)
    for plan in plans:
        assert check_plan(emulated, plan, seed=3).ok
        assert np.isfinite(result(emulated, plan)).all()


@pytest.mark.parametrize("properties", [RTX_4080])
def test_a_device_within_a_capture_is_not_measured(backend, monkeypatch):
    measured = []
    monkeypatch.setattr(gpu_description, "measured",
                        lambda *arguments: measured.append(arguments))
    monkeypatch.setattr(hip, "capturing", lambda: True)
    assert backend.device().name == "nvidia_geforce_rtx_4080_76cu"
    assert measured == []


@pytest.fixture
def gpu_without_compiler(monkeypatch):
    """The backend of a machine with an NVIDIA GPU and its driver, without nvcc or kernel files."""
    runtime, _ = made_up(RTX_4080)
    reasons = {"amd": "no AMD GPU", "nvidia": None}
    monkeypatch.setattr(hip, "runtime", lambda vendor: runtime)
    monkeypatch.setattr(hip, "missing_runtime", reasons.get)
    monkeypatch.setattr(hip, "missing_kernels", lambda kind: f"no {kind} found")
    backends.backend.cache_clear()
    yield backends.backend("hip")
    backends.backend.cache_clear()


def test_a_gpu_without_a_compiler_is_here(gpu_without_compiler):
    assert gpu_without_compiler.missing() == "no AMD GPU; no nvcc found"
    assert gpu_without_compiler.vendor == "nvidia"
    assert backends.gpu_here().title == "NVIDIA GeForce RTX 4080"


def test_what_runs_on_a_gpu_without_a_compiler_says_what_is_missing(gpu_without_compiler,
                                                                     monkeypatch):
    def absent(kind, **_):
        raise UnavailableError(f"no {kind} found")

    monkeypatch.setattr(kernels, "find_compiler", absent)
    plan = untuned_plan(SMALL[0], gpu_without_compiler.device(), backend=gpu_without_compiler)
    with pytest.raises(UnavailableError, match="no nvcc found"):
        gpu_without_compiler.compile(plan)
    with pytest.raises(UnavailableError, match="no nvcc found"):
        backends.choose_backend("hip")


def test_of_two_vendors_the_one_with_a_compiler_is_used(monkeypatch):
    monkeypatch.setattr(hip, "missing_runtime", lambda vendor: None)
    monkeypatch.setattr(hip, "missing_kernels",
                        lambda kind: None if kind == "nvcc" else f"no {kind} found")
    assert hip.HipBackend().vendor == "nvidia"
    monkeypatch.setattr(hip, "missing_kernels", lambda kind: None)
    assert hip.HipBackend().vendor == "amd"
