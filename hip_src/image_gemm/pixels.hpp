// Pixels of whole images from LDS, where planes lie as in memory, to the registers of matrix units
// (image_gemm/product.hpp).
#pragma once

#include "image_gemm/shape.hpp"
#include "support/integers.hpp"
#include "support/matrix_units.hpp"

namespace dscore {

// Which of the 32 pairs of an instruction a lane has: `turn` of the wavefronts' and the
// rows' places.
// Lanes of a row read neighbouring planes, so that it depends on the size of a plane whether lanes
// meet in a bank.
__host__ __device__ constexpr int pair_place(int turn, int wave, int row) {
  return turn == 0 ? wave * 8 + row
                   : turn == 1 ? row * 4 + wave : wave * 4 + row % 4 + row / 4 * 16;
}
// Most lanes of a wavefront that read different words of a bank at once.
__host__ __device__ constexpr int bank_conflicts(int turn, int area) {
  int most = 0;
  for (int bank = 0; bank < 32; bank++) {
    int lanes = 0;
    for (int lane = 0; lane < 32; lane++)
      lanes += (lane % 4 * area + pair_place(turn, 0, lane / 4)) % 32 == bank;
    most = greatest(most, lanes);
  }
  return most;
}
__host__ __device__ constexpr int best_turn(int area) {
  int best = 0;
  for (int turn = 1; turn < 3; turn++)
    if (bank_conflicts(turn, area) < bank_conflicts(best, area)) best = turn;
  return best;
}

// A lane's pixels: two side by side in each of the instructions' rows. Of lane 4 g + i these are
// rows g and g + 8 of an instruction, and its summed elements 2 i, 2 i + 1 and those eight on.
template <class T, class t>
struct ImagePixels {
  using Words = Word[t::together][t::rows][4];  // of several instructions
  int image[t::rows], pixel[t::rows];  // of a pair past the last image's those of the first
  bool held[t::rows];                  // pairs of the block's images
  int summed;                          // the lane's first summed element of an instruction

  __device__ ImagePixels(int group, int of_group) : summed(of_group % 4 * 2) {
    constexpr int turn = best_turn(t::area);
    const int place = pair_place(turn, of_group / t::wavefront, of_group % t::wavefront / 4);
    DSCORE_UNROLL
    for (int r = 0; r < t::rows; r++) {
      const int pair = (r * t::groups + group) * t::pairs_each + place;
      held[r] = pair < t::images * t::pairs;
      image[r] = held[r] ? pair / t::pairs : 0;
      pixel[r] = held[r] ? pair % t::pairs * 2 : 0;
    }
  }

  // Two elements that lie side by side at a multiple of two.
  static __device__ Word two(const T *at) { return bits_as<Word>(read_vector<2>(at)); }
  // The words of two pixels, which lie side by side, for two summed elements, which are planes side
  // by side, the first of them an even one.
  static __device__ void read_pair(Word &first, Word &second, const T *at) {
    const Word even = two(at);
    if constexpr (t::area % 2 == 0) {
      const Word odd = two(at + t::area);
      first = permuted(even, odd, 0x5410);
      second = permuted(even, odd, 0x7632);
    } else {  // the second plane begins at an odd element
      const Word before = two(at + t::area - 1), behind = two(at + t::area + 1);
      first = permuted(even, before, 0x7610);
      second = permuted(even, behind, 0x5432);
    }
  }
  // Those of a step from the `depth`-th instruction on.
  __device__ void read(Words &words, const T *planes, int depth) const {
    DSCORE_UNROLL
    for (int i = 0; i < t::together; i++)
      DSCORE_UNROLL
      for (int r = 0; r < t::rows; r++) {
        const T *own = planes + image[r] * t::image_elements + summed * t::area + pixel[r];
        Word *to = words[i][r];
        DSCORE_UNROLL
        for (int half = 0; half < 2; half++) {
          const int first = (depth + i) * t::depth + half * t::depth / 2;
          const T *at = own + first * t::area;
          reads_for_product(at, (t::area + 1) * static_cast<int>(sizeof(T)));
          read_pair(to[2 * half], to[2 * half + 1], at);
        }
      }
  }
};

}  // namespace dscore
