// Of channel sums: the walk of lanes, each of which takes a vector of channels and keeps the sums
// of its taps in registers. It walks over rows of x, each of which it reads once for all filter
// rows; the rows of the gradient over it are in registers, too.
#pragma once

#include "channel_sums/block.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape_, class Result>
struct SummingLanes : ChannelSumsBlock<T, Tiling, SumsView<Layer>, Shape_, Result> {
  using Shape = Shape_;
  using t = Tiling;
  using L = Layer;
  using Block = ChannelSumsBlock<T, t, SumsView<L>, Shape, Result>;
  using Arguments = typename Block::Arguments;
  using Rows = typename Block::Rows;
  using Columns = typename Block::Columns;
  using Place = typename Block::Place;
  using Block::s, Block::lane_w, Block::lane_h, Block::first_channel, Block::channel;
  using Block::block_h, Block::block_w, Block::tile_w, Block::rows, Block::band_rows;
  using Block::walked_channels, Block::own_at;
  static constexpr int held = Columns::under(t::thread_w), live_rows = Rows::live(t::thread_h);

  static constexpr __host__ __device__ bool under_tap(int offset) {
    for (int c = 0; c < t::thread_w; c++)
      for (int g = 0; g < L::kernel_w; g++)
        if (Columns::position(c, g) == offset) return true;
    return false;
  }

  float sums[L::taps][t::vector], row[held][t::vector];
  float gradients[live_rows][t::thread_w][t::vector];

  __device__ SummingLanes(const Arguments &args, const Shape &shape)
      : Block(args, shape), sums{} {}

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
    const Place p = this->place_of(unit);
    const int down = s.out_height - p.row - lane_h * t::thread_h;
    const int right = s.out_width - p.column - lane_w * t::thread_w;
    DSCORE_UNROLL
    for (int i = band * band_rows; i < least((band + 1) * band_rows, rows); i++) {
      if (i % L::stride_h == 0 && i / L::stride_h < t::thread_h)
        read_gradient(from + own_at, i / L::stride_h);
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

  // The thread's sums of a tap.
  template <class Use>
  __device__ void each_sum(int tap, const Use &use) const {
    DSCORE_UNROLL
    for (int v = 0; v < t::vector; v++) use(channel - first_channel + v, sums[tap][v]);
  }
};

}  // namespace dscore
