// Rows of x that are multiplied by the scales of their images and channels (warpgroup_gemm/
// product.hpp): lanes read both from LDS, and matrix units take the products from registers.
#pragma once

#include "support/byte_scaling.hpp"
#include "support/matrix_units.hpp"
#include "warpgroup_gemm/shape.hpp"
#include "warpgroup_gemm/spans.hpp"

namespace dscore {

// Scales of elements of 16 bits, and products with them, which are rounded to these.
template <class T>
struct FloatScales {
  using Factors = Pack<T, 2>;
  __device__ Word product(Word two, const Factors &by) const {
    return pair_product<T>(two, bits_as<Word>(by));
  }
};
// Those of bytes, by factors of float16.
struct ByteScales : ByteScaling {
  using Factors = Pack<Word, 2>;
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

// Scales of bytes that a thread reads as a vector.
constexpr int scales_together = 8;
using SeveralScales = Pack<float16, scales_together>;

// Those of a warpgroup's images and all summed elements, from the `at`-th on; zeros of those that
// are none of the tensor's.
template <class t>
__device__ inline SeveralScales scales_from(const ByteScales &scales, int image, int images,
                                            int channels, int at) {
  const int of = at / t::factors, channel = at % t::factors;
  return vector_or_zeros<scales_together>(
      scales.scales + (image + of) * channels + channel,
      at < t::images * t::factors && image + of < images && channel < channels);
}
// Their factors, to LDS.
template <class t>
__device__ inline void write_factors(const ByteScales &scales, unsigned char *lds,
                                     const SeveralScales &read, int at) {
  if (at >= t::images * t::factors) return;
  Pack<Word, scales_together / 2> made;
  DSCORE_UNROLL
  for (int j = 0; j < scales_together; j += 2)
    made.at[j / 2] = scales.factors(read.at[j], read.at[j + 1]);
  write_vector(reinterpret_cast<Word *>(lds + at * static_cast<int>(sizeof(float16))), made);
}

// Threads of a warpgroup: make the factors of its images, of all summed elements, in LDS.
template <class t>
__device__ inline void make_factors(const ByteScales &scales, unsigned char *lds, int image,
                                    int images, int channels, int thread) {
  constexpr int all = t::images * t::factors, of_round = warpgroup_threads * scales_together;
  constexpr int rounds = ceil_div(all, of_round), at_once = least(rounds, 8);
  DSCORE_ROLLED
  for (int first = thread * scales_together; first < all; first += at_once * of_round) {
    SeveralScales read[at_once];
    DSCORE_UNROLL
    for (int i = 0; i < at_once; i++)
      read[i] = scales_from<t>(scales, image, images, channels, first + i * of_round);
    DSCORE_UNROLL
    for (int i = 0; i < at_once; i++)
      write_factors<t>(scales, lds, read[i], first + i * of_round);
  }
}

// A warpgroup's rows. Of each instruction lane 4 g + i has four words: the i-th of row g, the same
// of row g + 8, and those of the second half of the summed elements.
template <class t, class Scales>
struct ScaledRows {
  using Factors = typename Scales::Factors;
  static constexpr int depths = t::step / t::depth, each = t::depth / 8;  // elements in a word
  using Words = Word[depths][4];
  const Scales &scales;
  unsigned char *own;  // factors of bytes
  int images[2];  // of a lane's rows, in the tile, or in the warpgroup's rows
  int group, lane, row;  // the wavefront's first row in its warpgroup

  template <class Products>
  __device__ ScaledRows(const Scales &scales_, const Products &products, int first_m, int group_)
      : scales(scales_), own(products.factors_of_group(group_)), group(group_),
        lane(products.thread % t::wavefront),
        row(products.thread % warpgroup_threads / t::wavefront * wavefront_rows) {
    const auto &s = products.s;
    const int area = image_rows(s), of_group = first_m + group * warpgroup_rows;
    const int image = (t::quantised ? of_group : first_m) / area;
    DSCORE_UNROLL
    for (int half = 0; half < 2; half++)
      // Of rows past the last image's those of that; nobody stores these.
      images[half] = least((of_group + row + lane / 4 + half * 8) / area - image, t::images - 1);
    if constexpr (t::quantised && !t::spans) {
      make_factors<t>(scales, own, image, s.batch, s.in_channels,
                      products.thread % warpgroup_threads);
      warpgroup_barrier<t::groups>(group);
    }
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
    scale(words, factors, t::step);
  }
  // Of a step's elements the first `count`, and those that fill an instruction.
  __device__ void scale(Words &words, const unsigned char *factors, int count) const {
    DSCORE_UNROLL
    for (int i = 0; i < 2 * depths; i++) {
      const int first = i * t::depth / 2;
      if (first - first % t::depth >= count) continue;
      DSCORE_UNROLL
      for (int half = 0; half < 2; half++) {
        Word &word = words[i / 2][i % 2 * 2 + half];
        word = scales.product(word, factors_of(factors, first, images[half]));
      }
    }
  }
  // A lane's factors of some of a step's elements from `first` on.
  __device__ Factors factors_of(const unsigned char *lds, int first, int image) const {
    const int within = first % t::scale_row + lane % 4 * each, size = sizeof(float16);
    const unsigned char *at = lds;
    if constexpr (t::quantised)
      at += (image * t::factors + first + lane % 4 * each) * size;
    else
      at += first / t::scale_row * t::scale_box_bytes + swizzled(image * swizzled_row +
                                                                 within * size);
    return *reinterpret_cast<const Factors *>(at);
  }
  // The sums of a tile's steps: lanes make the rows of the next step while the units multiply.
  template <class Products, class Sum, class Meanwhile>
  __device__ void accumulate(const Products &products, Sum *sums, typename Products::Turn &turn,
                             Meanwhile meanwhile) const {
    Words words[2];
    const auto take = [&](Words &to, const typename Products::Turn &at, int step) {
      wait_barrier(products.full + at.stage, at.parity);
      read(to, products.rows_at(at.stage, group),
           t::quantised ? own + products.summed_of(step) * static_cast<int>(sizeof(float16))
                        : products.lds + at.stage * t::stage_bytes + t::scales_at);
    };
    const auto add = [&](const Words &rows, Words &following, int step) {
      order_products();
      products.multiply(sums, rows, turn, step);
      meanwhile(products.columns_at(turn.stage, step), step);
      auto next = turn;
      next.pass();
      if (step + 1 < products.steps) take(following, next, step + 1);
      wait_products<0>();
      products.release(turn.stage);
      turn = next;
    };
    take(words[0], turn, 0);
    DSCORE_ROLLED
    for (int step = 0; step < products.steps; step += 2) {
      add(words[0], words[1], step);
      if (step + 1 < products.steps) add(words[1], words[0], step + 1);
    }
  }
};

// Scales of a warpgroup's rows that come as a span, which a thread asks for a tile ahead: a vector.
template <class t>
struct ScalesAhead {
  static_assert(t::images * t::factors <= warpgroup_threads * scales_together,
                "a vector of each thread");
  SeveralScales asked;

  template <class Products>
  __device__ void ask(const ByteScales &scales, const Products &products, int first_m) {
    const auto &s = products.s;
    const int image = (first_m + products.group * warpgroup_rows) / image_rows(s);
    asked = scales_from<t>(scales, image, s.batch, s.in_channels, place(products));
  }
  template <class Products>
  __device__ void put(const ByteScales &scales, const Products &products) const {
    write_factors<t>(scales, products.factors_of_group(products.group), asked, place(products));
  }
  // A tile's sums, of scales that have been asked for; asks for those of the block's next tile.
  template <class Products, class Sum>
  __device__ void accumulate(const ByteScales &scales, const Products &products, Sum *sums,
                             typename Products::Turn &turn, int first_m) {
    put(scales, products);
    if (t::repeat > 1) ask(scales, products, first_m + t::blocks_m(products.s) * t::tile_m);
    warpgroup_barrier<t::groups>(products.group);
    const ScaledRows<t, ByteScales> rows(scales, products, first_m, products.group);
    SpanRows<t>(products.thread)
        .accumulate(products, sums, turn, products.group, [&](auto &words, int of_row) {
          rows.scale(words, rows.own, of_row);
        });
  }
  template <class Products>
  static __device__ int place(const Products &products) {
    return products.thread % warpgroup_threads * scales_together;
  }
};

}  // namespace dscore
