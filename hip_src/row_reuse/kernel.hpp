// Depthwise convolution: row reuse (Liu et al. 2024, §4.2) and column reuse (Lu et al. 2021).
//
// Order of additions, as the reference backend has it: filter rows, within these filter columns,
// both ascending; then bias. A row outside the image is left out, a column outside it is 0 · w.
#pragma once

#include "row_reuse/block.hpp"
#include "support/vendor.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape_, class Epilogue>
struct RowReuse : RowReuseBlock<T, Tiling, Layer, Shape_, Epilogue> {
  using Shape = Shape_;
  using t = Tiling;
  using L = Layer;
  using Arguments = typename Epilogue::Arguments;
  using Block = RowReuseBlock<T, t, L, Shape, Epilogue>;
  using Block::s, Block::thread, Block::lane, Block::plane, Block::first_plane, Block::live;
  using Block::out_row, Block::out_column, Block::in_row, Block::in_column;
  using Block::row_end, Block::column_end, Block::span_start, Block::out_start;
  using Block::row_tiles, Block::column_tiles, Block::planes, Block::input_plane;
  using Block::span_end, Block::vectors_end, Block::ends_amid_vector, Block::out_first;
  using Block::out_end;
  static constexpr int threads = t::threads, wavefront = t::wavefront;
  static constexpr int own = t::thread_w * L::stride_w;  // columns a lane owns
  static constexpr int held = (t::thread_w - 1) * L::stride_w + L::span_w;
  static constexpr int rows = (t::thread_h - 1) * L::stride_h + L::span_h;
  // Output rows that a thread accumulates at a time; their registers are recycled.
  static constexpr int live_rows = least(t::thread_h, (L::span_h - 1) / L::stride_h + 1);
  // LDS holds the block's rows, its results, and the barrier of their transfer.
  static constexpr int lds_bytes =
      t::through_lds
          ? (t::span_in + t::span_out) * int{sizeof(T)} + int{sizeof(TransferBarrier)}
          : 0;
  static constexpr int alignment =
      t::through_lds ? 16 : greatest(t::vector_in, t::vector_out) * int{sizeof(T)};
  using Move = typename Block::Move;
  static_assert(t::span_in * sizeof(T) % lds_alignment == 0, "results begin aligned");

  // Column tile fastest, then row tile, then planes.
  static int blocks(const Shape &s) {
    return column_tiles(s) * row_tiles(s) * ceil_div(s.batch * s.out_channels, t::planes);
  }
  // Whether some output of a thread has a tap on column `offset` of its rows.
  static constexpr __host__ __device__ bool under_tap(int offset) {
    for (int c = 0; c < t::thread_w; c++)
      for (int g = 0; g < L::kernel_w; g++)
        if (c * L::stride_w + g * L::dilation_w == offset) return true;
    return false;
  }
  // With column reuse, whether a lane loads its own column `offset`, for itself or a neighbour.
  static constexpr __host__ __device__ bool owned(int offset) {
    for (int other = offset; other < held; other += own)
      if (under_tap(other)) return true;
    return false;
  }

  const T *x, *w;
  T *out, *lds = nullptr;
  TransferBarrier *barrier = nullptr;
  float accumulators[live_rows][t::thread_w], row[greatest(held, own)], taps[L::taps];

  __device__ void load_taps() {
    const T *filter = w + plane % s.out_channels * L::taps;
    DSCORE_UNROLL
    for (int tap = 0; tap < L::taps; tap++)
      taps[tap] = live ? static_cast<float>(filter[tap]) : 0.0f;
  }

  // Starts the load of the block's rows, in vectors from that on in which the first row begins.
  __device__ void start_load() const {
    Move::template start_load<t::span_in>(barrier, lds, x + span_start, vectors_end() - span_start,
                                          thread);
    if (const int at = vectors_end() + thread; ends_amid_vector() && at < span_end())
      lds[at - span_start] = x[at];
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

  // Columns from `offset` on of local row i, from LDS or from memory.
  template <int Count>
  __device__ Pack<T, Count> columns(int i, int offset, bool there) const {
    const int at = input_plane(plane) + (in_row + i) * s.width + in_column + offset;
    // Not by loads of constant memory (__ldg), which compilers may move: x is none, as the kernel
    // before may write it while this one begins.
    return vector_or_zeros<Count>(t::through_lds ? lds + (at - span_start) : x + at, there);
  }

  // Whether offset + first is inside, for a lane whose `first` is within lowest..highest: where it
  // is for all lanes, a compiler that knows the sizes leaves the question out.
  static __device__ bool reaches(int first, int lowest, int highest, int offset, int size) {
    return (lowest + offset >= 0 && highest + offset < size) || inside(first + offset, size);
  }
  __device__ bool row_inside(int i) const {
    const int last = (ceil_div(s.out_height, t::thread_h) - 1) * t::thread_h * L::stride_h;
    return reaches(in_row, -s.pad_top, last - s.pad_top, i, row_end);
  }
  __device__ bool column_inside(int offset, int end) const {
    const int last = (column_tiles(s) * t::lanes_w - 1) * own;
    return reaches(in_column, -s.pad_left, last - s.pad_left, offset, end);
  }

  __device__ float column(int i, int offset, bool wanted) const {
    const bool there = wanted && column_inside(offset, column_end);
    return static_cast<float>(columns<1>(i, offset, there).at[0]);
  }

  // The column with which the vector begins that holds column `offset`.
  static constexpr __host__ __device__ int vector_start(int offset) {
    return offset - (offset + t::vector_in - t::phase) % t::vector_in;
  }
  // Whether all of that vector is held, and some output has a tap on it.
  static constexpr __host__ __device__ bool whole_vector(int start) {
    if (t::vector_in == 1 || start < 0 || start + t::vector_in > held) return false;
    for (int offset = start; offset < start + t::vector_in; offset++)
      if (under_tap(offset)) return true;
    return false;
  }

  __device__ void fetch_vector(int i, int start, bool wanted) {
    // Rows are multiples of a vector, which therefore lies inside the image or outside.
    const bool there = wanted && column_inside(start, s.width);
    const auto read = columns<t::vector_in>(i, start, there);
    DSCORE_UNROLL
    for (int j = 0; j < t::vector_in; j++) row[start + j] = static_cast<float>(read.at[j]);
  }

  // The columns of local row i; with column reuse the overlap comes from the lanes at the right.
  __device__ void fetch_row(int i, bool wanted) {
    if constexpr (!t::column_reuse) {
      DSCORE_UNROLL
      for (int offset = 0; offset < held; offset++) {
        if (whole_vector(vector_start(offset))) {
          if (vector_start(offset) == offset) fetch_vector(i, offset, wanted);
        } else if (under_tap(offset)) {
          row[offset] = column(i, offset, wanted);
        }
      }
    } else {
      DSCORE_UNROLL
      for (int offset = 0; offset < own; offset++)
        if (owned(offset)) row[offset] = column(i, offset, wanted);
      DSCORE_UNROLL
      for (int offset = own; offset < held; offset++) {
        if (!under_tap(offset)) continue;
        const int neighbour = offset / own;
        const bool past = lane + neighbour >= t::lanes_w;
        float passed = 0.0f;
        if (neighbour < t::lanes_w)
          passed = DSCORE_SHFL_DOWN(row[offset % own], neighbour, t::lanes_w);
        row[offset] = past ? column(i, offset, wanted) : passed;
      }
    }
  }

  // Every input row once, into all the output rows that it lies under.
  __device__ void walk(const Arguments &args) {
    DSCORE_UNROLL
    for (int i = 0; i < rows; i++) {
      // Lanes that are not live only pass columns on, which all lanes of a wavefront take part in.
      const bool there = row_inside(i);
      if (t::column_reuse) fetch_row(i, live && there);
      if (there) {
        if (!t::column_reuse) fetch_row(i, true);
        add_row(i);
      }
      const int complete = i - L::span_h + 1;
      if (complete >= 0 && complete % L::stride_h == 0)
        finish(complete / L::stride_h, args);
    }
  }

  __device__ void add_row(int i) {
    DSCORE_UNROLL
    for (int f = 0; f < L::kernel_h; f++) {
      const int down = i - f * L::dilation_h, r = down / L::stride_h;
      if (down >= 0 && down % L::stride_h == 0 && r < t::thread_h)
        accumulate(r % live_rows, f * L::kernel_w);
    }
  }

  __device__ void accumulate(int slot, int first_tap) {
    DSCORE_UNROLL
    for (int c = 0; c < t::thread_w; c++)
      DSCORE_UNROLL
      for (int g = 0; g < L::kernel_w; g++)
        accumulators[slot][c] += row[c * L::stride_w + g * L::dilation_w] * taps[first_tap + g];
  }

  // Gives away local output row r, which is complete, and clears its registers for another.
  __device__ void finish(int r, const Arguments &args) {
    constexpr int vector = t::vector_out;
    DSCORE_UNROLL
    for (int c = 0; c < t::thread_w; c += vector) {
      float *const done = accumulators[r % live_rows] + c;
      const int at = (plane * s.out_height + out_row + r) * s.out_width + out_column + c;
      const bool inside_w = column_tiles(s) * t::lanes_w * t::thread_w == s.out_width;
      if (live && (s.out_height % t::thread_h == 0 || out_row + r < s.out_height) &&
          (inside_w || out_column + c < s.out_width)) {
        T *const to = t::out_through_lds ? lds + (t::span_in + at - out_start) : out + at;
        *reinterpret_cast<Pack<T, vector> *>(to) =
            Epilogue::template apply<vector>(done, args, plane % s.out_channels, at);
      }
      DSCORE_UNROLL
      for (int j = 0; j < vector; j++) done[j] = 0.0f;
    }
  }

  __device__ RowReuse(const Arguments &args, const Shape &shape)
      : Block(shape), x(static_cast<const T *>(args.x)), w(static_cast<const T *>(args.w)),
        out(static_cast<T *>(args.out)), accumulators{} {
    if constexpr (t::through_lds) {
      if constexpr (t::ahead) prefetch();
      lds = block_lds<T, lds_bytes / int{sizeof(T)}>();
      barrier = reinterpret_cast<TransferBarrier *>(lds + t::span_in + t::span_out);
      Move::prepare(barrier, thread);
    }
  }

  __device__ void run(const Arguments &args) {
    if constexpr (t::ahead) admit_next_kernel();
    if constexpr (t::through_lds) start_load();
    // Filters come to registers meanwhile.
    load_taps();
    if constexpr (t::through_lds) Move::wait_for_load(barrier, ends_amid_vector());
    // Lanes without outputs stay away, unless their neighbours take columns from them.
    if (t::column_reuse || live) walk(args);
    if constexpr (t::out_through_lds)
      Move::template store<t::span_out>(out, lds + t::span_in, out_first(), out_end(), thread);
  }
};

}  // namespace dscore
