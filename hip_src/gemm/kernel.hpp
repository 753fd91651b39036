// Pointwise convolution as a product of matrices: filters [channel][input channel] times images
// [input channel][pixel], by register tiles from a ring of LDS buffers.
//
// The pixels of all images follow one another, so that a tile may reach over several images.
// Order of additions with plain arithmetic, as the reference backend has it: a slice s of the
// wavefronts sums channels [s * slice, (s + 1) * slice) of every step, ascending; then the slices
// are added, ascending; then those of the blocks of a cluster, which share the steps; then bias.
#pragma once

#include "gemm/scales.hpp"
#include "support/joined_sums.hpp"

namespace dscore {

// VectorP, VectorC: elements that lie side by side and aligned in an image and in a filter.
template <int TileC, int TileP, int WaveC, int WaveP, int LanesC, int Slices, int StepC, int Stages,
          int Cluster, bool Split, int VectorP, int VectorC, int Wavefront>
struct GemmTiling {
  static constexpr int tile_c = TileC, tile_p = TileP, wave_c = WaveC, wave_p = WaveP;
  static constexpr int lanes_c = LanesC, lanes_p = Wavefront / LanesC;
  static constexpr int slices = Slices, step_c = StepC, stages = Stages, cluster = Cluster;
  static constexpr int wavefront = Wavefront;
  static constexpr int vector_p = VectorP, vector_c = VectorC;
  static constexpr bool split = Split, turned = false;
  static constexpr int waves_c = TileC / WaveC, waves_p = TileP / WaveP;
  static constexpr int slice_threads = waves_c * waves_p * Wavefront;
  static constexpr int threads = slice_threads * Slices, slice = StepC / Slices;
  // Filters' rows begin 8 banks apart, images' 4, so that lanes reading several meet no bank twice.
  static constexpr int filter_row = StepC + (StepC % 16 == 8 ? 0 : 8);
  static constexpr int image_row = TileP + (TileP % 8 == 0 ? 4 : 0);
  static constexpr int filters = TileC * filter_row;
  static constexpr int buffer = filters + StepC * image_row;
  static constexpr int accumulators = WaveC * WaveP / Wavefront;
  // Accumulators that slices, and the blocks of a cluster, hand over in LDS.
  static constexpr int joined =
      greatest(Slices - 1, Cluster > 1 ? 1 : 0) * slice_threads * accumulators;
  static_assert(TileC % WaveC == 0 && TileP % WaveP == 0, "a block holds whole wavefronts");
  static_assert(Stages >= 2, "one buffer is filled while another is read");
  static_assert(has_tf32 || !Split, "matrix units of TF32");
  static_assert(StepC % Slices == 0 && slice % (Split ? 8 : 4) == 0, "slices of whole vectors");
  static_assert(Split ? WaveC % 8 == 0 && WaveP % 16 == 0 && LanesC == 8 && Wavefront == 32
                      : WaveC % LanesC == 0 && WaveP % (4 * lanes_p) == 0, "whole fragments");
};

// Whether a kernel was built for one image.
template <class Shape>
constexpr bool of_one_image() {
  if constexpr (std::is_same_v<Shape, dscore_shape>) return false;
  else return Shape::batch == 1;
}

template <class T, class Tiling, class Layer, class Shape_, class Epilogue>
struct Gemm : GemmTiles<T, Tiling, Layer, Shape_, Epilogue> {
  using Shape = Shape_;
  using t = Tiling;
  using Arguments = typename Epilogue::Arguments;
  using Tiles = GemmTiles<T, t, Layer, Shape, Epilogue>;
  using Tiles::area, Tiles::channels, Tiles::depth, Tiles::wanted;
  using Tiles::s, Tiles::thread, Tiles::lane, Tiles::wave_c, Tiles::wave_p, Tiles::slice;
  using Tiles::rank, Tiles::first_channel, Tiles::first_pixel, Tiles::first_step, Tiles::nowhere;
  using Tiles::pixels, Tiles::channel_tiles, Tiles::steps_each;
  static constexpr int threads = t::threads, wavefront = t::wavefront, cluster = t::cluster;
  using Accumulator = float;
  static constexpr int lds_bytes = greatest(t::stages * t::buffer * int{sizeof(T)},
                                            t::joined * int{sizeof(Accumulator)});
  static constexpr int alignment = greatest(t::vector_p, t::vector_c) * int{sizeof(T)};
  // Vectors of 16 bytes pass the cache by; smaller ones share its lines, which gains with several
  // images.
  static constexpr bool most_lds =
      least(t::vector_p, t::vector_c) * int{sizeof(T)} == 16 || of_one_image<Shape>();

  // Block of the cluster fastest, then channel tile: blocks that read the same pixels follow one
  // another.
  static int blocks(const Shape &s) {
    return t::cluster * channel_tiles(s) * ceil_div(pixels(s), t::tile_p);
  }

  Accumulator accumulators[t::accumulators];

  // A lane's channels lie lanes_c apart, its pixels in fours.
  static constexpr int thread_c = t::wave_c / t::lanes_c, fours = t::wave_p / t::lanes_p / 4;
  __device__ void multiply_plain(const T *lds) {
    const T *filters = lds + (wave_c + lane / t::lanes_p) * t::filter_row + slice * t::slice;
    const T *images = lds + t::filters + slice * t::slice * t::image_row + wave_p +
                      lane % t::lanes_p * 4;
    DSCORE_UNROLL_READS
    for (int k = 0; k < t::slice; k += 4) {
      Pack<T, 4> a[thread_c];
      DSCORE_UNROLL
      for (int i = 0; i < thread_c; i++)
        a[i] = *reinterpret_cast<const Pack<T, 4> *>(filters + i * t::lanes_c * t::filter_row + k);
      DSCORE_UNROLL
      for (int part = 0; part < 4; part++)
        multiply_channel(images + (k + part) * t::image_row,
                         [&](int i) { return a[i].at[part]; });
    }
  }
  // Filters turned: a lane's channels lie side by side, as far as they make vectors.
  static constexpr int beside = !t::turned || thread_c % 2 ? 1 : thread_c % 4 ? 2 : 4;
  __device__ void multiply_turned(const T *lds) {
    const T *filters = lds + slice * t::slice * t::filter_row + wave_c + lane / t::lanes_p * beside;
    const T *images = lds + t::filters + slice * t::slice * t::image_row + wave_p +
                      lane % t::lanes_p * 4;
    DSCORE_UNROLL_READS
    for (int k = 0; k < t::slice; k += 4)
      DSCORE_UNROLL
      for (int part = 0; part < 4; part++) {
        Pack<T, beside> a[thread_c / beside];
        DSCORE_UNROLL
        for (int q = 0; q < thread_c / beside; q++)
          a[q] = *reinterpret_cast<const Pack<T, beside> *>(
              filters + (k + part) * t::filter_row + q * t::lanes_c * beside);
        multiply_channel(images + (k + part) * t::image_row,
                         [&](int i) { return a[i / beside].at[i % beside]; });
      }
  }
  // Adds the products of one channel's pixels by the filters' elements for it.
  template <class Filter>
  __device__ void multiply_channel(const T *images, Filter filter) {
    Pack<T, 4> b[fours];
    DSCORE_UNROLL
    for (int q = 0; q < fours; q++)
      b[q] = *reinterpret_cast<const Pack<T, 4> *>(images + q * t::lanes_p * 4);
    DSCORE_UNROLL
    for (int i = 0; i < thread_c; i++)
      DSCORE_UNROLL
      for (int p = 0; p < 4 * fours; p++)
        accumulators[i * 4 * fours + p] +=
            static_cast<float>(filter(i)) * static_cast<float>(b[p / 4].at[p % 4]);
  }

  // Fragments of 16 pixels by 8 channels. Where pixels lie aligned, a lane's lie side by side (4,
  // or 2), so that it loads and stores vectors; else 8 apart, so that its neighbours' are adjacent.
  static constexpr int group = t::vector_p == 1 ? 1 : t::wave_p % 32 == 0 ? 4 : 2;
  static constexpr int eights = t::wave_p / 8, columns8 = t::wave_c / 8;
  // So do a lane's channels of filters that are turned.
  static constexpr int column_group = !t::turned || t::wave_c % 16 ? 1 : t::wave_c % 32 ? 2 : 4;

  FragmentScales<T, t, eights / group, 8 * group, Epilogue::scaled && t::split> scales;

  // Matrix units: each product as three of TF32, the small parts' first. Lane 4 g + i holds, in
  // place of columns i and i + 4 of the fragments, channels 2 i and 2 i + 1.
  __device__ void multiply_split(const T *lds) {
    const int g = lane / 4, pair = lane % 4 * 2;
    const T *filters =
        t::turned ? lds + (slice * t::slice + pair) * t::filter_row + wave_c + g * column_group
                  : lds + (wave_c + g) * t::filter_row + slice * t::slice + pair;
    const T *images =
        lds + t::filters + (slice * t::slice + pair) * t::image_row + wave_p + g * group;
    Accumulator step[t::accumulators] = {};
    DSCORE_UNROLL
    for (int k = 0; k < t::slice; k += 8) {
      Halves a[eights / 2][4], b[columns8][2];
      DSCORE_UNROLL
      for (int eight = 0; eight < eights; eight += group)
        DSCORE_UNROLL
        for (int half = 0; half < 2; half++) {
          const auto several = *reinterpret_cast<const Pack<T, group> *>(
              images + (k + half) * t::image_row + eight * 8);
          DSCORE_UNROLL
          for (int j = 0; j < group; j++)
            a[(eight + j) / 2][(eight + j) % 2 + 2 * half] =
                Halves(scales.scaled(several.at[j], eight / group, k / 4 + half));
        }
      if constexpr (t::turned) {
        DSCORE_UNROLL
        for (int n = 0; n < columns8; n += column_group)
          DSCORE_UNROLL
          for (int half = 0; half < 2; half++) {
            const auto several = *reinterpret_cast<const Pack<T, column_group> *>(
                filters + (k + half) * t::filter_row + n * 8);
            DSCORE_UNROLL
            for (int j = 0; j < column_group; j++) b[n + j][half] = Halves(several.at[j]);
          }
      } else {
        DSCORE_UNROLL
        for (int n = 0; n < columns8; n++) {
          const auto two =
              *reinterpret_cast<const Pack<T, 2> *>(filters + n * 8 * t::filter_row + k);
          b[n][0] = Halves(two.at[0]), b[n][1] = Halves(two.at[1]);
        }
      }
      multiply_in_three(step, a, b);
    }
    add_step(accumulators, step);
  }

  __device__ void multiply(const T *lds) {
    if constexpr (t::split) multiply_split(lds);
    else if constexpr (t::turned) multiply_turned(lds);
    else multiply_plain(lds);
  }

  __device__ void accumulate(const Arguments &args, T *lds) {
    const int steps = least(steps_each(s), ceil_div(depth(s), t::step_c) - first_step);
    run_ring<t>(*this, lds, steps, [&](T *arrived, int step) {
      if constexpr (decltype(scales)::present)
        scales.read(*this, args.scale, first_pixel + wave_p + lane / 4 * group,
                    (first_step + step) * t::step_c + slice * t::slice + lane % 4 * 2);
      else if constexpr (Epilogue::scaled) Tiles::scale(args, arrived, step);
    });
  }

  // Where channel 0 of a pixel's results lies.
  __device__ int output_offset(int pixel) const {
    if (pixels(s) % t::tile_p != 0 && pixel >= pixels(s)) return nowhere;
    return pixel / area(s) * channels(s) * area(s) + pixel % area(s);
  }

  // Biases of a lane's channels; of those that there are not, none.
  template <int Count, class ChannelOf>
  __device__ void read_biases(const Arguments &args, float (&biases)[Count],
                              ChannelOf channel_of) const {
    DSCORE_UNROLL
    for (int i = 0; i < Count; i++)
      biases[i] = wanted(channel_of(i)) ? Epilogue::bias_of(args, channel_of(i)) : 0.0f;
  }
  // Stores the sums of neighbouring pixels of each of a lane's channels. All that is added to them
  // is read before.
  template <int Width, int Count, class ChannelOf, class SumOf>
  __device__ void store(const Arguments &args, int offset, const float (&biases)[Count],
                        ChannelOf channel_of, SumOf sum_of) const {
    if (offset < 0) return;
    Pack<T, Width> residuals[Count];
    DSCORE_UNROLL
    for (int i = 0; i < Count; i++)
      if (Epilogue::added && wanted(channel_of(i)))
        residuals[i] =
            Epilogue::template residual_of<Width>(args, offset + channel_of(i) * area(s));
    DSCORE_UNROLL
    for (int i = 0; i < Count; i++) {
      if (!wanted(channel_of(i))) continue;
      const int at = offset + channel_of(i) * area(s);
      float values[Width], bias[Width];
      DSCORE_UNROLL
      for (int j = 0; j < Width; j++) values[j] = sum_of(i, j), bias[j] = biases[i];
      auto results = Epilogue::template apply_read<Width>(values, bias, residuals[i]);
      if constexpr (t::turned && Layer::stride_h * Layer::stride_w > 1)
        // Of a pixel that no output was made of, zero by an infinite filter is no number.
        if (Tiles::turned_offset(0, at % area(s)) == nowhere) results = {};
      *reinterpret_cast<Pack<T, Width> *>(static_cast<T *>(args.out) + at) = results;
    }
  }

  __device__ void finish_plain(const Arguments &args) const {
    constexpr int width = t::vector_p;
    const auto channel_of = [&](int i) {
      return first_channel + wave_c + i % beside +
             (i / beside * t::lanes_c + lane / t::lanes_p) * beside;
    };
    float biases[thread_c];
    read_biases(args, biases, channel_of);
    DSCORE_UNROLL
    for (int p = 0; p < 4 * fours; p += width)
      store<width>(args,
                   output_offset(first_pixel + wave_p +
                                 (p / 4 * t::lanes_p + lane % t::lanes_p) * 4 + p % 4),
                   biases, channel_of,
                   [&](int i, int j) { return accumulators[i * 4 * fours + p + j]; });
  }
  __device__ void finish_split(const Arguments &args) const {
    const auto channel_of = [&](int i) {
      const int n = i / 2, side = i % 2;
      return first_channel + wave_c + n / column_group * column_group * 8 +
             (lane % 4 * 2 + side) * column_group + n % column_group;
    };
    float biases[2 * columns8];
    read_biases(args, biases, channel_of);
    DSCORE_UNROLL
    for (int eight = 0; eight < eights; eight += group)
      store<group>(args, output_offset(first_pixel + wave_p + eight * 8 + lane / 4 * group),
                   biases, channel_of, [&](int i, int j) {
                     return accumulators[((eight + j) / 2 * columns8 + i / 2) * 4 +
                                         (eight + j) % 2 * 2 + i % 2];
                   });
  }

  __device__ Gemm(const Arguments &args, const Shape &shape) : Gemm(args, args.x, shape) {}
  __device__ Gemm(const Arguments &args, const void *images, const Shape &shape)
      : Tiles(args, images, shape), accumulators{} {}

  __device__ void run(const Arguments &args) {
    T *lds = block_lds<T, lds_bytes / int{sizeof(T)}>();
    accumulate(args, lds);
    float *sums = reinterpret_cast<float *>(lds);
    if constexpr (t::slices > 1) join_slices<t>(accumulators, sums, thread, slice);
    if constexpr (t::cluster > 1) join_blocks<t>(accumulators, sums, thread, slice, rank);
    if (slice > 0 || rank > 0) return;
    if constexpr (t::split) finish_split(args);
    else finish_plain(args);
  }
};

}  // namespace dscore
