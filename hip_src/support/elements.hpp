// Element types of 16 bits: what they are in memory, and how they become floats and again elements.
//
// static_cast<float>(x) is exact. static_cast<T>(value) rounds to the nearest, of two to the even
// one: beyond the type's range to an infinity; a NaN stays one.
#pragma once

#include "support/portable.hpp"

namespace dscore {

template <class To, class From>
__host__ __device__ inline To bits_as(const From &from) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

struct float16 {
  uint16_t bits;
  float16() = default;
#if defined(__CUDACC__)
  __device__ inline explicit float16(float value) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  }
  __device__ inline explicit operator float() const {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
#elif !defined(DSCORE_HOST)
  __device__ inline explicit float16(float value)
      : bits(bits_as<uint16_t>(static_cast<_Float16>(value))) {}
  __device__ inline explicit operator float() const {
    return static_cast<float>(bits_as<_Float16>(bits));
  }
#else
  // By its bits, since not all compilers of hosts have such a type: 5 of exponent, 10 of fraction.
  explicit float16(float value) {
    constexpr uint32_t infinity = 0x7F800000, overflow = 0x477FF000, least_normal = 0x38800000;
    const uint32_t all = bits_as<uint32_t>(value), size = all & 0x7FFFFFFF;
    uint32_t half;
    if (size > infinity) half = 0x7E00;
    else if (size >= overflow) half = 0x7C00;
    else if (size >= least_normal) half = (size - (112u << 23) + 0xFFF + (size >> 13 & 1)) >> 13;
    else  // a half's last place is that of 0.5f
      half = bits_as<uint32_t>(bits_as<float>(size) + 0.5f) - bits_as<uint32_t>(0.5f);
    bits = static_cast<uint16_t>(all >> 16 & 0x8000) | static_cast<uint16_t>(half);
  }
  explicit operator float() const {
    const uint32_t size = bits & 0x7FFFu;
    const uint32_t value = size >= 0x7C00  ? size << 13 | 0x7F800000
                           : size >= 0x400 ? (size << 13) + (112u << 23)
                                           : bits_as<uint32_t>(static_cast<float>(size) * 0x1p-24f);
    return bits_as<float>(value | (bits & 0x8000u) << 16);
  }
#endif
};

// The upper half of a float's bits.
struct bfloat16 {
  uint16_t bits;
  bfloat16() = default;
  __device__ inline explicit bfloat16(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    const uint32_t all = bits_as<uint32_t>(value), odd = all >> 16 & 1;
    const bool is_nan = (all & 0x7FFFFFFF) > 0x7F800000;
    bits = static_cast<uint16_t>((is_nan ? all | 0x400000 : all + 0x7FFF + odd) >> 16);
#endif
  }
  __device__ inline explicit operator float() const {
    return bits_as<float>(static_cast<uint32_t>(bits) << 16);
  }
};

// Two elements of 16 bits side by side, the first in the lower half.
template <class T>
__device__ inline uint32_t word_of(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t word;
  if constexpr (std::is_same_v<T, float16>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
#else
  return static_cast<uint32_t>(T(second).bits) << 16 | T(first).bits;
#endif
}

// Products of two elements of 16 bits by two, each rounded to one.
template <class T>
__device__ inline uint32_t pair_product(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint32_t products;
  if constexpr (std::is_same_v<T, float16>)
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(products) : "r"(a), "r"(b));
  else asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(products) : "r"(a), "r"(b));
  return products;
#else
  const auto of = [](uint32_t word, int place) {
    T element;
    element.bits = static_cast<uint16_t>(word >> place);
    return static_cast<float>(element);
  };
  return word_of<T>(of(a, 0) * of(b, 0), of(a, 16) * of(b, 16));
#endif
}

// Elements side by side that move as one, aligned to all of them.
template <class T, int Count>
struct alignas(Count * sizeof(T)) Pack {
  T at[Count];
};

// What a vector moves as: small elements by words, which compilers would move one by one.
template <class T, int Count>
using Moved = std::conditional_t<
    sizeof(T) < 4 && Count * sizeof(T) % 4 == 0, Pack<uint32_t, (Count * sizeof(T) + 3) / 4>,
    std::conditional_t<sizeof(T) == 1 && Count == 2, Pack<uint16_t, 1>, Pack<T, Count>>>;

// Read before its bits are copied: of a copy right out of memory nvcc would make loads of bytes.
template <int Count, class T>
__device__ inline Pack<T, Count> read_vector(const T *from) {
  const auto moved = *reinterpret_cast<const Moved<T, Count> *>(from);
  if constexpr (std::is_same_v<Moved<T, Count>, Pack<T, Count>>) return moved;
  else return bits_as<Pack<T, Count>>(moved);
}
template <int Count, class T>
__device__ inline void write_vector(T *to, const Pack<T, Count> &vector) {
  if constexpr (std::is_same_v<Moved<T, Count>, Pack<T, Count>>)
    *reinterpret_cast<Pack<T, Count> *>(to) = vector;
  else *reinterpret_cast<Moved<T, Count> *>(to) = bits_as<Moved<T, Count>>(vector);
}

// The same to memory that is not LDS, and that the kernel does not read. In some loops nvcc parts a
// vector into words, but not in this instruction.
template <int Count, class T>
__device__ inline void write_to_memory(T *to, const Pack<T, Count> &vector) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof vector == 16) {
    const auto words = bits_as<Pack<uint32_t, 4>>(vector);
    asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};" ::"l"(__cvta_generic_to_global(to)),
                 "r"(words.at[0]), "r"(words.at[1]), "r"(words.at[2]), "r"(words.at[3]));
    return;
  }
#endif
  write_vector(to, vector);
}

// Floats rounded to elements.
template <class T, int Count>
__device__ inline Pack<T, Count> rounded(const float *values) {
  if constexpr (sizeof(T) == 2 && Count % 2 == 0) {
    Pack<uint32_t, Count / 2> words;
    DSCORE_UNROLL
    for (int i = 0; i < Count / 2; i++)
      words.at[i] = word_of<T>(values[2 * i], values[2 * i + 1]);
    return bits_as<Pack<T, Count>>(words);
  } else {
    Pack<T, Count> elements;
    DSCORE_UNROLL
    for (int i = 0; i < Count; i++) elements.at[i] = static_cast<T>(values[i]);
    return elements;
  }
}

}  // namespace dscore
