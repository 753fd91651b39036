// The lanes of a wavefront of a product of matrices (gemm_universal/product.hpp): how they
// multiply, and which results each holds.
//
// A kind of lanes says: `rows` of a lane by `runs` of `run` neighbouring columns, `row` and
// `column` of these in the wavefront's tile, and the `index` of each sum.
#pragma once

#include "support/joined_sums.hpp"
#include "support/matrix_units.hpp"

namespace dscore {

// Where an element lies in a tile, by its row (or column) of the results and its summed one.
template <bool Along>
__device__ constexpr int place_of(int extent, int summed, int pitch) {
  return Along ? extent * pitch + summed : summed * pitch + extent;
}

// An operand that a lane reads for plain arithmetic, of Count rows or columns: four summed elements
// at a time where they lie side by side, else neighbouring rows.
template <class T, bool Along, int Lanes, int Count, int Pitch>
struct LaneOperand {
  static constexpr int beside = Along || Count % 2 ? 1 : Count % 4 ? 2 : 4;
  using Read = Pack<T, Along ? 4 : beside>;
  Read read[Along ? Count : Count / beside];

  static __device__ int place(int i, int lane) {
    return (i / beside * Lanes + lane) * beside + i % beside;
  }
  // Called for every summed element, `part` of four.
  __device__ void take(const T *tile, int lane, int k, int part) {
    if (Along && part > 0) return;
    DSCORE_UNROLL
    for (int i = 0; i < Count; i += beside)
      read[i / beside] = *reinterpret_cast<const Read *>(
          tile + place_of<Along>(place(i, lane), k + part, Pitch));
  }
  __device__ float at(int i, int part) const {
    return static_cast<float>(Along ? read[i].at[part] : read[i / beside].at[i % beside]);
  }
};

// Plain arithmetic: lanes_m rows of lanes, fused multiply-adds in float32.
template <class T, class t>
struct PlainLanes {
  static constexpr int lanes_n = t::wavefront / t::lanes_m;
  static constexpr int rows = t::wave_m / t::lanes_m, columns = t::wave_n / lanes_n;
  using A = LaneOperand<T, t::along_a, t::lanes_m, rows, t::pitch_a>;
  using B = LaneOperand<T, t::along_b, lanes_n, columns, t::pitch_b>;
  static constexpr int run = B::beside, runs = columns / run, group = 1;

  static __device__ int row(int r, int lane) { return A::place(r, lane / lanes_n); }
  static __device__ int column(int q, int lane) { return B::place(q * run, lane % lanes_n); }
  static __device__ constexpr int index(int r, int q, int e) { return r * columns + q * run + e; }

  static __device__ void multiply(float (&sums)[t::accumulators], const T *a, const T *b,
                                  int lane) {
    // Unrolled, compilers would read all of it into registers first.
    DSCORE_ROLLED
    for (int k = 0; k < t::slice; k += 4) {
      A rows_read;
      B columns_read;
      DSCORE_UNROLL
      for (int part = 0; part < 4; part++) {
        rows_read.take(a, lane / lanes_n, k, part);
        columns_read.take(b, lane % lanes_n, k, part);
        DSCORE_UNROLL
        for (int r = 0; r < rows; r++)
          DSCORE_UNROLL
          for (int c = 0; c < columns; c++)
            sums[r * columns + c] += rows_read.at(r, part) * columns_read.at(c, part);
      }
    }
  }
};

// NVIDIA's matrix units: fragments of 16 rows by 8 columns, of which lane 4 g + i holds columns 2 i
// and 2 i + 1 of rows g and g + 8. `group` fragments' columns lie so that a lane's are neighbours.
template <class T, class t>
struct FragmentLanes {
  static constexpr int rows = t::wave_m / 8, fragments = t::wave_n / 8;
  static constexpr int group = t::group, run = 2 * group, runs = fragments / group;
  static __device__ int row(int r, int lane) { return r * 8 + lane / 4; }
  static __device__ int column(int q, int lane) { return q * 8 * group + lane % 4 * run; }
  static __device__ constexpr int index(int r, int q, int e) {
    return (r / 2 * fragments + q * group + e / 2) * 4 + r % 2 * 2 + e % 2;
  }
};

// Each product of float32 as three of TF32, the small parts' first. A lane holds, in place of
// summed elements i and i + 4 of a fragment, 2 i and 2 i + 1.
template <class T, class t>
struct Tf32Lanes : FragmentLanes<T, t> {
  using Base = FragmentLanes<T, t>;
  template <bool Along>
  static __device__ Pack<T, 2> two(const T *tile, int extent, int k, int pitch) {
    if constexpr (Along) return *reinterpret_cast<const Pack<T, 2> *>(tile + extent * pitch + k);
    return {tile[k * pitch + extent], tile[(k + 1) * pitch + extent]};
  }
  static __device__ void multiply(float (&sums)[t::accumulators], const T *a, const T *b,
                                  int lane) {
    const int g = lane / 4, pair = lane % 4 * 2;
    float step[t::accumulators] = {};
    DSCORE_UNROLL
    for (int k = 0; k < t::slice; k += 8) {
      Halves left[Base::rows / 2][4], right[Base::fragments][2];
      DSCORE_UNROLL
      for (int r = 0; r < Base::rows; r++) {
        const auto read = two<t::along_a>(a, r * 8 + g, k + pair, t::pitch_a);
        left[r / 2][r % 2] = Halves(read.at[0]), left[r / 2][r % 2 + 2] = Halves(read.at[1]);
      }
      DSCORE_UNROLL
      for (int n = 0; n < Base::fragments; n++) {
        const auto read = two<t::along_b>(b, n * 8 + g, k + pair, t::pitch_b);
        right[n][0] = Halves(read.at[0]), right[n][1] = Halves(read.at[1]);
      }
      multiply_in_three(step, left, right);
    }
    add_step(sums, step);
  }
};

// Elements of 16 bits on matrix units (support/matrix_units.hpp).
template <class T, class t>
struct Matrix16Lanes : FragmentLanes<T, t> {
  using Base = FragmentLanes<T, t>;
  static __device__ void multiply(float (&sums)[t::accumulators], const T *a, const T *b,
                                  int lane) {
    DSCORE_UNROLL_FEW
    for (int k = 0; k < t::slice; k += 16) {
      FragmentA<T> left[Base::rows / 2];
      FragmentB<T> right[Base::fragments];
      DSCORE_UNROLL
      for (int m = 0; m < Base::rows / 2; m++)
        left[m].template read<t::along_a>(a + place_of<t::along_a>(m * 16, k, t::pitch_a),
                                          t::pitch_a, lane);
      read_fragments<t::along_b>(right, b + place_of<t::along_b>(0, k, t::pitch_b), t::pitch_b,
                                 lane);
      DSCORE_UNROLL
      for (int m = 0; m < Base::rows / 2; m++)
        DSCORE_UNROLL
        for (int n = 0; n < Base::fragments; n++)
          multiply_16(sums + (m * Base::fragments + n) * 4, left[m], right[n]);
    }
  }
};

// The same on AMD's: fragments of 16 x 16, of which lane 16 q + r holds rows 4 q to 4 q + 3 of
// column r.
template <class T, class t>
struct MfmaLanes {
  static constexpr int rows = t::wave_m / 4, runs = t::wave_n / 16, run = 1;
  static __device__ int row(int r, int lane) { return r / 4 * 16 + lane / 16 * 4 + r % 4; }
  static __device__ int column(int q, int lane) { return q * 16 + lane % 16; }
  static __device__ constexpr int index(int r, int q, int) {
    return (r / 4 * runs + q) * 4 + r % 4;
  }

  static __device__ void multiply(float (&sums)[t::accumulators], const T *a, const T *b,
                                  int lane) {
    DSCORE_UNROLL_FEW
    for (int k = 0; k < t::slice; k += 16) {
      Quarter<T> left[rows / 4], right[runs];
      DSCORE_UNROLL
      for (int m = 0; m < rows / 4; m++)
        left[m].template read<t::along_a>(a + place_of<t::along_a>(m * 16, k, t::pitch_a),
                                          t::pitch_a, lane);
      DSCORE_UNROLL
      for (int n = 0; n < runs; n++)
        right[n].template read<t::along_b>(b + place_of<t::along_b>(n * 16, k, t::pitch_b),
                                           t::pitch_b, lane);
      DSCORE_UNROLL
      for (int m = 0; m < rows / 4; m++)
        DSCORE_UNROLL
        for (int n = 0; n < runs; n++)
          multiply_quarters(sums + (m * runs + n) * 4, left[m], right[n]);
    }
  }
};

}  // namespace dscore
