"""How a kernel cuts a problem into blocks, wavefronts and lanes: its template arguments."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, get_args

from .errors import SpecError, require_int, require_one_of

Staging = Literal["registers", "lds"]
STAGINGS: tuple[str, ...] = get_args(Staging)
# Beyond what any device holds, and small enough that the solver's products stay exact in int64.
MOST_COUNT = 2**16


class _Fields:
    """What the tilings share: every field is a positive int, or checked by its own class."""

    algorithm: ClassVar[str]

    def __post_init__(self) -> None:
        for name in self.int_fields():
            object.__setattr__(self, name, require_int(
                getattr(self, name), name, at_most=MOST_COUNT))

    @classmethod
    def int_fields(cls) -> tuple[str, ...]:
        """Names of the fields that are counts, in order."""
        return tuple(f.name for f in fields(cls) if f.type == "int")  # type: ignore[arg-type]

    def as_dict(self) -> dict[str, Any]:
        """Field names and values, in order."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.as_dict().items())


@dataclass(frozen=True)
class PointwiseTiling(_Fields):
    """Channel distribution with dynamic tiling (Liu et al. 2024, §5.1, Table 1).

    A wavefront computes `wave_w` columns of `wave_c` output channels, `group_c` input channels at
    a time; a block is `repeat_w` x `repeat_c` wavefronts.
    """

    wave_w: int
    wave_c: int
    repeat_w: int
    repeat_c: int
    group_c: int

    algorithm: ClassVar[str] = "channel_distribution"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> PointwiseTiling(1, 64, 1, 4, 16).name
        'pw_w1c64_r1x4_g16'
        """
        return (f"pw_w{self.wave_w}c{self.wave_c}_r{self.repeat_w}x{self.repeat_c}"
                f"_g{self.group_c}")


@dataclass(frozen=True)
class DepthwiseTiling(_Fields):
    """Row reuse (Liu et al. 2024, §4.2) and column reuse (Lu et al. 2021).

    A thread walks down `thread_h` output rows of `thread_w` columns; `lanes_w` threads stand side
    by side, `lanes_h` such rows of threads one above the other, and a block holds `planes` of
    these (a plane is one output channel of one image). Thread order: plane, then lanes_h, then
    lanes_w fastest. Rows come straight to `registers` or through the block's `lds`.
    With `column_reuse` a lane loads only its own columns and takes the overlap from the lanes at
    its right by shuffles, which needs `lanes_w` to be a power of two within the wavefront.
    """

    thread_h: int
    thread_w: int
    lanes_h: int
    lanes_w: int
    planes: int
    staging: Staging = "registers"
    column_reuse: bool = False

    algorithm: ClassVar[str] = "row_reuse"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(self.staging, "staging", STAGINGS)
        require_one_of(self.column_reuse, "column_reuse", (True, False))

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> DepthwiseTiling(4, 2, 1, 32, 2, "lds", True).name
        'dw_t4x2_l1x32_p2_lds_shfl'
        """
        return (f"dw_t{self.thread_h}x{self.thread_w}_l{self.lanes_h}x{self.lanes_w}"
                f"_p{self.planes}_{'lds' if self.staging == 'lds' else 'reg'}"
                f"{'_shfl' if self.column_reuse else ''}")


@dataclass(frozen=True)
class DirectTiling(_Fields):
    """The direct definition, for every convolution that has no algorithm of its own.

    A block of `threads` takes that many consecutive pixels of one image; a thread sums
    `thread_c` output channels of one group for its pixel.
    """

    threads: int
    thread_c: int

    algorithm: ClassVar[str] = "direct"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> DirectTiling(256, 4).name
        'direct_t256_c4'
        """
        return f"direct_t{self.threads}_c{self.thread_c}"


Tiling = PointwiseTiling | DepthwiseTiling | DirectTiling
TILINGS: dict[str, type[Tiling]] = {
    "pointwise": PointwiseTiling, "depthwise": DepthwiseTiling, "direct": DirectTiling}


def tiling_from(values: dict[str, Any], where: str = "tiling") -> Tiling:
    """The tiling whose fields are *values*; which one is told by the names of the fields.

    >>> tiling_from({"threads": 64, "thread_c": 2})
    DirectTiling(threads=64, thread_c=2)
    """
    given = set(values)
    for cls in TILINGS.values():
        known = {f.name for f in fields(cls)}
        if given <= known and set(cls.int_fields()) <= given:
            return cls(**values)
    cls = max(TILINGS.values(), key=lambda c: len(given & {f.name for f in fields(c)}))
    known = {f.name for f in fields(cls)}
    missing, extra = sorted(set(cls.int_fields()) - given), sorted(given - known)
    said = [f"missing {', '.join(missing)}"] * bool(missing)
    said += [f"unknown {', '.join(extra)}"] * bool(extra)
    raise SpecError(f"{where}: not a {cls.__name__}: {'; '.join(said)}; "
                    f"its fields are {', '.join(f.name for f in fields(cls))}")
