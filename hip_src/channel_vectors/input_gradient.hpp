// Input gradient of depthwise layers with a filter for each channel, of images whose channels lie
// side by side: the walk over the rows of the output's gradient. Order of additions: these rows,
// and so filter rows descending; within these filter columns, ascending.
#pragma once

#include "channel_vectors/kernel.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape, class Epilogue>
struct ChannelVectorsInputGradient
    : WalkOfChannels<T, Tiling, GradientView<Layer, Tiling::lead_h, Tiling::lead_w>, Shape,
                  RoundedSums<T>> {
  using Walk = WalkOfChannels<T, Tiling, GradientView<Layer, Tiling::lead_h, Tiling::lead_w>, Shape,
                           RoundedSums<T>>;
  using Walk::Walk;
  static_assert(Tiling::thread_h % Layer::stride_h == 0 && Tiling::thread_w % Layer::stride_w == 0,
                "a thread's rows and columns are multiples of the stride");
};

}  // namespace dscore
