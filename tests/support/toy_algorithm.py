"""A toy algorithm in one file: a thread for each output of a pointwise layer of stride 1."""

import sys
from dataclasses import dataclass

from hypothesis import strategies as st

from dscore.algorithms.base import Algorithm, Footprint, Limit, SpaceGenerator
from dscore.algorithms.columns import ceil_div, grid
from dscore.algorithms.refusal import require_kind
from dscore.algorithms.templates import Template, options, problem_on
from dscore.core.plan import Launch, Violation
from dscore.core.tiling import Tiling
from dscore.ops import output_of

KERNEL = """
#include "support/common.hpp"
namespace dscore {
template <int Threads, int Wavefront>
struct ToyTiling { static constexpr int threads = Threads, wavefront = Wavefront; };
template <class T, class t, class Layer, class Shape_, class Epilogue>
struct Toy : ConvKernel<T, Epilogue> {
  using Arguments = typename Epilogue::Arguments;
  using Shape = Shape_;
  static constexpr int threads = t::threads, wavefront = t::wavefront,
                       alignment = sizeof(T), lds_bytes = 0;
  static int blocks(const Shape &s) {
    return ceil_div(s.batch * s.out_channels * s.height * s.width, threads);
  }
  const Shape &s;
  __device__ Toy(const Arguments &, const Shape &shape) : s(shape) {}
  __device__ void run(const Arguments &args) {
    const int area = s.height * s.width, at = blockIdx.x * threads + threadIdx.x;
    if (at >= s.batch * s.out_channels * area) return;
    const int o = at / area % s.out_channels, image = at / area / s.out_channels;
    const T *x = static_cast<const T *>(args.x) + image * s.in_channels * area + at % area;
    const T *w = static_cast<const T *>(args.w) + o * s.in_channels;
    float sum = 0.0f;
    for (int c = 0; c < s.in_channels; c++) sum += x[c * area] * w[c];
    static_cast<T *>(args.out)[at] = Epilogue::template apply<1>(&sum, args, o, at).at[0];
  }
};
}  // namespace dscore"""


# The same in two launches: the sums go to a workspace, from which the second takes them.
TWO_STEPS = KERNEL.replace("struct Toy : ConvKernel<T, Epilogue> {", """struct ToyEnd;
struct ToyArguments { const void *x, *w, *bias; void *out; void *workspace; };
template <class T, class t, class Layer, class Shape_, class Epilogue>
struct Toy : KernelOn<T, ToyArguments, 1u << 2> {
  using Then = ToyEnd<T, t, Layer, Shape_, Epilogue>;
  static long long workspace_bytes(const Shape_ &s) {
    return sizeof(float) * s.batch * s.out_channels * s.height * s.width;
  }""").replace("using Arguments = typename Epilogue::Arguments;", "using Arguments = ToyArguments;"
).replace("""static_cast<T *>(args.out)[at] = Epilogue::template apply<1>(&sum, args, o, at).at[0];
  }
};""", """static_cast<float *>(args.workspace)[at] = sum;
  }
};
template <class T, class t, class Layer, class Shape_, class Epilogue>
struct ToyEnd : KernelOn<T, ToyArguments, 1u << 2> {
  using Shape = Shape_;
  static constexpr int threads = t::threads, wavefront = t::wavefront, alignment = sizeof(T),
                       lds_bytes = 0;
  static int blocks(const Shape &s) { return Toy<T, t, Layer, Shape, Epilogue>::blocks(s); }
  const Shape &s;
  __device__ ToyEnd(const ToyArguments &, const Shape &shape) : s(shape) {}
  __device__ void run(const ToyArguments &args) {
    const int area = s.height * s.width, at = blockIdx.x * threads + threadIdx.x;
    if (at >= s.batch * s.out_channels * area) return;
    const typename Epilogue::Arguments operands{args.x, args.w, args.bias, args.out};
    const float sum = static_cast<const float *>(args.workspace)[at];
    static_cast<T *>(args.out)[at] =
        Epilogue::template apply<1>(&sum, operands, at / area % s.out_channels, at).at[0];
  }
};""")


@dataclass(frozen=True)
class ToyTiling(Tiling):
    threads: int
    algorithm = "toy"

    @property
    def name(self):
        return f"toy_t{self.threads}"


class Toy(Algorithm):
    name, tiling, include = "toy", ToyTiling, KERNEL
    limits = (Limit("E-LANES", "lanes left", "", "", lambda case: (
        case.tiling.threads % case.device.wavefront, 0)),)
    spaces = (SpaceGenerator(True, lambda problem, device: grid(
        threads=[device.wavefront * waves for waves in (1, 2, 4)])),)

    def runs(self, problem):
        if problem.spec.stride != (1, 1) or any(problem.padding):
            return (Violation("E-STRIDE", "stride or padding", 1, 0),)
        return require_kind(problem, self.name, "pointwise")

    def footprint(self, problem, t, wavefront):
        k, outputs, none = problem.spec.products, output_of(problem).elements, 0 * t.threads
        blocks = ceil_div(outputs, t.threads)
        return Footprint(t.threads, t.threads // wavefront, none, 33 + none, blocks,
                         outputs / (blocks * t.threads), k, 2 * k)

    def registers(self, problem, t, device):
        return 40 + 0 * t.threads

    def overhangs(self, problem, t, wavefront):
        return output_of(problem).elements % t.threads != 0

    def template_arguments(self, plan):
        return plan.tiling.threads, plan.device.wavefront

    def owner(self, plan, row, column):
        return (row * plan.problem.out_width + column) // plan.tiling.threads % 2, 0

    def caption(self, plan):
        return ["a lane: 1 output"]

    def cases(self):
        return sys.modules[__name__]


class TwoSteps(Toy):
    include = TWO_STEPS

    def runs(self, problem):
        residual = (Violation("E-RESIDUAL", "residual", "one", "none"),) * bool(
            problem.spec.residual)
        return super().runs(problem) + residual

    def workspace_bytes(self, problem, t):
        return 4 * output_of(problem).elements

    def further_launches(self, problem, t):
        return (Launch(ceil_div(output_of(problem).elements, t.threads), t.threads, 0),)


def templates(device):
    return st.builds(Template, st.just(device), st.just(ToyTiling(2 * device.wavefront)),
                     *[st.just((1, 1))] * 3, options(Toy))


@st.composite
def problems(draw, template):
    channels, out, height, width = (draw(st.integers(1, 20)) for _ in range(4))
    return problem_on(draw, template.spec(channels, out, 1, 0), (height, width))
