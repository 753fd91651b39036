// Sums of a product of matrices that several hold in part: the slices of a block's wavefronts, and
// the blocks of a cluster. A thread's sums go through LDS to the thread that stores them.
#pragma once

#include "support/clusters.hpp"

namespace dscore {

// Adds the slices' sums to the first one's.
template <class t>
__device__ inline void join_slices(float (&sums)[t::accumulators], float *lds, int thread,
                                   int slice) {
  float *parts = lds + thread % t::slice_threads;
  __syncthreads();
  DSCORE_UNROLL
  for (int i = 0; i < t::accumulators; i++)
    if (slice > 0) parts[((slice - 1) * t::accumulators + i) * t::slice_threads] = sums[i];
  __syncthreads();
  DSCORE_UNROLL
  for (int other = 0; other < t::slices - 1; other++)
    DSCORE_UNROLL
    for (int i = 0; i < t::accumulators; i++)
      if (slice == 0) sums[i] += parts[(other * t::accumulators + i) * t::slice_threads];
}

// Adds the sums of the cluster's other blocks to the first one's. In turn: one block after the
// other, as of many sums all at once would take all registers.
template <class t, bool InTurn = false>
__device__ inline void join_blocks(float (&sums)[t::accumulators], float *lds, int thread,
                                   int slice, int rank) {
  float *parts = lds + thread % t::slice_threads;
  const auto add = [&](int other) {
    DSCORE_UNROLL
    for (int i = 0; i < t::accumulators; i++)
      if (slice == 0 && rank == 0) sums[i] += read_of_block(parts + i * t::slice_threads, other);
  };
  __syncthreads();
  DSCORE_UNROLL
  for (int i = 0; i < t::accumulators; i++)
    if (slice == 0 && rank > 0) parts[i * t::slice_threads] = sums[i];
  cluster_barrier();
  if constexpr (InTurn) {
    DSCORE_ROLLED
    for (int other = 1; other < t::cluster; other++) add(other);
  } else {
    DSCORE_UNROLL
    for (int other = 1; other < t::cluster; other++) add(other);
  }
  // A block's LDS is there for as long as the block is.
  cluster_barrier();
}

// Adds the neighbouring sums of one block of a cluster, of all its slices, to `values`.
template <class t, class Sum, int Count>
__device__ inline void join_block(Sum (&values)[Count], const Sum *sums, int block) {
  constexpr int width = least(Count, 4);
  Sum own[Count] = {};
  DSCORE_UNROLL
  for (int other = 0; other < t::slices; other++)
    DSCORE_UNROLL
    for (int j = 0; j < Count; j += width) {
      const Sum *from = sums + other * t::sums + j;
      const auto several = t::cluster > 1 ? read_vector_of_block<width>(from, block)
                                          : read_vector<width>(from);
      DSCORE_UNROLL
      for (int i = 0; i < width; i++) own[j + i] += several.at[i];
    }
  DSCORE_UNROLL
  for (int j = 0; j < Count; j++) values[j] += own[j];
}

// The same of all its blocks, of which some are read at once: all would take all registers.
template <class t, class Sum, int Count>
__device__ inline void join_all(Sum (&values)[Count], const Sum *sums) {
  constexpr int together = greatest(least(t::cluster, 64 / (t::slices * Count)), 1);
  DSCORE_ROLLED
  for (int first = 0; first < t::cluster; first += together)
    DSCORE_UNROLL
    for (int block = 0; block < together; block++)
      if (t::cluster % together == 0 || first + block < t::cluster)
        join_block<t>(values, sums, first + block);
}

// Adds what all blocks of a cluster have in LDS, `count` sums each, ascending; each block does so
// for a share of them, which go to `store`. Waits for the other threads at both ends.
template <int Cluster, int Threads, class Sum, class Store>
__device__ inline void join_shares(const Sum *own, int count, int rank, int thread,
                                   const Store &store) {
  cluster_barrier();
  DSCORE_ROLLED
  for (int at = rank * Threads + thread; at < count; at += Cluster * Threads) {
    Sum sum = read_of_block(own + at, 0);
    DSCORE_UNROLL
    for (int other = 1; other < Cluster; other++) sum += read_of_block(own + at, other);
    store(at, sum);
  }
  // A block's LDS is there for as long as the block is.
  cluster_barrier();
}

// Adds products of fragments of Rows x 16 rows by Columns x 8 columns to sums on matrix units: each
// as three of TF32, the small parts' first.
template <int Rows, int Columns>
__device__ inline void multiply_in_three(float *sums, const Halves (&a)[Rows][4],
                                         const Halves (&b)[Columns][2]) {
  DSCORE_UNROLL
  for (int term = 0; term < 3; term++)
    DSCORE_UNROLL
    for (int m = 0; m < Rows; m++)
      DSCORE_UNROLL
      for (int n = 0; n < Columns; n++)
        multiply_tf32(sums + (m * Columns + n) * 4, a[m], b[n], term == 0, term == 1);
}

// Adds one step's sums of matrix units. These cut off what is below a sum's last place, so that a
// long sum drifts towards zero: each step is summed apart, and added with rounding.
template <int Count>
__device__ inline void add_step(float (&sums)[Count], const float (&step)[Count]) {
  DSCORE_UNROLL
  for (int i = 0; i < Count; i++) sums[i] += step[i];
}

}  // namespace dscore
