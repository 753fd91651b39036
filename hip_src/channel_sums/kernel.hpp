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

namespace dscore {

template <class T, class t, class Layer, class Shape, class Result>
using SummingWalk = std::conditional_t<t::diagonal, SummingFragments<T, t, Layer, Shape, Result>,
                                       SummingLanes<T, t, Layer, Shape, Result>>;

template <class T, class Tiling, class Layer, class Shape_, class Epilogue>
struct ChannelSums : SummingWalk<T, Tiling, Layer, Shape_, typename Epilogue::Result> {
  using Shape = Shape_;
  using t = Tiling;
  using L = Layer;
  using Walk = SummingWalk<T, t, L, Shape, typename Epilogue::Result>;
  using Arguments = typename Walk::Arguments;
  using Walk::unit_end, Walk::live, Walk::lds, Walk::thread, Walk::threads;

  __device__ ChannelSums(const Arguments &args, const Shape &shape) : Walk(args, shape) {}

  __device__ void run(const Arguments &args) {
    // Blocks of the sum of slices may come beforehand: they wait for this kernel's end.
    if constexpr (t::ahead || t::slices > 1) admit_next_kernel();
    const int begin = this->first_unit();
    DSCORE_UNROLL
    for (int stage = 0; stage < t::stages; stage++) this->start_load(stage, begin + stage);
    DSCORE_ROLLED
    for (int unit = begin; unit < unit_end; unit++) {
      const int stage = (unit - begin) % t::stages;
      DSCORE_UNROLL
      for (int band = 0; band < t::bands; band++) {
        wait_copies_but<t::stages * t::bands - 1>(t::stages * t::bands - 1 - band);
        __syncthreads();
        if (live) this->walk(lds + stage * Walk::stage_elements, unit, band);
      }
      __syncthreads();
      this->start_load(stage, unit + t::stages);
    }
    wait_copies<0>();
    const auto each = [&](int tap, const auto &use) { this->each_sum(tap, use); };
    const auto store = [&](int at, float sum) { this->store(args, at, sum); };
    if constexpr (t::cluster == 1) {
      this->reduce(each, store);
    } else {
      float *const of_block =
          reinterpret_cast<float *>(lds) + Walk::parts_bytes / int{sizeof(float)};
      this->reduce(each, [&](int at, float sum) { of_block[at] = sum; });
      join_shares<t::cluster, threads>(of_block, L::kernel_h * Walk::of_row, this->rank(),
                                       thread, store);
    }
  }
};

}  // namespace dscore
