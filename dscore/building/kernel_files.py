"""Files of kernels for machines without a compiler: libraries that say what they were made of.

Behind the library stand a table (JSON), a mark with the table's length, and the SHA-256 of all
that. The table names each kernel by its identity (dscore.building.kernels), with the target, the
ABI and the digest of the kernel sources. What loads a library does not look behind its end.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dscore._version import __version__
from dscore.building.compiler_places import KINDS, Kind
from dscore.building.compilers import Compiler
from dscore.building.headers import headers_digest, sources
from dscore.building.reports import Report, report_from
from dscore.building.toolchain import Target
from dscore.core.errors import DscoreError, SpecError, UnavailableError
from dscore.core.once import once
from dscore.core.text import path_text, read_whole, write_whole

VARIABLE = "DSCORE_LIBRARIES"
_MAGIC = b"dscore kernels 1"
_MARK_BYTES, _DIGEST_BYTES = len(_MAGIC) + 8, hashlib.sha256().digest_size
_TEXTS = ("sources", "dscore", "machine", "target", "kind", "compiler")  # of the table
_ODD = "is not as dscore build --out wrote it; copy it again"


@dataclass(frozen=True)
class KernelFile:
    """File of kernels.

    *target* is an architecture as the compiler names it (sm_90), or emulated; *compiler* is the
    version of the one that built the file; *kernels* are names.
    """

    path: Path
    target: str
    kind: Kind = field(repr=False)
    compiler: str
    kernels: tuple[str, ...]
    reports: Mapping[str, Report | None] = field(repr=False)  # by the kernels' identities


_taken: dict[Path, KernelFile] = {}  # by `take_from`, in the order of the calls


def abi() -> int:
    """Version of the interface of kernel libraries (hip_src/abi.h) that this dscore speaks."""
    match = re.search(r"#define DSCORE_ABI (\d+)", (sources() / "abi.h").read_text())
    if match is None:
        raise SpecError(f"{sources()}: abi.h does not state DSCORE_ABI")
    return int(match[1])


def write_file(path: str | os.PathLike[str], library: Path, target: Target, compiler: Compiler,
               headers: str, kernels: Mapping[str, tuple[str, Report | None]]) -> None:
    """Write a library with its table to *path*; *kernels* are names and reports by identity."""
    contents = read_whole(library)
    table = {
        "abi": abi(), "sources": headers, "dscore": __version__, "machine": _machine(),
        "target": target.name, "kind": target.kind, "architecture": target.architecture,
        "compiler": compiler.version, "kernels": [
            {"identity": identity, "name": name, "report": report and asdict(report)}
            for identity, (name, report) in kernels.items()]}
    write_whole(path, sealed(contents, table))


def sealed(library: bytes, table: Mapping[str, Any]) -> bytes:
    """Contents of a file: the library, the table, the seal."""
    text = json.dumps(table).encode()
    body = library + text + _MAGIC + len(text).to_bytes(8, "little")
    return body + hashlib.sha256(body).digest()


def read_file(path: str | os.PathLike[str]) -> KernelFile:
    """File at *path* with kernels for this machine, not yet taken from.

    Raises SpecError where it is no whole file of `dscore build --out`, UnavailableError where its
    kernels are not those of this dscore or of this machine's processor.
    """
    path = Path(path_text(path, "a file of kernels")).absolute()
    table = table_of(path)
    _require_equal(path, "ABI", table.get("abi"), abi())
    file = _kernel_file(path, table)
    digest = headers_digest(sources())
    if table["sources"] != digest:
        raise UnavailableError(f"{path} was built from the kernel sources {table['sources'][:8]} "
                               f"(dscore {table['dscore']:.20}), and this dscore has {digest[:8]} "
                               f"({__version__}); build it again with this one")
    _require_equal(path, "machines of", table["machine"], _machine())
    return file


def take_from(file: KernelFile) -> None:
    """Take kernels from *file* from now on, before any are looked for in the cache or built."""
    _taken[file.path] = file


def table_of(path: Path) -> dict[str, Any]:
    """Table of the file at *path*, of any ABI; SpecError where it is no whole one."""
    # What comes through a pipe cannot be loaded.
    if os.path.exists(path) and not os.path.isfile(path):
        raise SpecError(f"{path}: cannot be read: it is no file")
    contents = read_whole(path)
    body, digest = contents[:-_DIGEST_BYTES], contents[-_DIGEST_BYTES:]
    rest, magic, size = body[:-_MARK_BYTES], body[-_MARK_BYTES:-8], body[-8:]
    if magic != _MAGIC:
        raise SpecError(f"{path} holds no kernels that say what they were made of; dscore build "
                        "--out makes such files")
    if hashlib.sha256(body).digest() != digest:
        raise SpecError(f"{path} {_ODD}")
    try:
        table = json.loads(rest[max(0, len(rest) - int.from_bytes(size, "little")):])
    except (ValueError, RecursionError):
        table = None
    if not isinstance(table, dict):
        raise SpecError(f"{path} {_ODD}")
    return table


def _kernel_file(path: Path, table: Mapping[str, Any]) -> KernelFile:
    """File that *table* describes; SpecError where it is not of the form of `write_file`."""
    try:
        kernels = [(kernel["identity"], kernel["name"], kernel["report"])
                   for kernel in table["kernels"]]
        reports = {identity: None if report is None else report_from(report)
                   for identity, _, report in kernels}
        texts = [*(table[name] for name in _TEXTS), *reports, *(name for _, name, _ in kernels)]
        if (all(isinstance(text, str) for text in texts) and table["kind"] in KINDS
                and isinstance(table["kernels"], list)):
            return KernelFile(path, table["target"], table["kind"], table["compiler"],
                              tuple(name for _, name, _ in kernels), reports)
    except (KeyError, TypeError, ValueError):
        pass
    raise SpecError(f"{path} {_ODD}")


def _require_equal(path: Path, what: str, built_for: object, here: object) -> None:
    if built_for != here:
        raise UnavailableError(f"{path} was built for {what} {built_for!s:.80}, here it is {here}; "
                               "build it again")


def _machine() -> str:
    return f"{platform.system()} {platform.machine()}"


def loaded_files() -> tuple[KernelFile, ...]:
    """Files that kernels are taken from: those of `take_from`, then those of DSCORE_LIBRARIES."""
    return (*_taken.values(), *_of_variable(os.environ.get(VARIABLE, "")))


def files_of(kind: Kind) -> tuple[KernelFile, ...]:
    """Loaded files with kernels that a compiler of *kind* has built."""
    return tuple(file for file in loaded_files() if file.kind == kind)


@once
def _of_variable(paths: str) -> tuple[KernelFile, ...]:
    """Files that DSCORE_LIBRARIES names; one that cannot be used is left out, with a warning."""
    files = []
    for path in filter(None, paths.split(os.pathsep)):
        try:
            files.append(read_file(path))
        except DscoreError as unusable:
            warnings.warn(f"{VARIABLE}: {unusable}", RuntimeWarning, stacklevel=2)
    return tuple(files)


def kernel_of(identity: str, target: Target) -> tuple[Path, Report | None] | None:
    """Loaded file that holds the kernel of *identity*, and its report; None where none does."""
    for file in loaded_files():
        if identity in file.reports:
            return file.path, file.reports[identity]
        if target.kind != "host" != file.kind and file.target != target.name:
            _warn_of_target(file.path, file.target, target.name)
    return None


@once
def _warn_of_target(path: Path, built_for: str, here: str) -> None:
    warnings.warn(f"{path} was built for {built_for}; no kernels for {here} are taken from it",
                  RuntimeWarning, stacklevel=2)
