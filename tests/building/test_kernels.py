"""Kernels by what they are made of: what is found, what is compiled, and how often."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dscore import api
from dscore.building import compilers, kernel_files, kernels
from dscore.building.codegen import KernelSource, units
from dscore.building.headers import headers_digest, read_headers, sources
from dscore.building.kernels import (
    Kernels,
    build_together,
    explained_waits,
    identity_of,
    provide,
)
from dscore.building.toolchain import compilation_key, target
from dscore.cache.store import Store
from dscore.core.errors import CompileError, UnavailableError

EMULATED = target("emulated")
A, B, C, D = (KernelSource(api.plan_for(f"n1c{8 * n}h5w5_o8k1")) for n in range(1, 5))

# Copies its sources to what it makes, and writes down the kernels of each.
FAKE = r"""#!/bin/sh
[ "$1" = --version ] && { echo "fake VERSION"; exit 0; }
out=; sources=
while [ $# -gt 0 ]; do
  case "$1" in -o) out=$2; shift;; *.cpp|*.o) sources="$sources $1";; esac; shift
done
case "$sources" in *.o*) ;; *)
  sed -n 's/^struct \([a-z0-9_]*\) : .*/\1/p' $sources >> "HERE/compiled";; esac
THEN
cat $sources > $out
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("DSCORE_LIBRARIES", raising=False)
    monkeypatch.setattr(kernel_files, "_taken", {})


@pytest.fixture(autouse=True)
def _fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(tmp_path, monkeypatch)


def compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str = "1.0",
             then: str = "") -> None:
    """Make a fake one the host's compiler."""
    path = folder / f"compiler {version}"
    text = FAKE.replace("VERSION", version).replace("HERE", str(folder)).replace("THEN", then)
    path.write_text(text)
    path.chmod(0o755)
    monkeypatch.setenv("DSCORE_CXX", str(path))


def compiled(folder: Path) -> list[str]:
    path = folder / "compiled"
    return path.read_text().split() if path.exists() else []


def names(*chosen: KernelSource) -> list[str]:
    return sorted(kernel.name for kernel in chosen)


def test_of_two_sets_that_overlap_only_the_rest_is_compiled(tmp_path):
    first = provide([A, B, C], EMULATED)
    assert (sorted(first.kernels), first.compiled) == (names(A, B, C), 3)
    second = provide([C, D, B, D], EMULATED)
    assert (sorted(second.kernels), second.compiled) == (names(B, C, D), 1)
    assert second.kernels[C.name] == first.kernels[C.name]
    assert D.name.encode() in second.kernels[D.name].library.read_bytes()
    assert sorted(compiled(tmp_path)) == names(A, B, C, D)
    assert provide([A, D], EMULATED).compiled == 0


def test_a_file_of_kernels_is_one_library_whatever_the_order(tmp_path):
    provide([A], EMULATED)
    found = compilers.find_compiler("host")
    built = build_together([B, A], EMULATED, found)
    assert all(kernel.name.encode() in built.path.read_bytes() for kernel in (A, B))
    assert build_together([A, B], EMULATED, found).from_cache
    assert provide([A, B], EMULATED).compiled == 0
    assert sorted(compiled(tmp_path)) == names(A, A, B)


@pytest.mark.parametrize("kind", ["libraries", "kernels"])
@pytest.mark.parametrize("damage", ["removed", "damaged", "of another making"])
def test_what_is_gone_or_damaged_is_compiled_again(kind, damage, tmp_path, monkeypatch):
    provide([A, B], EMULATED)
    monkeypatch.setattr(kernels, "_opened", {})  # as another process finds it
    store = Store(kind)
    for entry in store.entries():
        files = entry.files.values() if kind == "libraries" else [entry.path]
        for path in files:
            if damage == "removed":
                path.unlink()
            elif damage == "damaged":
                path.write_bytes(path.read_bytes()[:-1] + b"?")
            else:
                store.put(entry.key, {}, {"library": "0" * 64, "reports": 1})
    again = provide([B, A], EMULATED)
    assert again.compiled == 2
    assert all(kernel.library.is_file() for kernel in again.kernels.values())
    assert provide([A], EMULATED).compiled == 0


def test_a_library_that_was_pruned_under_this_process_is_compiled_again():
    kernel = provide([A], EMULATED).kernels[A.name]
    assert provide([A], EMULATED).compiled == 0
    kernel.library.unlink()
    again = provide([A], EMULATED)
    assert again.compiled == 1
    assert again.kernels[A.name].library.is_file()


def test_threads_compile_no_kernel_twice(tmp_path, monkeypatch):
    compiler(tmp_path, monkeypatch, then="sleep 0.1")
    sets = [[A, B], [B, C], [C, D], [D, A], [B, A], [D, C, B, A], [A], [C]] * 2
    provisions = []
    threads = [threading.Thread(target=lambda one=one: provisions.append(provide(one, EMULATED)))
               for one in sets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(provisions) == 16
    assert sorted(compiled(tmp_path)) == names(A, B, C, D)
    assert sum(one.compiled for one in provisions) == 4


PROVIDE = """
import sys
from dscore import api
from dscore.building.codegen import KernelSource
from dscore.building.kernels import provide
from dscore.building.toolchain import target

kernels = [KernelSource(api.plan_for(token)) for token in sys.argv[1:]]
provision = provide(kernels, target("emulated"))
assert all(kernel.library.is_file() for kernel in provision.kernels.values())
print(len(provision.kernels))
"""


def test_processes_lose_nothing_of_each_other(tmp_path, monkeypatch):
    compiler(tmp_path, monkeypatch, then="sleep 0.3")
    sets = [[A, B, C], [B, C, D]]
    processes = [subprocess.Popen([sys.executable, "-c", PROVIDE,
                                   *(kernel.plan.token for kernel in one)],
                                  stdout=subprocess.PIPE, text=True) for one in sets]
    assert [process.communicate(timeout=180)[0] for process in processes] == ["3\n", "3\n"]
    assert all(store.verify() == () for store in (Store("libraries"), Store("kernels")))
    before = len(compiled(tmp_path))
    assert provide([A, B, C, D], EMULATED).compiled == 0
    assert len(compiled(tmp_path)) == before


def test_a_kernel_of_another_compiler_or_plan_or_header_is_another(tmp_path, monkeypatch):
    provide([A], EMULATED)
    compiler(tmp_path, monkeypatch, "2.0")
    assert provide([A], EMULATED).compiled == 1
    compiler(tmp_path, monkeypatch, "1.0")
    assert provide([A], EMULATED).compiled == 0
    use = replace(A.plan.use, lds_bytes=A.plan.use.lds_bytes + 4)
    assert provide([replace(A, plan=replace(A.plan, use=use))], EMULATED).compiled == 1
    copy = tmp_path / "include"
    for name, data in read_headers(sources()).items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes(data)
    assert headers_digest(copy) == headers_digest(sources())
    assert provide([A], EMULATED, include=copy).compiled == 0
    (copy / "abi.h").write_text("// another\n")
    assert provide([A], EMULATED, include=copy).compiled == 1
    assert provide([A], target("emulated", sanitize=True)).compiled == 1


def test_an_identity_leaves_out_the_compiler_and_nothing_else(tmp_path, monkeypatch):
    digest = headers_digest(sources())
    identities = {identity_of(A, EMULATED, digest), identity_of(B, EMULATED, digest),
                  identity_of(A, EMULATED, "another"),
                  identity_of(A, target("sm_90"), digest), identity_of(A, target("sm_80"), digest),
                  identity_of(KernelSource(A.plan, "any"), EMULATED, digest)}
    assert len(identities) == 6
    one = compilation_key(EMULATED, compilers.find_compiler("host"))
    compiler(tmp_path, monkeypatch, "2.0")
    assert compilation_key(EMULATED, compilers.find_compiler("host")) != one


def test_a_failure_is_nobodys_kernel(tmp_path, monkeypatch):
    compiler(tmp_path, monkeypatch, then="exit 3")
    with pytest.raises(CompileError):
        provide([A, B], EMULATED)
    assert Store("kernels").entries() == ()
    compiler(tmp_path, monkeypatch)
    assert provide([A], EMULATED).compiled == 1


def test_without_a_compiler_only_what_must_be_compiled_fails(monkeypatch):
    monkeypatch.setenv("DSCORE_CXX", "/nosuch/cxx")
    with pytest.raises(UnavailableError, match="/nosuch/cxx"):
        provide([A], EMULATED)


@pytest.mark.parametrize(("count", "cores", "sizes"), [
    (1, 16, [1]), (2, 1, [2]), (2, 16, [1, 1]), (9, 1, [5, 4]), (30, 16, [2] * 14 + [1] * 2),
    (30, 2, [8, 8, 7, 7]), (200, 16, [8] * 25)])
def test_units_use_all_cores_with_the_fewest_kernels_each(count, cores, sizes):
    chosen = [KernelSource(api.plan_for(f"n1c{n}h5w5_o8k1")) for n in range(1, count + 1)]
    parts = [unit.text.count("static_assert(") // 3 for unit in units(chosen, cores)]
    assert parts == sizes
    assert sum("dscore_abi" in unit.text for unit in units(chosen, cores)) == 1


# What a call waits for.

@pytest.fixture
def patience(monkeypatch):
    monkeypatch.setattr(kernels, "_PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(kernels, "_explained", threading.Lock())


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "dscore"]


@pytest.mark.deep
def test_a_long_wait_is_explained_once(patience, tmp_path, monkeypatch, caplog):
    compiler(tmp_path, monkeypatch, then="sleep 0.6")
    with explained_waits():
        provide([A], EMULATED)
        provide([B], EMULATED)
    message, = warnings_of(caplog)
    assert A.plan.token in message
    assert "compiler 1.0 (fake 1.0)" in message
    assert "dscore prepare" in message
    assert "\n" not in message
    assert caplog.records[0].levelno == logging.WARNING


@pytest.mark.deep
def test_nothing_is_said_of_a_short_wait_or_to_those_who_did_not_ask(
        patience, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(kernels, "_PATIENCE_SECONDS", 1)  # longer than a busy machine builds
    with explained_waits():
        provide([A], EMULATED)
        time.sleep(1.1)
        provide([A], EMULATED)
    compiler(tmp_path, monkeypatch, "2.0", "sleep 1.2")
    provide([A], EMULATED)
    assert warnings_of(caplog) == []


def test_a_library_that_is_pruned_before_it_is_open_is_built_again(monkeypatch):
    times, opened = 1, []

    def opening(path: Path, sha256: str) -> None:
        if len(opened) < times:  # another process prunes at this very moment
            Store("libraries").clear()
        opened.append(path)
        if not path.exists():
            raise CompileError("no such file")

    monkeypatch.setattr(kernels, "open_library", opening)
    assert Kernels("fixed").prepare([A.plan], EMULATED).compiled == 1
    assert len(opened) == 2
    times = 99
    with pytest.raises(CompileError, match="no such file"):
        Kernels("fixed").prepare([A.plan], EMULATED)
    assert len(opened) < 10


def test_a_library_that_is_there_and_is_none_is_not_built_again(tmp_path):
    with pytest.raises(CompileError, match="is not a kernel library"):
        Kernels("fixed").prepare([A.plan], EMULATED)
    assert (tmp_path / "compiled").read_text().count("\n") == 1
