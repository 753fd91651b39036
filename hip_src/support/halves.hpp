// Two float16 in a word: what is done to both at once, and their bits as integers of 16 bits.
#pragma once

#include "support/integers.hpp"

namespace dscore {

// Where integers of two results are clamped and become bytes in the halves of a word, as float16
// has them: fewer instructions than for each by itself. AMD's clamp a float by one.
#if defined(DSCORE_HOST) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800)
#define DSCORE_HALVES
#endif

// The first or the second float16 of a word.
__device__ inline float half_of(Word word, int at) {
  return static_cast<float>(bits_as<float16>(static_cast<uint16_t>(word >> 16 * at)));
}
// Two floats as float16, the first in the lower half; what is past its range as its ends.
__device__ inline Word held_halves(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  Word made;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(made) : "f"(second), "f"(first));
  return made;
#else
  constexpr float most = 65504.0f;
  return word_of<float16>(between(first, -most, most), between(second, -most, most));
#endif
}

// Two numbers of float16 and two others: the greater of each pair, the lesser, the sum; their
// products and a third two, rounded once, and zero where that would be less. Of their bits as
// integers: sums that wrap, no less than zero and no more than a third two.
#if defined(DSCORE_HOST)
template <class Take>
inline Word each_half(Word a, Word b, Take take) {
  return word_of<float16>(take(half_of(a, 0), half_of(b, 0)), take(half_of(a, 1), half_of(b, 1)));
}
inline Word greater_halves(Word a, Word b) {
  return each_half(a, b, [](float of_a, float of_b) { return fmaxf(of_a, of_b); });
}
inline Word lesser_halves(Word a, Word b) {
  return each_half(a, b, [](float of_a, float of_b) { return fminf(of_a, of_b); });
}
inline Word sum_of_halves(Word a, Word b) {
  return each_half(a, b, [](float of_a, float of_b) { return of_a + of_b; });
}
// A float64 as the float32 that rounds to float16 as it would: of two neighbours the odd one.
inline float odd_float(double exact) {
  const auto near = static_cast<float>(exact);
  if (static_cast<double>(near) == exact) return near;
  const bool past = (static_cast<double>(near) > exact) == (exact > 0);
  return bits_as<float>((bits_as<uint32_t>(near) - past) | 1);
}
inline Word fused_halves(Word a, Word b, Word c) {
  const auto fused = [&](int at) {
    return odd_float(double{half_of(a, at)} * half_of(b, at) + half_of(c, at));
  };
  return word_of<float16>(fused(0), fused(1));
}
inline Word positive_fused_halves(Word a, Word b, Word c) {
  const Word made = fused_halves(a, b, c);
  const auto kept = [&](Word half) { return half & 0x8000 ? 0 : half; };
  return kept(made & 0xFFFF) | kept(made >> 16) << 16;
}
inline Word clamped_sums(Word a, Word b, Word most) {
  const auto of = [&](int at) {
    const auto part = [&](Word word) { return static_cast<int16_t>(word >> 16 * at); };
    const auto sum = static_cast<int16_t>(part(a) + part(b));
    const int16_t held = sum < part(most) ? sum : part(most);
    return static_cast<Word>(held > 0 ? held : 0);
  };
  return of(0) | of(1) << 16;
}
// The same of integers of 32 bits; and two of these as integers of 16 bits, the first in the lower
// half, what is past their range as its ends.
inline int32_t clamped_sum(int32_t a, int32_t b, int32_t most) {
  return greatest(least(a + b, most), 0);
}
inline Word held_shorts(int32_t first, int32_t second) {
  const auto held = [](int32_t one) { return greatest(least(one, 0x7FFF), -0x8000) & 0xFFFF; };
  return static_cast<Word>(held(first)) | static_cast<Word>(held(second)) << 16;
}
#define DSCORE_CLAMPED_SUMS
#elif defined(DSCORE_HALVES)
__device__ inline Word greater_halves(Word a, Word b) {
  Word made;
  asm("max.f16x2 %0, %1, %2;" : "=r"(made) : "r"(a), "r"(b));
  return made;
}
__device__ inline Word lesser_halves(Word a, Word b) {
  Word made;
  asm("min.f16x2 %0, %1, %2;" : "=r"(made) : "r"(a), "r"(b));
  return made;
}
__device__ inline Word sum_of_halves(Word a, Word b) {
  Word made;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(made) : "r"(a), "r"(b));
  return made;
}
__device__ inline Word fused_halves(Word a, Word b, Word c) {
  Word made;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(made) : "r"(a), "r"(b), "r"(c));
  return made;
}
__device__ inline Word positive_fused_halves(Word a, Word b, Word c) {
  Word made;
  asm("fma.rn.relu.f16x2 %0, %1, %2, %3;" : "=r"(made) : "r"(a), "r"(b), "r"(c));
  return made;
}
// One instruction each from sm_90 on.
#if __CUDA_ARCH__ >= 900
#define DSCORE_CLAMPED_SUMS
__device__ inline Word clamped_sums(Word a, Word b, Word most) {
  return __viaddmin_s16x2_relu(a, b, most);
}
__device__ inline int32_t clamped_sum(int32_t a, int32_t b, int32_t most) {
  return __viaddmin_s32_relu(a, b, most);
}
__device__ inline Word held_shorts(int32_t first, int32_t second) {
  Word made;
  asm("cvt.pack.sat.s16.s32 %0, %1, %2;" : "=r"(made) : "r"(second), "r"(first));
  return made;
}
#endif
#endif

}  // namespace dscore
