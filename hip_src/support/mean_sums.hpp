// Sums of which means are made: of floats, and of bytes in int32 (docs/int8.md).
#pragma once

#include "support/integers.hpp"

namespace dscore {

// What makes the mean of a sum over so many pixels.
template <class T>
struct MeanOfSums {
  using Sum = float;
  float pixels;
  __device__ explicit MeanOfSums(int area) : pixels(static_cast<float>(area)) {}
  __device__ float operator()(float sum) const { return sum / pixels; }
};
// Both numbers come from memory as cold as the images do, and are asked for before these.
template <>
struct MeanOfSums<int8_t> {
  using Sum = int32_t;
  float multiplier;
  int32_t pixels, zero;
  __device__ MeanOfSums(int area, const void *multiplier_, const void *zero_point)
      : multiplier(*static_cast<const float *>(multiplier_)), pixels(area),
        zero(*static_cast<const int32_t *>(zero_point)) {}
  __device__ float operator()(int32_t sum) const {
    return rounded_product(static_cast<float>(sum - pixels * zero), multiplier);
  }
};

// A vector as it is loaded: bytes as words, which compilers would take apart otherwise.
template <class T, int Width>
__device__ inline auto elements_or_zeros(const T *from, bool there) {
  if constexpr (sizeof(T) == 1 && Width % 4 == 0)
    return vector_or_zeros<Width / 4>(reinterpret_cast<const Word *>(from), there);
  else return vector_or_zeros<Width>(from, there);
}

// Adds the elements of a vector to one sum.
template <class T, int Width>
__device__ inline void add_elements(const Pack<T, Width> &read, float &sum) {
  DSCORE_UNROLL
  for (int i = 0; i < Width; i++) sum += static_cast<float>(read.at[i]);
}
template <int Words>
__device__ inline void add_elements(const Pack<Word, Words> &read, int32_t &sum) {
  DSCORE_UNROLL
  for (int i = 0; i < Words; i++) sum = add_bytes(read.at[i], sum);
}
__device__ inline void add_elements(const Pack<int8_t, 1> &read, int32_t &sum) {
  sum += read.at[0];
}

// Adds several vectors to sums, an element to each.
template <class T, int Width, int Count>
__device__ inline void add_each(const Pack<T, Width> (&read)[Count], float (&sums)[Width]) {
  DSCORE_UNROLL
  for (int r = 0; r < Count; r++)
    DSCORE_UNROLL
    for (int i = 0; i < Width; i++) sums[i] += static_cast<float>(read[r].at[i]);
}
template <int Count>
__device__ inline void add_each(const Pack<int8_t, 1> (&read)[Count], int32_t (&sums)[1]) {
  DSCORE_UNROLL
  for (int r = 0; r < Count; r++) sums[0] += read[r].at[0];
}

// Three words as two: the bits that are odd among them, and those that two or three have, which
// count twice. Of numbers in their places, signed ones too, the sum is that of the two.
struct CarrySaved {
  Word odd, twice;
  __device__ CarrySaved(Word a, Word b, Word c)
      : odd(a ^ b ^ c), twice(a & b | a & c | b & c) {}
};

// Of eight words four remain, which count 1, 1, 2 and 4 times; of their columns each is one product
// of four. So a word takes two and a half instructions; turned as it is it takes three.
template <int Words>
__device__ inline void add_each(const Pack<Word, Words> (&read)[8], int32_t (&sums)[4 * Words]) {
  constexpr Word times = 0x04020101u;
  DSCORE_UNROLL
  for (int i = 0; i < Words; i++) {
    const CarrySaved first(read[0].at[i], read[1].at[i], read[2].at[i]);
    const CarrySaved second(read[3].at[i], read[4].at[i], read[5].at[i]);
    const CarrySaved third(first.odd, second.odd, read[6].at[i]);
    const CarrySaved fourth(first.twice, second.twice, third.twice);
    Word rows[4] = {read[7].at[i], third.odd, fourth.odd, fourth.twice};
    transpose_bytes(rows);
    DSCORE_UNROLL
    for (int k = 0; k < 4; k++) sums[4 * i + k] = dot4(rows[k], times, sums[4 * i + k]);
  }
}

// Adds the sums of lanes that are multiples of Least apart, up to By: each hands half of its Count
// sums to the other, while there are two. The first of those that it keeps. (Of `sums` themselves
// clang would choose places, and so keep all of them in memory.)
template <int By, int Least, int Count, class Sum, int Width>
__device__ inline int join_lanes(Sum (&sums)[Width]) {
  if constexpr (By < Least) {
    return 0;
  } else if constexpr (Count == 1) {
    sums[0] += DSCORE_SHFL_XOR(sums[0], By);
    return join_lanes<By / 2, Least, 1>(sums);
  } else {
    constexpr int half = Count / 2;
    const bool upper = threadIdx.x & By;
    DSCORE_UNROLL
    for (int i = 0; i < half; i++) {
      const Sum low = sums[i], high = sums[half + i];
      sums[i] = (upper ? high : low) + DSCORE_SHFL_XOR(upper ? low : high, By);
    }
    return (upper ? half : 0) + join_lanes<By / 2, Least, half>(sums);
  }
}

}  // namespace dscore
