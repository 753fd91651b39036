"""LDS of blocks, of which every access is checked as those of global memory are (`memory`)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dscore.backends.machine_code.memory import PARTS, joined, require_agreement, split
from dscore.backends.machine_code.waves import POISON, Array, Fault, Words


class Lds:
    """LDS of blocks that run together, of *size* bytes each.

    A part's tag is the barriers that its block had passed, and the wavefront, of the last write
    and the last read. Parts are words, or their halves or bytes for a kernel of such elements.
    """

    _WAVES = 32  # tags of one count of barriers: wavefronts, and one that stands for several
    _SEVERAL = 31

    def __init__(self, blocks: int, size: int, waves_of_block: int, part: int = 4) -> None:
        self.bytes, self.part = -(-size // 4) * 4, part
        words = np.full(blocks * self.bytes // 4, POISON, dtype=np.uint32)
        self.parts = words.view(PARTS[part])
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
        aligned = self.part if self.part < 4 else 16 if size == 12 else size
        if (offsets & (aligned - 1)).any():
            raise Fault(f"accesses {size} bytes of LDS at an address that is no multiple of "
                        f"{aligned}")
        return (blocks.astype(np.int64) * self.bytes + offsets) // self.part

    def read(self, blocks: Array, waves: Array, offsets: Array, size: int) -> Words:
        """Words of LDS at byte *offsets*, over (words, offsets), by *waves* of *blocks*; of *size*
        bytes each, of which two are a half, and one is a byte."""
        first = self._places(blocks, offsets, size)
        values = np.empty((size // self.part, offsets.size), dtype=self.parts.dtype)
        for part, value in enumerate(values):
            place = first + part
            if not self.written[place].all():
                raise Fault("reads a word of LDS that was never written")
            if not self.alone:
                self._note_read(place, self.barriers[blocks] * self._WAVES, waves)
            value[...] = self.parts[place]
        return joined(values, min(size, 4))

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
              size: int = 4) -> None:
        """Write words of LDS at byte *offsets*, or the low half (*size* 2) or byte of one."""
        first = self._places(blocks, offsets, size * len(values))
        if size < self.part:
            raise Fault(f"writes {size} bytes of LDS, whose elements have {self.part}")
        parts = [part for value in values for part in split(value, size, self.part)]
        for part, value in enumerate(parts):
            place = first + part
            if not self.alone:
                self._note_write(place, self.barriers[blocks] * self._WAVES, waves)
            self.parts[place] = value
            require_agreement(self.parts[place], value, "LDS")
            self.written[place] = True

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
