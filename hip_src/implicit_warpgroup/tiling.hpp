// The tiling of implicit products by warpgroups (implicit_warpgroup/kernel.hpp), and what follows
// of it.
#pragma once

#include "implicit_gemm/tiles.hpp"

namespace dscore {

// Rows: of a filter, that are split at a time. Patch: elements of a channel that a block keeps.
// VectorP, VectorC: elements that lie side by side and aligned in an image of the output and in a
// filter.
template <int TileC, int TileP, int GroupC, int GroupP, int Slices, int StepC, int Rows, int Stages,
          int Patch, int Cluster, int VectorP, int VectorC>
struct ImplicitWarpgroupTiling {
  static constexpr int wavefront = 32, group = 128, layout = DSCORE_NCHW;
  static constexpr int tile_c = TileC, tile_p = TileP, wave_c = GroupC, wave_p = GroupP;
  static constexpr int slices = Slices, step_c = StepC, rows = Rows, stages = Stages;
  static constexpr int patch = Patch, cluster = Cluster, vector_p = VectorP, vector_c = VectorC;
  static constexpr int waves_c = TileC / GroupC, waves_p = TileP / GroupP;
  static constexpr int slice_threads = waves_c * waves_p * group;
  static constexpr int threads = slice_threads * Slices, slice = StepC / Slices;
  static constexpr int accumulators = GroupC * GroupP / group;
  // Accumulators that slices, and the blocks of a cluster, hand over in LDS.
  static constexpr int joined =
      greatest(Slices - 1, Cluster > 1 ? 1 : 0) * slice_threads * accumulators;
  static_assert(TileC % GroupC == 0 && TileP % GroupP == 0, "a block holds whole warpgroups");
  static_assert(GroupC % 8 == 0 && GroupP % 64 == 0 && GroupP <= 128, "whole instructions");
  static_assert(StepC % Slices == 0 && slice % 8 == 0, "slices of whole instructions");
};

// The same with the buffers of a layer: a ring of images and filters as they are in memory, before
// which lie the split filters of two turns. A turn has some rows of all filters of a step.
template <class Tiling, class Layer>
struct ImplicitWarpgroupBuffers : ImplicitGemmBuffers<Tiling, Layer> {
  static constexpr bool fetched = false;
  static constexpr int taps_each = Tiling::rows * Layer::kernel_w;
  static constexpr int turns = Layer::kernel_h / Tiling::rows;
  // Both parts of the filters of a turn, in rows of 32 channels, 16 or 8.
  static constexpr int part_row = Tiling::slice % 32 == 0 ? 32 : Tiling::slice % 16 == 0 ? 16 : 8;
  static constexpr int part = Tiling::tile_c * Tiling::step_c * taps_each, parts = 2 * part;
  static constexpr int ring = 2 * parts;
  // Batches of products of a turn, all unrolled.
  static constexpr int batches = Tiling::slice / 8 * taps_each;
  static_assert(Layer::kernel_h % Tiling::rows == 0, "turns of whole rows");
  // A step arrives before the last turn of the one before begins, which is the only one or not.
  static_assert(Tiling::stages >= (turns > 1 ? 2 : 3), "buffers");
};

}  // namespace dscore
