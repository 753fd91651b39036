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

// Of the results: their bounds and zero point, and those of entries of a table; the residuals, what
// these count from and their multiplier; a table, in memory or, of kernels that copy it, in LDS.
struct Points {
  ByteRange range;
  EntryPoints entries;
  int32_t residual_zero;
  float residual_multiplier;
  const int8_t *residual, *table;
  __device__ inline int entry(int number) const { return table[number]; }
};

// Integers of int8 for floats of x, by their multiplier and x's zero point.
struct FloatPoints {
  float multiplier;
  ByteRange range;
  static __device__ inline FloatPoints of(float multiplier, int32_t zero) {
    return {multiplier, ByteRange::of(-128, 127, zero)};
  }
  __device__ inline int8_t byte(float value) const {
    return bytes<1>([=](int) { return value; }).at[0];
  }
  // Of value_of(i), for each of Count.
  template <int Count, class ValueOf>
  __device__ inline Pack<int8_t, Count> bytes(ValueOf value_of) const {
    return range.bytes<Count>([&](int i) { return rounded_product(value_of(i), multiplier); });
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
