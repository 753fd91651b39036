// Matrix units for elements of 16 bits: fragments from LDS, whose products are summed in float32.
// NVIDIA's (mma.sync) multiply 16 x 16 by 16 x 8 elements by a wavefront of 32, AMD's (MFMA)
// 16 x 16 by 16 x 16 by one of 64.
#pragma once

#include "support/vendor.hpp"

namespace dscore {

// Two elements in the order of memory.
using Word = uint32_t;

#if defined(DSCORE_HOST)
namespace emulation {
// What every lane of the wavefront gives, at one rendezvous; `done` is the second, before which
// nothing given may change.
template <class Given>
struct Exchange {
  int first, site;
  Exchange(const Given *given, int site_) : site(site_) {
    const int thread = device.current;
    first = thread - thread % device.wavefront;
    std::memcpy(&device.fibers[thread].given, &given, sizeof given);
    yield(Waits::at_shuffle, site);
  }
  const Given *of(int lane) const {
    const Given *given;
    std::memcpy(&given, &device.shuffled[first + lane], sizeof given);
    return given;
  }
  void done() const { yield(Waits::at_shuffle, site); }
};

}  // namespace emulation
#endif

// Count matrices of 8 x 8 elements, whose rows of 16 bytes begin where lanes 0 to 7, 8 to 15, ...
// of the wavefront of 32 say: lane 4 g + i gets elements 2 i and 2 i + 1 of row g, or, Turned, of
// column g (PTX ISA, ldmatrix).
template <int Count, bool Turned, class T>
__device__ inline void read_matrices(Word *words, const T *row) {
#if defined(DSCORE_HOST)
  const emulation::Exchange<T> rows(row, __LINE__);
  const int lane = emulation::device.current % emulation::device.wavefront;
  for (int matrix = 0; matrix < Count; matrix++) {
    T two[2];
    for (int h = 0; h < 2; h++)
      two[h] = Turned ? rows.of(matrix * 8 + lane % 4 * 2 + h)[lane / 4]
                      : rows.of(matrix * 8 + lane / 4)[lane % 4 * 2 + h];
    std::memcpy(words + matrix, two, sizeof two);
  }
  rows.done();
#elif defined(__CUDACC__)
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (Count == 4 && Turned)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3]) : "r"(at) : "memory");
  else if constexpr (Count == 4)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3]) : "r"(at) : "memory");
  else if constexpr (Turned)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
        : "=r"(words[0]), "=r"(words[1]) : "r"(at) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
        : "=r"(words[0]), "=r"(words[1]) : "r"(at) : "memory");
#endif
}

// The same to LDS, each matrix turned: lane 4 g + i has elements 2 i and 2 i + 1 of column g, and
// lanes 0 to 7, 8 to 15, ... say where the rows begin (PTX ISA, stmatrix, from sm_90 on).
template <int Count, class T>
__device__ inline void write_turned(T *row, const Word *words) {
#if defined(DSCORE_HOST)
  struct Given {
    T two[Count][2];
  } given;
  std::memcpy(&given, words, sizeof given);
  const emulation::Exchange<Given> all(&given, __LINE__);
  const int lane = emulation::device.current % emulation::device.wavefront, matrix = lane / 8;
  for (int column = 0; matrix < Count && column < 8; column++)
    row[column] = all.of(column * 4 + lane % 8 / 2)->two[matrix][lane % 2];
  all.done();
#elif defined(__CUDACC__)
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (Count == 4)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(at),
                 "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]) : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};" ::"r"(at),
                 "r"(words[0]), "r"(words[1]) : "memory");
#endif
}

// Lane 4 g + i holds a[g][2 i], a[g][2 i + 1]; of row g + 8; of columns 2 i + 8, 2 i + 9; of both.
template <class T>
struct FragmentA {
  Word words[4];
  // `tile` is its first element: rows of 16 summed elements where it lies along the sum, else 16
  // rows of summed elements.
  template <bool Along>
  __device__ void read(const T *tile, int pitch, int lane) {
    const int r = lane % 8, j = lane / 8;
    read_matrices<4, !Along>(words, Along ? tile + (r + j % 2 * 8) * pitch + j / 2 * 8
                                          : tile + (r + j / 2 * 8) * pitch + j % 2 * 8);
  }
};

// Lane 4 g + i holds b[2 i][g], b[2 i + 1][g]; b[2 i + 8][g], b[2 i + 9][g].
template <class T>
struct FragmentB {
  Word words[2];
};

// Fragments whose columns follow one another, two by one instruction.
template <bool Along, int Count, class T>
__device__ inline void read_fragments(FragmentB<T> (&fragments)[Count], const T *tile, int pitch,
                                      int lane) {
  const int r = lane % 8, k = lane / 8 % 2 * 8, n = lane / 16 * 8;
  DSCORE_UNROLL
  for (int at = 0; at + 1 < Count; at += 2) {
    Word words[4];
    const int column = at * 8 + n;
    read_matrices<4, !Along>(words, Along ? tile + (column + r) * pitch + k
                                          : tile + (k + r) * pitch + column);
    fragments[at].words[0] = words[0], fragments[at].words[1] = words[1];
    fragments[at + 1].words[0] = words[2], fragments[at + 1].words[1] = words[3];
  }
  if constexpr (Count % 2) {
    constexpr int column = (Count - 1) * 8;
    read_matrices<2, !Along>(fragments[Count - 1].words, Along ? tile + (column + r) * pitch + k
                                                               : tile + (k + r) * pitch + column);
  }
}

// d[16][8] += a[16][16] · b[16][8] by the wavefront of 32; lane 4 g + i holds, of d, columns 2 i
// and 2 i + 1 of rows g and g + 8 (PTX ISA, mma.m16n8k16).
template <class T>
__device__ inline void multiply_16(float *d, const FragmentA<T> &a, const FragmentB<T> &b) {
#if defined(DSCORE_HOST)
  struct Given {
    T a[8], b[4];
  } given;
  std::memcpy(given.a, a.words, sizeof given.a);
  std::memcpy(given.b, b.words, sizeof given.b);
  const emulation::Exchange<Given> lanes(&given, __LINE__);
  const int lane = emulation::device.current % emulation::device.wavefront;
  for (int k = 0; k < 16; k++)
    for (int out = 0; out < 4; out++) {
      const Given &row = *lanes.of(lane / 4 * 4 + k % 8 / 2);
      const Given &column = *lanes.of((lane % 4 * 2 + out % 2) * 4 + k % 8 / 2);
      d[out] += static_cast<float>(row.a[k / 8 * 4 + out / 2 * 2 + k % 2]) *
                static_cast<float>(column.b[k / 8 * 2 + k % 2]);
    }
  lanes.done();
#elif defined(__CUDACC__)
  if constexpr (std::is_same_v<T, float16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b.words[0]),
          "r"(b.words[1]));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b.words[0]),
          "r"(b.words[1]));
#else
  static_assert(sizeof(T) == 0, "matrix units of NVIDIA");
#endif
}

// d += a · b as multiply_16, of the first 8 summed elements.
template <class T>
__device__ inline void multiply_8(float *d, const FragmentA<T> &a, Word b) {
#if defined(__CUDACC__)
  if constexpr (std::is_same_v<T, float16>)
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.words[0]), "r"(a.words[1]), "r"(b));
  else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.words[0]), "r"(a.words[1]), "r"(b));
#else
  FragmentA<T> half = a;
  half.words[2] = half.words[3] = 0;
  multiply_16(d, half, FragmentB<T>{{b, 0}});
#endif
}

// The word of the lane that differs in the last bit of its number.
__device__ inline Word of_neighbour(Word word) {
#if defined(DSCORE_HOST)
  const emulation::Exchange<Word> words(&word, __LINE__);
  const Word given = *words.of(emulation::device.current % emulation::device.wavefront ^ 1);
  words.done();
  return given;
#elif defined(__CUDACC__)
  return __shfl_xor_sync(0xffffffffu, word, 1);
#else
  return word;
#endif
}

#if defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || \
    defined(__gfx942__)
#define DSCORE_MFMA
#endif

// Whether the GPU compiled for multiplies fragments of T; of passes for its host nothing is asked.
template <class T>
constexpr bool has_fragments =
#if defined(__gfx908__)
    !std::is_same_v<T, bfloat16>;
#elif defined(__HIP_DEVICE_COMPILE__) && !defined(DSCORE_MFMA)
    sizeof(T) == 0;
#else
    true;
#endif

// Lane 16 q + r holds summed elements 4 q to 4 q + 3 of row r of a, or of column r of b.
template <class T>
struct Quarter {
  Pack<T, 4> at;
  // `tile` is the fragment's first element, as FragmentA's.
  template <bool Along>
  __device__ void read(const T *tile, int pitch, int lane) {
    const int extent = lane % 16, k = lane / 16 * 4;
    if constexpr (Along) {
      at = read_vector<4>(tile + extent * pitch + k);
    } else {
      DSCORE_UNROLL
      for (int i = 0; i < 4; i++) at.at[i] = tile[(k + i) * pitch + extent];
    }
  }
};

// d[16][16] += a[16][16] · b[16][16] by the wavefront of 64; lane 16 q + r holds, of d, rows 4 q to
// 4 q + 3 of column r (CDNA instruction set, V_MFMA_F32_16X16X16F16).
template <class T>
__device__ inline void multiply_quarters(float *d, const Quarter<T> &a, const Quarter<T> &b) {
#if defined(DSCORE_HOST)
  const Quarter<T> given[2] = {a, b};
  const emulation::Exchange<Quarter<T>> lanes(given, __LINE__);
  const int lane = emulation::device.current % emulation::device.wavefront;
  for (int k = 0; k < 16; k++)
    for (int out = 0; out < 4; out++)
      d[out] += static_cast<float>(lanes.of(k / 4 * 16 + lane / 16 * 4 + out)[0].at.at[k % 4]) *
                static_cast<float>(lanes.of(k / 4 * 16 + lane % 16)[1].at.at[k % 4]);
  lanes.done();
#elif defined(DSCORE_MFMA)
  using Sums = float __attribute__((ext_vector_type(4)));
  Sums sums = {d[0], d[1], d[2], d[3]};
  if constexpr (std::is_same_v<T, float16>) {
    using Four = _Float16 __attribute__((ext_vector_type(4)));
    sums = __builtin_amdgcn_mfma_f32_16x16x16f16(bits_as<Four>(a.at), bits_as<Four>(b.at), sums, 0,
                                                 0, 0);
  }
#if !defined(__gfx908__)
  else {
    using Four = short __attribute__((ext_vector_type(4)));
    sums = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(bits_as<Four>(a.at), bits_as<Four>(b.at),
                                                     sums, 0, 0, 0);
  }
#endif
  DSCORE_UNROLL
  for (int i = 0; i < 4; i++) d[i] = sums[i];
#endif
}

}  // namespace dscore
