// Sums of a tile that blocks of a cluster hold in part (warpgroup_gemm/product.hpp). They lie in
// LDS where the ring was; each block adds a share of the tile, and stores it.
#pragma once

#include "support/vendor.hpp"

namespace dscore {

// Puts a lane's sums where the cluster's blocks find them; zeros where it has had no step.
template <class t>
__device__ inline void keep_sums(float *kept, const float *sums, int thread, bool any) {
  const int lane = thread % t::wavefront, row = thread / t::wavefront * 16 + lane / 4;
  DSCORE_UNROLL
  for (int i = 0; i < t::tile_n / 4; i++) {
    Pack<float, 2> two{};
    if (any) two = {{sums[2 * i], sums[2 * i + 1]}};
    write_vector(kept + (row + i % 2 * 8) * t::sums_pitch + i / 2 * 8 + lane % 4 * 2, two);
  }
}

// Calls store(row, column, sums) for this block's share of a tile's runs of eight columns, of
// whose sums those of the cluster's blocks are added, ascending. All threads of all blocks call it.
template <class t, class Store>
__device__ inline void join_tile(const float *kept, int rank, int thread, Store store) {
  constexpr int runs = t::tile_n / 8;
  cluster_barrier();
  DSCORE_ROLLED
  for (int at = rank * t::threads + thread; at < t::tile_m * runs; at += t::cluster * t::threads) {
    const float *own = kept + at / runs * t::sums_pitch + at % runs * 8;
    float sums[8];
    DSCORE_UNROLL
    for (int block = 0; block < t::cluster; block++)
      DSCORE_UNROLL
      for (int j = 0; j < 8; j += 4) {
        const auto four = read_vector_of_block<4>(own + j, block);
        DSCORE_UNROLL
        for (int i = 0; i < 4; i++)
          sums[j + i] = block == 0 ? four.at[i] : sums[j + i] + four.at[i];
      }
    store(at / runs, at % runs * 8, sums);
  }
  // A block's LDS is there for as long as the block is.
  cluster_barrier();
}

}  // namespace dscore
