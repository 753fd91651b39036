"""Files of kernels for machines without a compiler: what they say of themselves, and refusals."""

from __future__ import annotations

import hashlib
import os
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from refusals import message

import dscore
from dscore import api
from dscore.building import compilers, kernel_files, kernels
from dscore.building.codegen import KernelSource
from dscore.building.headers import headers_digest, sources
from dscore.building.kernel_files import kernel_of, loaded_files, sealed, table_of, write_file
from dscore.building.kernels import identity_of, provide, sources_identity
from dscore.building.reports import Report
from dscore.building.toolchain import target
from dscore.core.errors import SpecError, UnavailableError
from dscore.measuring import vendor_runtime

SM_90, EMULATED = target("sm_90"), target("emulated")
PLAN = api.plan_for("P13", "h200")
KERNEL, OTHER = KernelSource(PLAN), KernelSource(api.plan_for("D4", "h200"))
REPORT = Report("symbol", 88, 29696, 0, 0)


@pytest.fixture(autouse=True)
def _nothing_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No files, no cache and no compilers."""
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(kernel_files, "_taken", {})
    kernel_files._of_variable.cache_clear()
    kernel_files._warn_of_target.cache_clear()
    monkeypatch.delenv("DSCORE_LIBRARIES", raising=False)
    for variable in compilers.VARIABLES.values():
        monkeypatch.setenv(variable, "/nosuch/compiler")


@pytest.fixture(autouse=True)
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Architectures of the NVIDIA GPUs that a made-up driver has."""
    here = ["sm_90"]
    driver = SimpleNamespace(count=lambda: len(here), identity=lambda index: ("GPU", here[index]))
    monkeypatch.setattr(vendor_runtime, "missing_runtime", lambda vendor: (
        None if vendor == "nvidia" and here else f"no {vendor} GPU"))
    monkeypatch.setattr(vendor_runtime, "runtime", lambda vendor: driver)
    return here


def compiler(folder: Path, kind: compilers.Kind) -> compilers.Compiler:
    path = folder / "cc"
    path.write_text("#!/bin/sh\necho cc 1.0\n")
    path.chmod(0o755)
    return compilers.Compiler(kind, str(path))


def written(folder: Path, aim: Any = SM_90, name: str = "layers.so", **changes: object) -> Path:
    """A file of two kernels, with *changes* to its table."""
    library, path = folder / "library", folder / name
    library.write_bytes(b"\x7fELF" + b"code" * 100)
    digest = headers_digest(sources())
    write_file(path, library, aim, compiler(folder, aim.kind), digest, {
        identity_of(kernel, aim, digest): (kernel.name, report)
        for kernel, report in ((KERNEL, REPORT), (OTHER, None))})
    if changes:
        path.write_bytes(sealed(library.read_bytes(), {**table_of(path), **changes}))
    return path


def test_a_file_says_what_it_holds_and_serves_it(tmp_path):
    path = written(tmp_path)
    assert path.read_bytes().startswith(b"\x7fELF")
    file = dscore.load(path)
    assert (file.path, file.target, file.compiler) == (path, "sm_90", "cc 1.0")
    assert file.kernels == (KERNEL.name, OTHER.name)
    provision = provide([KERNEL, OTHER], SM_90)
    assert provision.compiled == 0
    assert provision.kernels[KERNEL.name] == kernels.StoredKernel(path, REPORT)
    assert provision.kernels[OTHER.name].report is None


def test_a_kernel_that_no_file_holds_names_the_files_and_what_lacks(tmp_path):
    path = written(tmp_path)
    dscore.load(path)
    absent = KernelSource(api.plan_for("P14", "h200"))
    fault = message(provide, [KERNEL, absent], SM_90, kind=UnavailableError)
    assert f"no kernel of {absent.plan.token} for sm_90 is in {path}" in fault
    assert "/nosuch/compiler" in fault


def test_without_a_compiler_a_file_stands_for_it(tmp_path):
    assert "/nosuch/compiler" in str(kernels.missing_kernels("nvcc"))
    dscore.load(written(tmp_path))
    assert kernels.missing_kernels("nvcc") is None
    assert "/nosuch/compiler" in str(kernels.missing_kernels("hip"))
    # Records of the machine that built the file hold here as well.
    assert sources_identity(sources(), "fixed", "nvcc").compiler == "cc 1.0"
    with pytest.raises(UnavailableError):
        assert sources_identity(sources(), "fixed", "hip").compiler


@pytest.mark.parametrize(("changes", "said"), [
    ({"abi": 5}, "was built for ABI 5, here it is 11"),
    ({"sources": "0badbeef" * 8, "dscore": "0.0.9"}, "kernel sources 0badbeef (dscore 0.0.9)"),
    ({"machine": "Plan9 pdp11"}, "was built for machines of Plan9 pdp11, here it is")])
def test_a_file_that_is_not_for_this_dscore_is_refused_by_name(tmp_path, monkeypatch, changes,
                                                               said):
    path = written(tmp_path, **changes)
    fault = message(dscore.load, path, kind=UnavailableError)
    assert fault.startswith(str(path))
    assert said in fault
    assert "build it again" in fault
    assert loaded_files() == ()
    monkeypatch.setenv("DSCORE_LIBRARIES", str(path))
    with pytest.warns(RuntimeWarning, match="DSCORE_LIBRARIES: ") as said_once:
        assert loaded_files() == ()
    assert len(said_once) == 1
    with pytest.raises(UnavailableError):
        provide([KERNEL], SM_90)


@pytest.mark.parametrize("at", [0, 200, 500, -200, -60, -50, -40, -33, -1])
def test_a_file_with_a_changed_byte_is_refused(tmp_path, at):
    path = written(tmp_path)
    contents = bytearray(path.read_bytes())
    contents[at] ^= 1
    path.write_bytes(contents)
    assert str(path) in message(dscore.load, path, kind=SpecError)
    assert loaded_files() == ()


@pytest.mark.parametrize("left", [0, 10, 100, 800])
def test_half_a_file_is_refused(tmp_path, left):
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:left])
    assert "dscore build --out" in message(dscore.load, path, kind=SpecError)


def test_what_is_no_file_is_refused(tmp_path):
    assert "No such file" in message(dscore.load, tmp_path / "nosuch.so", kind=SpecError)
    assert "cannot be read" in message(dscore.load, tmp_path, kind=SpecError)


@pytest.mark.parametrize(("here", "said"), [
    (["sm_80"], "was built for sm_90, and the GPU here is sm_80; build it with --target sm_80"),
    ([], "was built for sm_90: no nvidia GPU")])
def test_a_file_for_another_gpu_is_refused_by_name(tmp_path, gpus, here, said):
    gpus[:] = here
    path = written(tmp_path)
    assert f"{path} {said}" in message(dscore.load, path, kind=UnavailableError)
    assert loaded_files() == ()
    gpus[:] = ["sm_80", "sm_90"]
    assert dscore.load(path).target == "sm_90"


def test_the_variable_names_files_and_those_for_another_gpu_are_named_once(tmp_path, monkeypatch):
    paths = [written(tmp_path, target("sm_80"), "a.so"), written(tmp_path, EMULATED, "b.so"),
             written(tmp_path, SM_90, "c.so")]
    monkeypatch.setenv("DSCORE_LIBRARIES", os.pathsep.join(map(str, paths)) + os.pathsep)
    assert [file.path for file in loaded_files()] == paths
    with pytest.warns(RuntimeWarning, match=r"a.so was built for sm_80; no kernels for sm_90"):
        assert provide([KERNEL], SM_90).kernels[KERNEL.name].library == paths[2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert provide([KERNEL, OTHER], SM_90).compiled == 0
        assert provide([KERNEL], EMULATED).kernels[KERNEL.name].library == paths[1]


def test_what_was_loaded_comes_before_the_variable(tmp_path, monkeypatch):
    first, second = written(tmp_path, name="a.so"), written(tmp_path, name="b.so")
    monkeypatch.setenv("DSCORE_LIBRARIES", str(first))
    dscore.load(second)
    found = kernel_of(identity_of(KERNEL, SM_90, headers_digest(sources())), SM_90)
    assert found == (second, REPORT)


TABLE = {"abi": kernel_files.abi(), "sources": headers_digest(sources()), "dscore": "1",
         "machine": kernel_files._machine(), "target": "emulated", "kind": "host", "compiler": "1",
         "kernels": [{"identity": "a" * 64, "name": "a", "report": None}]}
JUNK = [None, True, 1, 1.5, "x" * 3000, [], [1], {}, {"symbol": "a"}, [{}], [[]],
        {"symbol": 1, "registers": "8", "lds_bytes": 1, "spills": 1, "scratch_bytes": 1}]


@pytest.mark.parametrize("part", [None, *TABLE, "identity", "name", "report"])
def test_a_sealed_table_of_junk_is_refused(tmp_path, monkeypatch, part):
    path = tmp_path / "forged.so"
    for junk in JUNK:
        table: Any = {**TABLE, part: junk}
        if part is None:
            table = junk
        elif part not in TABLE:
            table = {**TABLE, "kernels": [{**TABLE["kernels"][0], part: junk}]}
        path.write_bytes(sealed(b"\x7fELF", table))
        known = (part in ("name", "target", "compiler", "dscore", "identity") and
                 isinstance(junk, str)) or (part, junk) in (("report", None), ("kernels", []))
        if known:
            assert kernel_files.read_file(path).path == path
            continue
        with pytest.raises((SpecError, UnavailableError)) as caught:
            dscore.load(path)
        assert str(path) in str(caught.value)
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 9000, b"1" * 5000])
@pytest.mark.parametrize("length", [None, 0, 2**63])
def test_a_sealed_table_that_is_no_json_is_refused(tmp_path, text, length):
    path, size = tmp_path / "forged.so", len(text) if length is None else length
    body = b"library" + text + kernel_files._MAGIC + size.to_bytes(8, "little")
    path.write_bytes(body + hashlib.sha256(body).digest())
    assert "copy it again" in message(dscore.load, path)


def test_what_is_no_path_or_no_file_is_refused_and_not_waited_for(tmp_path):
    for junk in (None, 3, 1.5, object(), [], {}):
        assert "named by its path" in message(dscore.load, junk)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", b"/dev/null"):
        assert "it is no file" in message(dscore.load, path)
    for odd in (b"no\xff", "no\0", "no\ud800", "x" * 5000, ""):
        assert "cannot be read" in message(dscore.load, odd)
