"""What compilers say a kernel takes: the resource reports of hipcc and of ptxas, as values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dscore.core.plan import ResourceUse

_REMARK = re.compile(r"remark: (?:\S+:\d+:\d+: )?\s*(?P<what>[A-Za-z][^:\n]*?)(?: \[[^\]\n]*\])?: "
                     r"(?P<value>.*?) \[-Rpass-analysis=kernel-resource-usage\]")
_KERNEL = re.compile(r"Compiling entry function '(?P<symbol>[^']+)'")
_PROPERTIES = re.compile(r"Function properties for '?(?P<symbol>[^'\s]+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")

# Words of a lane that may go to memory: nvcc trades a few outside of loops for more wavefronts,
# which time judges better.
MOST_SPILLS = 8


@dataclass(frozen=True)
class Report:
    """A kernel's resources as its compiler reported them.

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

    def use(self, threads: int, waves: int) -> ResourceUse:
        """The report as the use of a block of so many threads."""
        return ResourceUse(threads, waves, self.lds_bytes, self.registers + self.accumulators,
                           self.spills)


def parse(log: str) -> dict[str, Report]:
    """The kernels that a compiler's log reports on, by symbol; mangled names as they are."""
    return {report.symbol: report for report in (*_of_hip(log), *_of_ptxas(log))}


def matching(reports: Mapping[str, Report], substring: str) -> tuple[Report, ...]:
    """The reports on kernels whose symbol contains *substring*, in the symbols' order."""
    return tuple(reports[symbol] for symbol in sorted(reports) if substring in symbol)


def report_of(name: str, reports: Mapping[str, Report]) -> Report | None:
    """The report on the kernel called *name*, among those by mangled symbol.

    A mangled name stands behind its length, and the scope that it ends with an E, which no
    kernel's name holds: so one that begins with another's name is not taken for it.
    """
    found = matching(reports, f"{len(name)}{name}E")
    return found[0] if found else None


def _of_hip(log: str) -> Iterator[Report]:
    kernels: list[tuple[str, dict[str, int]]] = []
    for remark in _REMARK.finditer(log):
        what, value = remark["what"], remark["value"].strip()
        if what == "Function Name":
            kernels.append((value, {}))
        elif kernels and value.isdigit():
            kernels[-1][1][what] = int(value)
    for symbol, said in kernels:
        if "VGPRs" in said:
            yield Report(symbol, said["VGPRs"], said.get("LDS Size", 0), said.get("VGPRs Spill", 0),
                         said.get("ScratchSize", 0), said.get("Occupancy"), said.get("AGPRs", 0),
                         said.get("SGPRs Spill", 0))


def _of_ptxas(log: str) -> Iterator[Report]:
    """One kernel's lines stand between its heading and the next; those of functions that it calls
    may stand among them.
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
        found = _STACK.search(text, named.end())
        if named["symbol"] == symbol and found:
            return int(found[1]), int(found[2]), int(found[3])
    return 0, 0, 0
