// Signed bytes on matrix units: fragments from LDS, and their products, summed in 32 bits.
//
// Sums wrap, so that their order never matters: fragments have their summed elements in whatever
// order is read best, the same of both operands.
#pragma once

#include "support/integers.hpp"

namespace dscore {

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
