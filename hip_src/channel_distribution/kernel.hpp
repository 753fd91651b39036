// Pointwise convolution: dynamic tiling and channel distribution (Liu et al. 2024, §5.1).
//
// Order of additions, as the reference backend has it: lane l of a segment of group_c lanes sums
// channels l, l + group_c, …; then the segment is summed by offsets group_c/2 … 1; then bias.
#pragma once

#include "support/common.hpp"
#include "support/vendor.hpp"

namespace dscore {

// Rows: output rows of a block, gcd(output height, repeat_w).
template <int WaveW, int WaveC, int RepeatW, int RepeatC, int GroupC, int Rows, int Wavefront>
struct ChannelDistributionTiling {
  static constexpr int wave_w = WaveW, wave_c = WaveC, repeat_w = RepeatW, repeat_c = RepeatC;
  static constexpr int group_c = GroupC, rows = Rows, wavefront = Wavefront;
  static constexpr int wave_n = RepeatW * RepeatC, threads = wave_n * Wavefront;
  static constexpr int waves_per_row = RepeatW / Rows;
  static constexpr int columns = waves_per_row * WaveW, channels = RepeatC * WaveC;
  static constexpr int thread_c = WaveC * GroupC / Wavefront;
  static constexpr int pixels = RepeatW * WaveW;
  static constexpr int input_tile = pixels * GroupC, filter_tile = channels * GroupC;
  static_assert(RepeatW % Rows == 0, "a block's rows hold whole wavefronts");
  static_assert((GroupC & (GroupC - 1)) == 0 && GroupC <= Wavefront, "R4");
  static_assert(WaveC * GroupC % Wavefront == 0, "R5");
};

template <class T, class Tiling, class Layer, class Shape_, class Epilogue>
struct ChannelDistribution : ConvKernel<T, Epilogue> {
  using Shape = Shape_;
  using t = Tiling;
  using Arguments = typename Epilogue::Arguments;
  static constexpr int threads = t::threads, wavefront = t::wavefront;
  static constexpr int alignment = sizeof(T), G = t::group_c;
  static constexpr int buffer = t::input_tile + t::filter_tile;
  static constexpr int lds_bytes = 2 * buffer * static_cast<int>(sizeof(T));
  static constexpr int input_registers = ceil_div(t::input_tile, threads);
  static constexpr int filter_registers = ceil_div(t::filter_tile, threads);

  static __host__ __device__ int row_tiles(const Shape &s) {
    return ceil_div(s.out_height, t::rows);
  }
  static __host__ __device__ int column_tiles(const Shape &s) {
    return ceil_div(s.out_width, t::columns);
  }
  static __host__ __device__ int channel_tiles(const Shape &s) {
    return ceil_div(s.out_channels, t::channels);
  }
  // Column tile fastest, then row tile, channel tile, image.
  static int blocks(const Shape &s) {
    return column_tiles(s) * row_tiles(s) * channel_tiles(s) * s.batch;
  }

  const T *x, *w;
  const Shape &s;
  int thread, image, first_row, first_column, first_channel;
  T input_temp[input_registers], filter_temp[filter_registers];
  float accumulators[t::wave_w][t::thread_c];

  // Element e of the input tile is channel e / pixels of pixel e % pixels: neighbouring threads
  // load neighbouring columns. In LDS a pixel's channels lie together, so that the lanes of a
  // segment read consecutive words and no bank twice.
  __device__ void fetch(int group) {
    DSCORE_UNROLL
    for (int i = 0; i < input_registers; i++) {
      const int e = i * threads + thread, channel = group * G + e / t::pixels;
      const int wave = e % t::pixels / t::wave_w, column_in_wave = e % t::wave_w;
      const int column = first_column + wave % t::waves_per_row * t::wave_w + column_in_wave;
      const int row = (first_row + wave / t::waves_per_row) * Layer::stride_h - s.pad_top;
      const int in_column = column * Layer::stride_w - s.pad_left;
      const bool held = e < t::input_tile && channel < s.in_channels && column < s.out_width &&
                        inside(row, s.height) && inside(in_column, s.width);
      const int plane = image * s.in_channels + channel;
      input_temp[i] = held ? x[(plane * s.height + row) * s.width + in_column] : T(0);
    }
    DSCORE_UNROLL
    for (int i = 0; i < filter_registers; i++) {
      const int e = i * threads + thread;
      const int out = first_channel + e / G, channel = group * G + e % G;
      const bool held = e < t::filter_tile && out < s.out_channels && channel < s.in_channels;
      filter_temp[i] = held ? w[out * s.in_channels + channel] : T(0);
    }
  }

  __device__ void put(T *lds) const {
    DSCORE_UNROLL
    for (int i = 0; i < input_registers; i++) {
      const int e = i * threads + thread;
      if (e < t::input_tile) lds[e % t::pixels * G + e / t::pixels] = input_temp[i];
    }
    DSCORE_UNROLL
    for (int i = 0; i < filter_registers; i++) {
      const int e = i * threads + thread;
      if (e < t::filter_tile) lds[t::input_tile + e] = filter_temp[i];
    }
  }

  // One group of channels from LDS: wave_w + thread_c operands, wave_w · thread_c multiply-adds.
  __device__ void multiply(const T *lds) {
    const int lane = thread % wavefront, wave = thread / wavefront;
    const int w_part = wave % t::repeat_w, c_part = wave / t::repeat_w;
    const T *inputs = lds + w_part * t::wave_w * G + lane % G;
    const T *filters = lds + t::input_tile + c_part * t::wave_c * G + lane;
    float b[t::thread_c];
    DSCORE_UNROLL
    for (int j = 0; j < t::thread_c; j++) b[j] = static_cast<float>(filters[j * wavefront]);
    DSCORE_UNROLL
    for (int i = 0; i < t::wave_w; i++) {
      const float a = static_cast<float>(inputs[i * G]);
      DSCORE_UNROLL
      for (int j = 0; j < t::thread_c; j++) accumulators[i][j] += a * b[j];
    }
  }

  // All channel groups: one is multiplied from one buffer while the next is fetched and put into
  // the other. One barrier a group suffices: a buffer is written again only after the barrier
  // that follows its last reading.
  __device__ void accumulate(T *lds) {
    const int groups = ceil_div(s.in_channels, G);
    fetch(0);
    put(lds);
    __syncthreads();
    // Unrolled, for fixed sizes, it would keep the addresses of several groups in registers.
    DSCORE_ROLLED
    for (int group = 0; group + 1 < groups; group++) {
      fetch(group + 1);
      multiply(lds + group % 2 * buffer);
      put(lds + (group + 1) % 2 * buffer);
      __syncthreads();
    }
    multiply(lds + (groups - 1) % 2 * buffer);
  }

  // Sums each segment to its first lane, which stores.
  __device__ void finish(const Arguments &args) {
    const int lane = thread % wavefront, wave = thread / wavefront;
    const int w_part = wave % t::repeat_w, c_part = wave / t::repeat_w;
    const int row = first_row + w_part / t::waves_per_row;
    const int column = first_column + w_part % t::waves_per_row * t::wave_w;
    const int channel = first_channel + c_part * t::wave_c + lane / G;
    DSCORE_UNROLL
    for (int i = 0; i < t::wave_w; i++) {
      DSCORE_UNROLL
      for (int j = 0; j < t::thread_c; j++) {
        float sum = accumulators[i][j];
        DSCORE_UNROLL
        for (int by = G / 2; by > 0; by /= 2) sum += DSCORE_SHFL_DOWN(sum, by, G);
        const int o = channel + j * (wavefront / G);
        if (lane % G == 0 && o < s.out_channels && row < s.out_height &&
            column + i < s.out_width) {
          const int plane = image * s.out_channels + o;
          const int at = (plane * s.out_height + row) * s.out_width + column + i;
          static_cast<T *>(args.out)[at] =
              Epilogue::template apply<1>(&sum, args, o, at).at[0];
        }
      }
    }
  }

  __device__ ChannelDistribution(const Arguments &args, const Shape &shape)
      : x(static_cast<const T *>(args.x)), w(static_cast<const T *>(args.w)), s(shape),
        thread(threadIdx.x), accumulators{} {
    int block = blockIdx.x;
    first_column = block % column_tiles(s) * t::columns;
    block /= column_tiles(s);
    first_row = block % row_tiles(s) * t::rows;
    block /= row_tiles(s);
    first_channel = block % channel_tiles(s) * t::channels;
    image = block / channel_tiles(s);
  }

  __device__ void run(const Arguments &args) {
    T *lds = block_lds<T, 2 * buffer>();
    accumulate(lds);
    finish(args);
  }
};

}  // namespace dscore
