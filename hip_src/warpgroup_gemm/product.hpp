// A product of matrices by Hopper's warpgroups, rows of results by columns that lie side by side in
// memory: pointwise layers of 16 bits in NHWC, and their gradients; layers of int8 (bytes.hpp).
//
// One wavefront brings boxes of both operands to a ring of LDS buffers; warpgroups, of 64 rows
// each, multiply them there, and send results back by boxes as well. A block takes `repeat` tiles
// of rows, `blocks_m` apart, and its ring runs on from each to the next.
//
// Order of additions, as the reference backend has it: a result's products are added step by step,
// in the order of its summed elements in each; then the shares of a cluster are added in their
// order, then the parts. All blocks begin with the first step, and so read the same columns at
// once: with a step of its own to begin with, a block takes longer (docs/pointwise.md).
#pragma once

#include "warpgroup_gemm/bytes.hpp"
#include "warpgroup_gemm/copies.hpp"
#include "warpgroup_gemm/joined.hpp"
#include "warpgroup_gemm/results.hpp"
#include "warpgroup_gemm/scaled.hpp"
#include "warpgroup_gemm/spans.hpp"

namespace dscore {

// Roles: sizes m, n, k of a problem's product; a and b, the operands, and whether each lies along
// the sum; `results_of` two sums side by side, or, where it `stores_sums`, `store_sums`.
template <class T, class Tiling, class Roles_>
struct WarpgroupProducts : KernelOn<T, typename Roles_::Arguments, Roles_::optional> {
  using Roles = Roles_;
  using Shape = typename Roles::Shape;
  using Arguments = typename Roles::Arguments;
  using t = WarpgroupGemmShape<T, Tiling, Roles>;
  using Sum = ProductSum<T>;
  using Result = typename t::Result;
  using Maps = typename t::Maps;
  static constexpr int threads = t::threads, wavefront = t::wavefront, layout = t::layout;
  static constexpr int lds_bytes = t::lds_bytes, alignment = 16, cluster = t::cluster;
  static constexpr bool most_lds = true;
  // Of a cluster, and where both operands are images, nothing comes before these.
  static constexpr bool reads_constants_first = cluster == 1 && !Roles::sums_pixels;
  static_assert(sizeof(T) == 2 || t::quantised, "elements of 16 bits, or signed bytes");

  // Blocks of a cluster fastest, then column tiles: neighbours read the same rows.
  static __host__ __device__ int blocks(const Shape &s) {
    return cluster * t::tiles_n(s) * t::blocks_m(s) * t::parts;
  }

  static int make_maps(Maps &maps, const Arguments &args, const Shape &s) {
    return t::make_maps(maps, args, s);
  }

  const Shape &s;
  const Maps &maps;
  unsigned tile;
  int thread, group, rank, row_block, first_n, part, first_step, steps;
  unsigned char *lds;
  TransferBarrier *full, *empty;

  __device__ WarpgroupProducts(const Arguments &, const Shape &shape, const Maps &maps_)
      : s(shape), maps(maps_), tile(blockIdx.x / cluster), thread(thread_number()),
        group(of_wavefront(thread / warpgroup_threads)),
        rank(blockIdx.x % cluster),
        row_block(tile / t::tiles_n(shape) % t::blocks_m(shape)),
        first_n(tile % t::tiles_n(shape) * t::tile_n),
        part(t::parts > 1 ? tile / (t::tiles_n(shape) * t::blocks_m(shape)) : 0),
        first_step((part * cluster + rank) * t::steps_each(shape)),
        steps(least(t::steps_each(shape), t::all_steps(shape) - first_step)),
        lds(block_lds<unsigned char, lds_bytes, swizzled_tile>()),
        full(reinterpret_cast<TransferBarrier *>(lds + t::barriers_at)), empty(full + t::stages) {
    if (group == t::groups && one_of_wavefront()) {
      if (!t::spans) prefetch_map(maps.a);
      if (!t::columns_by_lanes) prefetch_map(maps.b);
      if (boxed()) prefetch_map(maps.out);
      prepare_barriers(full, t::stages, 1);
      prepare_barriers(empty, t::stages, t::consumers / readers);
      if (t::meeting) prepare_barriers(empty + t::stages, 1, t::consumers);
    }
    __syncthreads();
  }

  // The rows of all first tiles, and all columns.
  static constexpr bool works_ahead = true;
  static __device__ void fetch_ahead(const Arguments &args, const Shape &s) {
    prefetch_operands<T, Roles, t::parts>(args, s, t::blocks_m(s) * t::tile_m,
                                          cluster * t::steps_each(s) * t::step, blocks(s));
  }

  // Calls each(first row of a tile, whether it is the block's first one).
  template <class Each>
  __device__ void each_tile(Each each) const {
    DSCORE_ROLLED
    for (int i = 0; i < t::repeat; i++)
      if (const int tile = row_block + i * t::blocks_m(s);
          t::repeat == 1 || tile < t::tiles_m(s)) each(tile * t::tile_m, i == 0);
  }
  using Turn = RingTurn<t::stages>;
  // Threads that let a buffer go together: those of a warpgroup, whose matrix units alone read it;
  // those of a wavefront, whose lanes do, too.
  static constexpr int readers = t::read_by_lanes ? t::wavefront : warpgroup_threads;
  __device__ unsigned char *columns_at(int stage, int step) const {
    return t::kept > 0 ? lds + t::kept_at + step * t::bytes_b
                       : lds + stage * t::stage_bytes + t::bytes_a;
  }

  // Bytes of so many rows of which each has all summed elements.
  __device__ int span_bytes(int rows) const {
    return rows * Roles::k(s) * static_cast<int>(sizeof(T));
  }
  // The first summed element of a step.
  __device__ int summed_of(int step) const { return (first_step + step) * t::step; }
  // Summed elements of a step: where one has all of them, and a compiler knows how many, no more
  // than there are.
  __device__ int depth_end() const {
    return std::is_empty_v<Shape> && t::all_steps(s) == 1 ? Roles::k(s) : t::step;
  }
  __device__ const unsigned char *rows_at(int stage, int group) const {
    return lds + stage * t::stage_bytes + group * t::group_bytes;
  }
  // A step's products, of rows in LDS or in registers.
  template <class Rows>
  __device__ void multiply(Sum *sums, const Rows &rows, const Turn &turn, int step) const {
    const LdsOperand b(columns_at(turn.stage, step), swizzled_tile, t::box_b * swizzled_row);
    DSCORE_UNROLL
    for (int k = 0; k < depth_end(); k += t::depth) {
      const LdsOperand columns = b.further(operand_place<T>(t::across_b, t::box_b, k));
      if constexpr (t::of_registers)
        multiply_registers<T, t::tile_n, t::across_b>(sums, rows[k / t::depth], columns,
                                                      step + k > 0);
      else
        multiply_lds<T, t::tile_n, t::across_a, t::across_b>(
            sums, rows.further(operand_place<T>(t::across_a, t::box_a, k)), columns, step + k > 0);
    }
    commit_products();
  }
  __device__ void release(int stage) const {
    if (t::read_by_lanes) wavefront_barrier();
    if (thread % readers == 0) arrive(empty + stage);
  }

  // A tile's sums; meanwhile(a step's elements of the columns, its number) is called as units
  // multiply them.
  template <class Meanwhile>
  __device__ void accumulate(Sum *sums, Turn &turn, int group, Meanwhile meanwhile) const {
    DSCORE_ROLLED
    for (int step = 0; step < steps; step++) {
      wait_barrier(full + turn.stage, turn.parity);
      order_products();
      multiply(sums, LdsOperand(rows_at(turn.stage, group)), turn, step);
      meanwhile(columns_at(turn.stage, step), step);
      if (step > 0) {
        wait_products<1>();
        release(turn.stage == 0 ? t::stages - 1 : turn.stage - 1);
      }
      turn.pass();
    }
    wait_products<0>();
    if (steps > 0) release(turn.stage == 0 ? t::stages - 1 : turn.stage - 1);
  }
  template <class Before>
  __device__ void multiply_all(const Arguments &args, const Before &before) const {
    before.wait_for_constants();
    const int of_group = thread % warpgroup_threads;
    Turn turn;
    typename Roles::template Columns<t> columns(args, first_n, Roles::n(s) - first_n, of_group);
    // Read once and early: behind a barrier a compiler reads memory anew.
    const auto raw_points = Roles::read_points(args);
    const TableInLds<t, typename Roles::Results> table(args, lds + t::table_at, thread);
    const auto scales = Roles::template scales_of<T>(args);
    const int zero = Roles::zero_of(args);
    const auto put_columns = [&] {
      if constexpr (t::quantised)
        columns.put(column_values(group), results_of_group(group), zero, of_group,
                    [=] { warpgroup_barrier<t::groups>(group); });
    };
    if constexpr (t::columns_by_lanes) {
      unsigned char *elements = columns_at(0, 0);
      bring_columns<t>(elements,
                       static_cast<const T *>(Roles::b(args)) + first_n * Roles::k(s),
                       Roles::n(s) - first_n, Roles::k(s), thread);
      let_engine_see_lds();
      table.put();
      meet();
      // Before the first tile, so that no register is kept for it through all of them.
      if (zero != 0) columns.add(elements, of_group);
      put_columns();
    }
    const auto points = table.points(Roles::points_of(args, raw_points));
    constexpr bool sums_columns = t::quantised && !t::columns_by_lanes;
    if constexpr (t::meeting && sums_columns) {
      table.put();
      meet();
    }
    before.wait_for_images();
    std::conditional_t<t::scaled_spans, ScalesAhead<t>, NoScales> ahead;
    if constexpr (t::scaled_spans) ahead.ask(scales, *this, row_block * t::tile_m);
    each_tile([&](int first_m, bool first) {
      Sum sums[t::tile_n / 2];
      const auto meanwhile = [&](const unsigned char *elements, int step) {
        if constexpr (sums_columns)
          if (first) {
            if (zero != 0) columns.add(elements, of_group);
            else if (step == 0) put_columns();
          }
      };
      if constexpr (t::scaled_spans) ahead.accumulate(scales, *this, sums, turn, first_m);
      else if constexpr (t::scaled)
        ScaledRows<t, std::remove_const_t<decltype(scales)>>(scales, *this, first_m, group)
            .accumulate(*this, sums, turn, meanwhile);
      else if constexpr (t::spans)
        SpanRows<t>(thread).accumulate(*this, sums, turn, group, [](auto &, int) {});
      else accumulate(sums, turn, group, meanwhile);
      if constexpr (sums_columns)
        if (first && zero != 0) put_columns();
      TileResults<WarpgroupProducts>(*this, args).finish(
          points, sums, first_m + group * warpgroup_rows, first);
    });
    if (!Roles::stores_sums && thread % warpgroup_threads == 0) wait_stores<0>();
  }

  // All warpgroups: see what each has brought to LDS.
  __device__ void meet() const {
    commit_copies();
    wait_copies<0>();
    arrive(empty + t::stages);
    wait_barrier(empty + t::stages, 0);
  }
  // Whether results of several rows lie side by side in memory and leave as a span: where boxes of
  // their rows would begin within its sectors; of bytes also where rows lie in different banks of
  // LDS without a gap.
  __device__ bool whole_rows() const {
    const int of_row = Roles::n(s) * int{sizeof(Result)};
    const bool apart =
        t::quantised && of_row % t::side_by_side == 0 && of_row / t::side_by_side % 2 == 1;
    return t::tiles_n(s) == 1 && (Roles::n(s) % 32 != 0 || apart);
  }
  // Whether results leave as boxes.
  __device__ bool boxed() const { return t::boxed && !whole_rows(); }
  __device__ unsigned char *column_values(int group) const {
    return lds + t::columns_at + group * t::group_columns;
  }
  __device__ unsigned char *factors_of_group(int group) const {
    return lds + t::factors_at + group * t::group_factors;
  }
  __device__ unsigned char *results_of_group(int group) const {
    return lds + t::results_at + group * t::group_results;
  }

  template <class Before = NothingBefore>
  __device__ void run(const Arguments &args, const Before &before = {}) {
    if constexpr (cluster > 1) SharedTile<WarpgroupProducts>(*this, args).run();
    else if (group < t::groups) multiply_all(args, before);
    else if (one_of_wavefront())
      RingCopies<WarpgroupProducts>(*this, args).copy_all(before);
  }
};

}  // namespace dscore
