// Sums of images whose steps several share (image_gemm/product.hpp): the slices of a block, and the
// blocks of a cluster. Of these each adds and stores the sums of some runs of eight channels, of
// all pixels; the others send it theirs. Its own stay in registers.
#pragma once

#include "image_gemm/pixels.hpp"

namespace dscore {

// Adds the slices' sums to the first one's; whether the thread is of that.
template <class Products>
__device__ inline bool join_image_slices(const Products &block, typename Products::Sums &sums) {
  using t = typename Products::t;
  float *parts =
      reinterpret_cast<float *>(block.lds + t::shared_at) + block.thread % t::slice_threads;
  const auto each = [&](int of_slice, auto take) {
    DSCORE_UNROLL
    for (int r = 0; r < t::rows; r++)
      DSCORE_UNROLL
      for (int i = 0; i < t::tile_n / 2; i++)
        take(sums[r][i], parts[(((of_slice - 1) * t::rows + r) * (t::tile_n / 2) + i) *
                               t::slice_threads]);
  };
  if (block.slice > 0) {
    each(block.slice, [](float sum, float &part) { part = sum; });
    arrive(block.shared);  // every lane: one that does for all leaves racecheck in doubt
    return false;
  }
  wait_barrier(block.shared, 0);
  DSCORE_UNROLL
  for (int other = 1; other < t::slices; other++)
    each(other, [](float &sum, float part) { sum += part; });
  return true;
}

// A lane's sums, of its pairs of pixels and all runs of eight channels.
template <class t>
struct ClusterImageSums {
  typename t::SharedRuns runs;

  template <class Pixels>
  static __device__ int place(const Pixels &pixels, int r, int thread) {
    return (pixels.image[r] * t::pairs + pixels.pixel[r] / 2) * 4 + thread % 4;
  }
  template <class Sums>
  static __device__ Pack<float, 4> four_of(const Sums &sums, int r, int run) {
    return {{sums[r][run * 4], sums[r][run * 4 + 1], sums[r][run * 4 + 2], sums[r][run * 4 + 3]}};
  }
  template <class Sums>
  static __device__ void keep(Sums &sums, int r, int run, const Pack<float, 4> &four) {
    DSCORE_UNROLL
    for (int i = 0; i < 4; i++) sums[r][run * 4 + i] = four.at[i];
  }

  // Sends them to the blocks that add them; this block's own stay in `own`.
  template <class Sums, class OwnSums, class Pixels>
  __device__ void send(const Sums &sums, OwnSums &own, const Pixels &pixels, int thread) const {
    DSCORE_UNROLL
    for (int run = 0; run < t::all_runs; run++)
      DSCORE_UNROLL
      for (int r = 0; r < t::rows; r++) {
        const auto four = four_of(sums, r, run);
        if (runs.adds(run)) keep(own, r, run % t::own_runs, four);
        else if (pixels.held[r]) runs.send(run, place(pixels, r, thread), four);
      }
  }
  // Adds to these what the others have sent.
  template <class OwnSums, class Pixels>
  __device__ void join(OwnSums &own, const Pixels &pixels, int thread) const {
    runs.mailbox.wait();
    DSCORE_UNROLL
    for (int run = 0; run < t::own_runs; run++)
      DSCORE_UNROLL
      for (int r = 0; r < t::rows; r++)
        if (pixels.held[r] && run < runs.own())
          keep(own, r, run, runs.sum(run, place(pixels, r, thread), four_of(own, r, run)));
  }
};

}  // namespace dscore
