// Input gradient of a pointwise convolution (warpgroup_gemm/kernel.hpp): the output's gradients by
// the filters, whose rows are the summed channels.
#pragma once

#include "warpgroup_gemm/product.hpp"

namespace dscore {

// Results of sums alone.
template <class Shape>
struct WarpgroupPlain {
  struct Nothing {};
  using Points = Nothing;
  template <int>
  using Beside = Nothing;
  using Results = PlainResults;
  template <class T>
  using Result = T;
  template <class Arguments>
  static __device__ Points read_points(const Arguments &) { return {}; }
  template <class Arguments>
  static __device__ Points points_of(const Arguments &, Points) { return {}; }
  template <class Arguments>
  static __device__ int zero_of(const Arguments &) { return 0; }
  template <class, class Arguments>
  static __device__ NoScales scales_of(const Arguments &) { return {}; }
  template <class>
  using Columns = NoColumnValues;
  static constexpr unsigned optional = 0;
  static constexpr bool scaled = false, sums_pixels = false;
  template <class t, class Arguments>
  static __device__ Nothing beside(const Arguments &, int, const unsigned char *, int) {
    return {};
  }
  template <int>
  using Added = Nothing;
  template <int, class Arguments>
  static __device__ Nothing added_to(const Arguments &, const Shape &, int, int, Points) {
    return {};
  }
  template <class T, int Count>
  static __device__ Pack<T, Count> results_of(const float *sums, Nothing, Points, Nothing) {
    return rounded<T, Count>(sums);
  }
};

// dx[pixel][c] = sum over o of gradient[pixel][o] * w[o][c].
template <class Shape_>
struct WarpgroupInputGradientRoles : WarpgroupPlain<Shape_> {
  using Shape = Shape_;
  using Arguments = InputGradientArguments;
  static constexpr bool along_a = true, along_b = false, stores_sums = false;
  static __host__ __device__ const void *a(const Arguments &args) { return args.gradient; }
  static __host__ __device__ const void *b(const Arguments &args) { return args.w; }
  static __host__ __device__ int m(const Shape &s) { return s.batch * s.height * s.width; }
  static __host__ __device__ int n(const Shape &s) { return s.in_channels; }
  static __host__ __device__ int k(const Shape &s) { return s.out_channels; }
};

template <class T, class Tiling, class Layer, class Shape, class>
struct WarpgroupGemmInputGradient
    : WarpgroupProducts<T, Tiling, WarpgroupInputGradientRoles<Shape>> {
  using WarpgroupProducts<T, Tiling, WarpgroupInputGradientRoles<Shape>>::WarpgroupProducts;
  static_assert(Layer::taps == 1 && Layer::stride_h == 1 && Layer::stride_w == 1, "all pixels");
};

}  // namespace dscore
