// The input's gradient by the direct definition: a thread gathers what its element of x gave.
//
// Order of additions, as the reference backend has it: output channels of the group, within these
// filter rows, within these filter columns, all ascending. A tap that no output has is left out.
#pragma once

#include "direct/kernel.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape_, class Epilogue>
struct DirectInputGradient : KernelOn<T, InputGradientArguments> {
  using Shape = Shape_;
  using t = Tiling;
  using L = Layer;
  static constexpr int threads = t::threads, wavefront = t::wavefront;
  static constexpr int alignment = sizeof(T), lds_bytes = 0, layout = t::layout;

  static __host__ __device__ int pixel_tiles(const Shape &s) {
    return ceil_div(s.height * s.width, threads);
  }
  static __host__ __device__ int channel_tiles(const Shape &s) {
    return ceil_div(s.in_channels / s.groups, t::thread_c);
  }
  // Pixel tile fastest, then channel tile, group, image.
  static int blocks(const Shape &s) {
    return pixel_tiles(s) * channel_tiles(s) * s.groups * s.batch;
  }

  const Shape &s;

  __device__ DirectInputGradient(const InputGradientArguments &, const Shape &shape) : s(shape) {}

  // The output whose tap lies `distance` behind it, or -1.
  static __device__ int output_of(int distance, int stride, int outputs) {
    const int output = distance / stride;
    return distance >= 0 && distance % stride == 0 && output < outputs ? output : -1;
  }

  __device__ void run(const InputGradientArguments &args) {
    const T *gradient = static_cast<const T *>(args.gradient), *w = static_cast<const T *>(args.w);
    int block = blockIdx.x;
    const int pixel = block % pixel_tiles(s) * threads + threadIdx.x;
    block /= pixel_tiles(s);
    const int group_in = s.in_channels / s.groups, group_out = s.out_channels / s.groups;
    const int first = block % channel_tiles(s) * t::thread_c;
    block /= channel_tiles(s);
    const int group = block % s.groups, image = block / s.groups;
    if (pixel >= s.height * s.width) return;  // no rendezvous follows

    const int row = pixel / s.width + s.pad_top, column = pixel % s.width + s.pad_left;
    using Images = typename t::Images;
    const int area = s.out_height * s.out_width, pixel_step = Images::pixel_step(s.out_channels);
    const T *plane = gradient + Images::of_group(image, group, s.groups, group_out, area);
    const T *filter = w + (group * group_out * group_in + first) * L::taps;
    float accumulators[t::thread_c] = {};
    for (int o = 0; o < group_out;
         o++, plane += Images::channel_step(area), filter += group_in * L::taps)
      for (int f = 0; f < L::kernel_h; f++)
        for (int g = 0; g < L::kernel_w; g++) {
          const int r = output_of(row - f * L::dilation_h, L::stride_h, s.out_height);
          const int c = output_of(column - g * L::dilation_w, L::stride_w, s.out_width);
          if (r < 0 || c < 0) continue;
          const float value = static_cast<float>(plane[(r * s.out_width + c) * pixel_step]);
          DSCORE_UNROLL
          for (int k = 0; k < t::thread_c; k++)
            if (first + k < group_in)
              accumulators[k] +=
                  value * static_cast<float>(filter[k * L::taps + f * L::kernel_w + g]);
        }
    DSCORE_UNROLL
    for (int k = 0; k < t::thread_c; k++)
      if (first + k < group_in) {
        const int channel = group * group_in + first + k;
        const int at = Images::at(image, channel, pixel, s.in_channels, s.height * s.width);
        static_cast<T *>(args.out)[at] = static_cast<T>(accumulators[k]);
      }
  }
};

}  // namespace dscore
