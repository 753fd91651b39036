"""Products of warpgroups and boxes of tensors on the emulated device, against NumPy; and that the
compiler of sm_90 takes them. tests/device/test_warpgroups.py runs the same on a GPU."""

import shutil
import subprocess

import numpy as np
import pytest
import warpgroup_probe as probe
from profiles import deep, mostly_deep

from dscore.building.compilers import environment, find_compiler, missing_compiler
from dscore.building.headers import sources

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
ORDERS = ("forward", "reverse", "random")


def built(folder, altered=()):
    """The probes on the host; with *altered* (file, right, wrong) in a copy of the sources."""
    include = sources()
    for name, right, wrong in altered:
        include = folder / "hip_src"
        shutil.copytree(sources(), include)
        text = (include / name).read_text()
        assert text.count(right) == 1, "the source to be altered has moved"
        (include / name).write_text(text.replace(right, wrong))
    (folder / "unit.cpp").write_text(probe.unit())
    subprocess.run(["g++", "-std=c++17", "-O1", "-fPIC", "-shared", "-DDSCORE_HOST",
                    "-ffp-contract=off", f"-I{include}", "unit.cpp", "-o", "unit.so"], cwd=folder,
                   check=True)
    return probe.Probes(folder / "unit.so", probe.on_host)


@pytest.fixture(scope="module")
def probes(tmp_path_factory):
    return built(tmp_path_factory.mktemp("probes"))


@needs_compiler
@pytest.mark.parametrize("order", mostly_deep(ORDERS, ORDERS[0]))
@pytest.mark.parametrize("name", probe.PRODUCTS)
def test_products_are_numpys(probes, name, order, monkeypatch):
    monkeypatch.setenv("DSCORE_LANE_ORDER", order)
    for rows, depth, columns in probe.sizes(name):
        given, wanted = probes.product(name, rows, depth, columns)
        assert np.array_equal(given, wanted), (rows, depth, columns)


@needs_compiler
@pytest.mark.parametrize("altered", [
    ("support/tensor_copy.hpp", "map.steps[i] = tensor.steps[i - 1];",
     "map.steps[i] = tensor.steps[i - 1] + 16;"),
    *map(deep, (
        ("support/warpgroups.hpp", "return at ^ ((at >> 7 & 7) << 4);", "return at;"),
        ("support/warpgroups.hpp", "static_cast<uint64_t>(next_tile >> 4) << 32",
         "uint64_t{32} << 32"),
        ("support/warpgroups.hpp", "static_cast<uint64_t>(bytes >> 4);",
         "static_cast<uint64_t>(bytes >> 5);"))),
])
def test_a_planted_fault_is_seen(tmp_path, altered):
    probes = built(tmp_path, [altered])
    name = "halves_24"
    assert any(not np.array_equal(*probes.product(name, *sizes)) for sizes in probe.sizes(name))


@needs_compiler
def test_what_the_engine_does_not_take_is_refused(probes):
    assert probes.raw_product("halves_24", 64, 20, 24) != 0  # rows of 40 bytes


@pytest.mark.deep
def test_the_compiler_of_hopper_takes_them(tmp_path):
    missing = missing_compiler("nvcc")
    if missing:
        pytest.skip(missing)
    (tmp_path / "unit.cu").write_text(probe.unit())
    subprocess.run([find_compiler("nvcc").path, "-std=c++17", "-O3", "-arch=sm_90a", "-I",
                    sources(), "--ptx", "unit.cu", "-o", "unit.ptx"], cwd=tmp_path, check=True,
                   capture_output=True, env=environment("nvcc"))
    text = (tmp_path / "unit.ptx").read_text()
    for words in ("wgmma.mma_async.sync.aligned.m64n24k16.f32.f16.f16",
                  "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32",
                  "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier"):
        assert words in text
