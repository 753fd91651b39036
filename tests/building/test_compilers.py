"""Finding compilers where people keep them, telling them apart, and naming targets."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from fake_compilers import binary, empty_machine, fake, wheel

from dscore.building import compiler_places, compilers, toolchain
from dscore.core.errors import SpecError, UnavailableError


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    empty_machine(monkeypatch, tmp_path)


@pytest.mark.parametrize(("kind", "name", "variable", "homes"), [
    ("hip", "hipcc", "DSCORE_HIPCC", [("ROCM_PATH", "bin"), ("DTK_ROOT", "bin"),
                                      ("DTK_ROOT", "hip/bin"), ("HIP_PATH", "bin")]),
    ("nvcc", "nvcc", "DSCORE_NVCC", [("CONDA_PREFIX", "bin"), ("CUDA_HOME", "bin"),
                                     ("CUDA_PATH", "bin")]),
    ("host", "g++", "DSCORE_CXX", []),
])
def test_the_order_in_which_compilers_are_looked_for(
        kind, name, variable, homes, tmp_path, monkeypatch):
    path = [fake(tmp_path / "asked" / name, "1.0"), fake(tmp_path / "variable" / name, "2.0")]
    monkeypatch.setenv(variable, path[1])
    origins = [variable]
    if kind == "nvcc":
        path += [wheel(tmp_path, 14000, "cu14"), wheel(tmp_path, 13000)]
        origins += [compiler_places.WHEELS] * 2
    for home, below in homes:
        monkeypatch.setenv(home, str(tmp_path / home))
        path.append(fake(tmp_path / home / below / name, "3.0"))
        origins.append(f"${home}/{below}")
    path.append(fake(tmp_path / "path" / name, "4.0"))
    assert compilers.find_compiler(kind, path[0]).path == path[0]
    assert [(one.path, one.origin) for one in compilers.all_compilers(kind)] == [
        *zip(path[1:], [*origins, "PATH"], strict=True)]
    for number, expected in enumerate(path[1:]):
        if number == 1:
            monkeypatch.delenv(variable)
        assert compilers.find_compiler(kind).path == expected
        os.unlink(expected) if number else None
    assert compilers.missing_compiler(kind) is not None


def test_the_usual_folders_are_called_so(tmp_path, monkeypatch):
    made = fake(tmp_path / "opt" / "nvcc", "1.0")
    monkeypatch.setitem(compiler_places._HOMES, "nvcc", (str(tmp_path / "opt"),))
    (tmp_path / "path").symlink_to(tmp_path / "opt")  # another way to the same file
    [found] = compilers.all_compilers("nvcc")
    assert (found.path, found.origin) == (made, compiler_places.USUAL)


def test_host_compilers_by_preference(tmp_path):
    for name in ("c++", "clang++", "g++"):
        made = fake(tmp_path / "path" / name, "1.0")
        assert compilers.find_compiler("host").path == made


@pytest.mark.parametrize(("kind", "words"), [
    ("host", ["g++", "clang++", "DSCORE_CXX", "PATH"]),
    ("hip", ["no hipcc found", "$ROCM_PATH/bin", "$DTK_ROOT/hip/bin", "DSCORE_HIPCC"]),
    ("nvcc", ["no nvcc found", "$CUDA_HOME/bin", "DSCORE_NVCC", "this environment's wheels"])])
def test_a_missing_compiler_is_named_with_where_it_was_sought_and_the_fix(kind, words):
    reason = compilers.missing_compiler(kind)
    assert all(word in reason for word in words)
    with pytest.raises(UnavailableError) as raised:
        compilers.find_compiler(kind)
    assert str(raised.value) == reason


@pytest.mark.parametrize("by", ["argument", "environment"])
@pytest.mark.parametrize(("given", "reason"), [
    ("{}/absent", "does not exist"), ("{}/plain", "not an executable"),
    ("{}", "not an executable"), ("no-such-cxx", "not on PATH"),
    ("{}/" + "x" * 300, "does not exist")])
def test_a_compiler_that_was_named_is_never_passed_over(by, given, reason, tmp_path, monkeypatch):
    fake(tmp_path / "path" / "g++", "1.0")
    (tmp_path / "plain").write_text("no program")
    (tmp_path / "plain").chmod(0o644)
    named = given.format(tmp_path)
    if by == "environment":
        monkeypatch.setenv("DSCORE_CXX", named)
    with pytest.raises(UnavailableError, match=reason) as raised:
        compilers.find_compiler("host", named if by == "argument" else None)
    assert named in str(raised.value)
    assert ("DSCORE_CXX" in str(raised.value)) == (by == "environment")


def test_a_name_without_a_folder_is_sought_on_the_path(tmp_path):
    made = fake(tmp_path / "path" / "g++-12", "12.2.0")
    assert compilers.find_compiler("host", "g++-12") == compilers.Compiler("host", made)


@pytest.mark.parametrize(("said", "version"), [
    ("g++ (Debian 12.2.0-14) 12.2.0\nCopyright (C) 2022 Free Software Foundation, Inc.",
     "g++ (Debian 12.2.0-14) 12.2.0"),
    ("nvcc: NVIDIA (R) Cuda compiler driver\nCopyright (c) 2005-2025 NVIDIA Corporation\n"
     "Built on Wed_Aug_20_01:58:59_PM_PDT_2025\n"
     "Cuda compilation tools, release 13.0, V13.0.88\nBuild cuda_13.0.r13.0/compiler.36424714_0",
     "Cuda compilation tools, release 13.0, V13.0.88, Build cuda_13.0.r13.0/compiler.36424714_0"),
    ("HIP version: 5.2.21153-0\nDebian clang version 15.0.6\nTarget: x86_64-pc-linux-gnu\n"
     "Thread model: posix\nInstalledDir: /opt/rocm-5.2.0/bin",
     "HIP version: 5.2.21153-0, Debian clang version 15.0.6"),
    ("my own compiler", "my own compiler")])
def test_versions_are_what_tells_compilers_apart(said, version, tmp_path):
    assert compilers.find_compiler("host", fake(tmp_path / "cxx", said)).version == version


def test_a_replaced_compiler_is_asked_again(tmp_path):
    path = fake(tmp_path / "cxx", "1.0")
    assert compilers.find_compiler("host", path).version == "1.0"
    fake(tmp_path / "cxx", "2.0")
    os.utime(path, (1, 1))
    assert compilers.find_compiler("host", path).version == "2.0"


def test_a_compiler_that_cannot_tell_its_version_is_an_error(tmp_path):
    path = fake(tmp_path / "cxx", "")
    compiler = compilers.find_compiler("host", path)
    Path(path).write_text("#!/bin/sh\necho 'perl: not found' >&2\nexit 127\n")
    with pytest.raises(UnavailableError, match=r"status 127: perl: not found"):
        _ = compiler.version
    assert str(compiler) == path
    Path(path).write_text("#!/no/such/interpreter\n")
    with pytest.raises(UnavailableError, match="could not be run"):
        _ = compiler.version
    os.unlink(path)
    with pytest.raises(UnavailableError, match="is gone"):
        _ = compiler.identity


def test_a_compiler_is_known_by_its_file_and_not_started_for_it(tmp_path, monkeypatch):
    monkeypatch.setattr(compilers.subprocess, "run", None)

    def identity(*made, name="x86_64-linux-gnu-g++-12"):
        return compilers.Compiler("host", binary(tmp_path / name, *made)).identity

    seen = [identity(), identity(b"patched"), identity(b"patched", 2), identity(name="clang-15")]
    assert len({*seen}) == len(seen)
    assert identity() == seen[0]
    (tmp_path / "g++").symlink_to("clang-15")
    assert compilers.Compiler("host", str(tmp_path / "g++")).identity != seen[3]


def test_what_nvcc_starts_belongs_to_its_identity(tmp_path):
    nvcc = compilers.Compiler("nvcc", binary(tmp_path / "bin/nvcc"))
    seen = [nvcc.identity]
    for part in ("bin/ptxas", "nvvm/bin/cicc"):
        binary(tmp_path / part)
        seen.append(nvcc.identity)
        binary(tmp_path / part, b"newer")
        seen.append(nvcc.identity)
    assert len({*seen}) == len(seen) == 5


def test_a_wrapper_is_known_by_the_version_behind_it(tmp_path):
    behind = tmp_path / "behind"
    behind.write_text("1.0")
    path = fake(tmp_path / "g++", "")
    Path(path).write_text(f"#!/bin/sh\n/bin/cat {behind}\n")
    compiler = compilers.Compiler("host", path)
    seen = [compiler.identity]
    behind.write_text("2.0")
    compilers._version.cache_clear()
    compilers._identity.cache_clear()  # as in another process
    assert compiler.identity != seen[0]
    assert compiler.identity[-1] == "2.0"


def test_hipcc_is_told_not_to_compile_for_nvidia(monkeypatch):
    monkeypatch.setenv("HIP_PLATFORM", "nvidia")
    assert compilers.environment("hip")["HIP_PLATFORM"] == "amd"
    assert compilers.environment("nvcc")["HIP_PLATFORM"] == "nvidia"


@pytest.mark.parametrize(("name", "kind", "flag"), [
    ("emulated", "host", "-DDSCORE_HOST"), ("gfx906", "hip", "--offload-arch=gfx906"),
    ("gfx90a:xnack-", "hip", "--offload-arch=gfx90a:xnack-"), ("sm_90", "nvcc", "-arch=sm_90a"),
    ("sm_90a", "nvcc", "-arch=sm_90a")])
def test_targets(name, kind, flag):
    made = toolchain.target(name)
    assert (made.name, made.kind) == (name, kind)
    assert {flag, "-std=c++17"} <= {*made.flags}
    assert not any("march" in given for given in made.flags)
    # What a GPU's compiler contracts is its own affair; the host must add as it is told to.
    assert ("-ffp-contract=off" in made.flags) == (kind == "host")


@pytest.mark.parametrize("name", ["", "gfx", "gfx906 ", "sm_", "sm_9x", "GFX906", "h200", "cpu"])
def test_unknown_targets_are_refused_with_the_forms_there_are(name):
    with pytest.raises(SpecError, match=r"emulated, gfx.*sm_"):
        toolchain.target(name)


@pytest.mark.parametrize(("name", "meant"), [
    ("sm90", "did you mean sm_90?"), ("90a", "did you mean sm_90a?"), ("SM-89", "sm_89"),
    ("h200", "h200 is a device of the target sm_90"),
    ("Z100SM", "z100sm is a device of the target gfx906")])
def test_an_unknown_target_is_told_which_one_was_meant(name, meant):
    with pytest.raises(SpecError) as raised:
        toolchain.target(name)
    assert meant in str(raised.value)


def test_only_the_emulated_target_is_sanitized():
    made = toolchain.target("emulated", sanitize=True)
    assert {"-fsanitize=address,undefined", "-O0", "-g1"} <= {*made.flags}
    assert "-O1" not in made.flags
    with pytest.raises(SpecError, match="sm_90"):
        toolchain.target("sm_90", sanitize=True)


@pytest.mark.skipif(not os.path.exists("/usr/local/cuda/bin/nvcc") and shutil.which("nvcc") is None,
                    reason="no nvcc on this machine")
def test_nvcc_tells_its_architectures(monkeypatch):
    monkeypatch.undo()
    known = compilers.architectures(compilers.find_compiler("nvcc"))
    assert "sm_90" in known
    assert known.index("sm_90") < known.index("sm_120")
    listed = subprocess.run([compilers.find_compiler("nvcc").path, "--list-gpu-code"], text=True,
                            capture_output=True, check=True).stdout.split()
    assert sorted(known) == sorted(listed)
