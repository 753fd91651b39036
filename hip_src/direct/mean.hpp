// Mean over the pixels of images, of a few channels by a block.
//
// Order of additions, as the reference backend has it. In NCHW a thread sums vectors of a plane
// that lie `threads` apart, ascending, their elements ascending; then the lanes of a wavefront, of
// which each half is added to the other; then the wavefronts, ascending. With the channels last a
// thread sums the pixels that lie `parts * cluster` apart, ascending; then the parts of a block,
// ascending, of many parts those of each run first; then the blocks of a cluster, ascending.
// Integers are the same in any order (docs/int8.md).
#pragma once

#include "direct/kernel.hpp"
#include "support/joined_sums.hpp"
#include "support/mean_sums.hpp"

namespace dscore {

template <class T>
struct MeanArguments {
  const void *x;
  void *out;
  __device__ MeanOfSums<T> of(int area) const { return MeanOfSums<T>(area); }
};
template <>
struct MeanArguments<int8_t> {
  const void *x, *multiplier, *zero_point;
  void *out;
  __device__ MeanOfSums<int8_t> of(int area) const { return {area, multiplier, zero_point}; }
};

template <class T, class Tiling, class Layer, class Shape_, class Epilogue>
struct DirectMean : KernelOn<T, MeanArguments<T>> {
  using Shape = Shape_;
  using t = Tiling;
  using Arguments = MeanArguments<T>;
  using Sum = typename MeanOfSums<T>::Sum;
  using Result = typename Epilogue::Result;
  static constexpr bool exact = std::is_integral_v<Sum>;
  static constexpr bool last = t::Images::last;
  static constexpr int threads = t::threads, wavefront = t::wavefront, layout = t::layout;
  static constexpr int waves = threads / wavefront, cluster = t::cluster;
  // Elements that a load has, where they divide a plane, or the channels that lie last.
  static constexpr int vector = 16 / static_cast<int>(sizeof(T)), alignment = 16;
  // Of the pixels of vectors of channels: threads of a block that share them.
  static constexpr int parts = greatest(threads / t::thread_c, 1), shares = parts * cluster;
  // Lanes of a wavefront that have the same vector of integers, and add their sums by shuffles: as
  // many times fewer lie in LDS, of as many parts.
  static constexpr int lanes =
      exact && last && wavefront % t::thread_c == 0 ? wavefront / t::thread_c : 1;
  static constexpr int held_parts = parts / lanes;
  // Of many parts neighbours that a thread of their own adds first: one that goes through all of
  // them for its channel would take as long as all threads for the pixels.
  static constexpr int of_run = 16;
  static constexpr int runs =
      !exact && parts >= 4 * of_run ? ceil_div(parts, of_run) : held_parts;
  // Of loads that a thread has under way before it adds what the first has brought.
  static constexpr int loads = 8, rounds = last ? loads : greatest(loads / t::thread_c, 1);
  static constexpr int lds_bytes =
      (last ? threads / lanes * vector : waves * t::thread_c) * static_cast<int>(sizeof(Sum));
  static_assert(!last || threads % t::thread_c == 0, "as many threads for each vector");
  static_assert(last || cluster == 1, "blocks share the pixels of vectors of channels alone");

  static __host__ __device__ int area(const Shape &s) { return s.height * s.width; }
  // What is loaded where vectors of a width are none: of bytes half as many, down to a word.
  static __host__ __device__ constexpr int narrower(int width) {
    return exact && width > 4 ? width / 2 : 1;
  }
  static __host__ __device__ int width(const Shape &s) {
    int width = vector;
    while ((last ? s.in_channels : area(s)) % width) width = narrower(width);
    return width;
  }
  // Channels of a block.
  static __host__ __device__ int tile(const Shape &s) {
    return t::thread_c * (last ? width(s) : 1);
  }
  static __host__ __device__ int tiles(const Shape &s) { return ceil_div(s.in_channels, tile(s)); }
  // Block of the cluster fastest, then channel tile, then image.
  static int blocks(const Shape &s) { return cluster * tiles(s) * s.batch; }
  static __device__ int rank() { return blockIdx.x % cluster; }

  const Arguments &args;
  const Shape &s;

  __device__ DirectMean(const Arguments &given, const Shape &shape) : args(given), s(shape) {}

  __device__ void run(const Arguments &) {
    const unsigned block = blockIdx.x / cluster;
    const int image = block / tiles(s), first = block % tiles(s) * tile(s);
    sum_images<vector>(args.of(area(s)), image, first,
                       block_lds<Sum, lds_bytes / static_cast<int>(sizeof(Sum))>());
  }

  template <int Width>
  __device__ void sum_images(const MeanOfSums<T> &mean, int image, int first, Sum *lds) const {
    if constexpr (Width > 1)
      if (width(s) != Width) return sum_images<narrower(Width)>(mean, image, first, lds);
    if constexpr (last) sum_pixels<Width>(mean, image, first, lds);
    else sum_planes<Width>(mean, image, first, lds);
  }

  __device__ void store(const MeanOfSums<T> &mean, int image, int channel, Sum sum) const {
    if (channel < s.in_channels)
      static_cast<Result *>(args.out)[image * s.in_channels + channel] =
          static_cast<Result>(mean(sum));
  }

  template <int Width>
  __device__ void sum_planes(const MeanOfSums<T> &mean, int image, int first, Sum *lds) const {
    const T *x =
        static_cast<const T *>(args.x) + (image * s.in_channels + first) * area(s);
    Sum sums[t::thread_c] = {};
    const int count = area(s) / Width;
    DSCORE_ROLLED
    for (int first_at = threadIdx.x; first_at < count; first_at += rounds * threads) {
      decltype(elements_or_zeros<T, Width>(x, true)) read[rounds][t::thread_c];
      DSCORE_UNROLL
      for (int r = 0; r < rounds; r++)
        DSCORE_UNROLL
        for (int c = 0; c < t::thread_c; c++) {
          const int at = first_at + r * threads;
          read[r][c] = elements_or_zeros<T, Width>(x + c * area(s) + at * Width,
                                                   at < count && first + c < s.in_channels);
        }
      DSCORE_UNROLL
      for (int r = 0; r < rounds; r++)
        DSCORE_UNROLL
        for (int c = 0; c < t::thread_c; c++) add_elements(read[r][c], sums[c]);
    }
    DSCORE_UNROLL
    for (int by = wavefront / 2; by > 0; by /= 2)
      DSCORE_UNROLL
      for (int c = 0; c < t::thread_c; c++) sums[c] += DSCORE_SHFL_DOWN(sums[c], by, wavefront);
    if (threadIdx.x % wavefront == 0) {
      DSCORE_UNROLL
      for (int c = 0; c < t::thread_c; c++)
        lds[threadIdx.x / wavefront * t::thread_c + c] = sums[c];
    }
    __syncthreads();
    const int c = threadIdx.x;
    if (c >= t::thread_c) return;
    Sum sum = lds[c];
    DSCORE_UNROLL
    for (int wave = 1; wave < waves; wave++) sum += lds[wave * t::thread_c + c];
    store(mean, image, first + c, sum);
  }

  // Adds the parts of each run; its sum takes the place of a part.
  template <int Channels>
  static __device__ void join_runs(Sum *lds) {
    static_assert(Channels * runs <= threads, "a thread for each channel of each run");
    const int first = threadIdx.x / Channels * of_run;
    const Sum *own = lds + first * Channels + threadIdx.x % Channels;
    Sum sum = first < parts ? own[0] : 0;
    DSCORE_UNROLL
    for (int i = 1; i < of_run; i++)
      if (first + i < parts) sum += own[i * Channels];
    __syncthreads();
    if (first < parts) lds[threadIdx.x] = sum;
    __syncthreads();
  }
  // Adds the parts of the block's sums; each sum goes to `keep`.
  template <int Channels, class Keep>
  static __device__ void join_parts(Sum *lds, const Keep &keep) {
    if constexpr (runs < held_parts) join_runs<Channels>(lds);
    for (int c = threadIdx.x; c < Channels; c += threads) {
      Sum sum = lds[c];
      DSCORE_UNROLL_FEW
      for (int other = 1; other < runs; other++) sum += lds[other * Channels + c];
      keep(c, sum);
    }
  }

  template <int Width>
  __device__ void sum_pixels(const MeanOfSums<T> &mean, int image, int first, Sum *lds) const {
    const int column = threadIdx.x % t::thread_c, part = threadIdx.x / t::thread_c;
    const int channel = first + column * Width;
    const T *x = static_cast<const T *>(args.x) + image * area(s) * s.in_channels + channel;
    Sum sums[Width] = {};
    const bool there = channel < s.in_channels;
    DSCORE_ROLLED
    for (int first_at = rank() * parts + part; first_at < area(s); first_at += rounds * shares) {
      decltype(elements_or_zeros<T, Width>(x, true)) read[rounds];
      DSCORE_UNROLL
      for (int r = 0; r < rounds; r++) {
        const int pixel = first_at + r * shares;
        read[r] =
            elements_or_zeros<T, Width>(x + pixel * s.in_channels, there && pixel < area(s));
      }
      add_each(read, sums);
    }
    constexpr int channels = t::thread_c * Width;
    const int kept = column * Width + join_lanes<wavefront / 2, wavefront / lanes, Width>(sums);
    // What several lanes have, of more lanes than elements, the first of them writes.
    constexpr int count = greatest(Width / lanes, 1), copies = greatest(lanes / Width, 1);
    DSCORE_UNROLL
    for (int i = 0; i < count; i++)
      if (part % copies == 0) lds[part / lanes * channels + kept + i] = sums[i];
    __syncthreads();
    const auto keep = [&](int c, Sum sum) { store(mean, image, first + c, sum); };
    if constexpr (cluster == 1) {
      join_parts<channels>(lds, keep);
    } else {
      // Where the first part's is, which no other thread reads.
      join_parts<channels>(lds, [&](int c, Sum sum) { lds[c] = sum; });
      join_shares<cluster, threads>(lds, channels, rank(), threadIdx.x, keep);
    }
  }
};

}  // namespace dscore
