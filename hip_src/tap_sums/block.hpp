// The tiling and the block of tap sums: which channels, images and rows a block takes, and how
// they come to its LDS.
#pragma once

#include "row_reuse/view.hpp"
#include "support/bulk_copy.hpp"

namespace dscore {

// SpanX, SpanG: elements of LDS for the rows of one image that a block takes, of x and of the
// gradient, which lie in one piece in memory. VectorX, VectorG: columns of a row that a lane moves
// as one; the first that begins a vector of x is its column Phase. They depend on the image's
// sizes, so that a kernel for any sizes has them as arguments.
template <int ThreadH, int ThreadW, int LanesH, int LanesW, int Planes, int Images, int Slices,
          int Stages, int TapsH, int TapsW, int Cluster, bool Ahead, int SpanX, int SpanG,
          int VectorX, int Phase, int VectorG, int Wavefront>
struct TapSumsTiling {
  static constexpr int thread_h = ThreadH, thread_w = ThreadW, lanes_h = LanesH;
  static constexpr int lanes_w = LanesW, planes = Planes, images = Images, slices = Slices;
  static constexpr int stages = Stages, taps_h = TapsH, taps_w = TapsW, taps = TapsH * TapsW;
  static constexpr int cluster = Cluster;
  static constexpr int shares = Slices * Cluster;  // blocks that take the units of one channel tile
  static constexpr int span_x = SpanX, span_g = SpanG, wavefront = Wavefront;
  static constexpr int vector_x = VectorX, phase = Phase, vector_g = VectorG;
  static constexpr bool ahead = Ahead;
  static constexpr int plane_threads = LanesH * LanesW;
  static constexpr int used_threads = Images * Planes * plane_threads;
  static constexpr int threads = ceil_div(used_threads, Wavefront) * Wavefront;
  static_assert(ThreadW % VectorG == 0, "vectors");
};

// A filter's sums of several slices go to a workspace, slice by slice.
template <class T, class t>
using TapSumsKernel =
    KernelOn<T, std::conditional_t<(t::slices > 1), WorkspaceArguments, WeightGradientArguments>>;

template <class T, class t, class L, class Shape>
struct TapSumsBlock : TapSumsKernel<T, t> {
  // Of x under the gradient, for the tile of taps.
  using Rows = ForwardAxis<t::taps_h, L::stride_h, L::dilation_h>;
  using Columns = ForwardAxis<t::taps_w, L::stride_w, L::dilation_w>;
  using Move = BulkCopy<T, t::threads, t::wavefront>;
  static constexpr int block_rows = t::lanes_h * t::thread_h;  // of the gradient
  static constexpr int stage_elements = t::images * (t::span_x + t::span_g);
  static constexpr int tap_tiles_h = ceil_div(L::kernel_h, t::taps_h);
  static constexpr int tap_tiles_w = ceil_div(L::kernel_w, t::taps_w);

  static __host__ __device__ int channel_tiles(const Shape &s) {
    return ceil_div(s.out_channels, t::planes);
  }
  static __host__ __device__ int row_tiles(const Shape &s) {
    return ceil_div(s.out_height, block_rows);
  }
  // What a block takes at a time: rows of as many images as it has room for.
  static __host__ __device__ int units(const Shape &s) {
    return ceil_div(s.batch, t::images) * row_tiles(s);
  }
  // Block of the cluster fastest, then channel tile, then slice, then tile of taps.
  static int blocks(const Shape &s) {
    return channel_tiles(s) * t::shares * tap_tiles_h * tap_tiles_w;
  }
  static __host__ __device__ int multiplier(const Shape &s) { return s.out_channels / s.groups; }

  const Shape &s;
  const T *x, *gradient;
  T *lds = nullptr;
  TransferBarrier *barriers = nullptr;
  int thread, lane, strip, plane, image, first_channel, rank, slice, first_tap_h, first_tap_w;
  int pad_top, pad_left, row_end, column_end, unit_end;

  template <class Arguments>
  __device__ TapSumsBlock(const Arguments &args, const Shape &shape)
      : s(shape), x(static_cast<const T *>(args.x)),
        gradient(static_cast<const T *>(args.gradient)), thread(threadIdx.x) {
    lane = thread % t::lanes_w, strip = thread / t::lanes_w % t::lanes_h;
    plane = thread / t::plane_threads % t::planes;
    image = thread / (t::plane_threads * t::planes);
    rank = static_cast<int>(blockIdx.x) % t::cluster;
    int block = static_cast<int>(blockIdx.x) / t::cluster;
    first_channel = block % channel_tiles(s) * t::planes;
    block /= channel_tiles(s);
    slice = block % t::slices;
    block /= t::slices;
    first_tap_h = block % tap_tiles_h * t::taps_h, first_tap_w = block / tap_tiles_h * t::taps_w;
    pad_top = s.pad_top - first_tap_h * L::dilation_h;
    pad_left = s.pad_left - first_tap_w * L::dilation_w;
    // Rows and columns past the last tap of the last output are not read, though they may exist.
    row_end = greatest(0, least(s.height, Rows::under(s.out_height) - pad_top));
    column_end = greatest(0, least(s.width, Columns::under(s.out_width) - pad_left));
    unit_end = least(first_unit() + ceil_div(units(s), t::shares), units(s));
  }
  __device__ int first_unit() const {
    return (slice * t::cluster + rank) * ceil_div(units(s), t::shares);
  }
  __device__ int image_of(int unit, int m) const { return unit / row_tiles(s) * t::images + m; }
  __device__ int first_row(int unit) const { return unit % row_tiles(s) * block_rows; }

  // Elements start..end of a tensor, where whole vectors reach: not past the tensor's last.
  struct Piece {
    int start, vectors_end, end;
    __device__ Piece(int first, int last, int elements)
        : start(first / Move::vector * Move::vector), end(last) {
      const int vectors = least(ceil_div(end, Move::vector), elements / Move::vector);
      vectors_end = greatest(start, vectors * Move::vector);
    }
  };
  __device__ int x_elements() const { return s.batch * s.in_channels * s.height * s.width; }
  __device__ int gradient_elements() const {
    return s.batch * s.out_channels * s.out_height * s.out_width;
  }
  __device__ bool ends_amid_vector() const {
    return x_elements() % Move::vector != 0 || gradient_elements() % Move::vector != 0;
  }
  __device__ int last_channel() const {
    return least(first_channel + t::planes, s.out_channels) - 1;
  }
  // First element of a plane: of x under channel o of the output, and of the gradient.
  __device__ int x_plane(int n, int o) const {
    return (n * s.in_channels + o / multiplier(s)) * s.height * s.width;
  }
  __device__ int gradient_plane(int n, int o) const {
    return (n * s.out_channels + o) * s.out_height * s.out_width;
  }
  // The rows of image m of a unit.
  __device__ Piece x_piece(int unit, int m) const {
    const int n = image_of(unit, m), top = first_row(unit) * L::stride_h - pad_top;
    const int end = least(top + Rows::under(block_rows), row_end);
    return {x_plane(n, first_channel) + greatest(top, 0) * s.width,
            x_plane(n, last_channel()) + end * s.width, x_elements()};
  }
  __device__ Piece gradient_piece(int unit, int m) const {
    const int n = image_of(unit, m), top = first_row(unit);
    const int end = least(top + block_rows, s.out_height);
    return {gradient_plane(n, first_channel) + top * s.out_width,
            gradient_plane(n, last_channel()) + end * s.out_width, gradient_elements()};
  }
  __device__ bool image_there(int unit, int m) const {
    return s.batch % t::images == 0 || image_of(unit, m) < s.batch;
  }

  // Where image m of a stage lies in LDS: all images' rows of x, then those of the gradient.
  __device__ T *x_in_lds(int stage, int m) const {
    return lds + stage * stage_elements + m * t::span_x;
  }
  __device__ T *gradient_in_lds(int stage, int m) const {
    return lds + stage * stage_elements + t::images * t::span_x + m * t::span_g;
  }

  // Starts the load of a unit to a stage; of none past the last.
  __device__ void start_load(int stage, int unit) const {
    if (unit < unit_end && (Move::copies(thread) || ends_amid_vector())) {
      int elements = 0;
      DSCORE_ROLLED
      for (int m = 0; m < t::images; m++)
        if (image_there(unit, m)) {
          const Piece rows = x_piece(unit, m), gradients = gradient_piece(unit, m);
          elements += rows.vectors_end - rows.start + gradients.vectors_end - gradients.start;
        }
      Move::expect(barriers + stage, elements, thread);
      DSCORE_ROLLED
      for (int m = 0; m < t::images; m++)
        if (image_there(unit, m)) {
          load<t::span_x>(stage, x_in_lds(stage, m), x, x_piece(unit, m));
          load<t::span_g>(stage, gradient_in_lds(stage, m), gradient, gradient_piece(unit, m));
        }
    }
    Move::end_copies();
  }
  // Brings the first units to the L2 cache, where it does no harm that the kernel before may still
  // write to them: compute units share it, and keep nothing of what is only prefetched.
  __device__ void prefetch() const {
    if (thread != 0) return;
    DSCORE_ROLLED
    for (int ahead = 0; ahead < t::stages * t::images; ahead++) {
      const int unit = first_unit() + ahead / t::images, m = ahead % t::images;
      if (unit >= unit_end || !image_there(unit, m)) continue;
      const Piece rows = x_piece(unit, m), gradients = gradient_piece(unit, m);
      prefetch_span(x + rows.start, rows.vectors_end - rows.start);
      prefetch_span(gradient + gradients.start, gradients.vectors_end - gradients.start);
    }
  }
  template <int Most>
  __device__ void load(int stage, T *to, const T *from, const Piece &piece) const {
    Move::template copy<Most>(barriers + stage, to, from + piece.start,
                              piece.vectors_end - piece.start, thread);
    if (const int at = piece.vectors_end + thread; ends_amid_vector() && at < piece.end)
      to[at - piece.start] = from[at];
  }
};

}  // namespace dscore
