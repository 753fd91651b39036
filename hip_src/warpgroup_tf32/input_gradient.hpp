// Input gradient of a pointwise convolution by warpgroups: the same product of matrices
// (warpgroup_tf32/kernel.hpp) with the filters turned, [input channel][channel] of the filters
// [channel][input channel], by the images of the output's gradient.
//
// The pixels are those of the input. One that no output was made of reads zeros, and is written as
// the others are.
#pragma once

#include "gemm/input_gradient.hpp"
#include "warpgroup_tf32/kernel.hpp"

namespace dscore {

template <class Tiling>
struct TurnedFilters : Tiling {
  static constexpr bool turned = true;
};

template <class T, class Tiling, class Layer, class Shape, class>
struct WarpgroupTf32InputGradient
    : WarpgroupTf32<T, TurnedFilters<Tiling>, Layer, Shape,
                    Rounding<T, InputGradientArguments>> {
  using Product = WarpgroupTf32<T, TurnedFilters<Tiling>, Layer, Shape,
                                Rounding<T, InputGradientArguments>>;
  static constexpr unsigned optional_operands = 0;

  __device__ WarpgroupTf32InputGradient(const InputGradientArguments &args, const Shape &shape)
      : Product(args, args.gradient, shape) {}
};

}  // namespace dscore
