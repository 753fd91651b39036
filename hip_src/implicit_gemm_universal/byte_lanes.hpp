// The lanes of a wavefront of the implicit product of matrices (implicit_gemm_universal/lanes.hpp)
// of signed bytes, summed in 32 bits.
#pragma once

#include "implicit_gemm_universal/lanes.hpp"
#include "support/byte_fragments.hpp"
#include "support/filter_sums.hpp"

namespace dscore {

// Count words of LDS that are read as one.
template <int Count>
__device__ inline Pack<Word, Count> words_at(const int8_t *from) {
  return *reinterpret_cast<const Pack<Word, Count> *>(from);
}

// Dot products of four bytes, of up to sixteen channels of a tap at a time.
template <class T, class t, class Layer>
struct DotPatchLanes : PlainPatchLanes<T, t, Layer> {
  using Base = PlainPatchLanes<T, t, Layer>;
  static constexpr int words = t::across / 4;
  // Of a lane: its channels, the one that a sum is of, and the first sum of each.
  static constexpr int channels = Base::rows;
  static constexpr __host__ __device__ int channel_number(int at) { return at / Base::held; }
  static constexpr __host__ __device__ int first_of_channel(int c) { return c * Base::held; }

  static __device__ void multiply(int32_t (&sums)[t::accumulators],
                                  const StepOperands<T, t, Layer> &step, int lane) {
    step.each_fragment([&](int c, int tap) {
      const auto own = step.summed(c, tap, 0);
      Pack<Word, words> a[Base::rows], b[Base::held];
      DSCORE_UNROLL
      for (int i = 0; i < Base::rows; i++)
        a[i] = words_at<words>(step.filter(Base::sum_channel(i * Base::held, lane), own));
      DSCORE_UNROLL
      for (int p = 0; p < Base::held; p++) b[p] = words_at<words>(step.image(p, own));
      DSCORE_UNROLL
      for (int k = 0; k < words; k++)
        DSCORE_UNROLL
        for (int i = 0; i < Base::rows; i++)
          DSCORE_UNROLL
          for (int p = 0; p < Base::held; p++)
            sums[i * Base::held + p] = dot4(a[i].at[k], b[p].at[k], sums[i * Base::held + p]);
    });
  }
};

// NVIDIA's matrix units: sixteen channels of a row by one load of matrices or, where a fragment has
// fewer of a tap, words of four.
template <class T, class t, class Layer>
struct Matrix8PatchLanes : PatchFragmentLanes<T, t, Layer> {
  using Base = PatchFragmentLanes<T, t, Layer>;
  static constexpr int rows = Base::rows, columns = Base::columns;
  static constexpr bool fours = t::across < 16;
  static constexpr int held = fours ? 2 * rows : rows;
  using Step = StepOperands<T, t, Layer>;
  static __device__ int pixel(int i, int lane) {
    return fours ? i * 8 + lane / 4 : i * 16 + lane % 16;
  }
  static constexpr int channels = 2 * columns;
  static constexpr __host__ __device__ int channel_number(int at) {
    return at / 4 % columns * 2 + at % 2;
  }
  static constexpr __host__ __device__ int first_of_channel(int c) { return c / 2 * 4 + c % 2; }
  // Neighbouring channels of a lane, the number of its run of them, and of its pixels.
  static constexpr int run = 2 * t::group, runs = columns / t::group, pixels = 2 * rows;
  static __device__ int run_channel(int q, int lane) { return q * 8 * t::group + lane % 4 * run; }
  static __device__ int run_pixel(int r, int lane) { return r * 8 + lane / 4; }
  static __device__ constexpr int index(int r, int q, int e) {
    return (r / 2 * columns + q * t::group + e / 2) * 4 + r % 2 * 2 + e % 2;
  }

  static __device__ void multiply(int32_t (&sums)[t::accumulators], const Step &step, int lane) {
    step.each_fragment([&](int c, int tap) {
      BytesA left[rows];
      BytesB right[columns];
      if constexpr (fours) read_fours(left, right, step, c, tap, lane);
      else read_sixteens(left, right, step, c, tap, lane);
      DSCORE_UNROLL
      for (int m = 0; m < rows; m++)
        DSCORE_UNROLL
        for (int n = 0; n < columns; n++)
          multiply_32(sums + (m * columns + n) * 4, left[m], right[n]);
    });
  }
  static __device__ const uint16_t *pairs(const T *bytes) {
    return reinterpret_cast<const uint16_t *>(bytes);
  }
  static __device__ void read_sixteens(BytesA (&left)[rows], BytesB (&right)[columns],
                                       const Step &step, int c, int tap, int lane) {
    const auto of_image = step.summed(c, tap, lane / 16 * 16);
    DSCORE_UNROLL
    for (int m = 0; m < rows; m++)
      read_matrices<4, false>(left[m].words, pairs(step.image(m, of_image)));
    const auto of_filter = step.summed(c, tap, lane / 8 % 2 * 16);
    const auto at = [&](int row) { return pairs(step.filter(row + lane % 8, of_filter)); };
    DSCORE_UNROLL
    for (int n = 0; n + 1 < columns; n += 2) {
      Word words[4];
      read_matrices<4, false>(words, at(n * 8 + lane / 16 * 8));
      right[n].words[0] = words[0], right[n].words[1] = words[1];
      right[n + 1].words[0] = words[2], right[n + 1].words[1] = words[3];
    }
    if constexpr (columns % 2)
      read_matrices<2, false>(right[columns - 1].words, at((columns - 1) * 8));
  }
  static __device__ void read_fours(BytesA (&left)[rows], BytesB (&right)[columns],
                                    const Step &step, int c, int tap, int lane) {
    DSCORE_UNROLL
    for (int half = 0; half < 2; half++) {
      const auto own = step.summed(c, tap, lane % 4 * 4 + half * 16);
      DSCORE_UNROLL
      for (int i = 0; i < held; i++)
        left[i / 2].words[i % 2 + half * 2] = words_at<1>(step.image(i, own)).at[0];
      DSCORE_UNROLL
      for (int n = 0; n < columns; n++)
        right[n].words[half] = words_at<1>(step.filter(n * 8 + lane / 4, own)).at[0];
    }
  }
};

// The same on AMD's: lane 16 q + r brings eight summed bytes, from 8 q on.
template <class T, class t, class Layer>
struct Mfma8PatchLanes : MfmaPatchLanes<T, t, Layer> {
  using Base = MfmaPatchLanes<T, t, Layer>;
  static constexpr int held = Base::held, columns = Base::columns, channels = columns;
  static constexpr __host__ __device__ int channel_number(int at) { return at / 4 % columns; }
  static constexpr __host__ __device__ int first_of_channel(int c) { return c * 4; }
  using Step = StepOperands<T, t, Layer>;
  static __device__ void multiply(int32_t (&sums)[t::accumulators], const Step &step, int lane) {
    step.each_fragment([&](int c, int tap) {
      Eighths left[held], right[columns];
      // Eight bytes are of one tap, or of two.
      constexpr int parts = t::across == 4 ? 2 : 1, words = 2 / parts;
      DSCORE_UNROLL
      for (int part = 0; part < parts; part++) {
        const auto own = step.summed(c, tap, lane / 16 * 8 + part * 4);
        DSCORE_UNROLL
        for (int m = 0; m < held; m++)
          put(left[m].words + part, words_at<words>(step.image(m, own)));
        DSCORE_UNROLL
        for (int n = 0; n < columns; n++)
          put(right[n].words + part, words_at<words>(step.filter(n * 16 + lane % 16, own)));
      }
      DSCORE_UNROLL
      for (int m = 0; m < held; m++)
        DSCORE_UNROLL
        for (int n = 0; n < columns; n++)
          multiply_eighths(sums + (m * columns + n) * 4, left[m], right[n]);
    });
  }
  template <int Count>
  static __device__ void put(Word *words, const Pack<Word, Count> &read) {
    DSCORE_UNROLL
    for (int i = 0; i < Count; i++) words[i] = read.at[i];
  }
};

template <class T, class t, class Layer>
using BytePatchLanesOf = std::conditional_t<
    t::plain, DotPatchLanes<T, t, Layer>,
    std::conditional_t<t::mfma, Mfma8PatchLanes<T, t, Layer>, Matrix8PatchLanes<T, t, Layer>>>;

// What multiplies, and what sums filters.
template <class T, class t, class Layer, bool Exact = t::exact>
struct PatchParticulars {
  using Lanes = PatchLanesOf<T, t, Layer>;
  struct Filters {};
};
template <class T, class t, class Layer>
struct PatchParticulars<T, t, Layer, true> {
  using Lanes = BytePatchLanesOf<T, t, Layer>;
  using Filters = FilterSums<t::tile_c, t::filter_bytes, t::filter_row, t::threads_of_filter,
                             t::threads>;
};

}  // namespace dscore
