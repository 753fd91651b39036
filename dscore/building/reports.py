"""Resource reports of hipcc and of ptxas on the kernels they compile, as values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dscore.core.numerics import WORD_BYTES
from dscore.core.plan import ResourceUse

_REMARK = re.compile(r"remark: (?:\S+:\d+:\d+: )?\s*(?P<what>[A-Za-z][^:\n]*?)(?: \[[^\]\n]*\])?: "
                     r"(?P<value>.*?) \[-Rpass-analysis=kernel-resource-usage\]")
_KERNEL = re.compile(r"Compiling entry function '(?P<symbol>[^']+)'")
_PROPERTIES = re.compile(r"Function properties for '?(?P<symbol>[^'\s]+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")


@dataclass(frozen=True)
class Report:
    """Resources of a kernel as its compiler reported them.

    NVIDIA's compiler counts spilled bytes: *spills* are its 4-byte words. AMD's counts registers;
    it may put what does not fit into *accumulators* (of processors with matrix units) instead, and
    scalar registers into lanes of vector registers, neither of which it calls a spill of these.
    """

    symbol: str
    registers: int  # vector registers of a lane
    lds_bytes: int  # static ones only: what a launch adds is not known to a compiler
    spills: int
    scratch_bytes: int  # of a lane: spills, and arrays that are not in registers
    occupancy_waves: int | None = None  # of a SIMD; not reported by ptxas
    accumulators: int = 0
    scalar_spills: int = 0

    @property
    def held(self) -> int:
        """Registers of both kinds."""
        return self.registers + self.accumulators

    @property
    def words_in_memory(self) -> int:
        """Words of a lane in scratch memory: spilled registers, and arrays kept there."""
        return max(self.spills, -(-self.scratch_bytes // WORD_BYTES))

    def use(self, predicted: ResourceUse) -> ResourceUse:
        """Resource use of the block of *predicted* by this report, which knows nothing of LDS that
        is asked for at the launch.
        """
        return replace(predicted, registers=self.held, spills=self.words_in_memory, reported=True)


def report_from(fields: Any) -> Report:
    """Report from its fields, as a JSON file states them; ValueError where they make none."""
    try:
        report = Report(**fields)
    except TypeError as failed:
        raise ValueError(f"no report: {failed}") from None
    counts = vars(report).copy()
    if counts["occupancy_waves"] is None:
        del counts["occupancy_waves"]
    if not isinstance(counts.pop("symbol"), str) or not all(
            type(count) is int for count in counts.values()):
        raise ValueError("no report: odd values")
    return report


def parse(log: str) -> dict[str, Report]:
    """Reports in a compiler's log, by the kernel's symbol; mangled names as they are."""
    return {report.symbol: report for report in (*_of_hip(log), *_of_ptxas(log))}


def matching(reports: Mapping[str, Report], substring: str) -> tuple[Report, ...]:
    """Reports on kernels whose symbol contains *substring*, in the symbols' order."""
    return tuple(reports[symbol] for symbol in sorted(reports) if substring in symbol)


def report_of(name: str, reports: Mapping[str, Report]) -> Report | None:
    """Report on the kernel called *name*, among reports by mangled symbol.

    In a symbol the name follows its length, and an E follows the name. No kernel's name holds an
    E, so that a kernel whose name only begins with *name* is not taken for it.
    """
    named = matching(reports, f"{len(name)}{name}E")
    return named[0] if named else None


def _of_hip(log: str) -> Iterator[Report]:
    kernels: list[tuple[str, dict[str, int]]] = []
    for remark in _REMARK.finditer(log):
        what, value = remark["what"], remark["value"].strip()
        if what == "Function Name":
            kernels.append((value, {}))
        elif kernels and value.isdigit():
            kernels[-1][1][what] = int(value)
    for symbol, values in kernels:
        if "VGPRs" in values:
            yield Report(symbol, values["VGPRs"], values.get("LDS Size", 0),
                         values.get("VGPRs Spill", 0), values.get("ScratchSize", 0),
                         values.get("Occupancy"), values.get("AGPRs", 0),
                         values.get("SGPRs Spill", 0))


def _of_ptxas(log: str) -> Iterator[Report]:
    """Reports by ptxas: a kernel's lines follow its heading, among them those of functions that the
    kernel calls.
    """
    headings = [*_KERNEL.finditer(log)]
    ends = [*(heading.start() for heading in headings), len(log)][1:]
    for heading, end in zip(headings, ends, strict=True):
        symbol, text = heading["symbol"], log[heading.end():end]
        used = _USED.search(text)
        if used is None:
            continue
        stack, stores, loads = _stack_of(symbol, text)
        shared = _SHARED.search(text[used.start():].splitlines()[0])
        yield Report(symbol, int(used[1]), int(shared[1]) if shared else 0,
                     -(-max(stores, loads) // 4), stack)


def _stack_of(symbol: str, text: str) -> tuple[int, int, int]:
    """Bytes of stack, of spill stores and of spill loads of the kernel itself."""
    for named in _PROPERTIES.finditer(text):
        stack = _STACK.search(text, named.end())
        if named["symbol"] == symbol and stack:
            return int(stack[1]), int(stack[2]), int(stack[3])
    return 0, 0, 0
