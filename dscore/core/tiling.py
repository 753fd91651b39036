"""How a kernel cuts a problem into blocks, wavefronts and lanes: its template arguments."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Literal, get_args

from dscore.core.errors import SpecError, require_int, require_one_of

Staging = Literal["registers", "lds", "both"]
STAGINGS: tuple[str, ...] = get_args(Staging)
Arithmetic = Literal["plain", "tf32x3"]
ARITHMETICS: tuple[str, ...] = get_args(Arithmetic)
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

    def as_json(self) -> dict[str, Any]:
        """Algorithm, field names and values, in order: what `tiling_from` reads.

        >>> DirectTiling(64, 2).as_json()
        {'algorithm': 'direct', 'threads': 64, 'thread_c': 2}
        """
        return {"algorithm": self.algorithm, **self.as_dict()}

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.as_dict().items())


@dataclass(frozen=True)
class ChannelDistributionTiling(_Fields):
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

        >>> ChannelDistributionTiling(1, 64, 1, 4, 16).name
        'pw_w1c64_r1x4_g16'
        """
        return (f"pw_w{self.wave_w}c{self.wave_c}_r{self.repeat_w}x{self.repeat_c}"
                f"_g{self.group_c}")


@dataclass(frozen=True)
class GemmTiling(_Fields):
    """A pointwise convolution as a product of matrices, filters by pixels, in register tiles.

    A block computes `tile_c` output channels of `tile_p` pixels, counted through all images; a
    wavefront `wave_c` x `wave_p` of these, by `lanes_c` rows of lanes. The input channels come
    `step_c` at a time through a ring of `stages` LDS buffers: two are filled through registers,
    three or more by asynchronous copies. `slices` groups of wavefronts share the channels of a
    step, and `cluster` blocks (Hopper's clusters) the steps; their sums are added at the end.
    `arithmetic`: "plain" multiplies and adds in
    float32; "tf32x3" makes each product of three TF32 ones on matrix units (NVIDIA), which errs
    by about 2**-22 of it; there `lanes_c` is 8.
    """

    tile_c: int
    tile_p: int
    wave_c: int
    wave_p: int
    lanes_c: int
    slices: int
    step_c: int
    stages: int
    cluster: int = 1
    arithmetic: Arithmetic = "plain"

    algorithm: ClassVar[str] = "gemm"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(self.arithmetic, "arithmetic", ARITHMETICS)

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> GemmTiling(64, 64, 32, 32, 8, 1, 16, 3, 2, "tf32x3").name
        'mm_t64x64_w32x32_l8_s1_k16x3_x2_tf32x3'
        """
        return (f"mm_t{self.tile_c}x{self.tile_p}_w{self.wave_c}x{self.wave_p}_l{self.lanes_c}"
                f"_s{self.slices}_k{self.step_c}x{self.stages}"
                f"{f'_x{self.cluster}' if self.cluster > 1 else ''}"
                f"{'' if self.arithmetic == 'plain' else '_' + self.arithmetic}")


@dataclass(frozen=True)
class RowReuseTiling(_Fields):
    """Row reuse (Liu et al. 2024, §4.2) and column reuse (Lu et al. 2021).

    A thread walks down `thread_h` output rows of `thread_w` columns; `lanes_w` threads stand side
    by side, `lanes_h` such rows of threads one above the other, and a block holds `planes` of
    these (a plane is one output channel of one image). Thread order: plane, then lanes_h, then
    lanes_w fastest. Rows come straight to `registers` or through the block's `lds`, to which whole
    rows are copied as vectors; with "both" the results leave through it as well.
    With `column_reuse` a lane loads only its own columns and takes the overlap from the lanes at
    its right by shuffles, which needs `lanes_w` to be a power of two within the wavefront.
    With `ahead` (from sm_90 on) a kernel overlaps with its neighbours: a block that starts while
    the previous kernel still runs fetches its rows (where they go through LDS) and filters to the
    L2 cache, and the next kernel's blocks may start once all of this one's may read.
    """

    thread_h: int
    thread_w: int
    lanes_h: int
    lanes_w: int
    planes: int
    staging: Staging = "registers"
    column_reuse: bool = False
    ahead: bool = False

    algorithm: ClassVar[str] = "row_reuse"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(self.staging, "staging", STAGINGS)
        require_one_of(self.column_reuse, "column_reuse", (True, False))
        require_one_of(self.ahead, "ahead", (True, False))

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> RowReuseTiling(4, 2, 1, 32, 2, "registers", True).name
        'dw_t4x2_l1x32_p2_reg_shfl'
        >>> RowReuseTiling(7, 1, 1, 7, 8, "both", ahead=True).name
        'dw_t7x1_l1x7_p8_both_ahead'
        """
        return (f"dw_t{self.thread_h}x{self.thread_w}_l{self.lanes_h}x{self.lanes_w}"
                f"_p{self.planes}_{'reg' if self.staging == 'registers' else self.staging}"
                f"{'_shfl' if self.column_reuse else ''}{'_ahead' if self.ahead else ''}")


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


Tiling = ChannelDistributionTiling | GemmTiling | RowReuseTiling | DirectTiling
# By algorithm; and those that run a kind of convolution, beside the direct one, which runs all.
TILINGS: dict[str, type[Tiling]] = {
    cls.algorithm: cls
    for cls in (ChannelDistributionTiling, GemmTiling, RowReuseTiling, DirectTiling)}
FAMILIES: dict[str, tuple[type[Tiling], ...]] = {
    "pointwise": (ChannelDistributionTiling, GemmTiling), "depthwise": (RowReuseTiling,)}


def computes(tiling: Tiling, arithmetic: Arithmetic | None) -> bool:
    """Whether a tiling multiplies and adds as is asked for: None asks for nothing.

    >>> computes(DirectTiling(64, 1), "plain"), computes(DirectTiling(64, 1), "tf32x3")
    (True, False)
    """
    return arithmetic in (None, getattr(tiling, "arithmetic", "plain"))


def tiling_from(values: dict[str, Any], where: str = "tiling") -> Tiling:
    """Tiling of a table's *values*: the key `algorithm` names its class, else the fields do.

    Raises SpecError, beginning with *where*, for an unknown algorithm and for fields that do not
    fit.

    >>> tiling_from({"threads": 64, "thread_c": 2})
    DirectTiling(threads=64, thread_c=2)
    """
    given = {name: value for name, value in values.items() if name != "algorithm"}
    if "algorithm" in values:
        cls = TILINGS[require_one_of(values["algorithm"], f"{where}: algorithm", tuple(TILINGS))]
    else:
        cls = _guessed(set(given))
    missing, unknown = sorted(_required(cls) - set(given)), sorted(set(given) - _known(cls))
    faults = [f"missing {', '.join(missing)}"] * bool(missing)
    faults += [f"unknown {', '.join(unknown)}"] * bool(unknown)
    if faults:
        raise SpecError(f"{where}: not a {cls.__name__}: {'; '.join(faults)}; "
                        f"its fields are {', '.join(f.name for f in fields(cls))}")
    return cls(**given)


def _guessed(given: set[str]) -> type[Tiling]:
    """Class that the fields *given* make, else the one with most of them: for tables without
    `algorithm`, as older files hold.
    """
    for cls in TILINGS.values():
        if _required(cls) <= given <= _known(cls):
            return cls
    return max(TILINGS.values(), key=lambda c: len(given & _known(c)))


def _known(cls: type[Tiling]) -> set[str]:
    return {field.name for field in fields(cls)}


def _required(cls: type[Tiling]) -> set[str]:
    return {field.name for field in fields(cls) if field.default is MISSING}
