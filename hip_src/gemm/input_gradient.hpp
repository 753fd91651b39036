// Input gradient of a pointwise convolution: the same product of matrices (gemm/kernel.hpp) with
// the filters turned, [input channel][channel] of the filters [channel][input channel], by the
// images of the output's gradient.
//
// The pixels are those of the input. One that no output was made of reads zeros, and is written as
// the others are.
#pragma once

#include "gemm/kernel.hpp"

namespace dscore {

// Filters lie in LDS as in memory, [channel summed][channel of the result]. Rows begin 4 banks
// apart, as those of images do.
template <class Tiling>
struct Turned : Tiling {
  static constexpr bool turned = true;
  static constexpr int filter_row = Tiling::tile_c + (Tiling::tile_c % 8 == 0 ? 4 : 0);
  static constexpr int filters = Tiling::step_c * filter_row;
  static constexpr int buffer = filters + Tiling::step_c * Tiling::image_row;
  static_assert(Tiling::tile_c % Tiling::vector_c == 0, "rows of whole vectors");
};

// Sums rounded to the element type.
template <class T, class Arguments_>
struct Rounding {
  using Arguments = Arguments_;
  static constexpr bool scaled = false, added = false;
  static __device__ inline float bias_of(const Arguments &, int) { return 0.0f; }
  template <int Count>
  static __device__ inline Pack<T, Count> residual_of(const Arguments &, int) { return {}; }
  template <int Count>
  static __device__ inline Pack<T, Count> apply_read(const float *sums, const float *,
                                                     const Pack<T, Count> &) {
    Pack<T, Count> rounded;
    DSCORE_UNROLL
    for (int i = 0; i < Count; i++) rounded.at[i] = static_cast<T>(sums[i]);
    return rounded;
  }
};

template <class T, class Tiling, class Layer, class Shape, class>
struct GemmInputGradient
    : Gemm<T, Turned<Tiling>, Layer, Shape, Rounding<T, InputGradientArguments>> {
  using Product = Gemm<T, Turned<Tiling>, Layer, Shape, Rounding<T, InputGradientArguments>>;
  static constexpr unsigned optional_operands = 0;

  __device__ GemmInputGradient(const InputGradientArguments &args, const Shape &shape)
      : Product(args, args.gradient, shape) {}
};

}  // namespace dscore
