// Sums of images whose steps several share (image_gemm/product.hpp): the slices of a block, and the
// blocks of a cluster. Of these each adds and stores the sums of some runs of eight channels, of
// all pixels; the others send it theirs. Its own stay in registers.
#pragma once

#include "image_gemm/pixels.hpp"
#include "support/mailbox.hpp"

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
    block.pass(block.shared);
    return false;
  }
  wait_barrier(block.shared, 0);
  DSCORE_UNROLL
  for (int other = 1; other < t::slices; other++)
    each(other, [](float &sum, float part) { sum += part; });
  return true;
}

template <class t>
struct ClusterImageSums {
  unsigned char *lds;
  Mailbox<t::cluster> mailbox;
  int rank;

  // Runs that this block adds.
  __device__ int own_runs() const {
    return greatest(least(t::own_runs, t::all_runs - rank * t::own_runs), 0);
  }
  // One thread.
  __device__ void prepare() const {
    mailbox.prepare((t::cluster - 1) * own_runs() * t::places * 16);
  }
  // Where a lane of block `to` finds four sums that block `from` has sent it, of its `r`-th pair of
  // pixels and a run.
  template <class Pixels>
  __device__ float *sent(int from, int to, int run, const Pixels &pixels, int r,
                         int thread) const {
    const int pair = pixels.image[r] * t::pairs + pixels.pixel[r] / 2, of = from - (from > to);
    return reinterpret_cast<float *>(lds) +
           ((of * t::own_runs + run) * t::places + pair * 4 + thread % 4) * 4;
  }

  // Sends a lane's sums to the blocks that add them; its own block's stay with it. Before the first
  // is sent, all threads wait_for_cluster().
  template <class Sums, class OwnSums, class Pixels>
  __device__ void send(const Sums &sums, OwnSums &own, const Pixels &pixels, int thread) const {
    DSCORE_UNROLL
    for (int run = 0; run < t::all_runs; run++)
      DSCORE_UNROLL
      for (int r = 0; r < t::rows; r++) {
        const int to = run / t::own_runs, of_block = run % t::own_runs;
        Pack<float, 4> four;
        DSCORE_UNROLL
        for (int i = 0; i < 4; i++) {
          four.at[i] = sums[r][run * 4 + i];
          if (to == rank) own[r][of_block * 4 + i] = four.at[i];
        }
        if (to != rank && pixels.held[r])
          mailbox.send(sent(rank, to, of_block, pixels, r, thread), to, four);
      }
  }
  // Adds them in the order of the blocks' ranks.
  template <class OwnSums, class Pixels>
  __device__ void join(OwnSums &own, const Pixels &pixels, int thread) const {
    mailbox.wait();
    DSCORE_UNROLL
    for (int run = 0; run < t::own_runs; run++)
      DSCORE_UNROLL
      for (int r = 0; r < t::rows; r++) {
        if (!pixels.held[r] || run >= own_runs()) continue;
        Pack<float, 4> four{};
        DSCORE_UNROLL
        for (int from = 0; from < t::cluster; from++) {
          Pack<float, 4> others;
          DSCORE_UNROLL
          for (int i = 0; i < 4; i++) others.at[i] = own[r][run * 4 + i];
          if (from != rank) others = read_vector<4>(sent(from, rank, run, pixels, r, thread));
          DSCORE_UNROLL
          for (int i = 0; i < 4; i++)
            four.at[i] = from == 0 ? others.at[i] : four.at[i] + others.at[i];
        }
        DSCORE_UNROLL
        for (int i = 0; i < 4; i++) own[r][run * 4 + i] = four.at[i];
      }
  }
};

}  // namespace dscore
