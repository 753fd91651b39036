// The tiling of first layers (stem/kernel.hpp), and what a block keeps in LDS.
#pragma once

#include "support/integers.hpp"

namespace dscore {

// Repeat: tiles of a block, one below the other. Channels: of an image's pixel. CopyX: elements of
// a row of an image that lie side by side and aligned.
template <int TileH, int TileW, int TileN, int WaveN, int WavesP, int Repeat, int Channels,
          int CopyX, int Wavefront>
struct StemTiling {
  static constexpr int tile_h = TileH, tile_w = TileW, tile_n = TileN, wave_n = WaveN;
  static constexpr int waves_p = WavesP, waves_n = TileN / WaveN, repeat = Repeat;
  static constexpr int channels = Channels, copy_x = CopyX, wavefront = Wavefront;
  static constexpr int threads = waves_p * waves_n * Wavefront;
  // Fragments of a wavefront side by side over the channels; pieces of 16 pixels in a row of the
  // tile, and in all of it.
  static constexpr int columns = WaveN / 8, pieces_w = TileW / 16, pieces = TileH * pieces_w;
  static_assert(Wavefront == 32, "matrix units of NVIDIA");
  static_assert(TileW % 16 == 0 && WaveN % 8 == 0, "whole fragments");
  static_assert(TileN % WaveN == 0, "a block holds whole wavefronts");
  static_assert(Channels >= 1 && Channels <= 4, "a pixel of four channels in LDS");
};

// Pixels lie in LDS with four channels each, by units of those that come from memory together. Half
// a fragment's summed elements are the channels of some taps of a row of the filter: of two taps of
// 16 bits, of four of bytes. Rows of the filter are whole halves, and follow one another.
// In memory pixels are of Given.
template <class T, class Tiling, class Layer, class Given>
struct StemShape : Tiling {
  using t = Tiling;
  static constexpr int size = static_cast<int>(sizeof(T)), taps = Layer::taps;
  static constexpr bool exact = std::is_same_v<T, int8_t>;
  using Sum = std::conditional_t<exact, int32_t, float>;
  // Bytes of a pixel in LDS; taps of a half, halves of a row of the filter and of all of it.
  static constexpr int pixel = 4 * size, half_taps = 16 / pixel;
  static constexpr int row_halves = ceil_div(Layer::kernel_w, half_taps);
  static constexpr int halves = Layer::kernel_h * row_halves, steps = ceil_div(halves, 2);

  // Pixels of a unit; bytes from one to the next, so that lanes that write vectors of neighbouring
  // units meet no bank twice.
  static constexpr int unit = t::copy_x / least(t::copy_x, t::channels & -t::channels);
  static constexpr int unit_bytes = unit * pixel, pitch = unit_bytes == 64 ? 80 : unit_bytes;
  static constexpr int copies = unit * t::channels / t::copy_x;  // of a unit
  static_assert(16 % unit == 0 && unit_bytes <= 64, "pieces of whole units");
  // Rows and columns under a tile. The first unit begins up to its pixels less one before them.
  static constexpr int rows = (t::tile_h - 1) * Layer::stride_h + Layer::span_h;
  static constexpr int under_w = (t::tile_w - 1) * Layer::stride_w + Layer::span_w;
  static constexpr int row_units = ceil_div(under_w + unit - 1, unit), units = rows * row_units;
  static constexpr int row_bytes = row_units * pitch;
  static constexpr int turns = ceil_div(units, t::threads);
  // Units that a thread brings at once: what is written first would be waited for. So many
  // registers, loads, and units, whose places take registers as well.
  static constexpr int given_size = static_cast<int>(sizeof(Given));
  static constexpr int unit_registers = copies * greatest(t::copy_x * given_size / 4, 1);
  static constexpr int most = least(least(48 / unit_registers, 12 / copies), least(8, turns));
  static constexpr int together = ceil_div(turns, ceil_div(turns, most));

  // Of several tiles the next one is on its way in registers while one is multiplied, and comes to
  // another buffer.
  static_assert(t::repeat == 1 || together == turns, "the pixels of a tile come at once");
  static constexpr int tile_bytes = ceil_div(rows * row_bytes, 16) * 16;
  // Filters in the order of memory, which come by eights.
  static constexpr int filter = t::channels * taps, filters = t::tile_n * filter;
  static constexpr int filters_at = (t::repeat > 1 ? 2 : 1) * tile_bytes;
  static constexpr int lds_bytes = filters_at + ceil_div(filters * size, 16) * 16;

  // Where a pixel of a row lies, counted from its first unit.
  static __device__ constexpr int place(int at) { return at / unit * pitch + at % unit * pixel; }
};

}  // namespace dscore
