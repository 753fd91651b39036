// How both operands of a product by warpgroups come to the ring of its LDS buffers
// (warpgroup_gemm/product.hpp).
#pragma once

#include "warpgroup_gemm/scaled.hpp"

namespace dscore {

// The work of the one thread that copies.
template <class Products>
struct RingCopies {
  using t = typename Products::t;
  using Roles = typename Products::Roles;
  using Element = typename Products::Element;
  using Arguments = typename Products::Arguments;
  const Products &block;
  const Arguments &args;

  __device__ RingCopies(const Products &block_, const Arguments &args_)
      : block(block_), args(args_) {}

  // Fills the ring, ahead of the warpgroups by as many steps as it has buffers. Columns of the
  // first buffers come before all rows where they are kept, or where rows are to be waited for:
  // else the first products would wait for the columns of later ones.
  template <class Before>
  __device__ void copy_all(const Before &before) const {
    before.wait_for_constants();
    const bool columns_first = t::kept > 0 || before.behind;
    const int begun = columns_first ? least(block.steps, t::stages) : 0;
    DSCORE_ROLLED
    for (int step = 0; step < begun; step++) {
      expect(step, block.row_block * t::tile_m, !t::columns_by_lanes);
      if (!t::columns_by_lanes) load_columns(step, step);
    }
    before.wait_for_images();
    typename Products::Turn turn;
    bool refilled = false;
    block.each_tile([&](int first_m, bool first) {
      DSCORE_ROLLED
      for (int step = 0; step < block.steps; step++) {
        if (refilled) wait_barrier(block.empty + turn.stage, turn.parity ^ 1);
        const bool expected = columns_first && first && !refilled;
        const bool columns = !expected && !t::columns_by_lanes && (t::kept == 0 || first);
        if (!expected) expect(turn.stage, first_m, columns);
        load_rows(turn.stage, step, first_m);
        if (columns) load_columns(turn.stage, step);
        turn.pass();
        refilled = refilled || turn.stage == 0;
      }
    });
  }
  // Has a buffer wait for the rows of the tile that begins with `first_m`, and for columns if they
  // come.
  __device__ void expect(int stage, int first_m, bool columns) const {
    arrive_expecting(block.full + stage, rows_bytes(first_m) + (columns ? t::bytes_b : 0));
  }
  __device__ void load_columns(int stage, int step) const {
    unsigned char *to = block.columns_at(stage, step);
    const int summed = block.summed_of(step);
    each_box<t::boxes_b>(t::across_b, block.first_n, summed, [&](int i, const int (&at)[2]) {
      load_box(block.full + stage, to + i * t::box_b * swizzled_row, block.maps.b, at);
    });
  }
  __device__ void load_rows(int stage, int step, int first_m) const {
    TransferBarrier *barrier = block.full + stage;
    unsigned char *to = block.lds + stage * t::stage_bytes;
    const int summed = block.summed_of(step);
    if constexpr (t::scale_maps)
      copy_scales<t>(barrier, to, block.maps.scales, summed, first_m / image_rows(block.s));
    if constexpr (t::spans)
      load_span(barrier, to,
                static_cast<const Element *>(Roles::a(args)) + first_m * Roles::k(block.s),
                rows_bytes(first_m));
    else
      each_box<t::boxes_a>(t::across_a, first_m, summed, [&](int i, const int (&at)[2]) {
        load_box(barrier, to + i * t::box_a * swizzled_row, block.maps.a, at);
      });
  }
  __device__ int rows_bytes(int first_m) const {
    return t::spans ? block.span_bytes(least(t::tile_m, Roles::m(block.s) - first_m))
                    : t::bytes_a + t::scale_bytes;
  }
  // Calls take(number, its first elements) for the boxes of an operand.
  template <int Boxes, class Take>
  static __device__ void each_box(bool across, int first, int summed, Take take) {
    DSCORE_UNROLL
    for (int i = 0; i < Boxes; i++)
      take(i, {(across ? first : summed) + i * t::row, across ? summed : first});
  }
};

}  // namespace dscore
