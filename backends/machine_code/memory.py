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

from dscore.backends.machine_code.waves import POISON, Array, Fault, Words

# Addresses of windows lie so far apart that an address out of one is in no other, and begin so
# close to a multiple of 2**32 that a sum without its carry misses its window. No kernel may count
# on more than the 16 bytes that they are a multiple of.
_APART = 40
_ORIGIN = (1 << 32) - 16
_NOBODY = -1


class Window:
    """One array in global memory, by words of 32 bits and their halves; *writable* where a kernel
    may store to it.

    A *shared* one is read and written by any wavefronts, in an order that the kernel takes care of.
    """

    def __init__(self, name: str, array: Array, writable: bool, shared: bool = False) -> None:
        self.name, self.writable, self.shared = name, writable, shared
        self.bytes, self._array = array.nbytes, array
        self.words: Words = _words_of(array)
        self.halves = self.words.view(np.uint16)
        # Elements, or words of larger ones: what different wavefronts may write, and where accesses
        # may begin. The hardware takes words at any address (AMDGPUUsage, "unaligned-access-mode").
        self.part = min(array.itemsize, 4)
        if writable:
            self.writer = np.full(4 * self.words.size // self.part, _NOBODY, dtype=np.int32)

    def word(self, first: Array, word: int) -> Words:
        """Words numbered *word* from the parts *first* on."""
        if self.part == 4:
            return self.words[word:].take(first, mode="clip")
        low, high = (self.halves[2 * word + n:].take(first, mode="clip") for n in (0, 1))
        return low | high.astype(np.uint32) << np.uint32(16)

    def set_word(self, first: Array, word: int, values: Words) -> None:
        """Write words, as `word` reads them."""
        if self.part == 4:
            self.words[first + word] = values
            return
        self.halves[first + 2 * word] = values.astype(np.uint16)
        self.halves[first + 2 * word + 1] = (values >> np.uint32(16)).astype(np.uint16)

    def finish(self) -> None:
        """Write back to an array of half a word more than whole words, which was copied."""
        if self.writable and self.bytes % 4:
            self._array.reshape(-1).view(np.uint16)[...] = self.halves[:-1]

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
    halves = np.zeros(array.nbytes // 2 + 1, dtype=np.uint16)
    halves[:-1] = array.reshape(-1).view(np.uint16)
    return halves.view(np.uint32)


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

    def load_halves(self, addresses: npt.NDArray[np.uint64]) -> Words:
        """Halves of words at *addresses*, as numbers of 32 bits."""
        values = np.empty(addresses.size, dtype=np.uint32)
        for window, which, offsets in self._places(addresses):
            if window.writable and not window.shared:
                raise Fault(f"reads {window.name}, which it is to write")
            values[which] = window.halves[window.at(offsets, 2, 2)]
        return values

    def store_halves(self, addresses: npt.NDArray[np.uint64], values: Words,
                     waves: npt.NDArray[np.int32]) -> None:
        """Store the low halves of *values*, as `store` does words."""
        self.changes += 1
        for window, which, offsets in self._places(addresses):
            if not window.writable:
                raise Fault(f"writes to {window.name}, which is an input")
            place, halves = window.at(offsets, 2, 2), values[which].astype(np.uint16)
            window.note_writers(offsets, 2, waves[which])
            window.halves[place] = halves
            _require_agreement(window.halves[place], halves, window.name)

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
                _require_agreement(window.word(first, word), value[which], window.name)

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


def _require_agreement(stored: Array, values: Array, where: str) -> None:
    """Fault where lanes of one instruction store different *values* to one word.

    Which lane is the last one, the manual does not say.
    """
    if not np.array_equal(stored, values):
        raise Fault(f"stores different values of several lanes to one word of {where}")


def _joined(parts: Array) -> Words:
    """Words of their parts, over (parts, addresses)."""
    if parts.dtype == np.uint32:
        return parts
    low, high = parts[::2].astype(np.uint32), parts[1::2].astype(np.uint32)
    return low | high << np.uint32(16)


class Lds:
    """LDS of blocks that run together, of *size* bytes each.

    A part's tag is the barriers that its block had passed, and the wavefront, of the last write
    and the last read. Parts are words, or their halves for a kernel of 16-bit elements.
    """

    _WAVES = 32  # tags of one count of barriers: wavefronts, and one that stands for several
    _SEVERAL = 31

    def __init__(self, blocks: int, size: int, waves_of_block: int, part: int = 4) -> None:
        self.bytes, self.part = -(-size // 4) * 4, part
        words = np.full(blocks * self.bytes // 4, POISON, dtype=np.uint32)
        self.parts = words.view({4: np.uint32, 2: np.uint16}[part])
        self.alone = waves_of_block == 1
        self.written = np.zeros(self.parts.size, dtype=np.bool_)
        self.writes = np.full(self.parts.size, -1, dtype=np.int32)
        self.reads = np.full(self.parts.size, -1, dtype=np.int32)
        self.barriers = np.zeros(blocks, dtype=np.int32)

    def _places(self, blocks: Array, offsets: Array, size: int) -> npt.NDArray[np.int64]:
        """Parts of accesses; Fault for one that is not aligned, or leaves the block's LDS."""
        low, high = int(offsets.min()), int(offsets.max()) + size
        if low < 0 or high > self.bytes:
            raise Fault(f"accesses bytes {low:,} to {high - 1:,} of LDS, of which the block has "
                        f"{self.bytes:,}")
        # As of a window's parts.
        aligned = 2 if self.part == 2 else 16 if size == 12 else size
        if (offsets & (aligned - 1)).any():
            raise Fault(f"accesses {size} bytes of LDS at an address that is no multiple of "
                        f"{aligned}")
        return (blocks.astype(np.int64) * self.bytes + offsets) // self.part

    def read(self, blocks: Array, waves: Array, offsets: Array, size: int) -> Words:
        """Words of LDS at byte *offsets*, over (words, offsets), by *waves* of *blocks*; of *size*
        bytes each, of which two are a half."""
        first = self._places(blocks, offsets, size)
        values = np.empty((size // self.part, offsets.size), dtype=self.parts.dtype)
        for part, value in enumerate(values):
            place = first + part
            if not self.written[place].all():
                raise Fault("reads a word of LDS that was never written")
            if not self.alone:
                self._note_read(place, self.barriers[blocks] * self._WAVES, waves)
            value[...] = self.parts[place]
        return _joined(values) if size > self.part else values.astype(np.uint32)

    def _note_read(self, place: Array, epoch: Array, waves: Array) -> None:
        tag = epoch + waves
        last = self.writes[place]
        if ((last >= epoch) & (last != tag)).any():
            raise Fault("reads a word of LDS that another wavefront wrote, without a barrier "
                        "between them")
        before = self.reads[place]
        self.reads[place] = tag
        others = ((before >= epoch) & (before != tag)) | (self.reads[place] != tag)
        self.reads[place[others]] = (epoch + self._SEVERAL)[others]

    def write(self, blocks: Array, waves: Array, offsets: Array, values: list[Words],
              half: bool = False) -> None:
        """Write words of LDS at byte *offsets*, or the low *half* of one."""
        first = self._places(blocks, offsets, 2 if half else 4 * len(values))
        parts = [value.astype(np.uint16) for value in values] if half else [
            part for value in values for part in self._split(value)]
        for part, value in enumerate(parts):
            place = first + part
            if not self.alone:
                self._note_write(place, self.barriers[blocks] * self._WAVES, waves)
            self.parts[place] = value
            _require_agreement(self.parts[place], value, "LDS")
            self.written[place] = True

    def _split(self, words: Words) -> list[Array]:
        """The parts of words, the low one first."""
        if self.part == 4:
            return [words]
        return [words.astype(np.uint16), (words >> np.uint32(16)).astype(np.uint16)]

    def _note_write(self, place: Array, epoch: Array, waves: Array) -> None:
        tag = epoch + waves
        before, read = self.writes[place], self.reads[place]
        self.writes[place] = tag
        if ((before >= epoch) & (before != tag) | (self.writes[place] != tag)).any():
            raise Fault("writes a word of LDS that another wavefront writes, without a barrier "
                        "between them")
        if ((read >= epoch) & (read != tag)).any():
            raise Fault("writes a word of LDS that another wavefront reads, without a barrier "
                        "between them")
