// The lanes of a wavefront of the implicit product of matrices of both layouts
// (implicit_gemm_universal/kernel.hpp): how they multiply, and which results each holds.
//
// The summed elements of a fragment are `across` channels of each of `taps_together` taps. A kind
// of lanes says which pixels a lane reads (`held` of them, `pixel`), and of which pixel and channel
// of the wavefront's tile each of its sums is. What it is given: `step`, which finds the operands
// in LDS.
#pragma once

#include "implicit_gemm_universal/tiles.hpp"
#include "support/joined_sums.hpp"
#include "support/matrix_units.hpp"

namespace dscore {

// The operands of a step in LDS, for a lane: where its pixels lie in the patch, times the elements
// from one to the next.
template <class T, class t, class Layer>
struct StepOperands {
  const T *filters, *images, *zeros;  // of the wavefront's channels; of a step's first ones
  const int *places;
  int first_channel, row_width;  // of the wavefront's slice

  __device__ int tap_place(int tap) const {
    return tap / Layer::kernel_w * Layer::dilation_h * row_width +
           tap % Layer::kernel_w * Layer::dilation_w;
  }
  // Of a fragment that begins with `tap`, the lane's summed elements from `k` on: what their tap
  // and channel add to the places of images and filters, and whether there is such a tap.
  struct Summed {
    int image, filter;
    bool there;
  };
  __device__ Summed summed(int c, int tap, int k) const {
    Summed own{};
    DSCORE_UNROLL
    for (int other = 0; other < t::taps_together; other++)
      if (t::taps_together == 1 || k / t::across == other)
        own = {tap_place(tap + other) * t::element + first_channel + c + k % t::across,
               t::filter_place(first_channel + c + k % t::across, tap + other),
               t::taps % t::taps_together == 0 || tap + other < t::taps};
    return own;
  }
  __device__ const T *image(int i, const Summed &own) const {
    return own.there ? images + places[i] + own.image : zeros;
  }
  __device__ const T *filter(int channel, const Summed &own) const {
    return own.there ? filters + channel * t::filter_row + own.filter : zeros;
  }
  // Calls each(channel, tap) for the first of every fragment.
  template <class Each>
  __device__ void each_fragment(Each each) const {
    DSCORE_ROLLED
    for (int c = 0; c < t::slice; c += t::across) {
      if constexpr (t::taps <= 10) {
        DSCORE_UNROLL_READS
        for (int tap = 0; tap < t::taps; tap += t::taps_together) each(c, tap);
      } else {
        DSCORE_ROLLED
        for (int tap = 0; tap < t::taps; tap += t::taps_together) each(c, tap);
      }
    }
  }
};

// Plain arithmetic: fused multiply-adds in float32, four channels of a tap at a time.
template <class T, class t, class Layer>
struct PlainPatchLanes {
  static constexpr int rows = t::wave_c / t::lanes_c, held = t::wave_p / t::lanes_p;
  static __device__ int pixel(int i, int lane) { return i * t::lanes_p + lane % t::lanes_p; }
  static __device__ int sum_pixel(int at, int lane) { return pixel(at % held, lane); }
  static __device__ int sum_channel(int at, int lane) {
    return at / held * t::lanes_c + lane / t::lanes_p;
  }
  static constexpr int beside = 1;  // sums of neighbouring channels

  static __device__ void multiply(float (&sums)[t::accumulators],
                                  const StepOperands<T, t, Layer> &step, int lane) {
    step.each_fragment([&](int c, int tap) {
      const auto own = step.summed(c, tap, 0);
      Pack<T, 4> a[rows], b[held];
      DSCORE_UNROLL
      for (int i = 0; i < rows; i++)
        a[i] = read_vector<4>(step.filter(sum_channel(i * held, lane), own));
      DSCORE_UNROLL
      for (int p = 0; p < held; p++) b[p] = read_vector<4>(step.image(p, own));
      DSCORE_UNROLL
      for (int k = 0; k < 4; k++)
        DSCORE_UNROLL
        for (int i = 0; i < rows; i++)
          DSCORE_UNROLL
          for (int p = 0; p < held; p++)
            sums[i * held + p] +=
                static_cast<float>(a[i].at[k]) * static_cast<float>(b[p].at[k]);
    });
  }
};

// NVIDIA's matrix units: fragments of 16 pixels by 8 channels, of which lane 4 g + i holds channels
// 2 i and 2 i + 1 of pixels g and g + 8.
template <class T, class t, class Layer>
struct PatchFragmentLanes {
  static constexpr int rows = t::wave_p / 16, columns = t::wave_c / 8, beside = 2;
  static __device__ int sum_pixel(int at, int lane) {
    return at / (4 * columns) * 16 + at % 4 / 2 * 8 + lane / 4;
  }
  static __device__ int sum_channel(int at, int lane) {
    return t::channel_of_row(at / 4 % columns * 8 + lane % 4 * 2 + at % 2);
  }
};

// Each product of float32 as three of TF32, the small parts' first. A lane holds, in place of
// summed elements i and i + 4 of a fragment, 2 i and 2 i + 1.
template <class T, class t, class Layer>
struct Tf32PatchLanes : PatchFragmentLanes<T, t, Layer> {
  using Base = PatchFragmentLanes<T, t, Layer>;
  static constexpr int held = 2 * Base::rows;
  static __device__ int pixel(int i, int lane) { return i * 8 + lane / 4; }
  static __device__ void multiply(float (&sums)[t::accumulators],
                                  const StepOperands<T, t, Layer> &step, int lane) {
    float own_sums[t::accumulators] = {};
    step.each_fragment([&](int c, int tap) {
      const auto own = step.summed(c, tap, lane % 4 * 2);
      Halves a[Base::rows][4], b[Base::columns][2];
      DSCORE_UNROLL
      for (int i = 0; i < held; i++) {
        const auto two = read_vector<2>(step.image(i, own));
        a[i / 2][i % 2] = Halves(two.at[0]), a[i / 2][i % 2 + 2] = Halves(two.at[1]);
      }
      DSCORE_UNROLL
      for (int n = 0; n < Base::columns; n++) {
        const auto two = read_vector<2>(step.filter(n * 8 + lane / 4, own));
        b[n][0] = Halves(two.at[0]), b[n][1] = Halves(two.at[1]);
      }
      multiply_in_three(own_sums, a, b);
    });
    add_step(sums, own_sums);
  }
};

// Elements of 16 bits on matrix units (support/matrix_units.hpp): eight channels of a row by one
// load of matrices or, where a fragment has four of a tap, pairs of them.
template <class T, class t, class Layer>
struct Matrix16PatchLanes : PatchFragmentLanes<T, t, Layer> {
  using Base = PatchFragmentLanes<T, t, Layer>;
  static constexpr bool pairs = t::across == 4;
  static constexpr int held = pairs ? 2 * Base::rows : Base::rows;
  static __device__ int pixel(int i, int lane) {
    return pairs ? i * 8 + lane / 4 : i * 16 + lane % 16;
  }
  using Left = FragmentA<T>;
  using Right = FragmentB<T>;

  static __device__ void multiply(float (&sums)[t::accumulators],
                                  const StepOperands<T, t, Layer> &step, int lane) {
    step.each_fragment([&](int c, int tap) {
      Left left[Base::rows];
      Right right[Base::columns];
      if constexpr (pairs) read_pairs(left, right, step, c, tap, lane);
      else read_eights(left, right, step, c, tap, lane);
      DSCORE_UNROLL
      for (int m = 0; m < Base::rows; m++)
        DSCORE_UNROLL
        for (int n = 0; n < Base::columns; n++)
          multiply_16(sums + (m * Base::columns + n) * 4, left[m], right[n]);
    });
  }
  static __device__ void read_eights(Left (&left)[Base::rows], Right (&right)[Base::columns],
                                     const StepOperands<T, t, Layer> &step, int c, int tap,
                                     int lane) {
    const auto of_image = step.summed(c, tap, lane / 16 * 8);
    DSCORE_UNROLL
    for (int m = 0; m < Base::rows; m++)
      read_matrices<4, false>(left[m].words, step.image(m, of_image));
    const auto of_filter = step.summed(c, tap, lane / 8 % 2 * 8);
    DSCORE_UNROLL
    for (int n = 0; n + 1 < Base::columns; n += 2) {
      Word words[4];
      read_matrices<4, false>(words, step.filter(n * 8 + lane / 16 * 8 + lane % 8, of_filter));
      right[n].words[0] = words[0], right[n].words[1] = words[1];
      right[n + 1].words[0] = words[2], right[n + 1].words[1] = words[3];
    }
    if constexpr (Base::columns % 2)
      read_matrices<2, false>(right[Base::columns - 1].words,
                              step.filter((Base::columns - 1) * 8 + lane % 8, of_filter));
  }
  static __device__ void read_pairs(Left (&left)[Base::rows], Right (&right)[Base::columns],
                                    const StepOperands<T, t, Layer> &step, int c, int tap,
                                    int lane) {
    DSCORE_UNROLL
    for (int half = 0; half < 2; half++) {
      const auto own = step.summed(c, tap, lane % 4 * 2 + half * 8);
      DSCORE_UNROLL
      for (int i = 0; i < held; i++)
        left[i / 2].words[i % 2 + half * 2] = bits_as<Word>(read_vector<2>(step.image(i, own)));
      DSCORE_UNROLL
      for (int n = 0; n < Base::columns; n++)
        right[n].words[half] = bits_as<Word>(read_vector<2>(step.filter(n * 8 + lane / 4, own)));
    }
  }
};

// The same on AMD's: fragments of 16 x 16, of which lane 16 q + r brings four summed elements from
// 4 q on, and holds pixels 4 q to 4 q + 3 of channel r.
template <class T, class t, class Layer>
struct MfmaPatchLanes {
  static constexpr int held = t::wave_p / 16, columns = t::wave_c / 16, beside = 1;
  static __device__ int pixel(int i, int lane) { return i * 16 + lane % 16; }
  static __device__ int sum_pixel(int at, int lane) {
    return at / (4 * columns) * 16 + lane / 16 * 4 + at % 4;
  }
  static __device__ int sum_channel(int at, int lane) { return at / 4 % columns * 16 + lane % 16; }
  static __device__ void multiply(float (&sums)[t::accumulators],
                                  const StepOperands<T, t, Layer> &step, int lane) {
    step.each_fragment([&](int c, int tap) {
      const auto own = step.summed(c, tap, lane / 16 * 4);
      Quarter<T> left[held], right[columns];
      DSCORE_UNROLL
      for (int m = 0; m < held; m++) left[m].at = read_vector<4>(step.image(m, own));
      DSCORE_UNROLL
      for (int n = 0; n < columns; n++)
        right[n].at = read_vector<4>(step.filter(n * 16 + lane % 16, own));
      DSCORE_UNROLL
      for (int m = 0; m < held; m++)
        DSCORE_UNROLL
        for (int n = 0; n < columns; n++)
          multiply_quarters(sums + (m * columns + n) * 4, left[m], right[n]);
    });
  }
};

template <class T, class t, class Layer>
using PatchLanesOf = std::conditional_t<
    t::plain, PlainPatchLanes<T, t, Layer>,
    std::conditional_t<
        t::arithmetic == Products::tf32x3, Tf32PatchLanes<T, t, Layer>,
        std::conditional_t<t::mfma, MfmaPatchLanes<T, t, Layer>, Matrix16PatchLanes<T, t, Layer>>>>;

}  // namespace dscore
