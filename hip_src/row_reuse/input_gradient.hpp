// Input gradient by row reuse, of depthwise layers with a filter for each channel: the walk over
// the rows of the output's gradient. Order of additions: these rows, and so filter rows descending;
// within these filter columns, ascending, on matrix units descending.
#pragma once

#include "row_reuse/kernel.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape, class Epilogue>
struct RowReuseInputGradient
    : WalkOverRows<T, Tiling, GradientView<Layer, Tiling::lead_h, Tiling::lead_w>, Shape,
                   RoundedSums<T>> {
  using Walk = WalkOverRows<T, Tiling, GradientView<Layer, Tiling::lead_h, Tiling::lead_w>, Shape,
                            RoundedSums<T>>;
  using Walk::Walk;
  static_assert(Tiling::thread_h % Layer::stride_h == 0 && Tiling::thread_w % Layer::stride_w == 0,
                "a thread's rows and columns are multiples of the stride");
};

}  // namespace dscore
