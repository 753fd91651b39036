// Input gradient of a pointwise convolution (gemm_universal/kernel.hpp): the output's gradients by
// the filters, whose rows are the summed channels. Results are the input's pixels, of which those
// that no output was made of are zero.
#pragma once

#include "gemm_universal/kernel.hpp"

namespace dscore {

// The output's pixels, by those of the input that they are made of.
template <class Layer, class Shape, bool Gathered>
struct OutputPixels {
  using Places = Pixels<Layer, Shape>;
  static __device__ int channels(const Shape &s) { return s.out_channels; }
  static __device__ int area(const Shape &s) { return s.out_height * s.out_width; }
  static __device__ int pixels(const Shape &s) { return Places::of_input(s); }
  static __device__ int pixel(const Shape &s, int pixel) {
    return Gathered ? Places::result(s, pixel) : pixel;
  }
};

// dx[pixel][c] = sum over o of gradient[pixel][o] * w[o][c], or dx[c][pixel] = the same sum.
template <class Tiling, class Layer, class Shape_>
struct PointwiseInputGradient : PlainRoles {
  using Shape = Shape_;
  using Arguments = InputGradientArguments;
  using Places = OutputPixels<Layer, Shape, Tiling::gathered>;
  static constexpr bool last = Tiling::last;
  using Images = ImagesOf<Shape, Places, last, false>;
  using Weights = Filters<Shape, false>;
  using A = std::conditional_t<last, Images, Weights>;
  using B = std::conditional_t<last, Weights, Images>;
  static constexpr bool along_a = last, along_b = false;
  static __device__ const void *a(const Arguments &args) { return last ? args.gradient : args.w; }
  static __device__ const void *b(const Arguments &args) { return last ? args.w : args.gradient; }
  static __host__ __device__ int pixels(const Shape &s) { return s.batch * s.height * s.width; }
  static __host__ __device__ int m(const Shape &s) { return last ? pixels(s) : s.in_channels; }
  static __host__ __device__ int n(const Shape &s) { return last ? s.in_channels : pixels(s); }
  static __host__ __device__ int k(const Shape &s) { return s.out_channels; }
  template <class T, int Width>
  static __device__ void store(const Arguments &args, const Shape &s, int, int row, int column,
                               const float *values, Nothing, Nothing, Nothing) {
    auto results = rounded<T, Width>(values);
    if constexpr (Tiling::gathered) {
      // Zero by an infinite filter is no number. Unless channels come last, the elements of a
      // vector are pixels, of each of which an output was made or not.
      DSCORE_UNROLL
      for (int i = 0; i < Width; i++)
        if (Places::pixel(s, last ? row : column + i) < 0) results.at[i] = static_cast<T>(0.0f);
    }
    const int at = result_at<last>(row, column, s.in_channels, s.in_channels, s.height * s.width);
    write_vector(static_cast<T *>(args.out) + at, results);
  }
};

template <class T, class Tiling, class Layer, class Shape, class>
struct GemmUniversalInputGradient
    : Product<T, Tiling, PointwiseInputGradient<Tiling, Layer, Shape>> {
  using Product<T, Tiling, PointwiseInputGradient<Tiling, Layer, Shape>>::Product;
};

}  // namespace dscore
