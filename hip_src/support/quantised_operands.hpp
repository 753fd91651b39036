// The operands of layers of int8 (docs/int8.md), and what their results need of these.
#pragma once

#include "support/rounded_bytes.hpp"

namespace dscore {

// The operands of a layer of int8, in the order of their addresses. `points` has four int32: the
// zero points of x and y, the least and the greatest y; then those of the residual and of what is
// scaled, whose multipliers are `ratios`; then that of what this becomes. Where x is of floats,
// their multiplier is the last ratio.
struct QuantisedOperands {
  const void *x, *w, *bias, *multiplier, *points;
};
struct WithRatios {
  const void *ratios;
};
struct WithResidual {
  const void *residual;
};
struct WithScale {
  const void *scale;
};
struct WithTable {
  const void *table;
};
template <int>
struct Without {};
template <bool Residual, bool Scaled, bool Table, bool OfFloats = false>
struct QuantisedArguments : QuantisedOperands,
                            std::conditional_t<Residual || Scaled || OfFloats, WithRatios,
                                               Without<3>>,
                            std::conditional_t<Residual, WithResidual, Without<0>>,
                            std::conditional_t<Scaled, WithScale, Without<1>>,
                            std::conditional_t<Table, WithTable, Without<2>> {
  void *out;
};

// Of the results: their zero point, and the bounds of what is added to it, as floats; the same for
// two at a time, and for entries of a table; the residuals, what these count from and their
// multiplier; a table, in memory or, of kernels that copy it, in LDS.
struct Points {
  int32_t zero;
  float low, high;
  PairPoints pairs;
  EntryPoints entries;
  int32_t residual_zero;
  float residual_multiplier;
  const int8_t *residual, *table;
  __device__ inline int entry(int number) const { return table[number]; }
};

// Integers of int8 for floats of x, by their multiplier and x's zero point.
struct FloatPoints {
  float multiplier, low, high;
  int32_t zero;
  static __device__ inline FloatPoints of(float multiplier, int32_t zero) {
    return {multiplier, static_cast<float>(-128 - zero), static_cast<float>(127 - zero), zero};
  }
  // Whose lowest byte is the integer.
  __device__ inline int32_t integer(float value) const {
    return nearest_within(value * multiplier, low, high) + zero;
  }
};

// What these are made of, as memory has it.
struct RawPoints {
  int32_t at[5];
  float residual_multiplier;
};

// What results of neighbouring channels need beside their sums.
template <int Count>
struct Channels {
  float multipliers[Count];
  int32_t biases[Count];
};

}  // namespace dscore
