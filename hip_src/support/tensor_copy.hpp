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

constexpr int most_box = 256;  // elements in one dimension
constexpr int box_row = 128;   // bytes

// A tensor, whose elements of a row lie side by side in memory, and its boxes, in the order
// columns, rows, and matrices where there are several. A box has rows of 128 bytes, whose vectors
// of 16 are exchanged in LDS (support/warpgroups.hpp), or any rows of such vectors, which lie there
// as they are. The address and `steps`, the bytes from a row and from a matrix to the next, are
// multiples of 16.
template <int Rank, bool Exchanged = true>
struct BoxedTensor {
  uint64_t sizes[Rank];
  uint64_t steps[Rank - 1];
  uint32_t box[Rank];

  // Whether the copy engine takes it, which the driver says as well.
  bool valid(int element_bytes) const {
    const int row = static_cast<int>(box[0]) * element_bytes;
    bool all = Exchanged ? row == box_row : row % 16 == 0;
    for (int i = 0; i < Rank; i++)
      all = all && sizes[i] > 0 && sizes[i] <= uint64_t{1} << 32 && box[i] > 0 &&
            box[i] <= most_box;
    for (uint64_t step : steps) all = all && step % 16 == 0 && step >> 40 == 0;
    return all;
  }
};
using BoxedMatrix = BoxedTensor<2>;

#if defined(DSCORE_HOST)
using TensorMap = emulation::TensorMap;
#elif defined(__CUDACC__)
using TensorMap = CUtensorMap;
#else
struct TensorMap {};  // of devices without the engine
#endif

// Makes the map of a tensor of T at an address. Returns 0, or a code for dscore_error.
template <class T, int Rank, bool Exchanged>
int make_map(TensorMap &map, const void *base, const BoxedTensor<Rank, Exchanged> &tensor) {
#if defined(DSCORE_HOST)
  map = {static_cast<const unsigned char *>(base), {}, {sizeof(T)}, {}, Rank, int{sizeof(T)},
         Exchanged};
  for (int i = 0; i < Rank; i++) map.sizes[i] = tensor.sizes[i], map.box[i] = tensor.box[i];
  for (int i = 1; i < Rank; i++) map.steps[i] = tensor.steps[i - 1];
  if (tensor.valid(sizeof(T)) && reinterpret_cast<uintptr_t>(base) % 16 == 0) return 0;
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
  constexpr uint32_t each[3] = {1, 1, 1};
  // The L2 cache brings lines of 128 bytes: with 256 kernels take longer (docs/pointwise.md).
  const CUresult code = encode(
      &map, type, Rank, const_cast<void *>(base), tensor.sizes, tensor.steps, tensor.box, each,
      CU_TENSOR_MAP_INTERLEAVE_NONE,
      Exchanged ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return static_cast<int>(code == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue);
#else
  return (void)map, (void)base, (void)tensor, 1;
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
  emulation::poll_until([&] {
    emulation::make_arrivals(barrier);
    return (emulation::counters(barrier).phase & 1) != parity;
  });
#elif defined(DSCORE_COPY_ENGINE)
  wait_for_engine(barrier, parity);
#endif
}

// The buffer of a ring that is next, and the parity of the phases that its barriers have had.
template <int Stages>
struct RingTurn {
  int stage = 0, parity = 0;
  __device__ void pass() {
    if (++stage == Stages) stage = 0, parity ^= 1;
  }
};

// Asks for the map itself, which is read from memory.
__device__ inline void prefetch_map(const TensorMap &map) {
#if defined(DSCORE_COPY_ENGINE)
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
#endif
}

// Starts the copy of a box to LDS, to a multiple of 1024 bytes. `at` is the column, the row and the
// matrix of its first element, outside of the tensor or within. The column's bytes are a multiple
// of 16, else an H200 stops with an illegal instruction.
template <int Rank>
__device__ inline void load_box(TransferBarrier *barrier, void *lds, const TensorMap &map,
                                const int (&at)[Rank]) {
#if defined(DSCORE_HOST)
  emulation::begin_arrival(barrier, emulation::load, emulation::box_of(map, lds, barrier, at));
#elif defined(DSCORE_COPY_ENGINE)
  if constexpr (Rank == 2)
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2,%3}], [%4];" ::"r"(lds_address(lds)), "l"(&map), "r"(at[0]),
                 "r"(at[1]), "r"(lds_address(barrier)) : "memory");
  else
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2,%3,%4}], [%5];" ::"r"(lds_address(lds)), "l"(&map), "r"(at[0]),
                 "r"(at[1]), "r"(at[2]), "r"(lds_address(barrier)) : "memory");
#endif
}

// The same of bytes that lie side by side in memory: a multiple of 16, as both places are.
__device__ inline void load_span(TransferBarrier *barrier, void *lds, const void *from,
                                 int bytes) {
#if defined(DSCORE_HOST)
  emulation::begin_arrival(barrier, emulation::load_bytes,
                           emulation::span_of(from, lds, barrier, bytes));
#elif defined(DSCORE_COPY_ENGINE)
  engine_load(barrier, lds, from, bytes);
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
  if constexpr (Rank == 2)
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2,%3}], [%1];" ::
                     "l"(&map), "r"(lds_address(lds)), "r"(at[0]), "r"(at[1]) : "memory");
  else
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2,%3,%4}], [%1];" ::
                     "l"(&map), "r"(lds_address(lds)), "r"(at[0]), "r"(at[1]), "r"(at[2])
                 : "memory");
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
