// How the taps of filters of int8 lie in words of four (channel_vectors/integer_walk.hpp).
#pragma once

#include "support/vendor.hpp"

namespace dscore {

// Words that a written column needs of a row: `words` of four columns, `dilation_w` apart. Where
// one tap of a filter row is left for the last, two rows share it: it has two columns of the row
// before and of this one, as an odd column needs both, and filter rows are taken by pairs. Of an
// odd number of them the last is paired with zeros.
template <class L, class Columns, int ThreadW>
struct RowWords {
  static constexpr int words = ceil_div(L::kernel_w, 4);
  // An odd column takes the words that begin a column before, with its taps a byte further on,
  // where it then needs no more of them.
  static constexpr bool shared = L::dilation_w == 1 && ceil_div(L::kernel_w + 1, 4) == words;

  static constexpr __host__ __device__ int phase(int c) {
    return shared ? Columns::position(c, 0) % 2 : 0;
  }
  static constexpr __host__ __device__ int begin(int c, int word) {
    return Columns::position(c, 0) - phase(c) + word * 4 * L::dilation_w;
  }
  static constexpr int phases = ThreadW > 1 && phase(1) == 1 ? 2 : 1;
  static constexpr bool paired = words > 1 && L::kernel_w % 4 == 1 && L::kernel_h > 1 &&
                                 L::dilation_w == 1 && L::dilation_h == 1;
  // Words of a row by itself, and pairs of filter rows.
  static constexpr int whole = words - paired, pairs = paired ? ceil_div(L::kernel_h, 2) : 0;
  // Whether a filter row is the second of a pair.
  static constexpr __host__ __device__ bool ends_pair(int f) {
    return paired && (f % 2 == 1 || f == L::kernel_h - 1);
  }
};

}  // namespace dscore
