// Both gradients of depthwise layers with a filter for each channel, on images whose channels lie
// side by side (NHWC): the walk over the rows of the output's gradient, read once for both.
// A lane adds each of these rows into the rows of x's gradient that taps connect it with, and sums
// for each tap the products with x, whose own rows lie where those of its gradient do.
// Order of additions: of x's gradient that of channel_vectors; of the filter's, of a thread tiles,
// within these rows of the output's gradient, within these its own rows by filter row, and its
// columns, all ascending; then as the weight gradient alone. What the output's gradient does not
// have is 0 · w, and left out of the filter's, as x may be infinite there; x has no padding here.
#pragma once

#include "channel_sums/shares.hpp"

namespace dscore {

struct GradientsArguments {
  const void *x, *gradient, *w;
  void *x_gradient, *out;
};
struct GradientsWorkspaceArguments : GradientsArguments {
  void *workspace;
};

template <class Layer, int LeadH, int LeadW>
struct BothView : GradientView<Layer, LeadH, LeadW> {
  using Plain = GradientsArguments;
  using WithWorkspace = GradientsWorkspaceArguments;
  template <class Arguments>
  static __device__ const void *walked(const Arguments &args) { return args.gradient; }
  template <class Arguments>
  static __device__ const void *own(const Arguments &args) { return args.x; }
  static constexpr __host__ __device__ int own_rows(int band_rows, int rows, int bands) {
    return greatest(band_rows * Layer::stride_h, ceil_div(rows, bands));
  }
};

template <class T, class Tiling, class Layer, class Shape_, class Result>
struct SummingBoth
    : ChannelSumsBlock<T, Tiling, BothView<Layer, Tiling::lead_h, Tiling::lead_w>, Shape_, Result> {
  using Shape = Shape_;
  using t = Tiling;
  using View = BothView<Layer, t::lead_h, t::lead_w>;
  using Block = ChannelSumsBlock<T, t, View, Shape, Result>;
  using L = Layer;
  using Arguments = typename Block::Arguments;
  using Rows = typename Block::Rows;
  using Columns = typename Block::Columns;
  using Images = typename Block::Images;
  using Place = typename Block::Place;
  using Block::s, Block::lane_w, Block::lane_h, Block::first_channel, Block::channel, Block::live;
  using Block::block_h, Block::block_w, Block::tile_w, Block::rows, Block::band_rows;
  using Block::own_at;
  static_assert(t::multiplier == 1 && !t::diagonal, "a filter for each channel, on plain units");
  static_assert(t::thread_h % L::stride_h == 0 && t::thread_w % L::stride_w == 0,
                "a thread's rows and columns are multiples of the stride");
  static constexpr int held = Columns::under(t::thread_w), live_rows = Rows::live(t::thread_h);
  // Channels of x's gradient that are written as one.
  static constexpr int written = least(t::vector, t::copy_own);

  T *x_gradient;
  float sums[L::taps][t::vector], taps[L::taps][t::vector], row[held][t::vector];
  float own_rows[live_rows][t::thread_w][t::vector];
  float accumulators[live_rows][t::thread_w][t::vector];

  __device__ SummingBoth(const Arguments &args, const Shape &shape)
      : Block(args, shape), x_gradient(static_cast<T *>(args.x_gradient)), sums{},
        accumulators{} {}

  __device__ void prepare(const Arguments &args) {
    const T *const filters = static_cast<const T *>(args.w) + channel * L::taps;
    DSCORE_UNROLL
    for (int v = 0; v < t::vector; v++) {
      const bool there = live && has_channel(v);
      DSCORE_UNROLL
      for (int tap = 0; tap < L::taps; tap++)
        taps[tap][v] = there ? static_cast<float>(filters[v * L::taps + tap]) : 0.0f;
    }
  }
  __device__ bool has_channel(int v) const {
    return s.out_channels % t::vector == 0 || channel + v < s.out_channels;
  }

  __device__ void read_row(const T *from, int i) {
    const T *const pixel = from + ((lane_h * Rows::step(t::thread_h) + i) * tile_w +
                                   lane_w * Columns::step(t::thread_w)) * t::channels;
    DSCORE_UNROLL
    for (int offset = 0; offset < held; offset++)
      read_channels<t::vector, 1>(row[offset], pixel + offset * t::channels, channel,
                                  first_channel);
  }
  __device__ void read_own(const T *from, int r) {
    const T *const pixel = from + own_at + ((lane_h * t::thread_h + r) * block_w +
                                            lane_w * t::thread_w) * t::channels;
    DSCORE_UNROLL
    for (int c = 0; c < t::thread_w; c++)
      read_channels<t::vector, 1>(own_rows[r % live_rows][c], pixel + c * t::channels, channel,
                                  first_channel);
  }
  // The first own row that no row before i meets; row i meets no more than the stride further ones.
  static constexpr __host__ __device__ int unmet(int i) {
    return i == 0 ? 0
                  : least(t::thread_h, greatest(0, Rows::written(i - 1, L::kernel_h - 1) + 1));
  }

  __device__ void walk(const T *from, int unit, int band) {
    const Place p = this->place_of(unit);
    const int top = p.row + lane_h * t::thread_h, left = p.column + lane_w * t::thread_w;
    const int down = Images::out_height(s) - top, right = Images::out_width(s) - left;
    const int walked_row = Rows::step(top) + Rows::first(s.pad_top);
    const int walked_column = Columns::step(left) + Columns::first(s.pad_left);
    bool there[held];
    DSCORE_UNROLL
    for (int offset = 0; offset < held; offset++)
      there[offset] = inside(walked_column + offset, Images::in_width(s));
    const int first = (p.image * Images::out_height(s) + top) * Images::out_width(s) + left;
    T *const results = x_gradient + first * s.out_channels + channel;
    DSCORE_UNROLL
    for (int i = band * band_rows; i < least((band + 1) * band_rows, rows); i++) {
      DSCORE_UNROLL
      for (int n = 0; n < Rows::at_once; n++)  // constant bounds, else nvcc unrolls no loop around
        if (const int r = unmet(i) + n; r < unmet(i + 1)) read_own(from, r);
      read_row(from, i);
      settle_reads();
      const bool row_there = inside(walked_row + i, Images::in_height(s));
      DSCORE_UNROLL
      for (int f = 0; f < L::kernel_h; f++)
        if (const int r = Rows::written(i, f); r >= 0 && r < t::thread_h) {
          add(f, r);
          if (row_there && (Images::out_height(s) % block_h == 0 || r < down))
            sum(f, r, right, there);
        }
      DSCORE_UNROLL
      for (int tap = 0; tap < L::taps; tap++)
        DSCORE_UNROLL
        for (int v = 0; v < t::vector; v++) settle(sums[tap][v]);
      DSCORE_UNROLL
      for (int n = 0; n < Rows::at_once; n++)
        if (const int r = Rows::complete(i) + n; r < least(Rows::complete(i + 1), t::thread_h))
          finish(r, results, down, right);
    }
  }
  __device__ void add(int f, int r) {
    DSCORE_UNROLL
    for (int c = 0; c < t::thread_w; c++)
      DSCORE_UNROLL
      for (int g = 0; g < L::kernel_w; g++)
        if (const int offset = Columns::position(c, g); offset >= 0)
          DSCORE_UNROLL
          for (int v = 0; v < t::vector; v++)
            accumulators[r % live_rows][c][v] += row[offset][v] * taps[f * L::kernel_w + g][v];
  }
  __device__ void sum(int f, int r, int right, const bool *there) {
    DSCORE_UNROLL
    for (int c = 0; c < t::thread_w; c++)
      if (Images::out_width(s) % block_w == 0 || c < right) {
        DSCORE_UNROLL
        for (int g = 0; g < L::kernel_w; g++)
          if (const int offset = Columns::position(c, g); offset >= 0)
            add_products_if<t::vector>(there[offset], sums[f * L::kernel_w + g], row[offset],
                                       own_rows[r % live_rows][c]);
      }
  }
  // Gives away row r of x's gradient, which is complete, and clears its registers for another.
  __device__ void finish(int r, T *results, int down, int right) {
    DSCORE_UNROLL
    for (int c = 0; c < t::thread_w; c++) {
      float *const done = accumulators[r % live_rows][c];
      const bool row_there = Images::out_height(s) % block_h == 0 || r < down;
      if (row_there && (Images::out_width(s) % block_w == 0 || c < right)) {
        DSCORE_UNROLL
        for (int v = 0; v < t::vector; v += written)
          if (has_channel(v))
            write_vector(results + (r * Images::out_width(s) + c) * s.out_channels + v,
                         rounded<T, written>(done + v));
      }
      DSCORE_UNROLL
      for (int v = 0; v < t::vector; v++) done[v] = 0.0f;
    }
  }

  // The thread's sums of a tap.
  template <class Use>
  __device__ void each_sum(int tap, const Use &use) const {
    DSCORE_UNROLL
    for (int v = 0; v < t::vector; v++) use(channel - first_channel + v, sums[tap][v]);
  }
};

template <class T, class Tiling, class Layer, class Shape, class Epilogue>
struct ChannelSumsGradients
    : SumsOfShares<SummingBoth<T, Tiling, Layer, Shape, typename Epilogue::Result>> {
  using Sums = SumsOfShares<SummingBoth<T, Tiling, Layer, Shape, typename Epilogue::Result>>;
  using Sums::Sums;
};

}  // namespace dscore
