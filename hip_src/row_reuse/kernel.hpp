// Depthwise convolution by row reuse. Order of additions: filter rows, within these filter columns,
// both ascending; then bias.
#pragma once

#include "row_reuse/walk.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape, class Epilogue>
struct RowReuse : RowWalk<T, Tiling, ForwardView<Layer>, Shape, Epilogue> {
  using Walk = RowWalk<T, Tiling, ForwardView<Layer>, Shape, Epilogue>;
  using Walk::Walk;
};

}  // namespace dscore
