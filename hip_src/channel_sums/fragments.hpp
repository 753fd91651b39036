// Of channel sums: the walk by products of fragments on matrix units, of elements of 16 bits.
//
// Of eight channels, eight columns of two rows of the gradient are a matrix of channels x pixels,
// and the pixels of x under them by two taps two others. Of the product of one and the two, 16 x 8
// sums, the diagonals are wanted: of each channel with itself. The others are of two channels;
// nobody reads them, so that what is not finite there does no harm.
// A wavefront takes a segment of eight columns, and walks down its strip two rows of x at a time.
// Their fragments are multiplied as they come from LDS, by those of two rows of the gradient for
// each filter row: by rows 2 k and 2 k + 1, or 2 k - 1 and 2 k. Registers hold these for as long as
// filter rows reach them.
#pragma once

#include "channel_sums/block.hpp"
#include "support/matrix_units.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape_, class Result>
struct SummingFragments : ChannelSumsBlock<T, Tiling, SumsView<Layer>, Shape_, Result> {
  using Shape = Shape_;
  using t = Tiling;
  using L = Layer;
  using Block = ChannelSumsBlock<T, t, SumsView<L>, Shape, Result>;
  using Arguments = typename Block::Arguments;
  using Rows = typename Block::Rows;
  using Columns = typename Block::Columns;
  using Place = typename Block::Place;
  using Block::s, Block::lane_w, Block::lane_h, Block::place_c, Block::thread;
  using Block::block_h, Block::block_w, Block::tile_w, Block::rows, Block::band_rows;
  using Block::own_at;
  static constexpr int groups = t::vector / 8, stride = L::stride_h, dilation = L::dilation_h;
  static constexpr int twos = L::kernel_w / 2;  // of filter columns
  static constexpr bool column_left = L::kernel_w % 2;
  static_assert(sizeof(T) == 2 && t::vector % 8 == 0 && t::thread_w == 8, "fragments");
  static_assert(t::wavefront == 32, "diagonals are summed by NVIDIA's matrix units");
  // Taps that share a product: neighbours of a filter row; of a column that is left those of two
  // rows. The number of their sums, and whether a tap is the second one.
  static constexpr int left_at = L::kernel_h * twos;
  static constexpr int pairs = left_at + column_left * ceil_div(L::kernel_h, 2);
  static constexpr __host__ __device__ int pair_of(int f, int g) {
    return g < 2 * twos ? f * twos + g / 2 : left_at + f / 2;
  }
  static constexpr __host__ __device__ bool is_second(int f, int g) {
    return g < 2 * twos ? g % 2 : f % 2;
  }
  // By filter row f, row r of the gradient lies over row (r + later(f)) * stride + phase(f) of x. A
  // step has rows 2 step and 2 step + 1 of x of each phase.
  static constexpr __host__ __device__ int phase(int f) { return f * dilation % stride; }
  static constexpr __host__ __device__ int later(int f) { return f * dilation / stride; }
  static constexpr int steps = (t::thread_h - 1 + later(L::kernel_h - 1)) / 2 + 1;
  // The first of the two rows of the gradient over these; -1 where the second is the first of all.
  static constexpr __host__ __device__ int over(int step, int f) { return 2 * step - later(f); }
  static constexpr __host__ __device__ bool meets(int step, int f, int of_phase) {
    return phase(f) == of_phase && over(step, f) >= -1 && over(step, f) < t::thread_h;
  }
  // Whether any does of every so many filter rows.
  static constexpr __host__ __device__ bool any_meets(int step, int of_phase, int every) {
    for (int f = 0; f < L::kernel_h; f += every)
      if (meets(step, f, of_phase)) return true;
    return false;
  }
  // How many twos of rows of the gradient are held, of those that begin with an odd row or an even.
  static constexpr __host__ __device__ int held(int odd) {
    int most = 0;
    for (int f = 0; f < L::kernel_h; f++)
      if (later(f) % 2 == odd) most = greatest(most, later(f) / 2 + 1);
    return most;
  }
  static constexpr int even = held(0), odd = held(1);

  // Where in LDS the lane's rows begin: of x under two filter columns, and under the last one by
  // two filter rows; of the gradient.
  int lane, twos_at, left_from, gradient_from;
  Word column_mask;
  float sums[pairs][groups][4];
  Word of_even[even][groups][2], of_odd[greatest(odd, 1)][groups][2];

  __device__ SummingFragments(const Arguments &args, const Shape &shape)
      : Block(args, shape), lane(thread % t::wavefront), sums{} {
    const int column = lane_w * 8 + lane % 8, of_wave = place_c * t::vector;
    const int pixel = lane_h * Rows::step(t::thread_h) * tile_w + Columns::step(column);
    const int two = pixel + lane / 16 * stride * tile_w + lane / 8 % 2 * L::dilation_w;
    const int last = pixel + left_beside() * tile_w + 2 * twos * L::dilation_w;
    twos_at = two * t::pitch_walked + of_wave;
    left_from = last * t::pitch_walked + of_wave;
    gradient_from = own_at + of_wave +
                    ((lane_h * t::thread_h + gradient_beside()) * block_w + column) * t::pitch_own;
  }
  // From the first of the rows that the wavefront reads to the lane's.
  __device__ int left_beside() const { return lane / 16 * stride + lane / 8 % 2 * dilation; }
  __device__ int gradient_beside() const {
    return odd > 0 ? (lane / 8 + 1) / 2 - 1 : lane / 8 % 2;
  }
  // What brings the lane from row `first + beside` to the nearest of `count` rows. Those from
  // `first - before` to `first + after` are read.
  static __device__ int back(int first, int beside, int before, int after, int count) {
    if (first >= before && first + after < count) return 0;
    return greatest(least(first + beside, count - 1), 0) - first - beside;
  }

  // Rows 2 step - 1, if any filter row asks for these, 2 step and 2 step + 1.
  __device__ void read_gradient(const T *from, int step) {
    const int first = 2 * step, ahead = odd > 0;
    if (first - ahead >= t::thread_h) return;
    const T *const at =
        from + gradient_from +
        (first + back(first, gradient_beside(), ahead, 1, t::thread_h)) * block_w * t::pitch_own;
    DSCORE_UNROLL
    for (int q = 0; q < groups; q++) {
      Word *const two = of_even[step % even][q];
      if constexpr (odd > 0) {
        Word words[4], *const odd_two = of_odd[step % odd][q];
        read_matrices<4, true>(words, at + q * 8);
        odd_two[0] = words[0], odd_two[1] = words[1], two[0] = words[2], two[1] = words[3];
      } else {
        read_matrices<2, true>(two, at + q * 8);
      }
    }
  }
  __device__ const Word *gradient_of(int step, int f, int q) const {
    const int behind = later(f) / 2;
    return later(f) % 2 ? of_odd[(step - behind) % greatest(odd, 1)][q]
                        : of_even[(step - behind) % even][q];
  }

  // The band with which the last row of x comes that a step reads.
  static constexpr __host__ __device__ int band_of(int step) {
    int last = 0;
    for (int f = 0; f < L::kernel_h; f++) last = greatest(last, phase(f));
    return least((2 * step + 1) * stride + last + column_left * dilation, rows - 1) / band_rows;
  }

  __device__ void walk(const T *from, int unit, int band) {
    const Place p = this->place_of(unit);
    const int down = least(s.out_height - p.row - lane_h * t::thread_h, t::thread_h);
    const int right = s.out_width - p.column - lane_w * 8;
    const int end = s.out_height % block_h == 0 ? t::thread_h : down;
    if (s.out_width % block_w == 0 || right >= 8) {
      take<false>(from, band, end);
    } else {
      column_mask = right - lane % 4 * 2 > 1 ? ~0u : right - lane % 4 * 2 == 1 ? 0xffffu : 0u;
      take<true>(from, band, end);
    }
  }
  // Masked: a column of the gradient that does not exist is left out, as x may be infinite there.
  template <bool Masked>
  __device__ void take(const T *from, int band, int end) {
    DSCORE_UNROLL
    for (int step = 0; step < steps; step++) {
      if (band_of(step) != band) continue;
      read_gradient(from, step);
      DSCORE_UNROLL
      for (int of_phase = 0; of_phase < stride; of_phase++) {
        DSCORE_UNROLL
        for (int g = 0; g < twos; g++)
          if (any_meets(step, of_phase, 1)) take_two<Masked>(from, step, of_phase, g, end);
        if (column_left && any_meets(step, of_phase, 2))
          take_left<Masked>(from, step, of_phase, end);
      }
    }
  }
  // Two rows of x under filter columns 2 g and 2 g + 1.
  template <bool Masked>
  __device__ void take_two(const T *from, int step, int of_phase, int g, int end) {
    const int first = 2 * step * stride + of_phase;
    const int row = first + back(first, lane / 16 * stride, 0, stride, rows);
    const int pixels = row * tile_w + 2 * g * L::dilation_w;
    take_fragments<Masked, 1>(from + twos_at + pixels * t::pitch_walked, step, of_phase, 2 * g,
                              end);
  }
  // Two rows of x, and the two that lie under the same rows of the gradient by the next filter row,
  // under the last filter column.
  template <bool Masked>
  __device__ void take_left(const T *from, int step, int of_phase, int end) {
    const int first = 2 * step * stride + of_phase;
    const int row = first + back(first, left_beside(), 0, stride + dilation, rows);
    take_fragments<Masked, 2>(from + left_from + row * tile_w * t::pitch_walked, step, of_phase,
                              2 * twos, end);
  }
  // What lies there, for every so many of the filter rows that meet it under filter column g.
  template <bool Masked, int Every>
  __device__ void take_fragments(const T *at, int step, int of_phase, int g, int end) {
    DSCORE_UNROLL
    for (int q = 0; q < groups; q++) {
      FragmentA<T> a;
      read_matrices<4, true>(a.words, at + q * 8);
      if constexpr (Masked) mask(a);
      DSCORE_UNROLL
      for (int f = 0; f < L::kernel_h; f += Every)
        if (meets(step, f, of_phase)) multiply(pair_of(f, g), q, a, step, f, end);
    }
  }
  __device__ void mask(FragmentA<T> &a) const {
    DSCORE_UNROLL
    for (Word &word : a.words) word &= column_mask;
  }
  // A row of the gradient that does not exist, from `end` on, is left out.
  __device__ void multiply(int pair, int q, const FragmentA<T> &a, int step, int f, int end) {
    float *const d = sums[pair][q];
    const int r = over(step, f);
    const Word *const b = gradient_of(step, f, q);
    if (r < 0) {
      if (end > 0) multiply_8(d, FragmentA<T>{{a.words[2], a.words[3]}}, b[1]);
    } else if (r + 1 < end) {
      multiply_16(d, a, FragmentB<T>{{b[0], b[1]}});
    } else if (r < end) {
      multiply_8(d, a, b[0]);
    }
  }

  // The lane's sums of a tap: of the diagonal, lane 4 g + i has that of channel g if g / 2 is i.
  template <class Use>
  __device__ void each_sum(int tap, const Use &use) const {
    const int f = tap / L::kernel_w, column = tap % L::kernel_w, g = lane / 4;
    if (lane % 4 != g / 2) return;
    DSCORE_UNROLL
    for (int q = 0; q < groups; q++) {
      const float *const pair = sums[pair_of(f, column)][q] + is_second(f, column) * 2;
      use(place_c * t::vector + q * 8 + g, g % 2 ? pair[1] : pair[0]);
    }
  }
};

}  // namespace dscore
