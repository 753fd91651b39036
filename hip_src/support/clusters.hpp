// Clusters of blocks, which sm_90 begins with: their barrier, and the LDS of the others (PTX ISA,
// barrier.cluster and mapa).
#pragma once

#include "support/vendor.hpp"

namespace dscore {

// The second half of a barrier of all blocks of a cluster.
__device__ inline void wait_for_cluster() {
#if defined(DSCORE_HOST)
  emulation::yield(emulation::Waits::at_cluster, __LINE__);
#elif defined(__CUDACC__)
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
// The whole of it. It waits until all that the block has written to memory is seen by the whole
// device.
__device__ inline void cluster_barrier() {
#if defined(__CUDACC__)
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
  wait_for_cluster();
}
// The first half where blocks are only to be there: it orders no memory.
__device__ inline void announce_block() {
#if defined(__CUDACC__)
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
// What one of the blocks holds where the lane's own does.
template <class Sum>
__device__ inline Sum read_of_block(const Sum *own, int rank) {
#if defined(DSCORE_HOST)
  return *emulation::of_block(own, rank);
#elif defined(__CUDACC__)
  uint32_t bits;
  unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(own));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(at), "r"(rank));
  asm volatile("ld.shared::cluster.b32 %0, [%1];" : "=r"(bits) : "r"(at));
  return bits_as<Sum>(bits);
#else
  return *own;  // devices without clusters have but the one block in each
#endif
}

// Neighbours there.
template <int Count, class Sum>
__device__ inline Pack<Sum, Count> read_vector_of_block(const Sum *own, int rank) {
  Pack<Sum, Count> vector;
#if defined(__CUDACC__)
  if constexpr (Count == 4) {
    uint32_t bits[4];
    unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(own));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(at), "r"(rank));
    asm volatile("ld.shared::cluster.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3]) : "r"(at));
    DSCORE_UNROLL
    for (int i = 0; i < Count; i++) vector.at[i] = bits_as<Sum>(bits[i]);
  } else
#endif
  {
    DSCORE_UNROLL
    for (int i = 0; i < Count; i++) vector.at[i] = read_of_block(own + i, rank);
  }
  return vector;
}

}  // namespace dscore
