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
  // Elements that are read and that are written as one, where a thread's channels lie side by side.
  static constexpr int together = t::Images::last ? t::thread_c & -t::thread_c : 1;
  static constexpr int read_width = least(together, 16 / static_cast<int>(sizeof(T)));
  static constexpr int written_width = least(together, 16);
  static constexpr int alignment =
      greatest(greatest(read_width * static_cast<int>(sizeof(T)), written_width), 4);

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

  // Calls take(number, first channel) for those of the thread's vectors that are there.
  template <int Width, class Take>
  __device__ void each_vector(int first, Take take) const {
    DSCORE_UNROLL
    for (int i = 0; i < t::thread_c / Width; i++)
      if (first + i * Width < s.in_channels) take(i, first + i * Width);
  }
  // All is read before the first result is written: behind that a compiler reads nothing ahead.
  template <int Read, int Written>
  __device__ void quantise(const Arguments &args, int image, int first, int pixel) const {
    const auto place = [&](int channel) {
      return t::Images::at(image, channel, pixel, s.in_channels, s.height * s.width);
    };
    Pack<T, Read> given[t::thread_c / Read] = {};
    each_vector<Read>(first, [&](int i, int channel) {
      given[i] = read_vector<Read>(static_cast<const T *>(args.x) + place(channel));
    });
    const auto points = FloatPoints::of(*static_cast<const float *>(args.multiplier),
                                        *static_cast<const int32_t *>(args.zero_point));
    each_vector<Written>(first, [&](int i, int channel) {
      const auto value_of = [&](int j) {
        return static_cast<float>(given[(i * Written + j) / Read].at[(i * Written + j) % Read]);
      };
      write_vector(static_cast<int8_t *>(args.out) + place(channel),
                   points.bytes<Written>(value_of));
    });
  }

  __device__ void run(const Arguments &args) {
    const int area = s.height * s.width;
    int block = blockIdx.x;
    const int pixel = block % pixel_tiles(s) * threads + threadIdx.x;
    block /= pixel_tiles(s);
    const int first = block % channel_tiles(s) * t::thread_c, image = block / channel_tiles(s);
    if (pixel >= area) return;  // no rendezvous follows
    if (s.in_channels % written_width == 0)
      quantise<read_width, written_width>(args, image, first, pixel);
    else quantise<1, 1>(args, image, first, pixel);
  }
};

}  // namespace dscore
