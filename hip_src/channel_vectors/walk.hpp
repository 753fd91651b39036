// The walk over rows of images whose channels lie side by side: a lane takes a vector of channels,
// and adds every row of its columns, which it reads once, into all rows that taps connect it with.
//
// Order of additions, as the reference backend has it: rows that are walked over, within these
// filter columns, both ascending. What lies outside the image is 0 · w.
#pragma once

#include "channel_vectors/block.hpp"

namespace dscore {

// Results makes sums to results, and knows the arguments of the kernel.
template <class T, class Tiling, class View, class Shape_, class Results>
struct ChannelWalk : ChannelBlock<T, Tiling, View, Shape_, Results> {
  using Shape = Shape_;
  using t = Tiling;
  using Block = ChannelBlock<T, t, View, Shape, Results>;
  using Arguments = typename Block::Arguments;
  using L = typename Block::L;
  using Rows = typename Block::Rows;
  using Columns = typename Block::Columns;
  using Images = typename Block::Images;
  using Tile = typename Block::Tile;
  using Block::s, Block::lds, Block::pixels, Block::thread, Block::first_channel, Block::image;
  using Block::tile, Block::block_h, Block::block_w, Block::tile_w, Block::filters_at;
  static constexpr int threads = t::threads, wavefront = t::wavefront;
  static constexpr int held = Columns::under(t::thread_w), rows = Rows::under(t::thread_h);
  static constexpr int live_rows = Rows::live(t::thread_h);
  static_assert(t::vector % t::vector_out == 0, "vectors");

  static constexpr __host__ __device__ bool under_tap(int offset) {
    for (int c = 0; c < t::thread_w; c++)
      for (int g = 0; g < L::kernel_w; g++)
        if (Columns::position(c, g) == offset) return true;
    return false;
  }

  int lane_c, lane_w, lane_h, channel, out_row, out_column, first;
  T *results;  // the thread's, of which `first` is the first: others lie constants further on
  float accumulators[live_rows][t::thread_w][t::vector], row[held][t::vector];
  float taps[L::taps][t::vector];

  __device__ ChannelWalk(const Arguments &args, const Shape &shape)
      : Block(args, shape), accumulators{} {
    lane_c = thread % t::lanes_c;
    lane_w = thread / t::lanes_c % t::lanes_w;
    lane_h = thread / (t::lanes_c * t::lanes_w);
    channel = first_channel + lane_c * t::vector;
    out_column = Block::left + lane_w * t::thread_w;
    place_lane();
  }
  __device__ void place_lane() {
    out_row = Block::top + lane_h * t::thread_h;
    first = ((image * Images::out_height(s) + out_row) * Images::out_width(s) + out_column) *
                s.out_channels + channel;
    results = Block::out + first;
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
    const T *const pixel = pixels + ((lane_h * Rows::step(t::thread_h) + i) * tile_w +
                                  lane_w * Columns::step(t::thread_w)) * t::pitch;
    DSCORE_UNROLL
    for (int offset = 0; offset < held; offset++)
      if (under_tap(offset))
        read_channels<t::vector, t::multiplier>(row[offset], pixel + offset * t::pitch,
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
    DSCORE_UNROLL
    for (int c = 0; c < t::thread_w; c++) {
      float *const done = accumulators[r % live_rows][c];
      if (there && (width % block_w == 0 || out_column + c < width)) {
        DSCORE_UNROLL
        for (int v = 0; v < t::vector; v += t::vector_out)
          if (s.out_channels % t::vector == 0 || channel + v < s.out_channels) {
            const int at = (r * width + c) * s.out_channels + v;
            write_vector(results + at, Results::template apply_each<t::vector_out>(
                                           done + v, args, biases + v, first + at));
          }
      }
      DSCORE_UNROLL
      for (int v = 0; v < t::vector; v++) done[v] = 0.0f;
    }
  }

  // Rows of a band, which have come, into all the written rows that their taps connect them with.
  template <int Band>
  __device__ void walk(const Arguments &args, const float *biases) {
    DSCORE_UNROLL
    for (int i = Band * Tile::band_rows; i < least(rows, (Band + 1) * Tile::band_rows); i++) {
      read_row(i);
      add_row(i);
      DSCORE_UNROLL
      for (int n = 0; n < Rows::at_once; n++)
        if (const int r = Rows::complete(i) + n; r < least(Rows::complete(i + 1), t::thread_h))
          finish(r, args, biases);
    }
  }

  __device__ void run(const Arguments &args, const KernelBefore &before) {
    before.wait_for_constants();
    Block::start_filters();
    const bool present = thread < t::used_threads && channel < s.out_channels &&
                         out_column < Images::out_width(s);
    float biases[t::vector];
    DSCORE_UNROLL
    for (int v = 0; v < t::vector; v++)
      biases[v] = Results::bias_of(args, least(channel + v, s.out_channels - 1));
    Block::take_filters(before, [&] {
      if (present) load_taps();
    });
    DSCORE_ROLLED
    do {
      Block::start_next();
      if (t::repeat > 1) place_lane();
      const bool live = present && out_row < Images::out_height(s);
      Block::each_band([&](auto constant) {
        if (live) this->template walk<decltype(constant)::value>(args, biases);
      });
    } while (Block::go_to_next());
  }
};

}  // namespace dscore
