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

// Numbers on their way, the barrier that counts them, and where they come to in another block.
template <int Count>
struct Letter {
  uint32_t bits[Count];
  void *to;
  TransferBarrier *barrier;
};
template <int Count>
inline void deliver(const void *given) {
  Letter<Count> letter;
  std::memcpy(&letter, given, sizeof letter);
  std::memcpy(letter.to, letter.bits, sizeof letter.bits);
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

  // Sends numbers, one or four side by side, to where `to` lies in the LDS of a block.
  template <class Number, int Count>
  __device__ void send(Number *to, int rank, const Pack<Number, Count> &numbers) const {
    static_assert(sizeof(Number) == 4 && (Count == 1 || Count == 4), "a word, or a vector");
    uint32_t bits[Count];
    DSCORE_UNROLL
    for (int i = 0; i < Count; i++) bits[i] = bits_as<uint32_t>(numbers.at[i]);
    if constexpr (Blocks == 1) {
      *reinterpret_cast<Pack<Number, Count> *>(to) = numbers;
    } else {
#if defined(DSCORE_HOST)
      auto *const theirs = const_cast<TransferBarrier *>(emulation::of_block(barrier, rank));
      emulation::Letter<Count> letter{
          {}, const_cast<Number *>(emulation::of_block(to, rank)), theirs};
      std::memcpy(letter.bits, bits, sizeof bits);
      emulation::begin_arrival(theirs, emulation::deliver<Count>, letter);
#elif defined(DSCORE_COPY_ENGINE)
      if constexpr (Count == 1)
        asm volatile("{\n.reg .u32 to, barrier;\n"
                     "mapa.shared::cluster.u32 to, %0, %2;\n"
                     "mapa.shared::cluster.u32 barrier, %1, %2;\n"
                     "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 "
                     "[to], %3, [barrier];\n}" ::"r"(lds_address(to)), "r"(lds_address(barrier)),
                     "r"(rank), "r"(bits[0]) : "memory");
      else
        asm volatile("{\n.reg .u32 to, barrier;\n"
                     "mapa.shared::cluster.u32 to, %0, %2;\n"
                     "mapa.shared::cluster.u32 barrier, %1, %2;\n"
                     "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
                     "[to], {%3,%4,%5,%6}, [barrier];\n}" ::"r"(lds_address(to)),
                     "r"(lds_address(barrier)), "r"(rank), "r"(bits[0]), "r"(bits[1]),
                     "r"(bits[2]), "r"(bits[3]) : "memory");
#endif
    }
  }
  template <class Number>
  __device__ void send(Number *to, int rank, Number number) const {
    send(to, rank, Pack<Number, 1>{{number}});
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
