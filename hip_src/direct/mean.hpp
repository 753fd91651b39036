// Mean over the pixels of images, of a few channels by a block.
//
// Order of additions, as the reference backend has it. In NCHW a thread sums vectors of a plane
// that lie `threads` apart, ascending, their elements ascending; then the lanes of a wavefront, of
// which each half is added to the other; then the wavefronts, ascending. With the channels last a
// thread sums the pixels that lie `parts * cluster` apart, ascending; then the parts of a block,
// ascending, of many parts those of each run first; then the blocks of a cluster, ascending.
#pragma once

#include "direct/kernel.hpp"
#include "support/joined_sums.hpp"

namespace dscore {

struct MeanArguments {
  const void *x;
  void *out;
};

template <class T, class Tiling, class Layer, class Shape_, class Epilogue>
struct DirectMean : KernelOn<T, MeanArguments> {
  using Shape = Shape_;
  using t = Tiling;
  using Arguments = MeanArguments;
  static constexpr bool last = t::Images::last;
  static constexpr int threads = t::threads, wavefront = t::wavefront, layout = t::layout;
  static constexpr int waves = threads / wavefront, cluster = t::cluster;
  // Elements that a load has, where they divide a plane, or the channels that lie last.
  static constexpr int vector = 16 / static_cast<int>(sizeof(T)), alignment = 16;
  // Of the pixels of vectors of channels: threads of a block that share them.
  static constexpr int parts = greatest(threads / t::thread_c, 1), shares = parts * cluster;
  // Of many parts neighbours that a thread of their own adds first: one that goes through all of
  // them for its channel would take as long as all threads for the pixels.
  static constexpr int of_run = 16, runs = parts >= 4 * of_run ? ceil_div(parts, of_run) : parts;
  // Of loads that a thread has under way before it adds what the first has brought.
  static constexpr int loads = 8, rounds = last ? loads : greatest(loads / t::thread_c, 1);
  static constexpr int lds_bytes =
      (last ? threads * vector : waves * t::thread_c) * static_cast<int>(sizeof(float));
  static_assert(!last || threads % t::thread_c == 0, "as many threads for each vector");
  static_assert(last || cluster == 1, "blocks share the pixels of vectors of channels alone");

  static __host__ __device__ int area(const Shape &s) { return s.height * s.width; }
  static __host__ __device__ int width(const Shape &s) {
    return (last ? s.in_channels : area(s)) % vector == 0 ? vector : 1;
  }
  // Channels of a block.
  static __host__ __device__ int tile(const Shape &s) {
    return t::thread_c * (last ? width(s) : 1);
  }
  static __host__ __device__ int tiles(const Shape &s) { return ceil_div(s.in_channels, tile(s)); }
  // Block of the cluster fastest, then channel tile, then image.
  static int blocks(const Shape &s) { return cluster * tiles(s) * s.batch; }
  static __device__ int rank() { return blockIdx.x % cluster; }

  const Shape &s;

  __device__ DirectMean(const Arguments &, const Shape &shape) : s(shape) {}

  __device__ void run(const Arguments &args) {
    const unsigned block = blockIdx.x / cluster;
    const int image = block / tiles(s), first = block % tiles(s) * tile(s);
    float *lds = block_lds<float, lds_bytes / static_cast<int>(sizeof(float))>();
    if constexpr (last) {
      if (width(s) == vector) sum_pixels<vector>(args, image, first, lds);
      else sum_pixels<1>(args, image, first, lds);
    } else {
      if (width(s) == vector) sum_planes<vector>(args, image, first, lds);
      else sum_planes<1>(args, image, first, lds);
    }
  }

  __device__ void store(const Arguments &args, int image, int channel, float sum) const {
    if (channel < s.in_channels)
      static_cast<T *>(args.out)[image * s.in_channels + channel] =
          static_cast<T>(sum / static_cast<float>(area(s)));
  }

  // Adds the elements of a vector to one sum.
  template <int Width>
  static __device__ void add(const Pack<T, Width> &read, float &sum) {
    DSCORE_UNROLL
    for (int i = 0; i < Width; i++) sum += static_cast<float>(read.at[i]);
  }

  template <int Width>
  __device__ void sum_planes(const Arguments &args, int image, int first, float *lds) const {
    const T *x =
        static_cast<const T *>(args.x) + (image * s.in_channels + first) * area(s);
    float sums[t::thread_c] = {};
    const int count = area(s) / Width;
    DSCORE_ROLLED
    for (int first_at = threadIdx.x; first_at < count; first_at += rounds * threads) {
      Pack<T, Width> read[rounds][t::thread_c];
      DSCORE_UNROLL
      for (int r = 0; r < rounds; r++)
        DSCORE_UNROLL
        for (int c = 0; c < t::thread_c; c++) {
          const int at = first_at + r * threads;
          read[r][c] = vector_or_zeros<Width>(x + c * area(s) + at * Width,
                                              at < count && first + c < s.in_channels);
        }
      DSCORE_UNROLL
      for (int r = 0; r < rounds; r++)
        DSCORE_UNROLL
        for (int c = 0; c < t::thread_c; c++) add<Width>(read[r][c], sums[c]);
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
    float sum = lds[c];
    DSCORE_UNROLL
    for (int wave = 1; wave < waves; wave++) sum += lds[wave * t::thread_c + c];
    store(args, image, first + c, sum);
  }

  // Adds the parts of each run; its sum takes the place of a part.
  template <int Channels>
  static __device__ void join_runs(float *lds) {
    static_assert(Channels * runs <= threads, "a thread for each channel of each run");
    const int first = threadIdx.x / Channels * of_run;
    const float *own = lds + first * Channels + threadIdx.x % Channels;
    float sum = first < parts ? own[0] : 0;
    DSCORE_UNROLL
    for (int i = 1; i < of_run; i++)
      if (first + i < parts) sum += own[i * Channels];
    __syncthreads();
    if (first < parts) lds[threadIdx.x] = sum;
    __syncthreads();
  }
  // Adds the parts of the block's sums; each sum goes to `keep`.
  template <int Channels, class Keep>
  static __device__ void join_parts(float *lds, const Keep &keep) {
    if constexpr (runs < parts) join_runs<Channels>(lds);
    for (int c = threadIdx.x; c < Channels; c += threads) {
      float sum = lds[c];
      DSCORE_UNROLL_FEW
      for (int other = 1; other < runs; other++) sum += lds[other * Channels + c];
      keep(c, sum);
    }
  }

  template <int Width>
  __device__ void sum_pixels(const Arguments &args, int image, int first, float *lds) const {
    const int column = threadIdx.x % t::thread_c, part = threadIdx.x / t::thread_c;
    const int channel = first + column * Width;
    const T *x = static_cast<const T *>(args.x) + image * area(s) * s.in_channels + channel;
    float sums[Width] = {};
    const bool there = channel < s.in_channels;
    DSCORE_ROLLED
    for (int first_at = rank() * parts + part; first_at < area(s); first_at += rounds * shares) {
      Pack<T, Width> read[rounds];
      DSCORE_UNROLL
      for (int r = 0; r < rounds; r++) {
        const int pixel = first_at + r * shares;
        read[r] = vector_or_zeros<Width>(x + pixel * s.in_channels, there && pixel < area(s));
      }
      DSCORE_UNROLL
      for (int r = 0; r < rounds; r++)
        DSCORE_UNROLL
        for (int i = 0; i < Width; i++) sums[i] += static_cast<float>(read[r].at[i]);
    }
    constexpr int channels = t::thread_c * Width;
    DSCORE_UNROLL
    for (int i = 0; i < Width; i++) lds[part * channels + column * Width + i] = sums[i];
    __syncthreads();
    const auto keep = [&](int c, float sum) { store(args, image, first + c, sum); };
    if constexpr (cluster == 1) {
      join_parts<channels>(lds, keep);
    } else {
      // Where the first part's is, which no other thread reads.
      join_parts<channels>(lds, [&](int c, float sum) { lds[c] = sum; });
      join_shares<cluster, threads>(lds, channels, rank(), threadIdx.x, keep);
    }
  }
};

}  // namespace dscore
