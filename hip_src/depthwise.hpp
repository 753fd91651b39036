// Depthwise convolution: row reuse (Liu et al. 2024, §4.2) and column reuse (Lu et al. 2021).
//
// Order of additions, as the reference backend has it: filter rows, within these filter columns,
// both ascending; then bias. A row outside the image is left out, a column outside it is 0 · w.
#pragma once

#include "common.hpp"
#include "vendor.hpp"

namespace dscore {

// Where the rows of an image pass on their way: to registers, through LDS, and results as well.
enum class Staging { registers, lds, both };

// SpanIn, SpanOut: elements of LDS for the block's rows and results, which lie in one piece in
// memory; of an image size, so that a kernel for any sizes has them as arguments.
template <int ThreadH, int ThreadW, int LanesH, int LanesW, int Planes, Staging Staging_,
          bool ColumnReuse, int SpanIn, int SpanOut, int Wavefront>
struct DepthwiseTiling {
  static constexpr int thread_h = ThreadH, thread_w = ThreadW, lanes_h = LanesH;
  static constexpr int lanes_w = LanesW, planes = Planes, wavefront = Wavefront;
  static constexpr int span_in = SpanIn, span_out = SpanOut;
  static constexpr bool through_lds = Staging_ != Staging::registers;
  static constexpr bool out_through_lds = Staging_ == Staging::both, column_reuse = ColumnReuse;
  static constexpr int used_threads = Planes * LanesH * LanesW;
  static constexpr int threads = ceil_div(used_threads, Wavefront) * Wavefront;
  static_assert(!ColumnReuse || (Wavefront % LanesW == 0 && !through_lds),
                "a row of lanes is a segment");
};

template <class T, class Tiling, class Layer, class Shape_, class Epilogue>
struct Depthwise {
  using Shape = Shape_;
  using t = Tiling;
  using L = Layer;
  static constexpr int threads = t::threads, wavefront = t::wavefront, cluster = 1;
  static constexpr int own = t::thread_w * L::stride_w;  // columns a lane owns
  static constexpr int held = (t::thread_w - 1) * L::stride_w + L::span_w;
  static constexpr int rows = (t::thread_h - 1) * L::stride_h + L::span_h;
  // Output rows that a thread accumulates at a time; their registers are recycled.
  static constexpr int live_rows = least(t::thread_h, (L::span_h - 1) / L::stride_h + 1);
  // LDS holds the block's rows, its results, its filters.
  static constexpr int taps_at = t::span_in + t::span_out;
  static constexpr int lds_elements = taps_at + (t::through_lds ? t::planes * L::taps : 0);
  static constexpr int lds_bytes = lds_elements * static_cast<int>(sizeof(T));
  static constexpr int vector = 16 / static_cast<int>(sizeof(T));
  static constexpr int alignment = t::through_lds ? 16 : sizeof(T);

  static __host__ __device__ int row_tiles(const Shape &s) {
    return ceil_div(s.out_height, t::lanes_h * t::thread_h);
  }
  static __host__ __device__ int column_tiles(const Shape &s) {
    return ceil_div(s.out_width, t::lanes_w * t::thread_w);
  }
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

  const T *x, *w, *bias;
  T *out;
  const Shape &s;
  int thread, lane, plane_in_block, plane, first_plane;
  int out_row, out_column, in_row, in_column, row_end, column_end, span_start, out_start;
  bool used, live;
  float sums[live_rows][t::thread_w], row[greatest(held, own)], taps[L::taps];

  // First element of x under an output plane: plane o / multiplier of all images' planes.
  __device__ int input_plane(int output_plane) const {
    return output_plane / multiplier(s) * s.height * s.width;
  }

  __device__ void load_taps(const T *lds) {
    const T *filter = t::through_lds ? lds + taps_at + plane_in_block * L::taps
                                     : w + plane % s.out_channels * L::taps;
    DSCORE_UNROLL
    for (int tap = 0; tap < L::taps; tap++)
      taps[tap] = live ? static_cast<float>(filter[tap]) : 0.0f;
  }

  // Element of x from which on a whole row of vectors is copied: that of the block's first row.
  __device__ void ask(T *lds) const {
    const int planes_in = (least(first_plane + t::planes, planes(s)) - 1) / multiplier(s) -
                          first_plane / multiplier(s);
    const int last_row = least(first_row_in() + block_rows, row_end);
    const int end = (planes_in * s.height + last_row) * s.width + plane_start();
    // Vectors may hold more than the block's rows, but nothing past the images' last element.
    const int all = s.batch * s.in_channels * s.height * s.width;
    const int vectors_end = least(ceil_div(end, vector), all / vector) * vector;
    DSCORE_UNROLL
    for (int i = 0; i < ceil_div(t::span_in / vector, threads); i++) {
      const int at = (i * threads + thread) * vector;
      if (span_start + at < vectors_end) copy_async<16>(lds + at, x + span_start + at);
    }
    if (const int at = vectors_end + thread; at < end)
      copy_async<sizeof(T)>(lds + at - span_start, x + at);
    DSCORE_UNROLL
    for (int i = 0; i < ceil_div(t::planes * L::taps, threads); i++) {
      const int e = i * threads + thread, p = first_plane + e / L::taps;
      if (e < t::planes * L::taps && p < planes(s))
        copy_async<sizeof(T)>(lds + taps_at + e,
                              w + p % s.out_channels * L::taps + e % L::taps);
    }
    commit_copies();
  }

  // Results from LDS, a vector at a time where the block has all of it.
  __device__ void store_all(const T *lds) const {
    const int end = out_end();
    DSCORE_UNROLL
    for (int i = 0; i < ceil_div(t::span_out / vector, threads); i++) {
      const int at = (i * threads + thread) * vector, first = out_start + at;
      if (first >= out_first() && first + vector <= end)
        *reinterpret_cast<Pack<T, vector> *>(out + first) =
            *reinterpret_cast<const Pack<T, vector> *>(lds + at);
      else
        for (int j = 0; j < vector; j++)
          if (first + j >= out_first() && first + j < end) out[first + j] = lds[at + j];
    }
  }

  static __host__ __device__ int planes(const Shape &s) { return s.batch * s.out_channels; }
  static __host__ __device__ int multiplier(const Shape &s) { return s.out_channels / s.groups; }
  // Rows of input under the block's.
  static constexpr int block_rows = (t::lanes_h * t::thread_h - 1) * L::stride_h + L::span_h;
  __device__ int first_row_in() const {
    const int strip = thread / t::lanes_w % t::lanes_h;
    return in_row - strip * t::thread_h * L::stride_h;
  }
  __device__ int first_row_out() const {
    return out_row - thread / t::lanes_w % t::lanes_h * t::thread_h;
  }
  __device__ int plane_start() const {
    return first_plane / multiplier(s) * s.height * s.width;
  }
  __device__ int out_first() const {
    return (first_plane * s.out_height + first_row_out()) * s.out_width;
  }
  __device__ int out_end() const {
    const int last_plane = least(first_plane + t::planes, planes(s)) - 1;
    const int last_row = least(first_row_out() + t::lanes_h * t::thread_h, s.out_height);
    return (last_plane * s.out_height + last_row) * s.out_width;
  }

  __device__ float column(const T *lds, int i, int offset, bool wanted) const {
    const bool there = wanted && inside(in_column + offset, column_end);
    const int at = input_plane(plane) + (in_row + i) * s.width + in_column + offset;
    if constexpr (t::through_lds) return there ? static_cast<float>(lds[at - span_start]) : 0.0f;
    return there ? static_cast<float>(x[at]) : 0.0f;
  }

  // The columns of local row i; with column reuse the overlap comes from the lanes at the right.
  __device__ void fetch_row(const T *lds, int i, bool wanted) {
    if constexpr (!t::column_reuse) {
      DSCORE_UNROLL
      for (int offset = 0; offset < held; offset++)
        if (under_tap(offset)) row[offset] = column(lds, i, offset, wanted);
    } else {
      DSCORE_UNROLL
      for (int offset = 0; offset < own; offset++)
        if (owned(offset)) row[offset] = column(lds, i, offset, wanted);
      DSCORE_UNROLL
      for (int offset = own; offset < held; offset++) {
        if (!under_tap(offset)) continue;
        const int neighbour = offset / own;
        const bool past = lane + neighbour >= t::lanes_w;
        float passed = 0.0f;
        if (neighbour < t::lanes_w)
          passed = DSCORE_SHFL_DOWN(row[offset % own], neighbour, t::lanes_w);
        row[offset] = past ? column(lds, i, offset, wanted) : passed;
      }
    }
  }

  // Every input row once, into all the output rows that it lies under.
  __device__ void walk(T *lds) {
    DSCORE_UNROLL
    for (int i = 0; i < rows; i++) {
      const bool there = inside(in_row + i, row_end);
      fetch_row(lds, i, live && there);
      DSCORE_UNROLL
      for (int f = 0; f < L::kernel_h; f++) {
        const int down = i - f * L::dilation_h, r = down / L::stride_h;
        if (down < 0 || down % L::stride_h != 0 || r >= t::thread_h) continue;
        if (there) accumulate(r % live_rows, f * L::kernel_w);
      }
      const int complete = i - L::span_h + 1;
      if (complete >= 0 && complete % L::stride_h == 0) finish(lds + t::span_in, complete / L::stride_h);
    }
  }

  __device__ void accumulate(int slot, int first_tap) {
    DSCORE_UNROLL
    for (int c = 0; c < t::thread_w; c++)
      DSCORE_UNROLL
      for (int g = 0; g < L::kernel_w; g++)
        sums[slot][c] += row[c * L::stride_w + g * L::dilation_w] * taps[first_tap + g];
  }

  // Gives away local output row r, which is complete, and clears its registers for another.
  __device__ void finish(T *results, int r) {
    DSCORE_UNROLL
    for (int c = 0; c < t::thread_w; c++) {
      float &sum = sums[r % live_rows][c];
      const int at = (plane * s.out_height + out_row + r) * s.out_width + out_column + c;
      if (live && out_row + r < s.out_height && out_column + c < s.out_width)
        (t::out_through_lds ? results + (at - out_start) : out + at)[0] =
            Epilogue::apply(sum, bias, plane % s.out_channels);
      sum = 0.0f;
    }
  }

  __device__ Depthwise(const Arguments &args, const Shape &shape)
      : x(static_cast<const T *>(args.x)), w(static_cast<const T *>(args.w)),
        bias(static_cast<const T *>(args.bias)), out(static_cast<T *>(args.out)), s(shape),
        thread(threadIdx.x), lane(threadIdx.x % t::lanes_w), sums{} {
    int block = blockIdx.x;
    const int column_tile = block % column_tiles(s);
    block /= column_tiles(s);
    const int row_tile = block % row_tiles(s);
    first_plane = block / row_tiles(s) * t::planes;
    plane_in_block = thread / (t::lanes_w * t::lanes_h);
    plane = first_plane + plane_in_block;
    out_row = (row_tile * t::lanes_h + thread / t::lanes_w % t::lanes_h) * t::thread_h;
    out_column = (column_tile * t::lanes_w + lane) * t::thread_w;
    in_row = out_row * L::stride_h - s.pad_top;
    in_column = out_column * L::stride_w - s.pad_left;
    // Rows and columns past the last tap of the last output are not loaded, though they may exist.
    // All taps may meet padding, and these must not be below 0: `inside` takes sizes as unsigned.
    const int last_row = (s.out_height - 1) * L::stride_h + L::span_h - s.pad_top;
    const int last_column = (s.out_width - 1) * L::stride_w + L::span_w - s.pad_left;
    row_end = greatest(0, least(s.height, last_row));
    column_end = greatest(0, least(s.width, last_column));
    used = thread < t::used_threads;
    // Lanes past the last column stay: their neighbours at the left take columns from them.
    live = used && plane < s.batch * s.out_channels && out_row < s.out_height;
    span_start = (plane_start() + greatest(first_row_in(), 0) * s.width) / vector * vector;
    out_start = out_first() / vector * vector;
  }

  // Lanes without outputs stay away, unless their neighbours take columns from them.
  __device__ void start(T *lds) {
    if (!t::column_reuse && !live) return;
    load_taps(lds);
    walk(lds);
  }

  static __device__ void body(const Arguments &args, const Shape &shape) {
    Depthwise self(args, shape);
    if constexpr (t::through_lds) {
      T *lds = block_lds<T, lds_elements>();
      self.ask(lds);
      wait_copies<0>();
      __syncthreads();
      self.start(lds);
      if constexpr (t::out_through_lds) {
        __syncthreads();
        self.store_all(lds + t::span_in);
      }
    } else {
      self.start(nullptr);
    }
  }
};

}  // namespace dscore
