// Quantisation of images (docs/int8.md): a thread has a few channels of a pixel.
#pragma once

#include "direct/kernel.hpp"
#include "support/requantised.hpp"

namespace dscore {

struct QuantiseArguments {
  const void *x, *multiplier, *zero_point;
  void *out;
};

template <class T, class Tiling, class Layer, class Shape_, class Epilogue>
struct DirectQuantise : KernelOn<T, QuantiseArguments> {
  using Shape = Shape_;
  using t = Tiling;
  using Arguments = QuantiseArguments;
  static constexpr int threads = t::threads, wavefront = t::wavefront;
  static constexpr int lds_bytes = 0, layout = t::layout;
  // Of vectors, where a thread's channels lie side by side.
  static constexpr int width =
      t::Images::last ? least(t::thread_c & -t::thread_c, 16 / int{sizeof(T)}) : 1;
  static constexpr int alignment = greatest(width * static_cast<int>(sizeof(T)), 4);
  static_assert(t::thread_c % width == 0, "whole vectors");

  static __host__ __device__ int pixel_tiles(const Shape &s) {
    return ceil_div(s.height * s.width, threads);
  }
  static __host__ __device__ int channel_tiles(const Shape &s) {
    return ceil_div(s.in_channels, t::thread_c);
  }
  // Pixel tile fastest, then channel tile, image.
  static int blocks(const Shape &s) { return pixel_tiles(s) * channel_tiles(s) * s.batch; }

  const Shape &s;

  __device__ DirectQuantise(const Arguments &, const Shape &shape) : s(shape) {}

  template <int Width>
  __device__ void quantise(const Arguments &args, int at) const {
    const auto read = read_vector<Width>(static_cast<const T *>(args.x) + at);
    const float multiplier = *static_cast<const float *>(args.multiplier);
    const int32_t zero = *static_cast<const int32_t *>(args.zero_point);
    const auto low = static_cast<float>(-128 - zero), high = static_cast<float>(127 - zero);
    Pack<int8_t, Width> made;
    DSCORE_UNROLL
    for (int i = 0; i < Width; i++)
      made.at[i] = static_cast<int8_t>(
          nearest_within(static_cast<float>(read.at[i]) * multiplier, low, high) + zero);
    write_vector(static_cast<int8_t *>(args.out) + at, made);
  }

  __device__ void run(const Arguments &args) {
    const int area = s.height * s.width;
    int block = blockIdx.x;
    const int pixel = block % pixel_tiles(s) * threads + threadIdx.x;
    block /= pixel_tiles(s);
    const int first = block % channel_tiles(s) * t::thread_c, image = block / channel_tiles(s);
    if (pixel >= area) return;  // no rendezvous follows
    DSCORE_UNROLL
    for (int c = 0; c < t::thread_c; c += width) {
      const int at = t::Images::at(image, first + c, pixel, s.in_channels, area);
      if (s.in_channels % width == 0) {
        if (first + c < s.in_channels) quantise<width>(args, at);
      } else {
        DSCORE_UNROLL
        for (int i = 0; i < width; i++)
          if (first + c + i < s.in_channels) quantise<1>(args, at + i);
      }
    }
  }
};

}  // namespace dscore
