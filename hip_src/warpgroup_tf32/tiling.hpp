// The tiling of products of matrices by warpgroups (warpgroup_tf32/kernel.hpp), and what follows of
// it.
#pragma once

#include "support/common.hpp"

namespace dscore {

// VectorP, VectorC: elements that lie side by side and aligned in an image and in a filter.
// Buffers: of the filters of a step in LDS.
template <int TileC, int TileP, int GroupC, int GroupP, int Slices, int StepC, int Stages,
          int Cluster, int VectorP, int VectorC, int Buffers>
struct WarpgroupTf32Tiling {
  static constexpr int wavefront = 32, group = 128;
  static constexpr int tile_c = TileC, tile_p = TileP, wave_c = GroupC, wave_p = GroupP;
  static constexpr int slices = Slices, step_c = StepC, stages = Stages, cluster = Cluster;
  static constexpr int vector_p = VectorP, vector_c = VectorC;
  static constexpr bool turned = false;
  static constexpr int waves_c = TileC / GroupC, waves_p = TileP / GroupP;
  static constexpr int slice_threads = waves_c * waves_p * group;
  static constexpr int threads = slice_threads * Slices, slice = StepC / Slices;
  // Images' rows begin 8 banks apart, so that lanes that read four of them meet no bank twice.
  static constexpr int image_row = TileP + 8;
  static constexpr int filters = 0, filter_row = StepC, buffer = StepC * image_row;
  // Both parts of the filters of a step, in rows of 32 channels, 16 or 8.
  static constexpr int row = slice % 32 == 0 ? 32 : slice % 16 == 0 ? 16 : 8;
  static constexpr int part = TileC * StepC, parts = 2 * part;
  static constexpr int filter_buffers = Buffers, ring = Buffers * parts;
  static constexpr int accumulators = GroupC * GroupP / group;
  static constexpr int joined =
      greatest(Slices - 1, Cluster > 1 ? 1 : 0) * slice_threads * accumulators;
  static_assert(TileC % GroupC == 0 && TileP % GroupP == 0, "a block holds whole warpgroups");
  static_assert(GroupC % 8 == 0 && GroupP % 64 == 0 && GroupP <= 128, "whole instructions");
  static_assert(StepC % Slices == 0 && slice % 8 == 0, "slices of whole instructions");
  static_assert(Stages >= 3 && Buffers >= 1 && Buffers <= 2, "buffers");
};

}  // namespace dscore
