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
template <class t, int Turn>
struct PixelPairs {
  using Words = Word[t::together][t::rows][4];  // of several instructions
  int image[t::rows], pixel[t::rows];  // of a pair past the last image's those of the first
  bool held[t::rows];                  // pairs of the block's images
  int summed;                          // the lane's first summed element of an instruction

  __device__ PixelPairs(int group, int of_group) : summed(of_group % 4 * 2) {
    const int place = pair_place(Turn, of_group / t::wavefront, of_group % t::wavefront / 4);
    DSCORE_UNROLL
    for (int r = 0; r < t::rows; r++) {
      const int pair = (r * t::groups + group) * t::pairs_each + place;
      held[r] = pair < t::images * t::pairs;
      image[r] = held[r] ? pair / t::pairs : 0;
      pixel[r] = held[r] ? pair % t::pairs * 2 : 0;
    }
  }
  // Calls each(two words, of which instruction, of which of its rows, half) for all of them: of the
  // first half are a lane's first two summed elements, of the second those eight on.
  template <class Each>
  static __device__ void each_half(Words &words, Each each) {
    DSCORE_UNROLL
    for (int i = 0; i < t::together; i++)
      DSCORE_UNROLL
      for (int r = 0; r < t::rows; r++)
        DSCORE_UNROLL
        for (int half = 0; half < 2; half++) each(words[i][r] + 2 * half, i, r, half);
  }
  // Two elements that lie side by side at a multiple of two.
  template <class T>
  static __device__ Word two(const T *at) {
    return bits_as<Word>(read_vector<2>(at));
  }
  // The words of two pixels side by side, each of two planes, by the words of the planes.
  static __device__ void exchange(Word *to, Word even, Word odd) {
    to[0] = permuted(even, odd, 0x5410);
    to[1] = permuted(even, odd, 0x7632);
  }
};

// Those of whole images, whose planes lie in LDS as in memory.
template <class T, class t>
struct ImagePixels : PixelPairs<t, best_turn(t::area)> {
  using Pairs = PixelPairs<t, best_turn(t::area)>;
  using Pairs::Pairs, Pairs::two, Pairs::exchange;

  // The words of two pixels, which lie side by side, for two summed elements, which are planes side
  // by side, the first of them an even one.
  static __device__ void read_pair(Word *to, const T *at) {
    const Word even = two(at);
    if constexpr (t::area % 2 == 0) {
      exchange(to, even, two(at + t::area));
    } else {  // the second plane begins at an odd element
      const Word before = two(at + t::area - 1), behind = two(at + t::area + 1);
      to[0] = permuted(even, before, 0x7610);
      to[1] = permuted(even, behind, 0x5432);
    }
  }
  // Those of a step from the `depth`-th instruction on.
  __device__ void read(typename Pairs::Words &words, const T *planes, int depth) const {
    this->each_half(words, [&](Word *to, int i, int r, int half) {
      const int first = (depth + i) * t::depth + half * t::depth / 2;
      const T *at = planes + this->image[r] * t::image_elements +
                    (this->summed + first) * t::area + this->pixel[r];
      reads_for_product(at, (t::area + 1) * static_cast<int>(sizeof(T)));
      read_pair(to, at);
    });
  }
};

// Those of parts of planes, which lie in LDS in boxes of 64 pixels, whose vectors are exchanged.
// Lanes meet in no bank: eight pairs in a row are a half of two vectors, and four neighbouring rows
// have these in others.
template <class T, class t>
struct PartPixels : PixelPairs<t, 2> {
  using Pairs = PixelPairs<t, 2>;
  using Pairs::Pairs, Pairs::two, Pairs::exchange;

  // Of a pixel of a plane, the `second` of two or the first; planes go by twos.
  static __device__ int place(int planes, int second, int pixel) {
    const int column = pixel + second * t::moved;
    const int within = planes * swizzled_row + column % t::row * static_cast<int>(sizeof(T));
    return (second * t::boxes + column / t::row) * t::box_elements +
           swizzled(within) / static_cast<int>(sizeof(T));
  }
  __device__ void read(typename Pairs::Words &words, const T *planes, int depth) const {
    this->each_half(words, [&](Word *to, int i, int r, int half) {
      constexpr int of_tile = swizzled_tile / swizzled_row;  // planes by twos of an instruction
      const T *at = planes + (depth + i) * of_tile * t::row;
      const int own = this->summed / 2 + half * of_tile / 2;
      const T *even = at + place(own, 0, this->pixel[r]), *odd = at + place(own, 1, this->pixel[r]);
      reads_for_product(even, 2 * sizeof(T));
      reads_for_product(odd, 2 * sizeof(T));
      exchange(to, two(even), two(odd));
    });
  }
};

}  // namespace dscore
