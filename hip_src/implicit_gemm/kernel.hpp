// Dense and grouped convolution as a product of matrices: filters [channel][input channel and tap]
// times images unfolded, [input channel and tap][pixel]. No unfolded copy is made: a block keeps
// the part of the images under its pixels in LDS, and reads each tap from there.
//
// Order of additions with plain arithmetic, as the reference backend has it: a slice s of the
// wavefronts sums channels [s * slice, (s + 1) * slice) of every step, ascending, and within these
// the taps, row by row; then the slices are added, ascending; then the blocks of a cluster, which
// share the steps; then bias. A tap outside of the image is 0 · w.
#pragma once

#include "implicit_gemm/tiles.hpp"
#include "support/joined_sums.hpp"

namespace dscore {

// A loop over taps, not unrolled whole: hipcc would read the elements of all of them first.
#if defined(__CUDACC__)
#define DSCORE_UNROLL_TAPS _Pragma("unroll 4")
#elif defined(DSCORE_HOST)
#define DSCORE_UNROLL_TAPS
#else
#define DSCORE_UNROLL_TAPS _Pragma("unroll 3")
#endif

// Patch: elements of a channel that a block keeps. Slides: a lane's pixels lie side by side in a
// row of the output, and columns next to one another in memory. VectorP, VectorC: elements that lie
// side by side and aligned in an image of the output and in a filter.
template <int TileC, int TileP, int WaveC, int WaveP, int LanesC, int Slices, int StepC, int Stages,
          int Patch, int Cluster, bool Split, bool Slides, int VectorP, int VectorC, int Wavefront>
struct ImplicitGemmTiling {
  static constexpr int tile_c = TileC, tile_p = TileP, wave_c = WaveC, wave_p = WaveP;
  static constexpr int lanes_c = LanesC, lanes_p = Wavefront / LanesC;
  static constexpr int slices = Slices, step_c = StepC, stages = Stages, patch = Patch;
  static constexpr int cluster = Cluster, wavefront = Wavefront;
  static constexpr int vector_p = VectorP, vector_c = VectorC;
  static constexpr bool split = Split, slides = Slides;
  static constexpr int layout = DSCORE_NCHW;
  static constexpr int waves_c = TileC / WaveC, waves_p = TileP / WaveP;
  static constexpr int slice_threads = waves_c * waves_p * Wavefront;
  static constexpr int threads = slice_threads * Slices, slice = StepC / Slices;
  static constexpr int accumulators = WaveC * WaveP / Wavefront;
  // Accumulators that slices, and the blocks of a cluster, hand over in LDS.
  static constexpr int joined =
      greatest(Slices - 1, Cluster > 1 ? 1 : 0) * slice_threads * accumulators;
  static_assert(TileC % WaveC == 0 && TileP % WaveP == 0, "a block holds whole wavefronts");
  static_assert(Stages >= 1, "buffers");
  static_assert(has_tf32 || !Split, "matrix units of TF32");
  static_assert(StepC % Slices == 0 && slice % (Split ? 4 : 1) == 0, "slices of whole fragments");
  static_assert(Split ? WaveC % 8 == 0 && WaveP % 16 == 0 && LanesC == 8 && Wavefront == 32
                      : WaveC % LanesC == 0 && WaveP % lanes_p == 0, "whole fragments");
};

template <class T, class Tiling, class Layer, class Shape_, class Epilogue>
struct ImplicitGemm : ImplicitGemmTiles<T, ImplicitGemmBuffers<Tiling, Layer>, Layer, Shape_,
                                        Epilogue> {
  using Shape = Shape_;
  using t = ImplicitGemmBuffers<Tiling, Layer>;
  using Arguments = typename Epilogue::Arguments;
  using Tiles = ImplicitGemmTiles<T, t, Layer, Shape, Epilogue>;
  using Tiles::area, Tiles::pixels, Tiles::group_out, Tiles::steps_each, Tiles::all_steps;
  using Tiles::s, Tiles::thread, Tiles::lane, Tiles::wave_c, Tiles::wave_p, Tiles::slice;
  using Tiles::rank, Tiles::group, Tiles::first_channel, Tiles::first_pixel, Tiles::first_step;
  using Tiles::nowhere, Tiles::patch_place, Tiles::tap_place;
  static constexpr int threads = t::threads, wavefront = t::wavefront, cluster = t::cluster;
  static constexpr int taps = Layer::taps;
  static constexpr int lds_bytes =
      greatest(Tiles::table_at + t::patch * int{sizeof(int)}, t::joined * int{sizeof(float)});
  static constexpr int alignment = greatest(t::vector_p, t::vector_c) * int{sizeof(T)};

  // Pixels of a lane: plain lanes_p apart. In fragments of 16 pixels by 8 channels 8 apart or,
  // where pixels lie aligned, 4 side by side, so that it stores vectors.
  static constexpr int beside = !t::split || t::vector_p == 1 || t::wave_p % 32 ? 1 : 4;
  static constexpr int thread_c = t::wave_c / t::lanes_c, thread_p = t::wave_p / t::lanes_p;
  static constexpr int eights = t::wave_p / 8, columns8 = t::wave_c / 8;
  static constexpr int held = t::split ? eights : thread_p;
  __device__ int pixel_of(int i) const {
    if (t::slides) return wave_p + lane * thread_p + i;
    if (!t::split) return wave_p + i * t::lanes_p + lane % t::lanes_p;
    return wave_p + i / beside * beside * 8 + lane / 4 * beside + i % beside;
  }

  float accumulators[t::accumulators];
  int places[held];  // of the lane's pixels in the patch

  __device__ ImplicitGemm(const Arguments &args, const Shape &shape)
      : Tiles(args, shape), accumulators{} {
    DSCORE_UNROLL
    for (int i = 0; i < held; i++) places[i] = patch_place(pixel_of(i));
    // Before the kernel begins to wait for the one before it.
    Tiles::fill_table(buffers());
  }
  static __device__ T *buffers() { return block_lds<T, lds_bytes / int{sizeof(T)}>(); }

  // Calls each(row, tap, two) for every Step-th tap of the filter, counted from a row on, with
  // whether the next one is there as well. Rows come in turns, within which nvcc knows the place of
  // each tap: all of them where taps are few, else as many as hold whole steps.
  template <int Step, class Each>
  static __device__ inline void each_tap(Each each) {
    constexpr int rows = Layer::kernel_h;
    constexpr int turn = t::split && taps <= 10 ? rows
                         : Step == 2 && Layer::kernel_w % 2 ? least(2, rows)
                                                            : 1;
    DSCORE_ROLLED
    for (int row = 0; row + turn <= rows; row += turn) each_tap_of<Step, turn>(row, each);
    if constexpr (rows % turn > 0) each_tap_of<Step, rows % turn>(rows - rows % turn, each);
  }
  template <int Step, int Rows, class Each>
  static __device__ inline void each_tap_of(int row, Each each) {
    constexpr int count = Rows * Layer::kernel_w;
    if constexpr (t::split && count <= 16) {
      DSCORE_UNROLL
      for (int tap = 0; tap < count; tap += Step) each(row, tap, tap + 1 < count);
    } else {
      DSCORE_UNROLL_TAPS
      for (int tap = 0; tap < count; tap += Step) each(row, tap, tap + 1 < count);
    }
  }

  __device__ void multiply_plain(const T *lds) {
    const T *filters =
        lds + (wave_c + lane / t::lanes_p) * t::filter_row + slice * t::slice * taps;
    const T *images = lds + t::filters + slice * t::slice * t::patch;
    DSCORE_ROLLED
    for (int c = 0; c < t::slice; c++)
      each_tap<1>([&](int row, int tap, bool) {
        T a[thread_c], b[thread_p];
        DSCORE_UNROLL
        for (int i = 0; i < thread_c; i++)
          a[i] = filters[i * t::lanes_c * t::filter_row + c * taps + row * Layer::kernel_w + tap];
        DSCORE_UNROLL
        for (int p = 0; p < thread_p; p++)
          b[p] = images[c * t::patch + tap_place(row, tap) + places[p]];
        DSCORE_UNROLL
        for (int i = 0; i < thread_c; i++)
          DSCORE_UNROLL
          for (int p = 0; p < thread_p; p++)
            accumulators[i * thread_p + p] += static_cast<float>(a[i]) * static_cast<float>(b[p]);
      });
  }

  // Of pixels side by side a lane reads each element under a row of taps once.
  static constexpr int most_taps = 16;  // that are unrolled: so many elements are in registers
  __device__ void multiply_sliding(const T *lds) {
    static_assert(!t::slides || (Layer::stride_w == 1 && Layer::dilation_w == 1 && thread_c == 1));
    constexpr int width = Layer::kernel_w, taps_each = least(most_taps, width);
    const T *filters =
        lds + (wave_c + lane / t::lanes_p) * t::filter_row + slice * t::slice * taps;
    const T *images = lds + t::filters + slice * t::slice * t::patch + places[0];
    DSCORE_ROLLED
    for (int c = 0; c < t::slice; c++)
      DSCORE_ROLLED
      for (int row = 0; row < Layer::kernel_h; row++) {
        const T *filter = filters + c * taps + row * width;
        const T *image = images + c * t::patch + tap_place(row, 0);
        DSCORE_ROLLED
        for (int tap = 0; tap + taps_each <= width; tap += taps_each)
          slide<taps_each>(filter + tap, image + tap);
        slide<width % taps_each>(filter + width / taps_each * taps_each,
                                 image + width / taps_each * taps_each);
      }
  }
  template <int Taps>
  __device__ void slide(const T *filter, const T *image) {
    if constexpr (Taps > 0) {
      float held[Taps + thread_p - 1];
      DSCORE_UNROLL
      for (int i = 0; i < Taps + thread_p - 1; i++) held[i] = static_cast<float>(image[i]);
      DSCORE_UNROLL
      for (int tap = 0; tap < Taps; tap++) {
        const float factor = static_cast<float>(filter[tap]);
        DSCORE_UNROLL
        for (int p = 0; p < thread_p; p++) accumulators[p] += factor * held[tap + p];
      }
    }
  }

  // Matrix units: fragments of eight products, which are one tap of eight channels or, of slices of
  // an odd number of fours, two taps of four. Lane 4 g + i holds the i-th of each four.
  static constexpr bool whole_eights = t::slice % 8 == 0;
  __device__ void multiply_split(const T *lds) {
    const int g = lane / 4, i = lane % 4;
    const T *filters =
        lds + (wave_c + g) * t::filter_row + (slice * t::slice + i) * taps;
    const T *images = lds + t::filters + (slice * t::slice + i) * t::patch;
    float step[t::accumulators] = {};
    DSCORE_ROLLED
    for (int c = 0; c < t::slice; c += whole_eights ? 8 : 4) {
      if constexpr (whole_eights)
        each_tap<1>([&](int row, int tap, bool) {
          multiply_eight(step, filters + row * Layer::kernel_w + tap,
                         images + tap_place(row, tap), 4 * taps, 4 * t::patch, true);
        });
      else
        each_tap<2>([&](int row, int tap, bool two) {
          multiply_eight(step, filters + row * Layer::kernel_w + tap,
                         images + tap_place(row, tap), 1,
                         tap_place(0, tap + 1) - tap_place(0, tap), two);
        });
      filters += (whole_eights ? 8 : 4) * taps, images += (whole_eights ? 8 : 4) * t::patch;
    }
    add_step(accumulators, step);
  }
  // The second four lies so much further on in filters and images; zeros, where there is none.
  __device__ void multiply_eight(float *sums, const T *filters, const T *images,
                                 int filter_apart, int image_apart, bool two) {
    Halves a[eights / 2][4], b[columns8][2];
    DSCORE_UNROLL
    for (int half = 0; half < 2; half++) {
      const bool there = half == 0 || two;
      DSCORE_UNROLL
      for (int eight = 0; eight < eights; eight++)
        a[eight / 2][eight % 2 + 2 * half] = Halves(
            there ? static_cast<float>(images[places[eight] + half * image_apart]) : 0.0f);
      DSCORE_UNROLL
      for (int n = 0; n < columns8; n++)
        b[n][half] = Halves(
            there ? static_cast<float>(filters[n * 8 * t::filter_row + half * filter_apart])
                  : 0.0f);
    }
    multiply_in_three(sums, a, b);
  }

  __device__ void multiply(const T *lds) {
    if constexpr (t::split) multiply_split(lds);
    else if constexpr (t::slides) multiply_sliding(lds);
    else multiply_plain(lds);
  }

  // Stores the sums of pixels side by side, from the i-th of the lane's on, of one channel.
  __device__ void store(const Arguments &args, int i, int channel, const float *sums) const {
    const int pixel = first_pixel + pixel_of(i);
    if (pixel >= pixels(s) || !Tiles::wanted(first_channel + channel)) return;
    const int o = group * group_out(s) + first_channel + channel;
    const int at = (pixel / area(s) * s.out_channels + o) * area(s) + pixel % area(s);
    *reinterpret_cast<Pack<T, beside> *>(static_cast<T *>(args.out) + at) =
        Epilogue::template apply<beside>(sums, args, o, at);
  }
  __device__ void finish(const Arguments &args) const {
    DSCORE_UNROLL
    for (int i = 0; i < held; i += beside)
      DSCORE_UNROLL
      for (int c = 0; c < t::accumulators / held; c++) {
        if constexpr (!t::split) {
          store(args, i, wave_c + c * t::lanes_c + lane / t::lanes_p,
                accumulators + c * thread_p + i);
        } else {
          float sums[beside];
          DSCORE_UNROLL
          for (int j = 0; j < beside; j++)
            sums[j] = accumulators[((i + j) / 2 * columns8 + c / 2) * 4 + (i + j) % 2 * 2 + c % 2];
          store(args, i, wave_c + c / 2 * 8 + lane % 4 * 2 + c % 2, sums);
        }
      }
  }

  __device__ void run(const Arguments &args) {
    T *const lds = buffers();
    float *const sums = reinterpret_cast<float *>(lds);
    run_ring<t>(*this, lds, least(steps_each(s), all_steps(s) - first_step), [](T *, int) {});
    if constexpr (t::slices > 1) join_slices<t>(accumulators, sums, thread, slice);
    if constexpr (t::cluster > 1) join_blocks<t>(accumulators, sums, thread, slice, rank);
    if (slice == 0 && rank == 0) finish(args);
  }
};

}  // namespace dscore
