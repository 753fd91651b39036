"""A device's limits as its manual states them: what the solver may spend."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from dscore.core.errors import MOST_INT, SpecError, require_int, require_one_of, shown

# Types of operands for which there are kernels on matrix units.
MATRIX_TYPES = ("tf32", "float16", "bfloat16", "int8")
MATRIX_WAVEFRONT = 32
VENDORS = ("hygon", "amd", "nvidia", "host")
WAVEFRONTS = (32, 64)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
# The most of each field: what no GPU has today, and with which the solver still comes to an end.
_MOST: dict[str, float] = {
    "compute_units": 4096, "simds_per_cu": 16, "waves_per_simd": 64, "blocks_per_cu": 1024,
    "threads_per_block": 1024, "registers_per_cu": 1 << 20, "registers_per_thread": 1024,
    "register_granularity": 256, "lds_bytes_per_cu": 1 << 20, "lds_bytes_per_block": 1 << 20,
    "lds_granularity_bytes": 1 << 16, "lds_reserved_bytes": 1 << 16,
    "l2_bytes": 1 << 36, "memory_bytes": 1 << 48,
    "fp32_lanes_per_cu": 1024, "clock_hz": 1e11, "bandwidth_bytes_per_second": 1e16,
    "cluster_blocks": 16, "measured_bandwidth_bytes_per_second": 1e16,
    "measured_fp32_flops": 1e18, "measured_launch_seconds": 1.0,
    "matrix_flops": 1e18, "measured_matrix_flops": 1e18,
}
# The least of those that are no counts of one and more.
_LEAST = {"lds_reserved_bytes": 0, "clock_hz": 1e6, "bandwidth_bytes_per_second": 1e6,
          "measured_bandwidth_bytes_per_second": 1e6, "measured_fp32_flops": 1e6,
          "measured_launch_seconds": 1e-9, "matrix_flops": 1e6, "measured_matrix_flops": 1e6}


# Of the CUs, by clusters of more than two blocks: an H200's share.
_FILLED_BY_CLUSTERS = 10 / 11


@dataclass(frozen=True)
class Device:
    """The limits of one device; a compute unit (CU) is what NVIDIA calls an SM.

    Counts are per CU, per SIMD of a CU, per block or per thread as named; a register is 32 bits
    wide and held by one lane. `lds_bytes_per_block` is the static limit of a block, which may be
    lower than what the CU holds. `measured_*` are figures measured on the device, and stand
    before the data sheet's when a floor is computed. `driver_names` are what drivers call it, by
    which the GPU that is here is known; `assumed` names the fields whose figures no source states.

    Raises SpecError naming the field that is out of range, and the range.

    >>> from dataclasses import replace
    >>> import dscore
    >>> half = replace(dscore.plan_for("P13", "h200").device, name="half", compute_units=66)
    >>> dscore.plan_for("P13", half).device.compute_units
    66
    """

    name: str
    title: str
    vendor: str
    architecture: str
    wavefront: int
    compute_units: int
    simds_per_cu: int
    waves_per_simd: int
    blocks_per_cu: int
    threads_per_block: int
    registers_per_cu: int
    registers_per_thread: int
    register_granularity: int
    lds_bytes_per_cu: int
    lds_bytes_per_block: int
    lds_granularity_bytes: int
    l2_bytes: int
    memory_bytes: int
    fp32_lanes_per_cu: int
    clock_hz: float
    bandwidth_bytes_per_second: float
    lds_reserved_bytes: int = 0  # of each block, beside its own (1,024 by CUDA, from sm_80 on)
    # What it can beside its limits; a file that does not say so describes a device that cannot.
    asynchronous_copies: bool = False  # to LDS, beside the wavefronts (cp.async, from sm_80 on)
    bulk_copies: bool = False  # of spans to LDS and back, at one thread's word (sm_90)
    early_start: bool = False  # of a kernel's blocks, before the kernel before has ended (sm_90)
    warpgroups: bool = False  # whose matrix units read operands from LDS (wgmma, sm_90 alone)
    cluster_blocks: int = 1  # that may read one another's LDS (8 from sm_90 on)
    matrix_types: tuple[str, ...] = ()  # of the operands of its matrix units that kernels use
    # Operations per second of matrix units by the type of their operands, without sparsity; a
    # product of a multiply and an add counts as two. A file has a table.
    matrix_flops: tuple[tuple[str, float], ...] = ()
    measured_bandwidth_bytes_per_second: float | None = None
    measured_fp32_flops: float | None = None
    measured_matrix_flops: tuple[tuple[str, float], ...] = ()
    measured_launch_seconds: float | None = None
    # CUs that clusters of 2, 3, 4, ... blocks fill, a block on each: a cluster's lie together.
    measured_cluster_units: tuple[int, ...] = ()
    driver_names: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise SpecError("name must be lower-case letters, digits and _, at most 64 (it becomes "
                            f"part of a kernel's symbol), got {shown(self.name)}")
        for text in ("title", "architecture"):
            value = getattr(self, text)
            if not isinstance(value, str) or not value.isprintable() or not value:
                raise SpecError(f"{text} must be a text of printable characters, got "
                                f"{shown(value)}")
        require_one_of(self.vendor, "vendor", VENDORS)
        for field in fields(self):
            self._require_field(field.name, str(field.type))
        require_one_of(self.wavefront, "wavefront", WAVEFRONTS)
        self._require_matrix_types()
        self._require_consistent()

    def _require_field(self, name: str, kind: str) -> None:
        if kind == "int":
            count = require_int(getattr(self, name), name, at_least=int(_LEAST.get(name, 1)),
                                at_most=int(_MOST.get(name, MOST_INT)))
            object.__setattr__(self, name, count)
        elif kind == "bool":
            require_one_of(getattr(self, name), name, (True, False))
        elif kind.startswith("float"):
            self._require_measure(name, optional="None" in kind)
        elif kind == "tuple[tuple[str, float], ...]":
            self._require_rates(name)
        elif kind == "tuple[int, ...]":
            self._require_units(name)
        elif kind.startswith("tuple"):
            self._require_names(name)

    def _require_units(self, field: str) -> None:
        counts = getattr(self, field)
        if not isinstance(counts, list | tuple):
            raise SpecError(f"{field} must be a list of integers, got {shown(counts)}")
        object.__setattr__(self, field, tuple(
            require_int(count, f"a count in {field}", at_most=int(_MOST["compute_units"]))
            for count in counts))

    def _require_names(self, field: str) -> None:
        names = getattr(self, field)
        if not isinstance(names, list | tuple) or not all(isinstance(one, str) for one in names):
            raise SpecError(f"{field} must be a list of names, got {shown(names)}")
        object.__setattr__(self, field, tuple(names))
        if field == "assumed":
            for name in names:
                require_one_of(name, "a name in assumed", tuple(one.name for one in fields(self)))

    def _require_matrix_types(self) -> None:
        for name in self.matrix_types:
            require_one_of(name, "a type of matrix_types", MATRIX_TYPES)
            if name == "tf32" and self.wavefront != MATRIX_WAVEFRONT:
                raise SpecError(f"matrix_types: kernels on matrix units of {name} are for "
                                f"wavefronts of {MATRIX_WAVEFRONT}, not {self.wavefront}")

    def _require_measure(self, name: str, optional: bool) -> None:
        value = getattr(self, name)
        if value is not None or not optional:
            _require_within(value, name, _LEAST[name], _MOST[name])

    def _require_rates(self, field: str) -> None:
        stated = getattr(self, field)
        pairs = list(stated.items()) if isinstance(stated, Mapping) else stated
        if not isinstance(pairs, list | tuple) or not all(
                isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
            raise SpecError(f"{field} must be a table of numbers by type, as "
                            f"{{ {MATRIX_TYPES[1]} = 1e14 }}, got {shown(stated)}")
        for name, rate in pairs:
            require_one_of(name, f"a type in {field}", MATRIX_TYPES)
            _require_within(rate, f"{field} of {name}", _LEAST[field], _MOST[field])
        object.__setattr__(self, field, tuple(
            (name, dict(pairs)[name]) for name in MATRIX_TYPES if name in dict(pairs)))

    def _require_consistent(self) -> None:
        if self.threads_per_block % self.wavefront:
            raise SpecError(f"threads_per_block must be a multiple of wavefront {self.wavefront}, "
                            f"got {self.threads_per_block}")
        if self.lds_bytes_per_block > self.lds_bytes_per_cu:
            raise SpecError(f"lds_bytes_per_block must be at most lds_bytes_per_cu "
                            f"{self.lds_bytes_per_cu}, got {self.lds_bytes_per_block}")
        lanes = self.simds_per_cu * self.wavefront
        if self.registers_per_cu % lanes:
            raise SpecError(f"registers_per_cu must be a multiple of simds_per_cu * wavefront = "
                            f"{lanes}, got {self.registers_per_cu}")

    @property
    def waves_per_block(self) -> int:
        """Wavefronts that the largest block holds."""
        return self.threads_per_block // self.wavefront

    @property
    def waves_per_cu(self) -> int:
        """Wavefronts that a compute unit can hold."""
        return self.simds_per_cu * self.waves_per_simd

    @property
    def registers_per_simd_lane(self) -> int:
        """Registers that all wavefronts of one SIMD share in each lane."""
        return self.registers_per_cu // (self.simds_per_cu * self.wavefront)

    @property
    def fp32_flops(self) -> float:
        """float32 operations per second: measured, else two per lane and clock."""
        nominal = 2.0 * self.fp32_lanes_per_cu * self.compute_units * self.clock_hz
        return self.measured_fp32_flops or nominal

    @property
    def bandwidth(self) -> float:
        """Bytes per second of global memory: measured, else the data sheet's."""
        return self.measured_bandwidth_bytes_per_second or self.bandwidth_bytes_per_second

    def cluster_units(self, blocks: int) -> int:
        """CUs that clusters of *blocks* fill, a block on each: measured, else an estimate.

        A cluster lies within a part of the GPU, and the parts are no multiples of it: of the 132
        CUs of an H200 clusters of 4 and 8 fill 120, of 3 117, of 6 102, those of 2 all.

        >>> from dscore.core import catalog
        >>> [catalog.device("h100").cluster_units(blocks) for blocks in (1, 2, 4, 8)]
        [132, 132, 120, 120]
        """
        if 2 <= blocks < len(self.measured_cluster_units) + 2:
            return min(self.measured_cluster_units[blocks - 2], self.compute_units)
        filled = self.compute_units * (1 if blocks <= 2 else _FILLED_BY_CLUSTERS)
        return max(int(filled) // blocks, 1) * blocks if blocks > 1 else self.compute_units

    def matrix_rate(self, dtype: str) -> float | None:
        """Operations per second of matrix units on *dtype*: measured, else the data sheet's.

        None where the device's file states neither.

        >>> from dscore.core import catalog
        >>> catalog.device("a100").matrix_rate("float16"), catalog.device("t4").matrix_rate("int8")
        (312000000000000.0, None)
        """
        return dict(self.matrix_flops + self.measured_matrix_flops).get(dtype)

    def floor_seconds(self, moved_bytes: float, flops: float, rate: float | None) -> float:
        """The least time of a problem: max(bytes / bandwidth, flops / rate, one launch).

        Without a *rate* the operations are left out.
        """
        return max(moved_bytes / self.bandwidth, flops / rate if rate else 0.0,
                   self.measured_launch_seconds or 0.0)

    def __str__(self) -> str:
        return (f"{self.name} (wavefront {self.wavefront}, "
                f"{self.lds_bytes_per_cu // 1024} KiB LDS per CU)")


def _require_within(value: object, name: str, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecError(f"{name} must be a number, got {shown(value)}")
    if not 0 < value < math.inf:
        raise SpecError(f"{name} must be positive and finite, got {shown(value)}")
    if not least <= value <= most:
        raise SpecError(f"{name} must be from {least:g} to {most:g}, got {shown(value)}")
