// The transforms of Winograd's F(m x m, 3x3) (dscore/core/winograd.py has the same matrices).
//
// Rows of Bᵀ and G that differ in the signs of their odd elements alone stand in pairs: their even
// part and their odd part are summed once each, from the first element on, and added and
// subtracted. Columns of Aᵀ do, too: what pairs hold is added for even rows, subtracted for odd
// ones.
#pragma once

#include "support/common.hpp"

namespace dscore {

// Functions, as device code has no arrays of the host.
template <int Outputs>
struct WinogradMatrices;

template <>
struct WinogradMatrices<2> {
  static __host__ __device__ constexpr double input(int row, int column) {
    constexpr double of[4][4] = {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}};
    return of[row][column];
  }
  static __host__ __device__ constexpr double filter(int row, int column) {
    constexpr double of[4][3] = {{1, 0, 0}, {.5, .5, .5}, {.5, -.5, .5}, {0, 0, 1}};
    return of[row][column];
  }
  static __host__ __device__ constexpr double output(int row, int column) {
    constexpr double of[2][4] = {{1, 1, 1, 0}, {0, 1, -1, -1}};
    return of[row][column];
  }
};

template <>
struct WinogradMatrices<4> {
  static __host__ __device__ constexpr double input(int row, int column) {
    constexpr double of[6][6] = {{4, 0, -5, 0, 1, 0},  {0, -4, -4, 1, 1, 0}, {0, 4, -4, -1, 1, 0},
                                 {0, -2, -1, 2, 1, 0}, {0, 2, -1, -2, 1, 0}, {0, 4, 0, -5, 0, 1}};
    return of[row][column];
  }
  static __host__ __device__ constexpr double filter(int row, int column) {
    constexpr double of[6][3] = {{6, 0, 0}, {-4, -4, -4}, {-4, 4, -4},
                                 {1, 2, 4}, {1, -2, 4},   {0, 0, 24}};
    return of[row][column] / 24;
  }
  static __host__ __device__ constexpr double output(int row, int column) {
    constexpr double of[4][6] = {
        {1, 1, 1, 1, 1, 0}, {0, 1, -1, 2, -2, 0}, {0, 1, 1, 4, 4, 0}, {0, 1, -1, 8, -8, 1}};
    return of[row][column];
  }
};

// Whether pairs are pairs.
template <int Outputs>
constexpr bool winograd_pairs() {
  using Matrices = WinogradMatrices<Outputs>;
  for (int row = 1; row < Outputs + 1; row += 2) {
    for (int i = 0; i < Outputs + 2; i++)
      if (Matrices::input(row + 1, i) != (i % 2 ? -1 : 1) * Matrices::input(row, i)) return false;
    for (int i = 0; i < 3; i++)
      if (Matrices::filter(row + 1, i) != (i % 2 ? -1 : 1) * Matrices::filter(row, i)) return false;
    for (int o = 0; o < Outputs; o++)
      if (Matrices::output(o, row + 1) != (o % 2 ? -1 : 1) * Matrices::output(o, row)) return false;
  }
  return true;
}

template <int Outputs>
struct WinogradTransform {
  using Matrices = WinogradMatrices<Outputs>;
  static constexpr int side = Outputs + 2, planes = side * side, pairs = Outputs / 2;
  static_assert(winograd_pairs<Outputs>(), "pairs of rows");
  struct Input {
    static __host__ __device__ constexpr double at(int row, int column) {
      return Matrices::input(row, column);
    }
    static constexpr int columns = side;
  };
  struct Filter {
    static __host__ __device__ constexpr double at(int row, int column) {
      return Matrices::filter(row, column);
    }
    static constexpr int columns = 3;
  };

  // Sum of a row's elements from I on, each By-th, times value(i).
  template <class Matrix, int Row, int I, int By, bool Empty = true, class Value>
  static __device__ inline float sum(float total, Value value) {
    if constexpr (I >= Matrix::columns) {
      return total;
    } else {
      constexpr double factor = Matrix::at(Row, I);
      if constexpr (factor == 0) return sum<Matrix, Row, I + By, By, Empty>(total, value);
      else return sum<Matrix, Row, I + By, By, false>(
          added<Empty>(total, static_cast<float>(factor), value(I)), value);
    }
  }
  template <bool Empty>
  static __device__ inline float added(float total, float factor, float value) {
    const float term = factor == 1.0f ? value : factor * value;
    return Empty ? term : total + term;
  }

  // A matrix of `side` rows times a column.
  template <class Matrix, int Row = 1, class Value>
  static __device__ inline void rows(float (&out)[side], Value value) {
    if constexpr (Row + 2 > side) {
      out[0] = sum<Matrix, 0, 0, 1>(0.0f, value);
      out[side - 1] = sum<Matrix, side - 1, 0, 1>(0.0f, value);
    } else {
      const float even = sum<Matrix, Row, 0, 2>(0.0f, value);
      const float odd = sum<Matrix, Row, 1, 2>(0.0f, value);
      out[Row] = even + odd;
      out[Row + 1] = even - odd;
      if constexpr (Row + 3 < side) rows<Matrix, Row + 2>(out, value);
      else rows<Matrix, side>(out, value);
    }
  }

  // Bᵀ d B, in place.
  static __device__ inline void input(float (&d)[side][side]) {
    DSCORE_UNROLL
    for (int column = 0; column < side; column++) {
      float out[side];
      rows<Input>(out, [&](int i) { return d[i][column]; });
      DSCORE_UNROLL
      for (int i = 0; i < side; i++) d[i][column] = out[i];
    }
    DSCORE_UNROLL
    for (int row = 0; row < side; row++) {
      float out[side];
      rows<Input>(out, [&](int i) { return d[row][i]; });
      DSCORE_UNROLL
      for (int i = 0; i < side; i++) d[row][i] = out[i];
    }
  }

  // G w Gᵀ.
  static __device__ inline void filter(const float (&w)[9], float (&u)[side][side]) {
    float columns[3][side];
    DSCORE_UNROLL
    for (int column = 0; column < 3; column++)
      rows<Filter>(columns[column], [&](int i) { return w[3 * i + column]; });
    DSCORE_UNROLL
    for (int row = 0; row < side; row++)
      rows<Filter>(u[row], [&](int i) { return columns[i][row]; });
  }

  // Row Row of Aᵀ times a column, whose pairs' sums and differences are given.
  template <int Row, int Pair = 0, bool Empty = true>
  static __device__ inline float output(float total, const float (&sums)[pairs],
                                        const float (&differences)[pairs], float last) {
    if constexpr (Pair < pairs) {
      constexpr auto factor = static_cast<float>(Matrices::output(Row, 2 * Pair + 1));
      return output<Row, Pair + 1, false>(
          added<Empty>(total, factor, Row % 2 ? differences[Pair] : sums[Pair]), sums, differences,
          last);
    } else {
      constexpr auto factor = static_cast<float>(Matrices::output(Row, side - 1));
      if constexpr (factor == 0.0f) return total;
      else return added<false>(total, factor, last);
    }
  }
  template <int Row = 0, class Value>
  static __device__ inline void outputs(float (&out)[Outputs], const float (&sums)[pairs],
                                        const float (&differences)[pairs], Value value) {
    if constexpr (Row < Outputs) {
      constexpr bool begins = Matrices::output(Row, 0) != 0;
      static_assert(Matrices::output(Row, 0) == begins, "Aᵀ begins with 1 or 0");
      out[Row] = output<Row, 0, !begins>(begins ? value(0) : 0.0f, sums, differences,
                                         value(side - 1));
      outputs<Row + 1>(out, sums, differences, value);
    }
  }
  template <class Value>
  static __device__ inline void column(float (&out)[Outputs], Value value) {
    float sums[pairs], differences[pairs];
    DSCORE_UNROLL
    for (int pair = 0; pair < pairs; pair++) {
      sums[pair] = value(2 * pair + 1) + value(2 * pair + 2);
      differences[pair] = value(2 * pair + 1) - value(2 * pair + 2);
    }
    outputs(out, sums, differences, value);
  }
  // Aᵀ m A.
  static __device__ inline void output(const float (&m)[side][side], float (&y)[Outputs][Outputs]) {
    float columns[side][Outputs];
    DSCORE_UNROLL
    for (int i = 0; i < side; i++) column(columns[i], [&](int row) { return m[row][i]; });
    DSCORE_UNROLL
    for (int row = 0; row < Outputs; row++) column(y[row], [&](int i) { return columns[i][row]; });
  }
};

}  // namespace dscore
