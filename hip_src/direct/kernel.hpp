// The direct definition, for convolutions that have no kernel of their own.
//
// Order of additions, as the reference backend has it: input channels, within these filter rows,
// within these filter columns, all ascending; then bias. A tap outside the image is 0 · w. Of int8
// it multiplies the distance of x from its zero point.
#pragma once

#include "support/common.hpp"

namespace dscore {

template <int Threads, int ThreadC, int Cluster, int Wavefront, int Layout>
struct DirectTiling {
  static constexpr int threads = Threads, thread_c = ThreadC, wavefront = Wavefront;
  static constexpr int cluster = Cluster, layout = Layout;
  using Images = dscore::Images<Layout>;
};

template <class T, class Tiling, class Layer, class Shape_, class Epilogue>
struct Direct : ConvKernel<T, Epilogue> {
  using Shape = Shape_;
  using t = Tiling;
  using L = Layer;
  using Arguments = typename Epilogue::Arguments;
  using Sum = typename Epilogue::Sum;
  static constexpr bool quantised = std::is_integral_v<Sum>;
  static constexpr int threads = t::threads, wavefront = t::wavefront;
  static constexpr int alignment = Epilogue::alignment, lds_bytes = 0, layout = t::layout;

  static __host__ __device__ int pixel_tiles(const Shape &s) {
    return ceil_div(s.out_height * s.out_width, threads);
  }
  static __host__ __device__ int channel_tiles(const Shape &s) {
    return ceil_div(s.out_channels / s.groups, t::thread_c);
  }
  // Pixel tile fastest, then channel tile, group, image.
  static int blocks(const Shape &s) {
    return pixel_tiles(s) * channel_tiles(s) * s.groups * s.batch;
  }

  const Shape &s;

  __device__ Direct(const Arguments &, const Shape &shape) : s(shape) {}

  __device__ void run(const Arguments &args) {
    using Given = typename Epilogue::Given;
    const Given *x = static_cast<const Given *>(args.x);
    const T *w = static_cast<const T *>(args.w);
    int block = blockIdx.x;
    const int pixel = block % pixel_tiles(s) * threads + threadIdx.x;
    block /= pixel_tiles(s);
    const int group_in = s.in_channels / s.groups, group_out = s.out_channels / s.groups;
    const int first = block % channel_tiles(s) * t::thread_c;
    block /= channel_tiles(s);
    const int group = block % s.groups, image = block / s.groups;
    if (pixel >= s.out_height * s.out_width) return;  // no rendezvous follows

    const int row = pixel / s.out_width * L::stride_h - s.pad_top;
    const int column = pixel % s.out_width * L::stride_w - s.pad_left;
    using Images = typename t::Images;
    const int pixel_step = Images::pixel_step(s.in_channels), area = s.height * s.width;
    const Given *plane = x + Images::of_group(image, group, s.groups, group_in, area);
    const T *filter = w + (group * group_out + first) * group_in * L::taps;
    Sum accumulators[t::thread_c] = {};
    [[maybe_unused]] Sum zero = 0;
    if constexpr (quantised) zero = Epilogue::zero_of(args);
    for (int c = 0; c < group_in; c++, plane += Images::channel_step(area), filter += L::taps)
      for (int f = 0; f < L::kernel_h; f++)
        for (int g = 0; g < L::kernel_w; g++) {
          const int i = row + f * L::dilation_h, j = column + g * L::dilation_w;
          const bool there = inside(i, s.height) && inside(j, s.width);
          Sum value = {};
          if (there) {
            const Given given = plane[(i * s.width + j) * pixel_step];
            if constexpr (Epilogue::of_floats)
              value = Epilogue::floats_of(args).byte(static_cast<float>(given));
            else if constexpr (Epilogue::scaled) value = scaled(given, args, image, c);
            else value = static_cast<Sum>(given);
            if constexpr (quantised) value -= zero;
          }
          DSCORE_UNROLL
          for (int k = 0; k < t::thread_c; k++)
            if (first + k < group_out)
              accumulators[k] += value * static_cast<Sum>(
                                     filter[k * group_in * L::taps + f * L::kernel_w + g]);
        }
    DSCORE_UNROLL
    for (int k = 0; k < t::thread_c; k++)
      if (first + k < group_out) {
        const int o = group * group_out + first + k;
        const int at = Images::at(image, o, pixel, s.out_channels, s.out_height * s.out_width);
        static_cast<typename Epilogue::Result *>(args.out)[at] =
            Epilogue::template apply<1>(accumulators + k, args, o, at).at[0];
      }
  }

  __device__ Sum scaled(T given, const Arguments &args, int image, int channel) const {
    const int at = image * s.in_channels + channel;
    if constexpr (quantised) {
      const auto scaling = Epilogue::scaling_of(args);
      return scaling.scaled(given, scaling.scales[at]);
    } else {
      return static_cast<float>(given) *
             static_cast<float>(static_cast<const T *>(args.scale)[at]);
    }
  }
};

}  // namespace dscore
