// Weight gradient of the first layer of a network: a dense convolution of images of up to four
// channels, which lie side by side, on matrix units. For each tap and each of its channels products
// of pixels are summed with the gradient of 16 output channels at a time.
// Blocks take shares of the images' tiles, one after the other. The next one's pixels are on their
// way in registers, and its gradient to LDS, while one is multiplied; wavefronts multiply pieces of
// 16 pixels of a row. All sums stay in registers until the last tile.
//
// Order of additions, as the reference backend has it: of a wavefront tiles, within these its
// pieces, within these pixels, all ascending; then the wavefronts of a channel, ascending; then
// slices (tap_sums/parts.hpp). What lies outside x is 0 · gradient.
#pragma once

#include "stem/pixels.hpp"
#include "stem_sums/shape.hpp"
#include "support/bulk_copy.hpp"
#include "support/matrix_units.hpp"
#include "tap_sums/parts.hpp"

namespace dscore {

// A filter's sums of several slices go to a workspace, slice by slice.
template <class T, class t>
using StemSumsKernel =
    KernelOn<T, std::conditional_t<(t::slices > 1), WorkspaceArguments, WeightGradientArguments>>;

// Sums of an output channel, as those of taps.
template <class Layer, int Channels>
struct FilterOf {
  static constexpr int taps = Layer::taps * Channels;
};

template <class T, class Tiling, class Layer, class Shape_, class Epilogue>
struct StemSums : StemSumsKernel<T, Tiling> {
  using Shape = Shape_;
  using t = StemSumsShape<T, Tiling, Layer>;
  using Arguments = typename StemSumsKernel<T, Tiling>::Arguments;
  using Pixels = StemPixels<T, t, Layer, Shape>;
  using Filter = FilterOf<Layer, t::channels>;
  using Result = typename Epilogue::Result;
  using Parts = TapSumsParts<Result, t, Filter, Shape, t::slices>;
  using Then = std::conditional_t<(t::slices > 1), Parts, void>;
  static constexpr int threads = t::threads, wavefront = t::wavefront, lds_bytes = t::lds_bytes;
  static constexpr int layout = DSCORE_NHWC, alignment = 16;

  static __host__ __device__ int channel_tiles(const Shape &s) {
    return ceil_div(s.out_channels, t::tile_m);
  }
  static __host__ __device__ int column_tiles(const Shape &s) {
    return ceil_div(s.out_width, t::tile_w);
  }
  static __host__ __device__ int row_tiles(const Shape &s) {
    return ceil_div(s.out_height, t::tile_h);
  }
  // Tiles of all images, one of which a block takes at a time.
  static __host__ __device__ int units(const Shape &s) {
    return s.batch * row_tiles(s) * column_tiles(s);
  }
  // Channel tile fastest, then slice.
  static int blocks(const Shape &s) { return channel_tiles(s) * t::slices; }
  static long long workspace_bytes(const Shape &s) {
    return t::slices > 1 ? 1ll * t::slices * s.out_channels * Filter::taps * sizeof(float) : 0;
  }

  const Shape &s;
  const T *x, *gradient;
  char *lds;
  int thread, lane, wave_p, wave_m, tile_channel, slice, unit, unit_end;
  float sums[t::fragments_m][t::fragments][4];

  __device__ StemSums(const Arguments &args, const Shape &shape)
      : s(shape), x(static_cast<const T *>(args.x)),
        gradient(static_cast<const T *>(args.gradient)), lds(block_lds<char, lds_bytes>()),
        thread(threadIdx.x), lane(threadIdx.x % t::wavefront), sums{} {
    const int wave = thread / t::wavefront, block = blockIdx.x;
    const int each = ceil_div(units(s), t::slices);
    wave_p = wave % t::waves_p;
    wave_m = wave / t::waves_p * t::wave_m;
    tile_channel = block % channel_tiles(s) * t::tile_m;
    slice = block / channel_tiles(s);
    unit = slice * each;
    unit_end = least(unit + each, units(s));
  }

  // Where a unit begins: its image, and the first row and column of the gradient.
  struct Place {
    int image, row, column;
  };
  __device__ Place place_of(int at) const {
    const int above = at / column_tiles(s);
    return {above / row_tiles(s), above % row_tiles(s) * t::tile_h,
            at % column_tiles(s) * t::tile_w};
  }
  __device__ Pixels pixels_of(const Place &p) const {
    return Pixels(x, s, p.image, p.row * Layer::stride_h - s.pad_top,
                  p.column * Layer::stride_w - s.pad_left);
  }
  // By how many pixels those in LDS are moved, so that the first tap lies at an even one.
  static __device__ int moved(const Pixels &pixels) { return pixels.before % 2; }

  // The gradient of a tile, zeros for what it does not have.
  __device__ void start_gradient(char *stage, const Place &p) const {
    constexpr int vectors = t::tile_m / 8, all = t::tile_h * t::tile_w * vectors;
    T *const to = reinterpret_cast<T *>(stage + t::pixels_bytes);
    DSCORE_UNROLL_FEW
    for (int at = thread; at < all; at += threads) {
      const int channel = at % vectors * 8, place = at / vectors;
      const int row = p.row + place / t::tile_w, column = p.column + place % t::tile_w;
      const bool there = row < s.out_height && column < s.out_width &&
                         tile_channel + channel < s.out_channels;
      const int pixel = (p.image * s.out_height + row) * s.out_width + column;
      copy_async<16>(to + place * t::pitch_g + channel,
                     gradient + pixel * s.out_channels + tile_channel + channel, there);
    }
  }
  // Units of pixels to LDS, and to the copy that begins a pixel later.
  __device__ void write_pixels(char *stage, const Pixels &pixels,
                               const typename Pixels::Units &units_read) const {
    DSCORE_UNROLL
    for (int i = 0; i < t::turns; i++) {
      const auto at = pixels.at(i, thread);
      if (!at.part) continue;
      const auto made = pixels.made_of(units_read[i], true);
      char *const to =
          stage + at.row * t::row_bytes + (at.unit * t::unit + moved(pixels)) * t::pixel;
      DSCORE_UNROLL
      for (int p = 0; p < t::unit; p++) {
        const Pack<Word, 2> two{{made.at[2 * p], made.at[2 * p + 1]}};
        write_vector(reinterpret_cast<Word *>(to + p * t::pixel), two);
        if (t::copied)
          write_vector(reinterpret_cast<Word *>(to + t::copy_bytes + (p + 1) * t::pixel), two);
      }
    }
  }

  // Where in LDS the rows of fragments lie that the lane reads: of its pixel of a piece's 16.
  __device__ int lane_place(int before) const {
    const int column = lane % 16 * Layer::stride_w + before, beside = column % 2;
    return (t::copied && beside ? t::copy_bytes : 0) + (column + beside) * t::pixel;
  }
  static constexpr __host__ __device__ int fragment_place(int e) {
    return e / t::twos * Layer::dilation_h * t::row_bytes + e % t::twos * 2 * t::pixel;
  }
  // The wavefront's pieces of a tile in LDS.
  __device__ void multiply(const char *stage, const Place &p) {
    const int down = s.out_height - p.row, right = s.out_width - p.column;
    const Pixels pixels = pixels_of(p);
    const int own = lane_place(pixels.before + moved(pixels));
    DSCORE_ROLLED
    for (int piece = wave_p; piece < t::pieces; piece += t::waves_p) {
      const int row = piece / t::pieces_w, column = piece % t::pieces_w * 16;
      if (s.out_height % t::tile_h != 0 && row >= down) continue;
      if (s.out_width % t::tile_w != 0 && column >= right) continue;
      const char *const from = stage + own + row * Layer::stride_h * t::row_bytes +
                               column * Layer::stride_w * t::pixel;
      const T *const given = reinterpret_cast<const T *>(stage + t::pixels_bytes) +
                             (row * t::tile_w + column) * t::pitch_g + wave_m;
      if (s.out_width % 16 == 0 || right - column >= 16)
        multiply_piece<false>(from, given, 16);
      else multiply_piece<true>(from, given, right - column);
    }
  }
  // Masked: pixels of x under a gradient that does not exist are left out, as they may be infinite.
  template <bool Masked>
  __device__ void multiply_piece(const char *from, const T *given, int pixels) {
    FragmentA<T> a[t::fragments_m];
    DSCORE_UNROLL
    for (int m = 0; m < t::fragments_m; m++)
      a[m].template read<false>(given + m * 16, t::pitch_g, lane);
    DSCORE_UNROLL
    for (int e = 0; e < t::fragments; e += 2) {
      Word words[4];
      constexpr int last = t::fragments - 1;
      const int place = lane / 16 ? fragment_place(least(e + 1, last)) : fragment_place(e);
      const T *const at = reinterpret_cast<const T *>(from + place);
      if (e < last) read_matrices<4, true>(words, at);
      else read_matrices<2, true>(words, at);
      DSCORE_UNROLL
      for (int side = 0; side < 2 && e + side <= last; side++) {
        FragmentB<T> b{{words[2 * side], words[2 * side + 1]}};
        if constexpr (Masked) {
          b.words[0] &= mask(pixels);
          b.words[1] &= mask(pixels - 8);
        }
        DSCORE_UNROLL
        for (int m = 0; m < t::fragments_m; m++) multiply_16(sums[m][e + side], a[m], b);
      }
    }
  }
  // Of the lane's two pixels those that are among so many.
  __device__ Word mask(int pixels) const {
    const int there = pixels - lane % 4 * 2;
    return there > 1 ? ~0u : there == 1 ? 0xffffu : 0u;
  }

  __device__ void run(const Arguments &args) {
    // Blocks of the sum of slices may come beforehand: they wait for this kernel's end.
    if constexpr (t::slices > 1) admit_next_kernel();
    typename Pixels::Units on_way;
    int stage = 0;
    const auto bring = [&](char *to, const Place &p) {
      start_gradient(to, p);
      pixels_of(p).read(on_way, thread);
    };
    if (unit < unit_end) {
      const Place first = place_of(unit);
      bring(lds, first);
      write_pixels(lds, pixels_of(first), on_way);
    }
    commit_copies();
    DSCORE_ROLLED
    for (; unit < unit_end; unit++, stage ^= 1) {
      wait_copies<0>();
      __syncthreads();
      const bool more = unit + 1 < unit_end;
      const Place place = place_of(unit), next = place_of(unit + 1);
      char *const other = lds + (stage ^ 1) * t::stage_bytes;
      if (more) bring(other, next);
      commit_copies();
      multiply(lds + stage * t::stage_bytes, place);
      if (more) write_pixels(other, pixels_of(next), on_way);
    }
    __syncthreads();
    put_sums();
    __syncthreads();
    finish(args);
  }
  // The lane's sums to LDS: of a fragment columns 2 i and 2 i + 1 of rows g and g + 8.
  __device__ void put_sums() const {
    float *const own = reinterpret_cast<float *>(lds) + wave_p * t::outputs +
                       (wave_m + lane / 4) * (t::fragments * 8) + lane % 4 * 2;
    DSCORE_UNROLL
    for (int m = 0; m < t::fragments_m; m++)
      DSCORE_UNROLL
      for (int e = 0; e < t::fragments; e++)
        DSCORE_UNROLL
        for (int half = 0; half < 2; half++)
          write_vector(own + (m * 16 + half * 8) * (t::fragments * 8) + e * 8,
                       Pack<float, 2>{{sums[m][e][half * 2], sums[m][e][half * 2 + 1]}});
  }
  // Adds the wavefronts' sums in their order, and stores those of taps and channels that there are.
  __device__ void finish(const Arguments &args) const {
    const float *const parts = reinterpret_cast<const float *>(lds);
    DSCORE_ROLLED
    for (int at = thread; at < t::tile_m * Filter::taps; at += threads) {
      const int channel = at / Filter::taps, of_filter = at % Filter::taps;
      const int tap = of_filter % Layer::taps, g = tap % Layer::kernel_w;
      const int fragment = tap / Layer::kernel_w * t::twos + g / 2;
      const int from =
          (channel * t::fragments + fragment) * 8 + g % 2 * 4 + of_filter / Layer::taps;
      float sum = parts[from];
      DSCORE_UNROLL
      for (int wave = 1; wave < t::waves_p; wave++) sum += parts[wave * t::outputs + from];
      const int of = tile_channel + channel;
      if (of < s.out_channels) store(args, of * Filter::taps + of_filter, sum);
    }
  }
  __device__ void store(const Arguments &args, int at, float sum) const {
    if constexpr (t::slices > 1)
      static_cast<float *>(args.workspace)[slice * s.out_channels * Filter::taps + at] = sum;
    else static_cast<Result *>(args.out)[at] = static_cast<Result>(sum);
  }
};

}  // namespace dscore
