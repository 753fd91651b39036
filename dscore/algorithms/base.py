"""The contract of an algorithm: what dscore asks of a way to compute a convolution.

An algorithm is a subclass of `Algorithm` in a folder of its own name, and a line in the registry.
Nothing else knows which tiling it has before it: solver, cost model, code generator, pictures and
conformance ask the algorithm. Every formula works on one tiling or, field for field, on int64
columns of many, so that the solver and the judge of a single tiling cannot differ."""
from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from dscore.algorithms.columns import Count, ceil_div, remembered
from dscore.algorithms.refusal import unmet, unquantised, untaken, wrong_operation
from dscore.algorithms.registers import launchable
from dscore.core import catalog
from dscore.core.device import Device
from dscore.core.numerics import FilterForm, Permission, PlanArithmetic
from dscore.core.plan import Check, Launch, Plan, ResourceUse, Violation
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling

if TYPE_CHECKING:
    from dscore.algorithms.templates import Cases

# Registers that the paper leaves to the HIP compiler for addresses and counters (Eq. 6).
COMPILER_REGISTERS = 30
# Bytes at whose multiples LDS of a block and its results begin: else sm_90's engine is slower.
LDS_ALIGNMENT_BYTES, TILE_ALIGNMENT_BYTES = 128, 1024  # the latter of tiles of warpgroups
VECTOR_BYTES, BARRIER_BYTES = 16, 16  # that a lane moves at most as one; of a TransferBarrier
LDS_BANKS = 32  # words (numerics.WORD_BYTES) that LDS serves a clock, on all of these devices


@dataclass(frozen=True)
class Footprint:
    """Resources and work of the blocks of a tiling; work is counted per lane of a block."""

    threads: Count
    waves: Count
    lds_bytes: Count
    registers: Count  # of a thread, by Eq. 5 and 6
    blocks: Count
    utilisation: Count  # useful FMA lanes over all
    fmas: Count
    operand_loads: Count  # operands brought to registers for the FMAs, from LDS or memory
    # For the unfitted estimate alone:
    global_bytes: Count = 0  # moved by one block, loads and stores
    steps: Count = 1  # waits for global memory that follow one another


@dataclass(frozen=True)
class Work:
    """Input of the cost model: clocks for which a wavefront keeps the units of its CU busy."""

    issue: Count
    products: Count  # of matrix units
    lds: Count
    lines: Count  # of the load-store unit
    waits: Count  # of a block, one after the other
    fill_bytes: Count  # of LDS, before a block can begin
    l2_bytes: Count  # of all blocks
    uneven: Count = 1.0  # the work of the CU that has most of it, over an even share
    saved_seconds: Count = 0.0  # of the launch


@dataclass(frozen=True)
class Case:
    """A tiling (or columns of many) on a problem and a device, at a residency of `block_n`."""

    problem: ConvProblem
    device: Device
    algorithm: Algorithm
    tiling: Any
    footprint: Footprint
    block_n: Count = 1
    reported: int | None = None  # registers that the compiler took, of one tiling

    @property
    def wanted(self) -> Count:
        """Registers that the kernel wants, or that the compiler took."""
        if self.reported is not None:
            return self.reported
        return remembered(self.algorithm.registers)(self.problem, self.tiling, self.device)

    @property
    def compiled(self) -> Count:
        """Registers that the device's compiler takes at most, or took."""
        if self.reported is not None:
            return self.reported
        most = self.algorithm.most_registers(self.problem, self.tiling, self.device)
        return np.minimum(most, launchable(self.device, self.footprint.waves))

    @property
    def registers(self) -> Count:
        """Registers by Eq. 6, or those that the compiler took."""
        return self.footprint.registers if self.reported is None else self.reported

    @property
    def origin(self) -> str:
        """Where the used registers are from, for the ledger; empty for a prediction."""
        return "" if self.reported is None else "used as compiled"

    @property
    def weights(self) -> Mapping[str, float]:
        """The cost model's weights: of the algorithm, operation, element type and device."""
        weights, of = dict(self.algorithm.weights), self.problem
        for kind in (of.operation, of.spec.dtype, f"{of.operation} {of.spec.dtype}"):
            weights |= self.algorithm.own_weights.get(kind, {})
        return {**weights, **catalog.weights(self.device.name).get(self.algorithm.name, {})}

    @property
    def use(self) -> ResourceUse:
        """The predicted resource use of one tiling."""
        footprint = self.footprint
        return ResourceUse(int(footprint.threads), int(footprint.waves), int(footprint.lds_bytes),
                           int(footprint.registers))

    @property
    def launch(self) -> Launch:
        """The launch of one tiling."""
        return Launch(int(self.footprint.blocks), self.use.threads, self.use.lds_bytes)

    @property
    def waves_per_simd(self) -> Count:
        """Wavefronts on the fullest SIMD when block_n blocks are spread evenly."""
        return ceil_div(self.block_n * self.footprint.waves, self.device.simds_per_cu)


@dataclass(frozen=True)
class Limit:
    """A named constraint: `measure` gives (used, allowed), and used <= allowed keeps it.

    *legality* says what a tiling is (as R1–R5 do), and not what it may spend; *hardware* leaves
    it out of the paper's rules; *exact_only* drops it where tiles may reach past the output.
    """

    code: str
    limit: str
    unit: str
    source: str
    measure: Callable[[Case], tuple[Count, Count]]
    detail: Callable[[Case], str] = lambda case: ""
    legality: bool = True
    hardware: bool = False
    exact_only: bool = False

    def check(self, case: Case) -> Check:
        """The ledger line of one tiling."""
        used, allowed = self.measure(case)
        return Check(self.code, self.limit, int(used), int(allowed), self.unit, self.source,
                     self.detail(case))


@dataclass(frozen=True)
class SpaceGenerator:
    """Enumeration of tilings to try, as columns, but those that others better; what fits is judged
    afterwards. *masked*: tiles may reach past the output."""

    masked: bool
    columns: Callable[[ConvProblem, Device], SimpleNamespace]


class Algorithm(ABC):
    """One way to compute a convolution; the abstract members are its duties.

    *name* is that of its folders in `dscore/algorithms`, `hip_src` and `backends/reference`, and
    the value of the key `algorithm` in files; *tiling* its class of tilings, whose C++ namesake
    takes `template_arguments`; `header` brings both that and the `kernel`.
    """

    name: ClassVar[str]
    tiling: ClassVar[type[Tiling]]
    limits: ClassVar[tuple[Limit, ...]]  # beside those of the device (dscore.solving.rules)
    spaces: ClassVar[tuple[SpaceGenerator, ...]]  # in the order in which they are opened
    operations: ClassVar[tuple[str, ...]] = ("conv",)  # by their names in dscore.ops
    elements: ClassVar[tuple[str, ...]] = ("float32",)  # by their names in dscore.core.numerics
    layouts: ClassVar[tuple[str, ...]] = ("nchw",)  # of images
    quantises: ClassVar[bool] = False  # whether it takes x of floats of a layer of int8
    permission: ClassVar[Permission] = "sum"  # that it needs of a problem
    filters: ClassVar[tuple[FilterForm, ...]] = ("plain",)  # that it takes
    of_paper: ClassVar[bool] = False  # of Liu et al. 2024, and first by the ``paper`` rules
    compared: ClassVar[bool] = False  # with the next one by estimates, and not preferred to it
    weights: ClassVar[Mapping[str, float]] = {}  # of the cost model, on devices without their own
    own_weights: ClassVar[Mapping[str, Mapping[str, float]]] = {}  # of an operation, type, or both

    @property
    def include(self) -> str:
        """First lines of a unit: the include of the kernel, or the kernel's own text."""
        return f'#include "{self.name}/kernel.hpp"'

    def header(self, problem: ConvProblem) -> str:
        """First lines of a unit for *problem*: of its operation, `include` of the first one."""
        first = problem.operation == self.operations[0]
        return self.include if first else f'#include "{self.name}/{problem.operation}.hpp"'

    def kernel(self, problem: ConvProblem) -> str:
        """C++ name of the kernel: the tiling's without `Tiling`, and with a further operation's."""
        words = problem.operation.split("_") * (problem.operation != self.operations[0])
        return self.tiling.__name__.removesuffix("Tiling") + "".join(map(str.capitalize, words))

    def refuses(self, problem: ConvProblem) -> tuple[Violation, ...]:
        """What of *problem* it cannot run: operation, types, layout, `runs`, arithmetic, filter."""
        return (wrong_operation(problem, self.name, self.operations)
                or untaken(problem, self.name, self.elements, self.layouts)
                or unquantised(problem, self.name, self.quantises) or self.runs(problem)
                or unmet(problem, self.name, self.permission, self.filters))

    def suits(self, device: Device) -> bool:
        """Whether a device has what all kernels of it need; elsewhere it has no tilings."""
        return True

    def arithmetic(self, problem: ConvProblem, t: Tiling) -> PlanArithmetic:
        """How the kernel of a tiling computes; its result is held to the bound of that."""
        if t.computes("plain") or problem.spec.element.exact:
            return "sum"
        return "tf32x3" if t.computes("tf32x3") else "matrix16"

    def chain(self, problem: ConvProblem, t: Any) -> int | None:
        """Products that a sum of matrix units has, and additions after it; None: all there are."""
        return None

    @abstractmethod
    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        """Properties of a problem of its operations that it cannot run; empty if it can."""

    @abstractmethod
    def footprint(self, problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
        """The footprint of *t*, a tiling or columns of many."""

    @abstractmethod
    def registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        """Registers that the device's compiler wants for the kernel (docs/registers.md): with fewer
        it spills. Limits, residency and cost go by them until the compiler has reported."""

    def most_registers(self, problem: ConvProblem, t: Any, device: Device) -> Count:
        """Registers that the compiler takes at most: more than it wants, where they are there."""
        return self.registers(problem, t, device)

    @abstractmethod
    def overhangs(self, problem: ConvProblem, t: Any, wavefront: int) -> bool:
        """Whether some tile reaches past the problem, so that lanes are predicated."""

    def workspace_bytes(self, problem: ConvProblem, t: Any) -> int:
        """Memory that a launch needs beside the operands."""
        return 0

    def cleared_bytes(self, problem: ConvProblem, t: Any) -> int | None:
        """Bytes of a workspace that blocks share, zero at the start; None: they do not share it."""
        return None

    def further_launches(self, problem: ConvProblem, t: Any) -> tuple[Launch, ...]:
        """Launches after the one of the footprint, in their order."""
        return ()

    def work(self, case: Case, grids: Count) -> Work | None:
        """Work of a grid that fills the device *grids* times; None: cost by the footprint alone."""
        return None

    def traffic(self, case: Case) -> Mapping[str, Count]:
        """Counts per wavefront that `work` weighs: `multiply-adds`, `LDS reads` (instructions),
        `LDS words read` (of a lane), `LDS clocks`, `lane permutes`, `global loads`,
        `global stores`, `lines loaded`, `lines stored`. Some may be missing."""
        return {}

    @abstractmethod
    def template_arguments(self, plan: Plan) -> tuple[int | str, ...]:
        """The arguments of the tiling's C++ type."""

    def asked_lds_bytes(self, plan: Plan, behind: bool) -> int:
        """LDS that a launch, by itself or *behind* another kernel's, asks for of each block where
        that is more than a block uses, or 0."""
        return 0

    def image_arguments(self, plan: Plan) -> str:
        """Those that depend on the image, for the name of a kernel for any sizes; or empty."""
        return ""

    @abstractmethod
    def owner(self, plan: Plan, row: int, column: int) -> tuple[int, int]:
        """The (parity of the block as on a chess board, wavefront in the block) that computes an
        output of channel 0 of image 0."""

    @abstractmethod
    def caption(self, plan: Plan) -> list[str]:
        """Coverage of a lane, a block and the grid, in words."""

    def cases(self) -> Cases:
        """The module of its hypothesis strategies, `cases` in its folder, imported on use."""
        return cast("Cases", importlib.import_module(f"{type(self).__module__}.cases"))


def checker(row: int, rows: int, column: int, columns: int) -> int:
    """The parity of the block of *rows* x *columns* that an output lies in."""
    return (row // rows + column // columns) % 2

