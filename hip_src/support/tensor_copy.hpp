// Copies of boxes of a tensor to LDS and back by the copy engine of sm_90, by maps that the driver
// makes on the host (PTX ISA, cp.async.bulk.tensor; CUDA driver API, tensor maps). What a box has
// beyond the tensor is zero in LDS, and is not written to memory.
//
// One thread starts a copy. Boxes that come to LDS are counted in bytes by a TransferBarrier, which
// all threads that read them wait at; those that leave it are waited for in groups. Before a box
// leaves LDS that threads have written, each calls let_engine_see_lds, then a barrier follows.
#pragma once

#include "support/bulk_copy.hpp"

#if defined(DSCORE_HOST)
#include "support/emulated_tensors.hpp"
#elif defined(__CUDACC__)
#include <cuda.h>
#endif

namespace dscore {

// How the vectors of 16 bytes of a box lie in LDS: in order, or, of rows of 128 bytes, exchanged
// (support/warpgroups.hpp).
enum class Swizzle { none, rows_of_128 };
constexpr int most_box = 256;  // elements in one dimension

// A tensor of Rank dimensions, the first of which lies side by side in memory, and its boxes.
// `steps` are bytes from an element to the next in each dimension but the first; they and the
// address are multiples of 16, and so are the bytes of a box's first dimension.
template <int Rank>
struct TensorShape {
  static_assert(Rank >= 2 && Rank <= 5, "dimensions that the copy engine knows");
  uint64_t sizes[Rank];
  uint64_t steps[Rank - 1];
  uint32_t box[Rank];
  Swizzle swizzle;

  // Whether the copy engine takes it, which the driver says as well.
  bool valid(int element_bytes) const {
    const uint64_t row = uint64_t{box[0]} * element_bytes;
    bool all = row % 16 == 0 && (swizzle == Swizzle::none || row == 128);
    for (int i = 0; i < Rank; i++)
      all = all && sizes[i] > 0 && sizes[i] <= uint64_t{1} << 32 && box[i] > 0 &&
            box[i] <= most_box && (i == 0 || (steps[i - 1] % 16 == 0 && steps[i - 1] >> 40 == 0));
    return all;
  }
};

#if defined(DSCORE_HOST)
using TensorMap = emulation::TensorMap;
#elif defined(__CUDACC__)
using TensorMap = CUtensorMap;
#else
struct TensorMap {};  // of devices without the engine
#endif

// Makes the map of a tensor of T at an address. Returns 0, or a code for dscore_error.
template <class T, int Rank>
int make_map(TensorMap &map, const void *base, const TensorShape<Rank> &shape) {
#if defined(DSCORE_HOST)
  map = {static_cast<const unsigned char *>(base), {}, {}, {}, Rank, int{sizeof(T)},
         shape.swizzle != Swizzle::none};
  map.steps[0] = sizeof(T);
  for (int i = 0; i < Rank; i++) {
    map.sizes[i] = shape.sizes[i], map.box[i] = shape.box[i];
    if (i > 0) map.steps[i] = shape.steps[i - 1];
  }
  if (shape.valid(sizeof(T)) && reinterpret_cast<uintptr_t>(base) % 16 == 0) return 0;
  emulation::fail("the copy engine does not take such a tensor, or such boxes");
  return 1;
#elif defined(__CUDACC__)
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult how;
#if CUDART_VERSION >= 12050
    const cudaError_t code = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry,
                                                              12000, cudaEnableDefault, &how);
#else
    const cudaError_t code =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &how);
#endif
    return code == cudaSuccess ? reinterpret_cast<Encode>(entry) : nullptr;
  }();
  if (!encode) return static_cast<int>(cudaErrorNotSupported);
  constexpr CUtensorMapDataType type =
      std::is_same_v<T, float>                ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
      : sizeof(T) == 1                        ? CU_TENSOR_MAP_DATA_TYPE_UINT8
      : std::is_same_v<T, float16>            ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                              : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  static_assert(sizeof(T) == 1 || sizeof(T) == 2 || std::is_same_v<T, float>, "element types");
  constexpr uint32_t each[5] = {1, 1, 1, 1, 1};
  const CUresult code = encode(
      &map, type, Rank, const_cast<void *>(base), shape.sizes, shape.steps, shape.box, each,
      CU_TENSOR_MAP_INTERLEAVE_NONE,
      shape.swizzle == Swizzle::none ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return static_cast<int>(code == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue);
#else
  return (void)map, (void)base, (void)shape, 1;
#endif
}

// Barriers that let go when `arrivals` threads have arrived and all expected bytes have. One thread
// prepares them, before a barrier of all that use them.
__device__ inline void prepare_barriers(TransferBarrier *barriers, int count, int arrivals) {
  for (int i = 0; i < count; i++) {
#if defined(DSCORE_HOST)
    emulation::counters(barriers + i) = {arrivals, arrivals, 0, 0};
#elif defined(DSCORE_COPY_ENGINE)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(lds_address(barriers + i)),
                 "r"(arrivals) : "memory");
#endif
  }
#if defined(DSCORE_COPY_ENGINE)
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

__device__ inline void arrive(TransferBarrier *barrier) {
#if defined(DSCORE_HOST)
  emulation::counters(barrier).missing--;
  emulation::counters(barrier).settle();
#elif defined(DSCORE_COPY_ENGINE)
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(lds_address(barrier)) : "memory");
#endif
}

// Arrives, and has the barrier wait for so many bytes of boxes, zeros among them.
__device__ inline void arrive_expecting(TransferBarrier *barrier, int bytes) {
#if defined(DSCORE_HOST)
  emulation::counters(barrier).bytes += bytes;
  arrive(barrier);
#elif defined(DSCORE_COPY_ENGINE)
  expect_of_engine(barrier, bytes);
#endif
}

// Waits for the end of a phase, by the parity of the phases before it.
__device__ inline void wait_barrier(const TransferBarrier *barrier, int parity) {
#if defined(DSCORE_HOST)
  emulation::make_arrivals(barrier);
  while ((emulation::counters(barrier).phase & 1) == parity) {
    emulation::poll();
    emulation::make_arrivals(barrier);
  }
#elif defined(DSCORE_COPY_ENGINE)
  wait_for_engine(barrier, parity);
#endif
}

// Asks for the map itself, which is read from memory.
__device__ inline void prefetch_map(const TensorMap &map) {
#if defined(DSCORE_COPY_ENGINE)
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
#endif
}

// Starts the copy of a box to LDS, to a multiple of 128 bytes (swizzled, of 1024). `at` is its
// first element in each dimension, outside of the tensor or within.
template <int Rank>
__device__ inline void load_box(TransferBarrier *barrier, void *lds, const TensorMap &map,
                                const int (&at)[Rank]) {
#if defined(DSCORE_HOST)
  const emulation::Box box = emulation::box_of(map, lds, barrier, at);
  if (emulation::copies_at_once()) return emulation::load(&box);
  emulation::Queue one{};
  one.push(emulation::load, box);
  emulation::device.arrivals.push_back({barrier, one.begun[0]});
  one.begun.drop();
#elif defined(DSCORE_COPY_ENGINE)
#define DSCORE_LOAD_BOX(rank, coordinates, barrier_number, ...)                                    \
  asm volatile("cp.async.bulk.tensor." rank                                                        \
               ".shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {" coordinates     \
               "}], [%" barrier_number "];" ::"r"(lds_address(lds)), "l"(&map), __VA_ARGS__,       \
               "r"(lds_address(barrier)) : "memory")
  if constexpr (Rank == 2) DSCORE_LOAD_BOX("2d", "%2,%3", "4", "r"(at[0]), "r"(at[1]));
  if constexpr (Rank == 3)
    DSCORE_LOAD_BOX("3d", "%2,%3,%4", "5", "r"(at[0]), "r"(at[1]), "r"(at[2]));
  if constexpr (Rank == 4)
    DSCORE_LOAD_BOX("4d", "%2,%3,%4,%5", "6", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]));
  if constexpr (Rank == 5)
    DSCORE_LOAD_BOX("5d", "%2,%3,%4,%5,%6", "7", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
                    "r"(at[4]));
#undef DSCORE_LOAD_BOX
#endif
}

// Lets the engine read what this thread has written to LDS.
__device__ inline void let_engine_see_lds() {
#if defined(DSCORE_COPY_ENGINE)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Starts the copy of a box from LDS; stores are waited for in groups.
template <int Rank>
__device__ inline void store_box(const TensorMap &map, const void *lds, const int (&at)[Rank]) {
#if defined(DSCORE_HOST)
  const emulation::Box box = emulation::box_of(map, lds, nullptr, at);
  if (emulation::copies_at_once()) return emulation::store(&box);
  emulation::device.fibers[emulation::device.current].stores.push(emulation::store, box);
#elif defined(DSCORE_COPY_ENGINE)
#define DSCORE_STORE_BOX(rank, coordinates, ...)                                                   \
  asm volatile("cp.async.bulk.tensor." rank ".global.shared::cta.bulk_group [%0, {" coordinates    \
               "}], [%1];" ::"l"(&map), "r"(lds_address(lds)), __VA_ARGS__ : "memory")
  if constexpr (Rank == 2) DSCORE_STORE_BOX("2d", "%2,%3", "r"(at[0]), "r"(at[1]));
  if constexpr (Rank == 3) DSCORE_STORE_BOX("3d", "%2,%3,%4", "r"(at[0]), "r"(at[1]), "r"(at[2]));
  if constexpr (Rank == 4)
    DSCORE_STORE_BOX("4d", "%2,%3,%4,%5", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]));
  if constexpr (Rank == 5)
    DSCORE_STORE_BOX("5d", "%2,%3,%4,%5,%6", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
                     "r"(at[4]));
#undef DSCORE_STORE_BOX
#endif
}
// The same of bytes that lie side by side in memory: a multiple of 16, as both places are.
__device__ inline void store_span(void *to, const void *lds, int bytes) {
#if defined(DSCORE_HOST)
  const emulation::Span span{to, lds, bytes};
  if (emulation::lds_offset(lds) % 16 != 0 || reinterpret_cast<uintptr_t>(to) % 16 != 0)
    emulation::device.misaligned = true;
  if (emulation::copies_at_once()) return emulation::store_bytes(&span);
  emulation::device.fibers[emulation::device.current].stores.push(emulation::store_bytes, span);
#elif defined(DSCORE_COPY_ENGINE)
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(lds_address(lds)), "r"(bytes) : "memory");
#endif
}
__device__ inline void commit_stores() {
#if defined(DSCORE_HOST)
  emulation::device.fibers[emulation::device.current].stores.groups++;
#elif defined(DSCORE_COPY_ENGINE)
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}
// Waits until LDS is read of all but `Ahead` groups; a block ends only after that.
template <int Ahead>
__device__ inline void wait_stores() {
#if defined(DSCORE_HOST)
  emulation::device.fibers[emulation::device.current].stores.wait(Ahead);
#elif defined(DSCORE_COPY_ENGINE)
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Ahead) : "memory");
#endif
}

}  // namespace dscore
