// Clusters of blocks, which sm_90 begins with: their barrier, and the LDS of the others (PTX ISA,
// barrier.cluster and mapa).
#pragma once

#include "support/vendor.hpp"

namespace dscore {

// A barrier of all blocks of a cluster in its two halves: what a thread does between them, it does
// while others are still to come.
__device__ inline void arrive_at_cluster() {
#if defined(__CUDACC__)
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ inline void wait_for_cluster() {
#if defined(DSCORE_HOST)
  emulation::yield(emulation::Waits::at_cluster, __LINE__);
#elif defined(__CUDACC__)
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
__device__ inline void cluster_barrier() {
  arrive_at_cluster();
  wait_for_cluster();
}
// The first half where blocks are only to be there, or still there: it orders no memory. The other
// one waits until all that the block has written to memory is seen by the whole device.
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

// Writes there a vector of four words, which that block finds after a barrier of the cluster. That
// the block is there already, another barrier says before.
template <class Sum>
__device__ inline void write_vector_of_block(Sum *own, int rank, const Pack<Sum, 4> &vector) {
  static_assert(sizeof(Sum) == 4, "words");
#if defined(DSCORE_HOST)
  *reinterpret_cast<Pack<Sum, 4> *>(const_cast<Sum *>(emulation::of_block(own, rank))) = vector;
#elif defined(__CUDACC__)
  unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(own));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(at), "r"(rank));
  asm volatile("st.shared::cluster.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(at),
               "r"(bits_as<uint32_t>(vector.at[0])), "r"(bits_as<uint32_t>(vector.at[1])),
               "r"(bits_as<uint32_t>(vector.at[2])), "r"(bits_as<uint32_t>(vector.at[3]))
               : "memory");
#else
  *reinterpret_cast<Pack<Sum, 4> *>(own) = vector;
#endif
}

}  // namespace dscore
