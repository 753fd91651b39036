// Depthwise convolution of images whose channels lie side by side (NHWC). Order of additions:
// filter rows, within these filter columns, both ascending; then bias. Of int8 sums are exact.
#pragma once

#include "channel_vectors/diagonal_walk.hpp"
#include "channel_vectors/integer_walk.hpp"
#include "channel_vectors/walk.hpp"

namespace dscore {

template <class T, class Tiling, class View, class Shape, class Results>
using WalkOfChannels =
    std::conditional_t<std::is_same_v<T, int8_t>, IntegerWalk<T, Tiling, View, Shape, Results>,
                       std::conditional_t<Tiling::diagonal,
                                          DiagonalWalk<T, Tiling, View, Shape, Results>,
                                          ChannelWalk<T, Tiling, View, Shape, Results>>>;

template <class T, class Tiling, class Layer, class Shape, class Epilogue>
struct ChannelVectors : WalkOfChannels<T, Tiling, ForwardView<Layer>, Shape, Epilogue> {
  using Walk = WalkOfChannels<T, Tiling, ForwardView<Layer>, Shape, Epilogue>;
  using Walk::Walk;
};

}  // namespace dscore
