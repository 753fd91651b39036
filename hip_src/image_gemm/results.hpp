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
  const Products &block;
  const typename Products::Arguments &args;

  __device__ T *results() const { return reinterpret_cast<T *>(block.lds + t::results_at); }

  // Results of a thread to LDS, of some channels, where they lie as they will in memory.
  __device__ void put(const Sums &sums, const Pixels &pixels, int first_image, int chunk) const {
    const int m = Roles::m(block.s), first_n = block.own_first(), end = block.own_end();
    DSCORE_UNROLL
    for (int j = 0; j < t::chunk / 4; j++) {
      const int i = chunk * (t::chunk / 4) + j;
      const int within = i / 2 * 8 + block.thread % 4 * 2 + i % 2, channel = first_n + within;
      if ((m % t::tile_n != 0 || t::all_runs % t::cluster != 0) && channel >= end) continue;
      const auto beside = Roles::template beside<T>(args, channel);
      DSCORE_UNROLL
      for (int r = 0; r < t::rows; r++) {
        const int image = pixels.image[r], pixel = pixels.pixel[r];
        if (!pixels.held[r] || image >= block.images_from(first_image)) continue;
        // The sums of its two pixels, eight rows apart.
        const float two[2] = {sums[r][i / 2 * 4 + i % 2], sums[r][i / 2 * 4 + 2 + i % 2]};
        const int at = ((first_image + image) * m + channel) * t::area + pixel;
        T *to = results() + image * t::result_elements + within * t::area + pixel;
        put_pair(two, beside, to, at, t::area % 2 == 0 || i % 2 == 0,
                 t::area % 2 == 0 || pixel + 1 < t::area);
      }
    }
  }
  // The results of two pixels of a channel, of which an odd plane lacks the last one's second. They
  // are a word where a channel begins at one.
  template <class Beside>
  __device__ void put_pair(const float (&sums)[2], const Beside &beside, T *to, int at, bool word,
                           bool both) const {
    if (word && both) {
      write_vector(to, Roles::template results_of<T, 2>(args, at, sums, beside));
    } else {
      write_vector(to, Roles::template results_of<T, 1>(args, at, sums, beside));
      if (both)
        write_vector(to + 1, Roles::template results_of<T, 1>(args, at + 1, sums + 1, beside));
    }
  }
  // One thread: the planes of a tile's results, which follow one another in each image.
  __device__ void store(int number) const {
    const int m = Roles::m(block.s);
    const int first_image = (block.block_i + number * block.blocks_i(block.s)) * t::images;
    DSCORE_UNROLL
    for (int chunk = 0; chunk < t::chunks; chunk++) {
      const int within = chunk * t::chunk, first_n = block.own_first() + within;
      const int channels = least(t::chunk, block.own_end() - first_n);
      wait_barrier(block.made + chunk, number & 1);
      DSCORE_UNROLL
      for (int e = 0; e < t::images; e++)
        if (e < block.images_from(first_image) && channels > 0)
          store_span(static_cast<T *>(args.out) + ((first_image + e) * m + first_n) * t::area,
                     results() + e * t::result_elements + within * t::area,
                     channels * t::area * static_cast<int>(sizeof(T)));
      commit_stores();
    }
    if constexpr (t::repeat > 1) {
      wait_stores<0>();
      arrive(block.sent);
    }
  }
};

}  // namespace dscore
