"""Renders the C++ units that instantiate kernels, with each plan's numbers as static_asserts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dscore.algorithms.geometry import depthwise_shape, pointwise_shape, row_vectors, vectors
from dscore.building.toolchain import Unit
from dscore.core.plan import Plan, Violation
from dscore.core.problem import ConvProblem
from dscore.core.tiling import ChannelDistributionTiling, DirectTiling, GemmTiling, RowReuseTiling
from dscore.core.token import problem_token

# "fixed": the problem's sizes are constants of the kernel. "any": they are arguments, so that
# kernels of one tiling and layer serve every image size, which a search over shapes needs.
Sizes = Literal["fixed", "any"]

ELEMENTS = {"float32": "float"}
_SIZES = ("batch", "in_channels", "height", "width", "out_channels", "out_height", "out_width",
          "groups", "pad_top", "pad_left")
_HEADERS = {ChannelDistributionTiling: "channel_distribution", GemmTiling: "gemm",
            RowReuseTiling: "row_reuse", DirectTiling: "direct"}
# Compilers take about as long for a unit's headers as for a few kernels.
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
        epilogue = f"{'bias' if spec.bias else 'plain'}_{spec.activation or 'linear'}"
        return (f"any_{layer}_{spec.dtype}_{epilogue}__{plan.tiling.name}{self._fitted}"
                f"__s{plan.device.wavefront}")

    @property
    def _fitted(self) -> str:
        """What of the image the kernel depends on: a block's rows, the width of vectors."""
        if isinstance(self.plan.tiling, ChannelDistributionTiling):
            return f"_h{self._block_rows()}"
        if isinstance(self.plan.tiling, GemmTiling):
            return "_v{}x{}".format(*vectors(self.plan.problem))
        if isinstance(self.plan.tiling, RowReuseTiling):
            return "_e{}x{}_v{}o{}x{}".format(*self._spans(), *self._row_vectors())
        return ""

    def _spans(self) -> tuple[int, int]:
        shape = depthwise_shape(self.plan.problem, self.plan.tiling)
        return int(shape.span_in), int(shape.span_out)

    def _row_vectors(self) -> tuple[int, int, int]:
        """Columns of a vector, the first that one begins with, and those of a result."""
        loaded, stored = (int(v) for v in row_vectors(self.plan.problem, self.plan.tiling))
        return loaded, self.plan.problem.padding[2] % loaded, stored

    def _block_rows(self) -> int:
        plan = self.plan
        return int(pointwise_shape(plan.problem, plan.tiling, plan.device.wavefront).rows)

    def tiling_type(self) -> str:
        """The tiling as a C++ type."""
        t, wavefront = self.plan.tiling, self.plan.device.wavefront
        arguments: tuple[int | str, ...]
        if isinstance(t, ChannelDistributionTiling):
            arguments = (t.wave_w, t.wave_c, t.repeat_w, t.repeat_c, t.group_c,
                         self._block_rows(), wavefront)
        elif isinstance(t, GemmTiling):
            arguments = (t.tile_c, t.tile_p, t.wave_c, t.wave_p, t.lanes_c, t.slices, t.step_c,
                         t.stages, t.cluster, int(t.arithmetic == "tf32x3"),
                         *vectors(self.plan.problem), wavefront)
        elif isinstance(t, RowReuseTiling):
            arguments = (t.thread_h, t.thread_w, t.lanes_h, t.lanes_w, t.planes,
                         f"dscore::Staging::{t.staging}", int(t.column_reuse), int(t.ahead),
                         *self._spans(), *self._row_vectors(), wavefront)
        else:
            arguments = (t.threads, t.thread_c, wavefront)
        return f"dscore::{type(t).__name__}<{', '.join(str(a) for a in arguments)}>"

    def definition(self) -> str:
        """The kernel's type, under its own name, and the second witness of the plan's numbers."""
        spec, use = self.plan.problem.spec, self.plan.use
        element = ELEMENTS[spec.dtype]
        layer = ", ".join(str(n) for n in (*spec.kernel, *spec.stride, *spec.dilation))
        epilogue = (f"dscore::Epilogue<{element}, {str(spec.bias).lower()}, "
                    f"dscore::Activation::{spec.activation or 'none'}>")
        family = type(self.plan.tiling).__name__.removesuffix("Tiling")
        shape = "dscore_shape" if self.sizes == "any" else f"{self.name}_sizes"
        return (f"struct {self.name}\n    : dscore::{family}<{element}, {self.tiling_type()},\n"
                f"                     dscore::Layer<{layer}>, {shape}, {epilogue}> {{\n"
                f"  using {family}::{family};\n}};\n"
                f"static_assert({self.name}::threads == {use.threads}, \"threads\");\n"
                f"static_assert({self.name}::lds_bytes == {use.lds_bytes}, \"LDS bytes\");\n")

    def sizes_type(self) -> str:
        """The problem's sizes as a C++ type of constants; nothing for any sizes."""
        if self.sizes == "any":
            return ""
        fields = ", ".join(f"{name} = {value}"
                           for name, value in sizes_of(self.plan.problem).items())
        return f"struct {self.name}_sizes {{\n  static constexpr int {fields};\n}};\n"


def render(kernels: Sequence[KernelSource], table: str = "") -> str:
    """One unit with these kernels; its table is the library's, or an array called *table*."""
    distinct = {kernel.name: kernel for kernel in kernels}
    headers = sorted({_HEADERS[type(kernel.plan.tiling)] for kernel in kernels})
    lines = [f"// dscore: {', '.join(problem_token(k.plan.problem) for k in kernels)}"]
    lines += [f'#include "{header}/kernel.hpp"' for header in headers]
    lines += [f"namespace {{\n{kernel.sizes_type()}{kernel.definition()}}}  // namespace"
              for kernel in distinct.values()]
    rows = "".join(f"  DSCORE_KERNEL({name}),\n" for name in distinct)
    if table:
        lines.append(f"extern \"C\" dscore_kernel {table}[] = {{\n{rows}}};")
    else:
        lines += [f"static const dscore_kernel table[] = {{\n{rows}}};",
                  _entry_points(f"*count = {len(distinct)};\n  return table;")]
    return "\n".join(lines) + "\n"


def _entry_points(kernels: str) -> str:
    return f"""\
#include "support/python_start.hpp"
DSCORE_EXPORT const dscore_kernel *dscore_kernels(int *count) {{
  {kernels}
}}
DSCORE_EXPORT const void *dscore_python_start(void) {{ return &dscore::python_method; }}
DSCORE_EXPORT const char *dscore_error(int code) {{ return dscore::error_text(code); }}
DSCORE_EXPORT int dscore_abi(void) {{ return DSCORE_ABI; }}"""


def units(kernels: Sequence[KernelSource], per_unit: int = KERNELS_PER_UNIT) -> list[Unit]:
    """The units of one library: a single one, or several and an index of their tables."""
    distinct = list({kernel.name: kernel for kernel in kernels}.values())
    if len(distinct) <= per_unit:
        return [Unit("kernels", render(distinct))]
    parts = [distinct[at:at + per_unit] for at in range(0, len(distinct), per_unit)]
    made = [Unit(f"kernels_{n}", render(part, f"dscore_table_{n}"))
            for n, part in enumerate(parts)]
    return [*made, Unit("index", _index([len(part) for part in parts]))]


def _index(counts: list[int]) -> str:
    """A unit that joins the tables of the others."""
    tables = [f"dscore_table_{n}" for n in range(len(counts))]
    declared = "".join(f"extern \"C\" dscore_kernel {table}[];\n" for table in tables)
    copies = "".join(f"    for (int i = 0; i < {count}; i++) joined[n++] = {table}[i];\n"
                     for table, count in zip(tables, counts, strict=True))
    return (f'#include "support/portable.hpp"\n{declared}'
            f"static dscore_kernel joined[{sum(counts)}];\n"
            "static const int filled = [] {\n    int n = 0;\n"
            f"{copies}    return n;\n}}();\n"
            + _entry_points("*count = filled;\n  return joined;") + "\n")


def refused(plan: Plan) -> tuple[Violation, ...]:
    """What of a plan no kernel of hip_src runs, by name."""
    spec, found = plan.problem.spec, []
    if spec.dtype not in ELEMENTS:
        found.append(Violation("E-DTYPE", "dtype", spec.dtype, ", ".join(ELEMENTS)))
    if spec.layout != "nchw":
        found.append(Violation("E-LAYOUT", "layout", spec.layout, "nchw"))
    return tuple(found)
