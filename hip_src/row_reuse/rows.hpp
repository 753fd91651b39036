// The rows of a block of row reuse: where they come from, and how they come to its LDS.
#pragma once

#include "row_reuse/block.hpp"
#include "support/vendor.hpp"

namespace dscore {

// Results makes sums to results, and knows the arguments of the kernel.
template <class T, class Tiling, class View, class Shape, class Results>
struct RowSource : RowReuseBlock<T, Tiling, View, Shape, Results> {
  using t = Tiling;
  using Arguments = typename Results::Arguments;
  using Block = RowReuseBlock<T, t, View, Shape, Results>;
  using L = typename Block::L;
  using Rows = typename Block::Rows;
  using Columns = typename Block::Columns;
  using Images = typename Block::Images;
  using Move = typename Block::Move;
  using Block::s, Block::thread, Block::first_plane;
  using Block::span_start, Block::row_tiles, Block::column_tiles;
  using Block::span_end, Block::vectors_end, Block::ends_amid_vector;
  // LDS holds the block's rows, its results, and the barrier of their transfer.
  static constexpr int lds_bytes =
      t::through_lds
          ? (t::span_in + t::span_out) * int{sizeof(T)} + int{sizeof(TransferBarrier)}
          : 0;
  static_assert(t::span_in * sizeof(T) % lds_alignment == 0, "results begin aligned");

  // Column tile fastest, then row tile, then planes.
  static __host__ __device__ int blocks(const Shape &s) {
    return column_tiles(s) * row_tiles(s) * ceil_div(s.batch * s.out_channels, t::planes);
  }

  const T *x, *w;  // x: what is walked over
  T *lds = nullptr;
  TransferBarrier *barrier = nullptr;

  // Starts the load of the block's rows, in vectors from that on in which the first row begins. Of
  // small elements words are read, whose last ones may be past the images' end.
  __device__ void start_load() const {
    Move::template start_load<t::span_in>(barrier, lds, x + span_start, vectors_end() - span_start,
                                          thread);
    const int at = vectors_end() + thread;
    if (ends_amid_vector() && at < span_end()) lds[at - span_start] = x[at];
    else if (sizeof(T) == 1 && ends_amid_vector() && at < ceil_div(span_end(), 4) * 4)
      lds[at - span_start] = T(0);
  }

  // Brings rows and filters to the L2 cache, where it does no harm that the kernel before may still
  // write to them: compute units share it, and keep nothing of what is only prefetched.
  __device__ void prefetch() const {
    if (thread != 0) return;
    prefetch_span(x + span_start, vectors_end() - span_start);
    const int filter = first_plane % s.out_channels;
    const int first = ceil_div(filter * L::taps, Move::vector) * Move::vector;
    const int end = least(filter + t::planes, s.out_channels) * L::taps;
    prefetch_span(w + first, (end - first) / Move::vector * Move::vector);
  }

  // Whether offset + first is inside, for a lane whose `first` is within lowest..highest: where it
  // is for all lanes, a compiler that knows the sizes leaves the question out.
  static __device__ bool reaches(int first, int lowest, int highest, int offset, int size) {
    return (lowest + offset >= 0 && highest + offset < size) || inside(first + offset, size);
  }
  __device__ RowSource(const Arguments &args, const Shape &shape)
      : Block(shape), x(static_cast<const T *>(View::walked(args))),
        w(static_cast<const T *>(args.w)) {
    if constexpr (t::through_lds) {
      if constexpr (t::ahead) prefetch();
      lds = block_lds<T, lds_bytes / int{sizeof(T)}>();
      barrier = reinterpret_cast<TransferBarrier *>(lds + t::span_in + t::span_out);
      Move::prepare(barrier, thread);
    }
  }
};

// A lane of a block: its plane, and the first row and column that it writes and walks over.
template <class T, class Tiling, class View, class Shape, class Results>
struct RowLane : RowSource<T, Tiling, View, Shape, Results> {
  using t = Tiling;
  using Block = RowSource<T, t, View, Shape, Results>;
  using Rows = typename Block::Rows;
  using Columns = typename Block::Columns;
  using Images = typename Block::Images;
  using Block::s, Block::thread, Block::row_end, Block::reaches;

  int lane, plane, out_row, out_column, in_row, in_column;
  bool live;

  __device__ RowLane(const typename Block::Arguments &args, const Shape &shape)
      : Block(args, shape), lane(thread % t::lanes_w) {
    plane = Block::first_plane + thread / (t::lanes_w * t::lanes_h);
    out_row = Block::top + thread / t::lanes_w % t::lanes_h * t::thread_h;
    out_column = Block::left + lane * t::thread_w;
    in_row = Rows::step(out_row) + Rows::first(s.pad_top);
    in_column = Columns::step(out_column) + Columns::first(s.pad_left);
    // Lanes past the last column stay: their neighbours at the left take columns from them.
    live = thread < t::used_threads && plane < Block::planes(s) && out_row < Images::out_height(s);
  }

  __device__ bool row_inside(int i) const {
    const int last = (ceil_div(Images::out_height(s), t::thread_h) - 1) * t::thread_h;
    const int first = Rows::first(s.pad_top);
    return reaches(in_row, first, first + Rows::step(last), i, row_end);
  }
};

}  // namespace dscore
