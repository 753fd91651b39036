// Weight gradient of depthwise layers on images whose channels lie side by side (NHWC): sums over
// all images and outputs, for each tap of a filter.
// Blocks take shares of the images' tiles, whose rows come in bands, as those of channel_vectors.
// Order of additions, as the reference backend has it: of a thread tiles, within these rows of x,
// within these its columns of the gradient, all ascending; on matrix units of a wavefront tiles,
// within these rows of the gradient, within these its columns; then the threads of a channel,
// ascending; then the blocks of a cluster, ascending; then slices (tap_sums/parts.hpp). What lies
// outside x is 0 · gradient.
#pragma once

#include "channel_sums/fragments.hpp"
#include "channel_sums/lanes.hpp"
#include "channel_sums/shares.hpp"

namespace dscore {

template <class T, class t, class Layer, class Shape, class Result>
using SummingWalk = std::conditional_t<t::diagonal, SummingFragments<T, t, Layer, Shape, Result>,
                                       SummingLanes<T, t, Layer, Shape, Result>>;

template <class T, class Tiling, class Layer, class Shape, class Epilogue>
struct ChannelSums : SumsOfShares<SummingWalk<T, Tiling, Layer, Shape, typename Epilogue::Result>> {
  using Sums = SumsOfShares<SummingWalk<T, Tiling, Layer, Shape, typename Epilogue::Result>>;
  using Sums::Sums;
};

}  // namespace dscore
