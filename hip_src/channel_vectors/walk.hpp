// The walk over rows of images whose channels lie side by side: a lane takes a vector of channels,
// and adds every row of its columns, which it reads once, into all rows that taps connect it with.
//
// Order of additions, as the reference backend has it: rows that are walked over, within these
// filter columns, both ascending. What lies outside the image is 0 · w.
#pragma once

#include "channel_vectors/tile.hpp"

namespace dscore {

// CopyX, CopyW: elements of the image and of the filters that come to LDS as one; VectorOut:
// results that leave as one. LeadH, LeadW: of the input gradient's axes. They depend on the image,
// so that a kernel for any sizes has them as arguments.
template <int Vector, int LanesC, int ThreadH, int ThreadW, int LanesH, int LanesW, int Bands,
          bool Ahead, int Multiplier, int CopyX, int CopyW, int VectorOut, int Wavefront,
          int LeadH = 0, int LeadW = 0>
struct ChannelVectorsTiling {
  static constexpr int vector = Vector, lanes_c = LanesC, thread_h = ThreadH, thread_w = ThreadW;
  static constexpr int lanes_h = LanesH, lanes_w = LanesW, multiplier = Multiplier;
  static constexpr int copy_x = CopyX, copy_w = CopyW, vector_out = VectorOut;
  static constexpr int wavefront = Wavefront, lead_h = LeadH, lead_w = LeadW;
  static constexpr int bands = Bands;
  static constexpr bool ahead = Ahead;
  static constexpr int channels = Vector * LanesC;  // of a block, written ones
  static constexpr int used_threads = LanesC * LanesW * LanesH;
  static constexpr int threads = ceil_div(used_threads, Wavefront) * Wavefront;
  static_assert(Vector % VectorOut == 0, "vectors");
};

// Results makes sums to results, and knows the arguments of the kernel.
template <class T, class Tiling, class View, class Shape_, class Results>
struct ChannelWalk : View::template Kernel<T, Results> {
  using Shape = Shape_;
  using t = Tiling;
  using Arguments = typename Results::Arguments;
  using L = typename View::L;
  using Rows = typename View::Rows;
  using Columns = typename View::Columns;
  using Images = typename View::template Images<Shape>;
  static constexpr int layout = DSCORE_NHWC, threads = t::threads, wavefront = t::wavefront;
  static constexpr int block_h = t::lanes_h * t::thread_h, block_w = t::lanes_w * t::thread_w;
  static constexpr int walked_channels = channels_under(t::channels, t::multiplier);
  static constexpr int tile_w = Columns::under(block_w);
  static constexpr int held = Columns::under(t::thread_w), rows = Rows::under(t::thread_h);
  using Tile = ChannelTile<T, t::lanes_h, Rows::step(t::thread_h), rows, t::bands, tile_w,
                           walked_channels, t::copy_x, threads>;
  static constexpr int live_rows = Rows::live(t::thread_h);
  static constexpr int filters = t::channels * L::taps;  // elements
  static constexpr int whole = 16 / static_cast<int>(sizeof(T));
  // LDS holds the tile and, behind it, the filters.
  static constexpr int filters_at = ceil_div(Tile::elements, whole) * whole;
  static constexpr int lds_elements = filters_at + ceil_div(filters, whole) * whole;
  static constexpr int lds_bytes = lds_elements * int{sizeof(T)};
  static constexpr int alignment =
      greatest(greatest(t::copy_x, t::copy_w), t::vector_out) * int{sizeof(T)};

  static __host__ __device__ int channel_tiles(const Shape &s) {
    return ceil_div(s.out_channels, t::channels);
  }
  static __host__ __device__ int column_tiles(const Shape &s) {
    return ceil_div(Images::out_width(s), block_w);
  }
  static __host__ __device__ int row_tiles(const Shape &s) {
    return ceil_div(Images::out_height(s), block_h);
  }
  // Channel tile fastest, then column tile, row tile, image.
  static int blocks(const Shape &s) {
    return channel_tiles(s) * column_tiles(s) * row_tiles(s) * s.batch;
  }
  static constexpr __host__ __device__ bool under_tap(int offset) {
    for (int c = 0; c < t::thread_w; c++)
      for (int g = 0; g < L::kernel_w; g++)
        if (Columns::position(c, g) == offset) return true;
    return false;
  }

  const Shape &s;
  const T *w;
  T *out, *lds;
  int thread, lane_c, lane_w, lane_h, first_channel, channel, out_row, out_column, image;
  Tile tile;
  float accumulators[live_rows][t::thread_w][t::vector], row[held][t::vector];
  float taps[L::taps][t::vector];

  __device__ ChannelWalk(const Arguments &args, const Shape &shape)
      : s(shape), w(static_cast<const T *>(args.w)), out(static_cast<T *>(args.out)),
        thread(threadIdx.x), accumulators{} {
    lane_c = thread % t::lanes_c;
    lane_w = thread / t::lanes_c % t::lanes_w;
    lane_h = thread / (t::lanes_c * t::lanes_w);
    int block = blockIdx.x;
    first_channel = block % channel_tiles(s) * t::channels;
    block /= channel_tiles(s);
    const int column = block % column_tiles(s) * block_w;
    block /= column_tiles(s);
    const int top = block % row_tiles(s) * block_h;
    image = block / row_tiles(s);
    channel = first_channel + lane_c * t::vector;
    out_row = top + lane_h * t::thread_h, out_column = column + lane_w * t::thread_w;
    tile.height = Images::in_height(s), tile.width = Images::in_width(s);
    tile.channels = s.out_channels / t::multiplier;
    tile.image = static_cast<const T *>(View::walked(args)) +
                 image * (tile.height * tile.width * tile.channels);
    tile.row = Rows::step(top) + Rows::first(s.pad_top);
    tile.column = Columns::step(column) + Columns::first(s.pad_left);
    tile.channel = first_channel / t::multiplier;
    lds = block_lds<T, lds_elements>();
    if constexpr (t::ahead) tile.prefetch(thread);
  }

  __device__ void load_taps() {
    const T *const mine = lds + filters_at + lane_c * t::vector * L::taps;
    DSCORE_UNROLL
    for (int tap = 0; tap < L::taps; tap++)
      DSCORE_UNROLL
      for (int v = 0; v < t::vector; v++)
        taps[tap][v] = static_cast<float>(mine[v * L::taps + tap]);
  }

  // Columns of local row i of the thread.
  __device__ void read_row(int i) {
    const T *const pixel = lds + ((lane_h * Rows::step(t::thread_h) + i) * tile_w +
                                  lane_w * Columns::step(t::thread_w)) * walked_channels;
    DSCORE_UNROLL
    for (int offset = 0; offset < held; offset++)
      if (under_tap(offset))
        read_channels<t::vector, t::multiplier>(row[offset], pixel + offset * walked_channels,
                                                channel, tile.channel);
  }

  __device__ void add_row(int i) {
    DSCORE_UNROLL
    for (int f = 0; f < L::kernel_h; f++) {
      const int r = Rows::written(i, f);
      if (r < 0 || r >= t::thread_h) continue;
      DSCORE_UNROLL
      for (int c = 0; c < t::thread_w; c++)
        DSCORE_UNROLL
        for (int g = 0; g < L::kernel_w; g++) {
          const int offset = Columns::position(c, g);
          if (offset < 0) continue;
          DSCORE_UNROLL
          for (int v = 0; v < t::vector; v++)
            accumulators[r % live_rows][c][v] += row[offset][v] * taps[f * L::kernel_w + g][v];
        }
    }
  }

  // Gives away local written row r, which is complete, and clears its registers for another.
  __device__ void finish(int r, const Arguments &args, const float *biases) {
    const int height = Images::out_height(s), width = Images::out_width(s);
    const bool there = height % t::thread_h == 0 || out_row + r < height;
    const int first = ((image * height + out_row + r) * width + out_column) * s.out_channels;
    DSCORE_UNROLL
    for (int c = 0; c < t::thread_w; c++) {
      float *const done = accumulators[r % live_rows][c];
      if (there && (width % block_w == 0 || out_column + c < width)) {
        DSCORE_UNROLL
        for (int v = 0; v < t::vector; v += t::vector_out)
          if (s.out_channels % t::vector == 0 || channel + v < s.out_channels) {
            const int at = first + c * s.out_channels + channel + v;
            write_vector(out + at, Results::template apply_each<t::vector_out>(
                                       done + v, args, biases + v, at));
          }
      }
      DSCORE_UNROLL
      for (int v = 0; v < t::vector; v++) done[v] = 0.0f;
    }
  }

  // Rows of a band, which have come, into all the written rows that their taps connect them with.
  __device__ void walk(int band, const Arguments &args, const float *biases) {
    DSCORE_UNROLL
    for (int i = band * Tile::band_rows; i < least(rows, (band + 1) * Tile::band_rows); i++) {
      read_row(i);
      add_row(i);
      DSCORE_UNROLL
      for (int n = 0; n < Rows::at_once; n++)
        if (const int r = Rows::complete(i) + n; r < least(Rows::complete(i + 1), t::thread_h))
          finish(r, args, biases);
    }
  }

  __device__ void start_loads() const {
    start_load_filters<T, filters, t::copy_w, threads>(
        lds + filters_at, w + first_channel * L::taps,
        (s.out_channels - first_channel) * L::taps, thread);
    DSCORE_UNROLL
    for (int band = 0; band < t::bands; band++) {
      tile.start_load(lds, band, thread);
      commit_copies();
    }
  }

  __device__ void run(const Arguments &args) {
    if constexpr (t::ahead) admit_next_kernel();
    start_loads();
    const bool live = thread < t::used_threads && channel < s.out_channels &&
                      out_row < Images::out_height(s) && out_column < Images::out_width(s);
    float biases[t::vector];
    DSCORE_UNROLL
    for (int v = 0; v < t::vector; v++)
      biases[v] = Results::bias_of(args, least(channel + v, s.out_channels - 1));
    DSCORE_UNROLL
    for (int band = 0; band < t::bands; band++) {
      wait_copies_but<t::bands - 1>(t::bands - 1 - band);
      __syncthreads();
      if (!live) continue;
      if (band == 0) load_taps();
      walk(band, args, biases);
    }
  }
};

}  // namespace dscore
