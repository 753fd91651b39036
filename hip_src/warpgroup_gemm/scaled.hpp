// Rows of x that are multiplied by the scales of their images and channels (warpgroup_gemm/
// product.hpp): lanes read them from LDS, and matrix units take them from registers.
#pragma once

#include "support/matrix_units.hpp"
#include "warpgroup_gemm/shape.hpp"

namespace dscore {

// Scales of elements of 16 bits, and products with them, which are rounded to these.
template <class T>
struct FloatScales {
  using Scale = T;
  const T *scales;
  __device__ Word product(Word two, const Pack<T, 2> &by) const {
    const auto given = bits_as<Pack<T, 2>>(two);
    float products[2];
    DSCORE_UNROLL
    for (int i = 0; i < 2; i++)
      products[i] = static_cast<float>(given.at[i]) * static_cast<float>(by.at[i]);
    return bits_as<Word>(rounded<T, 2>(products));
  }
};
// Those of bytes (Scaling in support/requantised.hpp).
template <class Scaling>
struct ByteScales : Scaling {
  using Scale = float;
  __device__ Word product(Word four, const Pack<float, 4> &by) const {
    auto bytes = bits_as<Pack<int8_t, 4>>(four);
    DSCORE_UNROLL
    for (int i = 0; i < 4; i++) bytes.at[i] = this->apply(bytes.at[i], this->factor(by.at[i]));
    return bits_as<Word>(bytes);
  }
};

struct NoScales {};

// A step's rows of a warpgroup. Of each instruction lane 4 g + i has four words: the i-th of row g,
// the same of row g + 8, and those of the second half of the summed elements. Scales are asked for
// a step ahead, and are zero past the last channel.
template <class t, class Scales>
struct ScaledRows {
  using Scale = typename Scales::Scale;
  static constexpr int depths = t::step / t::depth, each = t::depth / 8;  // elements in a word
  Word words[depths][4];
  Pack<Scale, each> factors[depths][4];
  Scales scales;
  int of_row[2];  // where those of a lane's rows begin
  int wave, lane, channels;

  template <class Shape>
  __device__ ScaledRows(const Scales &scales_, const Shape &s, int rows, int channels_,
                        int first_row, int thread)
      : scales(scales_), wave(thread % warpgroup_threads / t::wavefront),
        lane(thread % t::wavefront), channels(channels_) {
    DSCORE_UNROLL
    for (int half = 0; half < 2; half++) {
      const int row = least(first_row + wave * 16 + lane / 4 + half * 8, rows - 1);
      of_row[half] = row / (s.out_height * s.out_width) * channels;
    }
  }
  // Asks for the scales of the channels from `first` on.
  __device__ void ask(int first) {
    DSCORE_UNROLL
    for (int i = 0; i < depths; i++)
      DSCORE_UNROLL
      for (int j = 0; j < 4; j++) {
        const int channel = first + i * t::depth + j / 2 * t::depth / 2 + lane % 4 * each;
        if (channel < channels)
          factors[i][j] = read_vector<each>(scales.scales + of_row[j % 2] + channel);
        else factors[i][j] = {};
      }
  }
  // From where a warpgroup's rows begin in LDS.
  __device__ void read(const unsigned char *rows) {
    DSCORE_UNROLL
    for (int i = 0; i < depths; i++) {
      constexpr int bytes = 32;  // of a row, in an instruction
      const int k = i * t::depth;
      const int place = (k / t::row * t::box_a + wave * 16 + lane % 16) * swizzled_row +
                        i * bytes % swizzled_row + lane / 16 * 16;
      read_matrices<4, false>(words[i],
                              reinterpret_cast<const uint16_t *>(rows + swizzled(place)));
      DSCORE_UNROLL
      for (int j = 0; j < 4; j++) words[i][j] = scales.product(words[i][j], factors[i][j]);
    }
  }
  // The sums of a tile's steps, as of rows that are not scaled.
  template <class Products, class Sum, class Meanwhile>
  __device__ void accumulate(const Products &products, Sum *sums, typename Products::Turn &turn,
                             int group, Meanwhile meanwhile) {
    ask(products.summed_of(0));
    DSCORE_ROLLED
    for (int step = 0; step < products.steps; step++) {
      wait_barrier(products.full + turn.stage, turn.parity);
      read(products.rows_at(turn.stage, group));
      order_products();
      products.multiply(sums, *this, turn, step);
      if (step + 1 < products.steps) ask(products.summed_of(step + 1));
      meanwhile(products.columns_at(turn.stage, step));
      wait_products<0>();
      products.release(turn.stage);
      turn.pass();
    }
  }
};

}  // namespace dscore
