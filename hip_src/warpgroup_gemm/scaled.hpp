// Rows of x that are multiplied by the scales of their images and channels (warpgroup_gemm/
// product.hpp): lanes read both from LDS, and matrix units take the products from registers.
#pragma once

#include "support/matrix_units.hpp"
#include "support/requantised.hpp"
#include "warpgroup_gemm/shape.hpp"

namespace dscore {

// Scales of elements of 16 bits, and products with them, which are rounded to these.
template <class T>
struct FloatScales {
  using Scale = T;
  using Factors = Word;
  __device__ Word factors(const Pack<T, 2> &of) const { return bits_as<Word>(of); }
  __device__ Word product(Word two, Word by) const { return pair_product<T>(two, by); }
};
// Those of bytes.
struct ByteScales : ByteScaling {
  using Scale = float;
  using Factors = Pack<Word, 2>;
  __device__ Factors factors(const Pack<float, 4> &of) const {
    return {{ByteScaling::factors(of.at[0], of.at[1]), ByteScaling::factors(of.at[2], of.at[3])}};
  }
  __device__ Word product(Word four, const Factors &by) const { return apply(four, by); }
};
struct NoScales {};

// Rows that are pixels of one image.
template <class Shape>
__device__ inline int image_rows(const Shape &s) {
  return s.out_height * s.out_width;
}

// One thread: asks for the scales of a step's channels, from the first image of a tile on. Those of
// no channel or image are zeros, as are the elements.
template <class t>
__device__ inline void copy_scales(TransferBarrier *barrier, unsigned char *stage,
                                   const TensorMap &map, int channel, int image) {
  DSCORE_UNROLL
  for (int i = 0; i < t::scale_boxes; i++)
    load_box(barrier, stage + t::scales_at + i * t::scale_box_bytes, map,
             {channel + i * t::scale_row, image});
}

// A warpgroup's rows. Of each instruction lane 4 g + i has four words: the i-th of row g, the same
// of row g + 8, and those of the second half of the summed elements.
template <class t, class Scales>
struct ScaledRows {
  using Scale = typename Scales::Scale;
  static constexpr int depths = t::step / t::depth, each = t::depth / 8;  // elements in a word
  using Words = Word[depths][4];
  const Scales &scales;
  int images[2];  // of a lane's rows, in the tile
  int group, lane, row;  // the wavefront's first row in its warpgroup

  template <class Shape>
  __device__ ScaledRows(const Scales &scales_, const Shape &s, int first_m, int group_, int thread)
      : scales(scales_), group(group_), lane(thread % t::wavefront),
        row(thread % warpgroup_threads / t::wavefront * 16) {
    const int first = first_m + group * warpgroup_rows + row + lane / 4, area = image_rows(s);
    DSCORE_UNROLL
    for (int half = 0; half < 2; half++)
      // Of rows past the last image's those of that; nobody stores these.
      images[half] = least((first + half * 8) / area - first_m / area, t::images - 1);
  }
  // Those of a step, from its rows and its scales in LDS.
  __device__ void read(Words &words, const unsigned char *rows,
                       const unsigned char *factors) const {
    DSCORE_UNROLL
    for (int i = 0; i < depths; i++) {
      constexpr int bytes = 32;  // of a row, in an instruction
      const int box = i * bytes / swizzled_row * t::box_a;
      reads_for_product(rows + (box + row + lane % 16) * swizzled_row, swizzled_row);
      read_matrices<4, false>(
          words[i], reinterpret_cast<const uint16_t *>(
                        rows + swizzled((box + row + lane % 16) * swizzled_row +
                                        i * bytes % swizzled_row + lane / 16 * 16)));
    }
    DSCORE_UNROLL
    for (int i = 0; i < 2 * depths; i++) {
      const int first = i * t::depth / 2;
      DSCORE_UNROLL
      for (int half = 0; half < 2; half++) {
        Word &word = words[i / 2][i % 2 * 2 + half];
        word = scales.product(word, factors_of(factors, first, images[half]));
      }
    }
  }
  // A lane's factors of some summed elements from `first` on.
  __device__ auto factors_of(const unsigned char *lds, int first, int image) const {
    const int place = image * swizzled_row +
                      (first % t::scale_row + lane % 4 * each) * static_cast<int>(sizeof(Scale));
    return scales.factors(read_vector<each>(reinterpret_cast<const Scale *>(
        lds + first / t::scale_row * t::scale_box_bytes + swizzled(place))));
  }
  // The sums of a tile's steps: lanes make the rows of the next step while the units multiply.
  template <class Products, class Sum, class Meanwhile>
  __device__ void accumulate(const Products &products, Sum *sums, typename Products::Turn &turn,
                             Meanwhile meanwhile) const {
    Words words[2];
    const auto take = [&](Words &to, const typename Products::Turn &at) {
      wait_barrier(products.full + at.stage, at.parity);
      read(to, products.rows_at(at.stage, group),
           products.lds + at.stage * t::stage_bytes + t::scales_at);
    };
    const auto add = [&](const Words &rows, Words &following, int step) {
      order_products();
      products.multiply(sums, rows, turn, step);
      meanwhile(products.columns_at(turn.stage, step));
      auto next = turn;
      next.pass();
      if (step + 1 < products.steps) take(following, next);
      wait_products<0>();
      products.release(turn.stage);
      turn = next;
    };
    take(words[0], turn);
    DSCORE_ROLLED
    for (int step = 0; step < products.steps; step += 2) {
      add(words[0], words[1], step);
      if (step + 1 < products.steps) add(words[1], words[0], step + 1);
    }
  }
};

}  // namespace dscore
