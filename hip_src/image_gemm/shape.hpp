// The tiling of a product of whole images by filters (image_gemm/product.hpp), and what blocks keep
// in LDS.
#pragma once

#include "support/shared_sums.hpp"
#include "support/tensor_copy.hpp"
#include "support/warpgroups.hpp"

namespace dscore {

constexpr int largest_divisor(int of, int most) {
  while (of % most != 0) most--;
  return most;
}

// Of the image: Parts of a plane, which blocks have; Area, its pixels; Run, elements of a row of
// the boxes that planes come by.
template <int TileN, int Images, int Groups, int Slices, int Step, int Stages, int Repeat,
          int Cluster, int Parts, int Area, int Run, int Layout, int Wavefront>
struct ImageGemmTiling {
  static constexpr int tile_n = TileN, images = Images, groups = Groups, slices = Slices;
  static constexpr int step = Step, stages = Stages, repeat = Repeat, cluster = Cluster;
  static constexpr int parts = Parts, area = Area, run = Run;
  static constexpr int layout = Layout, wavefront = Wavefront;
  // Pixels of a plane that a block has: all, or a part in whole vectors of 16 bytes.
  static constexpr int part = Parts > 1 ? ceil_div(ceil_div(Area, Parts), 8) * 8 : Area;
  // A lane has two pixels side by side, of which a plane of odd pixels lacks one; an instruction's
  // 64 rows are 32 of these pairs. Each warpgroup of a slice has `rows` instructions' rows.
  static constexpr int pairs = ceil_div(part, 2), pairs_each = warpgroup_rows / 2;
  static constexpr int rows = ceil_div(ceil_div(Images * pairs, pairs_each), Groups);
  static constexpr int slice_threads = Groups * warpgroup_threads;
  // The last wavefront copies.
  static constexpr int consumers = Slices * slice_threads, threads = consumers + Wavefront;
  // Of elements of 16 bits: in a row of LDS, and in an instruction along the sum.
  static constexpr int row = swizzled_row / 2, depth = 16, depths = Step / depth;
  // Instructions whose pixels a lane reads together: as many as have 16 words.
  static constexpr int together = largest_divisor(depths, greatest(4 / rows, 1));
  static_assert(Wavefront == 32, "warpgroups are NVIDIA's");
  static_assert(TileN % 8 == 0 && TileN <= most_box, "columns of one instruction");
  static_assert(Step % depth == 0 && Step <= most_box, "whole instructions");
  // Else a slice might take the bytes of another one's step for its own: it does not see the phases
  // of barriers at which only others wait.
  static_assert(Stages >= 1 && Stages % Slices == 0, "buffers of a slice's own");
  static_assert(Repeat == 1 || Slices * Cluster == 1, "shares of the steps have one tile");
  static_assert(Parts > 1 || (Step * Area % Run == 0 && Run <= most_box && Run % 8 == 0),
                "whole rows of boxes");
  static_assert(Parts == 1 || (Images * Repeat == 1 && Area % 8 == 4 && (Parts - 1) * part < Area),
                "parts of one image, whose second plane begins in the middle of a vector");
};

// What depends on the operation, too.
template <class Tiling, class Roles>
struct ImageGemmShape : Tiling {
  using t = Tiling;
  static constexpr bool across = !Roles::along;  // the filters
  // Filters: along the sum by boxes of `row` summed elements, across it of `row` channels.
  static constexpr int filter_box = across ? t::step : t::tile_n;
  static constexpr int filter_boxes = ceil_div(across ? t::tile_n : t::step, t::row);
  static constexpr int filter_bytes = filter_boxes * filter_box * swizzled_row;
  // Planes of a step, as they lie in memory: image after image. Parts of planes: every second one
  // by boxes of a row of LDS, then the others, half a vector further on in theirs.
  static constexpr int apart = 2, moved = 4, box_rows = t::step / apart;
  static constexpr int boxes = ceil_div(t::part + moved, t::row), box_elements = box_rows * t::row;
  static constexpr int image_elements =
      t::parts > 1 ? apart * boxes * box_elements : t::step * t::area;
  static constexpr int runs = image_elements / t::run;
  static constexpr int plane_bytes = t::images * image_elements * 2;
  static constexpr int stage_bytes =
      ceil_div(filter_bytes + plane_bytes, swizzled_tile) * swizzled_tile;
  static constexpr int ring_bytes = t::stages * stage_bytes;
  // Sums that a slice hands over.
  static constexpr int sums = t::rows * t::tile_n / 2;
  static constexpr int handed_bytes = t::slice_threads * sums * 4;
  // What the other blocks of a cluster send to this one: each of them four sums for each lane of a
  // pair of pixels, and each of the runs of eight channels that this block adds.
  static constexpr int all_runs = t::tile_n / 8;
  using SharedRuns = dscore::SharedRuns<t::cluster, all_runs, t::images * t::pairs * 4>;
  static constexpr int own_runs = SharedRuns::most;
  // Planes of results, as they will lie in memory: some channels leave while others are made.
  static constexpr int own_n = own_runs * 8;
  static constexpr int chunks = largest_divisor(own_runs, 4), chunk = own_n / chunks;
  static constexpr int result_elements = own_n * t::part;
  static constexpr int behind_bytes =  // what slices hand over, and results
      (t::slices - 1) * handed_bytes + t::images * result_elements * 2;
  static constexpr int barriers = 2 * t::stages + 6 + (t::cluster > 1);
  static constexpr int beside_bytes =
      SharedRuns::lds_bytes + barriers * static_cast<int>(sizeof(TransferBarrier));
  // They lie where the ring was, if a compute unit then has room for a second block, or for one;
  // not where the ring runs on to further tiles. For a third block it lost: a unit may then have
  // three of the next kernel's blocks, and others one.
  static constexpr int apart_blocks = blocks_of_unit(ring_bytes + behind_bytes + beside_bytes);
  static constexpr int over_bytes = greatest(ring_bytes, behind_bytes);
  static constexpr int over_blocks = blocks_of_unit(over_bytes + beside_bytes);
  static constexpr bool over_ring =
      t::repeat == 1 && apart_blocks < 2 && over_blocks > apart_blocks;
  static constexpr int shared_at = over_ring ? 0 : ring_bytes;
  static constexpr int results_at = shared_at + (t::slices - 1) * handed_bytes;
  static constexpr int sent_at = greatest(ring_bytes, shared_at + behind_bytes);
  static constexpr int barriers_at = sent_at + SharedRuns::lds_bytes;
  static constexpr int lds_bytes = sent_at + beside_bytes;
};

}  // namespace dscore
