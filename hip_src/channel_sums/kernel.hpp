// Weight gradient of depthwise layers on images whose channels lie side by side (NHWC): sums over
// all images and outputs, for each tap of a filter.
//
// A lane takes a vector of channels and keeps the sums of its taps in registers. It walks over rows
// of x, each of which it reads once for all filter rows; the rows of the gradient over it are in
// registers, too. Blocks take slices of the images' tiles.
// Order of additions, as the reference backend has it: of a thread tiles, within these rows of x,
// within these its columns of the gradient, all ascending; then the threads of a channel,
// ascending; then slices (tap_sums/parts.hpp). What lies outside x is 0 · gradient.
#pragma once

#include "channel_vectors/tile.hpp"
#include "tap_sums/parts.hpp"

namespace dscore {

// CopyX, CopyG: elements of x and of the gradient that come to LDS as one; they depend on the
// image, so that a kernel for any sizes has them as arguments.
template <int Vector, int LanesC, int ThreadH, int ThreadW, int LanesH, int LanesW, int Slices,
          int Stages, bool Ahead, int Multiplier, int CopyX, int CopyG, int Wavefront>
struct ChannelSumsTiling {
  static constexpr int vector = Vector, lanes_c = LanesC, thread_h = ThreadH, thread_w = ThreadW;
  static constexpr int lanes_h = LanesH, lanes_w = LanesW, slices = Slices, stages = Stages;
  static constexpr int multiplier = Multiplier, copy_x = CopyX, copy_g = CopyG;
  static constexpr int wavefront = Wavefront;
  static constexpr bool ahead = Ahead;
  static constexpr int channels = Vector * LanesC, sharers = LanesW * LanesH;
  static constexpr int used_threads = LanesC * sharers;
  static constexpr int threads = ceil_div(used_threads, Wavefront) * Wavefront;
};

// A filter's sums of several slices go to a workspace, slice by slice.
template <class T, class t>
using ChannelSumsKernel =
    KernelOn<T, std::conditional_t<(t::slices > 1), WorkspaceArguments, WeightGradientArguments>>;

template <class T, class Tiling, class Layer, class Shape_, class Epilogue>
struct ChannelSums : ChannelSumsKernel<T, Tiling> {
  using Shape = Shape_;
  using t = Tiling;
  using L = Layer;
  using Arguments = typename ChannelSumsKernel<T, t>::Arguments;
  using Rows = ForwardAxis<L::kernel_h, L::stride_h, L::dilation_h>;
  using Columns = ForwardAxis<L::kernel_w, L::stride_w, L::dilation_w>;
  using Then = std::conditional_t<(t::slices > 1), TapSumsParts<T, t, L, Shape, true>, void>;
  static constexpr int layout = DSCORE_NHWC, threads = t::threads, wavefront = t::wavefront;
  static constexpr int block_h = t::lanes_h * t::thread_h, block_w = t::lanes_w * t::thread_w;
  static constexpr int walked_channels = channels_under(t::channels, t::multiplier);
  static constexpr int tile_w = Columns::under(block_w);
  static constexpr int held = Columns::under(t::thread_w), rows = Rows::under(t::thread_h);
  static constexpr int live_rows = Rows::live(t::thread_h);
  using TileX = ChannelTile<T, t::lanes_h, Rows::step(t::thread_h), rows, 1, tile_w,
                            walked_channels, t::copy_x, threads>;
  using TileG = ChannelTile<T, 1, block_h, block_h, 1, block_w, t::channels, t::copy_g, threads>;
  static constexpr int whole = 16 / static_cast<int>(sizeof(T));
  // A stage of LDS has a tile of x and, behind it, one of the gradient.
  static constexpr int gradient_at = ceil_div(TileX::elements, whole) * whole;
  static constexpr int stage_elements = gradient_at + ceil_div(TileG::elements, whole) * whole;
  // The threads' sums of one filter row, at the end.
  static constexpr int parts_bytes =
      t::sharers > 1 ? t::sharers * L::kernel_w * t::channels * int{sizeof(float)} : 0;
  static constexpr int lds_bytes =
      ceil_div(greatest(t::stages * stage_elements * int{sizeof(T)}, parts_bytes), 16) * 16;
  static constexpr int alignment = greatest(t::copy_x, t::copy_g) * int{sizeof(T)};

  static __host__ __device__ int channel_tiles(const Shape &s) {
    return ceil_div(s.out_channels, t::channels);
  }
  static __host__ __device__ int column_tiles(const Shape &s) {
    return ceil_div(s.out_width, block_w);
  }
  static __host__ __device__ int row_tiles(const Shape &s) {
    return ceil_div(s.out_height, block_h);
  }
  // Tiles of all images, one of which a block takes at a time.
  static __host__ __device__ int units(const Shape &s) {
    return s.batch * row_tiles(s) * column_tiles(s);
  }
  // Channel tile fastest, then slice.
  static int blocks(const Shape &s) { return channel_tiles(s) * t::slices; }
  static long long workspace_bytes(const Shape &s) {
    return t::slices > 1 ? 1ll * t::slices * s.out_channels * L::taps * sizeof(float) : 0;
  }
  static constexpr __host__ __device__ bool under_tap(int offset) {
    for (int c = 0; c < t::thread_w; c++)
      for (int g = 0; g < L::kernel_w; g++)
        if (Columns::position(c, g) == offset) return true;
    return false;
  }

  const Shape &s;
  const T *x, *gradient;
  T *lds;
  int thread, lane_w, lane_h, first_channel, channel, slice, unit_end;
  bool live;
  float sums[L::taps][t::vector], row[held][t::vector];
  float gradients[live_rows][t::thread_w][t::vector];

  __device__ ChannelSums(const Arguments &args, const Shape &shape)
      : s(shape), x(static_cast<const T *>(args.x)),
        gradient(static_cast<const T *>(args.gradient)), thread(threadIdx.x), sums{} {
    lane_w = thread / t::lanes_c % t::lanes_w;
    lane_h = thread / (t::lanes_c * t::lanes_w);
    first_channel = static_cast<int>(blockIdx.x) % channel_tiles(s) * t::channels;
    slice = static_cast<int>(blockIdx.x) / channel_tiles(s);
    channel = first_channel + thread % t::lanes_c * t::vector;
    unit_end = least((slice + 1) * ceil_div(units(s), t::slices), units(s));
    live = thread < t::used_threads && channel < s.out_channels;
    lds = block_lds<T, lds_bytes / int{sizeof(T)}>();
    if constexpr (t::ahead)
      if (first_unit() < unit_end) {
        tile_x(first_unit()).prefetch(thread);
        tile_g(first_unit()).prefetch(thread);
      }
  }
  __device__ int first_unit() const { return slice * ceil_div(units(s), t::slices); }

  // Where a unit begins: its image, and the first row and column of the gradient.
  struct Place {
    int image, row, column;
  };
  __device__ Place place(int unit) const {
    const int column = unit % column_tiles(s) * block_w, above = unit / column_tiles(s);
    return {above / row_tiles(s), above % row_tiles(s) * block_h, column};
  }
  __device__ TileX tile_x(int unit) const {
    const Place p = place(unit);
    const int channels = s.out_channels / t::multiplier;
    return {x + p.image * (s.height * s.width * channels), s.height, s.width, channels,
            Rows::step(p.row) - s.pad_top, Columns::step(p.column) - s.pad_left,
            first_channel / t::multiplier};
  }
  __device__ TileG tile_g(int unit) const {
    const Place p = place(unit);
    return {gradient + p.image * (s.out_height * s.out_width * s.out_channels), s.out_height,
            s.out_width, s.out_channels, p.row, p.column, first_channel};
  }
  // Starts the load of a unit to a stage; of none past the last.
  __device__ void start_load(int stage, int unit) const {
    if (unit < unit_end) {
      T *const to = lds + stage * stage_elements;
      tile_x(unit).start_load(to, 0, thread);
      tile_g(unit).start_load(to + gradient_at, 0, thread);
    }
    commit_copies();
  }

  __device__ void read_row(const T *from, int i) {
    const T *const pixel = from + ((lane_h * Rows::step(t::thread_h) + i) * tile_w +
                                   lane_w * Columns::step(t::thread_w)) * walked_channels;
    DSCORE_UNROLL
    for (int offset = 0; offset < held; offset++)
      if (under_tap(offset))
        read_channels<t::vector, t::multiplier>(row[offset], pixel + offset * walked_channels,
                                                channel, first_channel / t::multiplier);
  }
  __device__ void read_gradient(const T *from, int r) {
    const T *const pixel =
        from + ((lane_h * t::thread_h + r) * block_w + lane_w * t::thread_w) * t::channels;
    DSCORE_UNROLL
    for (int c = 0; c < t::thread_w; c++)
      read_channels<t::vector, 1>(gradients[r % live_rows][c], pixel + c * t::channels, channel,
                                  first_channel);
  }

  // Every row of x once, with all rows of the gradient that it lies under. A row or column of the
  // gradient that does not exist is left out, as x may be infinite there.
  __device__ void walk(const T *from, int unit) {
    const Place p = place(unit);
    const int down = s.out_height - p.row - lane_h * t::thread_h;
    const int right = s.out_width - p.column - lane_w * t::thread_w;
    DSCORE_UNROLL
    for (int i = 0; i < rows; i++) {
      if (i % L::stride_h == 0 && i / L::stride_h < t::thread_h)
        read_gradient(from + gradient_at, i / L::stride_h);
      read_row(from, i);
      settle_reads();
      DSCORE_UNROLL
      for (int f = 0; f < L::kernel_h; f++)
        if (const int r = Rows::written(i, f); r >= 0 && r < t::thread_h)
          if (s.out_height % block_h == 0 || r < down) accumulate(f, r, right);
      DSCORE_UNROLL
      for (int tap = 0; tap < L::taps; tap++)
        DSCORE_UNROLL
        for (int v = 0; v < t::vector; v++) settle(sums[tap][v]);
    }
  }
  __device__ void accumulate(int f, int r, int right) {
    DSCORE_UNROLL
    for (int c = 0; c < t::thread_w; c++)
      if (s.out_width % block_w == 0 || c < right) {
        DSCORE_UNROLL
        for (int g = 0; g < L::kernel_w; g++)
          DSCORE_UNROLL
          for (int v = 0; v < t::vector; v++)
            sums[f * L::kernel_w + g][v] +=
                row[Columns::position(c, g)][v] * gradients[r % live_rows][c][v];
      }
  }

  // The sum of a tap of a channel, to its place.
  __device__ void store(const Arguments &args, int of_channel, int tap, float sum) const {
    if (of_channel >= s.out_channels) return;
    if constexpr (t::slices > 1)  // neighbours write side by side
      static_cast<float *>(args.workspace)[(slice * L::taps + tap) * s.out_channels +
                                           of_channel] = sum;
    else
      static_cast<T *>(args.out)[of_channel * L::taps + tap] = static_cast<T>(sum);
  }

  // Adds the sums of the threads of each channel in their order, through LDS, by filter rows.
  __device__ void reduce(const Arguments &args) {
    if constexpr (t::sharers == 1) {
      DSCORE_UNROLL
      for (int tap = 0; tap < L::taps; tap++)
        DSCORE_UNROLL
        for (int v = 0; v < t::vector; v++)
          if (live) store(args, channel + v, tap, sums[tap][v]);
      return;
    }
    constexpr int outputs = L::kernel_w * t::channels;
    float *const parts = reinterpret_cast<float *>(lds);
    float *const own = parts + thread / t::lanes_c * outputs + (channel - first_channel);
    DSCORE_UNROLL
    for (int f = 0; f < L::kernel_h; f++) {
      DSCORE_UNROLL
      for (int g = 0; g < L::kernel_w; g++)
        DSCORE_UNROLL
        for (int v = 0; v < t::vector; v++)
          if (thread < t::used_threads)
            own[g * t::channels + v] = sums[f * L::kernel_w + g][v];
      __syncthreads();
      DSCORE_ROLLED
      for (int at = thread; at < outputs; at += threads) {
        float sum = parts[at];
        DSCORE_ROLLED
        for (int sharer = 1; sharer < t::sharers; sharer++) sum += parts[sharer * outputs + at];
        store(args, first_channel + at % t::channels, f * L::kernel_w + at / t::channels, sum);
      }
      __syncthreads();
    }
  }

  __device__ void run(const Arguments &args) {
    if constexpr (t::ahead) admit_next_kernel();
    const int begin = first_unit();
    DSCORE_UNROLL
    for (int stage = 0; stage < t::stages; stage++) start_load(stage, begin + stage);
    DSCORE_ROLLED
    for (int unit = begin; unit < unit_end; unit++) {
      const int stage = (unit - begin) % t::stages;
      wait_copies<t::stages - 1>();
      __syncthreads();
      if (live) walk(lds + stage * stage_elements, unit);
      __syncthreads();
      start_load(stage, unit + t::stages);
    }
    wait_copies<0>();
    reduce(args);
  }
};

}  // namespace dscore
