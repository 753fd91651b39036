// Sums that each block of a cluster has in part. A block adds a share of them: the others send it
// theirs, so that no barrier of the cluster stands between the sums and the results (mailbox.hpp).
#pragma once

#include "support/mailbox.hpp"

namespace dscore {

// Count: sums of each block. They are sent to LDS of their own, as others may send while this block
// still reads the rest of its LDS. A block by itself adds none, and needs no LDS.
template <int Cluster, int Threads, int Count>
struct SharedSums {
  static constexpr int share = ceil_div(Count, Cluster);
  static constexpr int mailbox_at = ceil_div(Cluster * share * int{sizeof(float)}, 16) * 16;
  static constexpr int lds_bytes = Cluster > 1 ? mailbox_at + int{sizeof(TransferBarrier)} : 0;

  float *sent;
  int rank;
  Mailbox<Cluster> mailbox;

  // As early as can be, all threads: the block is there, and may be sent to.
  __device__ SharedSums(void *lds, int rank_, int thread)
      : sent(static_cast<float *>(lds)), rank(rank_),
        mailbox{reinterpret_cast<TransferBarrier *>(static_cast<char *>(lds) + mailbox_at)} {
    if constexpr (Cluster == 1) return;
    if (thread == 0) mailbox.prepare(Cluster * own() * int{sizeof(float)});
    announce_block();
  }
  // What `make` gives to a function, each of the block's sums with its number, goes to `store`; in
  // a cluster a share of them, to which those of the other blocks have been added.
  template <class Make, class Store>
  __device__ void add(int thread, const Make &make, const Store &store) const {
    if constexpr (Cluster == 1) {
      make(store);
    } else {
      wait_for_cluster();
      make([&](int at, float sum) { send(at, sum); });
      finish(thread, store);
    }
  }

 private:
  // Sums that this block adds.
  __device__ int own() const { return greatest(least(share, Count - rank * share), 0); }
  // Sum number `at` of this block, which sends all of them, each once.
  __device__ void send(int at, float sum) const {
    mailbox.send(sent + rank * share + at % share, at / share, sum);
  }
  // Adds the blocks' sums in the order of their ranks; each goes to `store`, with its number.
  template <class Store>
  __device__ void finish(int thread, const Store &store) const {
    mailbox.wait();
    DSCORE_ROLLED
    for (int at = thread; at < own(); at += Threads) {
      float sum = sent[at];
      DSCORE_UNROLL
      for (int from = 1; from < Cluster; from++) sum += sent[from * share + at];
      store(rank * share + at, sum);
    }
  }
};

// The same of sums that threads have by fours, in runs, of which each block adds a share: its own
// threads' stay in registers. Places: fours of a run, each a thread's of every block.
template <int Cluster, int Runs, int Places>
struct SharedRuns {
  static constexpr int most = ceil_div(Runs, Cluster);  // that a block adds
  static constexpr int lds_bytes = (Cluster - 1) * most * Places * 16;
  using Four = Pack<float, 4>;

  void *lds;
  Mailbox<Cluster> mailbox;
  int rank;

  // Runs that this block adds.
  __device__ int own() const { return greatest(least(most, Runs - rank * most), 0); }
  // One thread.
  __device__ void prepare() const { mailbox.prepare((Cluster - 1) * own() * Places * 16); }
  // Where a thread of block `to` finds what block `from` has sent it.
  __device__ float *sent(int from, int to, int run, int place) const {
    const int of = from - (from > to);
    return static_cast<float *>(lds) + ((of * most + run) * Places + place) * 4;
  }
  // Whether this block adds a run.
  __device__ bool adds(int run) const { return run / most == rank; }
  // Sends a thread's four of a run to the block that adds them, another one. Before the first is
  // sent, all threads wait_for_cluster().
  __device__ void send(int run, int place, const Four &four) const {
    mailbox.send(sent(rank, run / most, run % most, place), run / most, four);
  }
  // Those of one of this block's runs, added in the order of the blocks' ranks, once all have come.
  __device__ Four sum(int run, int place, const Four &own) const {
    Four sums{};
    DSCORE_UNROLL
    for (int from = 0; from < Cluster; from++) {
      Four others = own;
      if (from != rank) others = read_vector<4>(sent(from, rank, run, place));
      DSCORE_UNROLL
      for (int i = 0; i < 4; i++) sums.at[i] = from == 0 ? others.at[i] : sums.at[i] + others.at[i];
    }
    return sums;
  }
};

}  // namespace dscore
