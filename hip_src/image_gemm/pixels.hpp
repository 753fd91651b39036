// Pixels of whole images from LDS, where planes lie as in memory, to the registers of matrix units
// (image_gemm/product.hpp).
#pragma once

#include "image_gemm/shape.hpp"
#include "support/matrix_units.hpp"

namespace dscore {

// A lane's pixels: two side by side in each of the instructions' rows. Of lane 4 g + i these are
// rows g and g + 8 of an instruction, and its summed elements 2 i, 2 i + 1 and those eight on.
template <class T, class t>
struct ImagePixels {
  using Words = Word[t::rows][t::depths][4];
  int image[t::rows], pixel[t::rows];  // of a pair past the last image's those of the first
  int summed;                          // the lane's first summed element of an instruction

  __device__ ImagePixels(int group, int of_group) : summed(of_group % 4 * 2) {
    DSCORE_UNROLL
    for (int r = 0; r < t::rows; r++) {
      const int pair = (r * t::groups + group) * t::pairs_each + of_group / 4;
      const bool there = pair < t::images * t::pairs;
      image[r] = there ? pair / t::pairs : 0;
      pixel[r] = there ? pair % t::pairs * 2 : 0;
    }
  }
  static __device__ bool held(int group, int of_group, int r) {
    return (r * t::groups + group) * t::pairs_each + of_group / 4 < t::images * t::pairs;
  }

  // Two elements that lie side by side at a multiple of two.
  static __device__ Word two(const T *at) { return bits_as<Word>(read_vector<2>(at)); }
  // The words of two pixels, which lie side by side, for two summed elements, which are planes side
  // by side, the first of them an even one.
  static __device__ void read_pair(Word &first, Word &second, const T *at) {
    const Word even = two(at);
    if constexpr (t::area % 2 == 0) {
      const Word odd = two(at + t::area);
      first = (even & 0xFFFF) | odd << 16;
      second = even >> 16 | (odd & 0xFFFF0000);
    } else {  // the second plane begins at an odd element
      const Word before = two(at + t::area - 1), behind = two(at + t::area + 1);
      first = (even & 0xFFFF) | (before & 0xFFFF0000);
      second = even >> 16 | behind << 16;
    }
  }
  // Those of a step, of which the first `there` summed elements are there.
  __device__ void read(Words &words, const T *planes, int there) const {
    DSCORE_UNROLL
    for (int r = 0; r < t::rows; r++) {
      const T *own = planes + image[r] * t::image_elements + summed * t::area + pixel[r];
      DSCORE_UNROLL
      for (int half = 0; half < 2 * t::depths; half++) {
        Word *to = words[r][half / 2] + half % 2 * 2;
        read_pair(to[0], to[1], own + half * 8 * t::area);
        if (half * 8 >= there) to[0] = to[1] = 0;
      }
    }
  }
};

}  // namespace dscore
