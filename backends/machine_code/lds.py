"""LDS of the blocks that run together, by parts, and who touched each last.

Parts are words of 32 bits; of a kernel of smaller elements, as large as these.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dscore.backends.machine_code.memory import PARTS, joined, require_agreement, split
from dscore.backends.machine_code.waves import POISON, Array, Fault, Words


class Lds:
    """LDS of blocks that run together, of *size* bytes each.

    A part's tag is the barriers that its block had passed, and the wavefront, of the last write
    and the last read.
    """

    _WAVES = 32  # tags of one count of barriers: wavefronts, and one that stands for several
    _SEVERAL = 31

    def __init__(self, blocks: int, size: int, waves_of_block: int, part: int = 4) -> None:
        self.bytes, self.part = -(-size // 4) * 4, part
        words = np.full(blocks * self.bytes // 4, POISON, dtype=np.uint32)
        self.parts: Array = words.view(PARTS[part])
        self.alone = waves_of_block == 1
        self.written = np.zeros(self.parts.size, dtype=np.bool_)
        self.writes = np.full(self.parts.size, -1, dtype=np.int32)
        self.reads = np.full(self.parts.size, -1, dtype=np.int32)
        self.barriers = np.zeros(blocks, dtype=np.int32)

    def _places(self, blocks: Array, offsets: Array, size: int) -> npt.NDArray[np.int64]:
        """Parts of accesses, over (parts, accesses); Fault for one that is not aligned, or leaves
        the block's LDS.
        """
        low, high = int(offsets.min()), int(offsets.max()) + size
        if low < 0 or high > self.bytes:
            raise Fault(f"accesses bytes {low:,} to {high - 1:,} of LDS, of which the block has "
                        f"{self.bytes:,}")
        # As of a window's parts.
        aligned = self.part if self.part < 4 else 16 if size == 12 else size
        if (offsets & (aligned - 1)).any():
            raise Fault(f"accesses {size} bytes of LDS at an address that is no multiple of "
                        f"{aligned}")
        first = (blocks.astype(np.int64) * self.bytes + offsets) // self.part
        return first + np.arange(size // self.part)[:, None]

    def read(self, blocks: Array, waves: Array, offsets: Array, size: int) -> Words:
        """Words, over (words, offsets), of *size* bytes at each of *offsets*, by *waves* of
        *blocks*; of fewer than a word has, one that is zero above them."""
        place = self._places(blocks, offsets, size)
        if not self.written[place].all():
            raise Fault("reads a word of LDS that was never written")
        if not self.alone:
            self._note_read(place, self.barriers[blocks] * self._WAVES, waves)
        return joined(self.parts[place])

    def _note_read(self, place: Array, epoch: Array, waves: Array) -> None:
        tag, epoch = (np.broadcast_to(one, place.shape) for one in (epoch + waves, epoch))
        last = self.writes[place]
        if ((last >= epoch) & (last != tag)).any():
            raise Fault("reads a word of LDS that another wavefront wrote, without a barrier "
                        "between them")
        before = self.reads[place]
        self.reads[place] = tag
        others = ((before >= epoch) & (before != tag)) | (self.reads[place] != tag)
        self.reads[place[others]] = (epoch + self._SEVERAL)[others]

    def write(self, blocks: Array, waves: Array, offsets: Array, size: int, words: Words) -> None:
        """Write *size* bytes of *words* at each of *offsets*."""
        place = self._places(blocks, offsets, size)
        if not self.alone:
            self._note_write(place, self.barriers[blocks] * self._WAVES, waves)
        values = split(words, self.part, size)
        self.parts[place] = values
        require_agreement(self.parts[place], values, "LDS")
        self.written[place] = True

    def _note_write(self, place: Array, epoch: Array, waves: Array) -> None:
        tag = np.broadcast_to(epoch + waves, place.shape)
        before, read = self.writes[place], self.reads[place]
        self.writes[place] = tag
        if ((before >= epoch) & (before != tag) | (self.writes[place] != tag)).any():
            raise Fault("writes a word of LDS that another wavefront writes, without a barrier "
                        "between them")
        if ((read >= epoch) & (read != tag)).any():
            raise Fault("writes a word of LDS that another wavefront reads, without a barrier "
                        "between them")
