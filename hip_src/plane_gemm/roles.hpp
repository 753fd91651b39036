// What products of filters by planes are of: a pointwise convolution in NCHW, or its input gradient
// (plane_gemm/product.hpp, image_gemm/product.hpp). Results are channels of pixels.
#pragma once

#include "support/vendor.hpp"

namespace dscore {

// y[o][pixel] = sum over c of w[o][c] * x[c][pixel], in each image.
template <class Shape_, class Epilogue>
struct PlaneForward {
  using Shape = Shape_;
  using Arguments = typename Epilogue::Arguments;
  using Results = Epilogue;
  static constexpr unsigned optional = 1u << 2;  // the bias
  static constexpr bool along = true;
  static_assert(!Epilogue::scaled, "x comes to LDS as it is");
  static __host__ __device__ const void *planes(const Arguments &args) { return args.x; }
  static __host__ __device__ const void *filters(const Arguments &args) { return args.w; }
  static __host__ __device__ int m(const Shape &s) { return s.out_channels; }
  static __host__ __device__ int k(const Shape &s) { return s.in_channels; }

  // What results of a channel need beside their sums.
  template <class T>
  static __device__ float beside(const Arguments &args, int channel) {
    return Epilogue::bias_of(args, channel);
  }
  template <class T, int Count>
  static __device__ Pack<T, Count> results_of(const Arguments &args, int at, const float *sums,
                                              float bias) {
    const float biases[2] = {bias, bias};
    return Epilogue::template apply_each<Count>(sums, args, biases, at);
  }
};

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

}  // namespace dscore
