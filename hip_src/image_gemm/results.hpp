// Results of a block's images (image_gemm/product.hpp): from sums by LDS to memory; in a cluster of
// the channels whose sums this block adds.
#pragma once

#include "support/tensor_copy.hpp"

namespace dscore {

template <class Products>
struct ImageResults {
  using t = typename Products::t;
  using Roles = typename Products::Roles;
  using T = typename Products::Element;
  using Sums = typename Products::OwnSums;
  using Pixels = typename Products::Pixels;
  using Tile = typename Products::Tile;
  const Products &block;
  const typename Products::Arguments &args;

  __device__ T *results() const { return reinterpret_cast<T *>(block.lds + t::results_at); }

  // Results of a thread to LDS, of some channels, where they lie as they will in memory.
  __device__ void put(const Sums &sums, const Pixels &pixels, const Tile &tile, int chunk) const {
    const int m = Roles::m(block.s), first_n = block.own_first(), end = block.own_end();
    DSCORE_UNROLL
    for (int r = 0; r < t::rows; r++) {
      const int image = pixels.image[r], pixel = pixels.pixel[r];
      if (!pixels.held[r] || image >= block.images_from(tile.image)) continue;
      if (t::parts > 1 && tile.pixel + pixel >= t::area) continue;
      DSCORE_UNROLL
      for (int j = 0; j < t::chunk / 4; j++) {
        const int i = chunk * (t::chunk / 4) + j;
        const int within = i / 2 * 8 + block.thread % 4 * 2 + i % 2, channel = first_n + within;
        if ((m % t::tile_n != 0 || t::all_runs % t::cluster != 0) && channel >= end) continue;
        // The sums of its two pixels, eight rows apart.
        const float two[2] = {sums[r][i / 2 * 4 + i % 2], sums[r][i / 2 * 4 + 2 + i % 2]};
        const auto beside = Roles::template beside<T>(args, channel);
        const int at = ((tile.image + image) * m + channel) * t::area + tile.pixel + pixel;
        T *to = results() + image * t::result_elements + within * t::part + pixel;
        if constexpr (t::area % 2 == 0)
          write_vector(to, Roles::template results_of<T, 2>(args, at, two, beside));
        else put_apart(two, beside, to, at, i % 2 == 0, pixel + 1 < t::area);
      }
    }
  }
  // The results of two pixels of a channel of an odd plane, which lacks the last one's second. They
  // are a word where the channel begins at one. Lanes differ in stores alone, which need no
  // branches.
  template <class Beside>
  __device__ void put_apart(const float (&sums)[2], const Beside &beside, T *to, int at, bool word,
                            bool both) const {
    const Pack<T, 1> first = Roles::template results_of<T, 1>(args, at, sums, beside);
    const Pack<T, 1> second =
        Roles::template results_of<T, 1>(args, both ? at + 1 : at, sums + 1, beside);
    if (word && both) write_vector(to, Pack<T, 2>{{first.at[0], second.at[0]}});
    if (!word || !both) write_vector(to, first);
    if (!word && both) write_vector(to + 1, second);
  }
  // One thread: the planes of a tile's results, which follow one another in each image.
  __device__ void store(const Tile &tile) const {
    const int m = Roles::m(block.s);
    DSCORE_UNROLL
    for (int chunk = 0; chunk < t::chunks; chunk++) {
      const int within = chunk * t::chunk, first_n = block.own_first() + within;
      const int channels = least(t::chunk, block.own_end() - first_n);
      wait_barrier(block.made + chunk, tile.number & 1);
      DSCORE_UNROLL
      for (int e = 0; e < t::images; e++)
        if (e < block.images_from(tile.image) && channels > 0)
          store_span(static_cast<T *>(args.out) + ((tile.image + e) * m + first_n) * t::area,
                     results() + e * t::result_elements + within * t::area,
                     channels * t::area * static_cast<int>(sizeof(T)));
      commit_stores();
    }
    if constexpr (t::repeat > 1) {
      wait_stores<0>();
      arrive(block.vacant);
    }
  }
  // A warpgroup: its pixels of a part of the planes, which begin in the middle of vectors of 16
  // bytes. Neighbouring threads store neighbouring halves, of which several are read first.
  __device__ void store_part(const Tile &tile) const {
    constexpr int half = 4, of_row = t::row / half, together = 4, all = t::own_n * of_row;
    const int group = block.thread / warpgroup_threads, of_group = block.thread % warpgroup_threads;
    warpgroup_barrier<t::groups>(group);
    const int first_n = block.own_first(), column = of_group % of_row * half;
    T *out = static_cast<T *>(args.out) + (tile.image * Roles::m(block.s) + first_n) * t::area +
             tile.pixel;
    DSCORE_UNROLL
    for (int r = 0; r < t::rows; r++) {
      const int pixel = (r * t::groups + group) * t::row + column;
      if (pixel >= t::part || tile.pixel + pixel >= t::area) continue;
      DSCORE_ROLLED
      for (int i = of_group; i < all; i += together * warpgroup_threads) {
        Pack<T, half> vectors[together];
        const auto row = [&](int j) { return (i + j * warpgroup_threads) / of_row; };
        DSCORE_UNROLL
        for (int j = 0; j < together; j++)
          vectors[j] = read_vector<half>(results() + least(row(j), t::own_n - 1) * t::part + pixel);
        DSCORE_UNROLL
        for (int j = 0; j < together; j++)
          if (row(j) < t::own_n && first_n + row(j) < block.own_end())
            write_to_memory(out + row(j) * t::area + pixel, vectors[j]);
      }
    }
  }
};

}  // namespace dscore
