// Depthwise convolution of images whose channels lie side by side (NHWC). Order of additions:
// filter rows, within these filter columns, both ascending; then bias.
#pragma once

#include "channel_vectors/walk.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape, class Epilogue>
struct ChannelVectors : ChannelWalk<T, Tiling, ForwardView<Layer>, Shape, Epilogue> {
  using Walk = ChannelWalk<T, Tiling, ForwardView<Layer>, Shape, Epilogue>;
  using Walk::Walk;
};

}  // namespace dscore
