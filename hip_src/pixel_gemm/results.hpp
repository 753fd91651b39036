// Results of a warpgroup's pixels (pixel_gemm/product.hpp): from its sums by LDS to memory.
#pragma once

#include "pixel_gemm/shape.hpp"

namespace dscore {

template <class Products>
struct PixelResults {
  using t = typename Products::t;
  using Roles = typename Products::Roles;
  using T = typename Products::Element;
  using Sums = typename Products::Sums;
  const Products &block;
  const typename Products::Arguments &args;
  int of_group, lane;
  unsigned char *results;

  __device__ PixelResults(const Products &block_, const typename Products::Arguments &args_)
      : block(block_), args(args_), of_group(block_.thread % warpgroup_threads),
        lane(of_group % t::wavefront),
        results(block_.lds + t::results_at + block_.group * t::group_results) {}

  // Of the `run`-th 64 pixels, in a block's first tile or a later one.
  __device__ void finish(const Sums &sums, int run, bool first) const {
    if (t::repeat > 1 && !first) {
      if (of_group == 0) wait_stores<0>();
      warpgroup_barrier<t::groups>(block.group);
    }
    const int image = block.image_of(run), pixel = block.pixel_of(run);
    put(sums, image, pixel);
    let_engine_see_lds();
    warpgroup_barrier<t::groups>(block.group);
    if (of_group != 0) return;
    // What the box has beyond the plane, the last channel or the last image is not stored.
    store_box(block.maps.out, results, {pixel, block.first_n, image});
    commit_stores();
  }
  // Of runs of eight channels as many together as are read ahead of the first that is written:
  // behind that a compiler reads no memory, and each would wait for its own.
  static constexpr int runs = t::tile_n / 8, together = 4;
  __device__ void put(const Sums &sums, int image, int pixel) const {
    DSCORE_UNROLL
    for (int first = 0; first < runs; first += together)
      put_several(sums + first * 4, image, pixel, first);
  }
  // A lane has two channels of each run, of a pixel and the eighth after it.
  __device__ void put_several(const float *sums, int image, int pixel, int first) const {
    // What follows from it is made for each tile: held for all of them it takes many registers.
    const int channels = opaque(Roles::m(block.s)), area = block.area(block.s);
    const int channel = block.first_n + first * 8 + lane % 4 * 2;
    const int own = pixel + of_group / t::wavefront * wavefront_rows + lane / 4;
    // Of pixels and images that are not there results are made of the last ones, and not stored.
    const int plane = (least(image, block.s.batch - 1) * channels + channel) * area;
    typename Roles::Beside beside[together] = {};
    typename Roles::Added added[together][2] = {};
    each_run(first, [&](int i) {
      if (Roles::m(block.s) % t::tile_n != 0 && channel + i * 8 >= channels) return;
      beside[i] = Roles::beside(args, channel + i * 8);
      DSCORE_UNROLL
      for (int half = 0; half < 2; half++)
        added[i][half] = Roles::added_to(
            args, plane + least(own + half * 8, area - 1) + i * 8 * area, area);
    });
    Word words[2 * together];
    each_run(first, [&](int i) {
      DSCORE_UNROLL
      for (int half = 0; half < 2; half++)
        words[2 * i + half] = bits_as<Word>(
            Roles::results_of(sums + i * 4 + half * 2, beside[i], added[i][half]));
    });
    DSCORE_UNROLL
    for (int i = 0; i < together; i += 2) {
      if (first + i >= runs) continue;
      if (first + i + 1 < runs) write_turned<4>(place(first + i), words + 2 * i);
      else write_turned<2>(place(first + i), words + 2 * i);
    }
  }
  template <class Take>
  __device__ void each_run(int first, Take take) const {
    DSCORE_UNROLL
    for (int i = 0; i < together; i++)
      if (first + i < runs) take(i);
  }
  // Where a lane's row of 8 pixels lies in LDS, of two runs of channels, each by two matrices.
  __device__ T *place(int run) const {
    const int channel = lane / 16 * 8 + lane % 8;
    const int pixel = of_group / t::wavefront * wavefront_rows + lane / 8 % 2 * 8;
    return reinterpret_cast<T *>(results + run * swizzled_tile +
                                 swizzled(channel * swizzled_row + pixel * int{sizeof(T)}));
  }
};

}  // namespace dscore
