"""Plans: how a problem runs on a device, as values to print, compare and hash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from dscore.core.device import Device
from dscore.core.errors import SpecError, require_one_of, shown
from dscore.core.numerics import WORD_BYTES
from dscore.core.problem import ConvProblem
from dscore.core.text import MOST_COLUMNS, fold
from dscore.core.tiling import Tiling
from dscore.core.token import problem_token

Rules = Literal["paper", "hardware"]
RULES: tuple[Rules, ...] = ("paper", "hardware")


@dataclass(frozen=True)
class ResourceUse:
    """Resources of one block: predicted by its algorithm, or reported by a compiler."""

    threads: int
    waves: int
    lds_bytes: int
    registers: int  # per thread
    spills: int = 0  # words of a thread that lie in memory, for want of registers or an index
    reported: bool = False  # by a compiler


@dataclass(frozen=True)
class Violation:
    """A limit that a configuration breaks, or a property that a backend cannot run."""

    code: str
    limit: str
    used: int | str
    allowed: int | str
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.code}: {self.limit} is {self.used} {self.unit}".rstrip() + (
            f", allowed {self.allowed} {self.unit}").rstrip()


@dataclass(frozen=True)
class Check:
    """One line of the ledger: a limit, what the configuration uses of it, and what is allowed."""

    code: str
    limit: str
    used: int
    allowed: int
    unit: str
    source: str  # the paper's equation or section, or the manual's rule
    detail: str = ""  # how the allowed number comes about

    @property
    def slack(self) -> int:
        """Rest of the limit; negative where it is broken."""
        return self.allowed - self.used

    @property
    def violation(self) -> Violation | None:
        """The limit as a violation where it is broken."""
        if self.slack >= 0:
            return None
        return Violation(self.code, self.limit, self.used, self.allowed, self.unit)


@dataclass(frozen=True)
class Launch:
    """Grid of `blocks` in one dimension, blocks of `threads`, as passed to the device."""

    blocks: int
    threads: int
    lds_bytes: int


@dataclass(frozen=True)
class Cost:
    """The solver's estimate of one launch (see dscore.solving.cost for the model)."""

    seconds: float
    bound_by: str  # one of dscore.solving.cost.BOUNDS
    rounds: int  # waves of blocks over the compute units
    occupancy: float  # resident wavefronts over those a CU can hold
    arithmetic_intensity: float  # FMAs per operand loaded by a lane
    utilisation: float  # useful lanes


# Of a plan, of which a caller may replace each.
_FIELDS: dict[str, Any] = {
    "problem": ConvProblem, "device": Device, "tiling": Tiling, "launch": Launch,
    "use": ResourceUse, "compiled_registers": int, "block_n": int, "masked": bool, "cost": Cost,
    "workspace_bytes": int, "further_launches": tuple, "reported_registers": int | None}


@dataclass(frozen=True)
class Plan:
    """Decision how a problem runs on a device: all that settles the kernel and its launch.

    >>> import dscore
    >>> plan = dscore.plan_for("P13", "z100sm", tiling=dict(threads=64, thread_c=1))
    >>> plan.name
    'n1c64h14w14_o384k1__direct_t64_c1__z100sm'
    >>> plan.launch
    Launch(blocks=1536, threads=64, lds_bytes=0)
    """

    problem: ConvProblem
    device: Device
    tiling: Tiling
    rules: Rules
    launch: Launch
    use: ResourceUse
    compiled_registers: int  # that the device's compiler takes at most
    block_n: int  # residency: blocks of this plan that one CU holds at a time
    masked: bool  # some tile reaches past the output, its excess lanes predicated
    cost: Cost
    workspace_bytes: int = 0  # of memory that a launch needs beside the operands
    further_launches: tuple[Launch, ...] = ()  # after the first, of an algorithm of several grids
    reported_registers: int | None = None  # that the compiler took; residency and cost go by them

    def __post_init__(self) -> None:
        for name, kind in _FIELDS.items():
            if not isinstance(getattr(self, name), kind):
                wanted = getattr(kind, "__name__", kind)
                raise SpecError(f"{name} of a plan must be a {wanted}, got "
                                f"{shown(getattr(self, name))}; dscore.plan_for makes plans")
        require_one_of(self.rules, "rules", RULES)

    @property
    def token(self) -> str:
        """The problem as one token."""
        return problem_token(self.problem)

    @property
    def name(self) -> str:
        """Canonical name: logs, cache keys, generated files and kernel symbols use it."""
        return f"{self.token}__{self.tiling.name}__{self.device.name}"

    def rows(self) -> list[tuple[str, str]]:
        """The plan as (what, value) rows of a table."""
        tiling, use, cost = self.tiling, self.use, self.cost
        return [
            ("problem", f"{self.problem}   {self.token}"),
            ("device", str(self.device)),
            ("algorithm", tiling.algorithm),
            ("tiling", str(tiling)),
            ("rules", self.rules + (", masked" if self.masked else "")),
            ("launch", f"{self.launch.blocks:,} blocks of {use.threads} threads "
                       f"({use.waves} wavefront{'s' * (use.waves > 1)})"),
            ("LDS per block", f"{use.lds_bytes:,} B"),
            *[("workspace", f"{self.workspace_bytes:,} B")] * (self.workspace_bytes > 0),
            *(("then", f"{launch.blocks:,} blocks of {launch.threads} threads")
              for launch in self.further_launches),
            ("registers per thread", f"{use.registers} by Eq. 6, {self._compiled()}"),
            ("residency", f"{self.block_n} block{'s' * (self.block_n > 1)} per CU, "
                          f"occupancy {cost.occupancy:.0%}"),
            ("rounds over the CUs", f"{cost.rounds}"),
            ("useful lanes", f"{cost.utilisation:.1%}"),
            ("FMAs per operand", f"{cost.arithmetic_intensity:.2f}"),
            ("estimate", f"{cost.seconds * 1e6:.2f} µs, bound by {cost.bound_by}"),
        ]

    def _compiled(self) -> str:
        """What is predicted of the compiler, and what it took once that is known."""
        most, taken = self.compiled_registers, self.reported_registers
        if taken is None:
            return f"compiled at most {most}"
        return f"compiled to {taken} (" + (
            f"{taken - most} above the predicted {most})" if taken > most
            else f"at most {most} were predicted)")

    def surprise(self, use: ResourceUse) -> str:
        """What a compiler's report, *use*, has beyond the prediction, in words; else empty."""
        excess = use.registers - self.compiled_registers if use.reported else 0
        return "; ".join([
            *[f"compiled to {use.registers} registers, {excess} above the predicted "
              f"{self.compiled_registers}"] * (excess > 0),
            *[f"spills {WORD_BYTES * use.spills} B of a lane to memory"] * (use.spills > 0)])

    def text(self, columns: int = MOST_COLUMNS) -> str:
        """The table, its lines folded at *columns*."""
        rows = self.rows()
        width = max(len(what) for what, _ in rows)
        return "\n".join(line for what, value in rows
                         for line in fold(f"{what:<{width}}  {value}", width + 2, columns))

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__  # what Python's prompt shows
