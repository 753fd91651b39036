// Pointwise convolution as a product of pixels by channels (warpgroup_gemm/product.hpp).
#pragma once

#include "warpgroup_gemm/product.hpp"

namespace dscore {

// y[pixel][o] = sum over c of x[pixel][c] * w[o][c].
template <class Shape_, class Epilogue>
struct WarpgroupForward {
  using Shape = Shape_;
  using Arguments = typename Epilogue::Arguments;
  static constexpr unsigned optional = 1u << 2;  // the bias
  static constexpr bool along_a = true, along_b = true, shared = false;
  static_assert(!Epilogue::scaled, "x comes to LDS as it is");
  static const void *a(const Arguments &args) { return args.x; }
  static const void *b(const Arguments &args) { return args.w; }
  static __host__ __device__ int m(const Shape &s) {
    return s.batch * s.out_height * s.out_width;
  }
  static __host__ __device__ int n(const Shape &s) { return s.out_channels; }
  static __host__ __device__ int k(const Shape &s) { return s.in_channels; }

  // What the results of two channels need beside their sums: the biases.
  struct Biases {
    float at[2];
  };
  template <class T>
  static __device__ Biases beside(const Arguments &args, int channel) {
    return {Epilogue::bias_of(args, channel), Epilogue::bias_of(args, channel + 1)};
  }
  template <class T>
  static __device__ Pack<T, 2> results_of(const Arguments &args, const Shape &s, int pixel,
                                          int channel, const float *sums, const Biases &biases) {
    // Rows past the last are not stored; a residual is not read there.
    if (Epilogue::added && m(s) % warpgroup_rows != 0 && pixel >= m(s)) return {};
    return Epilogue::template apply_each<2>(sums, args, biases.at, pixel * n(s) + channel);
  }
};

template <class T, class Tiling, class Layer, class Shape, class Epilogue>
struct WarpgroupGemm : WarpgroupProducts<T, Tiling, WarpgroupForward<Shape, Epilogue>> {
  using WarpgroupProducts<T, Tiling, WarpgroupForward<Shape, Epilogue>>::WarpgroupProducts;
  static_assert(Layer::taps == 1 && Layer::stride_h == 1 && Layer::stride_w == 1, "all pixels");
};

}  // namespace dscore
