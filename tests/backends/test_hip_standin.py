"""The whole path of a DCU's user on a stand-in for AMD's runtime: its kernels are hipcc's machine
code for gfx906, executed by the interpreter. Times mean nothing here."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from profiles import mostly_deep

from dscore.backends.machine_code.disassembly import missing_objdump
from dscore.building.compilers import missing_compiler

SUPPORT = Path(__file__).resolve().parents[1] / "support"
CC = shutil.which("cc")
pytestmark = pytest.mark.skipif(CC is None, reason="there is no cc, which makes the stand-in")
MISSING = missing_compiler("hip") or missing_objdump()
needs_kernels = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
needs_hip_python = pytest.mark.skipif(importlib.util.find_spec("hip") is None,
                                      reason="hip-python is not installed")
SPECS = Path(__file__).resolve().parents[2] / "specs" / "devices"
SMALL = "n1c2h5w4_o2k3p1g2"
# Each runtime by its release, and the name of its library.
RUNTIMES = {"rocm6": (("-DROCM=6",), "libamdhip64"), "rocm5": (("-DROCM=5",), "libamdhip64"),
            "dtk": (("-DROCM=5", "-DDTK"), "libgalaxyhip")}
# Each way to a runtime: which one, what a user has installed, and the name that is shown.
WAYS = {"hip-python": ("rocm6", True, False, "hip-python"),
        "hip-python beside ROCm 5": ("rocm5", True, False, "libamdhip64.so"),
        "library": ("rocm5", False, False, "libamdhip64.so"),
        "library of ROCm 6": ("rocm6", False, False, "libamdhip64.so"),
        "library of DTK": ("dtk", False, False, "libgalaxyhip.so"),
        "PyTorch": ("rocm5", False, True, "PyTorch")}
WITH_KERNELS = ("hip-python", "library", "library of DTK", "PyTorch")


@pytest.fixture(scope="session")
def runtimes(tmp_path_factory):
    """A folder with each runtime, by the names that ROCm's and DTK's libraries have."""
    folder = tmp_path_factory.mktemp("standin")
    (folder / "versions").write_text("hip_4.2 { global: *; };\n")
    for name, (options, library) in RUNTIMES.items():
        here = folder / name
        here.mkdir()
        subprocess.run(
            [CC, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread",
             *options, f"-Wl,-soname,{library}.so.5", "-Wl,--version-script=../versions",
             str(SUPPORT / "standin_runtime.c"), "-o", f"{library}.so.5"], cwd=here, check=True)
        # What Debian's hipcc links to is libamdhip64.so.5, whoever made it.
        for other in {f"{library}.so", "libamdhip64.so.5"} - {f"{library}.so.5"}:
            (here / other).symlink_to(f"{library}.so.5")
    return folder


@pytest.fixture(scope="session")
def user(runtimes):
    """A function that does what a user does on one way, and returns what each command gave."""
    def did(way, *commands, code=0, **variables):
        runtime, hip_python, torch, _ = WAYS[way]
        if hip_python and importlib.util.find_spec("hip") is None:
            pytest.skip("hip-python is not installed")
        paths = [str(SUPPORT), *[str(SUPPORT / "rocm_torch")] * torch,
                 os.environ.get("PYTHONPATH", "")]
        environment = os.environ | variables | {
            "PYTHONPATH": os.pathsep.join(paths), "LD_LIBRARY_PATH": os.pathsep.join(
                [str(runtimes / runtime), os.environ.get("LD_LIBRARY_PATH", "")])}
        if not hip_python:
            environment["STANDIN_WITHOUT_HIP_PYTHON"] = "1"
        done = subprocess.run(
            [sys.executable, str(SUPPORT / "standin_user.py"),
             json.dumps([one.split() if "dscore" in one else one for one in commands])],
            env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        results = json.loads(done.stdout)
        assert [one["code"] for one in results] == [code] * len(results), done.stderr
        return [one["data"] for one in results]
    return did


@pytest.fixture(scope="session")
def told(user):
    """A function that gives what one process on a way told: its GPUs and their properties, and
    on ways of kernels a run, a call, and the bytes that are left allocated."""
    kernels = (f"dscore run {SMALL} --backend hip", "conv", "allocated_bytes")
    return cache(lambda way: user(way, "gpus", "properties",
                                  *kernels if way in WITH_KERNELS and not MISSING else ()))


@pytest.mark.parametrize("way", mostly_deep(WAYS, "library"))
def test_a_dcu_is_found_and_it_is_said_how(told, way):
    gpu, = (one for one in told(way)[0] if one["vendor"] == "amd")
    assert (gpu["name"], gpu["architecture"], gpu["through"]) == ("Z100SM", "gfx906", WAYS[way][3])
    passed_over = [one.partition(":")[0] for one in gpu["passed_over"]]
    ways = ["hip-python", "PyTorch", gpu["through"]]
    assert passed_over == ways[:ways.index(gpu["through"])]


@pytest.mark.deep
def test_the_driver_reports_alike_on_every_way(told):
    reported = {way: told(way)[1] for way in (
        "library", "library of ROCm 6", "library of DTK", "PyTorch")}
    whole = {"vendor": "amd", "title": "Z100SM", "architecture": "gfx906", "compute_units": 64,
             "wavefront": 64, "threads_per_block": 1024, "lds_bytes_per_block": 65_536,
             "l2_bytes": 4_194_304, "memory_bytes": 17_163_091_968, "clock_hz": 1.725e9,
             "memory_clock_hz": 1e9, "memory_bus_bits": 4096, "slot": "0000-07-00"}
    assert reported["library"].items() >= whole.items()
    assert reported["library"] == reported["library of ROCm 6"]
    # Some of DTK's numbers of attributes are not known, and PyTorch 2.1 leaves out as much.
    for way in ("library of DTK", "PyTorch"):
        known = {name: value for name, value in reported[way].items() if value}
        assert known["compute_units"] == 64
        assert known.items() <= (whole | {"slot": known["slot"]}).items()


@needs_hip_python
@pytest.mark.deep
def test_hip_python_and_the_library_report_alike(told):
    assert told("hip-python")[1] == told("library of ROCm 6")[1]


def test_without_a_device_every_way_says_why(user):
    told, = user("library", f"dscore run {SMALL} --backend hip", code=3, STANDIN_DEVICES="0")
    message = json.dumps(told)
    for part in ("no AMD or Hygon GPU is found", "hip-python: ", "PyTorch: ",
                 "libamdhip64.so: hipGetDeviceCount: 100, no ROCm-capable device is detected",
                 "env.sh"):
        assert part in message


@needs_kernels
@pytest.mark.parametrize("way", mostly_deep(WITH_KERNELS, "hip-python", "library"))
def test_kernels_run_and_numpy_arrays_are_convolved(told, way):
    run, exact, left = told(way)[2:]
    assert (run["right"], run["backend"], run["device"]) == (1, "hip", "z100sm")
    assert exact is True
    assert left == 0


@pytest.fixture
def small_cache(tmp_path):
    """File of a Z100SM of a small cache. A cold measurement takes as many sets of data as exceed it
    three times, which of a small layer are thousands for the real one."""
    path = tmp_path / "z100sm.toml"
    path.write_text((SPECS / "z100sm.toml").read_text().replace(
        "l2_bytes = 4_194_304", "l2_bytes = 64"))
    return path


@needs_kernels
@pytest.mark.parametrize(("way", "batch"), [("hip-python", 1), ("library", 2)])
@pytest.mark.deep
def test_random_layers_conform_and_one_is_tuned(user, way, batch, small_cache):
    conformance, tune, left = user(
        way, "dscore conformance --backend hip_any --examples 4",
        # Records of the same batch would be taken from the cache.
        f"dscore tune {SMALL} --batch {batch} --backend hip --device {small_cache} --top 1",
        "allocated_bytes")
    assert sum(conformance["examples"].values()) == 4
    assert conformance["failures"] == []
    assert tune["layers"][0]["best"]["share"] <= 1
    assert left == 0


@needs_kernels
@pytest.mark.deep
def test_a_layer_of_a_network_runs_and_one_is_timed(user):
    devices, (here,), env, run, bench = user(
        "library", "dscore devices", "dscore devices --here", "dscore env",
        "dscore run mobilenet_v2/44 --backend hip",
        f"dscore bench {SMALL} --backend hip --peer none --batch 1 --cache hot")
    assert devices["gpus"] == env["gpus"]
    assert here["origins"]["compute_units"] == "the shipped file z100sm.toml"
    assert run["right"] == 1
    assert [row["method"] for row in bench["rows"]] == ["dscore"]


@needs_kernels
def test_a_kernel_that_leaves_its_memory_is_a_device_error(user):
    message, = user("library", "stray", code=5)
    assert "unspecified launch failure" in message
