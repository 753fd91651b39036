// Rows of a tile that come to LDS as one span, as they lie side by side in memory
// (warpgroup_gemm/product.hpp): lanes read them there, and matrix units take them from registers.
// Boxes of rows that are no multiple of 32 bytes would begin within sectors.
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
      : lane(thread % t::wavefront),
        row(thread % warpgroup_threads / t::wavefront * wavefront_rows) {}

  // Rows that are `pitch` bytes long. What follows a row is of the next one, and its filters are
  // zeros; of floats, which may be infinite there, it counts as zeros. Rows of bytes that begin
  // within vectors are read by words.
  __device__ void read(Words &words, const unsigned char *rows, int pitch) const {
    constexpr int bytes = 32, half = bytes / 2;  // of a row, in an instruction
    const bool vectors = pitch % half == 0;
    DSCORE_UNROLL
    for (int i = 0; i < depths; i++) {
      if (i * bytes >= pitch) continue;
      reads_for_product(rows + (row + lane % 16) * pitch + i * bytes,
                        least(bytes, pitch - i * bytes));
      if (vectors)
        read_matrices<4, false>(
            words[i], reinterpret_cast<const uint16_t *>(rows + (row + lane % 16) * pitch +
                                                         i * bytes + lane / 16 * half));
      else
        DSCORE_UNROLL
        for (int j = 0; j < 4; j++)
          words[i][j] = *reinterpret_cast<const Word *>(
              rows + (row + lane / 4 + j % 2 * 8) * pitch + i * bytes + j / 2 * half +
              lane % 4 * 4);
    }
    DSCORE_UNROLL
    for (int i = 0; i < depths; i++)
      DSCORE_UNROLL
      for (int j = 0; j < 4; j++)
        if (i * bytes + (t::quantised ? 0 : j / 2 * half) >= pitch) words[i][j] = 0;
  }
  // The sums of a tile, by its one step. The buffer is let go once the units have had its rows:
  // before that nothing says that they have come to registers, as a wavefront does not wait for
  // what it reads from LDS before it arrives at a barrier. change(words, bytes of a row) makes the
  // rows what is multiplied.
  template <class Products, class Sum, class Change>
  __device__ void accumulate(const Products &products, Sum *sums, typename Products::Turn &turn,
                             int group, Change change) const {
    const int pitch = products.span_bytes(1), stage = turn.stage;
    Words words;
    wait_barrier(products.full + stage, turn.parity);
    read(words, products.lds + stage * t::stage_bytes + group * warpgroup_rows * pitch, pitch);
    change(words, pitch);
    order_products();
    products.multiply(sums, words, turn, 0);
    turn.pass();
    wait_products<0>();
    products.release(stage);
  }
};

// Bytes of filters to LDS, for all tiles of a block, by all threads of its warpgroups: rows that
// are no multiple of 16 bytes have no map. The zeros beside them count in the sums of columns.
template <class t>
__device__ inline void bring_columns(unsigned char *lds, const int8_t *filters, int columns,
                                     int pitch, int thread) {
  constexpr int vector = 16, half = vector / 2, of_row = t::step / vector;
  constexpr int all = t::tile_n * of_row;
  // Vectors that a thread asks for before it waits for the first of them.
  constexpr int at_once = least(ceil_div(all, t::consumers), 4);
  DSCORE_UNROLL_FEW
  for (int first = thread; first < all; first += at_once * t::consumers) {
    Pack<Word, 2> halves[at_once][2] = {};
    DSCORE_UNROLL
    for (int i = 0; i < at_once; i++)
      DSCORE_UNROLL
      for (int j = 0; j < 2; j++) {
        const int at = first + i * t::consumers, column = at / of_row;
        const int k = at % of_row * vector + j * half;
        if (column < least(columns, t::tile_n) && k < pitch)
          halves[i][j] = read_vector<2>(
              reinterpret_cast<const Word *>(filters + column * pitch + k));
      }
    DSCORE_UNROLL
    for (int i = 0; i < at_once; i++) {
      const int at = first + i * t::consumers, column = at / of_row, k = at % of_row * vector;
      if (at >= all) continue;
      unsigned char *to = lds + k / swizzled_row * t::box_b * swizzled_row;
      const int place = t::row_of(column) * swizzled_row + k % swizzled_row;
      const auto &two = halves[i];
      write_vector(reinterpret_cast<Word *>(to + swizzled(place)),
                   Pack<Word, 4>{{two[0].at[0], two[0].at[1], two[1].at[0], two[1].at[1]}});
    }
  }
}

}  // namespace dscore
