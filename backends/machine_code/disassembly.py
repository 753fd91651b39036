"""Disassembly of a kernel by the compiler's own llvm-objdump, read into instructions."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dscore.backends.machine_code.objects import KernelObject
from dscore.building.compilers import find_compiler
from dscore.core.errors import CompileError, UnavailableError
from dscore.core.once import once

_LINE = re.compile(r"\s+(\S+)\s*(.*?)\s*// ([0-9A-F]{12}): ((?:[0-9A-F]{8} ?)+)")
_MODIFIER = re.compile(r"[a-z_0-9]+(?::(?:\[[^\]]*\]|\S+))?$")
_ACCUMULATOR = re.compile(r"^a(\d+|\[\d+:\d+\])$")
_MISSING = ("llvm-objdump is missing, which reads the machine code: install LLVM's binary tools "
            "(Debian: llvm-15), or set DSCORE_OBJDUMP")


@dataclass(frozen=True)
class Instruction:
    """One machine instruction: *opcode* without its encoding's suffix, operands as they are
    written, modifiers by name.
    """

    address: int
    opcode: str
    operands: tuple[str, ...]
    modifiers: dict[str, str]
    dwords: int
    text: str

    def __str__(self) -> str:
        return f"{self.address:#x}: {self.text}"

    @property
    def target(self) -> int:
        """Address that a branch goes to: simm16 dwords past the next instruction."""
        jump = int(self.operands[0], 0)
        return self.address + 4 + 4 * (((jump & 0xFFFF) ^ 0x8000) - 0x8000)


def objdump() -> str:
    """Path of llvm-objdump: DSCORE_OBJDUMP, beside hipcc's clang, or on PATH.

    Raises UnavailableError where there is none.
    """
    for path in _candidates():
        if path and os.access(path, os.X_OK) and Path(path).is_file():
            return str(path)
    raise UnavailableError(_MISSING)


def _candidates() -> Iterator[Path | str | None]:
    if os.environ.get("DSCORE_OBJDUMP"):
        yield shutil.which(os.environ["DSCORE_OBJDUMP"])
        return
    if os.environ.get("HIP_CLANG_PATH"):
        yield Path(os.environ["HIP_CLANG_PATH"], "llvm-objdump")
    try:
        home = Path(find_compiler("hip").path).resolve().parent
        yield from (home / "../llvm/bin/llvm-objdump", home / "../../llvm/bin/llvm-objdump",
                    home / "llvm-objdump")
    except UnavailableError:
        pass
    # Debian keeps a folder for each version; a newer one knows all that an older one does.
    folders = sorted(Path("/usr/lib").glob("llvm-*/bin"), key=_version, reverse=True)
    yield from (folder / "llvm-objdump" for folder in folders)
    yield shutil.which("llvm-objdump")


def _version(folder: Path) -> int:
    digits = re.findall(r"\d+", folder.parent.name)
    return int(digits[0]) if digits else 0


def missing_objdump() -> str | None:
    """Why machine code cannot be read here, with the fix; None where it can."""
    try:
        objdump()
    except UnavailableError as missing:
        return str(missing)
    return None


def disassemble(kernel: KernelObject, architecture: str) -> tuple[Instruction, ...]:
    """Instructions of a kernel, in the order of their addresses, none left out.

    Raises CompileError where the disassembler fails, or leaves a gap.
    """
    text = _dump(kernel.code_object, architecture)
    _, start, body = text.partition(f"<{kernel.symbol}>:\n")
    if not start:
        raise CompileError(f"llvm-objdump shows no {kernel.symbol}")
    # Dots stand for the zeros between two kernels.
    lines = body.partition("\n\n")[0].partition("\t...")[0].splitlines()
    code = [_instruction(line) for line in lines if line.strip()]
    if kernel.descriptor.accumulators:
        code = [_unified(one, kernel.descriptor.accumulators) for one in code]
    for before, after in itertools.pairwise(code):
        if before.address + 4 * before.dwords != after.address:
            raise CompileError(f"the disassembly has a gap after {before}")
    return tuple(code)


@once
def _dump(code_object: bytes, architecture: str) -> str:
    """Whole disassembly of a code object."""
    tool = objdump()
    with tempfile.TemporaryDirectory(prefix="dscore-objdump-") as folder:
        path = Path(folder, "kernels.elf")
        path.write_bytes(code_object)
        done = subprocess.run([tool, "-d", f"--mcpu={architecture}", str(path)], check=False,
                              capture_output=True, text=True)
    if done.returncode:
        raise CompileError(f"{tool} failed with status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def _instruction(line: str) -> Instruction:
    """Instruction of a line: opcode, operands, modifiers, and in a comment address and code.

    >>> one = _instruction("\\tds_read2_b32 v[2:3], v5 offset0:1 offset1:4"
    ...                    "    // 000000003300: D86E0401 02000005")
    >>> one.opcode, one.operands, one.modifiers, one.dwords
    ('ds_read2_b32', ('v[2:3]', 'v5'), {'offset0': '1', 'offset1': '4'}, 2)
    """
    parts = _LINE.match(line)
    if parts is None:
        raise CompileError(f"llvm-objdump wrote a line that is no instruction: {line.strip()}")
    mnemonic, rest, address, code = parts.groups()
    opcode = re.sub("_(e32|e64|sdwa)$", "", mnemonic)
    operands: list[str]
    modifiers: dict[str, str]
    if opcode == "s_waitcnt":
        operands, modifiers = [rest], {}
    else:
        operands, modifiers = _operands(rest)
    if mnemonic.endswith("_sdwa"):
        modifiers.setdefault("dst_sel", "DWORD")
    return Instruction(int(address, 16), opcode, tuple(operands), modifiers,
                       len(code.split()), f"{mnemonic} {rest}".strip())


def _unified(one: Instruction, first: int) -> Instruction:
    """Instruction whose accumulator registers are vector registers, from number *first* on."""
    def vector(name: re.Match[str]) -> str:
        return "v" + re.sub(r"\d+", lambda number: str(int(number[0]) + first), name[0][1:])

    return replace(one, operands=tuple(_ACCUMULATOR.sub(vector, text) for text in one.operands))


def _operands(text: str) -> tuple[list[str], dict[str, str]]:
    """Operands, which commas divide, and the modifiers behind the last one."""
    operands = re.split(r",\s*(?![^\[(]*[\])])", text) if text else []
    modifiers: dict[str, str] = {}
    if operands:
        last, *words = re.split(r"\s+(?![^(]*\))", operands[-1])
        operands[-1] = last
        for word in words:
            if not _MODIFIER.match(word):
                raise CompileError(f"unknown modifier {word} in {text}")
            name, _, value = word.partition(":")
            modifiers[name] = value
    return operands, modifiers
