// Of channel sums: the tiling, the view of the images, and the block, which takes shares of the
// images' tiles: how these come to its LDS, how the sums of its threads are added there, and where
// the block's go.
#pragma once

#include "channel_vectors/tile.hpp"
#include "support/shared_sums.hpp"
#include "tap_sums/parts.hpp"

namespace dscore {

// CopyWalked, CopyOwn: elements of what is walked over and of a thread's own image that come to LDS
// as one; they depend on the image, so that a kernel for any sizes has them as arguments. Leads: of
// the gradient that is walked over; else 0.
template <int Vector, int LanesC, int ThreadH, int ThreadW, int LanesH, int LanesW, int Slices,
          int Stages, int Bands, int Cluster, bool Ahead, bool Diagonal, int Multiplier,
          int CopyWalked, int CopyOwn, int Wavefront, int LeadH, int LeadW, int Resident>
struct ChannelSumsTiling {
  static constexpr int vector = Vector, lanes_c = LanesC, thread_h = ThreadH, thread_w = ThreadW;
  static constexpr int lanes_h = LanesH, lanes_w = LanesW, slices = Slices, stages = Stages;
  static constexpr int multiplier = Multiplier, copy_walked = CopyWalked, copy_own = CopyOwn;
  static constexpr int lead_h = LeadH, lead_w = LeadW, resident = Resident;
  static constexpr int wavefront = Wavefront, bands = Bands, cluster = Cluster;
  static constexpr int shares = Slices * Cluster;  // blocks that take the tiles of one channel tile
  static constexpr bool ahead = Ahead, diagonal = Diagonal;
  static constexpr int channels = Vector * LanesC, sharers = LanesW * LanesH;
  // On matrix units a lane's place is a wavefront's.
  static constexpr int used_threads = LanesC * sharers * (Diagonal ? Wavefront : 1);
  static constexpr int threads = ceil_div(used_threads, Wavefront) * Wavefront;
  // Elements of LDS from a pixel to the next, as those of channel_vectors.
  static constexpr int apart = Diagonal && channels / 8 % 2 == 0 ? 8 : 0;
  static constexpr int pitch_own = channels + apart;
  static constexpr int pitch_walked = channels_under(channels, Multiplier) + apart;
};

// What sums of taps walk over, and a thread's own image, of which it has the pixels that meet these
// by some tap. Of the weight gradient alone: x, and the output's gradient.
template <class Layer>
struct SumsView : ForwardView<Layer> {
  using Plain = WeightGradientArguments;
  using WithWorkspace = WorkspaceArguments;
  template <class Arguments>
  static __device__ const void *own(const Arguments &args) { return args.gradient; }
  // Own rows of a thread that come with a band.
  static constexpr __host__ __device__ int own_rows(int band_rows, int, int) {
    return ceil_div(band_rows, Layer::stride_h);
  }
};

// A filter's sums of several slices go to a workspace, slice by slice.
template <class View, class t>
using SumsArguments =
    std::conditional_t<(t::slices > 1), typename View::WithWorkspace, typename View::Plain>;

// Result: the type of the filter's gradient.
template <class T, class Tiling, class View_, class Shape_, class Result>
struct ChannelSumsBlock : KernelOn<T, SumsArguments<View_, Tiling>> {
  using Shape = Shape_;
  using t = Tiling;
  using View = View_;
  using L = typename View::L;
  using Arguments = SumsArguments<View, t>;
  using Rows = typename View::Rows;
  using Columns = typename View::Columns;
  using Images = typename View::template Images<Shape>;
  using Parts = TapSumsParts<Result, t, L, Shape, t::slices, true, typename View::WithWorkspace>;
  using Then = std::conditional_t<(t::slices > 1), Parts, void>;
  static constexpr int layout = DSCORE_NHWC, threads = t::threads, wavefront = t::wavefront;
  static constexpr int cluster = t::cluster, resident_blocks = t::resident;
  static constexpr int block_h = t::lanes_h * t::thread_h, block_w = t::lanes_w * t::thread_w;
  static constexpr int walked_channels = channels_under(t::channels, t::multiplier);
  static constexpr int tile_w = Columns::under(block_w);
  static constexpr int rows = Rows::under(t::thread_h);
  static constexpr int band_rows = ceil_div(rows, t::bands);  // walked over
  using WalkedTile = ChannelTile<T, t::lanes_h, Rows::step(t::thread_h), rows, t::bands, tile_w,
                                 walked_channels, t::copy_walked, threads, t::pitch_walked>;
  // A thread's own rows come no later than the first walked row that they meet.
  using OwnTile = ChannelTile<T, t::lanes_h, t::thread_h, t::thread_h, t::bands, block_w,
                              t::channels, t::copy_own, threads, t::pitch_own,
                              View::own_rows(band_rows, t::thread_h, t::bands)>;
  static constexpr int whole = 16 / static_cast<int>(sizeof(T));
  // A stage has a tile of what is walked over and, behind it, one of the threads' own image.
  static constexpr int own_at = ceil_div(WalkedTile::elements, whole) * whole;
  static constexpr int stage_elements = own_at + ceil_div(OwnTile::elements, whole) * whole;
  static constexpr int stages_bytes = t::stages * stage_elements * int{sizeof(T)};
  // At the end LDS has the threads' sums of some filter rows; in a cluster, behind all else, what
  // its blocks send.
  static constexpr int of_row = L::kernel_w * t::channels;
  static constexpr int row_bytes = t::sharers * of_row * int{sizeof(float)};
  using OfCluster = SharedSums<t::cluster, threads, L::kernel_h * of_row>;
  static constexpr int rows_at_once = least(greatest(stages_bytes / row_bytes, 1), L::kernel_h);
  static constexpr int parts_bytes = t::sharers > 1 ? rows_at_once * row_bytes : 0;
  static constexpr int of_cluster_at = ceil_div(greatest(stages_bytes, parts_bytes), 16) * 16;
  static constexpr int lds_bytes = of_cluster_at + OfCluster::lds_bytes;
  static constexpr int alignment =
      greatest(greatest(t::copy_walked, t::copy_own) * int{sizeof(T)}, int{sizeof(Result)});

  static __host__ __device__ int channel_tiles(const Shape &s) {
    return ceil_div(s.out_channels, t::channels);
  }
  static __host__ __device__ int column_tiles(const Shape &s) {
    return ceil_div(Images::out_width(s), block_w);
  }
  static __host__ __device__ int row_tiles(const Shape &s) {
    return ceil_div(Images::out_height(s), block_h);
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
  const T *walked, *own;
  T *lds;
  int thread, place_c, lane_w, lane_h, first_channel, channel, unit_end;
  bool live;

  __device__ ChannelSumsBlock(const Arguments &args, const Shape &shape)
      : s(shape), walked(static_cast<const T *>(View::walked(args))),
        own(static_cast<const T *>(View::own(args))), thread(threadIdx.x) {
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
        walked_tile(first_unit()).prefetch(thread);
        own_tile(first_unit()).prefetch(thread);
      }
  }
  static __device__ int group() { return static_cast<int>(blockIdx.x) / t::cluster; }
  static __device__ int rank() { return static_cast<int>(blockIdx.x) % t::cluster; }
  __device__ int slice() const { return group() / channel_tiles(s); }
  __device__ int first_unit() const {
    return (slice() * t::cluster + rank()) * ceil_div(units(s), t::shares);
  }

  // Where a unit begins: its image, and the first row and column of the threads' own.
  struct Place {
    int image, row, column;
  };
  __device__ Place place_of(int unit) const {
    const int column = unit % column_tiles(s) * block_w, above = unit / column_tiles(s);
    return {above / row_tiles(s), above % row_tiles(s) * block_h, column};
  }
  __device__ WalkedTile walked_tile(int unit) const {
    const Place p = place_of(unit);
    const int height = Images::in_height(s), width = Images::in_width(s);
    const int channels = s.out_channels / t::multiplier;
    return {walked + p.image * (height * width * channels), height, width, channels,
            Rows::step(p.row) + Rows::first(s.pad_top),
            Columns::step(p.column) + Columns::first(s.pad_left), first_channel / t::multiplier};
  }
  __device__ OwnTile own_tile(int unit) const {
    const Place p = place_of(unit);
    const int height = Images::out_height(s), width = Images::out_width(s);
    return {own + p.image * (height * width * s.out_channels), height, width, s.out_channels,
            p.row, p.column, first_channel};
  }
  // Starts the load of a unit to a stage, band by band; of none past the last.
  __device__ void start_load(int stage, int unit) const {
    T *const to = lds + stage * stage_elements;
    DSCORE_UNROLL
    for (int band = 0; band < t::bands; band++) {
      if (unit < unit_end) {
        walked_tile(unit).start_load(to, band, thread);
        own_tile(unit).start_load(to + own_at, band, thread);
      }
      commit_copies();
    }
  }

  // What a thread needs beside the tiles, while the first are under way.
  __device__ void prepare(const Arguments &) {}

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
        if (thread < t::used_threads)
          each(tap, [&](int of, float sum) { finish(tap * t::channels + of, sum); });
      return;
    }
    constexpr int outputs = rows_at_once * of_row;
    float *const parts = reinterpret_cast<float *>(lds);
    float *const of_thread = parts + (lane_h * t::lanes_w + lane_w) * outputs;
    DSCORE_UNROLL
    for (int f = 0; f < L::kernel_h; f++) {
      const int row = f % rows_at_once;
      if (f > 0 && row == 0) __syncthreads();
      DSCORE_UNROLL
      for (int g = 0; g < L::kernel_w; g++)
        if (thread < t::used_threads)
          each(f * L::kernel_w + g, [&](int of, float sum) {
            of_thread[row * of_row + g * t::channels + of] = sum;
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
