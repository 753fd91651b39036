// Floats that become signed bytes: rounded, clamped and counted from a zero point.
#pragma once

#include "support/halves.hpp"

namespace dscore {

// A product as an integer between bounds, less its zero point, in the lowest bits. It is clamped
// first: the bounds are integers, so that it is the same as to clamp what it is rounded to, and an
// integer has no room for any product. Beside 1.5 * 2^23 floats are integers: the sum with that
// rounds as rint does, to the nearest and of two to the even one, and its lowest bits are the
// integer. No sum follows the product at once that a compiler could contract it with.
__device__ inline int32_t nearest_within(float product, float low, float high) {
  const float clamped = between(product, low, high);
  return bits_as<int32_t>(clamped + 0x1.8p23f);
}

// Two results as float16, whose lowest bits they are: float16 has the integers from 1024 to 2047,
// one beside the other. The rounding adds `added` (1536 and the zero point) to a result, and the
// bounds are those of the sums. What is past float16's range becomes its ends, which are clamped as
// well.
struct HalfPoints {
#if defined(DSCORE_HALVES)
  float added;
  Word low, high;
  static __device__ inline HalfPoints of(float low, float high, float added) {
    return {added, word_of<float16>(low + added, low + added),
            word_of<float16>(high + added, high + added)};
  }
  __device__ inline Word pair(float first, float second) const {
    const Word two = held_halves(nearest_beside(first, added), nearest_beside(second, added));
    return lesser_halves(greater_halves(two, low), high);
  }
#else
  static __device__ inline HalfPoints of(float, float, float) { return {}; }
#endif
};

// The number of a table's entry for a product. That is rounded beside 1.5 * 2^23, and clamped as
// the integer of its bits: in their order are floats of 0 and more, and before them all others.
struct EntryPoints {
  int32_t lowest, added, most;
  // Of bounds that count from the zero point.
  static __device__ inline EntryPoints of(int32_t low, int32_t high, int32_t zero) {
    constexpr int32_t beside_bits = 0x4B400000;
    return {beside_bits + low, zero - beside_bits, high + zero};
  }
  __device__ inline int32_t number(float product) const {
    const auto beside = bits_as<int32_t>(product + 0x1.8p23f);
    return least(greatest(beside, lowest) + added, most);
  }
};

}  // namespace dscore
