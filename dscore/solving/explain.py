"""Explanation of a plan: its table, its ledger, its picture, and the floor of the problem.

The picture shows how wavefronts tile an output plane (after Figure 7 of Liu et al. 2024).
"""

from __future__ import annotations

from dataclasses import dataclass

from dscore.algorithms.registry import algorithm_of, case_of
from dscore.core import text
from dscore.core.numerics import WORD_BYTES, PlanArithmetic
from dscore.core.plan import Check, Plan
from dscore.ops import compulsory_bytes, flops, outputs_of
from dscore.solving.rules import ledger
from dscore.solving.verdict import ledger_lines

MOST_ROWS = 16
MOST_COLUMNS = 64
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Explanation:
    """A plan with its reasons; ``print(explanation)`` shows them.

    *ledger* is judged at the plan's own residency, *floor_seconds* is the least time the problem
    can take on the device by the plan's arithmetic, *note* says why another space than the layer's
    own was opened, *chosen_by* who chose the plan, *assumed* which device was assumed where none
    was stated, *spills* how many words of a lane the plan's kernel keeps in memory, as far as it
    was compiled, *passed_over* the plans that would come before but spill.
    """

    plan: Plan
    ledger: tuple[Check, ...]
    floor_seconds: float
    floor: str
    note: str
    considered: int
    chosen_by: str
    assumed: str = ""
    spills: int = 0
    passed_over: str = ""

    @property
    def arithmetic(self) -> PlanArithmetic:
        """How the plan computes, which tells the error bound of its result."""
        return algorithm_of(self.plan.tiling).arithmetic(self.plan.problem, self.plan.tiling)

    def text(self, columns: int = text.MOST_COLUMNS, every_limit: bool = False) -> str:
        """All of it, folded at *columns*; limits that cannot bind are counted only.

        *every_limit* shows these limits, too.
        """
        plan = self.plan
        spills = f"{WORD_BYTES * self.spills} B of a lane to memory, which is slow"
        own = f"{self.arithmetic}, with an error bound of its own (docs/bounds.md)"
        reasons = {"LDS asked for": self._asked(),
                   "arithmetic": own if self.arithmetic != "sum" else "",
                   "spills": spills if self.spills else "", "chosen by": self.chosen_by,
                   "passed over": self.passed_over, "note": self.note,
                   "assumed device": self.assumed}
        head = [line for name, reason in reasons.items() if reason
                for line in text.fold(f"{name:<22}{reason}", 22, columns)]
        limits = text.fold(f"limits at block_n={plan.block_n} ({plan.rules} rules); "
                           f"{self.considered:,} tilings fit", 4, columns)
        picture_head = text.fold("wavefronts on an output plane (letters; case alternates between "
                                 "blocks)", 4, columns)
        picture = (*wavefront_map(plan), "")
        caption = [line for sentence in algorithm_of(plan.tiling).caption(plan)
                   for line in text.fold(f"  {sentence}", 4, columns)]
        return "\n\n".join((
            "\n".join((plan.text(columns), *head)),
            "\n".join((*limits, *ledger_lines(self.ledger, columns, every_limit))),
            "\n".join((*picture_head, *(f"  {line}".rstrip() for line in picture), *caption)),
            "\n".join(text.fold(self.floor, 6, columns))))

    def _asked(self) -> str:
        """What launches ask for of LDS beyond what a block uses; empty for nothing."""
        ask = algorithm_of(self.plan.tiling).asked_lds_bytes
        alone, behind = ask(self.plan, behind=False), ask(self.plan, behind=True)
        where = "" if alone else " behind another kernel's launch, as in a network"
        return (f"{behind:,} B a block{where}: each CU has room for its share of the blocks and no "
                "more") if behind else ""

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__  # what Python's prompt shows


def explanation_of(plan: Plan, considered: int, note: str, chosen_by: str) -> Explanation:
    """The explanation of *plan*; *considered* is how many tilings fit its problem."""
    problem, device = plan.problem, plan.device
    case = case_of(problem, device, plan.tiling, plan.block_n, plan.reported_registers)
    seconds = device.floor_seconds(compulsory_bytes(problem), flops(problem), _rate(plan)[0])
    return Explanation(plan, ledger(case, plan.rules, plan.masked), seconds,
                       f"floor {seconds * 1e6:.2f} µs = {_floor_terms(plan)}",
                       note, considered, chosen_by)


def _floor_terms(plan: Plan) -> str:
    """Terms that the floor is the greatest of, in words, and what is no term of it."""
    problem, device = plan.problem, plan.device
    rate, words = _rate(plan)
    stated = "assumed" if "bandwidth_bytes_per_second" in device.assumed else "data sheet"
    source = "measured" if device.measured_bandwidth_bytes_per_second else stated
    terms = [f"{compulsory_bytes(problem):,} B at {device.bandwidth / 1e9:,.0f} GB/s ({source})"]
    if rate:
        terms.append(f"{flops(problem):,} flops at {rate / 1e12:.1f} TFLOP/s{words}")
    terms += ["an empty launch"] * bool(device.measured_launch_seconds)
    greatest = f"max({', '.join(terms)})" if terms[1:] else terms[0]
    return greatest if rate else f"{greatest}; its {flops(problem):,} flops are left out: {words}"


def _rate(plan: Plan) -> tuple[float | None, str]:
    """Operations per second of the plan's arithmetic, and in words of what; or None, and why.

    A rate that the plan's kernel undercuts is none: matrix units multiply short types, and three
    TF32 products for one, faster than others multiply float32.
    """
    device, dtype = plan.device, plan.problem.spec.dtype
    arithmetic = algorithm_of(plan.tiling).arithmetic(plan.problem, plan.tiling)
    if arithmetic.startswith("winograd"):
        return None, "Winograd's algorithm makes fewer products"
    if arithmetic == "sum" and not plan.problem.spec.element.exact:
        return device.fp32_flops, ""
    kind, products = ("tf32", 3) if arithmetic == "tf32x3" else (dtype, 1)
    if (rate := device.matrix_rate(kind)) is None:
        return None, f"no rate of {device.name} for products of {kind} is stated"
    source = "measured" if kind in dict(device.measured_matrix_flops) else "data sheet"
    return rate / products, f" ({kind}, {source}{', three products for one' * (products == 3)})"


def wavefront_map(plan: Plan) -> list[str]:
    """The corner of a plane of the first output: a letter per output, the wavefront of its block.

    Upper and lower case alternate between blocks.
    """
    algorithm, output = algorithm_of(plan.tiling), outputs_of(plan.problem)[0]
    height, width = output.shape[1:3] if output.layout == "nhwc" else output.shape[-2:]
    rows, columns = min(height, MOST_ROWS), min(width, MOST_COLUMNS)
    lines = []
    for row in range(rows):
        owners = (algorithm.owner(plan, row, column) for column in range(columns))
        line = "".join((_LETTERS.lower() if odd else _LETTERS)[wave % 26] for odd, wave in owners)
        lines.append(line + (" …" if columns < width else ""))
    return lines + ["…"] * (rows < height)
