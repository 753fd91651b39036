// Results of a tile of rows (warpgroup_gemm/product.hpp): from a warpgroup's sums by LDS to memory.
#pragma once

#include "warpgroup_gemm/bytes.hpp"
#include "warpgroup_gemm/shape.hpp"

namespace dscore {

// The results of one warpgroup of a block.
template <class Products>
struct TileResults {
  using t = typename Products::t;
  using Roles = typename Products::Roles;
  using Element = typename Products::Element;
  using Arguments = typename Products::Arguments;
  using Sum = typename Products::Sum;
  using Points = typename t::Points;
  using Result = typename Products::Result;
  const Products &block;
  const Arguments &args;
  int group, of_group, lane;

  __device__ TileResults(const Products &block_, const Arguments &args_)
      : block(block_), args(args_), group(block_.group),
        of_group(block_.thread % warpgroup_threads), lane(of_group % t::wavefront) {}

  // By boxes, a span or rows, of a block's first tile or a later one; or sums unrounded.
  __device__ void finish(const Points &points, const Sum *sums, int first_m,
                         bool first) const {
    const int row = of_group / t::wavefront * wavefront_rows + lane / 4;
    if constexpr (Roles::stores_sums) {
      store_sums(sums, first_m, row);
    } else {
      unsigned char *results = block.results_of_group(group);
      if (t::repeat > 1 && !first) {
        if (!by_vectors() && of_group == 0) wait_stores<0>();
        meet();
      }
      put(results, points, sums, first_m, row);
      if (!by_vectors()) let_engine_see_lds();
      meet();
      send(results, first_m);
    }
  }
  // Results leave by vectors of a wavefront's own rows, so that wavefronts do not wait for one
  // another; else by boxes, or a span, of a warpgroup's.
  __device__ bool by_vectors() const { return t::quantised && !block.whole_rows(); }
  __device__ void meet() const {
    if (by_vectors()) wavefront_barrier();
    else warpgroup_barrier<t::groups>(group);
  }
  // A lane's sums, of a row of the tile and the eighth after it.
  __device__ void store_sums(const Sum *sums, int first_m, int row) const {
    DSCORE_UNROLL
    for (int i = 0; i < t::tile_n / 4; i++)
      Roles::store_sums(args, block.s, block.steps > 0 ? sums + 2 * i : nullptr, block.part,
                        first_m + row + i % 2 * 8, block.first_n + i / 2 * 8 + lane % 4 * 2);
  }
  // A lane's results to LDS, of two rows of the tile: of the channels that it has together, then of
  // those that are as many lanes further on. What several of these need is read before the first of
  // them is written: behind that a compiler reads no memory ahead, and each would wait for its own.
  static constexpr int together = t::together, lanes = 4, wide = lanes * together;
  static constexpr int of_lane = t::tile_n / wide, read_at_once = least(of_lane, 64 / wide);
  __device__ void put(unsigned char *results, const Points &points, const Sum *sums, int first_m,
                      int row) const {
    DSCORE_UNROLL
    for (int first = 0; first < of_lane; first += read_at_once)
      put_several(results, points, sums, first_m, row, first);
  }
  __device__ void put_several(unsigned char *results, const Points &points, const Sum *sums,
                              int first_m, int row, int first) const {
    typename Roles::template Beside<together> beside[read_at_once];
    typename Roles::template Added<together> added[read_at_once][2];
    // What follows from it is made for each tile: held for all of them it takes up to 60 registers.
    const int columns = opaque(Roles::n(block.s));
    each_run(first, columns, [&](int i, int, int channel) {
      beside[i] = Roles::template beside<t>(args, channel, block.column_values(group),
                                            channel - block.first_n);
      DSCORE_UNROLL
      for (int half = 0; half < 2; half++)
        added[i][half] = Roles::template added_to<together>(
            args, block.s, first_m + row + half * 8, channel, points);
    });
    each_run(first, columns, [&](int i, int at, int channel) {
      DSCORE_UNROLL
      for (int half = 0; half < 2; half++) {
        Sum own[together];
        DSCORE_UNROLL
        for (int j = 0; j < together; j++)
          own[j] = sums[((first + i) * wide / 8 + j / 2) * 4 + half * 2 + j % 2];
        const auto several = Roles::template results_of<Element, together>(own, beside[i], points,
                                                                           added[i][half]);
        if (at == channel || !block.whole_rows())
          write_vector(reinterpret_cast<Result *>(results + result_at(row, half * 8, first + i)),
                       several);
      }
    });
  }
  // Calls take(number, a channel of the lane, one that is there). Past the last channel results are
  // made of the last ones, and do not leave LDS: a branch around each would have activations wait
  // for one another.
  template <class Take>
  __device__ void each_run(int first, int n, Take take) const {
    DSCORE_UNROLL
    for (int i = 0; i < read_at_once; i++) {
      if (first + i >= of_lane) continue;
      const int at = block.first_n + (first + i) * wide + lane % lanes * together;
      const bool there = Roles::n(block.s) % t::tile_n == 0 || at < n;
      take(i, at, there ? at : n - together);
    }
  }
  // Where a lane's results of a run of `wide` columns lie in LDS, in a row of the tile or `further`
  // rows on, which are eight or none: a row and the eighth after it exchange their vectors alike.
  // Of boxes a run is a vector, so that its place is that of the first run but for some bits.
  __device__ int result_at(int row, int further, int run) const {
    constexpr int bytes = sizeof(Result);
    const int within = run * wide * bytes, of_lane = lane % lanes * together * bytes;
    if (block.whole_rows())
      return (row + further) * Roles::n(block.s) * bytes + within + of_lane;
    if (t::quantised) return (row + further) * t::result_pitch + within + of_lane;
    return within / swizzled_row * t::result_box_bytes + further * swizzled_row +
           (swizzled(row * swizzled_row + of_lane) ^ within % swizzled_row);
  }
  // From LDS to memory.
  __device__ void send(const unsigned char *results, int first_m) const {
    constexpr int bytes = sizeof(Result);
    const int n = Roles::n(block.s), rows = least(warpgroup_rows, Roles::m(block.s) - first_m);
    auto *out = static_cast<Result *>(args.out) + first_m * n;
    if (by_vectors()) {
      const int own = of_group / t::wavefront * wavefront_rows;
      store_rows<t>(out + own * n + block.first_n, results + own * t::result_pitch, rows - own,
                    n - block.first_n, n, lane);
    } else if (of_group == 0 && block.whole_rows()) {
      if (rows > 0) store_span(out, results, rows * n * bytes);
      commit_stores();
    } else if (of_group == 0) {
      DSCORE_UNROLL
      for (int box = 0; box < t::result_boxes; box++) {
        const unsigned char *from = results + box * t::result_box_bytes;
        if (t::parted(block.s))
          store_box(block.maps.out, from, {box * t::row, block.first_n / t::tile_n, first_m});
        else store_box(block.maps.out, from, {block.first_n + box * t::row, first_m});
      }
      commit_stores();
    }
  }
};

}  // namespace dscore
