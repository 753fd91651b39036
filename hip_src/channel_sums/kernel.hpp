// Weight gradient of depthwise layers on images whose channels lie side by side (NHWC): sums over
// all images and outputs, for each tap of a filter.
// A lane takes a vector of channels and keeps the sums of its taps in registers. It walks over rows
// of x, each of which it reads once for all filter rows; the rows of the gradient over it are in
// registers, too. Blocks take shares of the images' tiles, whose rows come in bands, as those of
// channel_vectors do.
// Order of additions, as the reference backend has it: of a thread tiles, within these rows of x,
// within these its columns of the gradient, all ascending; then the threads of a channel,
// ascending; then the blocks of a cluster, ascending; then slices (tap_sums/parts.hpp). What lies
// outside x is 0 · gradient.
#pragma once

#include "channel_vectors/tile.hpp"
#include "support/joined_sums.hpp"
#include "tap_sums/parts.hpp"

namespace dscore {

// CopyX, CopyG: elements of x and of the gradient that come to LDS as one; they depend on the
// image, so that a kernel for any sizes has them as arguments.
template <int Vector, int LanesC, int ThreadH, int ThreadW, int LanesH, int LanesW, int Slices,
          int Stages, int Bands, int Cluster, bool Ahead, int Multiplier, int CopyX, int CopyG,
          int Wavefront>
struct ChannelSumsTiling {
  static constexpr int vector = Vector, lanes_c = LanesC, thread_h = ThreadH, thread_w = ThreadW;
  static constexpr int lanes_h = LanesH, lanes_w = LanesW, slices = Slices, stages = Stages;
  static constexpr int multiplier = Multiplier, copy_x = CopyX, copy_g = CopyG;
  static constexpr int wavefront = Wavefront, bands = Bands, cluster = Cluster;
  static constexpr int shares = Slices * Cluster;  // blocks that take the tiles of one channel tile
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
  using Parts = TapSumsParts<T, t, L, Shape, t::slices, true>;
  using Then = std::conditional_t<(t::slices > 1), Parts, void>;
  static constexpr int layout = DSCORE_NHWC, threads = t::threads, wavefront = t::wavefront;
  static constexpr int cluster = t::cluster;
  static constexpr int block_h = t::lanes_h * t::thread_h, block_w = t::lanes_w * t::thread_w;
  static constexpr int walked_channels = channels_under(t::channels, t::multiplier);
  static constexpr int tile_w = Columns::under(block_w);
  static constexpr int held = Columns::under(t::thread_w), rows = Rows::under(t::thread_h);
  static constexpr int live_rows = Rows::live(t::thread_h);
  static constexpr int band_rows = ceil_div(rows, t::bands);  // of x
  using TileX = ChannelTile<T, t::lanes_h, Rows::step(t::thread_h), rows, t::bands, tile_w,
                            walked_channels, t::copy_x, threads>;
  // Rows of the gradient come no later than the first row of x that they meet.
  using TileG = ChannelTile<T, t::lanes_h, t::thread_h, t::thread_h, t::bands, block_w,
                            t::channels, t::copy_g, threads, t::channels,
                            ceil_div(band_rows, L::stride_h)>;
  static constexpr int whole = 16 / static_cast<int>(sizeof(T));
  // A stage has a tile of x and, behind it, one of the gradient.
  static constexpr int gradient_at = ceil_div(TileX::elements, whole) * whole;
  static constexpr int stage_elements = gradient_at + ceil_div(TileG::elements, whole) * whole;
  static constexpr int stages_bytes = t::stages * stage_elements * int{sizeof(T)};
  // At the end LDS has the threads' sums of some filter rows and, in a cluster, those of the block.
  static constexpr int of_row = L::kernel_w * t::channels;
  static constexpr int row_bytes = t::sharers * of_row * int{sizeof(float)};
  static constexpr int block_bytes =
      t::cluster > 1 ? L::kernel_h * of_row * int{sizeof(float)} : 0;
  static constexpr int rows_at_once =
      least(greatest((stages_bytes - block_bytes) / row_bytes, 1), L::kernel_h);
  static constexpr int parts_bytes = t::sharers > 1 ? rows_at_once * row_bytes : 0;
  static constexpr int lds_bytes =
      ceil_div(greatest(stages_bytes, parts_bytes + block_bytes), 16) * 16;
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
  // Block of the cluster fastest, then channel tile, then slice.
  static int blocks(const Shape &s) { return channel_tiles(s) * t::shares; }
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
  int thread, lane_w, lane_h, first_channel, channel, unit_end;
  bool live;
  float sums[L::taps][t::vector], row[held][t::vector];
  float gradients[live_rows][t::thread_w][t::vector];

  __device__ ChannelSums(const Arguments &args, const Shape &shape)
      : s(shape), x(static_cast<const T *>(args.x)),
        gradient(static_cast<const T *>(args.gradient)), thread(threadIdx.x), sums{} {
    lane_w = thread / t::lanes_c % t::lanes_w;
    lane_h = thread / (t::lanes_c * t::lanes_w);
    first_channel = group() % channel_tiles(s) * t::channels;
    channel = first_channel + thread % t::lanes_c * t::vector;
    unit_end = least(first_unit() + ceil_div(units(s), t::shares), units(s));
    live = thread < t::used_threads && channel < s.out_channels;
    lds = block_lds<T, lds_bytes / int{sizeof(T)}>();
    if constexpr (t::ahead)
      if (first_unit() < unit_end) {
        tile_x(first_unit()).prefetch(thread);
        tile_g(first_unit()).prefetch(thread);
      }
  }
  static __device__ int group() { return static_cast<int>(blockIdx.x) / t::cluster; }
  static __device__ int rank() { return static_cast<int>(blockIdx.x) % t::cluster; }
  __device__ int slice() const { return group() / channel_tiles(s); }
  __device__ int first_unit() const {
    return (slice() * t::cluster + rank()) * ceil_div(units(s), t::shares);
  }

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
  // Starts the load of a unit to a stage, band by band; of none past the last.
  __device__ void start_load(int stage, int unit) const {
    T *const to = lds + stage * stage_elements;
    DSCORE_UNROLL
    for (int band = 0; band < t::bands; band++) {
      if (unit < unit_end) {
        tile_x(unit).start_load(to, band, thread);
        tile_g(unit).start_load(to + gradient_at, band, thread);
      }
      commit_copies();
    }
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

  // A band's rows of x once, with all rows of the gradient that they lie under. A row or column of
  // the gradient that does not exist is left out, as x may be infinite there.
  __device__ void walk(const T *from, int unit, int band) {
    const Place p = place(unit);
    const int down = s.out_height - p.row - lane_h * t::thread_h;
    const int right = s.out_width - p.column - lane_w * t::thread_w;
    DSCORE_UNROLL
    for (int i = band * band_rows; i < least((band + 1) * band_rows, rows); i++) {
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

  // Sum number `at` of the block, of a tap of a channel, to its place.
  __device__ void store(const Arguments &args, int at, float sum) const {
    const int of_channel = first_channel + at % t::channels, tap = at / t::channels;
    if (of_channel >= s.out_channels) return;
    if constexpr (t::slices > 1)  // neighbours write side by side
      static_cast<float *>(args.workspace)[(slice() * L::taps + tap) * s.out_channels +
                                           of_channel] = sum;
    else
      static_cast<T *>(args.out)[of_channel * L::taps + tap] = static_cast<T>(sum);
  }

  // Adds the threads' sums in their order, through LDS, some rows at a time, for `finish`.
  template <class Finish>
  __device__ void reduce(const Finish &finish) {
    const int lane = channel - first_channel;
    if constexpr (t::sharers == 1) {
      DSCORE_UNROLL
      for (int i = 0, v = 0; i < L::taps * t::vector; i++, v = i % t::vector)
        if (live) finish(i / t::vector * t::channels + lane + v, sums[i / t::vector][v]);
      return;
    }
    constexpr int outputs = rows_at_once * of_row;
    float *const parts = reinterpret_cast<float *>(lds);
    float *const own = parts + thread / t::lanes_c * outputs + lane;
    DSCORE_UNROLL
    for (int f = 0; f < L::kernel_h; f++) {
      const int row = f % rows_at_once;
      if (f > 0 && row == 0) __syncthreads();
      DSCORE_UNROLL
      for (int g = 0; g < L::kernel_w; g++)
        DSCORE_UNROLL
        for (int v = 0; v < t::vector; v++)
          if (thread < t::used_threads)
            own[row * of_row + g * t::channels + v] = sums[f * L::kernel_w + g][v];
      if (row < rows_at_once - 1 && f < L::kernel_h - 1) continue;
      __syncthreads();
      DSCORE_ROLLED
      for (int at = thread; at < (row + 1) * of_row; at += threads) {
        float sum = parts[at];
        DSCORE_UNROLL_READS
        for (int sharer = 1; sharer < t::sharers; sharer++) sum += parts[sharer * outputs + at];
        finish((f - row) * of_row + at, sum);
      }
    }
  }

  __device__ void run(const Arguments &args) {
    // Blocks of the sum of slices may come beforehand: they wait for this kernel's end.
    if constexpr (t::ahead || t::slices > 1) admit_next_kernel();
    const int begin = first_unit();
    DSCORE_UNROLL
    for (int stage = 0; stage < t::stages; stage++) start_load(stage, begin + stage);
    DSCORE_ROLLED
    for (int unit = begin; unit < unit_end; unit++) {
      const int stage = (unit - begin) % t::stages;
      DSCORE_UNROLL
      for (int band = 0; band < t::bands; band++) {
        wait_copies_but<t::stages * t::bands - 1>(t::stages * t::bands - 1 - band);
        __syncthreads();
        if (live) walk(lds + stage * stage_elements, unit, band);
      }
      __syncthreads();
      start_load(stage, unit + t::stages);
    }
    wait_copies<0>();
    if constexpr (t::cluster == 1) {
      reduce([&](int at, float sum) { store(args, at, sum); });
    } else {
      float *const of_block = reinterpret_cast<float *>(lds) + parts_bytes / int{sizeof(float)};
      reduce([&](int at, float sum) { of_block[at] = sum; });
      join_shares<t::cluster, threads>(of_block, L::kernel_h * of_row, rank(), thread,
                                       [&](int at, float sum) { store(args, at, sum); });
    }
  }
};

}  // namespace dscore
