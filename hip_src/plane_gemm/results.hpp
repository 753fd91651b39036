// Results of a tile of pixels (plane_gemm/product.hpp): from a warpgroup's sums by LDS to memory.
#pragma once

#include "plane_gemm/shape.hpp"

namespace dscore {

// The results of one warpgroup's channels.
template <class Products>
struct PlaneResults {
  using t = typename Products::t;
  using Roles = typename Products::Roles;
  using T = typename Products::Element;
  using Sums = typename Products::Sums;
  const Products &block;
  const typename Products::Arguments &args;
  int group, of_group, first_channel;
  T *results;

  __device__ PlaneResults(const Products &block_, const typename Products::Arguments &args_)
      : block(block_), args(args_), group(block_.wave * t::wavefront / warpgroup_threads),
        of_group(block_.thread % warpgroup_threads),
        first_channel(block_.first_m + group * warpgroup_rows),
        results(reinterpret_cast<T *>(block_.lds + t::results_at) + group * t::group_results) {}

  // Of a block's first tile or a later one.
  __device__ void finish(const Sums &sums, int image, int pixel, bool first) const {
    if (t::repeat > 1 && !first) {
      if (t::by_engine && of_group == 0) wait_stores<0>();
      warpgroup_barrier<t::groups>(group);
    }
    put(sums, image, pixel);
    if (t::by_engine) let_engine_see_lds();
    warpgroup_barrier<t::groups>(group);
    if constexpr (t::whole) store_planes(image);
    else if constexpr (t::boxed) store_boxes(image, pixel);
    else store_rows(image, pixel);
  }
  __device__ int area() const { return Products::area(block.s); }
  __device__ int place(int image, int channel) const {
    return (image * Roles::m(block.s) + channel) * area();
  }
  __device__ void put(const Sums &sums, int image, int pixel) const {
    constexpr int pair = least(t::vector, 2);
    const int lane = of_group % t::wavefront, column = lane % 4 * 2;
    const int row_of = of_group / t::wavefront * 16 + lane / 4;
    DSCORE_UNROLL
    for (int half = 0; half < 2; half++) {
      const int row = row_of + half * 8, channel = first_channel + row;
      if (channel >= Roles::m(block.s)) continue;
      const auto beside = Roles::template beside<T>(args, channel);
      DSCORE_UNROLL
      for (int e = 0; e < t::images; e++) {
        if (t::images > 1 && image + e >= block.s.batch) continue;
        const int at = place(image + e, channel) + pixel;
        DSCORE_UNROLL
        for (int i = 0; i < t::tile_p / 4; i += pair) {
          const int of = i / 2 * 8 + column + i % 2;
          if (pixel + of >= area()) continue;
          write_vector(results + result_at(e, row_of, half, i / 2 * 8, column + i % 2),
                       Roles::template results_of<T, pair>(
                           args, at + of, sums[e] + i / 2 * 4 + half * 2 + i % 2, beside));
        }
      }
    }
  }
  // Where the result of a pixel lies in LDS, the `column`-th of a run of eight: of a row of the
  // tile, or of the eighth after it, which exchanges its vectors alike.
  __device__ int result_at(int image, int row, int half, int run, int column) const {
    if constexpr (!t::boxed) {
      const int apart = t::whole ? area() : t::pitch;
      return (image * warpgroup_rows + row + half * 8) * apart + run + column;
    }
    constexpr int of_row = t::result_pixels;
    const int box = run / of_row * warpgroup_rows * of_row + half * 8 * of_row;
    const int within = run % of_row, at = row * of_row + column;
    if constexpr (!t::exchanged) return box + at + within;
    constexpr int bytes = sizeof(T);
    return box + (swizzled(at * bytes) ^ within * bytes) / bytes;
  }
  // The planes of a warpgroup's channels lie side by side in memory.
  __device__ void store_planes(int image) const {
    if (of_group != 0) return;
    const int rows = least(warpgroup_rows, Roles::m(block.s) - first_channel);
    DSCORE_UNROLL
    for (int e = 0; e < t::images; e++)
      if (rows > 0 && image + e < block.s.batch)
        store_span(static_cast<T *>(args.out) + place(image + e, first_channel),
                   results + e * warpgroup_rows * area(), rows * area() * int{sizeof(T)});
    commit_stores();
  }
  // What boxes have beyond a plane, or beyond the last channel, is not stored.
  __device__ void store_boxes(int image, int pixel) const {
    if (of_group != 0) return;
    DSCORE_UNROLL
    for (int first = 0; first < t::tile_p; first += t::result_pixels)
      store_box(block.maps.out, results + first * warpgroup_rows,
                {pixel + first, first_channel, image});
    commit_stores();
  }
  // Neighbouring threads store neighbouring vectors, of which several are read first.
  __device__ void store_rows(int image, int pixel) const {
    constexpr int of_row = t::tile_p / t::vector, all = warpgroup_rows * of_row, together = 4;
    T *out = static_cast<T *>(args.out) + place(image, first_channel) + pixel;
    DSCORE_ROLLED
    for (int i = of_group; i < all; i += together * warpgroup_threads) {
      Pack<T, t::vector> vectors[together];
      DSCORE_UNROLL
      for (int j = 0; j < together; j++) {
        const int of = least(i + j * warpgroup_threads, all - 1);
        vectors[j] =
            read_vector<t::vector>(results + of / of_row * t::pitch + of % of_row * t::vector);
      }
      DSCORE_UNROLL
      for (int j = 0; j < together; j++) {
        const int of = i + j * warpgroup_threads, row = of / of_row, at = of % of_row * t::vector;
        if (of < all && first_channel + row < Roles::m(block.s) && pixel + at < area())
          write_to_memory(out + row * area() + at, vectors[j]);
      }
    }
  }
};

}  // namespace dscore
