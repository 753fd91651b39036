// Matrix units for elements of 16 bits: fragments of 16 x 16 by 16 x 8 elements from LDS, products
// of which are summed in float32.
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
#endif
}

}  // namespace dscore
