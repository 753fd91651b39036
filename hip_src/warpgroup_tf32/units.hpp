// Products of a warpgroup of pixels in its registers by filters in LDS, of TF32, whose rows may be
// shorter than the 128 bytes of support/warpgroups.hpp, for steps of fewer channels.
#pragma once

#include "support/warpgroups.hpp"

namespace dscore {

// Rows of Row floats (8, 16 or 32), a column of results in each, whose vectors of 16 bytes are
// exchanged, so that eight rows lie in different banks (PTX ISA, wgmma, swizzling of 32, 64 and 128
// bytes). Where float `at` of them lies, counted from a multiple of 8 * Row.
template <int Row>
__host__ __device__ constexpr int in_row(int at) {
  return at ^ (at >> 5 & (Row / 4 - 1)) << 2;
}

#if defined(DSCORE_HOST)
namespace emulation {

// A product under way, of the two rows that make this thread's results.
template <int Row>
struct RowProducts {
  float *sums;
  const float *tile;  // its rows, from a multiple of eight on
  float rows[2][8];
  int columns, first;  // first summed element, in a row
  bool add;

  static float value(float element) { return ProductUnderWay<float>::value(element); }
  static void make(const void *given) {
    RowProducts p;
    std::memcpy(&p, given, sizeof p);
    const int pair = device.current % 4 * 2;
    for (int at = 0; at < p.columns / 2; at++) {
      const int column = at / 4 * 8 + pair + at % 2;
      float &sum = p.sums[at];
      if (!p.add) sum = 0;
      for (int k = 0; k < 8; k++)
        sum += value(p.rows[at / 2 % 2][k]) *
               value(p.tile[in_row<Row>(column * Row + p.first + k)]);
    }
  }
};

}  // namespace emulation
#endif

// sums[64][Columns] (+)= a[64][8] by b[8][Columns], of elements `first` to first + 7 of rows from
// `tile` on; `add`: whether the sums so far count. Lane 4 g + i of wavefront w holds elements i of
// rows 16 w + g and 16 w + g + 8, then i + 4 of both; and sums as multiply_registers has them.
template <int Columns, int Row>
__device__ inline void multiply_rows(float *sums, const float (&a)[4], const float *tile, int first,
                                     bool add) {
  Word words[4];
  DSCORE_UNROLL
  for (int i = 0; i < 4; i++) words[i] = bits_as<Word>(a[i]);
#if defined(DSCORE_HOST)
  using Products = emulation::RowProducts<Row>;
  Products product{sums, tile, {}, Columns, first, add};
  emulation::gather_rows<float>(product.rows, words, __LINE__);
  if (emulation::copies_at_once()) Products::make(&product);
  else
    emulation::device.fibers[emulation::device.current].products.push(Products::make, product);
#elif defined(DSCORE_WARPGROUPS)
  constexpr uint64_t exchanged = Row == 32 ? 1 : Row == 16 ? 2 : 3, eight_rows = 8 * Row / 4;
  WarpgroupProduct<Columns>::tf32_by_registers(
      sums, words,
      LdsOperand::place_of(tile + first) >> 4 | uint64_t{1} << 16 | eight_rows << 32 |
          exchanged << 62,
      add);
#endif
}

// A part of what a thread does, by its number: while one of several batches of products is under
// way. Parts are constants where loops are unrolled.
struct Part {
  int number, of;
  __device__ bool has(int i) const { return i % of == number; }
};

// Has a sum read after the wait for its products, and not before.
__device__ inline void settle_product(float &sum) {
#if defined(DSCORE_WARPGROUPS)
  asm volatile("" : "+f"(sum)::"memory");
#else
  (void)sum;
#endif
}

// What lanes wrote to LDS is seen by products that begin after the barrier that follows.
__device__ inline void show_to_products() {
#if defined(DSCORE_WARPGROUPS)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

}  // namespace dscore
