"""nvcc's wheels, the releases of CUDA that go together, and the host compiler that nvcc needs."""

from __future__ import annotations

import os

import pytest
from fake_compilers import empty_machine, fake, wheel

from dscore.building import compiler_places, compilers, cuda_releases
from dscore.building.toolchain import Unit, build_library, target
from dscore.core.errors import UnavailableError


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    empty_machine(monkeypatch, tmp_path)
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))


def test_wheels_are_found_where_python_finds_packages(tmp_path, monkeypatch):
    monkeypatch.undo()
    made = wheel(tmp_path, 13000)
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    assert next(compiler_places._in_wheels()) == made
    assert cuda_releases.package_folders("no_such_package") == []


def test_an_nvcc_newer_than_the_driver_admits_is_passed_over(tmp_path, monkeypatch):
    newer, older = wheel(tmp_path, 13050), fake(
        tmp_path / "path" / "nvcc", "Cuda compilation tools, release 12.9, V12.9.86")
    monkeypatch.setattr(cuda_releases, "driver_release", lambda: (13, 0))
    assert compilers.find_compiler("nvcc").path == newer, "of the same major release"
    monkeypatch.setattr(cuda_releases, "driver_release", lambda: (12, 8))
    assert compilers.find_compiler("nvcc").path == older
    os.unlink(older)
    with pytest.raises(UnavailableError) as raised:
        compilers.find_compiler("nvcc")
    for part in (newer, "CUDA 13.5 is newer than this machine's driver admits, which is CUDA 12",
                 "install the toolkit of CUDA 12, or a driver of version 580", "DSCORE_NVCC"):
        assert part in str(raised.value)
    monkeypatch.setenv("DSCORE_NVCC", newer)  # to build for another machine
    assert compilers.find_compiler("nvcc").path == newer


def test_an_nvcc_that_was_found_by_its_header_is_not_started(tmp_path, monkeypatch):
    made = wheel(tmp_path, 13050)
    monkeypatch.setattr(cuda_releases, "driver_release", lambda: (13, 0))
    monkeypatch.setattr(compilers.subprocess, "run", None)
    assert compilers.find_compiler("nvcc").path == made


@pytest.mark.parametrize(("driver", "torch", "line"), [
    (None, None, "pip install 'dscore[cuda]'"),
    ((13, 0), None, "pip install 'dscore[cuda]' 'cuda-toolkit==13.0.*'"),
    (None, "cuda: Optional[str] = '13.2'", "pip install 'dscore[cuda]' 'cuda-toolkit==13.2.*'"),
    ((13, 0), "cuda = '13.2'", "pip install 'dscore[cuda]' 'cuda-toolkit==13.2.*'"),
    ((13, 0), "cuda = '14.0'", "pip install 'dscore[cuda]' 'cuda-toolkit==13.0.*'"),
    ((13, 0), "cuda = '12.8'", "pip install 'dscore[cuda]'"),
    (None, "cuda: Optional[str] = None", "pip install 'dscore[cuda]'"),
    ((12, 8), "cuda = '12.8'", "install the toolkit of CUDA 12, or a driver of version 580 or "
                               "later and dscore[cuda]")])
def test_the_line_that_installs_an_nvcc(driver, torch, line, tmp_path, monkeypatch):
    monkeypatch.setattr(cuda_releases, "driver_release", lambda: driver)
    if torch:
        (tmp_path / "packages" / "torch").mkdir(parents=True)
        (tmp_path / "packages" / "torch" / "version.py").write_text(
            f"__version__ = '2.13.0'\n{torch}\nhip: Optional[str] = None\n")
    assert cuda_releases.install_line() == line
    assert f"; {line}, " in compilers.missing_compiler("nvcc")


def test_nvcc_is_told_its_host_compiler(tmp_path, monkeypatch):
    nvcc = compilers.find_compiler("nvcc", fake(tmp_path / "nvcc", "13.0"))
    with pytest.raises(UnavailableError, match=r"nvcc needs a C\+\+ .*host: no g\+\+"):
        compilers.own_flags(nvcc)
    host = fake(tmp_path / "path" / "g++", "12")
    assert compilers.own_flags(nvcc) == ("-ccbin", host)
    assert compilers.own_flags(compilers.find_compiler("host")) == ()
    monkeypatch.setenv("DSCORE_CXX", fake(tmp_path / "other", "11"))
    assert compilers.own_flags(nvcc) == ("-ccbin", str(tmp_path / "other"))
    for name, value in (("NVCC_CCBIN", "x"), ("NVCC_APPEND_FLAGS", "-O2 -ccbin=x")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert compilers.own_flags(nvcc) == ()


def test_nvcc_of_the_wheels_is_told_its_libraries(tmp_path):
    fake(tmp_path / "path" / "g++", "12")
    nvcc, folder = wheel(tmp_path, 13000), tmp_path / "packages" / "nvidia" / "cu13" / "lib"
    folder.mkdir()
    (folder / "libcudart_static.a").touch()
    assert compilers.own_flags(compilers.Compiler("nvcc", nvcc))[2:] == ("-L", str(folder))


def build(tmp_path, then):
    """Build by an nvcc that tells its version, and else does what *then* says."""
    path = tmp_path / "nvcc"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && {{ echo "release 13.0"; exit; }}\n{then}')
    path.chmod(0o755)
    build_library([Unit("u", "x")], target("sm_90"), include=tmp_path / "inc",
                  compiler=compilers.Compiler("nvcc", str(path)))


def test_nvcc_without_a_host_compiler_is_refused_before_it_compiles(tmp_path):
    with pytest.raises(UnavailableError, match=r"install g\+\+"):
        build(tmp_path, f": > {tmp_path}/ran; exit 1")
    assert not (tmp_path / "ran").exists()


def test_a_host_compiler_that_nvcc_does_not_take_is_named_with_the_fix(tmp_path, monkeypatch):
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("NVCC_CCBIN", "/usr/bin/g++-99")
    with pytest.raises(UnavailableError, match="later than 15 are not supported!") as raised:
        build(tmp_path, """echo 'host_config.h:137:2: error: #error -- unsupported GNU version! \
gcc versions later than 15 are not supported! The nvcc flag can be used' >&2; exit 1""")
    assert "DSCORE_CXX names another one" in str(raised.value)
