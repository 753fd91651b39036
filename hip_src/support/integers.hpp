// Signed bytes: sums of four products in 32 bits, words of four bytes in other orders, fragments
// from LDS, and their products on matrix units.
//
// A word holds four bytes in the order of memory. Sums wrap, so that their order never matters:
// fragments have their summed elements in whatever order is read best, the same of both operands.
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
// The same to LDS.
template <int Bytes>
__device__ inline void copy_or_fill(void *to, const void *from, bool there, Word fill) {
#if defined(DSCORE_HOST) || defined(DSCORE_ASYNC_COPIES)
  if (there) return copy_async<Bytes>(to, from);
#endif
  const auto vector = bytes_or_fill<Bytes>(from, there, fill);
  *static_cast<std::remove_const_t<decltype(vector)> *>(to) = vector;
}

// 32 summed bytes of 16 rows, which lie along the sum. Lane 4 g + i holds bytes 4 i to 4 i + 3 of
// row g; of row g + 8; bytes 4 i + 16 to 4 i + 19 of row g; of row g + 8.
struct BytesA {
  Word words[4];
  __device__ void read(const int8_t *tile, int pitch, int lane) {
    const int row = lane % 8 + lane / 8 % 2 * 8, k = lane / 16 * 16;
    read_matrices<4, false>(words, reinterpret_cast<const uint16_t *>(tile + row * pitch + k));
  }
};

// Lane 4 g + i holds, of column g, summed bytes 4 i to 4 i + 3, and 4 i + 16 to 4 i + 19.
struct BytesB {
  Word words[2];
};

// Fragments whose columns follow one another, of an operand that lies along the sum: two by one
// instruction.
template <int Count>
__device__ inline void read_along(BytesB (&fragments)[Count], const int8_t *tile, int pitch,
                                  int lane) {
  const auto at = [&](int column) {
    return reinterpret_cast<const uint16_t *>(tile + (column + lane % 8) * pitch +
                                              lane / 8 % 2 * 16);
  };
  DSCORE_UNROLL
  for (int n = 0; n + 1 < Count; n += 2) {
    Word words[4];
    read_matrices<4, false>(words, at(n * 8 + lane / 16 * 8));
    for (int half = 0; half < 2; half++)
      for (int word = 0; word < 2; word++)
        fragments[n + half].words[word] = words[half * 2 + word];
  }
  if constexpr (Count % 2) read_matrices<2, false>(fragments[Count - 1].words, at((Count - 1) * 8));
}

// The same of an operand whose rows are the summed elements: pairs of bytes are turned together,
// then parted. Columns 2 g and 2 g + 1 of 16 go to column g of two fragments. Summed bytes come in
// such an order that the eight rows of a matrix lie in eight different banks.
template <int Count>
__device__ inline void read_across(BytesB (&fragments)[Count], const int8_t *tile, int pitch,
                                   int lane) {
  static_assert(Count % 2 == 0, "fragments by pairs");
  // Of lanes 4 g + 1 and 4 g + 2 the later two of four summed bytes come first.
  const auto later_first = [](int i) { return (i + 1) / 2 % 2; };
  const int i = lane % 8 / 2, late = later_first(i) ^ lane / 8 % 2;
  const int k = lane / 16 * 16 + i * 4 + late * 2 + lane % 2;
  const bool turned = later_first(lane % 4);
  const Word even = turned ? selector(4, 6, 0, 2) : selector(0, 2, 4, 6);
  const Word odd = turned ? selector(5, 7, 1, 3) : selector(1, 3, 5, 7);
  DSCORE_UNROLL
  for (int n = 0; n < Count; n += 2) {
    Word words[4];
    read_matrices<4, true>(words,
                           reinterpret_cast<const uint16_t *>(tile + k * pitch + n * 8));
    for (int word = 0; word < 2; word++) {
      fragments[n].words[word] = permuted(words[2 * word], words[2 * word + 1], even);
      fragments[n + 1].words[word] = permuted(words[2 * word], words[2 * word + 1], odd);
    }
  }
}

// d[16][8] += a[16][32] · b[32][8] by the wavefront of 32; lane 4 g + i holds, of d, columns 2 i
// and 2 i + 1 of rows g and g + 8 (PTX ISA, mma.m16n8k32).
__device__ inline void multiply_32(int *d, const BytesA &a, const BytesB &b) {
#if defined(DSCORE_HOST)
  struct Given {
    BytesA a;
    BytesB b;
  } const given = {a, b};
  const emulation::Exchange<Given> lanes(&given, __LINE__);
  const int lane = emulation::device.current % emulation::device.wavefront;
  for (int i = 0; i < 4; i++)
    for (int out = 0; out < 4; out++) {
      const Given &row = *lanes.of(lane / 4 * 4 + i);
      const Given &column = *lanes.of((lane % 4 * 2 + out % 2) * 4 + i);
      for (int half = 0; half < 2; half++)
        d[out] = dot4(row.a.words[half * 2 + out / 2], column.b.words[half], d[out]);
    }
  lanes.done();
#elif defined(__CUDACC__)
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b.words[0]),
        "r"(b.words[1]));
#endif
}

// Lane 16 q + r holds summed bytes 8 q to 8 q + 7 of row r of a, or of column r of b.
struct Eighths {
  Word words[2];
};

// Count fragments whose rows (or columns) follow one another, of an operand along the sum.
template <int Count>
__device__ inline void read_along(Eighths (&fragments)[Count], const int8_t *tile, int pitch,
                                  int lane) {
  DSCORE_UNROLL
  for (int n = 0; n < Count; n++) {
    const int8_t *row = tile + (n * 16 + lane % 16) * pitch + lane / 16 * 8;
    const auto both = *reinterpret_cast<const Pack<Word, 2> *>(row);
    fragments[n].words[0] = both.at[0], fragments[n].words[1] = both.at[1];
  }
}

// The same of an operand whose rows are the summed elements. Columns 4 r to 4 r + 3 of 64 go to
// column r of four fragments.
template <int Count>
__device__ inline void read_across(Eighths (&fragments)[Count], const int8_t *tile, int pitch,
                                   int lane) {
  static_assert(Count % 4 == 0, "fragments by fours");
  const int8_t *first = tile + lane / 16 * 8 * pitch + lane % 16 * 4;
  DSCORE_UNROLL
  for (int n = 0; n < Count; n += 4)
    DSCORE_UNROLL
    for (int word = 0; word < 2; word++) {
      Word rows[4];
      DSCORE_UNROLL
      for (int k = 0; k < 4; k++)
        rows[k] = *reinterpret_cast<const Word *>(first + (word * 4 + k) * pitch + n * 16);
      transpose_bytes(rows);
      DSCORE_UNROLL
      for (int at = 0; at < 4; at++) fragments[n + at].words[word] = rows[at];
    }
}

// d[16][16] += a[16][32] · b[32][16] by the wavefront of 64; lane 16 q + r holds, of d, rows 4 q to
// 4 q + 3 of column r (CDNA instruction set, V_MFMA_I32_16X16X16I8; CDNA3, V_MFMA_I32_16X16X32_I8).
__device__ inline void multiply_eighths(int *d, const Eighths &a, const Eighths &b) {
#if defined(DSCORE_HOST)
  const Eighths given[2] = {a, b};
  const emulation::Exchange<Eighths> lanes(given, __LINE__);
  const int lane = emulation::device.current % emulation::device.wavefront;
  for (int q = 0; q < 4; q++)
    for (int out = 0; out < 4; out++)
      for (int word = 0; word < 2; word++)
        d[out] = dot4(lanes.of(q * 16 + lane / 16 * 4 + out)[0].words[word],
                      lanes.of(q * 16 + lane % 16)[1].words[word], d[out]);
  lanes.done();
#elif defined(DSCORE_MFMA)
  using Sums = int __attribute__((ext_vector_type(4)));
  Sums sums = {d[0], d[1], d[2], d[3]};
#if defined(__gfx908__) || defined(__gfx90a__)
  DSCORE_UNROLL
  for (int word = 0; word < 2; word++)
    sums = __builtin_amdgcn_mfma_i32_16x16x16i8(static_cast<int>(a.words[word]),
                                                static_cast<int>(b.words[word]), sums, 0, 0, 0);
#else
  sums = __builtin_amdgcn_mfma_i32_16x16x32_i8(bits_as<long>(a), bits_as<long>(b), sums, 0, 0, 0);
#endif
  DSCORE_UNROLL
  for (int i = 0; i < 4; i++) d[i] = sums[i];
#endif
}

}  // namespace dscore
