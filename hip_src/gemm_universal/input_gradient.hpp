// Input gradient of a pointwise convolution (gemm_universal/kernel.hpp): the output's gradients by
// the filters, whose rows are the summed channels. The rows of results are the input's pixels, of
// which those that no output was made of are zero.
#pragma once

#include "gemm_universal/kernel.hpp"

namespace dscore {

// dx[pixel][c] = sum over o of gradient[pixel][o] * w[o][c].
template <class Layer, class Shape_>
struct PointwiseInputGradient {
  using Shape = Shape_;
  using Arguments = InputGradientArguments;
  using Places = Pixels<Layer, Shape>;
  static constexpr unsigned optional = 0;
  static constexpr bool along_a = true, along_b = false, scaled = false;
  static __device__ const void *a(const Arguments &args) { return args.gradient; }
  static __device__ const void *b(const Arguments &args) { return args.w; }
  static __host__ __device__ int m(const Shape &s) { return Places::of_input(s); }
  static __host__ __device__ int n(const Shape &s) { return s.in_channels; }
  static __host__ __device__ int k(const Shape &s) { return s.out_channels; }
  template <bool Gathered>
  static __device__ int row_a(const Shape &s, int row) {
    return (Gathered ? Places::result(s, row) : row) * s.out_channels;
  }
  template <bool>
  static __device__ int row_b(const Shape &s, int row) { return row * s.in_channels; }
  template <class T, int Width, bool Gathered>
  static __device__ void store(const Arguments &args, const Shape &s, int, int row, int column,
                               const float *values) {
    auto results = rounded<T, Width>(values);
    if constexpr (Gathered)
      // Zero by an infinite filter is no number.
      if (Places::result(s, row) < 0) results = {};
    write_vector(static_cast<T *>(args.out) + row * s.in_channels + column, results);
  }
};

template <class T, class Tiling, class Layer, class Shape, class>
struct GemmUniversalInputGradient : Product<T, Tiling, PointwiseInputGradient<Layer, Shape>> {
  using Product<T, Tiling, PointwiseInputGradient<Layer, Shape>>::Product;
};

}  // namespace dscore
