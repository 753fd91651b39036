// Of channel sums: the run of a block over its shares of the tiles, band by band, and the addition
// of its threads' sums at the end.
#pragma once

#include "channel_sums/block.hpp"

namespace dscore {

// Walk: what a thread does with a band of a tile, on a block of channel sums.
template <class Walk>
struct SumsOfShares : Walk {
  using t = typename Walk::t;
  using L = typename Walk::L;
  using Shape = typename Walk::Shape;
  using Arguments = typename Walk::Arguments;
  using Walk::unit_end, Walk::live, Walk::lds, Walk::thread;

  __device__ SumsOfShares(const Arguments &args, const Shape &shape) : Walk(args, shape) {}

  __device__ void run(const Arguments &args) {
    // Blocks of the sum of slices may come beforehand: they wait for this kernel's end.
    if constexpr (t::ahead || t::slices > 1) admit_next_kernel();
    const typename Walk::OfCluster of_cluster(
        reinterpret_cast<char *>(lds) + Walk::of_cluster_at, this->rank(), thread);
    const int begin = this->first_unit();
    DSCORE_UNROLL
    for (int stage = 0; stage < t::stages; stage++) this->start_load(stage, begin + stage);
    this->prepare(args);
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
    of_cluster.add(thread, [&](const auto &finish) { this->reduce(each, finish); }, store);
  }
};

}  // namespace dscore
