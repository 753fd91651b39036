// Weight gradient of depthwise layers: sums over all images and outputs, for each tap of a filter.
//
// A thread keeps the sums of its taps in registers and walks over rows of x, each of which is read
// once for all filter rows; the rows of the gradient over it are in registers, too. Blocks take
// slices of the images and rows.
// Order of additions, as the reference backend has it: of a thread units, within these rows of x,
// within these its columns of the gradient, all ascending; then threads as in `reduce`; then the
// blocks of a cluster, ascending; then slices (parts.hpp). A row outside x is left out, a column
// outside it is 0 · gradient.
#pragma once

#include "support/shared_sums.hpp"
#include "tap_sums/block.hpp"
#include "tap_sums/parts.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape_, class Epilogue>
struct TapSums : TapSumsBlock<T, Tiling, Layer, Shape_> {
  using Shape = Shape_;
  using t = Tiling;
  using L = Layer;
  using Block = TapSumsBlock<T, t, L, Shape>;
  using Arguments = typename Block::Arguments;
  using Rows = typename Block::Rows;
  using Columns = typename Block::Columns;
  using Move = typename Block::Move;
  using Result = typename Epilogue::Result;
  using Parts = TapSumsParts<Result, t, L, Shape, t::slices>;
  using Then = std::conditional_t<(t::slices > 1), Parts, void>;
  using Block::s, Block::lds, Block::barriers, Block::thread, Block::lane, Block::strip;
  using Block::rank;
  using Block::plane, Block::image, Block::first_channel, Block::slice, Block::pad_top;
  using Block::pad_left, Block::row_end, Block::column_end, Block::unit_end;
  using Block::first_tap_h, Block::first_tap_w, Block::image_of;
  static constexpr int threads = t::threads, wavefront = t::wavefront, alignment = 16;
  static constexpr int cluster = t::cluster, outputs = t::planes * t::taps;
  static constexpr int held = Columns::under(t::thread_w), rows = Rows::under(t::thread_h);
  static constexpr int live_rows = Rows::live(t::thread_h);
  // Threads that hold parts of the same sums, those that add them, and the distance in LDS of
  // planes: it is odd, so that neighbours meet in no bank.
  static constexpr int sharers = t::images * t::plane_threads;
  static constexpr int reducers = [] {
    const int most = least(least(wavefront, sharers), threads / (t::planes * t::taps));
    int lanes = 1;
    while (2 * lanes <= most) lanes *= 2;
    return lanes;
  }();
  static constexpr int pitch = t::plane_threads | 1;
  static constexpr int tap_pitch = t::images * t::planes * pitch;
  // At the end LDS has the threads' sums; in a cluster, behind all else, what its blocks send.
  static constexpr int parts = sharers > 1 ? t::taps * tap_pitch : 0;
  static constexpr int data_bytes = greatest(t::stages * Block::stage_elements * int{sizeof(T)},
                                             parts * int{sizeof(float)});
  using OfCluster = SharedSums<cluster, threads, outputs>;
  static constexpr int barriers_at = ceil_div(data_bytes, 16) * 16;
  static constexpr int of_cluster_at = barriers_at + t::stages * int{sizeof(TransferBarrier)};
  static constexpr int lds_bytes = of_cluster_at + OfCluster::lds_bytes;

  static long long workspace_bytes(const Shape &s) {
    return t::slices > 1 ? 1ll * t::slices * s.out_channels * L::taps * sizeof(float) : 0;
  }

  float sums[t::taps], row[held], gradients[live_rows][t::thread_w];

  __device__ TapSums(const Arguments &args, const Shape &shape) : Block(args, shape), sums{} {
    if constexpr (t::ahead) Block::prefetch();
    lds = block_lds<T, lds_bytes / int{sizeof(T)}>();
    barriers = reinterpret_cast<TransferBarrier *>(reinterpret_cast<char *>(lds) + barriers_at);
    Move::template prepare<t::stages>(barriers, thread);
  }

  // Where the thread's tile of a unit lies: in the images, and in LDS its first row and column of
  // x, which may lie in the padding, and of the gradient.
  struct Place {
    int in_row, in_column, out_row, out_column;
    const T *x, *gradient;
    int x_at, gradient_at;
  };
  __device__ Place place(int unit, int stage) const {
    Place p;
    const int n = image_of(unit, image), o = first_channel + plane;
    p.out_row = Block::first_row(unit) + strip * t::thread_h, p.out_column = lane * t::thread_w;
    p.in_row = p.out_row * L::stride_h - pad_top;
    p.in_column = p.out_column * L::stride_w - pad_left;
    p.x = Block::x_in_lds(stage, image), p.gradient = Block::gradient_in_lds(stage, image);
    p.x_at = Block::x_plane(n, o) + p.in_row * s.width + p.in_column -
             Block::x_piece(unit, image).start;
    p.gradient_at = Block::gradient_plane(n, o) + p.out_row * s.out_width + p.out_column -
                    Block::gradient_piece(unit, image).start;
    return p;
  }

  // Whether offset + first is inside, for a thread whose `first` is within lowest..highest: where
  // it is for all threads, a compiler that knows the sizes leaves the question out.
  static __device__ bool reaches(int first, int lowest, int highest, int offset, int size) {
    return (lowest + offset >= 0 && highest + offset < size) || inside(first + offset, size);
  }
  __device__ bool row_inside(const Place &p, int i) const {
    const int last = (ceil_div(s.out_height, t::thread_h) - 1) * t::thread_h * L::stride_h;
    return reaches(p.in_row, -pad_top, last - pad_top, i, row_end);
  }
  __device__ bool column_inside(const Place &p, int offset, int end) const {
    const int last = (t::lanes_w - 1) * t::thread_w * L::stride_w;
    return reaches(p.in_column, -pad_left, last - pad_left, offset, end);
  }
  // Whether a row or column of the thread's gradient exists.
  __device__ bool gradient_row(const Place &p, int r) const {
    return s.out_height % t::thread_h == 0 || p.out_row + r < s.out_height;
  }
  __device__ bool gradient_column(const Place &p, int c) const {
    return t::lanes_w * t::thread_w == s.out_width || p.out_column + c < s.out_width;
  }

  static constexpr __host__ __device__ bool under_tap(int offset) {
    for (int c = 0; c < t::thread_w; c++)
      for (int g = 0; g < t::taps_w; g++)
        if (Columns::position(c, g) == offset) return true;
    return false;
  }
  // The column with which the vector begins that holds column `offset`, and whether all of that
  // vector is held, and some tap lies on it.
  static constexpr __host__ __device__ int vector_start(int offset) {
    return offset - (offset + t::vector_x - t::phase) % t::vector_x;
  }
  static constexpr __host__ __device__ bool whole_vector(int start) {
    if (t::vector_x == 1 || start < 0 || start + t::vector_x > held) return false;
    for (int offset = start; offset < start + t::vector_x; offset++)
      if (under_tap(offset)) return true;
    return false;
  }

  template <int Count>
  __device__ void fetch(const Place &p, int i, int offset, int end) {
    const auto read = vector_or_zeros<Count>(p.x + (p.x_at + i * s.width + offset),
                                             column_inside(p, offset, end));
    DSCORE_UNROLL
    for (int j = 0; j < Count; j++) row[offset + j] = static_cast<float>(read.at[j]);
  }
  __device__ void fetch_row(const Place &p, int i) {
    DSCORE_UNROLL
    for (int offset = 0; offset < held; offset++) {
      if (whole_vector(vector_start(offset))) {
        // Rows are multiples of a vector, which therefore lies inside the image or outside.
        if (vector_start(offset) == offset) fetch<t::vector_x>(p, i, offset, s.width);
      } else if (under_tap(offset)) {
        fetch<1>(p, i, offset, column_end);
      }
    }
  }
  __device__ void fetch_gradient(const Place &p, int r) {
    DSCORE_UNROLL
    for (int c = 0; c < t::thread_w; c += t::vector_g) {
      const auto read = vector_or_zeros<t::vector_g>(
          p.gradient + (p.gradient_at + r * s.out_width + c),
          gradient_row(p, r) && gradient_column(p, c));
      DSCORE_UNROLL
      for (int j = 0; j < t::vector_g; j++)
        gradients[r % live_rows][c + j] = static_cast<float>(read.at[j]);
    }
  }

  // Every row of x once, with all rows of the gradient that it lies under.
  __device__ void walk(const Place &p) {
    DSCORE_UNROLL
    for (int i = 0; i < rows; i++) {
      if (i % L::stride_h == 0 && i / L::stride_h < t::thread_h)
        fetch_gradient(p, i / L::stride_h);
      if (!row_inside(p, i)) continue;
      fetch_row(p, i);
      DSCORE_UNROLL
      for (int f = 0; f < t::taps_h; f++)
        if (const int r = Rows::written(i, f); r >= 0 && r < t::thread_h)
          if (gradient_row(p, r)) accumulate(p, gradients[r % live_rows], sums + f * t::taps_w);
      DSCORE_UNROLL
      for (int tap = 0; i % 2 == 1 && tap < t::taps; tap++) settle(sums[tap]);
    }
  }
  __device__ void accumulate(const Place &p, const float *given, float *of_row) {
    DSCORE_UNROLL
    for (int c = 0; c < t::thread_w; c++)
      // Not 0 for a column that does not exist: x may be infinite there.
      if (gradient_column(p, c)) {
        DSCORE_UNROLL
        for (int g = 0; g < t::taps_w; g++) of_row[g] += row[Columns::position(c, g)] * given[c];
      }
  }

  // A sum of the block, of all its planes of a tap and then of the next one, to its place.
  __device__ void store(const Arguments &args, int number, float sum) const {
    const int of_plane = number % t::planes, tap = number / t::planes;
    const int f = first_tap_h + tap / t::taps_w, g = first_tap_w + tap % t::taps_w;
    const int channel = first_channel + of_plane;
    if (channel >= s.out_channels || f >= L::kernel_h || g >= L::kernel_w) return;
    const int at = channel * L::taps + f * L::kernel_w + g;
    if constexpr (t::slices > 1)
      static_cast<float *>(args.workspace)[slice * s.out_channels * L::taps + at] = sum;
    else
      static_cast<Result *>(args.out)[at] = static_cast<Result>(sum);
  }

  // Adds the sums of the threads of each plane, through LDS: those of lane k, k + reducers, … of
  // the sharers in this order, then each half of the lanes to the other. Each goes to `finish`.
  template <class Finish>
  __device__ void reduce(float *parts, const Finish &finish) {
    if constexpr (sharers == 1) {
      DSCORE_UNROLL
      for (int tap = 0; tap < t::taps; tap++)
        if (thread < t::used_threads) finish(tap * t::planes + plane, sums[tap]);
      return;
    }
    const int own = (image * t::planes + plane) * pitch + thread % t::plane_threads;
    DSCORE_UNROLL
    for (int tap = 0; tap < t::taps; tap++)
      if (thread < t::used_threads) parts[tap * tap_pitch + own] = sums[tap];
    __syncthreads();
    constexpr int at_once = threads / reducers;
    DSCORE_ROLLED
    for (int first = 0; first < outputs; first += at_once) {
      const int output = first + thread / reducers;
      const int of_plane = output % t::planes, tap = output / t::planes;
      float sum = 0.0f;
      if (output < outputs)
        for (int k = thread % reducers; k < sharers; k += reducers)
          sum += parts[tap * tap_pitch + (k / t::plane_threads * t::planes + of_plane) * pitch +
                       k % t::plane_threads];
      DSCORE_UNROLL
      for (int by = reducers / 2; by > 0; by /= 2) sum += DSCORE_SHFL_DOWN(sum, by, reducers);
      if (thread % reducers == 0 && output < outputs) finish(output, sum);
    }
  }

  __device__ void run(const Arguments &args) {
    // Blocks of the sum of slices may come beforehand: they wait for this kernel's end.
    if constexpr (t::ahead || t::slices > 1) admit_next_kernel();
    const OfCluster of_cluster(reinterpret_cast<char *>(lds) + of_cluster_at, rank, thread);
    const int begin = Block::first_unit();
    DSCORE_UNROLL
    for (int stage = 0; stage < t::stages; stage++) Block::start_load(stage, begin + stage);
    DSCORE_ROLLED
    for (int unit = begin; unit < unit_end; unit++) {
      const int step = unit - begin, stage = step % t::stages;
      Move::template wait_for_load<t::stages - 1>(barriers + stage, Block::ends_amid_vector(),
                                                  step / t::stages & 1);
      const Place p = place(unit, stage);
      if (thread < t::used_threads && first_channel + plane < s.out_channels &&
          Block::image_there(unit, image) && p.out_row < s.out_height)
        walk(p);
      __syncthreads();
      Block::start_load(stage, unit + t::stages);
    }
    float *const of_threads = reinterpret_cast<float *>(lds);
    const auto keep = [&](int number, float sum) { store(args, number, sum); };
    of_cluster.add(thread, [&](const auto &finish) { reduce(of_threads, finish); }, keep);
  }
};

}  // namespace dscore
