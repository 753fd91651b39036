// Of channel sums: the walk by products of fragments on matrix units, of elements of 16 bits.
//
// Of eight channels, eight columns of two rows of the gradient are a matrix of channels x pixels,
// and the pixels of x under them by two taps two others. Of the product of one and the two, 16 x 8
// sums, the diagonals are wanted: of each channel with itself. The others are of two channels;
// nobody reads them, so that what is not finite there does no harm.
// A wavefront takes a segment of eight columns, and walks down its strip two rows at a time. Each
// pixel of x is read from LDS once for each filter column, and stays in registers for as long as
// filter rows reach it.
#pragma once

#include "channel_sums/block.hpp"
#include "support/matrix_units.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape_>
struct SummingFragments : ChannelSumsBlock<T, Tiling, Layer, Shape_> {
  using Shape = Shape_;
  using t = Tiling;
  using L = Layer;
  using Block = ChannelSumsBlock<T, t, L, Shape>;
  using Arguments = typename Block::Arguments;
  using Rows = typename Block::Rows;
  using Columns = typename Block::Columns;
  using Place = typename Block::Place;
  using Block::s, Block::lane_w, Block::lane_h, Block::place_c, Block::thread;
  using Block::block_h, Block::block_w, Block::tile_w, Block::rows, Block::band_rows;
  using Block::gradient_at;
  static constexpr int groups = t::vector / 8, stride = L::stride_h;
  static constexpr int steps = ceil_div(t::thread_h, 2), twos = L::kernel_w / 2;
  static_assert(sizeof(T) == 2 && t::vector % 8 == 0 && t::thread_w == 8, "fragments");
  static_assert(t::wavefront == 32, "diagonals are summed by NVIDIA's matrix units");
  // Taps that share a product: neighbours of a filter row; of a column that is left those of two
  // rows. The number of their sums, and whether a tap is the second one.
  static constexpr int left_at = L::kernel_h * twos;
  static constexpr int pairs = left_at + L::kernel_w % 2 * ceil_div(L::kernel_h, 2);
  static constexpr __host__ __device__ int pair_of(int f, int g) {
    return g < 2 * twos ? f * twos + g / 2 : left_at + f / 2;
  }
  static constexpr __host__ __device__ bool is_second(int f, int g) {
    return g < 2 * twos ? g % 2 : f % 2;
  }
  // Rows of x come by twos as well: those under two rows of the gradient by one tap. Local row i is
  // in two number `two_of` of them, the first row of which is `first_of`.
  static constexpr __host__ __device__ int two_of(int i) {
    return i / (2 * stride) * stride + i % stride;
  }
  static constexpr __host__ __device__ int first_of(int two) {
    return two / stride * 2 * stride + two % stride;
  }
  // Those that are read before a step's products; registers hold what is under its two rows.
  static constexpr __host__ __device__ int end_of(int step) {
    const int end = step < 0 ? 0 : least(Rows::step(2 * step) + Rows::under(2), rows);
    return end / (2 * stride) * stride + least(end % (2 * stride), stride);
  }
  static constexpr int held = ceil_div(Rows::under(2), 2 * stride) * stride;

  int lane, quads_at, twos_at, gradient_from;  // the latter in LDS, where the lane's rows begin
  Word column_mask;
  float sums[pairs][groups][4];
  Word quads[held][greatest(twos, 1)][groups][4], last[held][groups][2], over[groups][2];

  __device__ SummingFragments(const Arguments &args, const Shape &shape)
      : Block(args, shape), lane(thread % t::wavefront), sums{} {
    const int column = lane_w * 8 + lane % 8, of_wave = place_c * t::vector;
    const int row = lane_h * Rows::step(t::thread_h) * tile_w + Columns::step(column);
    quads_at = (row + lane / 8 % 2 * L::dilation_w + lane / 16 * stride * tile_w) * t::pitch +
               of_wave;
    twos_at = (row + lane / 8 % 2 * stride * tile_w) * t::pitch + of_wave;
    gradient_from = gradient_at + of_wave +
                    ((lane_h * t::thread_h + lane / 8 % 2) * block_w + column) * t::pitch;
  }

  // Two rows of x under all columns of the filter. Where the second does not exist, it is not used.
  __device__ void read_two(const T *from, int two) {
    const int i = first_of(two);
    const bool both = i + stride < rows;
    const T *const quad = from + quads_at + i * tile_w * t::pitch -
                          (both ? 0 : lane / 16 * stride * tile_w * t::pitch);
    const T *const single = from + twos_at + i * tile_w * t::pitch -
                            (both ? 0 : lane / 8 % 2 * stride * tile_w * t::pitch);
    DSCORE_UNROLL
    for (int q = 0; q < groups; q++) {
      DSCORE_UNROLL
      for (int g = 0; g < twos; g++) {
        Word *const to = quads[two % held][g][q];
        read_matrices<4, true>(to, quad + 2 * g * L::dilation_w * t::pitch + q * 8);
        mask<4>(to);
      }
      if constexpr (L::kernel_w % 2) {
        Word *const to = last[two % held][q];
        read_matrices<2, true>(to, single + 2 * twos * L::dilation_w * t::pitch + q * 8);
        mask<2>(to);
      }
    }
  }
  template <int Count>
  __device__ void mask(Word *words) const {
    if (s.out_width % block_w != 0)
      DSCORE_UNROLL
      for (int n = 0; n < Count; n++) words[n] &= column_mask;
  }
  __device__ void read_gradient(const T *from, int r) {
    const T *const at = from + gradient_from + r * block_w * t::pitch -
                        (r + 1 < t::thread_h ? 0 : lane / 8 % 2 * block_w * t::pitch);
    DSCORE_UNROLL
    for (int q = 0; q < groups; q++) read_matrices<2, true>(over[q], at + q * 8);
  }

  // The band with which the last row comes that is read for a step.
  static constexpr __host__ __device__ int band_of(int step) {
    return least(first_of(end_of(step) - 1) + stride, rows - 1) / band_rows;
  }

  // A row or column of the gradient that does not exist is left out, as x may be infinite there.
  __device__ void walk(const T *from, int unit, int band) {
    const Place p = this->place_of(unit);
    const int down = s.out_height - p.row - lane_h * t::thread_h;
    const int right = s.out_width - p.column - lane_w * 8 - lane % 4 * 2;
    column_mask = right > 1 ? ~0u : right == 1 ? 0xffffu : 0u;
    DSCORE_UNROLL
    for (int step = 0; step < steps; step++) {
      if (band_of(step) != band) continue;
      if (s.out_height % block_h != 0 && down <= 2 * step) continue;
      DSCORE_UNROLL
      for (int n = 0; n < held; n++)
        if (const int two = step * stride + n; two >= end_of(step - 1) && two < end_of(step))
          read_two(from, two);
      read_gradient(from, 2 * step);
      const bool both = s.out_height % block_h == 0 || 2 * step + 1 < down;
      multiply(step, both ? ~0u : 0u);
    }
  }
  // What filter column g meets in local row i.
  __device__ Word word_of(int i, int g, int q) const {
    const int two = two_of(i) % held, second = i / stride % 2;
    return g < 2 * twos ? quads[two][g / 2][q][second * 2 + g % 2] : last[two][q][second];
  }
  __device__ void multiply(int step, Word second_row) {
    DSCORE_UNROLL
    for (int f = 0; f < L::kernel_h; f++)
      DSCORE_UNROLL
      for (int g = 0; g < L::kernel_w; g++) {
        if (is_second(f, g)) continue;
        // The tap that shares the product; of one alone both are the same.
        const int other_f = g < 2 * twos ? f : least(f + 1, L::kernel_h - 1);
        const int other_g = g < 2 * twos ? g + 1 : g;
        const int i = Rows::position(2 * step, f), other = Rows::position(2 * step, other_f);
        DSCORE_UNROLL
        for (int q = 0; q < groups; q++) {
          float *const d = sums[pair_of(f, g)][q];
          if (2 * step + 1 < t::thread_h)
            multiply_16(d, FragmentA<T>{{word_of(i, g, q), word_of(other, other_g, q),
                                         word_of(i + stride, g, q) & second_row,
                                         word_of(other + stride, other_g, q) & second_row}},
                        FragmentB<T>{{over[q][0], over[q][1]}});
          else
            multiply_8(d, FragmentA<T>{{word_of(i, g, q), word_of(other, other_g, q)}},
                       over[q][0]);
        }
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
