// Sums that each block of a cluster has in part. A block adds a share of them: the others send it
// theirs, so that no barrier of the cluster stands between the sums and the results (mailbox.hpp).
#pragma once

#include "support/mailbox.hpp"

namespace dscore {

// Count: sums of each block. They are sent to LDS of their own, as others may send while this block
// still reads the rest of its LDS.
template <int Cluster, int Threads, int Count, class Sum = float>
struct SharedSums {
  static constexpr int share = ceil_div(Count, Cluster);
  static constexpr int mailbox_at = ceil_div(Cluster * share * int{sizeof(Sum)}, 16) * 16;
  static constexpr int lds_bytes = Cluster > 1 ? mailbox_at + int{sizeof(TransferBarrier)} : 0;

  Sum *sent;
  int rank;
  Mailbox<Cluster> mailbox;

  // As early as can be, all threads: the block is there, and may be sent to.
  __device__ SharedSums(void *lds, int rank_, int thread)
      : sent(static_cast<Sum *>(lds)), rank(rank_),
        mailbox{reinterpret_cast<TransferBarrier *>(static_cast<char *>(lds) + mailbox_at)} {
    if (thread == 0) mailbox.prepare(Cluster * own() * int{sizeof(Sum)});
    announce_block();
  }
  // Sums that this block adds.
  __device__ int own() const { return greatest(least(share, Count - rank * share), 0); }

  // Sum number `at` of this block. Before the first, all threads wait_for_cluster(); each block
  // sends all sums, each of them once.
  __device__ void send(int at, Sum sum) const {
    mailbox.send(sent + rank * share + at % share, at / share, sum);
  }
  // Adds the blocks' sums in the order of their ranks; each goes to `store`, with its number.
  template <class Store>
  __device__ void finish(int thread, const Store &store) const {
    mailbox.wait();
    DSCORE_ROLLED
    for (int at = thread; at < own(); at += Threads) {
      Sum sum = sent[at];
      DSCORE_UNROLL
      for (int from = 1; from < Cluster; from++) sum += sent[from * share + at];
      store(rank * share + at, sum);
    }
  }
};

}  // namespace dscore
