// Dense and grouped convolution as a product of matrices, of images in either layout and elements
// of 16 or 32 bits: images unfolded, [pixel][tap and input channel], times filters. No unfolded
// copy is made: a block keeps the part of the images under its pixels in LDS, the channels of a
// pixel side by side whatever the layout, and reads each tap from there.
//
// Order of additions with plain arithmetic, as the reference backend has it: a slice s of the
// wavefronts sums channels [s * slice, (s + 1) * slice) of every step: four of them, ascending, of
// each tap, row by row, then the next four; on matrix units as many as a fragment has of a tap.
// Then the slices are added, ascending; then the blocks of a cluster, which share the steps; then
// bias. A tap outside of the image is 0 · w.
#pragma once

#include "implicit_gemm_universal/lanes.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape_, class Epilogue>
struct ImplicitGemmUniversal
    : ImplicitGemmUniversalTiles<T, ImplicitGemmUniversalShape<T, Tiling, Layer>, Layer, Shape_,
                                 Epilogue> {
  using Shape = Shape_;
  using t = ImplicitGemmUniversalShape<T, Tiling, Layer>;
  using Arguments = typename Epilogue::Arguments;
  using Tiles = ImplicitGemmUniversalTiles<T, t, Layer, Shape, Epilogue>;
  using Lanes = PatchLanesOf<T, t, Layer>;
  using Tiles::area, Tiles::pixels, Tiles::group_out, Tiles::steps_each, Tiles::all_steps;
  using Tiles::s, Tiles::thread, Tiles::lane, Tiles::wave_c, Tiles::wave_p, Tiles::slice;
  using Tiles::rank, Tiles::group, Tiles::first_channel, Tiles::first_pixel, Tiles::first_step;
  static constexpr int threads = t::threads, wavefront = t::wavefront, cluster = t::cluster;
  static constexpr int lds_bytes = t::lds_bytes;
  static constexpr int alignment =
      greatest(t::vector_in, t::vector_out) * static_cast<int>(sizeof(T));

  float accumulators[t::accumulators];
  int places[Lanes::held];  // of the lane's pixels in the patch, in elements of LDS

  static __device__ T *buffers() { return block_lds<T, lds_bytes / int{sizeof(T)}>(); }
  static __device__ char *lds_bytes_at(int at) {
    return reinterpret_cast<char *>(buffers()) + at;
  }

  __device__ ImplicitGemmUniversal(const Arguments &args, const Shape &shape)
      : Tiles(args, shape), accumulators{} {
    DSCORE_UNROLL
    for (int i = 0; i < Lanes::held; i++)
      places[i] = Tiles::patch_place(wave_p + Lanes::pixel(i, lane)) * t::element;
    if (thread < 4) reinterpret_cast<int *>(lds_bytes_at(t::zeros_at))[thread] = 0;
    // Before the kernel begins to wait for the one before it.
    Tiles::fill_table(reinterpret_cast<int *>(lds_bytes_at(t::table_at)));
  }

  __device__ void multiply(const T *lds) {
    const StepOperands<T, t, Layer> step{
        lds + wave_c * t::filter_row, lds + t::filters,
        reinterpret_cast<const T *>(lds_bytes_at(t::zeros_at)), places, slice * t::slice,
        Tiles::row_width(s)};
    Lanes::multiply(accumulators, step, lane);
  }

  static __device__ int sum_at(int pixel, int channel) {
    return t::last ? pixel * t::sum_row + channel : channel * t::sum_row + pixel;
  }
  // Neighbouring channels of a lane as one, where they lie side by side.
  static constexpr int beside = t::last ? Lanes::beside : 1;
  __device__ void put_sums(float *sums) const {
    DSCORE_UNROLL
    for (int i = 0; i < t::accumulators; i += beside) {
      Pack<float, beside> several;
      DSCORE_UNROLL
      for (int j = 0; j < beside; j++) several.at[j] = accumulators[i + j];
      write_vector(sums + slice * t::sums + sum_at(wave_p + Lanes::sum_pixel(i, lane),
                                                   wave_c + Lanes::sum_channel(i, lane)),
                   several);
    }
  }

  // The sums of all slices, and of a cluster's blocks, of outputs that lie side by side.
  static constexpr int width = t::vector_out, part = least(width, 4);
  __device__ void join(float (&values)[width], const float *sums) const {
    DSCORE_ROLLED
    for (int block = 0; block < t::cluster; block++) {
      float own[width] = {};
      DSCORE_UNROLL
      for (int other = 0; other < t::slices; other++)
        DSCORE_UNROLL
        for (int j = 0; j < width; j += part) {
          const float *from = sums + other * t::sums + j;
          const auto several = t::cluster > 1 ? read_vector_of_block<part>(from, block)
                                              : read_vector<part>(from);
          DSCORE_UNROLL
          for (int i = 0; i < part; i++) own[j + i] += several.at[i];
        }
      DSCORE_UNROLL
      for (int j = 0; j < width; j++) values[j] += own[j];
    }
  }
  __device__ void store(const Arguments &args, int pixel, int channel, const float *values) const {
    if (pixel >= pixels(s) || !Tiles::wanted(channel)) return;
    const int o = group * group_out(s) + channel;
    const int at = Images<t::layout>::at(pixel / area(s), o, pixel % area(s), s.out_channels,
                                         area(s));
    T *out = static_cast<T *>(args.out) + at;
    if constexpr (t::last)
      write_vector(out, Epilogue::template apply_channels<width>(values, args, o, at));
    else write_vector(out, Epilogue::template apply<width>(values, args, o, at));
  }
  // Neighbouring threads store neighbouring vectors; a cluster's blocks have a share of them each.
  __device__ void finish(const Arguments &args, float *sums) const {
    __syncthreads();
    put_sums(sums);
    if constexpr (t::cluster > 1) cluster_barrier();
    else __syncthreads();
    constexpr int columns = (t::last ? t::tile_c : t::tile_p) / width;
    constexpr int all = (t::last ? t::tile_p : t::tile_c) * columns;
    DSCORE_ROLLED
    for (int at = rank * threads + thread; at < all; at += threads * t::cluster) {
      const int row = at / columns, column = at % columns * width;
      float values[width] = {};
      join(values, sums + row * t::sum_row + column);
      store(args, first_pixel + (t::last ? row : column), first_channel + (t::last ? column : row),
            values);
    }
    // A block's LDS is there for as long as the block is.
    if constexpr (t::cluster > 1) cluster_barrier();
  }

  __device__ void run(const Arguments &args) {
    T *const lds = buffers();
    run_ring<t>(*this, lds, least(steps_each(s), all_steps(s) - first_step),
                [&](T *buffer, int) { Tiles::arrived(buffer); });
    finish(args, reinterpret_cast<float *>(lds));
  }
};

}  // namespace dscore
