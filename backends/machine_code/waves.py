"""Wavefronts of many blocks that run together: their registers, and what is known of each.

A vector register is an array over (wavefronts, 64 lanes), a scalar one an array over wavefronts, so
that one instruction of all wavefronts which stand at it is a few NumPy operations. Masks of lanes
are kept as the hardware keeps them, a bit for each lane in 64 (Vega ISA, 3.3 and 3.4).

Registers begin poisoned. Beside each one stands which lanes have been written, and the number of
the load that is still to deliver it: loads count up, s_waitcnt says which have come (Vega ISA,
4.4).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
Masks = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]

LANES = 64
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
VCC, M0, EXEC = 106, 124, 126  # numbers of scalar operands (Vega ISA, 3.1)
SCALARS = 128
# A NaN, and as an address or an index far outside of everything.
POISON = np.uint32(0x7FDEAD7F)


class Fault(Exception):
    """Something that a kernel must not do; its text says what, without where."""


def packed(lanes: Bools) -> Masks:
    """Masks of 64 bits of an array over (wavefronts, lanes)."""
    bits: Masks = np.packbits(lanes, axis=-1, bitorder="little").view(np.uint64)[..., 0]
    return bits


def unpacked(masks: Masks) -> Bools:
    """Array over (wavefronts, lanes) of masks of 64 bits."""
    whole = np.ascontiguousarray(masks)
    bits = np.unpackbits(whole.view(np.uint8).reshape(*whole.shape, 8), axis=-1,
                         bitorder="little")
    lanes: Bools = bits.view(np.bool_)
    return lanes


class Counter:
    """Scoreboard of one kind of memory operation: those issued, and those known to be done."""

    def __init__(self, waves: int, registers: int) -> None:
        self.issued = np.zeros(waves, dtype=np.int32)
        self.done = np.zeros(waves, dtype=np.int32)
        # The operation that delivers a register, by (register, wavefront).
        self.due = np.zeros((registers, waves), dtype=np.int32)

    def issue(self, group: Any, registers: slice | None = None) -> None:
        """Count one more operation of *group*, which delivers *registers*."""
        np.add(self.issued, 1, out=self.issued, where=group)
        if registers is not None:
            np.copyto(self.due[registers], self.issued, where=group)

    def wait(self, group: Any, left: int) -> None:
        """All but the last *left* operations are done: they come in the order of their issue."""
        np.maximum(self.done, self.issued - left, out=self.done, where=group)

    def outstanding(self) -> Bools:
        """Wavefronts with an operation that no wait covers."""
        behind: Bools = self.issued > self.done
        return behind


class Waves:
    """State of the wavefronts. *group* are those that execute now: True for all, or a mask."""

    def __init__(self, waves: int, vgprs: int) -> None:
        self.count = waves
        self.v = np.full((vgprs, waves, LANES), POISON, dtype=np.uint32)
        self.v_written = np.zeros((vgprs, waves), dtype=np.uint64)
        self.s = np.full((waves, SCALARS), POISON, dtype=np.uint32)
        self.s_written = np.zeros((SCALARS, waves), dtype=np.bool_)
        self.scc = np.zeros(waves, dtype=np.bool_)
        self.scc_written = np.zeros(waves, dtype=np.bool_)
        # The same memory as other types.
        self.vi, self.vf = self.v.view(np.int32), self.v.view(np.float32)
        self.si, self.sf = self.s.view(np.int32), self.s.view(np.float32)
        self.s64 = self.s.view(np.uint64)
        self.vector_memory = Counter(waves, vgprs)
        self.lds = Counter(waves, vgprs)
        self.scalar_memory = Counter(waves, SCALARS)
        self.group: Any = True
        self.live = np.zeros(waves, dtype=np.uint64)  # EXEC of the group, else no lanes
        self._lanes: Bools | None = None
        self.all_lanes = False

    def begin(self, exec_masks: Masks) -> None:
        """EXEC as the wavefronts find it."""
        self.s64[:, EXEC // 2] = exec_masks
        self.s_written[EXEC:EXEC + 2] = True
        self.select(True)

    def select(self, group: Any) -> None:
        """Have *group* execute from now on."""
        self.group = group
        self.exec_changed()

    def exec_changed(self) -> None:
        """Take note of a new EXEC."""
        masks = self.s64[:, EXEC // 2]
        self.live = masks.copy() if self.group is True else np.where(self.group, masks,
                                                                     np.uint64(0))
        self.all_lanes = bool((self.live == ALL).all())
        self._lanes = None

    @property
    def lanes(self) -> Any:
        """Lanes that execute: True for all of all wavefronts, or an array."""
        if self.all_lanes:
            return True
        if self._lanes is None:
            self._lanes = unpacked(self.live)
        return self._lanes

    def exec_zero(self) -> Bools:
        """Wavefronts whose EXEC is zero."""
        none: Bools = self.s64[:, EXEC // 2] == 0
        return none

    def first_lane(self) -> npt.NDArray[np.intp]:
        """The lowest lane of EXEC, 0 where there is none (Vega ISA, v_readfirstlane_b32)."""
        lane: npt.NDArray[np.intp] = unpacked(self.s64[:, EXEC // 2]).argmax(axis=1)
        return lane

    def require_readable(self, registers: list[int]) -> None:
        """Fault where an executing lane would read a vector register that it has not got."""
        unwritten = (self.live & ~self.v_written[registers]) != 0
        if unwritten.any():
            raise Fault(f"reads v{self._first(registers, unwritten)}, which was never written in "
                        "some executing lane")
        self.require_delivered(registers)

    def require_delivered(self, registers: list[int]) -> None:
        """Fault where a load is still to deliver one of some vector registers."""
        for counter, name in ((self.vector_memory, "vmcnt"), (self.lds, "lgkmcnt")):
            late = (counter.due[registers] > counter.done) & self.group
            if late.any():
                raise Fault(f"touches v{self._first(registers, late)}, which a load is still to "
                            f"deliver: no s_waitcnt {name} covers it")

    def require_scalars(self, registers: list[int]) -> None:
        """Fault where the group would read a scalar register that it has not got."""
        unwritten = ~self.s_written[registers] & self.group
        if unwritten.any():
            raise Fault(f"reads {scalar_name(self._first(registers, unwritten))}, which was never "
                        "written")
        self.require_scalars_delivered(registers)

    def require_scalars_delivered(self, registers: list[int]) -> None:
        """Fault where a load is still to deliver one of some scalar registers."""
        counter = self.scalar_memory
        late = (counter.due[registers] > counter.done) & self.group
        if late.any():
            raise Fault(f"touches {scalar_name(self._first(registers, late))}, which a load is "
                        "still to deliver: no s_waitcnt lgkmcnt(0) covers it")

    @staticmethod
    def _first(registers: list[int], wrong: Bools) -> int:
        return registers[int(wrong.any(axis=1).argmax())]

    def write_mask(self, register: int, lanes: Any) -> None:
        """Write a mask to a pair of scalar registers: a bit for each executing lane, else 0."""
        if lanes.shape != (self.count, LANES):
            lanes = np.broadcast_to(lanes, (self.count, LANES))
        np.copyto(self.s64[:, register // 2], packed(lanes) & self.live, where=self.group)


def scalar_name(register: int) -> str:
    """Name of a scalar register, as an assembler writes it."""
    special = {VCC: "vcc_lo", VCC + 1: "vcc_hi", M0: "m0", EXEC: "exec_lo", EXEC + 1: "exec_hi"}
    return special.get(register, f"s{register}")
