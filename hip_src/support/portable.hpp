// One vocabulary for three compilers: HIP's own words, and a few of dscore's where vendors differ.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#if !defined(DSCORE_HOST)
#include <atomic>
#endif

extern "C" {
#include "abi.h"
}

#if defined(DSCORE_HOST)
#include "support/emulation.hpp"
#elif defined(__CUDACC__)
#include <cuda_runtime.h>
#define hipError_t cudaError_t
#define hipSuccess cudaSuccess
#define hipStream_t cudaStream_t
#define hipGetErrorString cudaGetErrorString
#define hipGetLastError cudaGetLastError
#define hipGetDevice cudaGetDevice
#define hipSetDevice cudaSetDevice
#elif defined(DSCORE_NO_ROCM)
#include "support/no_rocm.hpp"
#else
#include <hip/hip_runtime.h>
#endif

// The value of the lane `by` further on in the segment of `width`, past its end one's own, and of
// the lane whose number differs by the bit `by`; all lanes of the wavefront take part.
#if defined(DSCORE_HOST)
#define DSCORE_UNROLL
#define DSCORE_ROLLED
#else
#define DSCORE_UNROLL _Pragma("unroll")
#define DSCORE_ROLLED _Pragma("unroll 1")
#if defined(__CUDACC__)
#define DSCORE_SHFL_DOWN(value, by, width) __shfl_down_sync(0xffffffffu, value, by, width)
#define DSCORE_SHFL_XOR(value, by) __shfl_xor_sync(0xffffffffu, value, by)
#else
#define DSCORE_SHFL_DOWN(value, by, width) __shfl_down(value, by, width)
#define DSCORE_SHFL_XOR(value, by) __shfl_xor(value, by)
#endif
#endif

#include "support/early_start.hpp"

namespace dscore {

#if defined(__CUDACC__)
constexpr int most_static_lds_bytes = 48 * 1024;
#else
constexpr int most_static_lds_bytes = INT32_MAX;
#endif

// Whether a kernel has maps of tensors (support/tensor_copy.hpp), which each launch makes of the
// operands' addresses by make_maps, and which the kernel is made with.
template <class Kernel>
constexpr bool mapped = !std::is_void_v<typename Kernel::Maps>;

#if defined(DSCORE_HOST)
template <class Kernel, bool Behind = false>
int run(const typename Kernel::Arguments &args, typename Kernel::Shape shape, void *, int) {
  std::conditional_t<mapped<Kernel>, typename Kernel::Maps, char> maps[1];
  if constexpr (mapped<Kernel>)
    if (const int code = Kernel::make_maps(maps[0], args, shape)) return code;
  const auto thread = [&] {
    if constexpr (Kernel::works_ahead)
      if (threadIdx.x == 0) Kernel::fetch_ahead(args, shape);
    const auto run = [&](auto &&kernel) {
      if constexpr (Kernel::reads_constants_first) kernel.run(args, KernelBefore{Behind, false});
      else kernel.run(args);
    };
    if constexpr (mapped<Kernel>) run(Kernel(args, shape, maps[0]));
    else run(Kernel(args, shape));
  };
  using Thread = decltype(thread);
  int together = Kernel::cluster;
  if constexpr (Kernel::persistent) {
    std::memset(args.workspace, 0, Kernel::cleared_bytes(shape));
    const int resident = emulation::resident_blocks(), blocks = Kernel::blocks(shape);
    together = resident < blocks ? resident : blocks;
  }
  return emulation::launch(Kernel::blocks(shape), Kernel::threads, Kernel::wavefront, together,
                           {[](const void *body) { (*static_cast<Thread *>(body))(); }, &thread},
                           Kernel::persistent);
}
#else
// Blocks let the next kernel's come when they end, no earlier unless their kernel works ahead or
// their tiling says so. Of many blocks the next kernel's come when all have ended: letting them
// come before gained 1 to 15 % with up to 512 blocks on an H200, and lost up to a third with 15,360
// (docs/benchmark_notes.md). It is four on each of Hopper's compute units: tilings with several
// tiles of a block make as many blocks as have room. That was not timed by itself.
constexpr unsigned most_blocks_followed_early = 4 * hopper_units;

template <int Cluster, class... Given>
hipError_t start(void (*kernel)(Given...), int blocks, int threads, int lds_bytes,
                 hipStream_t stream, const std::common_type_t<Given> &...given) {
#if defined(DSCORE_EARLY_START)
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {Cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks), config.blockDim = dim3(threads);
  config.dynamicSmemBytes = lds_bytes, config.stream = stream;
  config.attrs = attributes, config.numAttrs = Cluster > 1 ? 2 : 1;
  return cudaLaunchKernelEx(&config, kernel, given...);
#else
  static_assert(Cluster == 1, "clusters of blocks begin with sm_90");
  kernel<<<blocks, threads, lds_bytes, stream>>>(given...);
  return hipGetLastError();
#endif
}

// The work of a block's thread. Before the kernel before has ended no memory is read, to which it
// may still write: what the L2 cache is asked for, nobody keeps.
template <class Kernel, class... Maps>
__device__ void work(const typename Kernel::Arguments &args, const typename Kernel::Shape &shape,
                     bool behind, const Maps &...maps) {
  const bool followed_early = gridDim.x <= most_blocks_followed_early;
  if constexpr (Kernel::works_ahead)
    if (followed_early && threadIdx.x == 0) Kernel::fetch_ahead(args, shape);
  Kernel kernel(args, shape, maps...);
  const KernelBefore before{behind, Kernel::works_ahead && followed_early};
  if constexpr (Kernel::reads_constants_first) {
    kernel.run(args, before);
  } else {
    before.wait();
    kernel.run(args);
  }
  if (!Kernel::works_ahead && followed_early) admit_next_kernel();
}

#if defined(DSCORE_EARLY_START)
template <class Kernel>
__global__ __launch_bounds__(Kernel::threads, Kernel::resident_blocks) void entry(
    typename Kernel::Arguments args, typename Kernel::Shape shape, bool behind) {
  work<Kernel>(args, shape, behind);
}
template <class Kernel>
__global__ __launch_bounds__(Kernel::threads, 1) void mapped_entry(
    typename Kernel::Arguments args, typename Kernel::Shape shape, bool behind,
    const __grid_constant__ typename Kernel::Maps maps) {
  work<Kernel>(args, shape, behind, maps);
}
#else
template <class Kernel>
__global__ __launch_bounds__(Kernel::threads, Kernel::resident_blocks) void entry(
    typename Kernel::Arguments args, typename Kernel::Shape shape) {
  work<Kernel>(args, shape, false);
}
#endif

// Of either kind of kernel.
template <class Kernel>
constexpr auto entry_of() {
#if defined(DSCORE_EARLY_START)
  if constexpr (mapped<Kernel>) return mapped_entry<Kernel>;
  else
#endif
    return entry<Kernel>;
}

// Zeros, which the kernel after it finds.
template <int Threads>
__global__ __launch_bounds__(Threads, 1) void clear(int *words, int count) {
  follow_previous_kernel();
  const int at = blockIdx.x * Threads + threadIdx.x;
  if (at < count) words[at] = 0;
}

template <class Kernel>
hipError_t clear_workspace(const typename Kernel::Arguments &args,
                           const typename Kernel::Shape &shape, hipStream_t stream) {
  constexpr int threads = 256;
  const int count = Kernel::cleared_bytes(shape) / int{sizeof(int)};
  return start<1>(clear<threads>, (count + threads - 1) / threads, threads, 0, stream,
                  static_cast<int *>(args.workspace), count);
}

#if defined(__CUDACC__)
// What CUDA is told of a kernel once on each device: that its blocks may have more LDS than the
// static limit, and that a compute unit's memory is to be LDS rather than cache. Left to the
// driver, each kernel has the share that its own blocks need; between two kernels of different
// shares a compute unit stands still, for about 1 us on an H200 (docs/benchmark_notes.md).
template <class Kernel>
hipError_t settle(int device, int dynamic_lds_bytes) {
  static std::atomic<uint64_t> settled{0};
  const uint64_t bit = uint64_t{1} << (device & 63);
  if (device < 64 && (settled.load() & bit)) return cudaSuccess;
  const void *kernel = reinterpret_cast<const void *>(entry_of<Kernel>());
  cudaError_t code = cudaSuccess;
  if (dynamic_lds_bytes > 0)
    code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                dynamic_lds_bytes);
  if (Kernel::most_lds && code == cudaSuccess)
    code = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                cudaSharedmemCarveoutMaxShared);
  if (code == cudaSuccess && device < 64) settled.fetch_or(bit);
  return code;
}
#else
template <class>
hipError_t settle(int, int) {
  return hipSuccess;  // LDS is a memory of its own
}
#endif

// LDS that a launch asks for beside what a kernel declares.
template <class Kernel, bool Behind>
constexpr int dynamic_lds_bytes = [] {
  constexpr int own = Kernel::lds_bytes;
  constexpr int asked = Behind ? Kernel::asked_behind_lds_bytes : Kernel::asked_lds_bytes;
  return (asked > own ? asked : own) - (own > most_static_lds_bytes ? 0 : own);
}();
template <class Kernel>
constexpr int most_dynamic_lds_bytes = [] {
  constexpr int alone = dynamic_lds_bytes<Kernel, false>, behind = dynamic_lds_bytes<Kernel, true>;
  return alone > behind ? alone : behind;
}();

template <class Kernel, bool Behind = false>
int run(const typename Kernel::Arguments &args, typename Kernel::Shape shape, void *stream,
        int device) {
  int before = device;
  hipError_t code = hipGetDevice(&before);
  if (code == hipSuccess && before != device) code = hipSetDevice(device);
  if (code != hipSuccess) return static_cast<int>(code);
  constexpr int dynamic = dynamic_lds_bytes<Kernel, Behind>, most = most_dynamic_lds_bytes<Kernel>;
  if constexpr (most > 0 || Kernel::most_lds) code = settle<Kernel>(device, most);
  if constexpr (Kernel::persistent)
    if (code == hipSuccess)
      code = clear_workspace<Kernel>(args, shape, static_cast<hipStream_t>(stream));
  const auto start_with = [&](const auto &...maps) {
    return start<Kernel::cluster>(entry_of<Kernel>(), Kernel::blocks(shape), Kernel::threads,
                                  dynamic, static_cast<hipStream_t>(stream), args, shape,
#if defined(DSCORE_EARLY_START)
                                  Behind,
#endif
                                  maps...);
  };
  if constexpr (mapped<Kernel>) {
    typename Kernel::Maps maps;
    if (code == hipSuccess) code = static_cast<hipError_t>(Kernel::make_maps(maps, args, shape));
    if (code == hipSuccess) code = start_with(maps);
  } else if (code == hipSuccess) {
    code = start_with();
  }
  if (before != device) (void)hipSetDevice(before);
  return static_cast<int>(code);
}
#endif

}  // namespace dscore
