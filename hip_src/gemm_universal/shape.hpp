// The tiling of a product of matrices (gemm_universal/product.hpp), and what blocks keep in LDS.
#pragma once

#include "gemm_universal/operands.hpp"
#include "support/matrix_units.hpp"

namespace dscore {

enum class Products { plain, tf32x3, matrix16, matrix8 };

// VectorA, VectorB, VectorOut: elements that lie side by side and aligned in rows of the operands
// and of the result. Gathered: pixels are not all in their order, for a stride or padding. Last:
// the channels of a pixel lie side by side, and not the pixels of a channel.
template <int TileM, int TileN, int WaveM, int WaveN, int LanesM, int Slices, int Step, int Stages,
          int Cluster, int Parts, int Repeat, bool Staged, Products Arithmetic, int VectorA,
          int VectorB, int VectorOut, bool Gathered, bool Last, int Layout, int Wavefront>
struct GemmUniversalTiling {
  static constexpr int tile_m = TileM, tile_n = TileN, wave_m = WaveM, wave_n = WaveN;
  static constexpr int lanes_m = LanesM, slices = Slices, step = Step, stages = Stages;
  static constexpr int cluster = Cluster, parts = Parts, repeat = Repeat, wavefront = Wavefront;
  static constexpr int layout = Layout;
  static constexpr int vector_a = VectorA, vector_b = VectorB, vector_out = VectorOut;
  static constexpr bool gathered = Gathered, last = Last;
  static constexpr Products arithmetic = Arithmetic;
  static constexpr int waves_m = TileM / WaveM, waves_n = TileN / WaveN;
  static constexpr int threads = waves_m * waves_n * Slices * Wavefront, slice = Step / Slices;
  static constexpr int accumulators = WaveM * WaveN / Wavefront;
  // Whether each lane stores its own sums; else these pass through LDS.
  static constexpr bool direct = !Staged && Slices == 1 && Cluster == 1;
  static constexpr int sum_row = TileN + (TileN % 16 ? 0 : 8), sums = TileM * sum_row;
  static constexpr bool plain = Arithmetic == Products::plain;
  static constexpr bool bytes = Arithmetic == Products::matrix8;
  static constexpr int fragment = plain                            ? 4
                                  : Arithmetic == Products::tf32x3 ? 8
                                  : bytes                          ? 32
                                                                   : 16;
  static_assert(TileM % WaveM == 0 && TileN % WaveN == 0, "a block holds whole wavefronts");
  static_assert(Step % Slices == 0 && slice % fragment == 0, "slices of whole fragments");
  static_assert(TileN % VectorOut == 0, "rows of whole vectors");
  static_assert(Repeat == 1 || (Stages > 1 && Slices * Cluster * Parts == 1),
                "tiles of rows that follow one another in a ring");
  // Of AMD's matrix units.
  static constexpr bool mfma = !plain && Arithmetic != Products::tf32x3 && Wavefront == 64;
  static_assert(plain ? WaveM % LanesM == 0 && WaveN % (Wavefront / LanesM) == 0
                      : WaveM % 16 == 0 && WaveN % (mfma ? 16 : 8) == 0 && LanesM == 8 &&
                            (mfma || Wavefront == 32),
                "whole fragments");
  static_assert(Arithmetic != Products::tf32x3 || has_tf32, "matrix units");
};

// The greatest that is at most `most`, or 1.
constexpr int power_of_two(int most) { return most < 2 ? 1 : 2 * power_of_two(most / 2); }

// What depends on the operation and the element type, too.
template <class T, class Tiling, class Roles>
struct GemmUniversalShape : Tiling {
  static constexpr bool along_a = Roles::along_a, along_b = Roles::along_b;
  // Of signed bytes. Four bytes or more of an operand across the sum are turned together.
  static constexpr bool quantised = std::is_same_v<T, int8_t>;
  using Sum = std::conditional_t<quantised, int32_t, float>;
  static_assert(Tiling::plain || Tiling::bytes == quantised, "matrix units of the element type");
  static_assert(Tiling::plain || has_fragments<T>, "matrix units of the GPU");
  static_assert(!quantised || (Tiling::step / Tiling::slices % 16 == 0 && along_a),
                "vectors of bytes along the sum");
  // Columns of fragments that a lane holds side by side, as far as they make vectors of 16 bytes.
  static constexpr int most = 8 / static_cast<int>(sizeof(T));
  static constexpr bool paired = !Tiling::plain && !Tiling::mfma && along_b && Tiling::direct;
  static constexpr int group = !paired                                         ? 1
                               : Tiling::wave_n % (8 * most) == 0              ? most
                               : quantised && Tiling::wave_n % (4 * most) == 0 ? most / 2
                               : Tiling::wave_n % 16 == 0                      ? 2
                                                                               : 1;
  // Rows of a tile begin some banks apart, so that lanes reading several meet no bank twice: an odd
  // number of vectors of 16 bytes, or, where four rows are read by pairs of floats, 8 banks.
  static constexpr int pitch(int row, bool along) {
    constexpr int vector = 16 / static_cast<int>(sizeof(T));
    if (Tiling::arithmetic == Products::tf32x3 && along) return row % 16 == 8 ? row : row + 8;
    return (ceil_div(row, vector) | 1) * vector;
  }
  static constexpr int pitch_a = pitch(along_a ? Tiling::step : Tiling::tile_m, along_a);
  static constexpr int pitch_b = pitch(along_b ? Tiling::step : Tiling::tile_n, along_b);
  using A = OperandTile<T, Tiling::threads, Tiling::tile_m, Tiling::step, along_a, Tiling::gathered,
                        Tiling::vector_a, pitch_a, 1, typename Roles::A>;
  using B = OperandTile<T, Tiling::threads, Tiling::tile_n, Tiling::step, along_b, Tiling::gathered,
                        Tiling::vector_b, pitch_b, group, typename Roles::B>;
  static constexpr int buffer = A::elements + B::elements;
  static constexpr int joined_bytes =
      Tiling::direct ? 0 : Tiling::slices * Tiling::sums * static_cast<int>(sizeof(Sum));
  // Sums of the filters, which lie in the rows or the columns, by some threads each.
  static constexpr int filters = Tiling::last ? Tiling::tile_n : Tiling::tile_m;
  static constexpr int threads_of_filter =
      quantised ? power_of_two(least(Tiling::step / 16, Tiling::threads / filters)) : 0;
  static constexpr int filter_sums_bytes =
      filters * threads_of_filter * static_cast<int>(sizeof(Sum));
  // Of tiles of rows that follow one another, the columns' elements stay.
  static constexpr int ring_bytes =
      (Tiling::repeat > 1 ? B::elements + Tiling::stages * A::elements : Tiling::stages * buffer) *
      static_cast<int>(sizeof(T));
  static constexpr int filter_sums_at =
      Tiling::repeat > 1 ? ring_bytes + joined_bytes : greatest(ring_bytes, joined_bytes);
  static constexpr int lds_bytes = filter_sums_at + filter_sums_bytes;
};

}  // namespace dscore
