// Filters from LDS to registers, in the order of the planes that they are multiplied with
// (plane_gemm/product.hpp).
#pragma once

#include "support/matrix_units.hpp"
#include "support/warpgroups.hpp"

namespace dscore {

// The first operands of the instructions that multiply 8 * apart planes of a step, the `eight`-th
// ones. Along the sum a lane reads what it needs of all of them as vectors.
template <class t>
using PlaneOperands = Word[t::apart / 2][4];
template <class T, class t>
__device__ inline void read_filters(PlaneOperands<t> &words, const unsigned char *filters,
                                    int eight, int thread) {
  const int lane = thread % t::wavefront, first_row = thread / t::wavefront * 16;
  if constexpr (t::along) {
    constexpr int many = 2 * t::apart, vector = least(many, 8);
    const int summed = eight * 8 * t::apart + lane % 4 * many;
    DSCORE_UNROLL
    for (int half = 0; half < 2; half++) {
      const int place = (summed / t::row * t::filter_box + first_row + lane / 4 + half * 8) *
                            swizzled_row + summed % t::row * int{sizeof(T)};
      Word read[many / 2];
      DSCORE_UNROLL
      for (int i = 0; i < many / vector; i++) {
        const auto some = bits_as<Pack<Word, vector / 2>>(
            read_vector<vector>(reinterpret_cast<const T *>(filters + swizzled(place + i * 16))));
        DSCORE_UNROLL
        for (int j = 0; j < vector / 2; j++) read[i * vector / 2 + j] = some.at[j];
      }
      DSCORE_UNROLL
      for (int i = 0; i < t::apart / 2; i++) {
        const Word one = read[i], two = read[i + t::apart / 2];
        words[i][half] = (one & 0xFFFF) | two << 16;
        words[i][2 + half] = one >> 16 | (two & 0xFFFF0000);
      }
    }
  } else {
    DSCORE_UNROLL
    for (int i = 0; i < t::apart / 2; i++) {
      const int summed = t::apart * (eight * 8 + lane % 8) + 2 * i + lane / 16;
      const int row = first_row + lane / 8 % 2 * 8;
      const int place = (row / t::row * t::filter_box + summed) * swizzled_row +
                        row % t::row * int{sizeof(T)};
      read_matrices<4, true>(words[i], reinterpret_cast<const T *>(filters + swizzled(place)));
    }
  }
}

}  // namespace dscore
