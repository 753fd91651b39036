// Of channel sums: the tiling and its block, which takes shares of the images' tiles: how these
// come to its LDS, how the sums of its threads are added there, and where the block's go.
#pragma once

#include "channel_vectors/tile.hpp"
#include "support/joined_sums.hpp"
#include "tap_sums/parts.hpp"

namespace dscore {

// CopyX, CopyG: elements of x and of the gradient that come to LDS as one; they depend on the
// image, so that a kernel for any sizes has them as arguments.
template <int Vector, int LanesC, int ThreadH, int ThreadW, int LanesH, int LanesW, int Slices,
          int Stages, int Bands, int Cluster, bool Ahead, bool Diagonal, int Multiplier, int CopyX,
          int CopyG, int Wavefront>
struct ChannelSumsTiling {
  static constexpr int vector = Vector, lanes_c = LanesC, thread_h = ThreadH, thread_w = ThreadW;
  static constexpr int lanes_h = LanesH, lanes_w = LanesW, slices = Slices, stages = Stages;
  static constexpr int multiplier = Multiplier, copy_x = CopyX, copy_g = CopyG;
  static constexpr int wavefront = Wavefront, bands = Bands, cluster = Cluster;
  static constexpr int shares = Slices * Cluster;  // blocks that take the tiles of one channel tile
  static constexpr bool ahead = Ahead, diagonal = Diagonal;
  static constexpr int channels = Vector * LanesC, sharers = LanesW * LanesH;
  // On matrix units a lane's place is a wavefront's.
  static constexpr int used_threads = LanesC * sharers * (Diagonal ? Wavefront : 1);
  static constexpr int threads = ceil_div(used_threads, Wavefront) * Wavefront;
  // Elements of LDS from a pixel to the next, as those of channel_vectors: of the gradient, of x.
  static constexpr int apart = Diagonal && channels / 8 % 2 == 0 ? 8 : 0;
  static constexpr int pitch = channels + apart;
  static constexpr int pitch_x = channels_under(channels, Multiplier) + apart;
};

// A filter's sums of several slices go to a workspace, slice by slice.
template <class T, class t>
using ChannelSumsKernel =
    KernelOn<T, std::conditional_t<(t::slices > 1), WorkspaceArguments, WeightGradientArguments>>;

// Result: the type of the filter's gradient.
template <class T, class Tiling, class Layer, class Shape_, class Result>
struct ChannelSumsBlock : ChannelSumsKernel<T, Tiling> {
  using Shape = Shape_;
  using t = Tiling;
  using L = Layer;
  using Arguments = typename ChannelSumsKernel<T, t>::Arguments;
  using Rows = ForwardAxis<L::kernel_h, L::stride_h, L::dilation_h>;
  using Columns = ForwardAxis<L::kernel_w, L::stride_w, L::dilation_w>;
  using Parts = TapSumsParts<Result, t, L, Shape, t::slices, true>;
  using Then = std::conditional_t<(t::slices > 1), Parts, void>;
  static constexpr int layout = DSCORE_NHWC, threads = t::threads, wavefront = t::wavefront;
  static constexpr int cluster = t::cluster;
  static constexpr int block_h = t::lanes_h * t::thread_h, block_w = t::lanes_w * t::thread_w;
  static constexpr int walked_channels = channels_under(t::channels, t::multiplier);
  static constexpr int tile_w = Columns::under(block_w);
  static constexpr int rows = Rows::under(t::thread_h);
  static constexpr int band_rows = ceil_div(rows, t::bands);  // of x
  using TileX = ChannelTile<T, t::lanes_h, Rows::step(t::thread_h), rows, t::bands, tile_w,
                            walked_channels, t::copy_x, threads, t::pitch_x>;
  // Rows of the gradient come no later than the first row of x that they meet.
  using TileG = ChannelTile<T, t::lanes_h, t::thread_h, t::thread_h, t::bands, block_w,
                            t::channels, t::copy_g, threads, t::pitch,
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
  static constexpr int alignment =
      greatest(greatest(t::copy_x, t::copy_g) * int{sizeof(T)}, int{sizeof(Result)});

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
  const Shape &s;
  const T *x, *gradient;
  T *lds;
  int thread, place_c, lane_w, lane_h, first_channel, channel, unit_end;
  bool live;

  __device__ ChannelSumsBlock(const Arguments &args, const Shape &shape)
      : s(shape), x(static_cast<const T *>(args.x)),
        gradient(static_cast<const T *>(args.gradient)), thread(threadIdx.x) {
    const int place = t::diagonal ? thread / t::wavefront : thread;
    place_c = place % t::lanes_c;
    lane_w = place / t::lanes_c % t::lanes_w;
    lane_h = place / (t::lanes_c * t::lanes_w);
    first_channel = group() % channel_tiles(s) * t::channels;
    channel = first_channel + place_c * t::vector;
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
  __device__ Place place_of(int unit) const {
    const int column = unit % column_tiles(s) * block_w, above = unit / column_tiles(s);
    return {above / row_tiles(s), above % row_tiles(s) * block_h, column};
  }
  __device__ TileX tile_x(int unit) const {
    const Place p = place_of(unit);
    const int channels = s.out_channels / t::multiplier;
    return {x + p.image * (s.height * s.width * channels), s.height, s.width, channels,
            Rows::step(p.row) - s.pad_top, Columns::step(p.column) - s.pad_left,
            first_channel / t::multiplier};
  }
  __device__ TileG tile_g(int unit) const {
    const Place p = place_of(unit);
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

  // Sum number `at` of the block, of a tap of a channel, to its place.
  __device__ void store(const Arguments &args, int at, float sum) const {
    const int of_channel = first_channel + at % t::channels, tap = at / t::channels;
    if (of_channel >= s.out_channels) return;
    if constexpr (t::slices > 1)  // neighbours write side by side
      static_cast<float *>(args.workspace)[(slice() * L::taps + tap) * s.out_channels +
                                           of_channel] = sum;
    else
      static_cast<Result *>(args.out)[of_channel * L::taps + tap] = static_cast<Result>(sum);
  }

  // Adds the threads' sums in their order, through LDS, some rows at a time, for `finish`. `each`
  // gives a thread's sums of a tap to a function, each with the number of its channel in the block.
  template <class Each, class Finish>
  __device__ void reduce(const Each &each, const Finish &finish) {
    if constexpr (t::sharers == 1) {
      DSCORE_UNROLL
      for (int tap = 0; tap < L::taps; tap++)
        if (live) each(tap, [&](int of, float sum) { finish(tap * t::channels + of, sum); });
      return;
    }
    constexpr int outputs = rows_at_once * of_row;
    float *const parts = reinterpret_cast<float *>(lds);
    float *const own = parts + (lane_h * t::lanes_w + lane_w) * outputs;
    DSCORE_UNROLL
    for (int f = 0; f < L::kernel_h; f++) {
      const int row = f % rows_at_once;
      if (f > 0 && row == 0) __syncthreads();
      DSCORE_UNROLL
      for (int g = 0; g < L::kernel_w; g++)
        if (thread < t::used_threads)
          each(f * L::kernel_w + g, [&](int of, float sum) {
            own[row * of_row + g * t::channels + of] = sum;
          });
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
};

}  // namespace dscore
