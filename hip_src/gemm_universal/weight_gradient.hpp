// Weight gradient of a pointwise convolution (gemm_universal/kernel.hpp): sums over the pixels of
// all images, which are the rows of both operands. Blocks share the pixels of a tile of the result:
// `parts` of them are added by a kernel that follows.
#pragma once

#include "gemm_universal/kernel.hpp"
#include "split_k/sum.hpp"

namespace dscore {

// The output's pixels in their order.
template <class Layer, class Shape>
struct AllOutputPixels {
  static __device__ int channels(const Shape &s) { return s.out_channels; }
  static __device__ int area(const Shape &s) { return s.out_height * s.out_width; }
  static __device__ int pixels(const Shape &s) { return Pixels<Layer, Shape>::of_output(s); }
  static __device__ int pixel(const Shape &, int pixel) { return pixel; }
};

// dw[o][c] = sum over pixels of gradient[pixel][o] * x[pixel][c].
template <class Tiling, class Layer, class Shape_, class Result>
struct PointwiseWeightGradient : PlainRoles {
  using Shape = Shape_;
  static constexpr bool shared = Tiling::parts > 1, last = Tiling::last;
  using Arguments = std::conditional_t<shared, WorkspaceArguments, WeightGradientArguments>;
  using A = ImagesOf<Shape, AllOutputPixels<Layer, Shape>, last, true>;
  using B = ImagesOf<Shape, InputPixels<Layer, Shape, Tiling::gathered>, last, true>;
  static constexpr bool along_a = !last, along_b = !last, sums_pixels = true;
  static __device__ const void *a(const Arguments &args) { return args.gradient; }
  static __device__ const void *b(const Arguments &args) { return args.x; }
  static __host__ __device__ int m(const Shape &s) { return s.out_channels; }
  static __host__ __device__ int n(const Shape &s) { return s.in_channels; }
  static __host__ __device__ int k(const Shape &s) { return Pixels<Layer, Shape>::of_output(s); }
  template <class, int Width>
  static constexpr int alignment = Width * static_cast<int>(sizeof(Result));
  template <class, int Width>
  static __device__ void store(const Arguments &args, const Shape &s, int part, int row, int column,
                               const float *values, Nothing, Nothing, Nothing) {
    const int at = row * s.in_channels + column;
    if constexpr (shared) {
      Pack<float, Width> sums;
      DSCORE_UNROLL
      for (int i = 0; i < Width; i++) sums.at[i] = values[i];
      write_vector(static_cast<float *>(args.workspace) + part * m(s) * n(s) + at, sums);
    } else {
      write_vector(static_cast<Result *>(args.out) + at, rounded<Result, Width>(values));
    }
  }
};

// Of the kernel that adds the parts, by vectors of at most four.
template <class Tiling>
struct SumTiling {
  static constexpr int parts = Tiling::parts, wavefront = Tiling::wavefront;
  static constexpr int vector_w = least(Tiling::vector_out, 4);
};

template <class T, class Tiling, class Layer, class Shape, class Epilogue>
struct GemmUniversalWeightGradient
    : Product<T, Tiling,
              PointwiseWeightGradient<Tiling, Layer, Shape, typename Epilogue::Result>> {
  using Result = typename Epilogue::Result;
  using Base = Product<T, Tiling, PointwiseWeightGradient<Tiling, Layer, Shape, Result>>;
  using Base::Base;
  using Then =
      std::conditional_t<(Tiling::parts > 1), SplitKSum<Result, SumTiling<Tiling>, Shape>, void>;

  static long long workspace_bytes(const Shape &s) {
    const long long bytes = sizeof(float);
    return Tiling::parts > 1 ? bytes * Tiling::parts * s.out_channels * s.in_channels : 0;
  }
  __device__ void run(const typename Base::Arguments &args) {
    // Blocks of the sum of parts may come beforehand: they wait for this kernel's end.
    if constexpr (Tiling::parts > 1) admit_next_kernel();
    Base::run(args);
  }
};

}  // namespace dscore
