"""Code generator: C++ units that instantiate kernels, with each plan's numbers asserted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from dscore.algorithms.registry import algorithm_of
from dscore.building.compiler_places import Kind
from dscore.building.toolchain import Unit
from dscore.core.plan import Launch, Plan
from dscore.core.problem import ConvProblem
from dscore.core.token import problem_token

# "fixed": the problem's sizes are constants of the kernel. "any": they are arguments, so that
# kernels of one tiling and layer serve every image size, which a search over shapes needs.
Sizes = Literal["fixed", "any"]
# The kernels that calls take unless they ask for others. What the emulated device runs need not be
# fast, and is compiled less often so.
CALLED_SIZES: dict[Kind, Sizes] = {"host": "any", "hip": "fixed", "nvcc": "fixed"}

_SIZES = ("batch", "in_channels", "height", "width", "out_channels", "out_height", "out_width",
          "groups", "pad_top", "pad_left")
# GPU compilers take about as long for a unit's headers as for a few kernels.
KERNELS_PER_UNIT = 8


def sizes_of(problem: ConvProblem) -> dict[str, int]:
    """The fields of `dscore_shape` (hip_src/abi.h) for a problem."""
    spec, (top, _, left, _) = problem.spec, problem.padding
    values = (problem.batch, spec.in_channels, problem.height, problem.width, spec.out_channels,
              problem.out_height, problem.out_width, spec.groups, top, left)
    return dict(zip(_SIZES, values, strict=True))


@dataclass(frozen=True)
class KernelSource:
    """A kernel to be built: a plan, and whether its sizes are constants."""

    plan: Plan
    sizes: Sizes = "fixed"

    @property
    def name(self) -> str:
        """Its symbol: the plan's name, or for any sizes the part of it that the kernel depends on.

        Two plans of one symbol are served by one kernel.
        """
        plan, spec = self.plan, self.plan.problem.spec
        if self.sizes == "fixed":
            return plan.name
        layer = "x".join(str(n) for n in (*spec.kernel, *spec.stride, *spec.dilation))
        image = algorithm_of(plan.tiling).image_arguments(plan)
        epilogue = "_".join([
            *[f"in{spec.in_dtype}"] * (spec.in_dtype is not None),
            *[f"out{spec.out_dtype}"] * (spec.out_dtype is not None),
            "bias" if spec.bias else "plain", spec.activation or "linear",
            *[f"residual{spec.residual}"] * (spec.residual is not None),
            *["scaled"] * spec.scaled, *["table"] * spec.table,
            *[spec.filter] * (spec.filter != "plain")])
        layout = "" if spec.layout == "nchw" else f"_{spec.layout}"
        return (f"any_{plan.problem.prefix}{layer}_{spec.dtype}{layout}_{epilogue}__"
                f"{plan.tiling.name}{image}__s{plan.device.wavefront}")

    def tiling_type(self) -> str:
        """The tiling as a C++ type."""
        tiling = self.plan.tiling
        arguments = algorithm_of(tiling).template_arguments(self.plan)
        return f"dscore::{type(tiling).__name__}<{', '.join(map(str, arguments))}>"

    def definition(self) -> str:
        """The kernel's type, under its own name, and the second witness of the plan's numbers."""
        spec = self.plan.problem.spec
        element = spec.element.cpp
        layer = ", ".join(str(n) for n in (*spec.kernel, *spec.stride, *spec.dilation))
        family = algorithm_of(self.plan.tiling).kernel(self.plan.problem)
        shape = "dscore_shape" if self.sizes == "any" else f"{self.name}_sizes"
        base = (f"using {self.name}_base =\n    dscore::{family}<{element}, {self.tiling_type()},\n"
                f"        dscore::Layer<{layer}>, {shape}, {self.epilogue_type()}>;\n")
        return base + "".join(self.structs())

    def epilogue_type(self) -> str:
        """What is done with the sums as a C++ type."""
        spec = self.plan.problem.spec
        activation = f"dscore::Activation::{spec.activation or 'none'}"
        if spec.element.exact:
            beside = "".join(f", {str(one).lower()}" for one in (
                spec.residual is not None, spec.scaled, spec.table))
            return (f"dscore::Requantised<{spec.out_element.cpp}, {str(spec.bias).lower()}, "
                    f"{activation}{beside}, {spec.in_element.cpp}>")
        return (f"dscore::Epilogue<{spec.out_element.cpp}, {str(spec.bias).lower()}, {activation}, "
                f"dscore::Residual::{spec.residual or 'none'}, {str(spec.scaled).lower()}>")

    def launches(self) -> dict[str, Launch]:
        """Kernels of the plan by their names, with threads and LDS bytes of each one's blocks."""
        use = self.plan.use
        first = Launch(self.plan.launch.blocks, use.threads, use.lds_bytes)
        return {self.name + "_then" * number: launch
                for number, launch in enumerate((first, *self.plan.further_launches))}

    def asked(self) -> str:
        """LDS that launches ask for beyond what a block uses, as members of the kernel's type; it
        follows from the number of blocks, which a kernel for any sizes does not know."""
        if self.sizes != "fixed":
            return ""
        ask = algorithm_of(self.plan.tiling).asked_lds_bytes
        asked = {"asked_lds_bytes": ask(self.plan, behind=False),
                 "asked_behind_lds_bytes": ask(self.plan, behind=True)}
        return "".join(f"  static constexpr int {name} = {bytes_};\n"
                       for name, bytes_ in asked.items() if bytes_)

    def structs(self) -> Iterator[str]:
        """The kernels' types, each under its own name and naming the one that follows it; and the
        second witness of the plan's numbers."""
        launches, bases = self.launches(), [f"{name}_base" for name in self.launches()]
        for base, following in pairwise(bases):
            yield f"using {following} = {base}::Then;\n"
        yield f"static_assert(std::is_void_v<{bases[-1]}::Then>, \"launches\");\n"
        then = ""
        for name, launch in reversed(launches.items()):
            own = self.asked() if name == self.name else ""
            yield (f"struct {name} : {name}_base {{\n  using {name}_base::{name}_base;\n"
                   f"{own}{then}}};\n"
                   f"static_assert({name}::threads == {launch.threads}, \"threads\");\n"
                   f"static_assert({name}::lds_bytes == {launch.lds_bytes}, \"LDS bytes\");\n")
            then = f"  using Then = {name};\n"

    def sizes_type(self) -> str:
        """The problem's sizes as a C++ type of constants; nothing for any sizes."""
        if self.sizes == "any":
            return ""
        fields = ", ".join(f"{name} = {value}"
                           for name, value in sizes_of(self.plan.problem).items())
        return f"struct {self.name}_sizes {{\n  static constexpr int {fields};\n}};\n"

    def text(self) -> str:
        """All that a unit says of the kernel, after `include`."""
        return f"namespace {{\n{self.sizes_type()}{self.definition()}}}  // namespace"

    @property
    def include(self) -> str:
        """The lines that include the templates of the kernel and its epilogue."""
        header = algorithm_of(self.plan.tiling).header(self.plan.problem)
        quantised = self.plan.problem.spec.element.exact
        return header + '\n#include "support/requantised.hpp"' * quantised


def render(kernels: Sequence[KernelSource], table: str = "",
           others: Mapping[str, int] | None = None) -> str:
    """One unit with these kernels; its table is the library's, or an array called *table*.

    The library's table also has the rows of *others*, the tables of other units, by their lengths.
    """
    distinct = {kernel.name: kernel for kernel in kernels}
    includes = sorted({kernel.include for kernel in kernels})
    lines = [f"// dscore: {', '.join(problem_token(k.plan.problem) for k in kernels)}"]
    lines += [*includes, '#include "support/library.hpp"']
    lines += [kernel.text() for kernel in distinct.values()]
    rows = "".join(f"  DSCORE_KERNEL({name}),\n" for name in distinct)
    if table:
        lines.append(f"extern \"C\" dscore_kernel {table}[] = {{\n{rows}}};")
    else:
        lines += [f"static const dscore_kernel table[] = {{\n{rows}}};",
                  _joined({"table": len(distinct), **others}) if others
                  else entry_points(f"*count = {len(distinct)};\n  return table;")]
    return "\n".join(lines) + "\n"


def entry_points(kernels: str = "") -> str:
    """The functions of a library (hip_src/abi.h); *kernels* is the body of one of them."""
    return f"""\
#include "support/python_start.hpp"
DSCORE_EXPORT const dscore_kernel *dscore_kernels(int *count) {{
  {kernels}
}}
DSCORE_EXPORT const void *dscore_python_start(void) {{ return &dscore::python_method; }}
DSCORE_EXPORT const char *dscore_error(int code) {{ return dscore::error_text(code); }}
DSCORE_EXPORT int dscore_abi(void) {{ return DSCORE_ABI; }}"""


def units(kernels: Sequence[KernelSource], cores: int = 1) -> list[Unit]:
    """The units of one library, which *cores* compile side by side.

    A core gets one unit, for the headers cost as much as several kernels; kernels that follow one
    another, which may be of one kind, go to different cores.
    """
    distinct = list({kernel.name: kernel for kernel in kernels}.values())
    count = max(-(-len(distinct) // KERNELS_PER_UNIT), min(len(distinct), cores))
    if count == 1:
        return [Unit("kernels", render(distinct))]
    parts = [distinct[at::count] for at in range(count)]
    tables = {f"dscore_table_{n}": part for n, part in enumerate(parts[:-1])}
    # The last unit, of the fewest kernels, has the library's functions.
    return [*(Unit(f"kernels_{n}", render(part, table))
              for n, (table, part) in enumerate(tables.items())),
            Unit(f"kernels_{count - 1}", render(parts[-1], others={
                table: len(part) for table, part in tables.items()}))]


def _joined(counts: Mapping[str, int]) -> str:
    """The functions of a library whose kernels are in several tables, the first of this unit."""
    declared = "".join(f"extern \"C\" dscore_kernel {table}[];\n" for table in [*counts][1:])
    copies = "".join(f"    for (int i = 0; i < {count}; i++) joined[n++] = {table}[i];\n"
                     for table, count in counts.items())
    return (f"{declared}static dscore_kernel joined[{sum(counts.values())}];\n"
            "static const int filled = [] {\n    int n = 0;\n"
            f"{copies}    return n;\n}}();\n" + entry_points("*count = filled;\n  return joined;"))
