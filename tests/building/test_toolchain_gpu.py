"""The GPU compilers of this machine, which need no GPU: what they build, report and refuse."""

from __future__ import annotations

import pytest
from profiles import deep

from dscore.building import compilers, reports
from dscore.building.headers import sources
from dscore.building.toolchain import Unit, build_library, target
from dscore.core.errors import CompileError, UnavailableError

KERNEL = """
#include "support/portable.hpp"
template <int N> __global__ void %s(const float* a, float* b) {
  __shared__ float tile[N];
  tile[threadIdx.x %% N] = a[threadIdx.x];
  __syncthreads();
  b[threadIdx.x] = tile[(threadIdx.x + 1) %% N];
}
template __global__ void %s<256>(const float*, float*);
"""
KINDS = {"gfx906": "hip", "gfx90a": "hip", "sm_90": "nvcc"}


@pytest.fixture
def include(tmp_path, monkeypatch):
    """Headers below a folder with a space, and a cache and compilers' litter of the test's own."""
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "the cache"))
    folder = tmp_path / "in clude"
    (folder / "support").mkdir(parents=True)
    (folder / "support/no_rocm.hpp").write_text((sources() / "support/no_rocm.hpp").read_text())
    (folder / "support/portable.hpp").write_text(
        "#if defined(DSCORE_NO_ROCM)\n#include \"support/no_rocm.hpp\"\n"
        "#elif !defined(__CUDACC__)\n#include <hip/hip_runtime.h>\n#endif\n#pragma once\n")
    return folder


def require(kind):
    missing = compilers.missing_compiler(kind)
    if missing:
        pytest.skip(missing)


@pytest.mark.parametrize(("name", "kernels"), [
    ("gfx906", ["one", "two"]), ("gfx90a", ["one"]), ("sm_90", ["one", "two"])])
@pytest.mark.deep
def test_libraries_and_reports(name, kernels, include):
    require(KINDS[name])
    units = [Unit(kernel, KERNEL % (kernel, kernel)) for kernel in kernels]
    built = build_library(units, target(name), include=include)
    assert built.path.read_bytes()[:4] == b"\x7fELF"
    for kernel in kernels:
        report, = reports.matching(built.reports, kernel)
        assert (report.lds_bytes, report.spills, report.scratch_bytes) == (1024, 0, 0)
        assert 0 < report.registers < 32
        assert (report.occupancy_waves is None) == (name == "sm_90")
    again = build_library(units, target(name), include=include)
    assert again.from_cache
    assert again.reports == built.reports


@pytest.mark.parametrize(("name", "kind", "words"), [
    ("sm_30", "nvcc", ["sm_30", "it accepts", "sm_90", "CUDA 12", "DSCORE_NVCC"]),
    ("gfx9ff", "hip", ["gfx9ff", "DTK", "DSCORE_HIPCC"])])
def test_an_architecture_that_the_compiler_does_not_know(name, kind, words, include):
    require(kind)
    with pytest.raises(UnavailableError) as raised:
        build_library([Unit("u", KERNEL % ("k", "k"))], target(name), include=include)
    assert all(word in str(raised.value) for word in words)


@pytest.mark.parametrize("name", [deep("gfx906"), "sm_90"])
def test_what_a_gpu_compiler_says_of_an_error_is_shown(name, include):
    require(KINDS[name])
    with pytest.raises(CompileError, match="no_such_type") as raised:
        build_library([Unit("broken", "no_such_type x;")], target(name), include=include)
    assert "0_broken." in str(raised.value), "the file that the message names"
