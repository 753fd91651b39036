// The tiling of the weight gradient of first layers (stem_sums/kernel.hpp), and what a block keeps
// in LDS.
#pragma once

#include "support/common.hpp"

namespace dscore {

// Channels: of an image's pixel. CopyX: elements of a row of an image that lie side by side and
// aligned.
template <int TileH, int TileW, int TileM, int WaveM, int WavesP, int Slices, int Channels,
          int CopyX, int Wavefront>
struct StemSumsTiling {
  static constexpr int tile_h = TileH, tile_w = TileW, tile_m = TileM, wave_m = WaveM;
  static constexpr int waves_p = WavesP, waves_m = TileM / WaveM, slices = Slices;
  static constexpr int channels = Channels, copy_x = CopyX, wavefront = Wavefront;
  static constexpr int threads = waves_p * waves_m * Wavefront;
  // Fragments of a wavefront over the channels; pieces of 16 pixels in a row of the tile, and in
  // all of it.
  static constexpr int fragments_m = WaveM / 16, pieces_w = TileW / 16, pieces = TileH * pieces_w;
  static_assert(Wavefront == 32, "matrix units of NVIDIA");
  static_assert(TileW % 16 == 0 && WaveM % 16 == 0, "whole fragments");
  static_assert(TileM % WaveM == 0, "a block holds whole wavefronts");
  static_assert(Channels >= 1 && Channels <= 4, "a pixel of four channels in LDS");
};

// Pixels lie in LDS with four channels each, rows of them side by side: so two taps of a row of the
// filter are a vector of 16 bytes, a row of a fragment, wherever the first of both lies at an even
// pixel. The first tap of a tile does. Where columns are walked by an odd number, every second tap
// lies beside: for these there is a copy that begins a pixel later.
template <class T, class Tiling, class Layer>
struct StemSumsShape : Tiling {
  using t = Tiling;
  static constexpr int size = static_cast<int>(sizeof(T));
  static constexpr bool exact = false;
  static constexpr int pixel = 4 * size;
  static_assert(size == 2 && Layer::dilation_w == 1, "neighbouring taps of 16 bits");
  // Twos of taps of a row of the filter; fragments of eight sums, of all of its rows.
  static constexpr int twos = ceil_div(Layer::kernel_w, 2), fragments = Layer::kernel_h * twos;

  // Pixels that come from memory together, as those of stem.
  static constexpr int unit = t::copy_x / least(t::copy_x, t::channels & -t::channels);
  static constexpr int unit_bytes = unit * pixel, pitch = unit_bytes;
  static constexpr int copies = unit * t::channels / t::copy_x;  // of a unit
  static constexpr int rows = (t::tile_h - 1) * Layer::stride_h + Layer::span_h;
  static constexpr int under_w = (t::tile_w - 1) * Layer::stride_w + Layer::span_w;
  static constexpr int row_units = ceil_div(under_w + unit - 1, unit), units = rows * row_units;
  static constexpr int turns = ceil_div(units, t::threads), together = turns;
  // Of a row of LDS: what comes, moved by a pixel, and in the copy by two; what taps reach.
  static constexpr int reach = (t::tile_w - 1) * Layer::stride_w + 2 * twos + unit + 1;
  static constexpr int row_pixels = ceil_div(greatest(row_units * unit + 2, reach), 2) * 2;
  static constexpr int row_bytes = row_pixels * pixel, copy_bytes = rows * row_bytes;
  static constexpr bool copied = Layer::stride_w % 2 != 0;
  static constexpr int pixels_bytes = copy_bytes * (copied ? 2 : 1);
  // Elements from a pixel of the gradient to the next: an odd number of vectors, so that the eight
  // rows of a fragment lie in banks of their own.
  static constexpr int pitch_g = t::tile_m + 8;
  static constexpr int stage_bytes = pixels_bytes + t::tile_h * t::tile_w * pitch_g * size;
  // At the end LDS has the sums of all wavefronts.
  static constexpr int outputs = t::tile_m * fragments * 8;
  static constexpr int lds_bytes =
      greatest(2 * stage_bytes, t::waves_p * outputs * static_cast<int>(sizeof(float)));
};

}  // namespace dscore
