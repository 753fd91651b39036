// The kernel before and the next one on the stream, which may be on the device at the same time;
// included by portable.hpp, as which compiler it is decides.
//
// From sm_90 on, a kernel's blocks may come to lie on the device while the last of the kernel
// before it run, and wait there for its end: 0.4 us less between two launches on an H200 (CUDA C++
// Programming Guide, programmatic dependent launch).
#pragma once

#if defined(__CUDACC__) && __CUDA_ARCH_LIST__ >= 900
#define DSCORE_EARLY_START
#endif

namespace dscore {

constexpr int hopper_units = 144;  // compute units of sm_90, at most
// Blocks of so many bytes of LDS that one of them has room for: of its 228 KB each takes 1 KB more
// (CUDA C++ Programming Guide, compute capability 9.0).
__host__ __device__ constexpr int blocks_of_unit(int lds_bytes) {
  return 228 * 1024 / (lds_bytes + 1024);
}

__device__ inline void follow_previous_kernel() {
#if defined(DSCORE_EARLY_START)
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel's blocks may come once all blocks have said so, or ended.
__device__ inline void admit_next_kernel() {
#if defined(DSCORE_EARLY_START)
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The kernel before on the stream, as the threads of a kernel that `reads_constants_first` wait for
// it. Behind: it writes none of this one's constants, which are all operands but images, residuals
// and scales, and what comes before it on the stream has ended: it let this one's blocks come once
// it had waited for that itself. So constants are read while it runs.
struct KernelBefore {
  bool behind, admits;

  // Before the first constant is read.
  __device__ void wait_for_constants() const {
    if (!behind) wait();
  }
  // Behind that, before the first other operand is read, or a result is written.
  __device__ void wait_for_images() const {
    if (behind) wait();
  }
  __device__ void wait() const {
    follow_previous_kernel();
    if (admits) admit_next_kernel();
  }
};

// The same where nothing is left to wait for.
struct NothingBefore {
  static constexpr bool behind = false;
  __device__ void wait_for_constants() const {}
  __device__ void wait_for_images() const {}
};

}  // namespace dscore
