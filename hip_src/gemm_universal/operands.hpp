// The operands of a product of matrices (gemm_universal/product.hpp): which element of each lies
// where in memory, and how tiles of them come to LDS.
//
// An operand is rows of elements that lie side by side. Where these are the summed ones, as
// channels of pixels in NHWC are, it lies `along` the sum; else its rows are the summed ones, and
// it lies across. A tile lies in LDS as in memory.
#pragma once

#include "support/ring.hpp"

namespace dscore {

// The pixels of a layer's images, counted through: of a pixel of the one side that of the other, or
// -1 where there is none.
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

// What operations have in common whose results need nothing beside their sums.
struct PlainRoles {
  struct Nothing {};
  using Points = Nothing;
  using Results = PlainResults;
  template <int>
  using OfRow = Nothing;
  template <int>
  using OfColumn = Nothing;
  static constexpr unsigned optional = 0;
  static constexpr bool scaled = false, of_columns = false, sums_pixels = false;
  template <class T, int Width>
  static constexpr int alignment = Width * static_cast<int>(sizeof(T));
  template <class Arguments>
  static __device__ Nothing points_of(const Arguments &) { return {}; }
  template <int Width, class Arguments>
  static __device__ Nothing of_row(const Arguments &, int) { return {}; }
  template <int Width, class Arguments>
  static __device__ Nothing of_column(const Arguments &, int) { return {}; }
};
// What an epilogue reads beside sums, by all results and by channels, if it does.
template <class Epilogue, bool Reads>
struct ReadBeside {
  using Points = PlainRoles::Nothing;
  template <int>
  using Channels = PlainRoles::Nothing;
};
template <class Epilogue>
struct ReadBeside<Epilogue, true> {
  using Points = typename Epilogue::PointsOf;
  template <int Width>
  using Channels = typename Epilogue::template ChannelsOf<Width>;
};

// Where channel 0 of a pixel lies in images of planes; less than 0 where no pixel is.
__host__ __device__ inline int in_planes(int pixel, int channels, int area) {
  return pixel < 0 ? pixel : pixel / area * channels * area + pixel % area;
}

// How `Threads` threads go over a tile of `Rows` rows of `Columns` vectors: each keeps to its
// column, so that its addresses are a constant apart, and those beyond whole rows have none.
template <int Threads, int Rows, int Columns, bool PowerOfTwo>
struct ColumnWalk {
  static constexpr int power(int most) { return most < 2 ? 1 : 2 * power(most / 2); }
  static constexpr int rows_apart = PowerOfTwo ? power(Threads / Columns) : Threads / Columns;
  static constexpr int count = ceil_div(Rows, rows_apart);
  static constexpr bool straight = true;
  static __device__ inline int row(int i, int thread) { return thread / Columns + i * rows_apart; }
  static __device__ inline int column(int, int thread) { return thread % Columns; }
  static __device__ inline bool part(int i, int thread) {
    return (rows_apart * Columns == Threads || thread < rows_apart * Columns) &&
           (Rows % rows_apart == 0 || row(i, thread) < Rows);
  }
};

// Tile of an operand: Extent rows (or columns) of the results by Step of the summed elements, moved
// by vectors. Where a fragment's columns are to be neighbours, its rows of LDS hold others of
// memory: of 8 * Group rows, the pairs of the eight rows of a fragment lie 2 * Group apart.
template <class T, int Threads, int Extent, int Step, bool Along, bool Gathered, int Vector,
          int Pitch, int Group, class Source>
struct OperandTile {
  static constexpr int rows = Along ? Extent : Step, columns = Along ? Step : Extent;
  static constexpr int elements = rows * Pitch;
  static_assert(columns % Vector == 0 && Pitch % Vector == 0, "rows of whole vectors");
  using Steps = std::conditional_t<
      (columns / Vector <= Threads),
      ColumnWalk<Threads, rows, least(columns / Vector, Threads), (Group > 1)>,
      Walk<Threads, rows, columns / Vector>>;
  using Move = Pack<T, Vector>;
  static constexpr int count = Steps::count;
  // Nothing is read from where no element is, which need but be aligned as vectors are.
  static constexpr int nowhere = -16;

  const T *from;
  Source source;
  int first, thread;
  // Where the results' rows (or columns) begin that a thread brings: the same in all steps.
  static constexpr bool kept = Along ? Gathered : Steps::straight;
  int offsets[kept && Along ? count : 1];

  static __device__ constexpr int row_in_memory(int row) {
    if constexpr (Group == 1) return row;
    const int fragment = row / 8 % Group, place = row % 8;
    return row / (8 * Group) * (8 * Group) + place / 2 * 2 * Group + fragment * 2 + place % 2;
  }

  // `first` is the first row, or column, of the results.
  __device__ OperandTile(const void *memory, const Source &source_, int first_, int thread_)
      : from(static_cast<const T *>(memory)), source(source_), first(first_), thread(thread_) {
    DSCORE_UNROLL
    for (int i = 0; i < (kept && Along ? count : 1); i++)
      offsets[i] = Along ? row_offset(first + row_of(i))
                         : column_offset(first + Steps::column(i, thread) * Vector);
  }

  // The same operand's tile of other results.
  __device__ OperandTile moved(int to) const { return OperandTile(from, source, to, thread); }

  // Where a row begins, and what a column adds to that; less than 0 where a stride or padding has
  // none. Where all are there, addresses are a constant apart.
  __device__ int row_offset(int row) const {
    const int offset = source.row(row);
    return Gathered && offset < 0 ? nowhere : offset;
  }
  __device__ int column_offset(int column) const {
    const int offset = source.column(column);
    return Gathered && offset < 0 ? nowhere : offset;
  }
  __device__ bool row_held(int row) const {
    const int rows = Along ? source.extent() : source.depth();
    return rows % (Along ? Extent : Step) == 0 || row < rows;
  }
  __device__ bool column_held(int column) const {
    const int columns = Along ? source.depth() : source.extent();
    return columns % (Along ? Step : Extent) == 0 || column < columns;
  }
  // The row of memory of a thread's vector: an exchange of bits, of which a thread's own and those
  // of a vector's number are others.
  static constexpr int apart = Steps::rows_apart;
  __device__ int row_of(int i) const {
    if constexpr (Steps::straight)
      return row_in_memory(Steps::row(0, thread)) + row_in_memory(i * apart);
    else return row_in_memory(Steps::row(i, thread));
  }

  // Calls take(i, place in the tile, source, whether it exists, its row, its column) for the
  // thread's vectors, `Together` of which are unrolled.
  template <int Together = count, class Take>
  __device__ void each(int step, Take take) const {
    DSCORE_ROLLED
    for (int from_i = 0; from_i < count; from_i += Together)
      each_of<Together>(step, from_i, take);
  }
  template <int Together, class Take>
  __device__ void each_of(int step, int from_i, Take take) const {
    DSCORE_UNROLL
    for (int j = 0; j < Together; j++) {
      const int i = Together == count ? j : from_i + j;
      if ((count % Together != 0 && i >= count) || !Steps::part(i, thread)) continue;
      const int place = Steps::row(i, thread), place_column = Steps::column(i, thread) * Vector;
      const int row = Along ? first + row_of(i) : step * Step + place;
      const int column = (Along ? step * Step : first) + place_column;
      const int of_row = kept && Along ? offsets[i] : row_offset(row);
      const int of_column = kept && !Along ? offsets[0] : column_offset(column);
      take(i, place * Pitch + place_column, from + of_row + of_column,
           row_held(row) && column_held(column) && (!Gathered || (of_row | of_column) >= 0), row,
           column);
    }
  }

  // Less than words passes through registers, and many would take all of these.
  static constexpr bool small = Vector * sizeof(T) < 4 && !(kept && Along);
  static constexpr int copied = small ? least(8, count) : count;
  __device__ void copy(T *lds, int step) const {
    each<copied>(step, [&](int, int at, const T *element, bool there, int, int) {
      copy_async<Vector * int{sizeof(T)}>(lds + at, element, there);
    });
  }
  template <int Count>
  __device__ void fetch(Move (&moves)[Count], int step) const {
    each(step, [&](int i, int, const T *element, bool there, int, int) {
      moves[i] = vector_or_zeros<Vector>(element, there);
    });
  }
  // Multiplies the elements of a step that this thread has brought by factor(row, column).
  template <class Factor>
  __device__ void scale(T *lds, int step, Factor factor) const {
    each(step, [&](int, int at, const T *, bool there, int row, int column) {
      if (!there) return;
      const auto several = read_vector<Vector>(lds + at);
      float products[Vector];
      const auto factors = factor(row, column);
      DSCORE_UNROLL
      for (int j = 0; j < Vector; j++)
        products[j] = static_cast<float>(several.at[j]) * factors(j);
      write_vector(lds + at, rounded<T, Vector>(products));
    });
  }
  // Puts change(vector, row, column) in the place of each vector.
  template <class Change>
  __device__ void change(T *lds, int step, Change change) const {
    each(step, [&](int, int at, const T *, bool there, int row, int column) {
      if (!there) return;
      write_vector(lds + at, change(read_vector<Vector>(lds + at), row, column));
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
