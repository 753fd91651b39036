// The part of the images under the pixels of a block of the implicit product of matrices
// (implicit_gemm/kernel.hpp): which tile of the product is a block's, and what lies under it where.
#pragma once

#include "support/ring.hpp"

namespace dscore {

// The images are thought to lie one below the other, each with the padding that its outputs reach,
// and without rows and columns that no output reaches. There the pixels of a block, counted through
// all images, have under them elements that follow one another: the patch. A table in LDS says
// where in memory these are.
template <class T, class t, class Layer, class Shape, class Epilogue>
struct ImplicitGemmPatch : ConvKernel<T, Epilogue> {
  using Arguments = typename Epilogue::Arguments;
  static constexpr int threads = t::threads, layout = t::layout;

  static __host__ __device__ int group_in(const Shape &s) { return s.in_channels / s.groups; }
  static __host__ __device__ int group_out(const Shape &s) { return s.out_channels / s.groups; }
  static __host__ __device__ int area(const Shape &s) { return s.out_height * s.out_width; }
  static __host__ __device__ int pixels(const Shape &s) { return s.batch * area(s); }
  static __host__ __device__ int channel_tiles(const Shape &s) {
    return ceil_div(group_out(s), t::tile_c);
  }
  static __host__ __device__ int all_steps(const Shape &s) {
    return ceil_div(group_in(s), t::step_c);
  }
  // Steps that one block of a cluster takes; the last may have fewer, or none.
  static __host__ __device__ int steps_each(const Shape &s) {
    return ceil_div(all_steps(s), t::cluster);
  }
  // Block of the cluster fastest, then channel tile: blocks that read the same pixels follow one
  // another; then group, pixel tile.
  static int blocks(const Shape &s) {
    return t::cluster * channel_tiles(s) * s.groups * ceil_div(pixels(s), t::tile_p);
  }

  // Rows from one output's to the next one's, of an image; and columns, of a row.
  static constexpr int step_h = least(Layer::stride_h, Layer::span_h);
  static constexpr int step_w = least(Layer::stride_w, Layer::span_w);
  static __device__ int image_rows(const Shape &s) {
    return (s.out_height - 1) * step_h + Layer::span_h;
  }
  static __device__ int row_width(const Shape &s) {
    return (s.out_width - 1) * step_w + Layer::span_w;
  }
  // Of rows or columns: which one of memory it is, where an output's lie `step` apart.
  template <int Stride, int Step>
  static __device__ int in_memory(int position, int pad) {
    if constexpr (Stride == Step) return position - pad;
    return position / Step * Stride + position % Step - pad;
  }

  const T *x, *w;
  const Shape &s;
  const int *table;  // of the patch's elements, where in memory they are
  int thread, lane, wave_c, wave_p, slice, rank, group;
  int first_channel, first_pixel, first_step, first_image, first_row, first_column;

  __device__ ImplicitGemmPatch(const Arguments &args, const Shape &shape)
      : x(static_cast<const T *>(args.x)), w(static_cast<const T *>(args.w)), s(shape),
        thread(threadIdx.x), lane(threadIdx.x % t::wavefront) {
    const int wave = thread / t::wavefront;
    slice = wave / (t::waves_c * t::waves_p);
    wave_p = wave % t::waves_p * t::wave_p;
    wave_c = wave / t::waves_p % t::waves_c * t::wave_c;
    int tile = blockIdx.x / t::cluster;
    rank = blockIdx.x % t::cluster;
    first_step = rank * steps_each(s);
    first_channel = tile % channel_tiles(s) * t::tile_c;
    tile /= channel_tiles(s);
    group = tile % s.groups;
    first_pixel = tile / s.groups * t::tile_p;
    first_image = first_pixel / area(s);
    const int place = first_pixel % area(s);
    first_row = place / s.out_width * step_h;
    first_column = place % s.out_width * step_w;
  }

  // Where the first tap of a pixel of the tile lies in the patch; of one past the last, where that
  // of the first pixel does.
  __device__ int patch_place(int pixel) const {
    pixel += first_pixel;
    if (pixel >= pixels(s)) return 0;
    const int image = pixel / area(s), place = pixel % area(s);
    const int rows = (image - first_image) * image_rows(s) + place / s.out_width * step_h;
    return (rows - first_row) * row_width(s) + place % s.out_width * step_w - first_column;
  }
  // How much further on another tap of it lies, counted from a row of the filter on.
  __device__ int tap_place(int row, int tap) const {
    return row * Layer::dilation_h * row_width(s) +
           tap / Layer::kernel_w * Layer::dilation_h * row_width(s) +
           tap % Layer::kernel_w * Layer::dilation_w;
  }

  // Writes where each element of the patch lies in memory, of the group's first channel. Where it
  // lies in no image, nothing is read from what is given instead.
  static constexpr int nowhere = -16;
  __device__ void fill_table(int *places) {
    const int width = row_width(s), along = first_column + thread;
    int column = along % width, row = first_row + along / width, image = first_image;
    for (int i = thread; i < t::patch; i += threads) {
      image += row / image_rows(s), row %= image_rows(s);
      places[i] = memory_place(image, row, column);
      column += threads % width, row += threads / width;
      if (column >= width) column -= width, row++;
    }
    table = places;
    __syncthreads();
  }
  __device__ int memory_place(int image, int row, int column) const {
    row = in_memory<Layer::stride_h, step_h>(row, s.pad_top);
    column = in_memory<Layer::stride_w, step_w>(column, s.pad_left);
    if (image >= s.batch || !inside(row, s.height) || !inside(column, s.width)) return nowhere;
    return Images<t::layout>::at(image, group * group_in(s), row * s.width + column, s.in_channels,
                                 s.height * s.width);
  }

  // Where steps divide the channels, which fixed sizes show, there is nothing to ask.
  __device__ bool wanted(int channel) const {
    return group_out(s) % t::tile_c == 0 || channel < group_out(s);
  }
  __device__ bool summed(int channel) const {
    return group_in(s) % t::step_c == 0 || channel < group_in(s);
  }
};

}  // namespace dscore
