// HIP's words for a clang alone, without ROCm's headers and device libraries (-nogpuinc -nogpulib).
//
// What kernels use is declared by the compiler's own builtins ("User Guide for AMDGPU Backend";
// clang's BuiltinsAMDGPU). The runtime's functions are looked up in libamdhip64 when the library is
// loaded: in the one that the program has, of whatever release, else in the newest that is
// installed. Without a runtime the library can be loaded, and each launch fails with an error.
#pragma once

#if !defined(__clang__) || __clang_major__ < 15
#error "kernels for AMD GPUs need clang 15 or later, or ROCm's hipcc"
#endif

#include <dlfcn.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(threads, waves) \
  __attribute__((amdgpu_flat_work_group_size(1, threads), amdgpu_waves_per_eu(waves)))

// The runtime

struct dim3 {
  uint32_t x, y, z;
  constexpr dim3(uint32_t x = 1, uint32_t y = 1, uint32_t z = 1) : x(x), y(y), z(z) {}
};
enum hipError_t : int { hipSuccess = 0, hipErrorSharedObjectInitFailed = 303 };
typedef struct ihipStream_t *hipStream_t;

namespace dscore {

// Path of a runtime among the program's libraries; DTK's has a name of its own.
inline int note_runtime(dl_phdr_info *library, size_t, void *path) {
  const char *slash = std::strrchr(library->dlpi_name, '/');
  const char *name = slash ? slash + 1 : library->dlpi_name;
  if (std::strncmp(name, "libamdhip64", 11) && std::strncmp(name, "libgalaxyhip", 12)) return 0;
  *static_cast<const char **>(path) = library->dlpi_name;
  return 1;
}

inline void *open_runtime() {
  const char *path = nullptr;
  dl_iterate_phdr(note_runtime, &path);
  if (path) return dlopen(path, RTLD_LAZY);
  for (const char *name : {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                           "libamdhip64.so", "libgalaxyhip.so.5", "libgalaxyhip.so"})
    if (void *runtime = dlopen(name, RTLD_LAZY)) return runtime;
  return nullptr;
}

inline void *runtime_function(const char *name) {
  static void *const runtime = open_runtime();
  return runtime ? dlsym(runtime, name) : nullptr;
}

}  // namespace dscore

// A function of the runtime by its own name, which compilers call, too; *absent* without a runtime.
// No other library sees it.
#define DSCORE_RUNTIME(Result, name, parameters, arguments, absent)                      \
  extern "C" __attribute__((weak, visibility("hidden"))) Result name parameters {        \
    static const auto function =                                                         \
        reinterpret_cast<Result(*) parameters>(dscore::runtime_function(#name));         \
    return function ? function arguments : absent;                                       \
  }
#define DSCORE_RUNTIME_CODE(name, parameters, arguments) \
  DSCORE_RUNTIME(hipError_t, name, parameters, arguments, hipErrorSharedObjectInitFailed)

DSCORE_RUNTIME_CODE(hipGetDevice, (int *device), (device))
DSCORE_RUNTIME_CODE(hipSetDevice, (int device), (device))
DSCORE_RUNTIME_CODE(hipGetLastError, (), ())
DSCORE_RUNTIME(const char *, hipGetErrorString, (hipError_t code), (code),
               "no HIP runtime was found (libamdhip64.so, of ROCm); LD_LIBRARY_PATH may name its "
               "folder")

// What clang has the host call for a launch, and for a library's kernels when it is loaded.
DSCORE_RUNTIME_CODE(hipLaunchKernel,
                    (const void *kernel, dim3 blocks, dim3 threads, void **arguments,
                     size_t lds_bytes, hipStream_t stream),
                    (kernel, blocks, threads, arguments, lds_bytes, stream))
DSCORE_RUNTIME_CODE(__hipPushCallConfiguration,
                    (dim3 blocks, dim3 threads, size_t lds_bytes, hipStream_t stream),
                    (blocks, threads, lds_bytes, stream))
DSCORE_RUNTIME_CODE(__hipPopCallConfiguration,
                    (dim3 *blocks, dim3 *threads, size_t *lds_bytes, hipStream_t *stream),
                    (blocks, threads, lds_bytes, stream))
DSCORE_RUNTIME(void **, __hipRegisterFatBinary, (const void *binary), (binary), nullptr)
DSCORE_RUNTIME(void, __hipUnregisterFatBinary, (void **binary), (binary), void())
DSCORE_RUNTIME(int, __hipRegisterFunction,
               (void **binary, const void *kernel, char *symbol, const char *name, int most_threads,
                void *thread, void *block, void *threads, void *blocks, int *warp),
               (binary, kernel, symbol, name, most_threads, thread, block, threads, blocks, warp),
               0)
#undef DSCORE_RUNTIME_CODE
#undef DSCORE_RUNTIME

// The device. A launch has one dimension.

struct dscore_thread_index {
  static __device__ inline uint32_t value() { return __builtin_amdgcn_workitem_id_x(); }
  __declspec(property(get = value)) uint32_t x;
};
struct dscore_block_index {
  static __device__ inline uint32_t value() { return __builtin_amdgcn_workgroup_id_x(); }
  __declspec(property(get = value)) uint32_t x;
};
struct dscore_blocks {
  static __device__ inline uint32_t value() {
    return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x();
  }
  __declspec(property(get = value)) uint32_t x;
};
extern const __device__ __attribute__((weak)) dscore_thread_index threadIdx;
extern const __device__ __attribute__((weak)) dscore_block_index blockIdx;
extern const __device__ __attribute__((weak)) dscore_blocks gridDim;

// What lanes wrote before it, to LDS or memory, all lanes of the block read after it.
__device__ __attribute__((convergent)) inline void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

__device__ inline int dscore_lane() {
  return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
}
// The word that a lane has.
template <class Word>
__device__ __attribute__((convergent)) inline Word dscore_shuffled(Word value, int from) {
  static_assert(sizeof(Word) == sizeof(int), "words");
  int bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  bits = __builtin_amdgcn_ds_bpermute(from * 4, bits);
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
template <class Word>
__device__ __attribute__((convergent)) inline Word __shfl_down(Word value, unsigned by,
                                                               int width) {
  const int lane = dscore_lane();
  return dscore_shuffled(
      value, (lane & (width - 1)) + static_cast<int>(by) >= width ? lane : lane + by);
}
template <class Word>
__device__ __attribute__((convergent)) inline Word __shfl_xor(Word value, int by) {
  return dscore_shuffled(value, dscore_lane() ^ by);
}

namespace dscore {

__device__ inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

}  // namespace dscore
