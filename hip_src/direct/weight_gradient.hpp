// The filter's gradient by the direct definition: a block sums one tap of a few output channels.
//
// Order of additions, as the reference backend has it: a thread's outputs, which lie `threads`
// apart, ascending through all images; then the lanes of a wavefront, of which each half is added
// to the other; then the wavefronts, ascending. A tap outside the image is left out.
#pragma once

#include "direct/kernel.hpp"
#include "support/vendor.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape_, class Epilogue>
struct DirectWeightGradient : KernelOn<T, WeightGradientArguments> {
  using Shape = Shape_;
  using t = Tiling;
  using L = Layer;
  using Result = typename Epilogue::Result;
  static constexpr int threads = t::threads, wavefront = t::wavefront;
  static constexpr int waves = threads / wavefront;
  static constexpr int alignment = greatest(int{sizeof(T)}, int{sizeof(Result)});
  static constexpr int lds_bytes = waves * t::thread_c * int{sizeof(float)};
  static constexpr int layout = t::layout;

  static __host__ __device__ int channel_tiles(const Shape &s) {
    return ceil_div(s.out_channels / s.groups, t::thread_c);
  }
  // Tap fastest, then input channel of the group, channel tile, group.
  static int blocks(const Shape &s) {
    return L::taps * (s.in_channels / s.groups) * channel_tiles(s) * s.groups;
  }

  const Shape &s;

  __device__ DirectWeightGradient(const WeightGradientArguments &, const Shape &shape)
      : s(shape) {}

  __device__ void run(const WeightGradientArguments &args) {
    int block = blockIdx.x;
    const int tap = block % L::taps;
    block /= L::taps;
    const int group_in = s.in_channels / s.groups, group_out = s.out_channels / s.groups;
    const int c = block % group_in;
    block /= group_in;
    const int first = block % channel_tiles(s) * t::thread_c, group = block / channel_tiles(s);
    float sums[t::thread_c] = {};
    accumulate(args, tap, group * group_in + c, group * group_out + first,
               least(t::thread_c, group_out - first), sums);
    reduce(sums);
    float *parts = block_lds<float, waves * t::thread_c>();
    const int lane = threadIdx.x % wavefront, wave = threadIdx.x / wavefront;
    DSCORE_UNROLL
    for (int k = 0; k < t::thread_c; k++)
      if (lane == 0) parts[wave * t::thread_c + k] = sums[k];
    __syncthreads();
    const int k = threadIdx.x;
    if (k >= t::thread_c || first + k >= group_out) return;
    float sum = parts[k];
    for (int other = 1; other < waves; other++) sum += parts[other * t::thread_c + k];
    const int filter = (group * group_out + first + k) * group_in + c;
    static_cast<Result *>(args.out)[filter * L::taps + tap] = static_cast<Result>(sum);
  }

  // The thread's part of the sums of `count` output channels.
  __device__ void accumulate(const WeightGradientArguments &args, int tap, int channel, int first,
                             int count, float (&sums)[t::thread_c]) const {
    using Images = typename t::Images;
    const int area = s.out_height * s.out_width;
    const int down = tap / L::kernel_w * L::dilation_h - s.pad_top;
    const int right = tap % L::kernel_w * L::dilation_w - s.pad_left;
    for (int at = threadIdx.x; at < s.batch * area; at += threads) {
      const int image = at / area, pixel = at % area;
      const int i = pixel / s.out_width * L::stride_h + down;
      const int j = pixel % s.out_width * L::stride_w + right;
      if (!inside(i, s.height) || !inside(j, s.width)) continue;
      const T *x = static_cast<const T *>(args.x) +
                   Images::at(image, channel, 0, s.in_channels, s.height * s.width);
      const T *gradient = static_cast<const T *>(args.gradient) +
                          Images::at(image, first, pixel, s.out_channels, area);
      const float value =
          static_cast<float>(x[(i * s.width + j) * Images::pixel_step(s.in_channels)]);
      DSCORE_UNROLL
      for (int k = 0; k < t::thread_c; k++)
        if (k < count) sums[k] += value * static_cast<float>(
                                   gradient[k * Images::channel_step(area)]);
    }
  }

  // Sums each wavefront to its first lane.
  static __device__ void reduce(float (&sums)[t::thread_c]) {
    DSCORE_UNROLL
    for (int by = wavefront / 2; by > 0; by /= 2)
      DSCORE_UNROLL
      for (int k = 0; k < t::thread_c; k++) sums[k] += DSCORE_SHFL_DOWN(sums[k], by, wavefront);
  }
};

}  // namespace dscore
