// A tile whose steps the blocks of a cluster share (warpgroup_gemm/product.hpp). Each block adds
// and stores the sums of some runs of eight columns. The others send theirs to its mailbox, where
// the same thread finds them: nobody waits for what is read from another block, threads side by
// side send and read vectors side by side, and no barrier of the cluster is left between both. A
// block's own sums stay in registers.
#pragma once

#include "support/shared_sums.hpp"
#include "warpgroup_gemm/copies.hpp"
#include "warpgroup_gemm/scaled.hpp"

namespace dscore {

// A block's work in a cluster.
template <class Products>
struct SharedTile {
  using t = typename Products::t;
  using Roles = typename Products::Roles;
  using Element = typename Products::Element;
  using Arguments = typename Products::Arguments;
  using Beside = typename Roles::template Beside<2>;
  using Two = Pack<typename Products::Result, 2>;
  using Own = Pack<float, 4>[t::own_runs];
  const Products &block;
  const Arguments &args;
  const typename t::SharedRuns shared;
  int first_m, row, column;  // of the tile; of a thread's first sum there, in a run

  __device__ SharedTile(const Products &block_, const Arguments &args_)
      : block(block_), args(args_),
        shared{block_.lds + t::handed_at, {block_.full + t::mailbox}, block_.rank},
        first_m(block_.row_block * t::tile_m),
        row(block_.thread / t::wavefront * wavefront_rows + block_.thread % t::wavefront / 4),
        column(block_.thread % t::wavefront % 4 * 2) {}

  // Before sums are handed over, all blocks must be there, which costs nothing where they say so
  // as they begin.
  __device__ void run() const {
    const bool copies = block.group == t::groups && one_of_wavefront();
    if (copies) shared.prepare();
    wavefront_barrier();  // barriers of a cluster are for whole wavefronts
    announce_block();
    if (block.group < t::groups) {
      float sums[t::tile_n / 2];
      accumulate(sums);
      wait_for_cluster();
      Own own{};
      hand_over(sums, own);
      finish(own);
    } else {
      if (copies) RingCopies<Products>(block, args).copy_all(NothingBefore{});
      wavefront_barrier();
      wait_for_cluster();
    }
  }
  // A thread's sums to the blocks that add them; zeros of a block that has had no step.
  __device__ void hand_over(const float *sums, Own &own) const {
    DSCORE_UNROLL
    for (int run = 0; run < t::runs; run++) {
      Pack<float, 4> four{};
      DSCORE_UNROLL
      for (int i = 0; i < 4; i++)
        if (block.steps > 0) four.at[i] = sums[4 * run + i];
      if (shared.adds(run)) own[run % t::own_runs] = four;
      else shared.send(run, block.thread, four);
    }
  }
  __device__ void accumulate(float *sums) const {
    typename Products::Turn turn;
    const auto scales = Roles::template scales_of<Element>(args);
    const int group = block.group;
    const auto meanwhile = [](const unsigned char *, int) {};
    if constexpr (!t::scaled) block.accumulate(sums, turn, group, meanwhile);
    else if (block.steps > 0)
      ScaledRows<t, std::remove_const_t<decltype(scales)>>(scales, block, first_m, group)
          .accumulate(block, sums, turn, meanwhile);
  }

  // Calls each(number of one of this block's runs, its column) for those that the result has.
  template <class Each>
  __device__ void each_run(Each each) const {
    DSCORE_UNROLL
    for (int i = 0; i < t::own_runs; i++) {
      const int number = block.rank * t::own_runs + i;
      const int at = block.first_n + number * 8 + column;
      if (number < t::runs && at < Roles::n(block.s)) each(i, at);
    }
  }
  // What results need beside sums is read while these are under way.
  __device__ void finish(const Own &own) const {
    Beside beside[t::own_runs];
    each_run([&](int i, int at) {
      beside[i] = Roles::template beside<t>(args, at, nullptr, 0);
    });
    shared.mailbox.wait();
    if constexpr (Roles::stores_sums) store_sums(own);
    else store(own, beside);
  }
  __device__ Pack<float, 4> sums_of(const Own &own, int run) const {
    return shared.sum(run, block.thread, own[run]);
  }
  __device__ void store_sums(const Own &own) const {
    each_run([&](int i, int at) {
      const auto sums = sums_of(own, i);
      DSCORE_UNROLL
      for (int half = 0; half < 2; half++)
        Roles::store_sums(args, block.s, sums.at + 2 * half, block.part,
                          first_m + row + half * 8, at);
    });
  }
  // All results are made before the first is stored: behind a store nothing is read ahead.
  __device__ void store(const Own &own, const Beside (&beside)[t::own_runs]) const {
    const int n = Roles::n(block.s), rows = Roles::m(block.s) - first_m - row;
    Two results[t::own_runs][2];
    each_run([&](int i, int at) {
      const auto sums = sums_of(own, i);
      DSCORE_UNROLL
      for (int half = 0; half < 2; half++)
        if (half * 8 < rows)
          results[i][half] = Roles::template results_of<Element, 2>(
              sums.at + 2 * half, beside[i], {},
              Roles::template added_to<2>(args, block.s, first_m + row + half * 8, at, {}));
    });
    auto *out = static_cast<typename Products::Result *>(args.out);
    each_run([&](int i, int at) {
      DSCORE_UNROLL
      for (int half = 0; half < 2; half++)
        if (half * 8 < rows)
          write_vector(out + (first_m + row + half * 8) * n + at, results[i][half]);
    });
  }
};

}  // namespace dscore
