// The lanes of a wavefront of a first layer (stem/kernel.hpp): the fragments of filters that each
// keeps in registers, and those of pixels that it reads from LDS.
//
// Lane 4 g + i holds word i of each half of a fragment's summed elements: of 16 bits two channels
// of one of two taps, of bytes all channels of one of four.
#pragma once

#include "stem/shape.hpp"
#include "support/byte_fragments.hpp"

namespace dscore {

// Fragments whose columns lie so that a lane's are neighbours: of as many as make a vector of
// results, or of half a row of 32 channels.
template <class t, class Result>
struct StemColumns {
  static constexpr int group =
      least(least(t::wave_n & -t::wave_n, 32) / 8, 8 / static_cast<int>(sizeof(Result)));
  static constexpr int run = 2 * group, runs = t::columns / group;
  static_assert(runs * group == t::columns, "whole groups of fragments");
  // The channel, of the wavefront's, of a fragment's column; the first of a lane's in a run.
  static __device__ constexpr int channel(int fragment, int column) {
    return fragment / group * 8 * group + column / 2 * run + fragment % group * 2 + column % 2;
  }
  static __device__ int run_channel(int q, int lane) { return q * 8 * group + lane % 4 * run; }
  // Of a lane's sums that of a pixel, 0 or 1, and of a channel of a run.
  static __device__ constexpr int index(int half, int q, int e) {
    return (q * group + e / 2) * 4 + half * 2 + e % 2;
  }
};

template <class T, class t, class Layer>
struct StemLanes {
  using Sum = typename t::Sum;
  using Words = Word[t::steps][t::columns][2];
  using A = std::conditional_t<t::exact, BytesA, FragmentA<T>>;
  using B = std::conditional_t<t::exact, BytesB, FragmentB<T>>;
  static constexpr int in_word = 4 / t::size;  // elements
  int g, tap, first_channel;        // of a half's taps the lane's, and of its channels the first
  int places[t::row_halves][2];     // of the halves of a row, of pixels g and g + 8

  // `before`: pixels of LDS before the tile's first one.
  __device__ StemLanes(int lane, int before)
      : g(lane / 4), tap(lane % 4 * 4 / t::pixel),
        first_channel(lane % 4 * 4 % t::pixel / t::size) {
    DSCORE_UNROLL
    for (int part = 0; part < t::row_halves; part++)
      DSCORE_UNROLL
      for (int half = 0; half < 2; half++) {
        // Held, in place of being computed again for each piece.
        places[part][half] = opaque(t::place(before + (g + half * 8) * Layer::stride_w +
                                             column(part) * Layer::dilation_w) +
                                    first_channel * t::size);
      }
  }
  // Whether the lane's tap of a half of a row is one of the filter's; if not, it reads the first.
  __device__ bool there(int part) const {
    return (part + 1) * t::half_taps <= Layer::kernel_w ||
           part * t::half_taps + tap < Layer::kernel_w;
  }
  __device__ int column(int part) const { return there(part) ? part * t::half_taps + tap : 0; }

  // A word of a filter, which lies in the order of memory.
  __device__ Word filter_word(const T *filter, int number) const {
    if (number >= t::halves) return 0;
    const int row = number / t::row_halves, part = number % t::row_halves;
    Word word = 0;
    DSCORE_UNROLL
    for (int i = 0; i < in_word; i++) {
      const int channel = least(first_channel + i, t::channels - 1);
      const T element =
          filter[channel * Layer::taps + row * Layer::kernel_w + column(part)];
      if (there(part) && first_channel + i < t::channels)
        word |= bits_as<Unsigned>(element) << i * t::size * 8;
    }
    return word;
  }
  using Unsigned = std::conditional_t<t::exact, uint8_t, uint16_t>;

  // A word of a pixel, of the piece that begins at a place of LDS.
  __device__ Word pixel_word(const char *piece, int number, int half) const {
    if (number >= t::halves) return 0;
    const int row = number / t::row_halves, part = number % t::row_halves;
    const auto *from = reinterpret_cast<const Word *>(
        piece + row * Layer::dilation_h * t::row_bytes + places[part][half]);
    // A product of what is not finite and a zero would be no number.
    return t::exact || there(part) ? *from : 0;
  }
  __device__ void multiply(Sum *sums, const Words &filters, const char *piece) const {
    DSCORE_UNROLL
    for (int step = 0; step < t::steps; step++) {
      A pixels;
      DSCORE_UNROLL
      for (int i = 0; i < 4; i++) pixels.words[i] = pixel_word(piece, step * 2 + i / 2, i % 2);
      multiply_step(sums, pixels, filters[step]);
    }
  }
  static __device__ void multiply_step(Sum *sums, const A &pixels,
                                       const Word (&filters)[t::columns][2]) {
    DSCORE_UNROLL
    for (int n = 0; n < t::columns; n++) {
      const B filter{{filters[n][0], filters[n][1]}};
      if constexpr (t::exact) multiply_32(sums + n * 4, pixels, filter);
      else multiply_16(sums + n * 4, pixels, filter);
    }
  }

  // Of a lane's columns the sums of filters, which are products by ones, times x's zero point:
  // those of (x - zero) * w are those of x * w less these. Of floats zeros.
  __device__ void sum_filters(Sum (&of_columns)[t::columns * 2], const Words &filters,
                              int zero) const {
    Sum sums[t::columns * 4] = {};
    if constexpr (t::exact) {
      const A ones{{0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u}};
      DSCORE_UNROLL
      for (int step = 0; step < t::steps; step++) multiply_step(sums, ones, filters[step]);
    }
    DSCORE_UNROLL
    for (int i = 0; i < t::columns * 2; i++)
      of_columns[i] = static_cast<Sum>(zero) * sums[i / 2 * 4 + i % 2];
  }
};

}  // namespace dscore
