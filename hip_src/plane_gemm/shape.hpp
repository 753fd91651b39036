// The tiling of a product of filters by planes (plane_gemm/product.hpp), and what blocks keep in
// LDS.
#pragma once

#include "support/tensor_copy.hpp"
#include "support/warpgroups.hpp"

namespace dscore {

// Of the image: Kept, steps whose filters stay in LDS for all tiles of a block (0 for none);
// Vector, elements that lie side by side at a multiple of their bytes in each plane, up to 8;
// Whole, whether a tile has all pixels of a plane. ResultPixels: those of each channel in a box of
// results.
template <int TileM, int TileP, int Images, int Step, int Stages, int Repeat, int Kept, int Movers,
          int Vector, bool Whole, int ResultPixels, int Layout, int Wavefront>
struct PlaneGemmTiling {
  static constexpr int tile_m = TileM, tile_p = TileP, images = Images, step = Step;
  static constexpr int stages = Stages, repeat = Repeat, kept = Kept, wavefront = Wavefront;
  static constexpr int layout = Layout, groups = TileM / warpgroup_rows, vector = Vector;
  static constexpr int result_pixels = ResultPixels;
  static constexpr bool whole = Whole;
  // Of elements of 16 bits: in a row of LDS, and in an instruction along the sum.
  static constexpr int row = swizzled_row / 2, depth = 16;
  // Planes from one to the next in a box: as many of them are a multiple of 16 bytes.
  static constexpr int apart = Vector % 4 == 0 ? 2 : 8, box_rows = Step / apart;
  // A wavefront copies; others move planes that begin within vectors.
  static constexpr bool moved = Vector % 8 != 0;
  static constexpr int consumers = groups * warpgroup_threads, movers_at = consumers + Wavefront;
  static constexpr int movers = Movers, threads = movers_at + (moved ? movers * Wavefront : 0);
  static_assert(Wavefront == 32, "warpgroups are NVIDIA's");
  static_assert(TileM % warpgroup_rows == 0 && TileM <= most_box, "rows of whole warpgroups");
  static_assert(TileP % 8 == 0 && TileP * Images <= most_box, "columns of instructions");
  static_assert(Step % (8 * apart) == 0 && Step <= most_box, "whole tiles of LDS");
  static_assert(Stages >= 1, "a ring");
  static_assert(ResultPixels % 8 == 0 && ResultPixels <= row && TileP % ResultPixels == 0,
                "a tile of whole boxes");
  static_assert(Whole || Images == 1, "one image of parts of planes");
};

// What depends on the operation, too.
template <class Tiling, class Roles>
struct PlaneGemmShape : Tiling {
  using t = Tiling;
  static constexpr bool along = Roles::along;  // the filters
  // Planes: by boxes of `row` pixels, for each of `apart` planes.
  static constexpr int columns = ceil_div(t::tile_p + 8 - t::vector, t::row);
  static constexpr int box_bytes = t::images * t::box_rows * swizzled_row;
  static constexpr int column_bytes = t::apart * box_bytes;
  static constexpr int plane_bytes = columns * column_bytes;
  // Filters: along the sum by boxes of `row` summed elements, across it of `row` rows of results.
  static constexpr int filter_box = Roles::along ? t::tile_m : t::step;
  static constexpr int filter_boxes = Roles::along ? ceil_div(t::step, t::row) : t::groups;
  static constexpr int filter_bytes = filter_boxes * filter_box * swizzled_row;
  static constexpr int stage_bytes = plane_bytes + (t::kept > 0 ? 0 : filter_bytes);
  static constexpr int kept_at = t::stages * stage_bytes;
  static constexpr int results_at = kept_at + t::kept * filter_bytes;
  // Results leave by the copy engine: whole planes as they lie, parts of planes of whole vectors by
  // boxes, whose vectors are exchanged in LDS where they are a row of it.
  static constexpr bool boxed = !t::whole && t::vector == 8, by_engine = t::whole || boxed;
  static constexpr bool exchanged = t::result_pixels == t::row;
  // Rows of others are an odd number of vectors of 16 bytes apart.
  static constexpr int pitch = t::tile_p + (by_engine || t::tile_p / 8 % 2 ? 0 : 8);
  static constexpr int group_results = t::images * warpgroup_rows * pitch;
  static constexpr int barriers_at = results_at + t::groups * group_results * 2;
  static constexpr int lds_bytes =
      barriers_at + (t::moved ? 3 : 2) * t::stages * static_cast<int>(sizeof(TransferBarrier));
};

}  // namespace dscore
