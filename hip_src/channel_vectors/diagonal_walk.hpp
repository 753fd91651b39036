// The walk over rows of images whose channels lie side by side, by products with diagonal matrices.
//
// A wavefront takes two segments of eight columns of the written image, of one strip or of two, and
// groups of eight channels; it reads every row once for all filter rows. Of an input gradient with
// strides the columns of a segment lie a stride apart, and the taps differ by where these begin.
#pragma once

#include "channel_vectors/block.hpp"
#include "support/matrix_units.hpp"

namespace dscore {

template <class T, class Tiling, class View, class Shape_, class Results>
struct DiagonalWalk : ChannelBlock<T, Tiling, View, Shape_, Results> {
  using Shape = Shape_;
  using t = Tiling;
  using Block = ChannelBlock<T, t, View, Shape, Results>;
  using Arguments = typename Block::Arguments;
  using L = typename Block::L;
  using Rows = typename Block::Rows;
  using Columns = typename Block::Columns;
  using Images = typename Block::Images;
  using Tile = typename Block::Tile;
  using Block::s, Block::out, Block::lds, Block::thread, Block::first_channel, Block::image;
  using Block::block_h, Block::block_w, Block::tile_w, Block::filters_at;
  static constexpr int threads = t::threads, wavefront = t::wavefront, groups = t::vector / 8;
  // Columns of a segment lie `phases` apart; what is walked over under them `step`.
  static constexpr int phases = t::thread_w / 8, step = Columns::step(phases);
  static constexpr int rows = Rows::under(t::thread_h), live_rows = Rows::live(t::thread_h);
  static_assert(sizeof(T) == 2 && t::vector % 8 == 0 && phases == Columns::at_once, "fragments");
  // Lanes of a wider one would store columns that lie past those of the block.
  static_assert(wavefront == 32, "diagonals are multiplied by NVIDIA's matrix units");
  static_assert(t::vector_out <= 2 || (t::vector_out == 4 && groups % 2 == 0),
                "what neighbours exchange");

  // The n-th filter column that meets columns which begin at `phase`; the kernel's width for none.
  static constexpr __host__ __device__ int tap_of(int phase, int n) {
    for (int g = 0; g < L::kernel_w; g++)
      if (Columns::position(phase, g) >= 0 && n-- == 0) return g;
    return L::kernel_w;
  }

  int lane, wave, channel;
  const T *pixel;  // in LDS, that the lane's address of a fragment begins with
  float sums[live_rows][phases][groups][4];
  float spoiled = 0.0f;  // NaN once a sum was not finite
  Word taps[groups][L::taps];

  __device__ DiagonalWalk(const Arguments &args, const Shape &shape)
      : Block(args, shape), lane(thread % t::wavefront), wave(thread / t::wavefront), sums{} {
    channel = first_channel + wave % t::lanes_c * t::vector;
    pixel = pixel_of(lane / 8 % 2, lane % 8) + (channel - first_channel);
  }
  // In LDS, the first one under column `number` of a segment.
  __device__ const T *pixel_of(int half, int number) const {
    const int segment = segment_of(half);
    return lds + (segment / t::lanes_w * Rows::step(t::thread_h) * tile_w +
                  (segment % t::lanes_w * 8 + number) * step) * t::pitch;
  }
  // Of an odd number the last half has none, and computes what the first one does.
  __device__ int segment_of(int half) const {
    const int segment = wave / t::lanes_c * 2 + half;
    return t::segments % 2 == 0 || segment < t::segments ? segment : 0;
  }
  // Whether channel `c` of the wavefront's exists.
  __device__ bool has_channel(int c) const {
    return s.out_channels % t::channels == 0 || channel + c < s.out_channels;
  }
  __device__ bool has_segment(int half) const {
    return t::segments % 2 == 0 || wave / t::lanes_c * 2 + half < t::segments;
  }

  // Each tap's diagonal matrix: lane 4 g + i holds its rows 2 i and 2 i + 1 of column g.
  __device__ void load_taps() {
    const int column = lane / 4;
    const Word place = column / 2 != lane % 4 ? 0 : column % 2 ? 0x10000 : 1;
    DSCORE_UNROLL
    for (int q = 0; q < groups; q++) {
      const T *const mine =
          lds + filters_at + (channel - first_channel + q * 8 + column) * L::taps;
      DSCORE_UNROLL
      for (int tap = 0; tap < L::taps; tap++) taps[q][tap] = mine[tap].bits * place;
    }
  }

  // Local row i, from which all written rows take what their taps reach.
  __device__ void add_row(int i) {
    DSCORE_UNROLL
    for (int phase = 0; phase < phases; phase++)
      DSCORE_UNROLL
      for (int q = 0; q < groups; q++)
        DSCORE_UNROLL
        for (int n = 0; n < L::kernel_w; n += 2) {
          const int first = tap_of(phase, n), second = tap_of(phase, n + 1);
          if (first == L::kernel_w) continue;
          const bool both = second < L::kernel_w;
          const int at = Columns::position(phase, first);
          const int apart = both ? Columns::position(phase, second) - at : 0;
          FragmentA<T> a;
          const T *const from = pixel + (i * tile_w + at) * t::pitch + q * 8;
          if (both) read_matrices<4, false>(a.words, from + lane / 16 * apart * t::pitch);
          else read_matrices<2, false>(a.words, from);
          DSCORE_UNROLL
          for (int f = 0; f < L::kernel_h; f++) {
            const int r = Rows::written(i, f);
            if (r < 0 || r >= t::thread_h) continue;
            float *const d = sums[r % live_rows][phase][q];
            const Word *const b = taps[q] + f * L::kernel_w;
            if (both) multiply_16(d, a, FragmentB<T>{{b[first], b[second]}});
            else multiply_8(d, a, b[first]);
          }
        }
  }

  // Gives away local written row r, which is complete, and clears its registers for another.
  __device__ void finish(int r, const Arguments &args, const float (*biases)[2]) {
    DSCORE_UNROLL
    for (int half = 0; half < 2; half++)
      DSCORE_UNROLL
      for (int phase = 0; phase < phases; phase++) {
        const int at = place_of(half, r, phase);
        if constexpr (t::vector_out == 4) store_exchanged(r, half, phase, at, args, biases);
        else if (at >= 0) store(r, half, phase, at, args, biases);
      }
    DSCORE_UNROLL
    for (int phase = 0; phase < phases; phase++)
      DSCORE_UNROLL
      for (int q = 0; q < groups; q++)
        DSCORE_UNROLL
        for (int n = 0; n < 4; n++) {
          float &sum = sums[r % live_rows][phase][q][n];
          spoiled += sum * 0.0f;
          sum = 0.0f;
        }
  }
  __device__ void store(int r, int half, int phase, int at, const Arguments &args,
                        const float (*biases)[2]) {
    DSCORE_UNROLL
    for (int q = 0; q < groups; q++)
      DSCORE_UNROLL
      for (int v = 0; v < 2; v += t::vector_out) {
        const int c = q * 8 + lane % 4 * 2 + v;
        if (has_channel(c))
          write_vector(out + at + c, Results::template apply_each<least(t::vector_out, 2)>(
                                         sums[r % live_rows][phase][q] + half * 2 + v, args,
                                         biases[q] + v, at + c));
      }
  }
  // Of two groups neighbours exchange one pair of channels each, and store four that lie together.
  __device__ void store_exchanged(int r, int half, int phase, int at, const Arguments &args,
                                  const float (*biases)[2]) {
    DSCORE_UNROLL
    for (int q = 0; q < groups; q += 2) {
      const bool odd = lane % 2;
      Word words[2];
      DSCORE_UNROLL
      for (int n = 0; n < 2; n++) {
        const int c = (q + n) * 8 + lane % 4 * 2;
        const bool stored = at >= 0 && has_channel(c);
        words[n] = stored ? bits_as<Word>(Results::template apply_each<2>(
                                sums[r % live_rows][phase][q + n] + half * 2, args, biases[q + n],
                                at + c))
                          : 0;
      }
      const Word other = of_neighbour(odd ? words[0] : words[1]);
      const int c = (q + odd) * 8 + lane % 4 / 2 * 4;
      if (at >= 0 && has_channel(c))
        *reinterpret_cast<Pack<Word, 2> *>(out + at + c) =
            Pack<Word, 2>{{odd ? other : words[0], odd ? words[1] : other}};
    }
  }

  // Zeros of a diagonal make a NaN of what is not finite, in channels and columns beside it: a lane
  // that had one makes its results anew, of their own products alone.
  __device__ void mend(const Arguments &args) const {
    constexpr int each = phases * t::vector / 4;  // of a row of a segment, the lane's
    DSCORE_ROLLED
    for (int number = 0; number < 2 * t::thread_h * each; number++) {
      const int half = number % 2, r = number / 2 / each, of_row = number / 2 % each;
      const int phase = of_row % phases, pair = of_row / phases;
      const int c = pair / 2 * 8 + lane % 4 * 2 + pair % 2;
      const int at = place_of(half, r, phase);
      if (at < 0 || !has_channel(c)) continue;
      const float sum = plain_sum(half, r, phase, channel - first_channel + c);
      const float bias = Results::bias_of(args, channel + c);
      write_vector(out + at + c, Results::template apply_each<1>(&sum, args, &bias, at + c));
    }
  }
  __device__ float plain_sum(int half, int r, int phase, int of_block) const {
    const T *const from = pixel_of(half, lane / 4) + of_block;
    const T *const weights = lds + filters_at + of_block * L::taps;
    float sum = 0.0f;
    DSCORE_ROLLED
    for (int tap = 0; tap < L::taps; tap++) {
      const int i = Rows::position(r, tap / L::kernel_w);
      const int at = Columns::position(phase, tap % L::kernel_w);
      if (i >= 0 && at >= 0)
        sum += static_cast<float>(from[(i * tile_w + at) * t::pitch]) *
               static_cast<float>(weights[tap]);
    }
    return sum;
  }
  // Of the first channel of the wavefront's, in local written row r; below 0 where there is none.
  __device__ int place_of(int half, int r, int phase) const {
    const int height = Images::out_height(s), width = Images::out_width(s);
    const int segment = segment_of(half);
    const int row = Block::top + segment / t::lanes_w * t::thread_h + r;
    const int column = Block::left + segment % t::lanes_w * t::thread_w + lane / 4 * phases + phase;
    const bool there = has_segment(half) && (height % block_h == 0 || row < height) &&
                       (width % block_w == 0 || column < width);
    return there ? ((image * height + row) * width + column) * s.out_channels + channel : -1;
  }

  // Rows of a band, which have come, into all the written rows that their taps connect them with.
  __device__ void walk(int band, const Arguments &args, const float (*biases)[2]) {
    DSCORE_UNROLL
    for (int i = band * Tile::band_rows; i < least(rows, (band + 1) * Tile::band_rows); i++) {
      add_row(i);
      DSCORE_UNROLL
      for (int n = 0; n < Rows::at_once; n++)
        if (const int r = Rows::complete(i) + n; r < least(Rows::complete(i + 1), t::thread_h))
          finish(r, args, biases);
    }
  }

  __device__ void run(const Arguments &args, const KernelBefore &before) {
    before.wait_for_constants();
    Block::start_filters();
    float biases[groups][2];
    DSCORE_UNROLL
    for (int q = 0; q < groups; q++)
      DSCORE_UNROLL
      for (int v = 0; v < 2; v++)
        biases[q][v] = Results::bias_of(
            args, least(channel + q * 8 + lane % 4 * 2 + v, s.out_channels - 1));
    Block::take_filters(before, [&] { load_taps(); });
    DSCORE_UNROLL
    for (int band = 0; band < t::bands; band++) {
      Block::wait_for(band);
      walk(band, args, biases);
    }
    __syncthreads();  // what a neighbour stored is written before
    if (spoiled != 0.0f) mend(args);
  }
};

}  // namespace dscore
