// Counters in memory by which the blocks of a persistent kernel take numbers, and tell one another
// what they have done.
#pragma once

#include "support/vendor.hpp"

namespace dscore {

// The counter before one is added to it.
__device__ inline int take_number(int *counter) {
#if defined(DSCORE_HOST)
  return (*counter)++;
#elif defined(__CUDACC__)
  int number;
  asm volatile("atom.relaxed.gpu.global.add.s32 %0, [%1], 1;" : "=r"(number) : "l"(counter)
               : "memory");
  return number;
#else
  return __hip_atomic_fetch_add(counter, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#endif
}

// Lets all threads of the block write what they have to, before one of them counts it.
__device__ inline void end_writes() {
#if !defined(DSCORE_HOST) && !defined(__CUDACC__)
  // Of AMD's wavefronts each waits for its own writes alone.
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
#endif
  __syncthreads();
}

// Adds one to the counter: whoever waits for that reads what all threads wrote before `end_writes`.
// One thread does.
__device__ inline void count_up(int *counter) {
#if defined(DSCORE_HOST)
  ++*counter;
#elif defined(__CUDACC__)
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
#else
  (void)__hip_atomic_fetch_add(counter, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#endif
}

// Whether the counter is at `count`, and what was written before may be read: one thread looks, and
// the block's others read after a barrier and `see_writes`.
__device__ inline bool has_reached(const int *counter, int count) {
#if defined(DSCORE_HOST)
  return *counter == count;
#elif defined(__CUDACC__)
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value == count;
#else
  return __hip_atomic_load(counter, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) == count;
#endif
}

// Waits until it is.
__device__ inline void wait_for(const int *counter, int count) {
#if defined(DSCORE_HOST)
  emulation::poll_until([&] { return has_reached(counter, count); });
#elif defined(__CUDACC__)
  // An acquire empties the L1 cache, so that those who have to wait poll without.
  const auto relaxed = [&] {
    int value;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
    return value == count;
  };
  while (!has_reached(counter, count))
    while (!relaxed()) __nanosleep(40);
#else
  while (!has_reached(counter, count)) __builtin_amdgcn_s_sleep(1);
#endif
}
__device__ inline void see_writes() {
#if !defined(DSCORE_HOST) && !defined(__CUDACC__)
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
#endif
}

// What is the same in all lanes of a wavefront, and known to be.
__device__ inline int uniform(int value) {
#if !defined(DSCORE_HOST) && !defined(__CUDACC__)
  return __builtin_amdgcn_readfirstlane(value);
#else
  return value;
#endif
}

// An array's element at an offset that all lanes share, and one of the lane's own. AMD's
// instructions add such an offset to an address in scalar registers, NVIDIA's a constant to one in
// the lane's.
template <class T>
__device__ inline T *element(T *array, long long uniform_offset, int lane_offset) {
#if defined(__CUDACC__)
  return array + lane_offset + uniform_offset;
#else
  return array + uniform_offset + static_cast<unsigned>(lane_offset);
#endif
}

// Reads past the L1 cache, which other blocks' writes do not change.
__device__ inline float read_shared(const float *from) {
#if defined(__CUDACC__)
  return __ldcg(from);
#else
  return *from;
#endif
}

// Stores what is not read again, before anything else to be put out of the L2 cache.
template <class T, int Count>
__device__ inline void store_once(T *to, const Pack<T, Count> &several) {
#if defined(__CUDACC__)
  using Bits = std::conditional_t<sizeof(several) == 16, float4,
                                  std::conditional_t<sizeof(several) == 8, float2, float>>;
  if constexpr (sizeof(Bits) == sizeof(several)) {
    Bits bits;
    __builtin_memcpy(&bits, &several, sizeof bits);
    __stcs(reinterpret_cast<Bits *>(to), bits);
    return;
  }
#endif
  *reinterpret_cast<Pack<T, Count> *>(to) = several;
}

}  // namespace dscore
