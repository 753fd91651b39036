// Floats that become signed bytes: rounded, clamped and counted from a zero point.
#pragma once

#include "support/integers.hpp"

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

// Two results as float16, of which the lowest bits are theirs: integers beside 1024 or 1536 are
// whole places of it. What is added to them comes with the rounding, so that bounds are of the
// sums; these differ from the zero point by less than 1024, so that float16 has them. What is past
// its range becomes its ends, and is clamped as well.
struct HalfPoints {
#if defined(DSCORE_HALVES)
  float added;
  Word low, high;
  static __device__ inline HalfPoints of(float low, float high, float added) {
    return {added, word_of<float16>(low + added, low + added),
            word_of<float16>(high + added, high + added)};
  }
  __device__ inline Word pair(float first, float second) const {
    return within(held_halves(nearest_beside(first, added), nearest_beside(second, added)));
  }
  __device__ inline Word within(Word two) const {
    return lesser_halves(greater_halves(two, low), high);
  }
#else
  static __device__ inline HalfPoints of(float, float, float) { return {}; }
#endif
};

}  // namespace dscore
