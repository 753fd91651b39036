"""Operands of instructions: their text read once, into functions that read and write registers.

A type is a letter: u, i, f for 32 bits unsigned, signed, float; h, e, g for the low 16 bits
unsigned, signed, float; d, q for 64 bits unsigned, signed; m for a mask with a bit for each lane.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dscore.backends.machine_code.waves import EXEC, M0, VCC, Array, Waves, unpacked

Read = Callable[[Waves], Any]
Write = Callable[[Waves, Any], None]

_SPECIAL = {"vcc": VCC, "vcc_lo": VCC, "vcc_hi": VCC + 1, "m0": M0, "exec": EXEC, "exec_lo": EXEC,
            "exec_hi": EXEC + 1}
_REGISTER = re.compile(r"([vs])(?:(\d+)|\[(\d+):(\d+)\])$")
_CONSTANTS: dict[str, type[Any]] = {"u": np.uint32, "i": np.int32, "f": np.float32, "h": np.uint32,
                                    "e": np.int32, "d": np.uint64, "q": np.int64}
_WIDE = "dqm"
_SELECTIONS = {"DWORD": (0, 32), "WORD_0": (0, 16), "WORD_1": (16, 16), "BYTE_0": (0, 8),
               "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8)}
_UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")


class UnknownError(Exception):
    """An instruction, or a form of one, that the interpreter does not know."""


@dataclass(frozen=True)
class Operand:
    """Operand as it is written: registers, or the bits of a constant, and what is done to them."""

    kind: str  # v, s, or c for a constant
    first: int  # register
    count: int  # of registers
    bits: int = 0  # of a constant of 32 bits; sign-extended for 64
    negative: bool = False
    absolute: bool = False
    extended: bool = False  # SDWA: the selected part is signed

    @property
    def registers(self) -> range:
        """Numbers of the registers that it names."""
        return range(self.first, self.first + self.count)


def parse(text: str) -> Operand:
    """Operand of its text; UnknownError for one that is not known.

    >>> parse("v[2:3]").registers, parse("-|v7|").absolute, hex(parse("1.0").bits)
    (range(2, 4), True, '0x3f800000')
    """
    negative = text.startswith("-") and text[1:2] in tuple("vs|")
    inner = text[1:] if negative else text
    absolute = inner.startswith("|") and inner.endswith("|")
    inner = inner[1:-1] if absolute else inner
    extended = inner.startswith("sext(")
    inner = inner[5:-1] if extended else inner
    flags = (negative, absolute, extended)
    if inner in _SPECIAL:
        wide = 2 if inner in ("vcc", "exec") else 1
        return Operand("s", _SPECIAL[inner], wide, 0, *flags)
    named = _REGISTER.match(inner)
    if named:
        kind, one, low, high = named.groups()
        first = int(one or low)
        return Operand(kind, first, 1 if one else int(high) - first + 1, 0, *flags)
    return Operand("c", 0, 0, _constant(inner), *flags)


def _constant(text: str) -> int:
    """Bits of an inline constant or literal (Vega ISA, 6.2)."""
    if re.fullmatch(r"-?\d+\.\d+", text):
        return int(np.float32(text).view(np.uint32))
    if re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", text):
        return int(text, 0)
    raise UnknownError(f"operand {text}")


def reader(operand: Operand, kind: str, lanes: bool, selection: str = "DWORD") -> Read:
    """Function that reads an operand as a type, over (wavefronts, lanes) or over wavefronts."""
    if operand.kind == "c":
        return _constant_reader(operand, kind)
    needed = 2 if kind in _WIDE else 1
    if operand.count != needed or (kind == "m" and operand.kind == "v"):
        raise UnknownError(f"{operand.count} registers where {needed} are read")
    if (operand.negative or operand.absolute) and kind not in "fg":
        raise UnknownError("a sign modifier of an integer")
    if selection != "DWORD" or operand.extended:
        return _selecting(reader(Operand(operand.kind, operand.first, 1), "u", lanes),
                          selection, operand.extended, kind)
    plain = (_vector_reader if operand.kind == "v" else _scalar_reader)(operand.first, kind, lanes)
    if operand.absolute and operand.negative:
        return lambda m: -np.abs(plain(m))
    if operand.absolute:
        return lambda m: np.abs(plain(m))
    return (lambda m: np.negative(plain(m))) if operand.negative else plain


def _constant_reader(operand: Operand, kind: str) -> Read:
    bits = operand.bits
    if operand.negative or operand.absolute or kind == "m":
        raise UnknownError("a modifier of a constant, or a constant for a mask")
    if kind in "dq":
        value = _CONSTANTS[kind](bits & (2 ** 64 - 1) if kind == "d" else bits)
    else:
        word = np.array(bits & 0xFFFFFFFF, dtype=np.uint32)
        value = (_part(word, kind) if kind in "heg" else word.view(_CONSTANTS[kind]))[()]
    return lambda m: value


def _vector_reader(first: int, kind: str, lanes: bool) -> Read:
    if not lanes:
        raise UnknownError("a vector register of a scalar instruction")
    if kind == "u":
        return lambda m: m.v[first]
    if kind == "i":
        return lambda m: m.vi[first]
    if kind == "f":
        return lambda m: m.vf[first]
    if kind in "dq":
        as_type = np.uint64 if kind == "d" else np.int64
        return lambda m: (m.v[first] | m.v[first + 1].astype(np.uint64) << np.uint64(32)).view(
            as_type)
    return lambda m: _part(m.v[first], kind)


def _scalar_reader(first: int, kind: str, lanes: bool) -> Read:
    at = (slice(None), first // 2 if kind in _WIDE else first, *((None,) if lanes else ()))
    if kind == "m":
        return lambda m: unpacked(m.s64[:, first // 2])
    if kind in _WIDE:
        if first % 2:
            raise UnknownError(f"a pair of scalar registers from s{first} on")
        as_type = np.uint64 if kind == "d" else np.int64
        return lambda m: m.s64[at].view(as_type)
    if kind == "u":
        return lambda m: m.s[at]
    if kind == "i":
        return lambda m: m.si[at]
    if kind == "f":
        return lambda m: m.sf[at]
    return lambda m: _part(m.s[at], kind)


def _part(words: Array, kind: str) -> Array:
    """The low 16 bits, unsigned (h), signed (e) or a float (g)."""
    low = words & np.uint32(0xFFFF)
    if kind == "h":
        return low
    if kind == "g":
        return low.astype(np.uint16).view(np.float16)
    return (low ^ np.uint32(0x8000)).astype(np.int32) - np.int32(0x8000)


def _selecting(plain: Read, selection: str, extended: bool, kind: str) -> Read:
    """SDWA: part of a register, zero- or sign-extended (Vega ISA, 13.3.3, "SDWA")."""
    if selection not in _SELECTIONS or kind in "dqm":
        raise UnknownError(f"selection {selection}")
    shift, bits = _SELECTIONS[selection]
    up = np.uint32(32 - shift - bits)
    down = np.uint32(32 - bits)

    def read(m: Waves) -> Any:
        left = plain(m) << up
        word = ((left.view(np.int32) >> down.astype(np.int32)).view(np.uint32) if extended
                else left >> down)
        return _part(word, kind) if kind in "heg" else word.view(_CONSTANTS[kind])
    return read


def vector_writer(operand: Operand, kind: str, selection: str = "DWORD",
                  unused: str = "UNUSED_PAD") -> Write:
    """Function that writes the executing lanes of a destination; a mask goes to scalars.

    SDWA: *selection* is the part of the register that the result goes to, *unused* what becomes of
    the others (Vega ISA, 13.3.3).
    """
    first = operand.first
    if kind == "m":
        if operand.kind != "s" or operand.count != 2:
            raise UnknownError("a mask that does not go to a pair of scalar registers")
        return lambda m, lanes: m.write_mask(first, lanes)
    if operand.kind != "v" or operand.count != (2 if kind in _WIDE else 1):
        raise UnknownError("the number of registers of a destination")
    if selection != "DWORD":
        return _part_writer(first, kind, selection, unused)
    return _whole_writer(first, kind)


def _whole_writer(first: int, kind: str) -> Write:
    """Function that writes all of a register, or of a pair of them."""
    if kind == "f":
        return lambda m, value: np.copyto(m.vf[first], value, where=m.lanes)
    if kind == "i":
        return lambda m, value: np.copyto(m.vi[first], value, where=m.lanes, casting="same_kind")
    if kind in "dq":
        return lambda m, value: _write_wide(m, first, value.view(np.uint64))
    if kind in "heg":  # the other half becomes 0
        return lambda m, value: np.copyto(m.v[first], _bits_of(value, kind), where=m.lanes)
    return lambda m, value: np.copyto(m.v[first], value, where=m.lanes, casting="same_kind")


def _part_writer(first: int, kind: str, selection: str, unused: str) -> Write:
    """Function that writes the low bits of a result to a part of a register."""
    if selection not in _SELECTIONS or unused not in _UNUSED or kind in _WIDE:
        raise UnknownError(f"dst_sel:{selection} dst_unused:{unused}")
    shift, bits = _SELECTIONS[selection]
    up = np.uint32(32 - bits)
    others = np.uint32(~(((1 << bits) - 1) << shift) & 0xFFFFFFFF)

    def write(m: Waves, value: Any) -> None:
        left = np.asarray(_bits_of(value, kind)) << up
        part = left.view(np.int32) >> up.astype(np.int32) if unused == "UNUSED_SEXT" else left >> up
        word = part.view(np.uint32) << np.uint32(shift)
        if unused == "UNUSED_PRESERVE":
            word = m.v[first] & others | word
        np.copyto(m.v[first], word, where=m.lanes)
    return write


def _bits_of(value: Any, kind: str) -> Any:
    """A result as 32 bits; one of 16 bits with zeros above them."""
    if kind in "heg":
        return float16_bits(value) if kind == "g" else _low_bits(value)
    return value if kind == "u" else value.view(np.uint32)


def float16_bits(value: Array) -> Array:
    """Numbers rounded to float16, as 16 bits of 32."""
    return value.astype(np.float16).view(np.uint16).astype(np.uint32)


def _low_bits(value: Array) -> Array:
    return value.astype(np.uint32) & np.uint32(0xFFFF)


def _write_wide(m: Waves, first: int, value: Array) -> None:
    np.copyto(m.v[first], value.astype(np.uint32), where=m.lanes)
    np.copyto(m.v[first + 1], (value >> np.uint64(32)).astype(np.uint32), where=m.lanes)


def scalar_writer(operand: Operand, kind: str) -> Write:
    """Function that writes a scalar destination of the wavefronts that execute."""
    first = operand.first
    if operand.kind != "s" or operand.count != (2 if kind in _WIDE else 1):
        raise UnknownError("the destination of a scalar instruction")
    if kind in _WIDE:
        if first % 2:
            raise UnknownError(f"a pair of scalar registers from s{first} on")
        return lambda m, value: np.copyto(m.s64[:, first // 2], value.view(np.uint64),
                                          where=m.group)
    if kind == "i":
        return lambda m, value: np.copyto(m.si[:, first], value, where=m.group,
                                          casting="same_kind")
    return lambda m, value: np.copyto(m.s[:, first], value, where=m.group, casting="same_kind")
