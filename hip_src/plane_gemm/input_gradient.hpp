// Input gradient of a pointwise convolution in NCHW (plane_gemm/kernel.hpp): the turned filters by
// the planes of the output's gradients.
#pragma once

#include "plane_gemm/product.hpp"

namespace dscore {

// dx[c][pixel] = sum over o of w[o][c] * gradient[o][pixel], in each image.
template <class Shape_>
struct PlaneInputGradientRoles {
  using Shape = Shape_;
  using Arguments = InputGradientArguments;
  using Results = PlainResults;
  static constexpr unsigned optional = 0;
  static constexpr bool along = false;
  static __host__ __device__ const void *planes(const Arguments &args) { return args.gradient; }
  static __host__ __device__ const void *filters(const Arguments &args) { return args.w; }
  static __host__ __device__ int m(const Shape &s) { return s.in_channels; }
  static __host__ __device__ int k(const Shape &s) { return s.out_channels; }

  struct Nothing {};
  template <class T>
  static __device__ Nothing beside(const Arguments &, int) { return {}; }
  template <class T, int Count>
  static __device__ Pack<T, Count> results_of(const Arguments &, int, const float *sums, Nothing) {
    return rounded<T, Count>(sums);
  }
};

template <class T, class Tiling, class Layer, class Shape, class>
struct PlaneGemmInputGradient : PlaneProducts<T, Tiling, PlaneInputGradientRoles<Shape>> {
  using PlaneProducts<T, Tiling, PlaneInputGradientRoles<Shape>>::PlaneProducts;
  static_assert(Layer::taps == 1 && Layer::stride_h == 1 && Layer::stride_w == 1, "all pixels");
};

}  // namespace dscore
