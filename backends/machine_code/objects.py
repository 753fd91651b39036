"""Code objects of a kernel library: offload bundle, ELF, symbols and kernel descriptors.

Sources: the Clang documentation, "Clang Offload Bundler"; LLVM's "User Guide for AMDGPU Backend"
(AMDGPUUsage), sections "Code Object" and "Kernel Descriptor"; System V ABI, chapter 4 (ELF).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dscore.core.errors import CompileError

_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_DESCRIPTOR_BYTES = 64
# Of kernel_code_properties: registers that the hardware sets up, in their order from s0 on.
_USER_SGPRS = (("private_segment_buffer", 4), ("dispatch_ptr", 2), ("queue_ptr", 2),
               ("kernarg_segment_ptr", 2), ("dispatch_id", 2), ("flat_scratch_init", 2),
               ("private_segment_size", 1))


class Symbol(NamedTuple):
    """Symbol of an ELF file: the bytes that it names, by their offset in the file."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True)
class Descriptor:
    """Kernel descriptor: what the hardware is told before a kernel starts."""

    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    vgprs: int  # that a wavefront may name
    float_mode: int  # FLOAT_MODE: rounding and denormals
    user_sgprs: tuple[tuple[str, int], ...]  # (what it is, the first register)
    system_sgprs: int  # the first register after them, which holds the block's number
    accumulators: int = 0  # gfx90a: the vector register that is accumulator register 0

    @classmethod
    def parse(cls, data: bytes, unified: bool = False) -> Descriptor:
        """Descriptor of its 64 bytes (AMDGPUUsage, "Kernel Descriptor for GFX6-GFX11").

        *unified*: accumulator registers are numbered behind the vector registers, as on gfx90a.
        """
        lds, scratch, kernarg = struct.unpack_from("<III", data)
        resources3, resources1, resources2, properties = struct.unpack_from("<IIIH", data, 44)
        first, user = 0, []
        for bit, (name, count) in enumerate(_USER_SGPRS):
            if properties >> bit & 1:
                user.append((name, first))
                first += count
        total = resources2 >> 1 & 0x1F  # USER_SGPR_COUNT
        if first != total:
            raise CompileError(f"a kernel descriptor asks for {total} user SGPRs and names {first}")
        return cls(lds, scratch, kernarg, ((resources1 & 0x3F) + 1) * (8 if unified else 4),
                   resources1 >> 12 & 0xFF, tuple(user), total,
                   ((resources3 & 0x3F) + 1) * 4 if unified else 0)


@dataclass(frozen=True)
class KernelObject:
    """One kernel of a code object: its symbol, its descriptor, and the object itself."""

    symbol: str
    descriptor: Descriptor
    code_object: bytes


def code_objects(library: bytes, architecture: str) -> Iterator[bytes]:
    """The code objects for *architecture* in the section .hip_fatbin of a library.

    hipcc makes one bundle for each unit, one after the other.
    """
    fat = _sections(library).get(".hip_fatbin", b"")
    at = fat.find(_MAGIC)
    while at >= 0:
        (entries,) = struct.unpack_from("<Q", fat, at + len(_MAGIC))
        head = at + len(_MAGIC) + 8
        for _ in range(entries):
            offset, size, length = struct.unpack_from("<QQQ", fat, head)
            target = fat[head + 24:head + 24 + length].decode()
            head += 24 + length
            if size and target.rpartition("--")[2].partition(":")[0] == architecture:
                yield fat[at + offset:at + offset + size]
        at = fat.find(_MAGIC, at + 1)


def kernel_object(library: Path, name: str, architecture: str) -> KernelObject:
    """The kernel of a plan's *name* in a library; CompileError where there is none."""
    part = f"{len(name)}{name}E"  # as C++ writes a name in the symbol of a template
    for code_object in code_objects(library.read_bytes(), architecture):
        symbols = {symbol.name: symbol for symbol in _symbols(code_object)}
        for symbol in symbols.values():
            if part in symbol.name and symbol.name.endswith(".kd"):
                data = code_object[symbol.offset:symbol.offset + _DESCRIPTOR_BYTES]
                return KernelObject(symbol.name.removesuffix(".kd"),
                                    Descriptor.parse(data, architecture == "gfx90a"), code_object)
    raise CompileError(f"{library} has no {architecture} machine code of {name}")


class _Section(NamedTuple):
    name: int
    kind: int
    address: int
    offset: int
    size: int
    link: int


def _headers(elf: bytes) -> list[_Section]:
    if elf[:5] != b"\x7fELF\x02":
        raise CompileError("not a 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, count = struct.unpack_from("<HH", elf, 58)
    headers = []
    for n in range(count):
        name, kind, _, address, offset, length, link = struct.unpack_from(
            "<IIQQQQI", elf, table + n * size)
        headers.append(_Section(name, kind, address, offset, length, link))
    return headers


def _text(elf: bytes, at: int) -> str:
    return elf[at:elf.index(b"\0", at)].decode()


def _sections(elf: bytes) -> dict[str, bytes]:
    """Contents of an ELF file's sections by name."""
    headers = _headers(elf)
    (names,) = struct.unpack_from("<H", elf, 62)
    return {_text(elf, headers[names].offset + one.name): elf[one.offset:one.offset + one.size]
            for one in headers if one.kind != 8}  # SHT_NOBITS has no bytes


def _symbols(elf: bytes) -> Iterator[Symbol]:
    headers = _headers(elf)
    for table in headers:
        if table.kind != 2:  # SHT_SYMTAB
            continue
        for at in range(table.offset, table.offset + table.size, 24):
            name, _, _, section, value, size = struct.unpack_from("<IBBHQQ", elf, at)
            if 0 < section < len(headers):
                home = headers[section]
                yield Symbol(_text(elf, headers[table.link].offset + name),
                             home.offset + value - home.address, size)
