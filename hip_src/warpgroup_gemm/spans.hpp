// Rows of a tile that come to LDS as one span, as they lie side by side in memory (warpgroup_gemm/
// product.hpp): lanes read them there, and matrix units take them from registers. Boxes of rows that
// are no multiple of 32 bytes would begin within sectors.
#pragma once

#include "support/matrix_units.hpp"
#include "warpgroup_gemm/shape.hpp"

namespace dscore {

// A warpgroup's rows, of which each has all summed elements.
template <class t>
struct SpanRows {
  static constexpr int depths = t::step / t::depth;
  using Words = Word[depths][4];
  int lane, row;  // the wavefront's first row in its warpgroup

  __device__ explicit SpanRows(int thread)
      : lane(thread % t::wavefront), row(thread % warpgroup_threads / t::wavefront * 16) {}

  // Rows that are `pitch` bytes long. What follows a row is of the next one, and counts as zeros.
  __device__ void read(Words &words, const unsigned char *rows, int pitch) const {
    constexpr int bytes = 32, half = bytes / 2;  // of a row, in an instruction
    DSCORE_UNROLL
    for (int i = 0; i < depths; i++) {
      if (i * bytes >= pitch) continue;
      read_matrices<4, false>(
          words[i], reinterpret_cast<const uint16_t *>(rows + (row + lane % 16) * pitch +
                                                       i * bytes + lane / 16 * half));
    }
    DSCORE_UNROLL
    for (int i = 0; i < depths; i++)
      DSCORE_UNROLL
      for (int j = 0; j < 4; j++)
        if (i * bytes + j / 2 * half >= pitch) words[i][j] = 0;
  }
  // The sums of a tile, by its one step. The buffer is free as soon as its rows are read: columns
  // stay elsewhere, or there is no other tile.
  template <class Products, class Sum, class Meanwhile>
  __device__ void accumulate(const Products &products, Sum *sums, typename Products::Turn &turn,
                             int group, Meanwhile meanwhile) const {
    const int pitch = products.span_bytes(1), stage = turn.stage;
    Words words;
    wait_barrier(products.full + stage, turn.parity);
    read(words, products.lds + stage * t::stage_bytes + group * warpgroup_rows * pitch, pitch);
    products.release(stage);
    order_products();
    products.multiply(sums, words, turn, 0);
    meanwhile(products.columns_at(stage, 0));
    turn.pass();
    wait_products<0>();
  }
};

}  // namespace dscore
