// Bulk copies of one piece of memory to a block's LDS and back: by the copy engine of sm_90, which
// one thread starts (PTX ISA, cp.async.bulk), elsewhere by all its threads, a vector each.
#pragma once

#include "support/vendor.hpp"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define DSCORE_COPY_ENGINE
#endif

namespace dscore {

// What a block waits at until the copy engine has brought all bytes; 16 bytes of LDS, used or not.
struct alignas(16) TransferBarrier {
  uint64_t counter[2];
};

#if defined(DSCORE_COPY_ENGINE)
__device__ inline unsigned lds_address(const void *lds) {
  return static_cast<unsigned>(__cvta_generic_to_shared(lds));
}

template <int Count>
__device__ inline void prepare_engine(TransferBarrier *barriers) {
  DSCORE_UNROLL
  for (int i = 0; i < Count; i++)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(lds_address(barriers + i))
                 : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// What the barrier's loads bring before it lets go.
__device__ inline void expect_of_engine(TransferBarrier *barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   lds_address(barrier)), "r"(bytes) : "memory");
}

__device__ inline void engine_load(TransferBarrier *barrier, void *lds, const void *from,
                                   int bytes) {
  if (bytes > 0)
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(lds_address(lds)), "l"(from), "r"(bytes),
                 "r"(lds_address(barrier)) : "memory");
}

// Parity: of the barrier's uses before.
__device__ inline void wait_for_engine(const TransferBarrier *barrier, int parity) {
  for (unsigned come = 0; come == 0;)
    asm volatile("{\n.reg .pred come;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 come, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, come;\n}"
                 : "=r"(come) : "r"(lds_address(barrier)), "r"(parity) : "memory");
}

// LDS may not change before it returns.
__device__ inline void engine_store(void *to, const void *lds, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(lds_address(lds)), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
#endif

// Lets the engine read what other blocks wrote to memory, as far as the thread may.
__device__ inline void let_engine_see_writes() {
#if defined(DSCORE_COPY_ENGINE)
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

// Asks that elements come to the L2 cache: whole vectors, from a multiple of 16 bytes on.
template <class T>
__device__ inline void prefetch_span(const T *from, int elements) {
  if (elements <= 0) return;
#if defined(DSCORE_COPY_ENGINE)
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from),
               "r"(elements * static_cast<int>(sizeof(T))) : "memory");
#elif defined(DSCORE_HOST)
  // Touched at both ends, so that a sanitizer sees a span that leaves its array.
  (void)*static_cast<const volatile T *>(from);
  (void)*static_cast<const volatile T *>(from + elements - 1);
#endif
}

// The same of the whole vectors that lie among elements.
template <class T>
__device__ inline void prefetch_vectors(const T *from, int elements) {
  constexpr uintptr_t vector = 16;
  const auto address = reinterpret_cast<uintptr_t>(from);
  const uintptr_t first = (address + vector - 1) / vector * vector,
                  end = (address + elements * sizeof(T)) / vector * vector;
  if (first < end)
    prefetch_span(reinterpret_cast<const T *>(first), static_cast<int>((end - first) / sizeof(T)));
}

// The same of elements that several blocks read: each of the `sharers` asks for some lines, no more
// than a cache has. Were each to ask for what it reads, several would ask for the same.
template <class T>
__device__ inline void prefetch_share(const void *tensor, int64_t first, int elements, int sharer,
                                      int sharers) {
  constexpr int line = 128 / static_cast<int>(sizeof(T)), most_lines = 1 << 18;
  const int each = least(elements / line / sharers + 1, most_lines) * line;
  const auto before = static_cast<int64_t>(sharer) * each;
  if (before < elements)
    prefetch_vectors(static_cast<const T *>(tensor) + first + before,
                     least(each, elements - static_cast<int>(before)));
}

// The same of a tensor that all blocks read.
template <class T>
__device__ inline void prefetch_share(const void *tensor, int elements, int blocks) {
  prefetch_share<T>(tensor, 0, elements, blockIdx.x, blocks);
}

// The same of what results of so many channels need beside their sums, each block some.
template <class Epilogue, class Arguments>
__device__ inline void prefetch_channels(const Arguments &args, int channels, int blocks) {
  if constexpr (std::is_integral_v<typename Epilogue::Sum>) {
    prefetch_vectors(static_cast<const int32_t *>(args.points), Epilogue::least_points);
    prefetch_share<float>(args.multiplier, channels, blocks);
    if (args.bias) prefetch_share<int32_t>(args.bias, channels, blocks);
  } else if constexpr (Epilogue::biased) {
    prefetch_share<typename Epilogue::Element>(args.bias, channels, blocks);
  }
}

// Bytes of an operand, or of the images that a gradient sums, that blocks ask for ahead. Some four
// million come while the kernel before ends; of more, some come twice (docs/benchmark_notes.md).
constexpr int most_ahead_bytes = 4 << 20;
// The same of so many blocks of so many bytes of LDS: where all have room beside those of the
// kernel before, they ask while that works, and have the time for more (docs/benchmark_notes.md).
__host__ __device__ constexpr int most_ahead_of(int blocks, int lds_bytes) {
  return blocks <= hopper_units && blocks_of_unit(lds_bytes) > 1 ? 16 << 20 : most_ahead_bytes;
}

// Rows of so many elements that are asked for ahead, of those that are there.
template <class T>
__device__ inline int rows_ahead(int rows, int elements, int most_bytes = most_ahead_bytes) {
  return least(rows, most_bytes / static_cast<int>(sizeof(T)) / elements);
}

// The same of two images whose pixels are summed by `parts`, so many each: the first of each part.
template <class T, class Roles, class Arguments, class Shape>
__device__ inline void prefetch_pixels(const Arguments &args, const Shape &s, int parts,
                                       int pixels_each, int blocks) {
  const int sharers = blocks / parts, part = blockIdx.x / sharers, first = part * pixels_each;
  const int m = Roles::m(s), n = Roles::n(s);
  const int pixels = least(rows_ahead<T>(pixels_each, (m + n) * parts), Roles::k(s) - first);
  const auto prefetch = [&](const void *tensor, int channels) {
    prefetch_share<T>(tensor, static_cast<int64_t>(first) * channels, pixels * channels,
                      blockIdx.x % sharers, sharers);
  };
  prefetch(Roles::a(args), m);
  prefetch(Roles::b(args), n);
}

// The same of a product's operands: the rows of the blocks' first tiles, and all columns.
template <class T, class Roles, int Parts, class Arguments, class Shape>
__device__ inline void prefetch_operands(const Arguments &args, const Shape &s, int first_rows,
                                         int summed_each, int blocks) {
  if constexpr (Roles::sums_pixels) {
    prefetch_pixels<T, Roles>(args, s, Parts, summed_each, blocks);
  } else {
    const int k = Roles::k(s), rows = least(Roles::m(s), first_rows);
    prefetch_share<T>(Roles::a(args), rows_ahead<T>(rows, k) * k, blocks);
    prefetch_share<T>(Roles::b(args), rows_ahead<T>(Roles::n(s), k) * k, blocks);
    prefetch_channels<typename Roles::Results>(args, s.out_channels, blocks);
  }
}

// The copies of a block of Threads. Elements lie in LDS as in memory from a multiple of 16 bytes
// on, and none past `end` or before `first` is touched in memory, as other blocks own them.
template <class T, int Threads, int Wavefront>
struct BulkCopy {
  static constexpr int vector = 16 / static_cast<int>(sizeof(T));
#if defined(DSCORE_HOST)
  // Where wavefronts are as wide as NVIDIA's one thread does what the engine would.
  static constexpr int movers = Wavefront == 32 ? 1 : Threads;
#else
  static constexpr int movers = Threads;
#endif

  // Prepares barriers, before any load.
  template <int Count = 1>
  static __device__ void prepare(TransferBarrier *barriers, int thread) {
#if defined(DSCORE_COPY_ENGINE)
    if (thread == 0) prepare_engine<Count>(barriers);
    __syncthreads();
#endif
  }

  // Starts the load of whole vectors, at most Most elements.
  template <int Most>
  static __device__ void start_load(TransferBarrier *barrier, T *lds, const T *from, int elements,
                                    int thread) {
#if defined(DSCORE_COPY_ENGINE)
    if (thread != 0) return;
    const int bytes = elements * static_cast<int>(sizeof(T));
    expect_of_engine(barrier, bytes);
    engine_load(barrier, lds, from, bytes);
#else
    copy<Most>(barrier, lds, from, elements, thread);
    end_copies();
#endif
  }

  // The same in steps, of several pieces: how many elements come in all, and each piece.
  static __device__ void expect(TransferBarrier *barrier, int elements, int thread) {
#if defined(DSCORE_COPY_ENGINE)
    if (thread == 0) expect_of_engine(barrier, elements * static_cast<int>(sizeof(T)));
#endif
  }
  template <int Most>
  static __device__ void copy(TransferBarrier *barrier, T *lds, const T *from, int elements,
                              int thread) {
#if defined(DSCORE_COPY_ENGINE)
    if (thread == 0)
      engine_load(barrier, lds, from, elements * static_cast<int>(sizeof(T)));
#else
    DSCORE_UNROLL
    for (int i = 0; i < ceil_div(Most / vector, movers); i++) {
      const int at = (i * movers + thread) * vector;
      if (thread < movers && at < elements) copy_async<16>(lds + at, from + at);
    }
#endif
  }
  // Whether a thread's part in `expect` and `copy` is more than nothing.
  static __device__ bool copies(int thread) {
#if defined(DSCORE_COPY_ENGINE)
    return thread == 0;
#else
    return true;
#endif
  }
  static __device__ void end_copies() {
#if !defined(DSCORE_COPY_ENGINE)
    commit_copies();
#endif
  }

  // Waits for the load, and for what other threads wrote to LDS if they did. Ahead: loads that
  // began later, and need not have come. Parity: of the barrier's loads before.
  template <int Ahead = 0>
  static __device__ void wait_for_load(const TransferBarrier *barrier, bool others_wrote,
                                       int parity = 0) {
#if defined(DSCORE_COPY_ENGINE)
    wait_for_engine(barrier, parity);
    if (others_wrote) __syncthreads();
#else
    wait_copies<Ahead>();
    __syncthreads();
#endif
  }

  // Stores elements first..end of `to`, once all threads have written them to LDS.
  template <int Most>
  static __device__ void store(T *to, const T *lds, int first, int end, int thread) {
    const int start = first / vector * vector, whole_first = ceil_div(first, vector) * vector;
    const int whole_end = end / vector * vector;
#if defined(DSCORE_COPY_ENGINE)
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    __syncthreads();
    if ((first | end) % vector != 0 && thread < vector) {
      const int head = start + thread, tail = greatest(whole_first, whole_end) + thread;
      if (head >= first && head < least(whole_first, end)) to[head] = lds[head - start];
      if (tail < end) to[tail] = lds[tail - start];
    }
#if defined(DSCORE_COPY_ENGINE)
    if (thread == 0 && whole_first < whole_end)
      engine_store(to + whole_first, lds + (whole_first - start),
                   (whole_end - whole_first) * static_cast<int>(sizeof(T)));
#else
    DSCORE_UNROLL
    for (int i = 0; i < ceil_div(Most / vector, movers); i++) {
      const int at = whole_first + (i * movers + thread) * vector;
      if (thread < movers && at < whole_end)
        write_vector(to + at, read_vector<vector>(lds + (at - start)));
    }
#endif
  }
};

}  // namespace dscore
