// The lanes of a wavefront of a product of matrices (gemm_universal/lanes.hpp) of signed bytes.
//
// The first operand lies along the sum, the second one there or across.
#pragma once

#include "gemm_universal/lanes.hpp"
#include "gemm_universal/shape.hpp"
#include "support/byte_fragments.hpp"
#include "support/filter_sums.hpp"

namespace dscore {

// Dot products of four bytes: lanes_m rows of lanes, sixteen summed elements at a time. Of an
// operand across the sum a lane has neighbouring columns, by fours.
template <class T, class t>
struct DotLanes {
  static constexpr int lanes_n = t::wavefront / t::lanes_m;
  static constexpr int rows = t::wave_m / t::lanes_m, columns = t::wave_n / lanes_n;
  static constexpr int run = t::along_b ? 1 : 4, runs = columns / run, group = 1;
  static_assert(columns % run == 0, "columns of words");
  using Vector = Pack<Word, 4>;

  static __device__ int row(int r, int lane) { return r * t::lanes_m + lane / lanes_n; }
  static __device__ int column(int q, int lane) { return (q * lanes_n + lane % lanes_n) * run; }
  static __device__ constexpr int index(int r, int q, int e) { return r * columns + q * run + e; }

  static __device__ Vector vector(const T *tile, int extent, int k, int pitch) {
    return *reinterpret_cast<const Vector *>(tile + extent * pitch + k);
  }
  // Four summed elements of each column, from `k` on.
  static __device__ void take_across(Word (&words)[columns], const T *b, int k, int lane) {
    DSCORE_UNROLL
    for (int q = 0; q < runs; q++) {
      Word turned[4];
      DSCORE_UNROLL
      for (int at = 0; at < 4; at++)
        turned[at] = *reinterpret_cast<const Word *>(b + (k + at) * t::pitch_b + column(q, lane));
      transpose_bytes(turned);
      DSCORE_UNROLL
      for (int e = 0; e < 4; e++) words[q * run + e] = turned[e];
    }
  }

  static __device__ void multiply(int32_t (&sums)[t::accumulators], const T *a, const T *b,
                                  int lane) {
    // Unrolled, compilers would read all of it into registers first.
    DSCORE_ROLLED
    for (int k = 0; k < t::slice; k += 16) {
      Vector left[rows], right[t::along_b ? columns : 1];
      DSCORE_UNROLL
      for (int r = 0; r < rows; r++) left[r] = vector(a, row(r, lane), k, t::pitch_a);
      if constexpr (t::along_b)
        DSCORE_UNROLL
        for (int c = 0; c < columns; c++) right[c] = vector(b, column(c, lane), k, t::pitch_b);
      DSCORE_UNROLL
      for (int part = 0; part < 4; part++) {
        Word words[columns];
        if constexpr (t::along_b)
          DSCORE_UNROLL
          for (int c = 0; c < columns; c++) words[c] = right[c].at[part];
        else take_across(words, b, k + 4 * part, lane);
        DSCORE_UNROLL
        for (int r = 0; r < rows; r++)
          DSCORE_UNROLL
          for (int c = 0; c < columns; c++)
            sums[r * columns + c] = dot4(left[r].at[part], words[c], sums[r * columns + c]);
      }
    }
  }
};

// NVIDIA's matrix units. Of an operand across the sum a lane's columns are neighbours by fours.
template <class T, class t>
struct Matrix8Lanes {
  using Base = FragmentLanes<T, t>;
  static constexpr int rows = Base::rows, fragments = Base::fragments;
  static constexpr int group = t::along_b ? Base::group : 2, run = 2 * group;
  static constexpr int runs = fragments / group;
  static __device__ int row(int r, int lane) { return Base::row(r, lane); }
  static __device__ int column(int q, int lane) { return q * 8 * group + lane % 4 * run; }
  static __device__ constexpr int index(int r, int q, int e) {
    if constexpr (t::along_b) return Base::index(r, q, e);
    else return (r / 2 * fragments + q * 2 + e % 2) * 4 + r % 2 * 2 + e / 2;
  }
  static __device__ void multiply(int32_t (&sums)[t::accumulators], const T *a, const T *b,
                                  int lane) {
    DSCORE_UNROLL_FEW
    for (int k = 0; k < t::slice; k += 32) {
      BytesA left[rows / 2];
      BytesB right[fragments];
      DSCORE_UNROLL
      for (int m = 0; m < rows / 2; m++)
        left[m].read(a + place_of<true>(m * 16, k, t::pitch_a), t::pitch_a, lane);
      const T *from = b + place_of<t::along_b>(0, k, t::pitch_b);
      if constexpr (t::along_b) read_along(right, from, t::pitch_b, lane);
      else read_across(right, from, t::pitch_b, lane);
      DSCORE_UNROLL
      for (int m = 0; m < rows / 2; m++)
        DSCORE_UNROLL
        for (int n = 0; n < fragments; n++)
          multiply_32(sums + (m * fragments + n) * 4, left[m], right[n]);
    }
  }
};

// AMD's. Of an operand across the sum four fragments' columns are a lane's neighbours.
template <class T, class t>
struct Mfma8Lanes {
  static constexpr int rows = t::wave_m / 4, fragments = t::wave_n / 16;
  static constexpr int run = t::along_b ? 1 : 4, runs = fragments / run;
  static __device__ int row(int r, int lane) { return r / 4 * 16 + lane / 16 * 4 + r % 4; }
  static __device__ int column(int q, int lane) { return (q * 16 + lane % 16) * run; }
  static __device__ constexpr int index(int r, int q, int e) {
    return (r / 4 * fragments + q * run + e) * 4 + r % 4;
  }
  static __device__ void multiply(int32_t (&sums)[t::accumulators], const T *a, const T *b,
                                  int lane) {
    DSCORE_UNROLL_FEW
    for (int k = 0; k < t::slice; k += 32) {
      Eighths left[rows / 4], right[fragments];
      read_along(left, a + place_of<true>(0, k, t::pitch_a), t::pitch_a, lane);
      const T *from = b + place_of<t::along_b>(0, k, t::pitch_b);
      if constexpr (t::along_b) read_along(right, from, t::pitch_b, lane);
      else read_across(right, from, t::pitch_b, lane);
      DSCORE_UNROLL
      for (int m = 0; m < rows / 4; m++)
        DSCORE_UNROLL
        for (int n = 0; n < fragments; n++)
          multiply_eighths(sums + (m * fragments + n) * 4, left[m], right[n]);
    }
  }
};

template <class T, class t>
using ByteLanesOf = std::conditional_t<
    t::plain, DotLanes<T, t>,
    std::conditional_t<t::mfma, Mfma8Lanes<T, t>, Matrix8Lanes<T, t>>>;
template <class T, class t>
using FloatLanesOf = std::conditional_t<
    t::plain, PlainLanes<T, t>,
    std::conditional_t<
        t::arithmetic == Products::tf32x3, Tf32Lanes<T, t>,
        std::conditional_t<t::mfma, MfmaLanes<T, t>, Matrix16Lanes<T, t>>>>;

// What multiplies, and what sums filters.
template <class T, class t, bool Quantised = t::quantised>
struct ParticularsOf {
  using Lanes = FloatLanesOf<T, t>;
  struct Filters {};
};
template <class T, class t>
struct ParticularsOf<T, t, true> {
  using Lanes = ByteLanesOf<T, t>;
  using Filters = FilterSums<t::filters, t::step, t::last ? t::pitch_b : t::pitch_a,
                             t::threads_of_filter, t::threads>;
};

}  // namespace dscore
