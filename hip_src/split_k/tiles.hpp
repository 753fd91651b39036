// The tiles of the split sum over pixels (split_k/kernel.hpp): which of them and which steps a
// block takes, where they lie, and how they come to LDS.
#pragma once

#include "support/bulk_copy.hpp"
#include "support/ring.hpp"

namespace dscore {

template <class T, class t, class Layer, class Shape, class Arguments>
struct SplitKTiles : KernelOn<T, Arguments> {
  static constexpr int threads = t::threads;

  static __host__ __device__ int area(const Shape &s) { return s.out_height * s.out_width; }
  static __host__ __device__ int pixels(const Shape &s) { return s.batch * area(s); }
  static __host__ __device__ int tiles_o(const Shape &s) {
    return ceil_div(s.out_channels, t::tile_o);
  }
  static __host__ __device__ int tiles_i(const Shape &s) {
    return ceil_div(s.in_channels, t::tile_i);
  }
  // Block of the cluster fastest, then tiles: blocks that read the same pixels follow one another.
  static int blocks(const Shape &s) { return tiles_o(s) * tiles_i(s) * t::shares; }

  // A row is a channel's pixels of a step, or all channels' plane of an image.
  template <int Channels, int Vector>
  using TileWalk =
      std::conditional_t<t::planes, Walk<threads, t::slices, Channels * t::row / Vector>,
                         Walk<threads, Channels, t::step / Vector>>;
  using GradientWalk = TileWalk<t::tile_o, t::vector_g>;
  using ImageWalk = TileWalk<t::tile_i, t::vector_x>;
  using GradientVector = Pack<T, t::vector_g>;
  using ImageVector = Pack<T, t::vector_x>;
  static constexpr bool fetched = t::stages == 2;

  const T *gradient, *x;
  const Shape &s;
  int thread, lane, wave_o, wave_i, slice, part, rank, first_o, first_i, first_step, steps;
  GradientVector gradient_temp[fetched ? GradientWalk::count : 1];
  ImageVector image_temp[fetched ? ImageWalk::count : 1];

  __device__ SplitKTiles(const Arguments &args, const Shape &shape)
      : gradient(static_cast<const T *>(args.gradient)), x(static_cast<const T *>(args.x)),
        s(shape), thread(threadIdx.x), lane(threadIdx.x % t::wavefront) {
    const int wave = thread / t::wavefront;
    slice = wave / (t::waves_o * t::waves_i);
    wave_i = wave % t::waves_i * t::wave_i;
    wave_o = wave / t::waves_i % t::waves_o * t::wave_o;
    const int tile = static_cast<int>(blockIdx.x) / t::cluster;
    rank = static_cast<int>(blockIdx.x) % t::cluster;
    first_o = tile % tiles_o(s) * t::tile_o;
    first_i = tile / tiles_o(s) % tiles_i(s) * t::tile_i;
    part = tile / tiles_o(s) / tiles_i(s);
    // Steps are shared evenly: the first shares have one more.
    const int all = ceil_div(pixels(s), t::step), share = part * t::cluster + rank;
    first_step = share * (all / t::shares) + least(share, all % t::shares);
    steps = all / t::shares + (share < all % t::shares);
  }

  // Where channel 0 of a pixel lies, of the gradient and of the input. Where there is none, nothing
  // is read from what is given instead, which need but be aligned as vectors are.
  static constexpr int nowhere = -4;
  __device__ bool held(int pixel) const { return pixels(s) % t::step == 0 || pixel < pixels(s); }
  __device__ int gradient_offset(int pixel) const {
    if (!held(pixel)) return nowhere;
    return pixel / area(s) * s.out_channels * area(s) + pixel % area(s);
  }
  __device__ int image_offset(int pixel) const {
    if (!held(pixel)) return nowhere;
    const int image = pixel / area(s), place = pixel % area(s);
    const int plane = image * s.in_channels * s.height * s.width;
    if constexpr (t::vector_x > 1) return plane + place;
    const int row = place / s.out_width * Layer::stride_h - s.pad_top;
    const int column = place % s.out_width * Layer::stride_w - s.pad_left;
    const bool there = inside(row, s.height) && inside(column, s.width);
    return there ? plane + row * s.width + column : nowhere;
  }

  // Calls take(i, place in the buffer, source, whether it exists) for the thread's vectors.
  template <class Take>
  __device__ void each_gradient(int step, Take take) const {
    const bool whole = s.out_channels % t::tile_o == 0;
    if constexpr (t::planes)
      each_of_planes<GradientWalk, t::tile_o, t::vector_g>(step, gradient, first_o,
                                                           s.out_channels, whole, take);
    else
      each<GradientWalk, t::vector_g>(step, gradient, area(s), first_o, s.out_channels, whole,
                                      [&](int pixel) { return gradient_offset(pixel); }, take);
  }
  template <class Take>
  __device__ void each_image(int step, Take take) const {
    const bool whole = s.in_channels % t::tile_i == 0;
    if constexpr (t::planes)
      each_of_planes<ImageWalk, t::tile_i, t::vector_x>(step, x, first_i, s.in_channels, whole,
                                                        take);
    else
      each<ImageWalk, t::vector_x>(step, x, s.height * s.width, first_i, s.in_channels, whole,
                                   [&](int pixel) { return image_offset(pixel); }, take);
  }
  // The channels of a tile are one piece of an image.
  template <class Walk, int Channels, int Vector, class Take>
  __device__ void each_of_planes(int step, const T *from, int first, int channels, bool whole,
                                 Take take) const {
    const int image = (first_step + step) * t::slices, all = channels * t::row;
    DSCORE_UNROLL
    for (int i = 0; i < Walk::count; i++) {
      if (!Walk::part(i, thread)) continue;
      const int row = Walk::row(i, thread), at = Walk::column(i, thread) * Vector;
      const bool there = (s.batch % t::slices == 0 || image + row < s.batch) &&
                         (whole || first * t::row + at < all);
      take(i, row * Channels * t::row + at, from + (image + row) * all + first * t::row + at,
           there);
    }
  }
  template <class Walk, int Vector, class Offset, class Take>
  __device__ void each(int step, const T *from, int plane, int first, int channels, bool whole,
                       Offset offset, Take take) const {
    const int pixel = (first_step + step) * t::step;
    // A thread that keeps to its column has one pixel, or vector of them, in all of its rows.
    const int own_offset = offset(pixel + Walk::column(0, thread) * Vector);
    const T *own = from + own_offset + (first + Walk::row(0, thread)) * plane;
    DSCORE_UNROLL
    for (int i = 0; i < Walk::count; i++) {
      if (!Walk::part(i, thread)) continue;
      const int row = Walk::row(i, thread), column = Walk::column(i, thread) * Vector;
      const int at = Walk::straight ? own_offset : offset(pixel + column);
      take(i, row * t::row + column,
           Walk::straight ? own + i * Walk::rows_apart * plane : from + at + (first + row) * plane,
           at >= 0 && (whole || first + row < channels));
    }
  }

  // The same pieces by bulk copies; what a channel or an image past the last would be stays as it
  // is.
  using Bulk = BulkCopy<T, threads, t::wavefront>;
  __device__ int images(int step) const { return s.batch - (first_step + step) * t::slices; }
  __device__ void copy_planes(TransferBarrier *barrier, T *lds, int step) const {
    if (!Bulk::copies(thread)) return;
    const int first = (first_step + step) * t::slices, pieces = least(t::slices, images(step));
    const int elements_g = least(t::tile_o, s.out_channels - first_o) * t::row;
    const int elements_x = least(t::tile_i, s.in_channels - first_i) * t::row;
    Bulk::expect(barrier, pieces * (elements_g + elements_x), thread);
    for (int at = 0; at < pieces; at++) {
      Bulk::template copy<t::tile_o * t::row>(
          barrier, lds + at * t::tile_o * t::row,
          gradient + ((first + at) * s.out_channels + first_o) * t::row, elements_g, thread);
      Bulk::template copy<t::tile_i * t::row>(
          barrier, lds + t::gradients + at * t::tile_i * t::row,
          x + ((first + at) * s.in_channels + first_i) * t::row, elements_x, thread);
    }
  }

  __device__ void copy(T *lds, int step) const {
    each_gradient(step, [&](int, int at, const T *from, bool there) {
      copy_async<t::vector_g * sizeof(T)>(lds + at, from, there);
    });
    each_image(step, [&](int, int at, const T *from, bool there) {
      copy_async<t::vector_x * sizeof(T)>(lds + t::gradients + at, from, there);
    });
  }
  __device__ void fetch(int step) {
    each_gradient(step, [&](int i, int, const T *from, bool there) {
      gradient_temp[i] = vector_or_zeros<t::vector_g>(from, there);
    });
    each_image(step, [&](int i, int, const T *from, bool there) {
      image_temp[i] = vector_or_zeros<t::vector_x>(from, there);
    });
  }
  __device__ void put(T *lds) const {
    each_gradient(0, [&](int i, int at, const T *, bool) {
      *reinterpret_cast<GradientVector *>(lds + at) = gradient_temp[i];
    });
    each_image(0, [&](int i, int at, const T *, bool) {
      *reinterpret_cast<ImageVector *>(lds + t::gradients + at) = image_temp[i];
    });
  }
};

}  // namespace dscore
