// Products of signed bytes by warpgroups (warpgroup_gemm/product.hpp): what x's zero point takes
// off their sums, and how results leave. The sum of (x - zero) * w is that of x * w less zero times
// that of w.
#pragma once

#include "support/requantised.hpp"
#include "support/warpgroups.hpp"

namespace dscore {

// Sums of each column's elements. A thread of a warpgroup has one of every 128 columns, and adds
// what a step has of it, while the matrix units multiply the same.
template <class t>
struct ColumnSums {
  static constexpr int each = ceil_div(t::tile_n, warpgroup_threads);
  int at[each] = {};

  template <class Take>
  static __device__ void each_column(int thread, Take take) {
    DSCORE_UNROLL
    for (int i = 0; i < each; i++) {
      const int column = i * warpgroup_threads + thread;
      if (t::tile_n % warpgroup_threads == 0 || column < t::tile_n) take(i, column);
    }
  }
  __device__ void add(const unsigned char *columns, int thread) {
    constexpr int of_row = swizzled_row / 16;
    each_column(thread, [&](int i, int column) {
      DSCORE_UNROLL_FEW
      for (int vector = 0; vector < t::step / 16; vector++) {
        const int place = (vector / of_row * t::box_b + column) * swizzled_row +
                          vector % of_row * 16;
        const auto words =
            read_vector<4>(reinterpret_cast<const Word *>(columns + swizzled(place)));
        DSCORE_UNROLL
        for (int word = 0; word < 4; word++) at[i] = add_bytes(words.at[word], at[i]);
      }
    });
  }
  // To LDS, where they are after a barrier.
  __device__ void put(int *lds, int thread) const {
    each_column(thread, [&](int i, int column) { lds[column] = at[i]; });
  }
};

// Takes zero times two columns' sums off what is added to sums of products.
__device__ inline void take_off(Channels<2> &beside, const int *column_sums, int zero) {
  const auto sums = read_vector<2>(column_sums);
  DSCORE_UNROLL
  for (int i = 0; i < 2; i++)
    beside.biases[i] = static_cast<int32_t>(static_cast<uint32_t>(beside.biases[i]) -
                                            static_cast<uint32_t>(zero) *
                                                static_cast<uint32_t>(sums.at[i]));
}

// Rows of results from LDS to `out`, `pitch` apart there, by vectors: of `rows` and `columns` left
// what a tile has.
template <class t, class Result>
__device__ inline void store_rows(Result *out, const unsigned char *results, int rows, int columns,
                                  int pitch, int thread) {
  constexpr int vector = 16 / static_cast<int>(sizeof(Result)), of_row = t::tile_n / vector;
  DSCORE_UNROLL_FEW
  for (int at = thread; at < warpgroup_rows * of_row; at += warpgroup_threads) {
    const int row = at / of_row, column = at % of_row * vector;
    if (row >= rows || column >= columns) continue;
    const unsigned char *from = results + row * t::result_pitch + column * int{sizeof(Result)};
    write_vector(out + row * pitch + column,
                 read_vector<vector>(reinterpret_cast<const Result *>(from)));
  }
}

}  // namespace dscore
