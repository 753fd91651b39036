// Weight gradient of a pointwise convolution as a product of matrices: the output's gradient
// [channel][pixel] by the input [input channel][pixel], summed over the pixels of all images.
//
// The sum is long and the result small, so that blocks share the pixels of a tile of the result:
// `parts` of the pixels are added by a kernel that follows (split_k/sum.hpp).
//
// A step is so many pixels of each channel, or, of `planes`, a whole image of each slice: there the
// channels of a tile lie in memory as one piece, which moves by vectors where no plane could.
//
// Order of additions with plain arithmetic, as the reference backend has it: a slice s of the
// wavefronts sums pixels [s * slice, (s + 1) * slice) of every step, ascending; then the slices are
// added, ascending; then the blocks of a cluster; then the parts.
#pragma once

#include "split_k/sum.hpp"
#include "split_k/tiles.hpp"
#include "support/joined_sums.hpp"

namespace dscore {

// VectorG, VectorX, VectorW: elements that lie side by side and aligned in an image of the
// gradient, of the input, and in a row of the result.
template <int TileO, int TileI, int WaveO, int WaveI, int LanesO, int Slices, int Step, int Stages,
          int Parts, int Cluster, bool Planes, bool Split, int VectorG, int VectorX, int VectorW,
          int Wavefront>
struct SplitKTiling {
  static constexpr int tile_o = TileO, tile_i = TileI, wave_o = WaveO, wave_i = WaveI;
  static constexpr int lanes_o = LanesO, lanes_i = Wavefront / LanesO;
  static constexpr int slices = Slices, step = Step, stages = Stages, parts = Parts;
  static constexpr int cluster = Cluster, shares = Parts * Cluster;  // blocks of a tile
  static constexpr int wavefront = Wavefront;
  static constexpr int vector_g = VectorG, vector_x = VectorX, vector_w = VectorW;
  static constexpr bool planes = Planes, split = Split;
  static constexpr int waves_o = TileO / WaveO, waves_i = TileI / WaveI;
  static constexpr int threads = waves_o * waves_i * Slices * Wavefront, slice = Step / Slices;
  // Rows of pixels begin some banks apart, so that lanes reading several meet no bank twice: 8
  // where four rows are read by pairs, 4 where eight are read by fours. Planes lie as in memory.
  static constexpr int row = Planes ? slice
                             : Split ? Step + (Step % 16 == 8 ? 0 : 8)
                                     : Step + (Step % 8 ? 0 : 4);
  // Where the next slice of a channel begins.
  static constexpr int slice_apart_o = Planes ? TileO * row : slice;
  static constexpr int slice_apart_i = Planes ? TileI * row : slice;
  // The last eight pixels of a plane may begin another one, or reach past the buffer.
  static constexpr int gradients = (Planes ? Slices : 1) * TileO * row;
  static constexpr int buffer = gradients + (Planes ? Slices : 1) * TileI * row + (Planes ? 8 : 0);
  static constexpr int accumulators = WaveO * WaveI / Wavefront;
  // So do rows of sums, that are written by pairs.
  static constexpr int sum_row = TileI + (TileI % 16 ? 0 : 8), sums = TileO * sum_row;
  static_assert(TileO % WaveO == 0 && TileI % WaveI == 0, "a block holds whole wavefronts");
  static_assert(TileI % VectorW == 0, "rows of whole vectors");
  static_assert(Stages >= 2, "one buffer is filled while another is read");
  static_assert(has_tf32 || !Split, "matrix units of TF32");
  static_assert(Step % Slices == 0 && (Planes || slice % (Split ? 8 : 4) == 0),
                "slices of whole vectors");
  static_assert(!Planes || (VectorG > 1 && VectorX == VectorG && TileO % VectorG == 0 &&
                            TileI % VectorG == 0), "pieces of whole vectors");
  static_assert(Split ? WaveO % 16 == 0 && WaveI % 8 == 0 && LanesO == 8 && Wavefront == 32
                      : WaveO % LanesO == 0 && WaveI % lanes_i == 0, "whole fragments");
};

// With a workspace where there are parts.
template <class t>
using SplitKArguments =
    std::conditional_t<(t::parts > 1), WorkspaceArguments, WeightGradientArguments>;

template <class T, class Tiling, class Layer, class Shape_, class>
struct SplitK : SplitKTiles<T, Tiling, Layer, Shape_, SplitKArguments<Tiling>> {
  using Shape = Shape_;
  using t = Tiling;
  using Arguments = SplitKArguments<t>;
  using Tiles = SplitKTiles<T, t, Layer, Shape, Arguments>;
  using Tiles::s, Tiles::thread, Tiles::lane, Tiles::wave_o, Tiles::wave_i, Tiles::slice;
  using Tiles::part, Tiles::rank, Tiles::first_o, Tiles::first_i, Tiles::steps;
  using Then = std::conditional_t<(t::parts > 1), SplitKSum<T, t, Shape>, void>;
  static constexpr int threads = t::threads, wavefront = t::wavefront, cluster = t::cluster;
  // Planes pass through a ring by bulk copies.
  static constexpr bool bulk = t::planes && !Tiles::fetched;
  static constexpr int ring_bytes = t::stages * t::buffer * int{sizeof(T)};
  static constexpr int lds_bytes =
      greatest(ring_bytes + (bulk ? t::stages * int{sizeof(TransferBarrier)} : 0),
               t::slices * t::sums * int{sizeof(float)});
  static constexpr int alignment =
      greatest(greatest(t::vector_g, t::vector_x), t::vector_w) * int{sizeof(T)};

  static long long workspace_bytes(const Shape &s) {
    const long long bytes = sizeof(float);
    return t::parts > 1 ? bytes * t::parts * s.out_channels * s.in_channels : 0;
  }

  float accumulators[t::accumulators];

  __device__ SplitK(const Arguments &args, const Shape &shape)
      : Tiles(args, shape), accumulators{} {}

  // A lane's channels of the output lie lanes_o apart, those of the input lanes_i.
  static constexpr int thread_o = t::wave_o / t::lanes_o, thread_i = t::wave_i / t::lanes_i;
  // Pixels that are read as one: a plane's rows may begin anywhere.
  static constexpr int together = t::slice % 4 == 0 ? 4 : 1;
  __device__ void multiply_plain(const T *lds) {
    using Pixels = Pack<T, together>;
    const T *gradients =
        lds + (wave_o + lane / t::lanes_i) * t::row + slice * t::slice_apart_o;
    const T *images = lds + t::gradients + (wave_i + lane % t::lanes_i) * t::row +
                      slice * t::slice_apart_i;
    DSCORE_UNROLL_READS
    for (int k = 0; k < t::slice; k += together) {
      Pixels a[thread_o], b[thread_i];
      DSCORE_UNROLL
      for (int o = 0; o < thread_o; o++)
        a[o] = *reinterpret_cast<const Pixels *>(gradients + o * t::lanes_o * t::row + k);
      DSCORE_UNROLL
      for (int i = 0; i < thread_i; i++)
        b[i] = *reinterpret_cast<const Pixels *>(images + i * t::lanes_i * t::row + k);
      DSCORE_UNROLL
      for (int p = 0; p < together; p++)
        DSCORE_UNROLL
        for (int o = 0; o < thread_o; o++)
          DSCORE_UNROLL
          for (int i = 0; i < thread_i; i++)
            accumulators[o * thread_i + i] +=
                static_cast<float>(a[o].at[p]) * static_cast<float>(b[i].at[p]);
    }
  }

  // Matrix units, in fragments of 16 channels of the output by 8 of the input: each product as
  // three of TF32, the small parts' first. Lane 4 g + i holds, in place of columns i and i + 4 of
  // the fragments, pixels 2 i and 2 i + 1; of planes, whose rows lie closer, i and i + 4.
  static constexpr int rows8 = t::wave_o / 8, columns8 = t::wave_i / 8;
  __device__ void multiply_split(const T *lds) {
    const int g = lane / 4;
    const T *gradients = lds + (wave_o + g) * t::row + slice * t::slice_apart_o;
    const T *images = lds + t::gradients + (wave_i + g) * t::row + slice * t::slice_apart_i;
    float step[t::accumulators] = {};
    DSCORE_UNROLL
    for (int k = 0; k < t::slice; k += 8) {
      Halves a[rows8 / 2][4], b[columns8][2];
      DSCORE_UNROLL
      for (int m = 0; m < rows8; m++) {
        const auto two = two_pixels(gradients + m * 8 * t::row, k);
        a[m / 2][m % 2] = Halves(two.at[0]), a[m / 2][m % 2 + 2] = Halves(two.at[1]);
      }
      DSCORE_UNROLL
      for (int n = 0; n < columns8; n++) {
        const auto two = two_pixels(images + n * 8 * t::row, k);
        b[n][0] = Halves(two.at[0]), b[n][1] = Halves(two.at[1]);
      }
      multiply_in_three(step, a, b);
    }
    add_step(accumulators, step);
  }
  // The lane's pixels of the eight that begin at k of a channel; 0 past a plane's last.
  __device__ Pack<T, 2> two_pixels(const T *channel, int k) const {
    if constexpr (!t::planes)
      return *reinterpret_cast<const Pack<T, 2> *>(channel + k + lane % 4 * 2);
    Pack<T, 2> two;
    DSCORE_UNROLL
    for (int i = 0; i < 2; i++) {
      const int at = k + lane % 4 + 4 * i;
      two.at[i] = t::slice % 8 == 0 || at < t::slice ? channel[at] : T(0);
    }
    return two;
  }

  __device__ void multiply(const T *lds) {
    if constexpr (t::split) multiply_split(lds);
    else multiply_plain(lds);
  }

  // The lane's sums to the tile of its slice.
  __device__ void put_plain(float *sums) const {
    float *own = sums + (wave_o + lane / t::lanes_i) * t::sum_row + wave_i + lane % t::lanes_i;
    DSCORE_UNROLL
    for (int o = 0; o < thread_o; o++)
      DSCORE_UNROLL
      for (int i = 0; i < thread_i; i++)
        own[o * t::lanes_o * t::sum_row + i * t::lanes_i] = accumulators[o * thread_i + i];
  }
  __device__ void put_split(float *sums) const {
    float *own = sums + (wave_o + lane / 4) * t::sum_row + wave_i + lane % 4 * 2;
    DSCORE_UNROLL
    for (int m = 0; m < rows8; m++)
      DSCORE_UNROLL
      for (int n = 0; n < columns8; n++) {
        const float *two = accumulators + (m / 2 * columns8 + n) * 4 + m % 2 * 2;
        *reinterpret_cast<Pack<float, 2> *>(own + m * 8 * t::sum_row + n * 8) = {two[0], two[1]};
      }
  }

  // Sums that lie side by side, of all slices of all blocks of the cluster.
  using Sums = Pack<float, t::vector_w>;
  __device__ Sums joined(const float *sums) const {
    Sums total{};
    if constexpr (cluster > 1) {
      join_all<t>(total.at, sums);
    } else {
      DSCORE_ROLLED
      for (int other = 0; other < t::slices; other++)
        DSCORE_UNROLL
        for (int j = 0; j < t::vector_w; j++) total.at[j] += sums[other * t::sums + j];
    }
    return total;
  }

  __device__ void finish(const Arguments &args, float *sums) const {
    __syncthreads();
    if constexpr (t::split) put_split(sums + slice * t::sums);
    else put_plain(sums + slice * t::sums);
    if constexpr (cluster > 1) cluster_barrier();
    else __syncthreads();
    constexpr int columns = t::tile_i / t::vector_w;
    for (int at = rank * threads + thread; at < t::tile_o * columns; at += cluster * threads) {
      const int o = at / columns, i = at % columns * t::vector_w;
      if (first_o + o < s.out_channels && first_i + i < s.in_channels)
        store(args, (first_o + o) * s.in_channels + first_i + i,
              joined(sums + o * t::sum_row + i));
    }
    if constexpr (cluster > 1) cluster_barrier();  // a block's LDS is there as long as the block is
  }
  __device__ void store(const Arguments &args, int at, const Sums &sums) const {
    if constexpr (t::parts > 1) {
      float *own = static_cast<float *>(args.workspace) + part * s.out_channels * s.in_channels;
      *reinterpret_cast<Sums *>(own + at) = sums;
    } else {
      store_rounded(static_cast<T *>(args.out) + at, sums);
    }
  }

  // As run_copied (support/ring.hpp), a slice without an image left out.
  __device__ void run_planes(T *lds) {
    using Bulk = typename Tiles::Bulk;
    auto *barriers = reinterpret_cast<TransferBarrier *>(lds + ring_bytes / int{sizeof(T)});
    const auto copy = [&](int step) {
      if (step < steps)
        Tiles::copy_planes(barriers + step % t::stages, lds + step % t::stages * t::buffer, step);
      Bulk::end_copies();
    };
    Bulk::template prepare<t::stages>(barriers, thread);
    DSCORE_UNROLL
    for (int step = 0; step < t::stages - 1; step++) copy(step);
    DSCORE_ROLLED
    for (int step = 0; step < steps; step++) {
      Bulk::template wait_for_load<t::stages - 2>(barriers + step % t::stages, true,
                                                  step / t::stages % 2);
      copy(step + t::stages - 1);
      if (slice < Tiles::images(step)) multiply(lds + step % t::stages * t::buffer);
    }
  }

  __device__ void run(const Arguments &args) {
    T *lds = block_lds<T, lds_bytes / int{sizeof(T)}>();
    // Blocks of the sum of parts may come beforehand: they wait for this kernel's end.
    if constexpr (t::parts > 1) admit_next_kernel();
    if constexpr (bulk) run_planes(lds);
    else run_ring<t>(*this, lds, steps, [](T *, int) {});
    finish(args, reinterpret_cast<float *>(lds));
  }
};

}  // namespace dscore
