// The walk of row reuse (Liu et al. 2024, §4.2) and column reuse (Lu et al. 2021): every row of one
// image is loaded once, and added into all rows of the other that its taps connect it with.
//
// Order of additions, as the reference backend has it: rows that are walked over, within these
// filter columns, both ascending. A row outside the image is left out, a column outside is 0 · w.
#pragma once

#include "row_reuse/rows.hpp"

namespace dscore {

template <class T, class Tiling, class View, class Shape_, class Results>
struct RowWalk : RowLane<T, Tiling, View, Shape_, Results> {
  using Shape = Shape_;
  using t = Tiling;
  using Arguments = typename Results::Arguments;
  using Block = RowLane<T, t, View, Shape, Results>;
  using L = typename Block::L;
  using Rows = typename Block::Rows;
  using Columns = typename Block::Columns;
  using Images = typename Block::Images;
  using Block::s, Block::thread, Block::lane, Block::plane, Block::live, Block::x, Block::w;
  using Block::out_row, Block::out_column, Block::in_row, Block::in_column, Block::column_end;
  using Block::span_start, Block::out_start, Block::column_tiles, Block::input_plane;
  using Block::ends_amid_vector, Block::out_first, Block::out_end, Block::lds, Block::barrier;
  using Block::reaches, Block::row_inside, Block::start_load;
  static constexpr int threads = t::threads, wavefront = t::wavefront;
  static constexpr int own = Columns::step(t::thread_w);  // columns a lane owns
  static constexpr int held = Columns::under(t::thread_w);
  static constexpr int rows = Rows::under(t::thread_h);
  // Rows that a thread accumulates at a time; their registers are recycled.
  static constexpr int live_rows = Rows::live(t::thread_h);
  static constexpr int alignment =
      t::through_lds ? 16 : greatest(t::vector_in, t::vector_out) * int{sizeof(T)};
  using Move = typename Block::Move;

  // Whether a tap connects column `offset` of a thread's rows with one that it writes.
  static constexpr __host__ __device__ bool under_tap(int offset) {
    for (int c = 0; c < t::thread_w; c++)
      for (int g = 0; g < L::kernel_w; g++)
        if (Columns::position(c, g) == offset) return true;
    return false;
  }
  // With column reuse, whether a lane loads its own column `offset`, for itself or a neighbour.
  static constexpr __host__ __device__ bool owned(int offset) {
    for (int other = offset; other < held; other += own)
      if (under_tap(other)) return true;
    return false;
  }

  T *out;
  float accumulators[live_rows][t::thread_w], row[greatest(held, own)], taps[L::taps];
  float bias;  // read before the first store, behind which the compiler would leave it

  __device__ void load_taps(const Arguments &args) {
    const T *filter = w + plane % s.out_channels * L::taps;
    DSCORE_UNROLL
    for (int tap = 0; tap < L::taps; tap++)
      taps[tap] = live ? static_cast<float>(filter[tap]) : 0.0f;
    bias = live ? Results::bias_of(args, plane % s.out_channels) : 0.0f;
  }

  // Columns from `offset` on of local row i, from LDS or from memory.
  template <int Count>
  __device__ Pack<T, Count> columns(int i, int offset, bool there) const {
    const int at = input_plane(plane) + (in_row + i) * Images::in_width(s) + in_column + offset;
    // Not by loads of constant memory (__ldg), which compilers may move: x is none, as the kernel
    // before may write it while this one begins.
    return vector_or_zeros<Count>(t::through_lds ? lds + (at - span_start) : x + at, there);
  }

  __device__ bool column_inside(int offset, int end) const {
    const int last = (column_tiles(s) * t::lanes_w - 1) * own;
    const int first = Columns::first(s.pad_left);
    return reaches(in_column, first, first + last, offset, end);
  }

  __device__ float column(int i, int offset, bool wanted) const {
    const bool there = wanted && column_inside(offset, column_end);
    return static_cast<float>(columns<1>(i, offset, there).at[0]);
  }

  // The column with which the vector begins that holds column `offset`.
  static constexpr __host__ __device__ int vector_start(int offset) {
    return offset - (offset + t::vector_in - t::phase) % t::vector_in;
  }
  // Whether all of that vector is held, and a tap connects it.
  static constexpr __host__ __device__ bool whole_vector(int start) {
    if (t::vector_in == 1 || start < 0 || start + t::vector_in > held) return false;
    for (int offset = start; offset < start + t::vector_in; offset++)
      if (under_tap(offset)) return true;
    return false;
  }

  __device__ void fetch_vector(int i, int start, bool wanted) {
    // Rows are multiples of a vector, which therefore lies inside the image or outside.
    const bool there = wanted && column_inside(start, Images::in_width(s));
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

  // Every row once, into all the written rows that its taps connect it with.
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
      DSCORE_UNROLL
      for (int n = 0; n < Rows::at_once; n++)
        if (const int r = Rows::complete(i) + n; r < least(Rows::complete(i + 1), t::thread_h))
          finish(r, args);
    }
  }

  __device__ void add_row(int i) {
    DSCORE_UNROLL
    for (int f = 0; f < L::kernel_h; f++) {
      const int r = Rows::written(i, f);
      if (r >= 0 && r < t::thread_h) accumulate(r % live_rows, f * L::kernel_w);
    }
  }

  __device__ void accumulate(int slot, int first_tap) {
    DSCORE_UNROLL
    for (int c = 0; c < t::thread_w; c++)
      DSCORE_UNROLL
      for (int g = 0; g < L::kernel_w; g++)
        if (const int offset = Columns::position(c, g); offset >= 0)
          accumulators[slot][c] += row[offset] * taps[first_tap + g];
  }

  // Gives away local written row r, which is complete, and clears its registers for another.
  __device__ void finish(int r, const Arguments &args) {
    constexpr int vector = t::vector_out;
    const int height = Images::out_height(s), width = Images::out_width(s);
    DSCORE_UNROLL
    for (int c = 0; c < t::thread_w; c += vector) {
      float *const done = accumulators[r % live_rows] + c;
      const int at = (plane * height + out_row + r) * width + out_column + c;
      const bool inside_w = column_tiles(s) * t::lanes_w * t::thread_w == width;
      if (live && (height % t::thread_h == 0 || out_row + r < height) &&
          (inside_w || out_column + c < width)) {
        T *const to = t::out_through_lds ? lds + (t::span_in + at - out_start) : out + at;
        float biases[vector];
        DSCORE_UNROLL
        for (int j = 0; j < vector; j++) biases[j] = bias;
        write_vector(to, Results::template apply_each<vector>(done, args, biases, at));
      }
      DSCORE_UNROLL
      for (int j = 0; j < vector; j++) done[j] = 0.0f;
    }
  }

  __device__ RowWalk(const Arguments &args, const Shape &shape)
      : Block(args, shape), out(static_cast<T *>(args.out)), accumulators{} {}

  __device__ void run(const Arguments &args) {
    if constexpr (t::ahead) admit_next_kernel();
    if constexpr (t::through_lds) start_load();
    // Filters come to registers meanwhile.
    load_taps(args);
    if constexpr (t::through_lds) Move::wait_for_load(barrier, ends_amid_vector());
    // Lanes without outputs stay away, unless their neighbours take columns from them.
    if (t::column_reuse || live) walk(args);
    if constexpr (t::out_through_lds)
      Move::template store<t::span_out>(out, lds + t::span_in, out_first(), out_end(), thread);
  }
};

}  // namespace dscore
