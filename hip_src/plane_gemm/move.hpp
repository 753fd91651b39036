// Planes that begin within a vector of 16 bytes, moved to the beginning of their rows in LDS
// (plane_gemm/product.hpp).
#pragma once

#include "support/tensor_copy.hpp"
#include "support/warpgroups.hpp"

namespace dscore {

// Eight elements of sixteen, from element `by` on.
__device__ inline Pack<Word, 4> moved_by(const Pack<Word, 4> &own, const Pack<Word, 4> &next,
                                         int by) {
  Word words[8];
  DSCORE_UNROLL
  for (int i = 0; i < 8; i++) words[i] = i < 4 ? own.at[i] : next.at[i - 4];
  DSCORE_UNROLL
  for (int i = 0; i < 6; i++) words[i] = by & 4 ? words[i + 2] : words[i];
  DSCORE_UNROLL
  for (int i = 0; i < 5; i++) words[i] = by & 2 ? words[i + 1] : words[i];
  Pack<Word, 4> result;
  DSCORE_UNROLL
  for (int i = 0; i < 4; i++)
    result.at[i] = by & 1 ? words[i] >> 16 | words[i + 1] << 16 : words[i];
  return result;
}

// One thread's part of all movers'. Eight lanes move a row, box after box, a wavefront four rows,
// whose planes begin alike. Several such are read before the first is written: one after the other
// they would wait for LDS as often. The first planes of boxes begin where they should.
template <class t>
__device__ inline void move_planes(unsigned char *planes, int area, int thread) {
  constexpr int each = t::wavefront / 8, rows = t::images * t::step, together = 4;
  constexpr int alike = t::images * t::box_rows;
  const int vector = thread % 8, first_row = alike + thread / 8;
  const auto place = [&](int row, int of) {
    const int at = of / 8 * t::column_bytes + swizzled(row * swizzled_row + of % 8 * 16);
    return reinterpret_cast<Word *>(planes + at);
  };
  DSCORE_ROLLED
  for (int first = first_row; first < rows; first += together * t::movers * each) {
    const auto each_row = [&](auto take) {
      DSCORE_UNROLL
      for (int i = 0; i < together; i++)
        if (const int row = first + i * t::movers * each; row < rows) take(i, row);
    };
    DSCORE_UNROLL
    for (int column = 0; column < t::columns; column++) {
      const int of = column * 8 + vector;
      Pack<Word, 4> own[together], next[together];
      each_row([&](int i, int row) {
        own[i] = read_vector<4>(place(row, of));
        next[i] = of + 1 < t::columns * 8 ? read_vector<4>(place(row, of + 1)) : Pack<Word, 4>{};
      });
      wavefront_barrier();
      each_row([&](int i, int row) {
        const int by = row / alike * area % 8;
        write_vector(place(row, of), moved_by(own[i], next[i], by));
      });
    }
  }
}

}  // namespace dscore
