// Floats that become signed bytes: rounded, clamped and counted from a zero point.
#pragma once

#include "support/halves.hpp"

namespace dscore {

// Entries of a table, of a byte each: the numbers that results have in it.
constexpr int table_entries = 1024;

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
// well. Bounds count from the zero point here and below.
struct HalfPoints {
#if defined(DSCORE_HALVES)
  static constexpr int32_t beside = 1536;
  float added;
  Word low, high;
  static __device__ inline HalfPoints of(int32_t low, int32_t high, int32_t zero) {
    const int32_t added = zero + beside;
    return {static_cast<float>(added), twice(low + added), twice(high + added)};
  }
  static __device__ inline Word twice(int32_t integer) {
    return word_of<float16>(static_cast<float>(integer), static_cast<float>(integer));
  }
  __device__ inline Word pair(float first, float second) const {
    const Word two = held_halves(nearest_beside(first, added), nearest_beside(second, added));
    return lesser_halves(greater_halves(two, low), high);
  }
#else
  static __device__ inline HalfPoints of(int32_t, int32_t, int32_t) { return {}; }
#endif
};

// The number of a table's entry for a product. That is rounded beside 1.5 * 2^23, and clamped as
// the integer of its bits: in their order are floats of 0 and more, and before them all others.
struct BesideEntries {
  static constexpr int32_t beside_bits = 0x4B400000;
  int32_t added;
  static __device__ inline BesideEntries of(int32_t zero) { return {zero - beside_bits}; }
  __device__ inline int32_t number(float product) const {
    const auto beside = bits_as<int32_t>(product + 0x1.8p23f);
    return least(greatest(beside, -added) + added, table_entries - 1);
  }
};

#if defined(DSCORE_CLAMPED_SUMS)
// Integers of floats by one multiply-add each. The least floats are the multiples of 2^-149, and
// their bits are the multiple: so a product times 2^-149 is rounded as rint rounds it, and its bits
// are the integer. What is less than 0 becomes 0, and what is far past all bounds stays so. The
// integer that is added is even, so that of two nearest ones the even one stays even.
struct NearestIntegers {
#if defined(DSCORE_HOST)  // whose program may take such floats for 0, as PyTorch can be told to
  double even;
  static NearestIntegers beside(int32_t even) { return {static_cast<double>(even)}; }
  int32_t of(float product) const {
    constexpr double most = 0x1p30;
    const double nearest = __builtin_rint(product + even);
    return nearest > 0 ? static_cast<int32_t>(nearest < most ? nearest : most) : 0;
  }
#else
  float even;
  static __device__ inline NearestIntegers beside(int32_t even) {
    return {static_cast<float>(even) * 0x1p-149f};
  }
  __device__ inline int32_t of(float product) const {
    float made;
    asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(made) : "f"(product), "f"(0x1p-149f), "f"(even));
    return bits_as<int32_t>(made);
  }
#endif
};

// Two results in the halves of a word, whose lowest bytes they are. An integer counts from the
// lower bound, or from one less than an odd bound, so that what is added stays even.
struct ShortPoints {
  NearestIntegers integers;
  Word less, most, lowest;
  static __device__ inline ShortPoints of(int32_t low, int32_t high, int32_t zero) {
    const int32_t odd = low & 1;
    return {NearestIntegers::beside(odd - low), twice(-odd), twice(high - low),
            twice((low + zero) & 0xFF)};
  }
  static __device__ inline Word twice(int32_t integer) {
    return static_cast<Word>(integer & 0xFFFF) * 0x10001u;
  }
  __device__ inline Word pair(float first, float second) const {
    const Word two = held_shorts(integers.of(first), integers.of(second));
    return clamped_sums(two, less, most) + lowest;
  }
};

// The number of a table's entry for a product, in the same way.
struct ShortEntries {
  NearestIntegers integers;
  int32_t less;
  static __device__ inline ShortEntries of(int32_t zero) {
    const int32_t odd = zero & 1;
    return {NearestIntegers::beside(zero + odd), -odd};
  }
  __device__ inline int32_t number(float product) const {
    return clamped_sum(integers.of(product), less, table_entries - 1);
  }
};
using PairPoints = ShortPoints;
using EntryPoints = ShortEntries;
#else
using PairPoints = HalfPoints;
using EntryPoints = BesideEntries;
#endif

// Products as signed bytes between two bounds, of which one may be the zero point.
struct ByteRange {
  int32_t zero;
  float low, high;  // less the zero point
  PairPoints pairs;
  static __device__ inline ByteRange of(int32_t low, int32_t high, int32_t zero) {
    return {zero, static_cast<float>(low - zero), static_cast<float>(high - zero),
            PairPoints::of(low - zero, high - zero, zero)};
  }
  // Whose lowest byte is the result.
  __device__ inline int32_t integer(float product) const {
    return nearest_within(product, low, high) + zero;
  }
  template <int Count, class ProductOf>
  __device__ inline Pack<int8_t, Count> bytes(ProductOf product_of) const {
#if defined(DSCORE_HALVES)
    if constexpr (Count % 2 == 0) {
      Word two[Count / 2];
      DSCORE_UNROLL
      for (int i = 0; i < Count / 2; i++)
        two[i] = pairs.pair(product_of(2 * i), product_of(2 * i + 1));
      return lowest_bytes<Count>(two);
    } else
#endif
    {
      int32_t integers[Count];
      DSCORE_UNROLL
      for (int i = 0; i < Count; i++) integers[i] = integer(product_of(i));
      return lowest_bytes<Count>(integers);
    }
  }
};

}  // namespace dscore
