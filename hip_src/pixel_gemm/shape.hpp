// The tiling of a product of pixels by filters (pixel_gemm/product.hpp), and what blocks keep in
// LDS.
#pragma once

#include "support/tensor_copy.hpp"
#include "support/warpgroups.hpp"

namespace dscore {

// Of the image: Kept, steps whose filters stay in LDS for all tiles of a block (0 for none).
template <int TileP, int TileN, int Step, int Stages, int Repeat, int Kept, int Layout,
          int Wavefront>
struct PixelGemmTiling {
  static constexpr int tile_p = TileP, tile_n = TileN, step = Step, stages = Stages;
  static constexpr int repeat = Repeat, kept = Kept, layout = Layout, wavefront = Wavefront;
  static constexpr int groups = TileP / warpgroup_rows;
  // The last wavefront copies.
  static constexpr int consumers = groups * warpgroup_threads, threads = consumers + Wavefront;
  // Of elements of 16 bits: in a row of LDS, and in an instruction along the sum.
  static constexpr int row = swizzled_row / 2, depth = 16;
  static_assert(Wavefront == 32, "warpgroups are NVIDIA's");
  static_assert(TileP % warpgroup_rows == 0 && row == warpgroup_rows, "a row of each warpgroup");
  static_assert(TileN % 8 == 0 && TileN <= most_box, "columns of one instruction");
  static_assert(Step % depth == 0 && Step <= most_box, "whole instructions");
  static_assert(Stages >= 1, "a ring");
};

// What depends on the operation, too.
template <class Tiling, class Roles>
struct PixelGemmShape : Tiling {
  using t = Tiling;
  static constexpr bool across = !Roles::along;  // the filters
  // Planes: by a box of each warpgroup's pixels, all summed channels of a step.
  static constexpr int group_bytes = t::step * swizzled_row;
  static constexpr int plane_bytes = t::groups * group_bytes;
  // Filters: along the sum by boxes of `row` summed elements, across it of `row` channels.
  static constexpr int filter_box = across ? t::step : t::tile_n;
  static constexpr int filter_boxes = ceil_div(across ? t::tile_n : t::step, t::row);
  static constexpr int filter_bytes = filter_boxes * filter_box * swizzled_row;
  static constexpr int stage_bytes = plane_bytes + (t::kept > 0 ? 0 : filter_bytes);
  static constexpr int kept_at = t::stages * stage_bytes;
  // Results of a warpgroup's pixels, a row of LDS for each channel.
  static constexpr int results_at = kept_at + t::kept * filter_bytes;
  static constexpr int group_results = t::tile_n * swizzled_row;
  static constexpr int barriers_at = results_at + t::groups * group_results;
  static constexpr int lds_bytes =
      barriers_at + 2 * t::stages * static_cast<int>(sizeof(TransferBarrier));
};

}  // namespace dscore
