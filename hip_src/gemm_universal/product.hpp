// A product of matrices, rows of results by columns that lie side by side in memory, by tiles from
// a ring of LDS buffers: pointwise layers whose channels come last (NHWC), and their gradients. The
// operation says which axes these are (kernel.hpp, input_gradient.hpp, weight_gradient.hpp).
//
// Order of additions with plain arithmetic, as the reference backend has it: a slice s of the
// wavefronts sums elements [s * slice, (s + 1) * slice) of every step, ascending; then the slices
// are added, ascending; then the blocks of a cluster, which share the steps; then the parts. Row
// tile r begins with the r-th of its block's steps, and goes on with the first after the last, so
// that blocks do not read the same columns' elements at the same time.
#pragma once

#include "gemm_universal/byte_lanes.hpp"
#include "support/bulk_copy.hpp"

namespace dscore {

// Roles: sizes m, n, k of a problem's product; A and B, the operands, with their `extent` of rows
// or columns of results, their `depth` of summed elements, and where a `row` begins and what a
// `column` adds to that (less than 0: there is none); Arguments, and what becomes of sums: `store`.
template <class T, class Tiling, class Roles_>
struct Product : KernelOn<T, typename Roles_::Arguments, Roles_::optional> {
  using Roles = Roles_;
  using Shape = typename Roles::Shape;
  using t = GemmUniversalShape<T, Tiling, Roles>;
  using Arguments = typename Roles::Arguments;
  using Lanes = typename ParticularsOf<T, t>::Lanes;
  using Sum = typename t::Sum;
  static constexpr int threads = t::threads, wavefront = t::wavefront, cluster = t::cluster;
  static constexpr int layout = t::layout, lds_bytes = t::lds_bytes;
  static constexpr int alignment =
      greatest(greatest(t::vector_a, t::vector_b) * static_cast<int>(sizeof(T)),
               Roles::template alignment<T, t::vector_out>);

  static __host__ __device__ int tiles_m(const Shape &s) {
    return ceil_div(Roles::m(s), t::tile_m);
  }
  static __host__ __device__ int tiles_n(const Shape &s) {
    return ceil_div(Roles::n(s), t::tile_n);
  }
  static __host__ __device__ int blocks_m(const Shape &s) {
    return ceil_div(tiles_m(s), t::repeat);
  }
  static __host__ __device__ int all_steps(const Shape &s) {
    return ceil_div(Roles::k(s), t::step);
  }
  // Steps of one block of a cluster, of one part; the last may have fewer, or none.
  static __host__ __device__ int steps_each(const Shape &s) {
    return ceil_div(all_steps(s), t::parts * t::cluster);
  }
  // Block of the cluster fastest, then column tile: those that read the same rows come together.
  static __host__ __device__ int blocks(const Shape &s) {
    return t::cluster * tiles_n(s) * blocks_m(s) * t::parts;
  }
  // Not of float32, as networks lost by it (docs/benchmark_notes.md).
  static constexpr bool works_ahead = sizeof(T) <= 2 && !Tiling::gathered;
  static __device__ void fetch_ahead(const Arguments &args, const Shape &s) {
    prefetch_operands<T, Roles, t::parts>(args, s, blocks_m(s) * t::tile_m,
                                          steps_each(s) * t::cluster * t::step, blocks(s));
  }

  const Shape &s;
  int thread, lane, slice, wave_m, wave_n, rank, part, first_step, steps, turn, first_m, first_n;
  typename t::A a;
  typename t::B b;
  static constexpr bool fetched = t::stages == 2 && t::repeat == 1;
  typename t::A::Move a_moves[fetched ? t::A::count : 1];
  typename t::B::Move b_moves[fetched ? t::B::count : 1];
  Sum accumulators[t::accumulators];
  // Of signed bytes: what x counts from, and sums of filters where that is not 0.
  int zero = 0, *filter_sums = nullptr;
  typename ParticularsOf<T, t>::Filters filters;
  typename Roles::Points points = {};

  static __device__ int tile_of() { return blockIdx.x / t::cluster; }
  __device__ Product(const Arguments &args, const Shape &shape)
      : s(shape), thread(threadIdx.x), lane(threadIdx.x % t::wavefront),
        first_m(tile_of() / tiles_n(shape) % blocks_m(shape) * t::repeat * t::tile_m),
        first_n(tile_of() % tiles_n(shape) * t::tile_n),
        a(Roles::a(args), {shape}, first_m, threadIdx.x),
        b(Roles::b(args), {shape}, first_n, threadIdx.x), accumulators{} {
    const int wave = thread / t::wavefront;
    slice = wave / (t::waves_m * t::waves_n);
    wave_n = wave % t::waves_n * t::wave_n;
    wave_m = wave / t::waves_n % t::waves_m * t::wave_m;
    // Where blocks do not share steps, their number is known when the kernel is built.
    rank = t::cluster > 1 ? blockIdx.x % t::cluster : 0;
    part = t::parts > 1 ? tile_of() / (tiles_n(s) * blocks_m(s)) : 0;
    first_step = (part * t::cluster + rank) * steps_each(s);
    steps = least(steps_each(s), all_steps(s) - first_step);
    turn = steps > 1 ? first_m / t::tile_m % steps : 0;
  }

  __device__ int turned(int step) const {
    const int at = step + turn;
    return first_step + (at < steps ? at : at - steps);
  }
  __device__ void copy(T *lds, int step) const {
    a.copy(lds, turned(step));
    b.copy(lds + t::A::elements, turned(step));
  }
  __device__ void fetch(int step) {
    a.fetch(a_moves, turned(step));
    b.fetch(b_moves, turned(step));
  }
  __device__ void put(T *lds) const {
    a.put(lds, a_moves);
    b.put(lds + t::A::elements, b_moves);
  }
  __device__ void multiply(const T *lds) {
    multiply(lds, lds + t::A::elements);
    if constexpr (t::quantised)
      if (zero != 0) filters.add(t::last ? lds + t::A::elements : lds, thread);
  }
  __device__ void multiply(const T *rows, const T *columns) {
    Lanes::multiply(accumulators,
                    rows + place_of<t::along_a>(wave_m, slice * t::slice, t::pitch_a),
                    columns + place_of<t::along_b>(wave_n, slice * t::slice, t::pitch_b), lane);
  }

  // Stores Width neighbouring sums of a row.
  template <int Width>
  using OfRow = typename Roles::template OfRow<Width>;
  template <int Width>
  using OfColumn = typename Roles::template OfColumn<Width>;
  template <int Width>
  __device__ void store(const Arguments &args, int row, int column, const Sum *values,
                        const OfRow<Width> &of_row, const OfColumn<Width> &of_column) const {
    Roles::template store<T, Width>(args, s, part, row, column, values, of_row, of_column, points);
  }
  __device__ bool held(int row) const { return Roles::m(s) % t::tile_m == 0 || row < Roles::m(s); }
  __device__ bool column_held(int column) const {
    return Roles::n(s) % t::tile_n == 0 || column < Roles::n(s);
  }

  // Each lane its own sums. What results need of their channels is read once.
  __device__ void finish_direct(const Arguments &args) const {
    constexpr int width = least(Lanes::run, t::vector_out);
    const auto row_of = [&](int r) { return first_m + wave_m + Lanes::row(r, lane); };
    const auto column_of = [&](int q) { return first_n + wave_n + Lanes::column(q, lane); };
    const auto store_at = [&](int r, int q, int e, const OfRow<width> &of_row,
                              const OfColumn<width> &of_column) {
      Sum values[width];
      DSCORE_UNROLL
      for (int j = 0; j < width; j++) values[j] = accumulators[Lanes::index(r, q, e + j)];
      store<width>(args, row_of(r), column_of(q) + e, values, of_row, of_column);
    };
    if constexpr (Roles::of_columns) {
      DSCORE_UNROLL
      for (int q = 0; q < Lanes::runs; q++)
        DSCORE_UNROLL
        for (int e = 0; e < Lanes::run; e += width) {
          if (!column_held(column_of(q) + e)) continue;
          const auto of_column = Roles::template of_column<width>(args, column_of(q) + e);
          DSCORE_UNROLL
          for (int r = 0; r < Lanes::rows; r++)
            if (held(row_of(r))) store_at(r, q, e, {}, of_column);
        }
    } else {
      DSCORE_UNROLL
      for (int r = 0; r < Lanes::rows; r++) {
        if (!held(row_of(r))) continue;
        const auto of_row = Roles::template of_row<width>(args, row_of(r));
        DSCORE_UNROLL
        for (int q = 0; q < Lanes::runs; q++)
          DSCORE_UNROLL
          for (int e = 0; e < Lanes::run; e += width)
            if (column_held(column_of(q) + e)) store_at(r, q, e, of_row, {});
      }
    }
  }

  // Sums of all slices, and of a cluster's blocks, through LDS to the threads that store them.
  __device__ void finish_joined(const Arguments &args, Sum *sums) const {
    if constexpr (t::repeat == 1) __syncthreads();
    Sum *own = sums + slice * t::sums + wave_m * t::sum_row + wave_n;
    DSCORE_UNROLL
    for (int r = 0; r < Lanes::rows; r++)
      DSCORE_UNROLL
      for (int q = 0; q < Lanes::runs; q++) {
        Pack<Sum, Lanes::run> run;
        DSCORE_UNROLL
        for (int e = 0; e < Lanes::run; e++) run.at[e] = accumulators[Lanes::index(r, q, e)];
        write_vector(own + Lanes::row(r, lane) * t::sum_row + Lanes::column(q, lane), run);
      }
    if constexpr (t::cluster > 1) cluster_barrier();
    else __syncthreads();
    constexpr int width = t::vector_out, columns = t::tile_n / width, all = t::tile_m * columns;
    // Whether a thread keeps to its columns, whose channels it then reads once.
    constexpr bool kept = threads * t::cluster % columns == 0;
    const auto column_of = [&](int at) { return first_n + at % columns * width; };
    const int first = rank * threads + thread;
    OfColumn<width> of_column = {};
    if (kept && column_held(column_of(first)))
      of_column = Roles::template of_column<width>(args, column_of(first));
    DSCORE_ROLLED
    for (int at = first; at < all; at += threads * t::cluster) {
      const int row = at / columns, column = column_of(at);
      if (!held(first_m + row) || !column_held(column)) continue;
      Sum values[width] = {};
      join_all<t>(values, sums + row * t::sum_row + column - first_n);
      if (!kept) of_column = Roles::template of_column<width>(args, column);
      store<width>(args, first_m + row, column, values,
                   Roles::template of_row<width>(args, first_m + row), of_column);
    }
    // A block's LDS is there for as long as the block is.
    if constexpr (t::cluster > 1) cluster_barrier();
  }
  __device__ void finish(const Arguments &args, void *sums) {
    if constexpr (t::quantised)
      if (zero != 0 && slice == 0) take_off_zero();
    if constexpr (t::direct) finish_direct(args);
    else finish_joined(args, static_cast<Sum *>(sums));
  }

  // The sum of (x - zero) * w is that of x * w less zero times that of w.
  __device__ void take_off_zero() {
    const auto of = [&](int filter) {
      return static_cast<uint32_t>(zero) *
             static_cast<uint32_t>(filters.of(filter_sums, filter));
    };
    DSCORE_UNROLL
    for (int q = 0; q < Lanes::runs; q++)
      DSCORE_UNROLL
      for (int e = 0; e < Lanes::run; e++) {
        const int column = wave_n + Lanes::column(q, lane) + e;
        const uint32_t of_column = t::last ? of(column) : 0;
        DSCORE_UNROLL
        for (int r = 0; r < Lanes::rows; r++) {
          const int row = wave_m + Lanes::row(r, lane);
          Sum &sum = accumulators[Lanes::index(r, q, e)];
          if (Roles::present(s, first_m + row, first_n + column))
            sum = static_cast<Sum>(static_cast<uint32_t>(sum) - (t::last ? of_column : of(row)));
        }
      }
  }
  __device__ void put_filter_sums() {
    if constexpr (t::quantised) {
      if (zero == 0) return;
      // In the order of memory.
      using Tile = std::conditional_t<t::last, typename t::B, typename t::A>;
      filters.put(filter_sums, thread, [](int row) { return Tile::row_in_memory(row); });
      __syncthreads();
    }
  }

  // Tiles of rows, one after the other, through a ring; the columns' elements stay in LDS.
  __device__ void run_repeated(const Arguments &args, T *lds) {
    T *ring = lds + t::B::elements;
    const int tiles = least(t::repeat, tiles_m(s) - first_m / t::tile_m), first = first_m;
    const auto rows = [&](int tile) { return a.moved(first + tile * t::tile_m); };
    const auto buffer = [&](int tile) { return ring + tile % t::stages * t::A::elements; };
    b.copy(lds, 0);
    DSCORE_UNROLL
    for (int tile = 0; tile < t::stages - 1; tile++) {
      if (tile < tiles) rows(tile).copy(buffer(tile), 0);
      commit_copies();
    }
    DSCORE_ROLLED
    for (int tile = 0; tile < tiles; tile++) {
      wait_copies<t::stages - 2>();
      if constexpr (Roles::scaled)
        Roles::scale(args, s, rows(tile), b, buffer(tile), lds, 0);
      __syncthreads();
      const int ahead = tile + t::stages - 1;
      if (ahead < tiles) rows(ahead).copy(buffer(ahead), 0);
      commit_copies();
      DSCORE_UNROLL
      for (int i = 0; i < t::accumulators; i++) accumulators[i] = 0;
      multiply(buffer(tile), lds);
      if constexpr (t::quantised)
        if (tile == 0 && zero != 0) {
          filters.add(lds, thread);
          put_filter_sums();
        }
      first_m = first + tile * t::tile_m;
      finish(args, ring + t::stages * t::A::elements);
    }
  }

  __device__ void run(const Arguments &args) {
    T *lds = block_lds<T, lds_bytes / int{sizeof(T)}>();
    points = Roles::points_of(args);
    if constexpr (t::quantised) {
      zero = Roles::zero(args);
      filter_sums = reinterpret_cast<int *>(lds + t::filter_sums_at);
    }
    if constexpr (t::repeat > 1) {
      run_repeated(args, lds);
    } else {
      run_ring<t>(*this, lds, steps, [&](T *arrived, int step) {
        if constexpr (Roles::scaled)
          Roles::scale(args, s, a, b, arrived, arrived + t::A::elements, turned(step));
      });
      put_filter_sums();
      finish(args, lds);
    }
  }
};

}  // namespace dscore
