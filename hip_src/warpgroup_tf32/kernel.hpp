// Pointwise convolution of float32 as a product of matrices on Hopper's matrix units: images
// [pixel][channel] times filters [channel][output channel], each product as three of TF32.
//
// A warpgroup takes its pixels from LDS to registers, where they are split in two TF32 parts.
// Filters are split once for all warpgroups of a block, on their way to LDS. The pixels of all
// images follow one another, so that a tile may reach over several images.
// Order of additions, as the reference backend has it: a slice s of the warpgroups sums channels
// [s * slice, (s + 1) * slice) of every step in eights, each of which is gone through three times
// (small parts of the image by big ones of the filter, big by small, big by big); the sums of a
// step are added to those before; then the slices', ascending; then those of the blocks of a
// cluster, which share the steps; then bias.
#pragma once

#include "gemm/tiles.hpp"
#include "support/joined_sums.hpp"
#include "warpgroup_tf32/tiling.hpp"
#include "warpgroup_tf32/units.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape_, class Epilogue>
struct WarpgroupTf32 : GemmTiles<T, Tiling, Layer, Shape_, Epilogue> {
  using Shape = Shape_;
  using t = Tiling;
  using Arguments = typename Epilogue::Arguments;
  using Tiles = GemmTiles<T, t, Layer, Shape, Epilogue>;
  using Tiles::area, Tiles::channels, Tiles::depth, Tiles::wanted, Tiles::held, Tiles::w;
  using Tiles::s, Tiles::thread, Tiles::lane, Tiles::wave_c, Tiles::wave_p, Tiles::slice;
  using Tiles::rank, Tiles::first_channel, Tiles::first_pixel, Tiles::first_step;
  using Tiles::pixels, Tiles::channel_tiles, Tiles::steps_each;
  static constexpr int threads = t::threads, wavefront = t::wavefront, cluster = t::cluster;
  static constexpr int lds_bytes =
      greatest(t::ring + t::stages * t::buffer, t::joined) * int{sizeof(float)};
  static constexpr int alignment = greatest(t::vector_p, t::vector_c) * int{sizeof(T)};

  static int blocks(const Shape &s) {
    return t::cluster * channel_tiles(s) * ceil_div(pixels(s), t::tile_p);
  }

  // Rows of a warpgroup by 64, an instruction's. Where pixels lie aligned, a lane's lie side by
  // side, else 8 apart.
  static constexpr int rows = t::wave_p / 64, lane_pixels = 2 * rows, columns = t::wave_c;
  static constexpr int beside = t::vector_p == 1 ? 1 : lane_pixels;
  // Vectors of 4 channels in a step's filters, of which a thread brings some.
  static constexpr int fours = t::step_c / 4, vectors = t::tile_c * fours;
  static constexpr int own_vectors = ceil_div(vectors, threads);
  // From the rows of some channels of a step to those of the next.
  static constexpr int rows_apart = t::tile_c * t::row;

  float accumulators[t::accumulators];
  float products[rows][columns / 2];
  Pack<T, 4> fetched[own_vectors];
  float biases[columns / 4];
  int wave_pixel;  // the first of a wavefront's pixels in the block's tile

  __device__ WarpgroupTf32(const Arguments &args, const Shape &shape)
      : WarpgroupTf32(args, args.x, shape) {}
  __device__ WarpgroupTf32(const Arguments &args, const void *images, const Shape &shape)
      : Tiles(args, images, shape), accumulators{}, products{} {
    const int group = of_wavefront(thread / t::group);
    slice = group / (t::waves_c * t::waves_p);
    wave_p = group % t::waves_p * t::wave_p;
    wave_c = group / t::waves_p % t::waves_c * t::wave_c;
    wave_pixel = wave_p + thread % t::group / t::wavefront * 16 * rows;
  }

  // The place of a lane's pixel in a wavefront's.
  __device__ int lane_pixel(int i) const {
    const int g = lane / 4;
    return beside > 1 ? g * lane_pixels + i : 8 * i + g;
  }

  // Calls take(i, output channel in the tile, first of 4 channels in the step) for the thread's
  // vectors. Eight lanes side by side take neighbouring rows, so that they meet no bank twice.
  // Without a branch, around which compilers wait for loads: what is left over is the last again.
  template <class Take>
  __device__ void each_own_vector(Take take) const {
    DSCORE_UNROLL
    for (int i = 0; i < own_vectors; i++) {
      const int at = i * threads + thread;
      const int vector = vectors % threads == 0 ? at : least(at, vectors - 1);
      take(i, vector / 8 / fours * 8 + vector % 8, vector / 8 % fours * 4);
    }
  }
  // Where an element of a filter lies in a part.
  static __device__ int filter_at(int row, int channel) {
    return channel / t::row * rows_apart + in_row<t::row>(row * t::row + channel % t::row);
  }
  __device__ bool filter_held(int step, int row, int channel) const {
    return wanted(first_channel + row) && held((first_step + step) * t::step_c + channel);
  }
  static constexpr int eights = t::slice / 8;

  // What is not there is read from the first filter, and made zero when it is put.
  __device__ void fetch_filters(int step, Part part) {
    each_own_vector([&](int i, int row, int channel) {
      if (!part.has(i)) return;
      const int out = first_channel + row, in = (first_step + step) * t::step_c + channel;
      if constexpr (t::vector_c == 4 && !t::turned) {
        const int at = out * depth(s) + in;
        fetched[i] = read_vector<4>(w + (filter_held(step, row, channel) ? at : 0));
      } else {
        const int at = t::turned ? in * channels(s) + out : out * depth(s) + in;
        const int along = t::turned ? channels(s) : 1;
        DSCORE_UNROLL
        for (int j = 0; j < 4; j++)
          fetched[i].at[j] = w[filter_held(step, row, channel + j) ? at + j * along : 0];
      }
    });
  }
  __device__ void put_filters(float *lds, int step, Part part) const {
    each_own_vector([&](int i, int row, int channel) {
      if (!part.has(i)) return;
      Pack<float, 4> big, small;
      DSCORE_UNROLL
      for (int j = 0; j < 4; j++) {
        const bool there = filter_held(step, row, channel + j);
        const Halves halves(there ? static_cast<float>(fetched[i].at[j]) : 0.0f);
        big.at[j] = halves.big, small.at[j] = halves.small;
      }
      const int at = filter_at(row, channel);
      write_vector(lds + at, big);
      write_vector(lds + t::part + at, small);
    });
  }
  __device__ void copy_images(T *buffer, int step, Part part) const {
    Tiles::each_image(step, [&](int i, int at, const T *from, bool there) {
      if (part.has(i)) copy_async<t::vector_p * sizeof(T)>(buffer + at, from, there);
    });
  }

  // One lane's part of 8 channels of its pixels, from channel k on.
  __device__ void read_images(float (&values)[rows][4], const T *images, int k) const {
    DSCORE_UNROLL
    for (int half = 0; half < 2; half++)
      DSCORE_UNROLL
      for (int i = 0; i < lane_pixels; i += beside) {
        const auto several = read_vector<beside>(
            images + (k + half * 4 + lane % 4) * t::image_row + lane_pixel(i));
        DSCORE_UNROLL
        for (int j = 0; j < beside; j++)
          values[(i + j) / 2][(i + j) % 2 + 2 * half] = static_cast<float>(several.at[j]);
      }
  }

  // Starts the products of a step, but for the last batches of which it waits for them. `ahead` is
  // called with a part of what comes next as each batch is under way.
  template <class Ahead>
  __device__ void multiply(const float *filters, const T *images, Ahead ahead) {
    float big[2][rows][4], small[2][rows][4];
    DSCORE_UNROLL
    for (int eight = 0; eight < eights; eight++) {
      float values[rows][4];
      read_images(values, images, eight * 8);
      if (eight > 1) wait_products<1>();
      auto &a = big[eight % 2], &rest = small[eight % 2];
      DSCORE_UNROLL
      for (int m = 0; m < rows; m++)
        DSCORE_UNROLL
        for (int j = 0; j < 4; j++) {
          const Halves halves(values[m][j]);
          a[m][j] = halves.big, rest[m][j] = halves.small;
        }
      const int channel = slice * t::slice + eight * 8;
      const float *b = filters + channel / t::row * rows_apart + wave_c * t::row;
      const int first = channel % t::row;
      order_products();
      DSCORE_UNROLL
      for (int m = 0; m < rows; m++) {
        multiply_rows<columns, t::row>(products[m], rest[m], b, first, eight > 0);
        multiply_rows<columns, t::row>(products[m], a[m], b + t::part, first, true);
        multiply_rows<columns, t::row>(products[m], a[m], b, first, true);
      }
      commit_products();
      ahead(Part{eight, eights});
    }
  }
  __device__ void finish_step() {
    wait_products<0>();
    DSCORE_UNROLL
    for (int m = 0; m < rows; m++)
      DSCORE_UNROLL
      for (int i = 0; i < columns / 2; i++) {
        settle_product(products[m][i]);
        accumulators[m * (columns / 2) + i] += products[m][i];
      }
  }

  __device__ void accumulate(const Arguments &args, float *lds) {
    // One at least, as the tiling's limits see to: the loop that compilers see always waits.
    const int steps = least(steps_each(s), ceil_div(depth(s), t::step_c) - first_step);
    T *ring = lds + t::ring;
    constexpr Part all{0, 1};
    fetch_filters(0, all);
    DSCORE_UNROLL
    for (int step = 0; step < t::stages - 1; step++) {
      if (step < steps) copy_images(ring + step * t::buffer, step, all);
      commit_copies();
    }
    put_filters(lds, 0, all);
    if (steps > 1) fetch_filters(1, all);
    int step = 0;
    DSCORE_ROLLED
    do {
      const float *filters = lds + step % t::filter_buffers * t::parts;
      T *images = ring + step % t::stages * t::buffer;
      wait_copies<t::stages - 2>();
      if constexpr (Epilogue::scaled) Tiles::scale(args, images, step);
      show_to_products();
      // After the barrier nothing reads the other buffer of filters any more.
      if (step > 0) finish_step();
      __syncthreads();
      multiply(filters, images + slice * t::slice * t::image_row + wave_pixel, [&](Part part) {
        const int next = step + t::stages - 1;
        if (next < steps) copy_images(ring + next % t::stages * t::buffer, next, part);
        if (part.number == part.of - 1) commit_copies();
        if (step + 1 < steps)
          put_filters(lds + (step + 1) % t::filter_buffers * t::parts, step + 1, part);
        if (step + 2 < steps) fetch_filters(step + 2, part);
      });
    } while (++step < steps);
    read_biases(args);  // while the last products are under way
    finish_step();
  }

  // The output channels of a lane lie in pairs.
  __device__ int lane_channel(int i) const {
    return first_channel + wave_c + i / 2 * 8 + lane % 4 * 2 + i % 2;
  }
  __device__ void read_biases(const Arguments &args) {
    DSCORE_UNROLL
    for (int i = 0; i < columns / 4; i++)
      biases[i] = wanted(lane_channel(i)) ? Epilogue::bias_of(args, lane_channel(i)) : 0.0f;
  }
  // Stores the sums of neighbouring pixels, the first of which is i, of each channel.
  __device__ void store(const Arguments &args, int i, int offset) const {
    Pack<T, beside> added[columns / 4];
    DSCORE_UNROLL
    for (int c = 0; c < columns / 4; c++)
      if (Epilogue::added && wanted(lane_channel(c)))
        added[c] = Epilogue::template residual_of<beside>(args, offset + lane_channel(c) * area(s));
    DSCORE_UNROLL
    for (int c = 0; c < columns / 4; c++) {
      if (!wanted(lane_channel(c))) continue;
      float values[beside], bias[beside];
      DSCORE_UNROLL
      for (int j = 0; j < beside; j++)
        bias[j] = biases[c],
        values[j] = accumulators[((i + j) / 2 * columns / 8 + c / 2) * 4 + (i + j) % 2 * 2 + c % 2];
      const int at = offset + lane_channel(c) * area(s);
      auto results = Epilogue::template apply_read<beside>(values, bias, added[c]);
      if constexpr (t::turned && Layer::stride_h * Layer::stride_w > 1)
        // Of a pixel that no output was made of, zero by an infinite filter is no number.
        if (Tiles::turned_offset(0, at % area(s)) == Tiles::nowhere) results = {};
      *reinterpret_cast<Pack<T, beside> *>(static_cast<T *>(args.out) + at) = results;
    }
  }
  __device__ void finish(const Arguments &args) const {
    DSCORE_UNROLL
    for (int i = 0; i < lane_pixels; i += beside) {
      const int pixel = first_pixel + wave_pixel + lane_pixel(i);
      if (pixels(s) % t::tile_p != 0 && pixel >= pixels(s)) continue;
      store(args, i, pixel / area(s) * channels(s) * area(s) + pixel % area(s));
    }
  }

  __device__ void run(const Arguments &args) {
    float *lds = block_lds<float, lds_bytes / int{sizeof(float)}, swizzled_tile>();
    accumulate(args, lds);
    if constexpr (t::slices > 1) join_slices<t>(accumulators, lds, thread, slice);
    if constexpr (t::cluster > 1) join_blocks<t, true>(accumulators, lds, thread, slice, rank);
    if (slice == 0 && rank == 0) finish(args);
  }
};

}  // namespace dscore
