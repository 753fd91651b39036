// The tiling and the block of row reuse: what is chosen, which rows of which planes a block takes,
// and where they lie.
#pragma once

#include "row_reuse/view.hpp"
#include "support/bulk_copy.hpp"

namespace dscore {

// Where the rows of an image pass on their way: to registers, through LDS, and results as well.
enum class Staging { registers, lds, both };

// SpanIn, SpanOut: elements of LDS for the block's rows and results, which lie in one piece in
// memory. VectorIn, VectorOut: columns that a lane moves as one, as a row of the image is a
// multiple of them; the first that a lane's row begins with is its column Phase. LeadH, LeadW: of
// the input gradient's axes. They depend on the image's sizes, so that a kernel for any sizes has
// them as arguments. Units: matrix units multiply, and what is a lane's place else is a sixteenth
// of a wavefront's (row_reuse/toeplitz_walk.hpp).
template <int ThreadH, int ThreadW, int LanesH, int LanesW, int Planes, Staging Staging_,
          bool ColumnReuse, bool Ahead, bool Units, int Repeat, int SpanIn, int SpanOut,
          int VectorIn, int Phase, int VectorOut, int Wavefront, int LeadH = 0, int LeadW = 0>
struct RowReuseTiling {
  static constexpr int thread_h = ThreadH, thread_w = ThreadW, lanes_h = LanesH;
  static constexpr int lead_h = LeadH, lead_w = LeadW;
  static constexpr int lanes_w = LanesW, planes = Planes, wavefront = Wavefront;
  static constexpr int span_in = SpanIn, span_out = SpanOut;
  static constexpr int vector_in = VectorIn, phase = Phase, vector_out = VectorOut;
  static constexpr bool through_lds = Staging_ != Staging::registers;
  static constexpr bool out_through_lds = Staging_ == Staging::both, column_reuse = ColumnReuse;
  static constexpr bool ahead = Ahead, units = Units;
  static constexpr int repeat = Repeat;  // planes that a wavefront takes one after the other
  static constexpr int plane_waves = ceil_div(LanesH * LanesW, 16);  // on matrix units
  static constexpr int used_threads =
      Units ? Planes / Repeat * plane_waves * Wavefront : Planes * LanesH * LanesW;
  static constexpr int threads = ceil_div(used_threads, Wavefront) * Wavefront;
  static_assert(!ColumnReuse || (Wavefront % LanesW == 0 && !through_lds),
                "a row of lanes is a segment");
  static_assert(ThreadW % VectorOut == 0 && (!ColumnReuse || VectorIn == 1), "vectors");
};

template <class T, class t, class View, class Shape, class Results>
struct RowReuseBlock : View::template Kernel<T, Results> {
  using L = typename View::L;
  using Rows = typename View::Rows;
  using Columns = typename View::Columns;
  using Images = typename View::template Images<Shape>;
  using Move = BulkCopy<T, t::threads, t::wavefront>;
  // Rows that are walked over under the block's.
  static constexpr int block_rows = Rows::under(t::lanes_h * t::thread_h);

  static __host__ __device__ int row_tiles(const Shape &s) {
    return ceil_div(Images::out_height(s), t::lanes_h * t::thread_h);
  }
  static __host__ __device__ int column_tiles(const Shape &s) {
    return ceil_div(Images::out_width(s), t::lanes_w * t::thread_w);
  }
  static __host__ __device__ int planes(const Shape &s) { return s.batch * s.out_channels; }
  static __host__ __device__ int multiplier(const Shape &s) { return s.out_channels / s.groups; }

  const Shape &s;
  int thread, first_plane, top, left;  // the first row and column that the block writes
  int row_end, column_end, span_start, out_start;

  __device__ explicit RowReuseBlock(const Shape &shape) : s(shape), thread(threadIdx.x) {
    int block = blockIdx.x;
    left = block % column_tiles(s) * (t::lanes_w * t::thread_w);
    block /= column_tiles(s);
    top = block % row_tiles(s) * (t::lanes_h * t::thread_h);
    first_plane = block / row_tiles(s) * t::planes;
    // Rows and columns past the last tap of the last output are not loaded, though they may exist.
    // All taps may meet padding, and these must not be below 0: `inside` takes sizes as unsigned.
    const int last_row = Rows::under(Images::out_height(s)) + Rows::first(s.pad_top);
    const int last_column = Columns::under(Images::out_width(s)) + Columns::first(s.pad_left);
    row_end = greatest(0, least(Images::in_height(s), last_row));
    column_end = greatest(0, least(Images::in_width(s), last_column));
    const int first = plane_start() + greatest(first_row(), 0) * Images::in_width(s);
    span_start = first / Move::vector * Move::vector;
    out_start = out_first() / Move::vector * Move::vector;
  }

  // First element walked over under a written plane: of a forward convolution, plane
  // o / multiplier of all images' planes.
  __device__ int input_plane(int output_plane) const {
    return output_plane / multiplier(s) * Images::in_height(s) * Images::in_width(s);
  }
  // The row that the block's first written one begins to walk over; below 0 in the padding.
  __device__ int first_row() const { return Rows::step(top) + Rows::first(s.pad_top); }
  __device__ int plane_start() const { return input_plane(first_plane); }
  __device__ int out_first() const {
    return (first_plane * Images::out_height(s) + top) * Images::out_width(s);
  }
  __device__ int out_end() const {
    const int last_plane = least(first_plane + t::planes, planes(s)) - 1;
    const int last_row = least(top + t::lanes_h * t::thread_h, Images::out_height(s));
    return (last_plane * Images::out_height(s) + last_row) * Images::out_width(s);
  }
  __device__ int elements() const {
    return planes(s) / multiplier(s) * Images::in_height(s) * Images::in_width(s);
  }
  __device__ bool ends_amid_vector() const { return elements() % Move::vector != 0; }
  // One past the block's rows, and past the vectors that hold them: these may hold more, but
  // nothing past the images' last element.
  __device__ int span_end() const {
    const int planes_in = (least(first_plane + t::planes, planes(s)) - 1) / multiplier(s) -
                          first_plane / multiplier(s);
    const int last_row = least(first_row() + block_rows, row_end);
    return (planes_in * Images::in_height(s) + last_row) * Images::in_width(s) + plane_start();
  }
  __device__ int vectors_end() const {
    // Rows that all lie below the image begin behind both.
    const int end = least(ceil_div(span_end(), Move::vector), elements() / Move::vector);
    return greatest(span_start, end * Move::vector);
  }
};

}  // namespace dscore
