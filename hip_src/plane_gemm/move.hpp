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

// One lane's vectors of a row: eight lanes move it, box after box.
template <class t>
__device__ inline void move_row(unsigned char *planes, int row, int vector, int by) {
  const auto place = [&](int of) {
    const int at = of / 8 * t::column_bytes + swizzled(row * swizzled_row + of % 8 * 16);
    return reinterpret_cast<Word *>(planes + at);
  };
  DSCORE_UNROLL
  for (int column = 0; column < t::columns; column++) {
    const int of = column * 8 + vector;
    const auto own = read_vector<4>(place(of));
    Pack<Word, 4> next{};
    if (of + 1 < t::columns * 8) next = read_vector<4>(place(of + 1));
    wavefront_barrier();
    write_vector(place(of), moved_by(own, next, by));
  }
}

// One thread's part of all movers': a wavefront moves four rows, whose planes begin alike.
template <class t>
__device__ inline void move_planes(unsigned char *planes, int area, int thread) {
  constexpr int each = t::wavefront / 8;
  DSCORE_UNROLL_FEW
  for (int row = thread / t::wavefront * each; row < t::images * t::step;
       row += t::movers * each) {
    const int by = row / (t::images * t::box_rows) * area % 8;
    if (by != 0) move_row<t>(planes, row + thread % t::wavefront / 8, thread % 8, by);
  }
}

}  // namespace dscore
