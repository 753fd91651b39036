"""hipcc, and a clang in its place: which one is taken, and what a library by the clang is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from clang_of_hipcc import pairs
from fake_compilers import empty_machine, fake

from dscore import api
from dscore.algorithms.row_reuse.tiling import RowReuseTiling
from dscore.building import amd_compilers, compilers, toolchain
from dscore.building.ahead_of_time import BuiltKernels, build, device_for
from dscore.building.codegen import KernelSource
from dscore.building.compilers import Compiler
from dscore.building.toolchain import Unit, build_library, target
from dscore.core import catalog
from dscore.core.errors import UnavailableError
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan

# Knows the architectures of its list, and writes down each start.
AMD = """#!/bin/sh
echo "$0 $*" >> {log}
for option; do
  case $option in
    --version) echo 'fake version 1.0'; exit 0 ;;
    --offload-arch=*)
      case " {known} " in *" ${{option#--offload-arch=}} "*) ;; *)
        echo "clang: error: {says}" >&2; exit 1 ;;
      esac ;;
  esac
done
"""
UNKNOWN = "invalid target ID 'gfx942'; format is a processor name"
NO_DEVICE_LIBRARY = "cannot find ROCm device library for gfx1100; provide its path"
# Whose rows of a thread stay in scratch memory, where not every function is part of the kernel.
TILE_OF_BFLOAT16 = make_plan(
    parse_problem("n1c1h20w25_o1k3s3x2p0x6x0x3d2x1_bfloat16_relu6_residual"),
    catalog.device("gfx906"), RowReuseTiling(5, 5, 3, 3, 1, "both"))


def amd(path: Path, known: str, says: str = UNKNOWN) -> str:
    fake(path, "")
    path.write_text(AMD.format(log=path.parent.parent / "starts", known=known, says=says))
    return str(path)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine without compilers; what is made in its folder path is found."""
    empty_machine(monkeypatch, tmp_path)
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def starts(machine: Path) -> list[str]:
    log = machine / "starts"
    return log.read_text().splitlines() if log.exists() else []


def test_hipcc_stands_before_a_clang_and_is_not_asked_for_what_each_knows(machine):
    hipcc = amd(machine / "path" / "hipcc", "gfx906 gfx90a gfx936")
    assert compilers.find_compiler("hip", architecture="gfx942").path == hipcc, "the only one"
    clang = amd(machine / "path" / "clang++-19", "gfx906 gfx90a")
    for architecture in ("", "gfx906", "gfx90a:xnack-"):
        found = compilers.find_compiler("hip", architecture=architecture)
        assert (found.path, found.passed_over) == (hipcc, ())
    assert not starts(machine)
    assert compilers.find_compiler("hip", architecture="gfx936").path == hipcc
    assert [compiler.path for compiler in compilers.all_compilers("hip")] == [hipcc, clang]


@pytest.mark.parametrize("says", [UNKNOWN, NO_DEVICE_LIBRARY])
def test_what_hipcc_does_not_know_the_next_compiler_builds(says, machine):
    hipcc = amd(machine / "path" / "hipcc", "gfx906", says)
    amd(machine / "path" / "clang++", "gfx906", says)
    clang = amd(machine / "path" / "clang++-19", "gfx906 gfx1100", says)
    found = compilers.find_compiler("hip", architecture="gfx1100")
    assert (found.path, found.origin, found.needs_no_rocm) == (clang, "PATH", True)
    assert found.passed_over == (
        f"{hipcc} is passed over: it does not know gfx1100",
        f"{machine}/path/clang++ is passed over: it does not know gfx1100")
    before = len(starts(machine))
    assert compilers.find_compiler("hip", architecture="gfx1100") == found
    assert len(starts(machine)) == before, "each is asked once in a process"


def test_without_hipcc_a_clang_is_taken_that_has_its_tools(machine):
    broken = amd(machine / "path" / "clang++", "", "unable to execute lld")
    with pytest.raises(UnavailableError) as raised:
        compilers.find_compiler("hip")
    for part in (f"{broken} is passed over", "unable to execute lld", "lld-19", "DTK",
                 "DSCORE_HIPCC"):
        assert part in str(raised.value)
    clang = amd(machine / "path" / "clang++-15", "gfx906")
    assert compilers.find_compiler("hip").path == clang
    assert compilers.missing_compiler("hip") is None


def test_no_compiler_for_an_architecture_is_an_error_that_names_them_all(machine):
    paths = [amd(machine / "path" / name, "gfx906") for name in ("hipcc", "clang++-19")]
    with pytest.raises(UnavailableError, match="no compiler that builds for gfx9ff") as raised:
        compilers.find_compiler("hip", architecture="gfx9ff")
    assert all(f"{path} is passed over: it does not know gfx9ff" in str(raised.value)
               for path in paths)


def test_a_named_clang_is_taken_and_has_the_flags_and_the_key_of_its_own(machine, monkeypatch):
    amd(machine / "path" / "hipcc", "gfx942")
    named = amd(machine / "elsewhere" / "clang++", "")
    monkeypatch.setenv("DSCORE_HIPCC", named)
    clang = compilers.find_compiler("hip", architecture="gfx942")
    assert clang.path == named
    assert {"-nogpuinc", "-nogpulib", "-DDSCORE_NO_ROCM"} <= {*compilers.own_flags(clang)}
    assert compilers.own_flags(compilers.Compiler("hip", str(machine / "path" / "hipcc"))) == ()
    assert compilers.own_flags(compilers.Compiler("host", "clang++")) == ()
    before = toolchain.compilation_key(target("gfx942"), clang)
    monkeypatch.setattr(amd_compilers, "CLANG_FLAGS", ("-nogpuinc",))
    assert toolchain.compilation_key(target("gfx942"), clang) != before


def test_an_only_compiler_tells_itself_what_it_does_not_know(machine):
    (machine / "include").mkdir()
    amd(machine / "path" / "hipcc", "gfx906", NO_DEVICE_LIBRARY)
    (machine / "path" / "sh").symlink_to("/bin/sh")
    with pytest.raises(UnavailableError, match="does not build for gfx1100: clang: error: cannot"):
        build_library([Unit("u", "")], target("gfx1100"), include=machine / "include")


# A clang of this machine.

LAYERS = ("D4", "n1c3h13w13_o7k1_bias_silu")
# What a HIP runtime does for a library: it notes kernels, and the launch that it is asked for.
RUNTIME = r"""
#include <stdio.h>
#include <string.h>
typedef struct { unsigned x, y, z; } dim3;
static const void *kernels[8]; static const char *names[8]; static int count, devices, last;
static dim3 grid, block; static size_t bytes; static void *where;
void **__hipRegisterFatBinary(const int *wrapper) {
  const char *bundle = *(const char **)(wrapper + 2);
  printf("binary %x %.24s\n", wrapper[0], bundle);
  return (void **)bundle;
}
void __hipUnregisterFatBinary(void **binary) {}
int __hipRegisterFunction(void **binary, const void *kernel, char *symbol, const char *name) {
  kernels[count] = kernel, names[count++] = name;
  return 0;
}
int __hipPushCallConfiguration(dim3 blocks, dim3 threads, size_t lds, void *stream) {
  grid = blocks, block = threads, bytes = lds, where = stream;
  return 0;
}
int __hipPopCallConfiguration(dim3 *blocks, dim3 *threads, size_t *lds, void **stream) {
  *blocks = grid, *threads = block, *lds = bytes, *stream = where;
  return 0;
}
int hipLaunchKernel(const void *kernel, dim3 blocks, dim3 threads, void **arguments, size_t lds,
                    void *stream) {
  void **operands = arguments[0];
  for (int i = 0; i < count; i++)
    if (kernels[i] == kernel)
      printf("launch %s %u %u %u %zu %p %p %p %p %p\n", names[i], blocks.x, blocks.y * blocks.z,
             threads.x, lds, stream, operands[0], operands[1], operands[2], operands[3]);
  return last = stream == (void *)13 ? 700 : 0;
}
int hipGetDevice(int *device) { *device = devices; return 0; }
int hipSetDevice(int device) { devices = device; printf("device %d\n", device); return 0; }
int hipGetLastError(void) { return last; }
const char *hipGetErrorString(int code) { return code == 700 ? "illegal address" : "?"; }
"""
# Before all other libraries: no runtime is installed.
NO_RUNTIME = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
void *dlopen(const char *name, int how) {
  if (name && (strstr(name, "amdhip64") || strstr(name, "galaxyhip"))) return 0;
  return ((void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen"))(name, how);
}
"""
PROGRAM = """
import ctypes, sys
from pathlib import Path
runtime = ctypes.CDLL(sys.argv[1]) if sys.argv[1] else None
from dscore import api
from dscore.building.codegen import KernelSource
from dscore.building.library import Library, LoadedKernel
from dscore.core.errors import LaunchError
library = Library(Path(sys.argv[2]))
try:
    for layer in sys.argv[4:]:
        plan = api.plan_for(layer, sys.argv[3])
        kernel = LoadedKernel(library, KernelSource(plan))
        kernel.launch(*range(0x1000, 0x1000 * (kernel.operands + 1), 0x1000), 7, 1)
    kernel.launch(*range(0x1000, 0x1000 * (kernel.operands + 1), 0x1000), 13)
except LaunchError as failed:
    print("failed", failed)
assert "libamdhip64.so.5" not in Path("/proc/self/maps").read_text()
"""


@pytest.fixture(scope="module")
def clang():
    """A clang of this machine that builds for gfx942 and gfx1100."""
    reasons = ["no clang is on PATH"]
    for compiler in compilers.all_compilers("hip"):
        if compiler.needs_no_rocm:
            refusals = [compilers.refusal(compiler, name) for name in ("gfx942", "gfx1100")]
            if refusals == [None, None]:
                return compiler
            reasons.append(f"{compiler.path}: {next(filter(None, refusals))}")
    return pytest.skip("; ".join(reasons))


def shared_library(path: Path, text: str, clang: Compiler) -> str:
    """Library made of C."""
    path.with_suffix(".c").write_text(text)
    subprocess.run([clang.path, "-x", "c", "-shared", "-fPIC", "-w", str(path.with_suffix(".c")),
                    "-o", str(path)], check=True)
    return str(path)


def said_by_program(built: BuiltKernels, runtime: str, **variables: str) -> list[str]:
    """Lines of a program that loads *runtime* if any, then the library, and launches kernels."""
    device = next(iter(built.kernels.values())).plan.device.name
    done = subprocess.run(
        [sys.executable, "-u", "-c", PROGRAM, runtime, str(built.libraries[0]), device, *LAYERS],
        env=os.environ | variables, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def built_as_planned(name: str, layers: tuple[str, ...], clang: Compiler) -> BuiltKernels:
    """Kernels of one library, whose resources are those of their plans."""
    kernels = [KernelSource(api.plan_for(layer, device_for(target(name)))) for layer in layers]
    built = build(kernels, target(name), compiler=clang, jobs=1, together=True)
    assert built.ok
    for kernel in built.kernels.values():
        assert kernel.reported is not None
        assert 0 < kernel.reported.registers <= kernel.plan.compiled_registers
        assert (kernel.spills, kernel.reported.scratch_bytes) == (0, 0)
    return built


@pytest.mark.deep
def test_a_clang_builds_for_wavefronts_of_32(clang, tmp_path, monkeypatch):
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path))
    built = built_as_planned("gfx1100", LAYERS[:1], clang)
    assert {kernel.plan.device.wavefront for kernel in built.kernels.values()} == {32}


@pytest.mark.deep
def test_its_kernels_are_hipccs_where_both_are_of_one_clang(tmp_path, monkeypatch):
    """What dscore declares becomes what ROCm's headers and device libraries do."""
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path))
    if not pairs():
        pytest.skip(f"no hipcc and clang of one release here: {compilers.all_compilers('hip')}")
    plans = [*(api.plan_for(layer, "gfx906") for layer in ("D4", "P13")), TILE_OF_BFLOAT16]
    kernels = [KernelSource(plan) for plan in plans]
    hipcc, clang = (build(kernels, target("gfx906"), jobs=1, compiler=compilers.find_compiler(
        "hip", path)) for path in pairs()[0])
    assert [one.reported for one in hipcc.kernels.values()] == [
        one.reported for one in clang.kernels.values()]


@pytest.mark.skipif(sys.platform != "linux", reason="HIP runs on Linux")
@pytest.mark.deep
def test_its_library_takes_the_runtime_that_the_program_has_loaded(clang, tmp_path, monkeypatch):
    """The launch is what the plan says, as a stand-in for the runtime sees it."""
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path))
    built = built_as_planned("gfx942", LAYERS, clang)
    plans = [kernel.plan for kernel in built.kernels.values()]
    runtime = shared_library(tmp_path / "libamdhip64.so.6.0", RUNTIME, clang)
    lines = said_by_program(built, runtime)
    assert "binary 48495046 __CLANG_OFFLOAD_BUNDLE__" in lines
    launches = [line.split() for line in lines if line.startswith("launch ")]
    for plan, words in zip([*plans, plans[-1]], launches, strict=True):
        assert f"{len(plan.name)}{plan.name}E" in words[1]
        assert words[2:6] == [str(plan.launch.blocks), "1", str(plan.use.threads), "0"]
        assert words[7:] == ["0x1000", "0x2000", "0x3000", "0x4000"]
    assert [words[6] for words in launches] == ["0x7", "0x7", "0xd"]
    assert lines.count("device 1") == 2, "the device asked for"
    assert any(line.startswith("failed ") and "illegal address" in line for line in lines)
    hidden = shared_library(tmp_path / "hidden.so", NO_RUNTIME, clang)
    [line] = said_by_program(built, "", LD_PRELOAD=hidden)
    assert "no HIP runtime was found (libamdhip64.so" in line
