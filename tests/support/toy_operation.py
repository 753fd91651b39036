"""A toy operation in one module, the sum of scaled channels; and its algorithm."""

import sys
from dataclasses import dataclass

from hypothesis import strategies as st
from toy_algorithm import Toy, ToyTiling
from toy_algorithm import problems as convolutions

from dscore.algorithms.templates import Template
from dscore.core.plan import Violation
from dscore.ops import Exact, Operand, Operation
from dscore.ops.conv import float64

KERNEL = """
#include "support/common.hpp"
namespace dscore {
template <int Threads, int Wavefront>
struct SumTiling { static constexpr int threads = Threads, wavefront = Wavefront; };
struct SumArguments { const void *x, *scale; void *out; };
template <class T, class t, class Layer, class Shape_, class Epilogue>
struct Sum : KernelOn<T, SumArguments> {
  using Shape = Shape_;
  static constexpr int threads = t::threads, wavefront = t::wavefront,
                       alignment = sizeof(T), lds_bytes = 0;
  static int blocks(const Shape &s) { return ceil_div(s.batch * s.height * s.width, threads); }
  const Shape &s;
  __device__ Sum(const SumArguments &, const Shape &shape) : s(shape) {}
  __device__ void run(const SumArguments &args) {
    const int area = s.height * s.width, at = blockIdx.x * threads + threadIdx.x;
    if (at >= s.batch * area) return;
    const T *x = static_cast<const T *>(args.x) + at / area * s.in_channels * area + at % area;
    float sum = 0.0f;
    for (int c = 0; c < s.in_channels; c++)
      sum += x[c * area] * static_cast<const T *>(args.scale)[c];
    static_cast<T *>(args.out)[at] = static_cast<T>(Epilogue::activate(sum));
  }
};
}  // namespace dscore"""


class ToySum(Operation):
    name = "toy_sum"

    def operands(self, problem):
        spec = problem.spec
        return (Operand("x", problem.x_shape, "input", spec.element, spec.layout),
                Operand("scale", (spec.in_channels,), "input", spec.element),
                Operand("out", (problem.batch, problem.height, problem.width), "output",
                        spec.element, "nhw"))

    def exact(self, xp, problem, *inputs):
        products = float64(xp, inputs[0]) * float64(xp, inputs[1])[:, None, None]
        return Exact(products.sum(1), xp.abs(products).sum(1), problem.spec.in_channels)

    def macs(self, problem):
        return problem.batch * problem.spec.in_channels * problem.height * problem.width


@dataclass(frozen=True)
class SumTiling(ToyTiling):
    algorithm = "sum_pixels"

    @property
    def name(self):
        return f"sum_pixels_t{self.threads}"


class SumPixels(Toy):
    name, tiling, include, operations = "sum_pixels", SumTiling, KERNEL, ("toy_sum",)

    def runs(self, problem):
        return (Violation("E-BIAS", "bias", "one", "none"),) if problem.spec.bias else ()

    def cases(self):
        return sys.modules[__name__]


def templates(device):
    return st.builds(Template, st.just(device), st.just(SumTiling(2 * device.wavefront)),
                     *[st.just((1, 1))] * 3,
                     st.just((("operation", "toy_sum"), ("dtype", "float32"),
                              ("activation", "relu"))))


def problems(template):
    return convolutions(template)
