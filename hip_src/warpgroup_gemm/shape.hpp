// The tiling of a product of matrices by warpgroups (warpgroup_gemm/product.hpp), and what blocks
// keep in LDS.
#pragma once

#include "support/banked_table.hpp"
#include "support/shared_sums.hpp"
#include "support/tensor_copy.hpp"
#include "support/warpgroups.hpp"

namespace dscore {

// `extent` rows (or columns) of results by the summed elements, by boxes of a row of LDS.
template <class T>
int map_operand(TensorMap &map, const void *at, int extent, int summed, bool across, int box) {
  const auto wide = [](int count) { return static_cast<uint64_t>(count); };
  const int side = across ? extent : summed, rows = across ? summed : extent;
  return make_map<T>(map, at,
                     BoxedMatrix{{wide(side), wide(rows)}, side * sizeof(T),
                                 {swizzled_row / int{sizeof(T)}, static_cast<uint32_t>(box)}});
}

// Kept: steps whose columns' elements stay in LDS for all tiles of rows of a block; 0 for none.
// Spans: bytes of a row in whole vectors, where a tile's rows come as one span, else 0. Images: how
// many a tile of rows may be of, or, of bytes, a warpgroup's rows, where they have scales, else 0.
// Factors: of bytes, how many summed elements have some in LDS, with those that fill the last step.
// Banked: whether a table lies in each bank of LDS.
template <int TileM, int TileN, int Step, int Stages, int Repeat, int Kept, int Parts, int Cluster,
          int Spans, int Images, int Factors, bool Banked, int Layout, int Wavefront>
struct WarpgroupGemmTiling {
  static constexpr int images = Images, factors = Factors;
  static constexpr bool spans = Spans != 0, banked = Banked;
  static constexpr int span_row = Spans;
  static constexpr int tile_m = TileM, tile_n = TileN, step = Step, stages = Stages;
  static constexpr int repeat = Repeat, kept = Kept, parts = Parts, cluster = Cluster;
  static constexpr int layout = Layout, wavefront = Wavefront, groups = TileM / warpgroup_rows;
  // The last wavefront copies.
  static constexpr int consumers = groups * warpgroup_threads, threads = consumers + Wavefront;
  static_assert(Wavefront == 32, "warpgroups are NVIDIA's");
  static_assert(TileM % warpgroup_rows == 0 && TileM <= most_box, "rows of whole warpgroups");
  static_assert(TileN % 8 == 0 && TileN <= most_box, "columns of one instruction");
  static_assert(Step <= most_box && Stages >= 2, "a ring of boxes");
  static_assert((Repeat == 1 && Kept == 0) || Parts * Cluster == 1, "shares have a tile each");
  static_assert(!Spans || Repeat == 1 || Kept == 1, "columns stay, while rows leave their buffers");
  static_assert(Spans % 16 == 0, "whole vectors");
};

// What depends on the operation and the elements, too.
template <class T, class Tiling, class Roles>
struct WarpgroupGemmShape : Tiling {
  // Elements in a row of LDS, and of an instruction along the sum.
  static constexpr int row = swizzled_row / static_cast<int>(sizeof(T)), depth = product_depth<T>;
  static constexpr bool quantised = std::is_same_v<T, int8_t>, scaled = Roles::scaled;
  static constexpr bool of_registers = scaled || Tiling::spans;  // rows of a product
  static constexpr bool read_by_lanes = quantised || of_registers;  // what comes to LDS
  static_assert(!Tiling::spans || (Roles::along_a && (quantised || !scaled)), "rows as they lie");
  // Rows as spans whose scales threads ask for a tile ahead (scaled.hpp).
  static constexpr bool scaled_spans = scaled && Tiling::spans;
  // Columns whose rows of bytes may have no map (spans.hpp).
  static constexpr bool columns_by_lanes = Tiling::spans && quantised;
  // Whether results may leave by boxes.
  static constexpr bool boxed = !Roles::stores_sums && !quantised && Tiling::cluster == 1;
  static_assert(Tiling::step % row == 0, "a step of whole rows");
  static_assert(!quantised || Tiling::tile_n % 16 == 0, "columns of products of bytes");
  static_assert(!quantised || Tiling::cluster == 1, "each block sums its columns' bytes alone");
  static constexpr bool across_a = !Roles::along_a, across_b = !Roles::along_b;
  // An operand comes by boxes of a row of LDS: along the sum of all rows (or columns) of results,
  // for `row` summed elements; across it of all summed elements of a step, for `row` rows.
  static constexpr int box_a = across_a ? Tiling::step : Tiling::tile_m;
  static constexpr int box_b = across_b ? Tiling::step : Tiling::tile_n;
  static constexpr int boxes_a = (across_a ? Tiling::tile_m : Tiling::step) / row;
  static constexpr int boxes_b = ceil_div(across_b ? Tiling::tile_n : Tiling::step, row);
  static constexpr int bytes_a =
      Tiling::spans ? ceil_div(Tiling::tile_m * Tiling::span_row, swizzled_tile) * swizzled_tile
                    : boxes_a * box_a * swizzled_row;
  static constexpr int bytes_b = boxes_b * box_b * swizzled_row;
  // From the rows of a warpgroup to those of the next.
  static constexpr int group_bytes =
      warpgroup_rows * (across_a ? Tiling::step / row : 1) * swizzled_row;
  // Scales of a step's channels, by boxes of a row of LDS for each image; of bytes factors, made
  // once for a tile.
  static constexpr bool scale_maps = scaled && !quantised;
  static constexpr int scale_row = swizzled_row / static_cast<int>(sizeof(T));
  static constexpr int scale_boxes = scale_maps ? Tiling::step / scale_row : 0;
  static constexpr int scale_box_bytes = ceil_div(Tiling::images, 8) * swizzled_tile;
  static constexpr int scale_bytes = scale_boxes * Tiling::images * swizzled_row;
  static_assert(scaled == (Tiling::images > 0), "images that have scales");
  static_assert((scaled && quantised) == (Tiling::factors > 0), "bytes that have factors");
  // From a stage of the ring to the next.
  static constexpr int scales_at = bytes_a + (Tiling::kept > 0 ? 0 : bytes_b);
  static constexpr int stage_bytes = scales_at + scale_boxes * scale_box_bytes;
  static constexpr int kept_at = Tiling::stages * stage_bytes;
  static constexpr int results_at = kept_at + Tiling::kept * bytes_b;
  // Results of a warpgroup: by boxes of its rows; of sums of bytes by rows, of which eight begin in
  // different banks.
  using Result = typename Roles::template Result<T>;
  // Channels whose results a lane has side by side: the units give it two of every eight columns.
  // Where lanes bring the columns, these lie in LDS in an order by which there are more.
  static constexpr bool eight = Tiling::tile_n % 32 == 0 && sizeof(Result) <= 2;
  static constexpr int together = !columns_by_lanes ? 2 : eight ? 8 : 4;
  // The row of the columns' operand, and column of the products, of a channel of the tile.
  static __host__ __device__ constexpr int row_of(int channel) {
    constexpr int lanes = 4, wide = lanes * together;
    const int of_lane = channel % together, lane = channel % wide / together;
    return channel - channel % wide + of_lane / 2 * 8 + lane * 2 + of_lane % 2;
  }
  static constexpr int result_boxes = ceil_div(Tiling::tile_n, row);
  static constexpr int result_box_bytes = warpgroup_rows * swizzled_row;
  // Four lanes store side by side, and rows by an odd number of what these have, of 16 bytes at
  // least: so rows begin in different banks.
  static constexpr int side_by_side = greatest(4 * together * static_cast<int>(sizeof(Result)), 16);
  static constexpr int result_pitch =
      (ceil_div(Tiling::tile_n * int{sizeof(Result)}, side_by_side) | 1) * side_by_side;
  static constexpr int group_results =
      quantised ? warpgroup_rows * result_pitch : result_boxes * result_box_bytes;
  static constexpr int results_bytes =
      Roles::stores_sums || Tiling::cluster > 1 ? 0 : Tiling::groups * group_results;
  // What the other blocks of a cluster hand to this one (joined.hpp): each of them four sums for
  // each of its runs of eight columns and each thread, while this one's ring is still read.
  static constexpr int runs = Tiling::tile_n / 8;
  using SharedRuns = dscore::SharedRuns<Tiling::cluster, runs, Tiling::consumers>;
  static constexpr int own_runs = SharedRuns::most;
  static constexpr int handed_at = results_at + results_bytes;
  static constexpr int handed_bytes = SharedRuns::lds_bytes;
  // What results of bytes need of each column, of each warpgroup's own: two words.
  static constexpr int columns_at = handed_at + handed_bytes;
  static constexpr int group_columns = quantised ? Tiling::tile_n * 8 : 0;
  // Factors of float16, of each warpgroup's own images.
  static constexpr int factors_at = columns_at + Tiling::groups * group_columns;
  static constexpr int group_factors =
      quantised ? Tiling::images * Tiling::factors * static_cast<int>(sizeof(float16)) : 0;
  // A table: one copy, or one in each bank.
  using Points = std::conditional_t<Tiling::banked, BankedPoints, typename Roles::Points>;
  static_assert(!Tiling::banked || Roles::Results::table_bytes > 0, "a table to be copied");
  static constexpr int table_at = factors_at + Tiling::groups * group_factors;
  static constexpr int barriers_at =
      table_at + (Tiling::banked ? banked_table_bytes : Roles::Results::table_bytes);
  // The last is where all warpgroups meet, once they have brought columns, or a table.
  static constexpr bool meeting = columns_by_lanes || Roles::Results::table_bytes > 0;
  static_assert(!meeting || Tiling::cluster == 1, "one barrier, for a meeting or a mailbox");
  static constexpr int mailbox = 2 * Tiling::stages;  // the barrier of a cluster's
  static constexpr int barriers = 2 * Tiling::stages + (meeting || Tiling::cluster > 1);
  static constexpr int lds_bytes =
      barriers_at + barriers * static_cast<int>(sizeof(TransferBarrier));

  using Sizes = typename Roles::Shape;
  struct Maps {
    TensorMap a, b, out, scales;
  };
  template <class Arguments, class Shape>
  static int make_maps(Maps &maps, const Arguments &args, const Shape &s) {
    const int m = Roles::m(s), n = Roles::n(s), k = Roles::k(s);
    int code = 0;
    if (!Tiling::spans) code = map_operand<T>(maps.a, Roles::a(args), m, k, across_a, box_a);
    if (!code && !columns_by_lanes)
      code = map_operand<T>(maps.b, Roles::b(args), n, k, across_b, box_b);
    if (!code && boxed)
      code = parted(s) ? map_parts(maps.out, args.out, m, n)
                       : map_operand<T>(maps.out, args.out, m, n, false, warpgroup_rows);
    if constexpr (scale_maps)
      if (!code) code = map_operand<T>(maps.scales, args.scale, s.batch, k, false, Tiling::images);
    return code;
  }

  // Whether a tile's last box of results has columns of the next one. A matrix to the map is then
  // the columns of a tile, so that what the box has beyond these is not stored.
  static __host__ __device__ bool parted(const Sizes &s) {
    return Tiling::tile_n % row != 0 && tiles_n(s) > 1;
  }
  static int map_parts(TensorMap &map, void *at, int m, int n) {
    constexpr int bytes = sizeof(T), tile_n = Tiling::tile_n;
    const auto wide = [](int count) { return static_cast<uint64_t>(count); };
    return make_map<T>(map, at, BoxedTensor<3>{{wide(tile_n), wide(n / tile_n), wide(m)},
                                               {wide(tile_n * bytes), wide(n * bytes)},
                                               {row, 1, warpgroup_rows}});
  }

  static __host__ __device__ int tiles_m(const Sizes &s) {
    return ceil_div(Roles::m(s), Tiling::tile_m);
  }
  static __host__ __device__ int tiles_n(const Sizes &s) {
    return ceil_div(Roles::n(s), Tiling::tile_n);
  }
  static __host__ __device__ int blocks_m(const Sizes &s) {
    return ceil_div(tiles_m(s), Tiling::repeat);
  }
  static __host__ __device__ int all_steps(const Sizes &s) {
    return ceil_div(Roles::k(s), Tiling::step);
  }
  static __host__ __device__ int steps_each(const Sizes &s) {
    return ceil_div(all_steps(s), Tiling::parts * Tiling::cluster);
  }
};

}  // namespace dscore
