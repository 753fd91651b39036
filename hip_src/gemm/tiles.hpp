// The tiles of the product of matrices (gemm/kernel.hpp): which of them a block takes, where they
// lie, and how they come to LDS.
#pragma once

#include "support/ring.hpp"

namespace dscore {

template <class T, class t, class Layer, class Shape, class Epilogue>
struct GemmTiles : ConvKernel<T, Epilogue> {
  using Arguments = typename Epilogue::Arguments;
  static constexpr int threads = t::threads;
  // Two buffers are filled through registers, three or more by asynchronous copies.
  static constexpr bool async = t::stages > 2;

  // Channels that are summed, and those of the results; the size of the images read, and of the
  // results.
  static __host__ __device__ int depth(const Shape &s) {
    return t::turned ? s.out_channels : s.in_channels;
  }
  static __host__ __device__ int channels(const Shape &s) {
    return t::turned ? s.in_channels : s.out_channels;
  }
  static __host__ __device__ int read_area(const Shape &s) {
    return t::turned ? s.out_height * s.out_width : s.height * s.width;
  }
  static __host__ __device__ int width(const Shape &s) {
    return t::turned ? s.width : s.out_width;
  }
  static __host__ __device__ int area(const Shape &s) {
    return (t::turned ? s.height : s.out_height) * width(s);
  }
  static __host__ __device__ int pixels(const Shape &s) { return s.batch * area(s); }
  static __host__ __device__ int channel_tiles(const Shape &s) {
    return ceil_div(channels(s), t::tile_c);
  }
  // Steps that one block of a cluster takes; the last may have fewer, or none.
  static __host__ __device__ int steps_each(const Shape &s) {
    return ceil_div(ceil_div(depth(s), t::step_c), t::cluster);
  }

  using FilterWalk =
      std::conditional_t<t::turned, Walk<threads, t::step_c, t::tile_c / t::vector_c>,
                         Walk<threads, t::tile_c, t::step_c / t::vector_c>>;
  using ImageWalk = Walk<threads, t::step_c, t::tile_p / t::vector_p>;
  using FilterVector = Pack<T, t::vector_c>;
  using ImageVector = Pack<T, t::vector_p>;

  const T *x, *w;
  const Shape &s;
  int thread, lane, wave_c, wave_p, slice, rank, first_channel, first_pixel, first_step;
  int own_offsets[ImageWalk::columns];
  FilterVector filter_temp[async ? 1 : FilterWalk::count];
  ImageVector image_temp[async ? 1 : ImageWalk::count];

  // `images` are what is multiplied by the filters.
  __device__ GemmTiles(const Arguments &args, const void *images, const Shape &shape)
      : x(static_cast<const T *>(images)), w(static_cast<const T *>(args.w)), s(shape),
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
    DSCORE_UNROLL
    for (int i = 0; i < ImageWalk::columns; i++) own_offsets[i] = column_offset(i);
  }

  // Where channel 0 of the pixel that a result is made of lies. Where there is none, nothing is
  // read from what is given instead, which need but be aligned as vectors are.
  static constexpr int nowhere = -4;
  __device__ int input_offset(int pixel) const {
    if (pixels(s) % t::tile_p != 0 && pixel >= pixels(s)) return nowhere;
    const int image = pixel / area(s);
    const int place = pixel % area(s);
    const int plane = image * depth(s) * read_area(s);
    if constexpr (t::vector_p > 1) return plane + place;
    if constexpr (t::turned) return turned_offset(plane, place);
    const int row = place / s.out_width * Layer::stride_h - s.pad_top;
    const int column = place % s.out_width * Layer::stride_w - s.pad_left;
    const bool held = inside(row, s.height) && inside(column, s.width);
    return held ? plane + row * s.width + column : nowhere;
  }

  __device__ int column_offset(int i) const {
    return input_offset(first_pixel + ImageWalk::column(i, thread) * t::vector_p);
  }
  // That of the thread's i-th vector: its columns come again, row after row, in a steady walk.
  __device__ int offset_of(int i) const {
    return ImageWalk::steady ? own_offsets[i % ImageWalk::columns] : column_offset(i);
  }

  // The output whose pixel was picked at `place` of the input, if there is one.
  __device__ int turned_offset(int plane, int place) const {
    const int row = place / s.width + s.pad_top, column = place % s.width + s.pad_left;
    const bool held = row % Layer::stride_h == 0 && column % Layer::stride_w == 0 &&
                      row / Layer::stride_h < s.out_height &&
                      column / Layer::stride_w < s.out_width;
    return held ? plane + row / Layer::stride_h * s.out_width + column / Layer::stride_w : nowhere;
  }

  // Where steps divide the channels, which fixed sizes show, there is nothing to ask.
  __device__ bool held(int channel) const {
    return depth(s) % t::step_c == 0 || channel < depth(s);
  }
  __device__ bool wanted(int channel) const {
    return channels(s) % t::tile_c == 0 || channel < channels(s);
  }

  // Calls take(i, place in the buffer, source, whether it exists) for the thread's vectors.
  template <class Take>
  __device__ void each_filter(int step, Take take) const {
    const int first = (first_step + step) * t::step_c;
    // Filters lie channel of the result by channel summed, or turned, in memory as in LDS.
    const int across = t::turned ? channels(s) : depth(s);
    const int first_row = t::turned ? first : first_channel;
    const int first_column = t::turned ? first_channel : first;
    const T *own = w + (first_row + FilterWalk::row(0, thread)) * across + first_column +
                   FilterWalk::column(0, thread) * t::vector_c;
    DSCORE_UNROLL
    for (int i = 0; i < FilterWalk::count; i++) {
      if (!FilterWalk::part(i, thread)) continue;
      const int row = FilterWalk::row(i, thread);
      const int column = FilterWalk::column(i, thread) * t::vector_c;
      const T *from = FilterWalk::straight ? own + i * FilterWalk::rows_apart * across
                                           : w + (first_row + row) * across + first_column + column;
      take(i, row * t::filter_row + column, from,
           t::turned ? held(first_row + row) && wanted(first_column + column)
                     : wanted(first_row + row) && held(first_column + column));
    }
  }
  template <class Take>
  __device__ void each_image(int step, Take take) const {
    const int first = (first_step + step) * t::step_c, area = read_area(s);
    const T *own = x + (first + ImageWalk::row(0, thread)) * area;
    DSCORE_UNROLL
    for (int i = 0; i < ImageWalk::count; i++) {
      if (!ImageWalk::part(i, thread)) continue;
      const int row = ImageWalk::row(i, thread);
      const int column = ImageWalk::column(i, thread) * t::vector_p;
      const int offset = offset_of(i);
      const T *from = ImageWalk::steady ? own + offset + ImageWalk::rows_to(i) * area
                                        : x + offset + (first + row) * area;
      take(i, t::filters + row * t::image_row + column, from,
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
  // Multiplies the elements of a step that this thread has brought by their channel's scale. All
  // scales are read before the first element is written, behind which each would be waited for.
  __device__ void scale(const Arguments &args, T *lds, int step) const {
    const T *scales = static_cast<const T *>(args.scale);
    const int first = (first_step + step) * t::step_c;
    const auto there = [&](int i) {
      return ImageWalk::part(i, thread) && offset_of(i) >= 0 &&
             held(first + ImageWalk::row(i, thread));
    };
    float factors[ImageWalk::count];
    DSCORE_UNROLL
    for (int i = 0; i < ImageWalk::count; i++) {
      const int image = (first_pixel + ImageWalk::column(i, thread) * t::vector_p) / area(s);
      if (there(i))
        factors[i] = static_cast<float>(
            scales[image * s.in_channels + first + ImageWalk::row(i, thread)]);
    }
    DSCORE_UNROLL
    for (int i = 0; i < ImageWalk::count; i++) {
      if (!there(i)) continue;
      auto &several = *reinterpret_cast<ImageVector *>(
          lds + t::filters + ImageWalk::row(i, thread) * t::image_row +
          ImageWalk::column(i, thread) * t::vector_p);
      ImageVector scaled = several;
      DSCORE_UNROLL
      for (int j = 0; j < t::vector_p; j++)
        scaled.at[j] = static_cast<T>(static_cast<float>(scaled.at[j]) * factors[i]);
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
