// Dense convolution of float32 as an implicit product of matrices on Hopper's matrix units: images
// unfolded, [pixel][input channel and tap], times filters [input channel and tap][channel], each
// product as three of TF32.
//
// As in implicit_gemm, a block keeps the part of the images under its pixels in LDS, and reads each
// tap from there; as in warpgroup_tf32, a warpgroup splits its pixels in two TF32 parts in
// registers, and reads filters from LDS. These come as they are in memory, and are split once for
// all warpgroups of a block, some of their rows at a time, beside the products of those before.
// Order of additions, as the reference backend has it: a slice s of the warpgroups sums channels
// [s * slice, (s + 1) * slice) of every step: turn after turn of rows of the filters, in these the
// channels in eights, of each the taps, row by row, each of which is gone through three times
// (small parts of the image by big ones of the filter, big by small, big by big); the sums of a
// step are added to those before; then the slices', ascending; then those of the blocks of a
// cluster, which share the steps; then bias. A tap outside of the image is 0 · w.
#pragma once

#include "implicit_warpgroup/tiling.hpp"
#include "support/joined_sums.hpp"
#include "warpgroup_tf32/units.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape_, class Epilogue>
struct ImplicitWarpgroup
    : ImplicitGemmTiles<T, ImplicitWarpgroupBuffers<Tiling, Layer>, Layer, Shape_, Epilogue> {
  using Shape = Shape_;
  using t = ImplicitWarpgroupBuffers<Tiling, Layer>;
  using Arguments = typename Epilogue::Arguments;
  using Tiles = ImplicitGemmTiles<T, t, Layer, Shape, Epilogue>;
  using Tiles::area, Tiles::pixels, Tiles::group_out, Tiles::steps_each, Tiles::all_steps;
  using Tiles::s, Tiles::thread, Tiles::lane, Tiles::wave_c, Tiles::wave_p, Tiles::slice;
  using Tiles::rank, Tiles::group, Tiles::first_channel, Tiles::first_pixel, Tiles::first_step;
  using Tiles::wanted, Tiles::patch_place, Tiles::tap_place;
  static constexpr int threads = t::threads, wavefront = t::wavefront, cluster = t::cluster;
  static constexpr int lds_bytes =
      greatest(t::ring * int{sizeof(float)} + Tiles::table_at + t::patch * int{sizeof(int)},
               t::joined * int{sizeof(float)});
  static constexpr int alignment = greatest(t::vector_p, t::vector_c) * int{sizeof(T)};

  // Rows of a warpgroup by 64, an instruction's. A lane's pixels lie 8 apart or, of two rows whose
  // pixels lie aligned, 4 side by side, so that it stores vectors.
  static constexpr int rows = t::wave_p / 64, lane_pixels = 2 * rows, columns = t::wave_c;
  static constexpr int beside = t::vector_p == 1 || rows == 1 ? 1 : lane_pixels;
  // Vectors of 4 channels of a tap in the filters of a turn, of which a thread splits some.
  static constexpr int across = t::step_c / 4 * t::taps_each, vectors = t::tile_c * across;

  float accumulators[t::accumulators];
  float products[rows][columns / 2];
  float biases[columns / 4];
  int places[lane_pixels];  // of the lane's pixels in the patch, of its channel of the first four

  __device__ ImplicitWarpgroup(const Arguments &args, const Shape &shape)
      : Tiles(args, shape), accumulators{}, products{} {
    const int warpgroup = of_wavefront(thread / t::group);
    slice = warpgroup / (t::waves_c * t::waves_p);
    wave_p = warpgroup % t::waves_p * t::wave_p + thread % t::group / wavefront * 16 * rows;
    wave_c = warpgroup / t::waves_p % t::waves_c * t::wave_c;
    DSCORE_UNROLL
    for (int i = 0; i < lane_pixels; i++)
      places[i] = patch_place(pixel_of(i)) + lane % 4 * t::patch;
    // Before the kernel begins to wait for the one before it.
    Tiles::fill_table(lds() + t::ring);
  }
  static __device__ float *lds() {
    return block_lds<float, lds_bytes / int{sizeof(float)}, swizzled_tile>();
  }
  __device__ int pixel_of(int i) const {
    const int g = lane / 4;
    return wave_p + (beside > 1 ? g * lane_pixels + i : 8 * i + g);
  }

  // Where an element of a filter lies in a part.
  static __device__ int filter_at(int tap, int row, int channel) {
    return (tap * (t::step_c / t::part_row) + channel / t::part_row) * t::tile_c * t::part_row +
           in_row<t::part_row>(row * t::part_row + channel % t::part_row);
  }
  // Splits a thread's share of the filters of a turn, or a part of it. Of lanes side by side eight
  // take neighbouring rows, and others the next taps, so that they meet few banks twice.
  __device__ void split_filters(float *parts, const T *filters, int turn, Part part) const {
    DSCORE_UNROLL
    for (int i = 0; i < ceil_div(vectors, threads); i++) {
      if (!part.has(i)) continue;
      const int at = i * threads + thread;
      if (vectors % threads != 0 && at >= vectors) continue;
      const int row = at / 8 / across * 8 + at % 8, column = at / 8 % across;
      const int channel = column / t::taps_each * 4, tap = column % t::taps_each;
      const T *from =
          filters + row * t::filter_row + channel * Layer::taps + turn * t::taps_each + tap;
      Pack<float, 4> big, small;
      DSCORE_UNROLL
      for (int j = 0; j < 4; j++) {
        const Halves halves(static_cast<float>(from[j * Layer::taps]));
        big.at[j] = halves.big, small.at[j] = halves.small;
      }
      const int to = filter_at(tap, row, channel);
      write_vector(parts + to, big);
      write_vector(parts + t::part + to, small);
    }
  }

  // Starts the products of a turn, but for the last batches of which it waits for them. `begun`:
  // whether the step has sums already. `ahead` is called with a part of what comes next as each
  // batch is under way.
  template <class Ahead>
  __device__ void multiply(const float *filters, const T *images, bool begun, Ahead ahead) {
    float big[2][rows][4], small[2][rows][4];
    DSCORE_UNROLL
    for (int batch = 0; batch < t::batches; batch++) {
      const int tap = batch % t::taps_each, eight = batch / t::taps_each;
      const int channel = slice * t::slice + eight * 8;
      const T *image = images + (slice * t::slice + eight * 8) * t::patch + tap_place(0, tap);
      float values[rows][4];
      DSCORE_UNROLL
      for (int half = 0; half < 2; half++)
        DSCORE_UNROLL
        for (int i = 0; i < lane_pixels; i++)
          values[i / 2][i % 2 + 2 * half] =
              static_cast<float>(image[places[i] + half * 4 * t::patch]);
      if (batch > 1) wait_products<1>();
      auto &a = big[batch % 2], &rest = small[batch % 2];
      DSCORE_UNROLL
      for (int m = 0; m < rows; m++)
        DSCORE_UNROLL
        for (int j = 0; j < 4; j++) {
          const Halves halves(values[m][j]);
          a[m][j] = halves.big, rest[m][j] = halves.small;
        }
      const float *b = filters + wave_c * t::part_row +
                       (tap * (t::step_c / t::part_row) + channel / t::part_row) * t::tile_c *
                           t::part_row;
      const int first = channel % t::part_row;
      order_products();
      DSCORE_UNROLL
      for (int m = 0; m < rows; m++) {
        multiply_rows<columns, t::part_row>(products[m], rest[m], b, first, batch > 0 || begun);
        multiply_rows<columns, t::part_row>(products[m], a[m], b + t::part, first, true);
        multiply_rows<columns, t::part_row>(products[m], a[m], b, first, true);
      }
      commit_products();
      ahead(Part{batch, t::batches});
    }
  }
  __device__ void finish_step() {
    DSCORE_UNROLL
    for (int m = 0; m < rows; m++)
      DSCORE_UNROLL
      for (int i = 0; i < columns / 2; i++) {
        settle_product(products[m][i]);
        accumulators[m * (columns / 2) + i] += products[m][i];
      }
  }

  // The filters of a turn are split while those before are multiplied: of the next step's first
  // turn in the last one, before which the step has arrived.
  __device__ void accumulate(const Arguments &args) {
    // One at least, as the tiling's limits see to: the loop that compilers see always waits.
    const int steps = least(steps_each(s), all_steps(s) - first_step);
    T *const ring = lds() + t::ring;
    DSCORE_UNROLL
    for (int step = 0; step < t::stages - 1; step++) {
      if (step < steps) Tiles::copy(ring + step * t::buffer, step);
      commit_copies();
    }
    wait_copies<t::stages - 2>();
    __syncthreads();
    split_filters(lds(), ring, 0, Part{0, 1});
    int step = 0, turn = 0, buffer = 0;
    DSCORE_ROLLED
    do {
      const bool last = turn + 1 == t::turns;
      const T *own = ring + step % t::stages * t::buffer;
      const T *next = last ? ring + (step + 1) % t::stages * t::buffer : own;
      if (last) wait_copies<t::stages - (t::turns > 1 ? 2 : 3)>();
      show_to_products();
      wait_products<0>();
      if (turn == 0 && step > 0) finish_step();
      // After the barrier nothing reads the other parts of filters, or the step before, any more.
      __syncthreads();
      multiply(lds() + buffer * t::parts, own + t::filters + tap_place(turn * t::rows, 0),
               turn > 0, [&](Part part) {
        const int later = step + t::stages - 1;
        if (part.number == 0 && turn == 0) {
          if (later < steps) Tiles::copy(ring + later % t::stages * t::buffer, later);
          commit_copies();
        }
        if (!last || step + 1 < steps)
          split_filters(lds() + (1 - buffer) * t::parts, next, last ? 0 : turn + 1, part);
      });
      buffer = 1 - buffer;
      turn = last ? 0 : turn + 1;
      step += last;
    } while (step < steps);
    // While the last products are under way.
    read_biases(args);
    wait_products<0>();
    finish_step();
  }

  // The output channels of a lane lie in pairs.
  __device__ int lane_channel(int i) const {
    return first_channel + wave_c + i / 2 * 8 + lane % 4 * 2 + i % 2;
  }
  __device__ void read_biases(const Arguments &args) {
    DSCORE_UNROLL
    for (int i = 0; i < columns / 4; i++)
      biases[i] = wanted(lane_channel(i))
                      ? Epilogue::bias_of(args, group * group_out(s) + lane_channel(i))
                      : 0.0f;
  }
  // Stores the sums of neighbouring pixels, the first of which is i, of each channel.
  __device__ void store(const Arguments &args, int i, int offset) const {
    DSCORE_UNROLL
    for (int c = 0; c < columns / 4; c++) {
      if (!wanted(lane_channel(c))) continue;
      float values[beside], bias[beside];
      DSCORE_UNROLL
      for (int j = 0; j < beside; j++) {
        values[j] =
            accumulators[((i + j) / 2 * (columns / 8) + c / 2) * 4 + (i + j) % 2 * 2 + c % 2];
        bias[j] = biases[c];
      }
      const int at = offset + lane_channel(c) * area(s);
      *reinterpret_cast<Pack<T, beside> *>(static_cast<T *>(args.out) + at) =
          Epilogue::template apply_each<beside>(values, args, bias, at);
    }
  }
  __device__ void finish(const Arguments &args) const {
    DSCORE_UNROLL
    for (int i = 0; i < lane_pixels; i += beside) {
      const int pixel = first_pixel + pixel_of(i);
      if (pixels(s) % t::tile_p != 0 && pixel >= pixels(s)) continue;
      store(args, i, (pixel / area(s) * s.out_channels + group * group_out(s)) * area(s) +
                         pixel % area(s));
    }
  }

  __device__ void run(const Arguments &args) {
    accumulate(args);
    if constexpr (t::slices > 1) join_slices<t>(accumulators, lds(), thread, slice);
    if constexpr (t::cluster > 1)
      join_blocks<t, true>(accumulators, lds(), thread, slice, rank);
    if (slice == 0 && rank == 0) finish(args);
  }
};

}  // namespace dscore
