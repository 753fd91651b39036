"""Small programs of gfx906 machine code, written as text, on registers and memory that are given.

No assembler is needed: the interpreter reads the text of a disassembly, which is made here.
"""

import numpy as np
import pytest

from dscore.backends.machine_code.basic_blocks import translate
from dscore.backends.machine_code.disassembly import _instruction
from dscore.backends.machine_code.launch import Batch, Grid, Program
from dscore.backends.machine_code.memory import GlobalMemory, Window
from dscore.backends.machine_code.objects import Descriptor
from dscore.core.errors import LaunchError

LANES = 64
WORD, LONG = 2**32, 2**64
EDGES = [0, 1, 2, 3, 31, 32, 33, 63, 64, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFF,
         0x800000, 0xFFFFFF, 0x1000000, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF]


def words(seed):
    """Values of 64 lanes: edges and random ones, in a random order."""
    random = np.random.default_rng(seed)
    return random.permutation(np.concatenate(
        [EDGES, random.integers(0, WORD, LANES - len(EDGES))])).astype(np.int64)


def signed(value, bits=32):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def code(text):
    """Instructions of lines, a dword each; "label:" names a line, which branches may go to."""
    lines, labels = [], {}
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.endswith(":"):
            labels[line[:-1]] = len(lines)
        else:
            lines.append(line)
    if not lines or lines[-1] != "s_endpgm":
        lines.append("s_endpgm")
    for at, line in enumerate(lines):
        opcode, _, label = line.partition(" ")
        if label in labels:
            lines[at] = f"{opcode} {(labels[label] - at - 1) & 0xFFFF}"
    return [_instruction(f"\t{line} // {4 * at:012X}: 00000000") for at, line in enumerate(lines)]


def program(text, lds_bytes=0):
    """The program of a text; s0 holds the block's number, v0 the thread's."""
    descriptor = Descriptor(lds_bytes, 0, 0, 64, 0xF0, (), 0)
    return Program(translate(code(text), "a program"), descriptor)


def run(text, vectors=None, scalars=None, arrays=(), lds_bytes=0, threads=LANES, blocks=1,
        exec_mask=None):
    """Wavefronts after a program; *vectors* and *scalars* are registers' values by number.

    *arrays* are (name, array, written to); `address(n)` is where the n-th one lies.
    """
    memory = GlobalMemory([Window(*one) for one in arrays])
    batch = Batch(program(text, lds_bytes), Grid(blocks, threads), np.arange(blocks), memory)
    for register, values in (vectors or {}).items():
        batch.v[register] = np.asarray(values).astype(np.int64, casting="unsafe") & 0xFFFFFFFF
        batch.v_written[register] = ~np.uint64(0)
    for register, value in (scalars or {}).items():
        batch.s[:, register] = value & 0xFFFFFFFF
        batch.s_written[register] = True
    if exec_mask is not None:
        batch.begin(np.full(batch.count, exec_mask, np.uint64))
    with np.errstate(all="ignore"):
        batch.run()
    return batch


def address(number):
    """Scalar registers s4 and s5 that hold the address of an array."""
    base = GlobalMemory.base(number)
    return {4: base & 0xFFFFFFFF, 5: base >> 32}


def fault(text, match, **given):
    """Require that a program is a fault whose message matches."""
    with pytest.raises(LaunchError, match=match):
        run(text, **given)
