// Numbers that the blocks of a cluster send to one another's LDS, and the barrier that counts them
// where they come to (PTX ISA, st.async). A barrier of the cluster has each block wait until all
// that it wrote to memory is seen by the whole device, and empties the L1 cache: three of them took
// 1.1 of the 5 us of a gate on an H200 (docs/benchmark_notes.md).
//
// Before the first is sent, all blocks of the cluster have prepared their mailboxes, and are there:
// announce_block(), as early as can be, and wait_for_cluster(). A block may end when all that it
// expects has come: nobody sends to it any more.
#pragma once

#include "support/bulk_copy.hpp"
#include "support/clusters.hpp"

#if defined(DSCORE_HOST)
#include "support/emulated_tensors.hpp"
#endif

namespace dscore {

#if defined(DSCORE_HOST)
namespace emulation {

// A number on its way, the barrier that counts it, and where it comes to in another block.
struct Letter {
  uint32_t bits;
  void *to;
  TransferBarrier *barrier;
};
inline void deliver(const void *given) {
  Letter letter;
  std::memcpy(&letter, given, sizeof letter);
  std::memcpy(letter.to, &letter.bits, sizeof letter.bits);
  counters(letter.barrier).bytes -= int{sizeof letter.bits};
  counters(letter.barrier).settle();
}

}  // namespace emulation
#endif

// The mailbox of a block, used once. Blocks: of the cluster, each of which may send to it; where
// the block is alone, `wait` is a barrier of its threads.
template <int Blocks>
struct Mailbox {
  TransferBarrier *barrier;

  // One thread: so many bytes come.
  __device__ void prepare(int bytes) const {
    if constexpr (Blocks == 1) return;
#if defined(DSCORE_HOST)
    emulation::counters(barrier) = {1, 0, bytes, 0};
    emulation::counters(barrier).settle();
#elif defined(DSCORE_COPY_ENGINE)
    prepare_engine<1>(barrier);
    expect_of_engine(barrier, bytes);
#endif
  }

  // Sends a number to where `to` lies in the LDS of a block.
  template <class Number>
  __device__ void send(Number *to, int rank, Number number) const {
    static_assert(sizeof(Number) == 4, "words");
    if constexpr (Blocks == 1) {
      *to = number;
    } else {
#if defined(DSCORE_HOST)
      auto *const theirs = const_cast<TransferBarrier *>(emulation::of_block(barrier, rank));
      void *const at = const_cast<Number *>(emulation::of_block(to, rank));
      emulation::begin_arrival(theirs, emulation::deliver,
                               emulation::Letter{bits_as<uint32_t>(number), at, theirs});
#elif defined(DSCORE_COPY_ENGINE)
      asm volatile("{\n.reg .u32 to, barrier;\n"
                   "mapa.shared::cluster.u32 to, %0, %2;\n"
                   "mapa.shared::cluster.u32 barrier, %1, %2;\n"
                   "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 "
                   "[to], %3, [barrier];\n}" ::"r"(lds_address(to)), "r"(lds_address(barrier)),
                   "r"(rank), "r"(bits_as<uint32_t>(number)) : "memory");
#endif
    }
  }

  // All threads: wait until all has come.
  __device__ void wait() const {
    if constexpr (Blocks == 1) {
      __syncthreads();
    } else {
#if defined(DSCORE_HOST)
      emulation::poll_until([this] {
        emulation::make_arrivals(barrier);
        return emulation::counters(barrier).phase == 1;
      });
#elif defined(DSCORE_COPY_ENGINE)
      for (unsigned come = 0; come == 0;)
        asm volatile("{\n.reg .pred come;\n"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 come, [%1], 0;\n"
                     "selp.u32 %0, 1, 0, come;\n}"
                     : "=r"(come) : "r"(lds_address(barrier)) : "memory");
#endif
    }
  }
};

}  // namespace dscore
