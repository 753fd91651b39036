"""Memory of a launch: operands in global memory, each a window of its own, and the blocks' LDS.

Every access is checked: within one operand, aligned, and in LDS within the block's own bytes. A
race is a fault, whether or not it shows in the result. The instructions of one wavefront execute in
order; two wavefronts of a block are ordered by barriers alone. So between two barriers no wavefront
may touch a word of LDS that another one writes, and no word of the result may be written by two
wavefronts. A kernel that keeps these rules computes the same in every order of its wavefronts, of
which the interpreter therefore runs one.
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
# Unsigned integers by their bytes.
PARTS: dict[int, Any] = {4: np.uint32, 2: np.uint16, 1: np.uint8}


class Window:
    """One array in global memory, by words of 32 bits and their parts; *writable* where a kernel
    may store to it.

    A *shared* one is read and written by any wavefronts, in an order that the kernel takes care of.
    """

    def __init__(self, name: str, array: Array, writable: bool, shared: bool = False) -> None:
        self.name, self.writable, self.shared = name, writable, shared
        self.bytes, self._array = array.nbytes, array
        self.words: Words = _words_of(array)
        # Elements, or words of larger ones: what different wavefronts may write, and where accesses
        # may begin. The hardware takes words at any address (AMDGPUUsage, "unaligned-access-mode").
        self.part = min(array.itemsize, 4)
        self.parts = self.words.view(PARTS[self.part])
        if writable:
            self.writer = np.full(4 * self.words.size // self.part, _NOBODY, dtype=np.int32)

    def word(self, first: Array, word: int) -> Words:
        """Words numbered *word* from the parts *first* on."""
        if self.part == 4:
            return self.words[word:].take(first, mode="clip")
        return self.number(first, 4, word * 4 // self.part)

    def number(self, first: Array, size: int, at: int = 0) -> Words:
        """Numbers of *size* bytes from the parts *first* and *at* on, as words."""
        return joined(np.stack([self.parts[at + n:].take(first, mode="clip")
                                 for n in range(size // self.part)]), size)[0]

    def set_word(self, first: Array, word: int, values: Words) -> None:
        """Write words, as `word` reads them."""
        if self.part == 4:
            self.words[first + word] = values
        else:
            self.set_number(first, values, 4, word * 4 // self.part)

    def set_number(self, first: Array, values: Words, size: int, at: int = 0) -> None:
        """Write numbers, as `number` reads them."""
        for n, part in enumerate(split(values, size, self.part)):
            self.parts[first + at + n] = part

    def finish(self) -> None:
        """Write back to an array of other than whole words, which was copied."""
        if self.writable and self.bytes % 4:
            self._array.reshape(-1).view(np.uint8)[...] = self.words.view(np.uint8)[:self.bytes]

    def note_writers(self, offsets: Array, size: int, waves: Array) -> None:
        """Note which wavefronts write *size* bytes each; Fault for what another one writes, too."""
        if size < self.part:
            raise Fault(f"writes {size} bytes of an element of {self.name}, which has {self.part}")
        for first in range(0, size, self.part):
            self._note((offsets + first) // self.part, waves)

    def _note(self, place: Array, waves: Array) -> None:
        before = self.writer[place]
        self.writer[place] = waves
        other = ((before != _NOBODY) & (before != waves) & (not self.shared)).any()
        if other or (self.writer[place] != waves).any():
            raise Fault(f"writes an element of {self.name} that another wavefront writes as well")

    def at(self, offsets: npt.NDArray[np.int64], size: int, unit: int = 4
           ) -> npt.NDArray[np.int64]:
        """First units of *unit* bytes (4: words, 2: halves) of accesses of *size* bytes; Fault for
        one that is not aligned, or leaves the array.
        """
        low, high = int(offsets.min()), int(offsets.max()) + size
        if low < 0 or high > self.bytes:
            raise Fault(f"accesses bytes {low:,} to {high - 1:,} of {self.name}, which has "
                        f"{self.bytes:,}")
        if (offsets & (unit - 1)).any():
            raise Fault(f"accesses {self.name} at an address that is no multiple of {unit} bytes")
        return offsets // unit


def _words_of(array: Array) -> Words:
    """An array's memory by words of 32 bits; a copy where it ends amid one."""
    if array.nbytes % 4 == 0:
        return array.reshape(-1).view(np.uint32)
    whole = np.zeros(-(-array.nbytes // 4) * 4, dtype=np.uint8)
    whole[:array.nbytes] = array.reshape(-1).view(np.uint8)
    return whole.view(np.uint32)


def split(numbers: Words, size: int, part: int) -> list[Array]:
    """The parts of numbers of *size* bytes, the low one first."""
    if size == part:
        return [numbers.astype(PARTS[part], copy=False)]
    return [(numbers >> np.uint32(8 * at)).astype(PARTS[part]) for at in range(0, size, part)]


def joined(parts: Array, size: int = 4) -> Words:
    """Numbers of *size* bytes of their parts, over (parts, addresses)."""
    if parts.dtype.itemsize == size:
        return parts.astype(np.uint32, copy=False)
    each = size // parts.dtype.itemsize
    numbers = parts[::each].astype(np.uint32)
    for n in range(1, each):
        numbers |= parts[n::each].astype(np.uint32) << np.uint32(8 * parts.dtype.itemsize * n)
    return numbers


class GlobalMemory:
    """Windows of a launch; the address of one is `base` of its number."""

    def __init__(self, windows: list[Window]) -> None:
        self.windows = windows
        self.part = min((window.part for window in windows), default=4)  # of LDS, too
        self.changes = 0  # stores and atomic operations so far

    def finish(self) -> None:
        """Have all arrays hold what was written to their windows."""
        for window in self.windows:
            window.finish()

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

    def load(self, addresses: npt.NDArray[np.uint64], words: int) -> Words:
        """Words at *addresses*, over (words, addresses); Fault for what no operand has."""
        values = np.empty((words, addresses.size), dtype=np.uint32)
        for window, which, offsets in self._places(addresses):
            if window.writable and not window.shared:
                raise Fault(f"reads {window.name}, which it is to write")
            first = window.at(offsets, 4 * words, window.part)
            for word in range(words):
                values[word, which] = window.word(first, word)
        return values

    def load_small(self, addresses: npt.NDArray[np.uint64], size: int) -> Words:
        """Halves of words (*size* 2) or bytes at *addresses*, as numbers of 32 bits."""
        values = np.empty(addresses.size, dtype=np.uint32)
        for window, which, offsets in self._places(addresses):
            if window.writable and not window.shared:
                raise Fault(f"reads {window.name}, which it is to write")
            parts = window.words.view(PARTS[size])  # of a size that its elements may lack
            values[which] = (parts[window.at(offsets, size, size)] if window.part > 1
                             else window.number(window.at(offsets, size, 1), size))
        return values

    def store_small(self, addresses: npt.NDArray[np.uint64], values: Words,
                    waves: npt.NDArray[np.int32], size: int) -> None:
        """Store the low halves (*size* 2) or bytes of *values*, as `store` does words."""
        self.changes += 1
        for window, which, offsets in self._places(addresses):
            if not window.writable:
                raise Fault(f"writes to {window.name}, which is an input")
            window.at(offsets, size, min(size, window.part))  # raises for one that is not aligned
            window.note_writers(offsets, size, waves[which])
            first, stored = offsets // window.part, values[which]
            window.set_number(first, stored, size)
            mask = np.uint32(2**(8 * size) - 1)
            require_agreement(window.number(first, size), stored & mask, window.name)

    def store(self, addresses: npt.NDArray[np.uint64], values: list[Words],
              waves: npt.NDArray[np.int32]) -> None:
        """Store words at *addresses*, which *waves*, numbered in the launch, write."""
        self.changes += 1
        for window, which, offsets in self._places(addresses):
            if not window.writable:
                raise Fault(f"writes to {window.name}, which is an input")
            first = window.at(offsets, 4 * len(values), window.part)
            window.note_writers(offsets, 4 * len(values), waves[which])
            for word, value in enumerate(values):
                window.set_word(first, word, value[which])
                require_agreement(window.word(first, word), value[which], window.name)

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
                before[lane] = window.words[place]
                window.words[place] += values[lane]
        return before


def require_agreement(stored: Array, values: Array, where: str) -> None:
    """Fault where lanes of one instruction store different *values* to one word.

    Which lane is the last one, the manual does not say.
    """
    if not np.array_equal(stored, values):
        raise Fault(f"stores different values of several lanes to one word of {where}")
