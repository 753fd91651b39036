"""Global memory of a launch: operands, each a window of its own, by parts.

A part is an element of the operand, or a word of 32 bits of larger ones. Every access is checked:
within one operand, and aligned. A race is a fault, whether or not it shows in the result. The
instructions of one wavefront execute in order; two wavefronts of a block are ordered by barriers
alone. So no part of the result may be written by two wavefronts, and between two barriers no
wavefront may touch a part of LDS that another one writes (`lds`). A kernel that keeps these rules
computes the same in every order of its wavefronts, of which the interpreter therefore runs one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dscore.backends.machine_code.waves import Array, Fault, Words

# Addresses of windows lie so far apart that an address out of one is in no other, and begin so
# close to a multiple of 2**32 that a sum without its carry misses its window. No kernel may count
# on more than the 16 bytes that they are a multiple of.
_APART = 40
_ORIGIN = (1 << 32) - 16
_NOBODY = -1
PARTS: dict[int, type[Any]] = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def joined(parts: Array) -> Words:
    """Words of 32 bits, over (words, accesses), of their parts, over (parts, accesses); of fewer
    parts than a word has, one word that is zero above them.

    >>> joined(np.array([[0x34], [0x12], [0], [0x80]], dtype=np.uint8)).tolist()
    [[2147488308]]
    """
    size = parts.itemsize
    count = min(4 // size, len(parts))
    words = parts[::count].astype(np.uint32)
    for at in range(1, count):
        words |= parts[at::count].astype(np.uint32) << np.uint32(8 * size * at)
    return words


def split(words: Words, part: int, size: int) -> Array:
    """The parts, over (parts, accesses), of *size* bytes of each access, of which *words* has all.

    >>> split(np.array([[0x80001234]], dtype=np.uint32), 2, 4).tolist()
    [[4660], [32768]]
    """
    count = 4 // part
    values = np.empty((size // part, words.shape[1]), dtype=PARTS[part])
    for at in range(min(count, len(values))):
        values[at::count] = words >> np.uint32(8 * part * at)
    return values


class Window:
    """One array in global memory, by parts; *writable* where a kernel may store to it.

    A *shared* one is read and written by any wavefronts, in an order that the kernel takes care of.
    """

    def __init__(self, name: str, array: Array, writable: bool, shared: bool = False) -> None:
        self.name, self.writable, self.shared = name, writable, shared
        self.bytes = array.nbytes
        # What different wavefronts may write, and where accesses may begin. The hardware takes
        # words at any address (AMDGPUUsage, "unaligned-access-mode").
        self.part = min(array.itemsize, 4)
        self.parts: Array = array.reshape(-1).view(PARTS[self.part])
        if writable:
            self.writer = np.full(self.parts.size, _NOBODY, dtype=np.int32)

    def read(self, offsets: npt.NDArray[np.int64], size: int) -> Words:
        """Words, over (words, accesses), of *size* bytes at each of *offsets*; fewer than a word
        has, zero above them. Fault for what is not aligned, or not in the array.
        """
        if size < self.part:
            few = self.parts.view(PARTS[size]).take(self.at(offsets, size, size), mode="clip")
            words: Words = few.astype(np.uint32)[None]
            return words
        first = self.at(offsets, size, self.part)
        return joined(self.parts.take(first + _numbers(size // self.part), mode="clip"))

    def write(self, offsets: npt.NDArray[np.int64], size: int, words: Words, waves: Array) -> None:
        """Write *size* bytes of *words* at each of *offsets*, for *waves*."""
        if size < self.part:
            raise Fault(f"writes {size} bytes of an element of {self.name}, which has {self.part}")
        place = self.at(offsets, size, self.part) + _numbers(size // self.part)
        before = self.writer[place]
        self.writer[place] = waves
        other = ((before != _NOBODY) & (before != waves) & (not self.shared)).any()
        if other or (self.writer[place] != waves).any():
            raise Fault(f"writes an element of {self.name} that another wavefront writes as well")
        values = split(words, self.part, size)
        self.parts[place] = values
        require_agreement(self.parts[place], values, self.name)

    def at(self, offsets: npt.NDArray[np.int64], size: int, unit: int = 4
           ) -> npt.NDArray[np.int64]:
        """First units of *unit* bytes of accesses of *size* bytes; Fault for one that is not
        aligned, or leaves the array.
        """
        low, high = int(offsets.min()), int(offsets.max()) + size
        if low < 0 or high > self.bytes:
            raise Fault(f"accesses bytes {low:,} to {high - 1:,} of {self.name}, which has "
                        f"{self.bytes:,}")
        if (offsets & (unit - 1)).any():
            raise Fault(f"accesses {self.name} at an address that is no multiple of {unit} bytes")
        return offsets // unit


def _numbers(count: int) -> npt.NDArray[np.int64]:
    """0 to *count* - 1, a row each."""
    return np.arange(count, dtype=np.int64)[:, None]


class GlobalMemory:
    """Windows of a launch; the address of one is `base` of its number."""

    def __init__(self, windows: list[Window]) -> None:
        self.windows = windows
        self.part = min((window.part for window in windows), default=4)  # of LDS, too
        self.changes = 0  # stores and atomic operations so far

    @staticmethod
    def base(number: int) -> int:
        """Address of the first byte of a window, a multiple of 16."""
        return _ORIGIN + ((number + 1) << _APART)

    def _places(self, addresses: npt.NDArray[np.uint64]
                ) -> list[tuple[Window, Any, npt.NDArray[np.int64]]]:
        """Each window that *addresses*, of one axis, point to: which ones, and their offsets."""
        flat = (addresses - np.uint64(_ORIGIN)).view(np.int64)
        # An offset below 0 counts to the window above it.
        numbers = ((flat + (1 << _APART - 1)) >> _APART) - 1
        low, high = int(numbers.min()), int(numbers.max())
        if low < 0 or high >= len(self.windows):
            wrong = addresses[(numbers < 0) | (numbers >= len(self.windows))][0]
            raise Fault(f"accesses address {int(wrong):#x}, which is in no operand")
        if low == high:
            return [(self.windows[low], slice(None), flat - ((low + 1) << _APART))]
        return [(self.windows[n], which, flat[which] - ((n + 1) << _APART))
                for n in np.unique(numbers) for which in [np.nonzero(numbers == n)[0]]]

    def load(self, addresses: npt.NDArray[np.uint64], size: int) -> Words:
        """Words, over (words, addresses), of *size* bytes at each of *addresses*, as `Window.read`
        has them; Fault for what no operand has.
        """
        values = np.empty((-(-size // 4), addresses.size), dtype=np.uint32)
        for window, which, offsets in self._places(addresses):
            if window.writable and not window.shared:
                raise Fault(f"reads {window.name}, which it is to write")
            values[:, which] = window.read(offsets, size)
        return values

    def store(self, addresses: npt.NDArray[np.uint64], size: int, words: Words,
              waves: npt.NDArray[np.int32]) -> None:
        """Store *size* bytes of *words* at each of *addresses*, which *waves*, numbered in the
        launch, write."""
        self.changes += 1
        for window, which, offsets in self._places(addresses):
            if not window.writable:
                raise Fault(f"writes to {window.name}, which is an input")
            window.write(offsets, size, words[:, which], waves[which])

    def add(self, addresses: npt.NDArray[np.uint64], values: Words) -> Words:
        """Add *values* one after the other to words at *addresses*; the words as each found them.
        """
        self.changes += 1
        before = np.empty_like(values)
        for window, which, offsets in self._places(addresses):
            if not window.shared:
                raise Fault(f"adds to a word of {window.name}, which wavefronts do not share")
            lanes = np.arange(addresses.size)[which]
            for lane, place in zip(lanes, window.at(offsets, 4), strict=True):
                before[lane] = window.parts[place]
                window.parts[place] += values[lane]
        return before


def require_agreement(stored: Array, values: Array, where: str) -> None:
    """Fault where lanes of one instruction store different *values* to one part.

    Which lane is the last one, the manual does not say.
    """
    if not np.array_equal(stored, values):
        raise Fault(f"stores different values of several lanes to one word of {where}")
