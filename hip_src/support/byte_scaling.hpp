// Bytes by a scale of their image and channel: bytes again (docs/int8.md).
#pragma once

#include "support/rounded_bytes.hpp"

namespace dscore {

// What makes x of the given integers, by a factor for each image and channel: of float16, so that
// its product with a difference of two bytes is exact. The scales that factors are made of are of
// float16, too.
struct ByteScaling {
  const float16 *scales;
  float multiplier, low, high;
  int32_t from, to;
  Word least_two, most_two;  // both bounds beside 1536, twice
  Word to_bytes;  // added to the bits of results beside 1536, it leaves these and 128, twice
  Word zero;  // added to bytes beside 1024, two of them, it leaves their distances from `from`

  __device__ inline ByteScaling(const float16 *scales_, float multiplier_, int32_t from_,
                                int32_t to_)
      : scales(scales_), multiplier(multiplier_), low(static_cast<float>(-128 - to_)),
        high(static_cast<float>(127 - to_)), from(from_), to(to_),
        least_two(twice(beside + low)), most_two(twice(beside + high)),
        to_bytes((static_cast<Word>(to_ + 128 - beside_bits) & 0xFFFF) * 0x10001u),
        zero(twice(-1024.0f - 128.0f - static_cast<float>(from_))) {}

  // Factors of two channels by their scales.
  __device__ inline Word factors(float16 first, float16 second) const {
    return held_halves(static_cast<float>(first) * multiplier,
                       static_cast<float>(second) * multiplier);
  }
  __device__ inline int8_t apply(int8_t given, float factor) const {
    const float product = static_cast<float>(given - from) * factor;
    return static_cast<int8_t>(nearest_within(product, low, high) + to);
  }
  __device__ inline int8_t scaled(int8_t given, float16 scale) const {
    return apply(given, half_of(factors(scale, scale), 0));
  }
  // Four bytes by the factors of each two.
  __device__ inline Word apply(Word four, const Pack<Word, 2> &by) const {
#if defined(DSCORE_HALVES)
    // A byte and 128 is the lower byte of a float16 from 1024 on. Beside 1536 float16 are integers,
    // of which the lower bytes are the results.
    const Word bytes = four ^ 0x80808080u, of_1024 = 0x64646464u;
    Word pairs[2] = {permuted(bytes, of_1024, selector(0, 4, 1, 4)),
                     permuted(bytes, of_1024, selector(2, 4, 3, 4))};
#if defined(DSCORE_CLAMPED_SUMS)
    // The bits of float16 that are not negative are in the order of their numbers, so that integers
    // of 16 bits clamp what is past either bound.
    DSCORE_UNROLL
    for (int i = 0; i < 2; i++)
      pairs[i] = clamped_sums(positive_fused_halves(sum_of_halves(pairs[i], zero), by.at[i],
                                                    twice(beside)), to_bytes, 0x00FF00FFu);
    return bits_as<Word>(lowest_bytes<4>(pairs)) ^ 0x80808080u;
#else
    DSCORE_UNROLL
    for (int i = 0; i < 2; i++)
      pairs[i] = within(fused_halves(sum_of_halves(pairs[i], zero), by.at[i], twice(beside)));
    return bits_as<Word>(lowest_bytes<4>(pairs));
#endif
#else
    auto bytes = bits_as<Pack<int8_t, 4>>(four);
    DSCORE_UNROLL
    for (int i = 0; i < 4; i++) bytes.at[i] = apply(bytes.at[i], half_of(by.at[i / 2], i % 2));
    return bits_as<Word>(bytes);
#endif
  }
  // Bytes side by side, each by the scale of its channel.
  template <int Count, class ScaleOf>
  __device__ inline Pack<int8_t, Count> scaled(Pack<int8_t, Count> given, ScaleOf scale_of) const {
    if constexpr (Count % 4 == 0) {
      auto words = bits_as<Pack<Word, Count / 4>>(given);
      DSCORE_UNROLL
      for (int i = 0; i < Count; i += 4)
        words.at[i / 4] = apply(words.at[i / 4], {{factors(scale_of(i), scale_of(i + 1)),
                                                   factors(scale_of(i + 2), scale_of(i + 3))}});
      return bits_as<Pack<int8_t, Count>>(words);
    } else {
      DSCORE_UNROLL
      for (int i = 0; i < Count; i++) given.at[i] = scaled(given.at[i], scale_of(i));
      return given;
    }
  }

 private:
  static constexpr float beside = 1536.0f;
  static constexpr int beside_bits = 0x6600;
#if defined(DSCORE_HALVES)
  __device__ inline Word within(Word two) const {
    return sum_of_halves(lesser_halves(greater_halves(two, least_two), most_two),
                         twice(static_cast<float>(to)));
  }
#endif
  static __device__ inline Word twice(float value) { return word_of<float16>(value, value); }
};

}  // namespace dscore
