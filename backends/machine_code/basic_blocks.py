"""Basic blocks of a kernel: where branches go to and leave from, and what stands between."""

from __future__ import annotations

from collections.abc import Sequence

from dscore.backends.machine_code import control
from dscore.backends.machine_code.disassembly import Instruction
from dscore.backends.machine_code.operands import UnknownError
from dscore.backends.machine_code.translation import BasicBlock, Translator
from dscore.core.errors import UnavailableError


def translate(code: Sequence[Instruction], what: str) -> list[BasicBlock]:
    """Basic blocks of a kernel, in the order of their addresses.

    Raises UnavailableError that names every opcode and form that is not known.
    """
    starts = _starts(code)
    blocks: list[BasicBlock] = []
    unknown: set[str] = set()
    translator = Translator()
    for at, instruction in enumerate(code):
        if at and instruction.address in starts:
            blocks.append(translator.block)
            translator = Translator()
        try:
            if instruction.opcode in control.LEAVES:
                translator.block.leave = control.LEAVES[instruction.opcode]
                if instruction.opcode in control.BRANCHES:
                    translator.block.target = starts[instruction.target]
            else:
                translator.translate(instruction)
        except UnknownError as form:
            unknown.add(f"{form} (as in {instruction.text})")
        except (KeyError, ValueError) as wrong:
            unknown.add(f"{instruction.text} ({wrong})")
    blocks.append(translator.block)
    if unknown:
        raise UnavailableError(f"the interpreter does not know all machine code of {what}: "
                               + "; ".join(sorted(unknown)))
    return blocks


def _starts(code: Sequence[Instruction]) -> dict[int, int]:
    """Addresses at which basic blocks begin, and the blocks' numbers."""
    addresses = {code[0].address}
    for instruction in code:
        if instruction.opcode in control.LEAVES:
            addresses.add(instruction.address + 4 * instruction.dwords)
            if instruction.opcode in control.BRANCHES:
                addresses.add(instruction.target)
    inside = sorted(addresses & {instruction.address for instruction in code})
    return {address: number for number, address in enumerate(inside)}
