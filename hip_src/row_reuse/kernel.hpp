// Depthwise convolution by row reuse. Order of additions: filter rows, within these filter columns,
// both ascending; then bias. Of int8 sums are exact.
#pragma once

#include "row_reuse/integer_walk.hpp"
#include "row_reuse/toeplitz_walk.hpp"
#include "row_reuse/walk.hpp"

namespace dscore {

template <class T, class Tiling, class View, class Shape, class Results>
using WalkOverRows =
    std::conditional_t<std::is_same_v<T, int8_t>, IntegerRowWalk<T, Tiling, View, Shape, Results>,
                       std::conditional_t<Tiling::units,
                                          ToeplitzWalk<T, Tiling, View, Shape, Results>,
                                          RowWalk<T, Tiling, View, Shape, Results>>>;

template <class T, class Tiling, class Layer, class Shape, class Epilogue>
struct RowReuse : WalkOverRows<T, Tiling, ForwardView<Layer>, Shape, Epilogue> {
  using Walk = WalkOverRows<T, Tiling, ForwardView<Layer>, Shape, Epilogue>;
  using Walk::Walk;
  // Of other types it was not measured.
  static constexpr bool most_lds = Tiling::through_lds && std::is_same_v<T, float>;
};

}  // namespace dscore
