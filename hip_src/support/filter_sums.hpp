// Sums of filters of signed bytes in LDS, by which the zero point of x is taken off: the sum of
// (x - zero) * w is that of x * w less zero times that of w.
#pragma once

#include "support/integers.hpp"

namespace dscore {

// Rows of `Bytes`, `Pitch` apart. Each of `Each` threads takes some words of a row, or vectors.
template <int Rows, int Bytes, int Pitch, int Each, int Threads>
struct FilterSums {
  static constexpr int unit = Bytes % 16 == 0 ? 16 : 4, all = Rows * Each;
  static_assert(Bytes % unit == 0 && Pitch % unit == 0, "rows of whole words");
  int sums[ceil_div(all, Threads)] = {};

  __device__ void add(const int8_t *rows, int thread) {
    DSCORE_UNROLL
    for (int i = 0; i < ceil_div(all, Threads); i++) {
      const int at = thread + i * Threads;
      if (all % Threads != 0 && at >= all) continue;
      const int8_t *row = rows + at / Each * Pitch;
      DSCORE_UNROLL_FEW
      for (int k = at % Each * unit; k < Bytes; k += Each * unit) {
        const auto words = *reinterpret_cast<const Pack<Word, unit / 4> *>(row + k);
        DSCORE_UNROLL
        for (int word = 0; word < unit / 4; word++) sums[i] = add_bytes(words.at[word], sums[i]);
      }
    }
  }
  // To LDS, a row's to the place of its number; they are there after a barrier.
  template <class Place>
  __device__ void put(int *lds, int thread, Place place) const {
    DSCORE_UNROLL
    for (int i = 0; i < ceil_div(all, Threads); i++) {
      const int at = thread + i * Threads;
      if (all % Threads != 0 && at >= all) continue;
      lds[at % Each * Rows + place(at / Each)] = sums[i];
    }
  }
  static __device__ int of(const int *lds, int place) {
    int sum = 0;
    DSCORE_UNROLL
    for (int part = 0; part < Each; part++) sum += lds[part * Rows + place];
    return sum;
  }
};

}  // namespace dscore
