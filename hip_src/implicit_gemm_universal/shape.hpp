// The tiling of the implicit product of matrices of both layouts (implicit_gemm_universal/
// kernel.hpp), and what a block keeps in LDS.
#pragma once

#include "gemm_universal/shape.hpp"
#include "implicit_gemm/patch.hpp"

namespace dscore {

// Patch: elements of a channel that a block keeps. VectorIn, VectorOut: elements that lie side by
// side and aligned, of the input channels of a group, and of the output.
template <int TileC, int TileP, int WaveC, int WaveP, int LanesC, int Slices, int StepC, int Stages,
          int Patch, int Cluster, Products Arithmetic, int VectorIn, int VectorOut, int Layout,
          int Wavefront>
struct ImplicitGemmUniversalTiling {
  static constexpr int tile_c = TileC, tile_p = TileP, wave_c = WaveC, wave_p = WaveP;
  static constexpr int lanes_c = LanesC, lanes_p = Wavefront / LanesC;
  static constexpr int slices = Slices, step_c = StepC, stages = Stages, patch = Patch;
  static constexpr int cluster = Cluster, wavefront = Wavefront, layout = Layout;
  static constexpr int vector_in = VectorIn, vector_out = VectorOut;
  static constexpr Products arithmetic = Arithmetic;
  static constexpr bool last = Layout == DSCORE_NHWC;  // channels are
  static constexpr bool plain = Arithmetic == Products::plain;
  static constexpr bool bytes = Arithmetic == Products::matrix8;
  static constexpr bool mfma = !plain && Arithmetic != Products::tf32x3 && Wavefront == 64;
  static constexpr int waves_c = TileC / WaveC, waves_p = TileP / WaveP;
  static constexpr int threads = waves_c * waves_p * Slices * Wavefront, slice = StepC / Slices;
  static constexpr int accumulators = WaveC * WaveP / Wavefront;
  static_assert(TileC % WaveC == 0 && TileP % WaveP == 0, "a block holds whole wavefronts");
  static_assert(Stages >= 1, "buffers");
  static_assert(StepC % Slices == 0 && slice % 4 == 0, "slices of whole fours");
  static_assert(plain ? WaveC % LanesC == 0 && WaveP % lanes_p == 0
                      : WaveP % 16 == 0 && WaveC % (mfma ? 16 : 8) == 0 && LanesC == 8 &&
                            (mfma || Wavefront == 32),
                "whole fragments");
  static_assert(Arithmetic != Products::tf32x3 || has_tf32, "matrix units");
};

// The buffers of a layer: filters [channel][piece][tap][input channel of a piece], images
// [element][input channel].
template <class T, class Tiling, class Layer>
struct ImplicitGemmUniversalShape : Tiling {
  static constexpr int vector = 16 / static_cast<int>(sizeof(T)), taps = Layer::taps;
  static constexpr int step_c = Tiling::step_c;
  static constexpr bool plain = Tiling::plain, exact = std::is_same_v<T, int8_t>;
  using Sum = std::conditional_t<exact, int32_t, float>;
  static_assert(vector >= 4, "lanes read four channels as one");
  static_assert(plain || Tiling::bytes == exact, "matrix units of the element type");
  static_assert(plain || has_fragments<T>, "matrix units of the GPU");
  // The powers of two that divide a slice, and a step.
  static constexpr int whole_slice = Tiling::slice & -Tiling::slice, whole = step_c & -step_c;
  // Products that one instruction sums (with plain arithmetic those that a lane reads as one), and
  // how many of these are channels of the same tap.
  static constexpr int fragment = plain && exact                           ? least(whole_slice, 16)
                                  : plain                                  ? 4
                                  : Tiling::arithmetic == Products::tf32x3 ? 8
                                  : exact                                  ? 32
                                                                           : 16;
  static constexpr int across = least(whole_slice, fragment);
  static constexpr int taps_together = fragment / across;
  // Channels that a thread brings as one.
  static constexpr int piece = step_c % vector == 0 ? vector : least(whole, exact ? 8 : 4);
  static constexpr int pieces = step_c / piece;
  // Rows begin some banks apart, so that lanes of several rows meet no bank twice: an odd number of
  // vectors of 16 bytes or, where four rows are read by pairs of floats, 8 banks.
  static constexpr int pitch(int row) {
    return Tiling::arithmetic == Products::tf32x3 ? row + (24 - row % 16) % 16
                                                  : (ceil_div(row, vector) | 1) * vector;
  }
  static constexpr int filter_row = pitch(taps * step_c);
  static __device__ int filter_place(int channel, int tap) {
    return (channel / piece * taps + tap) * piece + channel % piece;
  }
  static constexpr int element = step_c == 4 ? 4 : pitch(step_c);
  static constexpr int filters = Tiling::tile_c * filter_row;
  static constexpr int buffer = filters + ceil_div(Tiling::patch * element, vector) * vector;
  // Whether each lane of matrix units for bytes stores its own sums: of `group` fragments whose
  // columns lie so that a lane's are neighbours. Others pass LDS.
  static constexpr bool direct = exact && Tiling::bytes && !Tiling::mfma && Tiling::last &&
                                 Tiling::slices == 1 && Tiling::cluster == 1;
  static constexpr int group = direct ? least(Tiling::wave_c & -Tiling::wave_c, 64) / 8 : 1;
  // The channel, of the tile's, whose filter lies in a row of LDS.
  static __device__ int channel_of_row(int row) {
    if constexpr (group == 1) return row;
    const int fragment_ = row / 8 % group, column = row % 8;
    return row / (8 * group) * 8 * group + column / 2 * 2 * group + fragment_ * 2 + column % 2;
  }
  // The sums, in the ring's place afterwards: rows of what lies side by side in the output.
  static constexpr int sum_row =
      Tiling::last ? Tiling::tile_c + (Tiling::tile_c % 16 ? 0 : 8) : Tiling::tile_p + 4;
  static constexpr int sums = (Tiling::last ? Tiling::tile_p : Tiling::tile_c) * sum_row;
  static_assert((Tiling::last ? Tiling::tile_c : Tiling::tile_p) % Tiling::vector_out == 0,
                "rows of whole vectors");
  // Bytes: the ring, the table of the patch, and a vector of zeros.
  static constexpr int table_at = Tiling::stages * buffer * static_cast<int>(sizeof(T));
  static constexpr int zeros_at = table_at + ceil_div(Tiling::patch, 4) * 16;
  static constexpr int joined_bytes =
      direct ? 0 : Tiling::slices * sums * static_cast<int>(sizeof(Sum));
  // Behind them, of bytes, sums of the filters, by some threads each, which take words or vectors.
  static constexpr int filter_bytes = taps * step_c, filter_unit = filter_bytes % 16 ? 4 : 16;
  static constexpr int threads_of_filter =
      exact ? power_of_two(least(filter_bytes / filter_unit, Tiling::threads / Tiling::tile_c)) : 0;
  static constexpr int filter_sums_at = greatest(zeros_at + 16, joined_bytes);
  static constexpr int lds_bytes =
      filter_sums_at + threads_of_filter * Tiling::tile_c * static_cast<int>(sizeof(Sum));
};

}  // namespace dscore
