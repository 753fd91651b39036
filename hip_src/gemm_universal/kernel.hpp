// A product of matrices, rows of results by columns that lie side by side in memory, by tiles from
// a ring of LDS buffers: pointwise layers whose channels come last (NHWC), and their gradients.
//
// Which axes the rows, the columns and the summed elements are, the operation says
// (`PointwiseForward`, gemm_universal/input_gradient.hpp, gemm_universal/weight_gradient.hpp).
//
// Order of additions with plain arithmetic, as the reference backend has it: a slice s of the
// wavefronts sums elements [s * slice, (s + 1) * slice) of every step, ascending; then the slices
// are added, ascending; then the blocks of a cluster, which share the steps; then the parts.
#pragma once

#include "gemm_universal/lanes.hpp"
#include "gemm_universal/operands.hpp"

namespace dscore {

enum class Products { plain, tf32x3, matrix16 };

// VectorA, VectorB, VectorOut: elements that lie side by side and aligned in rows of the operands
// and of the result. Gathered: rows of pixels are not all pixels in their order.
template <int TileM, int TileN, int WaveM, int WaveN, int LanesM, int Slices, int Step, int Stages,
          int Cluster, int Parts, Products Arithmetic, int VectorA, int VectorB, int VectorOut,
          bool Gathered, int Layout, int Wavefront>
struct GemmUniversalTiling {
  static constexpr int tile_m = TileM, tile_n = TileN, wave_m = WaveM, wave_n = WaveN;
  static constexpr int lanes_m = LanesM, slices = Slices, step = Step, stages = Stages;
  static constexpr int cluster = Cluster, parts = Parts, wavefront = Wavefront, layout = Layout;
  static constexpr int vector_a = VectorA, vector_b = VectorB, vector_out = VectorOut;
  static constexpr bool gathered = Gathered;
  static constexpr Products arithmetic = Arithmetic;
  static constexpr int waves_m = TileM / WaveM, waves_n = TileN / WaveN;
  static constexpr int threads = waves_m * waves_n * Slices * Wavefront, slice = Step / Slices;
  static constexpr int accumulators = WaveM * WaveN / Wavefront;
  // Whether each lane stores its own sums; else these pass through LDS.
  static constexpr bool direct = Slices == 1 && Cluster == 1;
  static constexpr int sum_row = TileN + (TileN % 16 ? 0 : 8), sums = TileM * sum_row;
  static constexpr bool plain = Arithmetic == Products::plain;
  static constexpr int fragment = plain ? 4 : Arithmetic == Products::tf32x3 ? 8 : 16;
  static_assert(TileM % WaveM == 0 && TileN % WaveN == 0, "a block holds whole wavefronts");
  static_assert(Step % Slices == 0 && slice % fragment == 0, "slices of whole fragments");
  static_assert(TileN % VectorOut == 0, "rows of whole vectors");
  static_assert(plain ? WaveM % LanesM == 0 && WaveN % (Wavefront / LanesM) == 0
                      : WaveM % 16 == 0 && WaveN % 8 == 0 && LanesM == 8 && Wavefront == 32,
                "whole fragments");
  static_assert(plain || has_tf32, "matrix units");
};

// What depends on the operation and the element type, too.
template <class T, class Tiling, class Roles>
struct GemmUniversalShape : Tiling {
  static constexpr bool along_a = Roles::along_a, along_b = Roles::along_b;
  // Columns of fragments that a lane holds side by side, as far as they make vectors of 16 bytes.
  static constexpr int most = 8 / static_cast<int>(sizeof(T));
  static constexpr int group = Tiling::plain || !along_b || !Tiling::direct ? 1
                               : Tiling::wave_n % (8 * most) == 0              ? most
                               : Tiling::wave_n % 16 == 0                      ? 2
                                                                               : 1;
  // Rows of a tile begin some banks apart, so that lanes reading several meet no bank twice: an odd
  // number of vectors of 16 bytes, or, where four rows are read by pairs of floats, 8 banks.
  static constexpr int pitch(int row, bool along) {
    constexpr int vector = 16 / static_cast<int>(sizeof(T));
    if (Tiling::arithmetic == Products::tf32x3 && along) return row % 16 == 8 ? row : row + 8;
    return (ceil_div(row, vector) | 1) * vector;
  }
  static constexpr int pitch_a = pitch(along_a ? Tiling::step : Tiling::tile_m, along_a);
  static constexpr int pitch_b = pitch(along_b ? Tiling::step : Tiling::tile_n, along_b);
  using A = OperandTile<T, Tiling::threads, Tiling::tile_m, Tiling::step, along_a, Tiling::gathered,
                        Tiling::vector_a, pitch_a, 1>;
  using B = OperandTile<T, Tiling::threads, Tiling::tile_n, Tiling::step, along_b, false,
                        Tiling::vector_b, pitch_b, group>;
  static constexpr int buffer = A::elements + B::elements;
  static constexpr int joined = Tiling::direct ? 0 : Tiling::slices * Tiling::sums;
  static constexpr int lds_bytes = greatest(Tiling::stages * buffer * static_cast<int>(sizeof(T)),
                                            joined * static_cast<int>(sizeof(float)));
};

template <class T, class t>
using LanesOf = std::conditional_t<
    t::plain, PlainLanes<T, t>,
    std::conditional_t<t::arithmetic == Products::tf32x3, Tf32Lanes<T, t>, Matrix16Lanes<T, t>>>;

// Roles: sizes m, n, k of a problem's product; `row_a` and `row_b`, where a row of an operand begins
// (less than 0: there is none); Arguments, and what becomes of sums: `store`.
template <class T, class Tiling, class Roles_>
struct Product : KernelOn<T, typename Roles_::Arguments, Roles_::optional> {
  using Roles = Roles_;
  using Shape = typename Roles::Shape;
  using t = GemmUniversalShape<T, Tiling, Roles>;
  using Arguments = typename Roles::Arguments;
  using Lanes = LanesOf<T, t>;
  static constexpr int threads = t::threads, wavefront = t::wavefront, cluster = t::cluster;
  static constexpr int layout = t::layout, lds_bytes = t::lds_bytes;
  static constexpr int alignment =
      greatest(greatest(t::vector_a, t::vector_b), t::vector_out) * static_cast<int>(sizeof(T));

  static __host__ __device__ int tiles_m(const Shape &s) {
    return ceil_div(Roles::m(s), t::tile_m);
  }
  static __host__ __device__ int tiles_n(const Shape &s) {
    return ceil_div(Roles::n(s), t::tile_n);
  }
  static __host__ __device__ int all_steps(const Shape &s) {
    return ceil_div(Roles::k(s), t::step);
  }
  // Steps of one block of a cluster, of one part; the last may have fewer, or none.
  static __host__ __device__ int steps_each(const Shape &s) {
    return ceil_div(all_steps(s), t::parts * t::cluster);
  }
  // Block of the cluster fastest, then column tile: blocks that read the same rows follow one
  // another.
  static int blocks(const Shape &s) { return t::cluster * tiles_n(s) * tiles_m(s) * t::parts; }

  const Shape &s;
  int thread, lane, slice, wave_m, wave_n, rank, part, first_step, first_m, first_n;
  typename t::A a;
  typename t::B b;
  typename t::A::Move a_moves[t::stages == 2 ? t::A::count : 1];
  typename t::B::Move b_moves[t::stages == 2 ? t::B::count : 1];
  float accumulators[t::accumulators];

  static __device__ int tile_of() { return blockIdx.x / t::cluster; }
  static __device__ int first_row(const Shape &s) {
    return tile_of() / tiles_n(s) % tiles_m(s) * t::tile_m;
  }
  __device__ Product(const Arguments &args, const Shape &shape)
      : s(shape), thread(threadIdx.x), lane(threadIdx.x % t::wavefront),
        first_m(first_row(shape)), first_n(tile_of() % tiles_n(shape) * t::tile_n),
        a(Roles::a(args), first_row(shape), threadIdx.x,
          [&](int row) { return offset_a(shape, row); }),
        b(Roles::b(args), tile_of() % tiles_n(shape) * t::tile_n, threadIdx.x,
          [&](int row) { return offset_b(shape, row); }),
        accumulators{} {
    const int wave = thread / t::wavefront;
    slice = wave / (t::waves_m * t::waves_n);
    wave_n = wave % t::waves_n * t::wave_n;
    wave_m = wave / t::waves_n % t::waves_m * t::wave_m;
    rank = blockIdx.x % t::cluster;
    part = tile_of() / (tiles_n(s) * tiles_m(s));
    first_step = (part * t::cluster + rank) * steps_each(s);
  }

  // Where a row of an operand begins, less than 0 where there is none.
  static __device__ int offset_a(const Shape &s, int row) {
    constexpr int even = t::along_a ? t::tile_m : t::step;
    const int rows = t::along_a ? Roles::m(s) : Roles::k(s);
    if (rows % even != 0 && row >= rows) return t::A::nowhere;
    return Roles::template row_a<t::gathered>(s, row);
  }
  static __device__ int offset_b(const Shape &s, int row) {
    constexpr int even = t::along_b ? t::tile_n : t::step;
    const int rows = t::along_b ? Roles::n(s) : Roles::k(s);
    if (rows % even != 0 && row >= rows) return t::B::nowhere;
    return Roles::template row_b<t::gathered>(s, row);
  }

  __device__ void copy(T *lds, int step) const {
    a.copy(lds, first_step + step, Roles::k(s), Roles::m(s),
           [&](int row) { return offset_a(s, row); });
    b.copy(lds + t::A::elements, first_step + step, Roles::k(s), Roles::n(s),
           [&](int row) { return offset_b(s, row); });
  }
  __device__ void fetch(int step) {
    a.fetch(a_moves, first_step + step, Roles::k(s), Roles::m(s),
            [&](int row) { return offset_a(s, row); });
    b.fetch(b_moves, first_step + step, Roles::k(s), Roles::n(s),
            [&](int row) { return offset_b(s, row); });
  }
  __device__ void put(T *lds) const {
    a.put(lds, a_moves);
    b.put(lds + t::A::elements, b_moves);
  }
  __device__ void multiply(const T *lds) {
    Lanes::multiply(accumulators, lds + place_of<t::along_a>(wave_m, slice * t::slice, t::pitch_a),
                    lds + t::A::elements +
                        place_of<t::along_b>(wave_n, slice * t::slice, t::pitch_b),
                    lane);
  }
  // Multiplies the elements of a step that this thread has brought by the scale of their image and
  // channel.
  __device__ void scale(const Arguments &args, T *lds, int step) const {
    a.each(first_step + step, Roles::k(s), Roles::m(s),
           [&](int row) { return offset_a(s, row); },
           [&](int, int at, const T *, bool there, int row, int column) {
             if (!there) return;
             const auto scales = read_vector<t::vector_a>(Roles::scales(args, s, row) + column);
             const auto several = read_vector<t::vector_a>(lds + at);
             float products[t::vector_a];
             DSCORE_UNROLL
             for (int j = 0; j < t::vector_a; j++)
               products[j] = static_cast<float>(several.at[j]) * static_cast<float>(scales.at[j]);
             write_vector(lds + at, rounded<T, t::vector_a>(products));
           });
  }

  // Stores Width neighbouring sums of a row.
  template <int Width>
  __device__ void store(const Arguments &args, int row, int column, const float *values) const {
    if (Roles::n(s) % t::tile_n != 0 && column >= Roles::n(s)) return;
    Roles::template store<T, Width, t::gathered>(args, s, part, row, column, values);
  }
  __device__ bool held(int row) const { return Roles::m(s) % t::tile_m == 0 || row < Roles::m(s); }

  // Each lane its own sums.
  __device__ void finish_direct(const Arguments &args) const {
    constexpr int width = least(Lanes::run, t::vector_out);
    DSCORE_UNROLL
    for (int r = 0; r < Lanes::rows; r++) {
      const int row = first_m + wave_m + Lanes::row(r, lane);
      if (!held(row)) continue;
      DSCORE_UNROLL
      for (int q = 0; q < Lanes::runs; q++)
        DSCORE_UNROLL
        for (int e = 0; e < Lanes::run; e += width) {
          float values[width];
          DSCORE_UNROLL
          for (int j = 0; j < width; j++) values[j] = accumulators[Lanes::index(r, q, e + j)];
          store<width>(args, row, first_n + wave_n + Lanes::column(q, lane) + e, values);
        }
    }
  }

  // Sums of all slices, and of a cluster's blocks, through LDS to the threads that store them.
  __device__ void finish_joined(const Arguments &args, float *sums) const {
    __syncthreads();
    float *own = sums + slice * t::sums + wave_m * t::sum_row + wave_n;
    DSCORE_UNROLL
    for (int r = 0; r < Lanes::rows; r++)
      DSCORE_UNROLL
      for (int q = 0; q < Lanes::runs; q++) {
        Pack<float, Lanes::run> run;
        DSCORE_UNROLL
        for (int e = 0; e < Lanes::run; e++) run.at[e] = accumulators[Lanes::index(r, q, e)];
        write_vector(own + Lanes::row(r, lane) * t::sum_row + Lanes::column(q, lane), run);
      }
    if constexpr (t::cluster > 1) cluster_barrier();
    else __syncthreads();
    constexpr int columns = t::tile_n / t::vector_out, all = t::tile_m * columns;
    DSCORE_ROLLED
    for (int at = rank * threads + thread; at < all; at += threads * t::cluster) {
      const int row = at / columns, column = at % columns * t::vector_out;
      if (!held(first_m + row)) continue;
      float values[t::vector_out] = {};
      join(values, sums + row * t::sum_row + column);
      store<t::vector_out>(args, first_m + row, first_n + column, values);
    }
    // A block's LDS is there for as long as the block is.
    if constexpr (t::cluster > 1) cluster_barrier();
  }
  __device__ void join(float (&values)[t::vector_out], const float *sums) const {
    DSCORE_UNROLL
    for (int block = 0; block < t::cluster; block++) {
      float own[t::vector_out] = {};
      DSCORE_UNROLL
      for (int other = 0; other < t::slices; other++)
        DSCORE_UNROLL
        for (int j = 0; j < t::vector_out; j++) {
          const float *from = sums + other * t::sums + j;
          own[j] += t::cluster > 1 ? read_of_block(from, block) : *from;
        }
      DSCORE_UNROLL
      for (int j = 0; j < t::vector_out; j++) values[j] += own[j];
    }
  }

  __device__ void run(const Arguments &args) {
    T *lds = block_lds<T, lds_bytes / int{sizeof(T)}>();
    const int steps = least(steps_each(s), all_steps(s) - first_step);
    run_ring<t>(*this, lds, steps, [&](T *arrived, int step) {
      if constexpr (Roles::scaled) scale(args, arrived, step);
    });
    if constexpr (t::direct) finish_direct(args);
    else finish_joined(args, reinterpret_cast<float *>(lds));
  }
};

// y[pixel][o] = sum over c of x[pixel][c] * w[o][c].
template <class Layer, class Shape_, class Epilogue>
struct PointwiseForward {
  using Shape = Shape_;
  using Arguments = typename Epilogue::Arguments;
  using Places = Pixels<Layer, Shape>;
  static constexpr unsigned optional = 1u << 2;  // the bias
  static constexpr bool along_a = true, along_b = true, scaled = Epilogue::scaled;
  static __device__ const void *a(const Arguments &args) { return args.x; }
  static __device__ const void *b(const Arguments &args) { return args.w; }
  static __host__ __device__ int m(const Shape &s) { return Places::of_output(s); }
  static __host__ __device__ int n(const Shape &s) { return s.out_channels; }
  static __host__ __device__ int k(const Shape &s) { return s.in_channels; }
  template <bool Gathered>
  static __device__ int row_a(const Shape &s, int row) {
    return (Gathered ? Places::source(s, row) : row) * s.in_channels;
  }
  template <bool>
  static __device__ int row_b(const Shape &s, int row) { return row * s.in_channels; }
  static __device__ auto *scales(const Arguments &args, const Shape &s, int row) {
    using T = typename Epilogue::Element;
    return static_cast<const T *>(args.scale) + row / (s.out_height * s.out_width) * s.in_channels;
  }
  template <class T, int Width, bool>
  static __device__ void store(const Arguments &args, const Shape &s, int, int row, int column,
                               const float *values) {
    const int at = row * s.out_channels + column;
    write_vector(static_cast<T *>(args.out) + at,
                 Epilogue::template apply_channels<Width>(values, args, column, at));
  }
};

template <class T, class Tiling, class Layer, class Shape, class Epilogue>
struct GemmUniversal : Product<T, Tiling, PointwiseForward<Layer, Shape, Epilogue>> {
  using Product<T, Tiling, PointwiseForward<Layer, Shape, Epilogue>>::Product;
};

}  // namespace dscore
