// The tiles of the product of matrices (gemm/kernel.hpp): which of them a block takes, where they
// lie, and how they come to LDS.
#pragma once

#include "support/vendor.hpp"

namespace dscore {

template <class T, class t, class Layer, class Shape, class Epilogue>
struct GemmTiles : ConvKernel<T, Epilogue> {
  using Arguments = typename Epilogue::Arguments;
  static constexpr int threads = t::threads;
  // Two buffers are filled through registers, three or more by asynchronous copies.
  static constexpr bool async = t::stages > 2;

  static __host__ __device__ int pixels(const Shape &s) {
    return s.batch * s.out_height * s.out_width;
  }
  static __host__ __device__ int channel_tiles(const Shape &s) {
    return ceil_div(s.out_channels, t::tile_c);
  }
  // Steps that one block of a cluster takes; the last may have fewer, or none.
  static __host__ __device__ int steps_each(const Shape &s) {
    return ceil_div(ceil_div(s.in_channels, t::step_c), t::cluster);
  }

  // How the block's threads go over a tile of `Rows` rows of `Columns` vectors. Where a row takes a
  // whole part of the threads, a thread keeps to its column, and addresses are a constant apart.
  template <int Rows, int Columns>
  struct Walk {
    static constexpr int total = Rows * Columns, count = ceil_div(total, threads);
    static constexpr bool straight = threads % Columns == 0;
    static constexpr int rows_apart = straight ? threads / Columns : 0;
    static __device__ inline int row(int i, int thread) {
      return straight ? thread / Columns + i * rows_apart : (i * threads + thread) / Columns;
    }
    static __device__ inline int column(int i, int thread) {
      return straight ? thread % Columns : (i * threads + thread) % Columns;
    }
    static __device__ inline bool part(int i, int thread) {
      return total % threads == 0 || i * threads + thread < total;
    }
  };
  using FilterWalk = Walk<t::tile_c, t::step_c / t::vector_c>;
  using ImageWalk = Walk<t::step_c, t::tile_p / t::vector_p>;
  using FilterVector = Pack<T, t::vector_c>;
  using ImageVector = Pack<T, t::vector_p>;

  const T *x, *w;
  const Shape &s;
  int thread, lane, wave_c, wave_p, slice, rank, first_channel, first_pixel, first_step, own_offset;
  FilterVector filter_temp[async ? 1 : FilterWalk::count];
  ImageVector image_temp[async ? 1 : ImageWalk::count];

  __device__ GemmTiles(const Arguments &args, const Shape &shape)
      : x(static_cast<const T *>(args.x)), w(static_cast<const T *>(args.w)), s(shape),
        thread(threadIdx.x), lane(threadIdx.x % t::wavefront) {
    const int wave = thread / t::wavefront;
    slice = wave / (t::waves_c * t::waves_p);
    wave_p = wave % t::waves_p * t::wave_p;
    wave_c = wave / t::waves_p % t::waves_c * t::wave_c;
    const int tile = blockIdx.x / t::cluster;
    rank = blockIdx.x % t::cluster;
    first_step = rank * steps_each(s);
    first_channel = tile % channel_tiles(s) * t::tile_c;
    first_pixel = tile / channel_tiles(s) * t::tile_p;
    own_offset = input_offset(first_pixel + ImageWalk::column(0, thread) * t::vector_p);
  }

  // Where input channel 0 of an output pixel lies. Where there is none, nothing is read from what
  // is given instead, which need but be aligned as vectors are.
  static constexpr int nowhere = -4;
  __device__ int input_offset(int pixel) const {
    if (pixels(s) % t::tile_p != 0 && pixel >= pixels(s)) return nowhere;
    const int image = pixel / (s.out_height * s.out_width);
    const int place = pixel % (s.out_height * s.out_width);
    const int plane = image * s.in_channels * s.height * s.width;
    if constexpr (t::vector_p > 1) return plane + place;
    const int row = place / s.out_width * Layer::stride_h - s.pad_top;
    const int column = place % s.out_width * Layer::stride_w - s.pad_left;
    const bool held = inside(row, s.height) && inside(column, s.width);
    return held ? plane + row * s.width + column : nowhere;
  }

  // Where steps divide the channels, which fixed sizes show, there is nothing to ask.
  __device__ bool held(int channel) const {
    return s.in_channels % t::step_c == 0 || channel < s.in_channels;
  }

  // Calls take(i, place in the buffer, source, whether it exists) for the thread's vectors.
  template <class Take>
  __device__ void each_filter(int step, Take take) const {
    const int first = (first_step + step) * t::step_c;
    const T *own = w + (first_channel + FilterWalk::row(0, thread)) * s.in_channels + first +
                   FilterWalk::column(0, thread) * t::vector_c;
    DSCORE_UNROLL
    for (int i = 0; i < FilterWalk::count; i++) {
      if (!FilterWalk::part(i, thread)) continue;
      const int row = FilterWalk::row(i, thread);
      const int column = FilterWalk::column(i, thread) * t::vector_c;
      const T *from = FilterWalk::straight
                          ? own + i * FilterWalk::rows_apart * s.in_channels
                          : w + (first_channel + row) * s.in_channels + first + column;
      take(i, row * t::filter_row + column, from,
           (s.out_channels % t::tile_c == 0 || first_channel + row < s.out_channels) &&
               held(first + column));
    }
  }
  template <class Take>
  __device__ void each_image(int step, Take take) const {
    const int first = (first_step + step) * t::step_c, area = s.height * s.width;
    const T *own = x + own_offset + (first + ImageWalk::row(0, thread)) * area;
    DSCORE_UNROLL
    for (int i = 0; i < ImageWalk::count; i++) {
      if (!ImageWalk::part(i, thread)) continue;
      const int row = ImageWalk::row(i, thread);
      const int column = ImageWalk::column(i, thread) * t::vector_p;
      const int offset = ImageWalk::straight ? own_offset : input_offset(first_pixel + column);
      const T *from = ImageWalk::straight ? own + i * ImageWalk::rows_apart * area
                                          : x + offset + (first + row) * area;
      take(i, t::tile_c * t::filter_row + row * t::image_row + column, from,
           offset >= 0 && held(first + row));
    }
  }

  __device__ void copy(T *lds, int step) const {
    each_filter(step, [&](int, int at, const T *from, bool there) {
      copy_async<t::vector_c * sizeof(T)>(lds + at, from, there);
    });
    each_image(step, [&](int, int at, const T *from, bool there) {
      copy_async<t::vector_p * sizeof(T)>(lds + at, from, there);
    });
  }
  __device__ void fetch(int step) {
    each_filter(step, [&](int i, int, const T *from, bool there) {
      filter_temp[i] = vector_or_zeros<t::vector_c>(from, there);
    });
    each_image(step, [&](int i, int, const T *from, bool there) {
      image_temp[i] = vector_or_zeros<t::vector_p>(from, there);
    });
  }
  // Multiplies the elements of a step that this thread has brought by their channel's scale.
  __device__ void scale(const Arguments &args, T *lds, int step) const {
    const T *scales = static_cast<const T *>(args.scale);
    const int first = (first_step + step) * t::step_c;
    DSCORE_UNROLL
    for (int i = 0; i < ImageWalk::count; i++) {
      if (!ImageWalk::part(i, thread)) continue;
      const int row = ImageWalk::row(i, thread);
      const int column = ImageWalk::column(i, thread) * t::vector_p;
      const int pixel = first_pixel + column, channel = first + row;
      const int offset = ImageWalk::straight ? own_offset : input_offset(pixel);
      if (offset < 0 || !held(channel)) continue;
      const int image = pixel / (s.out_height * s.out_width);
      const float factor = static_cast<float>(scales[image * s.in_channels + channel]);
      auto &several = *reinterpret_cast<ImageVector *>(
          lds + t::tile_c * t::filter_row + row * t::image_row + column);
      ImageVector scaled = several;
      DSCORE_UNROLL
      for (int j = 0; j < t::vector_p; j++)
        scaled.at[j] = static_cast<T>(static_cast<float>(scaled.at[j]) * factor);
      several = scaled;
    }
  }
  __device__ void put(T *lds) const {
    each_filter(0, [&](int i, int at, const T *, bool) {
      *reinterpret_cast<FilterVector *>(lds + at) = filter_temp[i];
    });
    each_image(0, [&](int i, int at, const T *, bool) {
      *reinterpret_cast<ImageVector *>(lds + at) = image_temp[i];
    });
  }
};

}  // namespace dscore
