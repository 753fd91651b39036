// The operands of a product of matrices (gemm_universal/kernel.hpp): which element of each lies
// where in memory, and how tiles of them come to LDS.
//
// An operand is rows of elements that lie side by side. Where these are the summed ones, as
// channels of pixels in NHWC are, it lies `along` the sum; else its rows are the summed ones, and
// it lies across. A tile lies in LDS as in memory.
#pragma once

#include "support/ring.hpp"

namespace dscore {

// Rows of pixels, of which a layer with a stride or padding takes some: the pixel of a row, or -1
// where there is none.
template <class Layer, class Shape>
struct Pixels {
  static __host__ __device__ int of_output(const Shape &s) {
    return s.batch * s.out_height * s.out_width;
  }
  static __host__ __device__ int of_input(const Shape &s) { return s.batch * s.height * s.width; }
  // The input's pixel that an output's is made of.
  static __device__ int source(const Shape &s, int pixel) {
    const int area = s.out_height * s.out_width, image = pixel / area, place = pixel % area;
    const int row = place / s.out_width * Layer::stride_h - s.pad_top;
    const int column = place % s.out_width * Layer::stride_w - s.pad_left;
    const bool held = inside(row, s.height) && inside(column, s.width);
    return held ? (image * s.height + row) * s.width + column : -1;
  }
  // The output's pixel that is made of an input's.
  static __device__ int result(const Shape &s, int pixel) {
    const int area = s.height * s.width, image = pixel / area, place = pixel % area;
    const int row = place / s.width + s.pad_top, column = place % s.width + s.pad_left;
    const bool held = row % Layer::stride_h == 0 && column % Layer::stride_w == 0 &&
                      row / Layer::stride_h < s.out_height &&
                      column / Layer::stride_w < s.out_width;
    const int out_row = image * s.out_height + row / Layer::stride_h;
    return held ? out_row * s.out_width + column / Layer::stride_w : -1;
  }
};

// Tile of an operand: Extent rows (or columns) of the results by Step of the summed elements, moved
// by vectors. Where a fragment's columns are to be neighbours, its rows of LDS hold others of
// memory: of 8 * Group rows, the pairs of the eight rows of a fragment lie 2 * Group apart.
template <class T, int Threads, int Extent, int Step, bool Along, bool Gathered, int Vector,
          int Pitch, int Group>
struct OperandTile {
  static constexpr int rows = Along ? Extent : Step, columns = Along ? Step : Extent;
  static constexpr int elements = rows * Pitch;
  static_assert(columns % Vector == 0 && Pitch % Vector == 0, "rows of whole vectors");
  using Steps = Walk<Threads, rows, columns / Vector>;
  using Move = Pack<T, Vector>;
  static constexpr int count = Steps::count;
  // Nothing is read from where no row is, which need but be aligned as vectors are.
  static constexpr int nowhere = -16;

  const T *from;
  int first, thread;
  int offsets[Along && Gathered ? count : 1];

  static __device__ int row_in_memory(int row) {
    if constexpr (Group == 1) return row;
    const int fragment = row / 8 % Group, place = row % 8;
    return row / (8 * Group) * (8 * Group) + place / 2 * 2 * Group + fragment * 2 + place % 2;
  }

  // `first` is the first row, or column, of the results; `row_offset` where a row begins, or less
  // than 0.
  template <class RowOffset>
  __device__ OperandTile(const void *memory, int first_, int thread_, RowOffset row_offset)
      : from(static_cast<const T *>(memory)), first(first_), thread(thread_) {
    if constexpr (Along && Gathered) {
      DSCORE_UNROLL
      for (int i = 0; i < count; i++) {
        const int offset = row_offset(first + row_in_memory(Steps::row(i, thread)));
        offsets[i] = offset < 0 ? nowhere : offset;
      }
    }
  }

  // Calls take(i, place in the tile, source, whether it exists, its row, its column) for the
  // thread's vectors.
  template <class RowOffset, class Take>
  __device__ void each(int step, int depth, int size, RowOffset row_offset, Take take) const {
    DSCORE_UNROLL
    for (int i = 0; i < count; i++) {
      if (!Steps::part(i, thread)) continue;
      const int place = Steps::row(i, thread), place_column = Steps::column(i, thread) * Vector;
      const int row = Along ? first + row_in_memory(place) : step * Step + place;
      const int column = (Along ? step * Step : first) + place_column;
      int offset;
      if constexpr (Along && Gathered) offset = offsets[i];
      else offset = row_offset(row);
      const bool there = (Along ? depth % Step == 0 : size % Extent == 0) ||
                         column < (Along ? depth : size);
      take(i, place * Pitch + place_column, from + offset + column, there && offset >= 0, row,
           column);
    }
  }

  template <class RowOffset>
  __device__ void copy(T *lds, int step, int depth, int size, RowOffset row_offset) const {
    each(step, depth, size, row_offset, [&](int, int at, const T *source, bool there, int, int) {
      copy_async<Vector * int{sizeof(T)}>(lds + at, source, there);
    });
  }
  template <int Count, class RowOffset>
  __device__ void fetch(Move (&moves)[Count], int step, int depth, int size,
                        RowOffset row_offset) const {
    each(step, depth, size, row_offset, [&](int i, int, const T *source, bool there, int, int) {
      moves[i] = vector_or_zeros<Vector>(source, there);
    });
  }
  template <int Count>
  __device__ void put(T *lds, const Move (&moves)[Count]) const {
    DSCORE_UNROLL
    for (int i = 0; i < count; i++)
      if (Steps::part(i, thread))
        *reinterpret_cast<Move *>(lds + Steps::row(i, thread) * Pitch +
                                  Steps::column(i, thread) * Vector) = moves[i];
  }
};

}  // namespace dscore
