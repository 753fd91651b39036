// The tiles of the implicit product of matrices (implicit_gemm/kernel.hpp): which of them a block
// takes, where they lie, and how they come to LDS.
#pragma once

#include "support/ring.hpp"

#if defined(DSCORE_HOST)
#define DSCORE_UNROLL_COPIES
#else
#define DSCORE_UNROLL_COPIES _Pragma("unroll 8")
#endif

namespace dscore {

// A tiling with the buffers of a layer's filters and images.
template <class Tiling, class Layer>
struct ImplicitGemmBuffers : Tiling {
  static constexpr int row = Tiling::step_c * Layer::taps;  // of a filter, in a step
  // Rows begin 4 banks apart, so that lanes of eight rows by four channels meet no bank twice where
  // the taps are odd.
  static constexpr int filter_row = row + (12 - row % 8) % 8;
  static constexpr int filters = Tiling::tile_c * filter_row;
  static constexpr int buffer = (filters + Tiling::step_c * Tiling::patch + 3) / 4 * 4;
  static_assert(row % Tiling::vector_c == 0, "rows of whole vectors");
};

// How many threads of `waves` wavefronts take elements of one channel, so that they go over the
// patches of a step in the fewest turns; the others take those of other channels meanwhile.
constexpr int patch_threads(int waves, int wavefront, int patch, int channels) {
  int best = wavefront, fewest = INT32_MAX;
  for (int across = 1; across <= waves; across++) {
    const int turns =
        ceil_div(patch, across * wavefront) * ceil_div(channels, waves / across);
    if (waves % across == 0 && turns < fewest) best = across * wavefront, fewest = turns;
  }
  return best;
}

// The images are thought to lie one below the other, each with the padding that its outputs reach,
// and without rows and columns that no output reaches. There the pixels of a block, counted through
// all images, have under them elements that follow one another: the patch. A table in LDS says
// where in memory these are.
template <class T, class t, class Layer, class Shape, class Epilogue>
struct ImplicitGemmTiles : ConvKernel<T, Epilogue> {
  using Arguments = typename Epilogue::Arguments;
  static constexpr int threads = t::threads;
  static constexpr bool fetched = t::stages == 2;
  static constexpr int table_at = t::stages * t::buffer * int{sizeof(T)};  // bytes

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

  using FilterWalk = Walk<threads, t::tile_c, t::row / t::vector_c>;
  using FilterVector = Pack<T, t::vector_c>;
  // Threads go over the patches of a step in rows of `across`, a channel each. A thread keeps to
  // its columns, so that it looks their places up once for all channels.
  static constexpr int across = patch_threads(threads / t::wavefront, t::wavefront, t::patch,
                                              t::step_c);
  static constexpr int columns = ceil_div(t::patch, across), beside = threads / across;
  static constexpr int channels_each = ceil_div(t::step_c, beside);

  const T *x, *w;
  const Shape &s;
  const int *table;  // of the patch's elements, where in memory they are
  int thread, lane, wave_c, wave_p, slice, rank, group;
  int first_channel, first_pixel, first_step, first_image, first_row, first_column;
  FilterVector filter_temp[fetched ? FilterWalk::count : 1];
  T image_temp[fetched ? columns * channels_each : 1];

  __device__ ImplicitGemmTiles(const Arguments &args, const Shape &shape)
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
  static constexpr int nowhere = -4;
  __device__ void fill_table(T *lds) {
    int *const places = reinterpret_cast<int *>(reinterpret_cast<char *>(lds) + table_at);
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
    return ((image * s.in_channels + group * group_in(s)) * s.height + row) * s.width + column;
  }

  // Where steps divide the channels, which fixed sizes show, there is nothing to ask.
  __device__ bool wanted(int channel) const {
    return group_out(s) % t::tile_c == 0 || channel < group_out(s);
  }
  __device__ bool summed(int channel) const {
    return group_in(s) % t::step_c == 0 || channel < group_in(s);
  }

  // Calls each(i) for i below Count. Of many copies that pass through no array of registers not all
  // are unrolled: compilers would hold the addresses of all.
  template <int Count, class Each>
  static __device__ inline void each_turn(Each each) {
    if constexpr (fetched || Count <= 8) {
      DSCORE_UNROLL
      for (int i = 0; i < Count; i++) each(i);
    } else {
      DSCORE_UNROLL_COPIES
      for (int i = 0; i < Count; i++) each(i);
    }
  }
  // Calls take(i, place in the buffer, source, whether it exists) for the thread's vectors.
  template <class Take>
  __device__ void each_filter(int step, Take take) const {
    const int depth = group_in(s) * Layer::taps, first = (first_step + step) * t::row;
    each_turn<FilterWalk::count>([&](int i) {
      if (!FilterWalk::part(i, thread)) return;
      const int row = FilterWalk::row(i, thread), channel = first_channel + row;
      const int column = FilterWalk::column(i, thread) * t::vector_c;
      take(i, row * t::filter_row + column,
           w + (group * group_out(s) + channel) * depth + first + column,
           wanted(channel) && (group_in(s) % t::step_c == 0 || first + column < depth));
    });
  }
  template <class Take>
  __device__ void each_element(int step, Take take) const {
    const int plane = s.height * s.width, own = thread / across;
    const int first = (first_step + step) * t::step_c + own;
    each_turn<columns>([&](int j) {
      const int element = thread % across + j * across;
      if (t::patch % across != 0 && element >= t::patch) return;
      const int place = table[element];
      const T *const from = x + place + first * plane;
      each_turn<channels_each>([&](int i) {
        if (t::step_c % beside != 0 && own + i * beside >= t::step_c) return;
        take(j * channels_each + i, t::filters + (own + i * beside) * t::patch + element,
             from + i * beside * plane, place >= 0 && summed(first + i * beside));
      });
    });
  }

  __device__ void copy(T *lds, int step) const {
    each_filter(step, [&](int, int at, const T *from, bool there) {
      copy_async<t::vector_c * sizeof(T)>(lds + at, from, there);
    });
    each_element(step, [&](int, int at, const T *from, bool there) {
      copy_async<sizeof(T)>(lds + at, from, there);
    });
  }
  __device__ void fetch(int step) {
    each_filter(step, [&](int i, int, const T *from, bool there) {
      filter_temp[i] = vector_or_zeros<t::vector_c>(from, there);
    });
    each_element(step, [&](int i, int, const T *from, bool there) {
      image_temp[i] = there ? *from : T(0);
    });
  }
  __device__ void put(T *lds) const {
    each_filter(0, [&](int i, int at, const T *, bool) {
      *reinterpret_cast<FilterVector *>(lds + at) = filter_temp[i];
    });
    each_element(0, [&](int i, int at, const T *, bool) { lds[at] = image_temp[i]; });
  }
};

}  // namespace dscore
