// Signed bytes: sums of four products in 32 bits, and words of four bytes in other orders. A word
// holds four bytes in the order of memory.
#pragma once

#include "support/matrix_units.hpp"

namespace dscore {

// What `permuted` takes: which of eight bytes, 0 to 3 of the first word and 4 to 7 of the second,
// stand in each place of the result.
__device__ constexpr Word selector(Word a, Word b, Word c, Word d) {
#if defined(__CUDACC__) || defined(DSCORE_HOST)
  return a | b << 4 | c << 8 | d << 12;
#else
  return a | b << 8 | c << 16 | d << 24;
#endif
}

__device__ inline Word permuted(Word first, Word second, Word selector) {
#if defined(DSCORE_HOST)
  const uint64_t both = static_cast<uint64_t>(second) << 32 | first;
  Word made = 0;
  for (int at = 0; at < 4; at++)
    made |= static_cast<Word>(both >> 8 * (selector >> 4 * at & 7) & 0xFF) << 8 * at;
  return made;
#elif defined(__CUDACC__)
  return __byte_perm(first, second, selector);
#else
  return __builtin_amdgcn_perm(second, first, selector);
#endif
}

// Four bytes of two words, from the first's byte number `bytes`, 0 to 3, on.
__device__ inline Word shifted_bytes(Word first, Word second, int bytes) {
#if defined(DSCORE_HOST)
  return static_cast<Word>((static_cast<uint64_t>(second) << 32 | first) >> 8 * bytes);
#elif defined(__CUDACC__)
  return __funnelshift_rc(first, second, 8 * bytes);
#else
  return __builtin_amdgcn_alignbyte(second, first, bytes);
#endif
}

// A word of the lowest bytes of four integers.
__device__ inline Word packed_bytes(int a, int b, int c, int d) {
  constexpr Word low_bytes = selector(0, 4, 0, 4), low_halves = selector(0, 1, 4, 5);
  return permuted(permuted(a, b, low_bytes), permuted(c, d, low_bytes), low_halves);
}

// The lowest bytes of Count integers; of the halves of Count / 2 words.
template <int Count>
__device__ inline Pack<int8_t, Count> lowest_bytes(const int32_t *integers) {
  if constexpr (Count % 4 == 0) {
    Pack<Word, Count / 4> words;
    DSCORE_UNROLL
    for (int i = 0; i < Count; i += 4)
      words.at[i / 4] =
          packed_bytes(integers[i], integers[i + 1], integers[i + 2], integers[i + 3]);
    return bits_as<Pack<int8_t, Count>>(words);
  } else {
    Pack<int8_t, Count> bytes;
    DSCORE_UNROLL
    for (int i = 0; i < Count; i++) bytes.at[i] = static_cast<int8_t>(integers[i]);
    return bytes;
  }
}
template <int Count>
__device__ inline Pack<int8_t, Count> lowest_bytes(const Word *halves) {
  constexpr Word even_bytes = selector(0, 2, 4, 6);
  if constexpr (Count % 4 == 0) {
    Pack<Word, Count / 4> words;
    DSCORE_UNROLL
    for (int i = 0; i < Count / 4; i++)
      words.at[i] = permuted(halves[2 * i], halves[2 * i + 1], even_bytes);
    return bits_as<Pack<int8_t, Count>>(words);
  } else {
    Pack<uint16_t, Count / 2> pairs;
    DSCORE_UNROLL
    for (int i = 0; i < Count / 2; i++)
      pairs.at[i] = static_cast<uint16_t>(permuted(halves[i], halves[i], even_bytes));
    return bits_as<Pack<int8_t, Count>>(pairs);
  }
}

// Four words as the rows of a matrix of 4 x 4 bytes, and then its columns.
__device__ inline void transpose_bytes(Word (&rows)[4]) {
  constexpr Word low = selector(0, 4, 1, 5), high = selector(2, 6, 3, 7);
  constexpr Word low_halves = selector(0, 1, 4, 5), high_halves = selector(2, 3, 6, 7);
  const Word a = permuted(rows[0], rows[1], low), b = permuted(rows[2], rows[3], low);
  const Word c = permuted(rows[0], rows[1], high), d = permuted(rows[2], rows[3], high);
  rows[0] = permuted(a, b, low_halves), rows[1] = permuted(a, b, high_halves);
  rows[2] = permuted(c, d, low_halves), rows[3] = permuted(c, d, high_halves);
}

// Bytes of Rows x Columns, as their columns, one after the other.
template <int Rows, int Columns, class Bytes>
__device__ inline Bytes turned_bytes(const Bytes &bytes) {
  static_assert(sizeof(Bytes) == Rows * Columns && Rows % 4 == 0, "columns of whole words");
  struct Words {
    Word at[Rows * Columns / 4];
  } made, from = bits_as<Words>(bytes);
  DSCORE_UNROLL
  for (int word = 0; word < Rows * Columns / 4; word++) {
    Word pairs[2];
    DSCORE_UNROLL
    for (int pair = 0; pair < 2; pair++) {
      const int row = word * 4 % Rows + pair * 2, column = word * 4 / Rows;
      const int first = row * Columns + column, second = first + Columns;
      pairs[pair] = permuted(from.at[first / 4], from.at[second / 4],
                             selector(first % 4, 4 + second % 4, 0, 0));
    }
    made.at[word] = permuted(pairs[0], pairs[1], selector(0, 1, 4, 5));
  }
  return bits_as<Bytes>(made);
}

__device__ inline int byte_of(Word word, int at) { return static_cast<int8_t>(word >> 8 * at); }

#if defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) ||    \
    defined(__gfx941__) || defined(__gfx942__) || defined(__gfx1011__) || defined(__gfx1012__) ||  \
    defined(__gfx1030__) || defined(__gfx1031__) || defined(__gfx1032__) ||                        \
    defined(__gfx1034__)
#define DSCORE_DOT4  // v_dot4_i32_i8
#elif defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) ||                      \
    defined(__gfx1103__) || defined(__gfx1150__) || defined(__gfx1151__) ||                        \
    defined(__gfx1200__) || defined(__gfx1201__)
#define DSCORE_DOT4_OF_SIGNS  // v_dot4_i32_iu8, which is told whose bytes are signed
#endif

// sum + a[0] * b[0] + ... + a[3] * b[3] of the bytes of two words, modulo 2^32.
__device__ inline int dot4(Word a, Word b, int sum) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610
  return __dp4a(static_cast<int>(a), static_cast<int>(b), sum);
#elif defined(DSCORE_DOT4)
  return __builtin_amdgcn_sdot4(static_cast<int>(a), static_cast<int>(b), sum, false);
#elif defined(DSCORE_DOT4_OF_SIGNS)
  return __builtin_amdgcn_sudot4(true, static_cast<int>(a), true, static_cast<int>(b), sum, false);
#else
  Word total = static_cast<Word>(sum);
  DSCORE_UNROLL
  for (int at = 0; at < 4; at++) total += static_cast<Word>(byte_of(a, at) * byte_of(b, at));
  return static_cast<int>(total);
#endif
}

// What is nearest to a value, which is a number, between two bounds.
__device__ inline float between(float value, float low, float high) {
#if defined(DSCORE_HOST) || defined(__CUDACC__)
  return fminf(fmaxf(value, low), high);
#else
  return __builtin_amdgcn_fmed3f(value, low, high);
#endif
}

// A product that no sum after it is made one instruction with, which would round once.
__device__ inline float rounded_product(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

// The integer that is nearest to a value, of two the even one, and an integer of a few bits. Beside
// 1.5 * 2^23 floats are integers. Of values past 2^22 it is one of about their size.
__device__ inline float nearest_beside(float value, float integer) {
  constexpr float beside = 0x1.8p23f;
  return (value + beside) - (beside - integer);
}

// The sum of a word's bytes, added to `sum`.
__device__ inline int add_bytes(Word word, int sum) { return dot4(word, 0x01010101u, sum); }

// Bytes of memory, or where they are not `there` those of a word that is repeated.
template <int Bytes>
__device__ inline auto bytes_or_fill(const void *from, bool there, Word fill) {
  using Unit = std::conditional_t<Bytes % 4 == 0, uint32_t,
                                  std::conditional_t<Bytes == 2, uint16_t, uint8_t>>;
  constexpr int units = Bytes / static_cast<int>(sizeof(Unit));
  auto vector = vector_or_zeros<units>(static_cast<const Unit *>(from), there);
  DSCORE_UNROLL
  for (int i = 0; i < units; i++) vector.at[i] = there ? vector.at[i] : static_cast<Unit>(fill);
  return vector;
}
// Whether copies to LDS go on while a thread does something else: it then copies what is there
// first, and fills the rest when it knows what with.
#if defined(DSCORE_HOST) || defined(DSCORE_ASYNC_COPIES)
constexpr bool fills_later = true;
#else
constexpr bool fills_later = false;
#endif

template <int Bytes>
__device__ inline void write_bytes(void *to, const void *from, bool there, Word fill) {
  const auto vector = bytes_or_fill<Bytes>(from, there, fill);
  *static_cast<std::remove_const_t<decltype(vector)> *>(to) = vector;
}
// The same to LDS.
template <int Bytes>
__device__ inline void copy_or_fill(void *to, const void *from, bool there, Word fill) {
  if (fills_later && there) copy_async<Bytes>(to, from);
  else write_bytes<Bytes>(to, from, there, fill);
}

}  // namespace dscore
