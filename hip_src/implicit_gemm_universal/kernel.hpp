// Dense and grouped convolution as a product of matrices, of images in either layout and elements
// of 16 or 32 bits: images unfolded, [pixel][tap and input channel], times filters. No unfolded
// copy is made: a block keeps the part of the images under its pixels in LDS, the channels of a
// pixel side by side whatever the layout, and reads each tap from there.
//
// Order of additions with plain arithmetic, as the reference backend has it: a slice s of the
// wavefronts sums channels [s * slice, (s + 1) * slice) of every step: four of them, ascending, of
// each tap, row by row, then the next four; on matrix units as many as a fragment has of a tap.
// Then the slices are added, ascending; then the blocks of a cluster, which share the steps; then
// bias. A tap outside of the image is 0 · w, of bytes zero point · w, whose sums are exact in any
// order.
#pragma once

#include "implicit_gemm_universal/byte_lanes.hpp"
#include "support/requantised.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape_, class Epilogue>
struct ImplicitGemmUniversal
    : ImplicitGemmUniversalTiles<T, ImplicitGemmUniversalShape<T, Tiling, Layer>, Layer, Shape_,
                                 Epilogue> {
  using Shape = Shape_;
  using t = ImplicitGemmUniversalShape<T, Tiling, Layer>;
  using Arguments = typename Epilogue::Arguments;
  using Tiles = ImplicitGemmUniversalTiles<T, t, Layer, Shape, Epilogue>;
  using Particulars = PatchParticulars<T, t, Layer>;
  using Lanes = typename Particulars::Lanes;
  using Sum = typename t::Sum;
  using Result = typename Epilogue::Result;
  using Tiles::area, Tiles::pixels, Tiles::group_out, Tiles::steps_each, Tiles::all_steps;
  using Tiles::s, Tiles::thread, Tiles::lane, Tiles::wave_c, Tiles::wave_p, Tiles::slice;
  using Tiles::rank, Tiles::group, Tiles::first_channel, Tiles::first_pixel, Tiles::first_step;
  using Tiles::zero;
  static constexpr int threads = t::threads, wavefront = t::wavefront, cluster = t::cluster;
  static constexpr int lds_bytes = t::lds_bytes;
  static constexpr int alignment =
      greatest(greatest(t::vector_in * static_cast<int>(sizeof(T)),
                        t::vector_out * static_cast<int>(sizeof(Result))),
               t::exact ? Epilogue::alignment * (t::last ? least(t::vector_out, 4) : 1) : 1);

  Sum accumulators[t::accumulators];
  typename Particulars::Filters filters;
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
    if constexpr (t::exact)
      if (zero != 0) filters.add(lds, thread);
  }
  // Takes what x counts from off the sums, times those of the filters.
  __device__ void take_off_zero() {
    if constexpr (t::exact) {
      if (zero == 0) return;
      int *const sums = reinterpret_cast<int *>(lds_bytes_at(t::filter_sums_at));
      filters.put(sums, thread, [](int row) { return t::channel_of_row(row); });
      __syncthreads();
      if (slice > 0) return;
      int off[Lanes::channels];
      DSCORE_UNROLL
      for (int c = 0; c < Lanes::channels; c++)
        off[c] = zero *
                 filters.of(sums, wave_c + Lanes::sum_channel(Lanes::first_of_channel(c), lane));
      DSCORE_UNROLL
      for (int i = 0; i < t::accumulators; i++) accumulators[i] -= off[Lanes::channel_number(i)];
    }
  }

  static __device__ int sum_at(int pixel, int channel) {
    return t::last ? pixel * t::sum_row + channel : channel * t::sum_row + pixel;
  }
  // Neighbouring channels of a lane as one, where they lie side by side.
  static constexpr int beside = t::last ? Lanes::beside : 1;
  __device__ void put_sums(Sum *sums) const {
    DSCORE_UNROLL
    for (int i = 0; i < t::accumulators; i += beside) {
      Pack<Sum, beside> several;
      DSCORE_UNROLL
      for (int j = 0; j < beside; j++) several.at[j] = accumulators[i + j];
      write_vector(sums + slice * t::sums + sum_at(wave_p + Lanes::sum_pixel(i, lane),
                                                   wave_c + Lanes::sum_channel(i, lane)),
                   several);
    }
  }

  // Outputs that lie side by side and are stored as one: of bytes by fours, whose sums a wavefront
  // reads from neighbouring banks.
  static constexpr int width = t::exact ? least(t::vector_out, 4) : t::vector_out;
  // The sums of all slices, and of a cluster's blocks.
  __device__ void join(Sum (&values)[width], const Sum *sums) const {
    DSCORE_ROLLED
    for (int block = 0; block < t::cluster; block++) join_block<t>(values, sums, block);
  }
  __device__ int output_at(int pixel, int o) const {
    return Images<t::layout>::at(pixel / area(s), o, pixel % area(s), s.out_channels, area(s));
  }
  __device__ void store(const Arguments &args, int pixel, int channel, const Sum *values) const {
    if (pixel >= pixels(s) || !Tiles::wanted(channel)) return;
    const int o = group * group_out(s) + channel, at = output_at(pixel, o);
    Result *out = static_cast<Result *>(args.out) + at;
    if constexpr (t::last)
      write_vector(out, Epilogue::template apply_channels<width>(values, args, o, at));
    else write_vector(out, Epilogue::template apply<width>(values, args, o, at));
  }
  // Neighbouring threads store neighbouring vectors; a cluster's blocks have a share of them each.
  __device__ void finish_joined(const Arguments &args, Sum *sums) const {
    __syncthreads();
    put_sums(sums);
    if constexpr (t::cluster > 1) cluster_barrier();
    else __syncthreads();
    constexpr int columns = (t::last ? t::tile_c : t::tile_p) / width;
    constexpr int all = (t::last ? t::tile_p : t::tile_c) * columns;
    DSCORE_ROLLED
    for (int at = rank * threads + thread; at < all; at += threads * t::cluster) {
      const int row = at / columns, column = at % columns * width;
      Sum values[width] = {};
      join(values, sums + row * t::sum_row + column);
      store(args, first_pixel + (t::last ? row : column), first_channel + (t::last ? column : row),
            values);
    }
    // A block's LDS is there for as long as the block is.
    if constexpr (t::cluster > 1) cluster_barrier();
  }
  // Each lane its own sums. What results need of their channels is read once.
  __device__ void finish_direct(const Arguments &args) const {
    constexpr int several = least(Lanes::run, t::vector_out);
    const auto points = Epilogue::points_of(args);
    DSCORE_UNROLL
    for (int at = 0; at < Lanes::runs * Lanes::run; at += several) {
      const int q = at / Lanes::run, e = at % Lanes::run;
      const int channel = first_channel + wave_c + Lanes::run_channel(q, lane) + e;
      if (!Tiles::wanted(channel)) continue;
      const int o = group * group_out(s) + channel;
      const auto of_channels = Epilogue::template channels_of<several>(args, o);
      DSCORE_UNROLL
      for (int r = 0; r < Lanes::pixels; r++) {
        const int pixel = first_pixel + wave_p + Lanes::run_pixel(r, lane);
        if (pixel >= pixels(s)) continue;
        Sum values[several];
        DSCORE_UNROLL
        for (int j = 0; j < several; j++) values[j] = accumulators[Lanes::index(r, q, e + j)];
        const int to = pixel * s.out_channels + o;
        write_vector(static_cast<Result *>(args.out) + to,
                     Epilogue::template results_of<several>(values, of_channels, points, to));
      }
    }
  }

  __device__ void run(const Arguments &args) {
    T *const lds = buffers();
    Tiles::read_zero(args);
    run_ring<t>(*this, lds, least(steps_each(s), all_steps(s) - first_step),
                [&](T *buffer, int) { Tiles::arrived(buffer); });
    take_off_zero();
    if constexpr (t::direct) finish_direct(args);
    else finish_joined(args, reinterpret_cast<Sum *>(lds));
  }
};

}  // namespace dscore
