// Depthwise convolution: row reuse (Liu et al. 2024, §4.2) and column reuse (Lu et al. 2021).
//
// Order of additions, as the reference backend has it: filter rows, within these filter columns,
// both ascending; then bias. A row outside the image is left out, a column outside it is 0 · w.
#pragma once

#include "common.hpp"

namespace dscore {

template <int ThreadH, int ThreadW, int LanesH, int LanesW, int Planes, bool ThroughLds,
          bool ColumnReuse, int Wavefront>
struct DepthwiseTiling {
  static constexpr int thread_h = ThreadH, thread_w = ThreadW, lanes_h = LanesH;
  static constexpr int lanes_w = LanesW, planes = Planes, wavefront = Wavefront;
  static constexpr bool through_lds = ThroughLds, column_reuse = ColumnReuse;
  static constexpr int used_threads = Planes * LanesH * LanesW;
  static constexpr int threads = ceil_div(used_threads, Wavefront) * Wavefront;
  static_assert(!ColumnReuse || (Wavefront % LanesW == 0), "a row of lanes is a segment");
};

template <class T, class Tiling, class Layer, class Shape_, class Epilogue>
struct Depthwise {
  using Shape = Shape_;
  using t = Tiling;
  using L = Layer;
  static constexpr int threads = t::threads, wavefront = t::wavefront;
  static constexpr int own = t::thread_w * L::stride_w;  // columns a lane owns
  static constexpr int held = (t::thread_w - 1) * L::stride_w + L::span_w;
  static constexpr int rows = (t::thread_h - 1) * L::stride_h + L::span_h;
  // Output rows that a thread accumulates at a time; their registers are recycled.
  static constexpr int live_rows = least(t::thread_h, (L::span_h - 1) / L::stride_h + 1);
  static constexpr int tile_h = (t::lanes_h * t::thread_h - 1) * L::stride_h + L::span_h;
  static constexpr int tile_w = (t::lanes_w * t::thread_w - 1) * L::stride_w + L::span_w;
  static constexpr int tile = t::planes * tile_h * tile_w;
  static constexpr int lds_elements = t::through_lds ? tile + t::planes * L::taps : 0;
  static constexpr int lds_bytes = lds_elements * static_cast<int>(sizeof(T));
  static constexpr int filter_registers = t::through_lds ? L::kernel_w : L::taps;

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
  int out_row, out_column, in_row, in_column, row_end, column_end;
  bool used, live;
  float sums[live_rows][t::thread_w], row[greatest(held, own)], taps[filter_registers];

  // First element of x under an output plane: channel o / multiplier of its image.
  __device__ int input_plane(int output_plane) const {
    const int image = output_plane / s.out_channels, o = output_plane % s.out_channels;
    const int channel = o / (s.out_channels / s.groups);
    return (image * s.in_channels + channel) * s.height * s.width;
  }

  __device__ void load_taps() {
    const T *filter = w + plane % s.out_channels * L::taps;
    DSCORE_UNROLL
    for (int tap = 0; tap < L::taps; tap++)
      taps[tap] = live ? static_cast<float>(filter[tap]) : 0.0f;
  }

  // The block's input tile [planes][tile_h][tile_w], then its filters.
  __device__ void stage(T *lds) const {
    const int row = first_tile_row(), column = first_tile_column();
    for (int e = thread; e < tile; e += threads) {
      const int p = first_plane + e / (tile_h * tile_w);
      const int i = row + e / tile_w % tile_h, j = column + e % tile_w;
      const bool there = p < s.batch * s.out_channels && inside(i, row_end) &&
                         inside(j, column_end);
      lds[e] = there ? x[input_plane(p) + i * s.width + j] : T(0);
    }
    for (int e = thread; e < t::planes * L::taps; e += threads) {
      const int p = first_plane + e / L::taps;
      const bool there = p < s.batch * s.out_channels;
      lds[tile + e] = there ? w[p % s.out_channels * L::taps + e % L::taps] : T(0);
    }
    __syncthreads();
  }

  __device__ int first_tile_row() const {
    const int strip = thread / t::lanes_w % t::lanes_h;
    return in_row - strip * t::thread_h * L::stride_h;
  }
  __device__ int first_tile_column() const { return in_column - lane * own; }

  __device__ float column(const T *lds, int i, int offset, bool wanted) const {
    if constexpr (t::through_lds) {
      const int strip = thread / t::lanes_w % t::lanes_h;
      const int top = (plane_in_block * tile_h + strip * t::thread_h * L::stride_h + i) * tile_w;
      return used ? static_cast<float>(lds[top + lane * own + offset]) : 0.0f;
    }
    const bool there = wanted && inside(in_column + offset, column_end);
    return there ? static_cast<float>(
                       x[input_plane(plane) + (in_row + i) * s.width + in_column + offset])
                 : 0.0f;
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

  __device__ void fetch_taps(const T *lds, int f) {
    if constexpr (t::through_lds) {
      const T *filter = lds + tile + plane_in_block * L::taps + f * L::kernel_w;
      DSCORE_UNROLL
      for (int g = 0; g < L::kernel_w; g++) taps[g] = used ? static_cast<float>(filter[g]) : 0.0f;
    }
  }

  // Every input row once, into all the output rows that it lies under.
  __device__ void walk(const T *lds) {
    DSCORE_UNROLL
    for (int i = 0; i < rows; i++) {
      const bool there = live && inside(in_row + i, row_end);
      fetch_row(lds, i, there);
      DSCORE_UNROLL
      for (int f = 0; f < L::kernel_h; f++) {
        const int down = i - f * L::dilation_h, r = down / L::stride_h;
        if (down < 0 || down % L::stride_h != 0 || r >= t::thread_h) continue;
        fetch_taps(lds, f);
        if (there) accumulate(r % live_rows, t::through_lds ? 0 : f * L::kernel_w);
      }
      const int complete = i - L::span_h + 1;
      if (complete >= 0 && complete % L::stride_h == 0) finish(complete / L::stride_h);
    }
  }

  __device__ void accumulate(int slot, int first_tap) {
    DSCORE_UNROLL
    for (int c = 0; c < t::thread_w; c++)
      DSCORE_UNROLL
      for (int g = 0; g < L::kernel_w; g++)
        sums[slot][c] += row[c * L::stride_w + g * L::dilation_w] * taps[first_tap + g];
  }

  // Stores local output row r, which is complete, and clears its registers for another.
  __device__ void finish(int r) {
    DSCORE_UNROLL
    for (int c = 0; c < t::thread_w; c++) {
      float &sum = sums[r % live_rows][c];
      if (live && out_row + r < s.out_height && out_column + c < s.out_width)
        out[(plane * s.out_height + out_row + r) * s.out_width + out_column + c] =
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
    row_end = least(s.height, (s.out_height - 1) * L::stride_h + L::span_h - s.pad_top);
    column_end = least(s.width, (s.out_width - 1) * L::stride_w + L::span_w - s.pad_left);
    used = thread < t::used_threads;
    // Lanes past the last column stay: their neighbours at the left take columns from them.
    live = used && plane < s.batch * s.out_channels && out_row < s.out_height;
  }

  static __device__ void body(const Arguments &args, const Shape &shape) {
    Depthwise self(args, shape);
    if constexpr (t::through_lds) {
      DSCORE_LDS(T, lds, lds_elements);
      self.stage(lds);
      self.walk(lds);
    } else {
      self.load_taps();
      self.walk(nullptr);
    }
  }
};

}  // namespace dscore
