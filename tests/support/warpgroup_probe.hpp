// A kernel of one warpgroup: a product of two operands that come to LDS by boxes of matrices, with
// tails past their ends.
#include "support/tensor_copy.hpp"
#include "support/warpgroups.hpp"

namespace dscore {

struct ProbeShape {
  int rows, columns, depth;  // that there are
};
struct ProbeArguments {
  const void *a, *b;
  void *d;
};
struct ProbeMaps {
  TensorMap a, b;
};

// Operands by boxes of 128 bytes of Depth summed elements (along), or of 64 rows of results.
template <class T, int Columns, bool AcrossA, bool AcrossB, bool Registers>
struct ProductProbe : KernelOn<T, ProbeArguments> {
  using Shape = ProbeShape;
  using Arguments = ProbeArguments;
  using Maps = ProbeMaps;
  static constexpr int threads = warpgroup_threads, wavefront = 32;
  static constexpr int within = swizzled_row / static_cast<int>(sizeof(T)), depth = 2 * within;
  static constexpr int boxes_b = AcrossB ? ceil_div(Columns, within) : depth / within;
  static constexpr int rows_b = AcrossB ? depth : ceil_div(Columns, 8) * 8;
  static constexpr int rows_a = AcrossA ? depth : warpgroup_rows, boxes_a = AcrossA ? 1 : 2;
  static constexpr int bytes_a = boxes_a * rows_a * swizzled_row;
  static constexpr int bytes_b = boxes_b * rows_b * swizzled_row;
  static constexpr int lds_bytes = bytes_a + bytes_b + 1024;
  static int blocks(const Shape &) { return 1; }

  static int make_maps(Maps &maps, const Arguments &args, const Shape &s) {
    const auto make = [&](TensorMap &map, const void *at, bool across, int extent, int rows) {
      const int side = across ? extent : s.depth, others = across ? s.depth : extent;
      return make_map<T>(map, at, BoxedMatrix{
          {static_cast<uint64_t>(side), static_cast<uint64_t>(others)},
          side * sizeof(T), {within, static_cast<uint32_t>(rows)}});
    };
    const int code = make(maps.a, args.a, AcrossA, s.rows, rows_a);
    return code ? code : make(maps.b, args.b, AcrossB, s.columns, rows_b);
  }

  const Shape &s;
  const Maps &maps;
  __device__ ProductProbe(const Arguments &, const Shape &shape, const Maps &maps_)
      : s(shape), maps(maps_) {}

  __device__ void run(const Arguments &args) {
    unsigned char *lds = block_lds<unsigned char, lds_bytes, swizzled_tile>();
    auto *barrier = reinterpret_cast<TransferBarrier *>(lds + bytes_a + bytes_b);
    const int thread = threadIdx.x;
    if (thread == 0) prepare_barriers(barrier, 1, 1);
    __syncthreads();
    if (thread == 0) {
      arrive_expecting(barrier, bytes_a + bytes_b);
      for (int i = 0; i < boxes_a; i++)
        load_box(barrier, lds + i * rows_a * swizzled_row, maps.a, {i * within, 0});
      for (int i = 0; i < boxes_b; i++)
        load_box(barrier, lds + bytes_a + i * rows_b * swizzled_row, maps.b, {i * within, 0});
    }
    wait_barrier(barrier, 0);
    float sums[Columns / 2];
    Word fragment[depth / product_depth<T>][4];
    if constexpr (Registers) read_fragments(fragment, lds, thread);
    order_products();
    const LdsOperand a(lds), b(lds + bytes_a, swizzled_tile, rows_b * swizzled_row);
    DSCORE_UNROLL
    for (int k = 0; k < depth; k += product_depth<T>) {
      const auto at = [&](LdsOperand first, bool across, int rows) {
        return first.further(across ? k * swizzled_row
                                    : k / within * rows * swizzled_row +
                                          k % within * static_cast<int>(sizeof(T)));
      };
      if constexpr (Registers)
        multiply_registers<T, Columns, AcrossB>(sums, fragment[k / product_depth<T>],
                                                at(b, AcrossB, rows_b), k > 0);
      else
        multiply_lds<T, Columns, AcrossA, AcrossB>(sums, at(a, AcrossA, rows_a),
                                                   at(b, AcrossB, rows_b), k > 0);
    }
    commit_products();
    wait_products<0>();
    const int row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
    for (int i = 0; i < Columns / 2; i++)
      static_cast<float *>(args.d)[(row + i / 2 % 2 * 8) * Columns + i / 4 * 8 + column + i % 2] =
          sums[i];
  }

  // The first operand, which lies along the sum, from LDS.
  static __device__ void read_fragments(Word (*fragment)[4], const unsigned char *lds,
                                        int thread) {
    constexpr int each = 4 / static_cast<int>(sizeof(T)), size = static_cast<int>(sizeof(T));
    for (int k = 0; k < depth; k += product_depth<T>)
      for (int i = 0; i < 4; i++) {
        const int row = thread / 32 * 16 + thread % 32 / 4 + i % 2 * 8;
        const int summed = k + i / 2 * 4 * each + thread % 4 * each;
        const int at = swizzled(row * swizzled_row + summed % within * size);
        __builtin_memcpy(&fragment[k / product_depth<T>][i],
                         lds + summed / within * rows_a * swizzled_row + at, 4);
      }
  }
};

}  // namespace dscore

extern "C" {
#define DSCORE_PRODUCT_PROBE(name, T, columns, across_a, across_b, registers)                      \
  int name(const void *a, const void *b, void *d, int rows, int depth, int given) {                \
    return dscore::run<dscore::ProductProbe<dscore::T, columns, across_a, across_b, registers>>(   \
        {a, b, d}, {rows, given, depth}, nullptr, 0);                                              \
  }
}
namespace dscore { using float32 = float; }
