// Matrix units of Hopper's warpgroups: four wavefronts of 32 multiply 64 rows by up to 256 columns,
// of operands that the units read from LDS by themselves (PTX ISA, wgmma). On sm_90a, and on the
// emulated device.
//
// An operand lies in LDS in rows of 128 bytes, of which eight are a tile, at a multiple of 1024
// bytes, and whose vectors of 16 bytes are exchanged (`swizzled`), so that neighbouring rows lie in
// different banks. Its rows are rows (or columns) of results, whose summed elements lie side by
// side: along the sum; or, of 16 bits only, summed elements: across. Sums of signed bytes are of
// int32, others of float.
//
// The order of calls: order_products, multiply_lds or multiply_registers several times,
// commit_products, wait_products. Meanwhile nothing else may touch the sums.
#pragma once

#include "support/matrix_units.hpp"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define DSCORE_WARPGROUPS
#include "support/warpgroup_products.hpp"  // which takes a compiler a tenth of a second to read
#endif

namespace dscore {

constexpr int warpgroup_threads = 128, warpgroup_rows = 64, wavefront_rows = 16;
constexpr int swizzled_row = 128, swizzled_tile = 1024;  // bytes

// Where a byte lies that is `at` bytes behind a multiple of 1024.
__host__ __device__ constexpr int swizzled(int at) { return at ^ ((at >> 7 & 7) << 4); }

// Where an operand of an instruction begins in LDS. `next_tile`: bytes from a tile to that of the
// next eight rows. Of one that lies across, `next_columns`: from a tile to that of the next rows or
// columns of results, of which a tile has 128 bytes.
struct LdsOperand {
  uint64_t bits;
  LdsOperand() = default;
  __device__ explicit LdsOperand(const void *lds, int next_tile = swizzled_tile,
                                 int next_columns = 16)
      : bits(place_of(lds) >> 4 | static_cast<uint64_t>(next_columns >> 4) << 16 |
             static_cast<uint64_t>(next_tile >> 4) << 32 | uint64_t{1} << 62) {}
  // The same, so many bytes further on: 32 for the next instruction's summed elements along the
  // sum, 2048 for the next sixteen across.
  __device__ LdsOperand further(int bytes) const {
    LdsOperand moved;
    moved.bits = bits + static_cast<uint64_t>(bytes >> 4);
    return moved;
  }
  static __device__ uint64_t place_of(const void *lds) {
#if defined(DSCORE_HOST)
    return emulation::lds_offset(lds) & 0x3FFFF;
#elif defined(__CUDACC__)
    return __cvta_generic_to_shared(lds) & 0x3FFFF;
#else
    return 0;  // devices without warpgroups
#endif
  }
};

// Where an instruction's summed elements from k on begin in an operand of boxes of a row of LDS:
// along the sum in the next box after a row; across it as many rows further on. `box`: its rows.
template <class T>
__device__ inline int operand_place(bool across, int box, int k) {
  constexpr int bytes = static_cast<int>(sizeof(T)), row = swizzled_row / bytes;
  return across ? k * swizzled_row : k / row * box * swizzled_row + k % row * bytes;
}

// Before the first product, and where registers that it reads or adds to were written since the
// last one.
__device__ inline void order_products() {
#if defined(DSCORE_WARPGROUPS)
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
// Ends a group of products.
__device__ inline void commit_products() {
#if defined(DSCORE_HOST)
  emulation::device.fibers[emulation::device.current].products.groups++;
#elif defined(DSCORE_WARPGROUPS)
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
// Waits until at most `Ahead` groups are under way.
template <int Ahead>
__device__ inline void wait_products() {
#if defined(DSCORE_HOST)
  emulation::device.fibers[emulation::device.current].products.wait(Ahead);
  // The units read operands for all wavefronts of a warpgroup together.
  emulation::yield(emulation::Waits::at_warpgroup, __LINE__);
#elif defined(DSCORE_WARPGROUPS)
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Ahead) : "memory");
#endif
}

// A barrier of a warpgroup, the `group`-th of so many of a block, by a number that the compiler
// knows. With one that it does not know a block takes all sixteen, and a compute unit has room for
// four such blocks.
template <int Groups, int First = 0>
__device__ inline void warpgroup_barrier(int group) {
#if defined(DSCORE_HOST)
  (void)group;
  emulation::yield(emulation::Waits::at_warpgroup, __LINE__);
#elif defined(__CUDACC__)
  if (First + 1 == Groups || group == First)
    asm volatile("bar.sync %0, %1;" ::"n"(First + 1), "n"(warpgroup_threads) : "memory");
  else if constexpr (First + 1 < Groups) warpgroup_barrier<Groups, First + 1>(group);
#endif
}

// A barrier of a wavefront's lanes.
__device__ inline void wavefront_barrier() {
#if defined(DSCORE_HOST)
  emulation::yield(emulation::Waits::at_shuffle, __LINE__);
#elif defined(__CUDACC__)
  __syncwarp();
#endif
}

// A thread's number in its block. In these kernels nvcc does not see that it is not negative, and
// divides it by powers of two as a signed number, by four instructions.
__device__ inline int thread_number() {
#if defined(__CUDACC__)
  return threadIdx.x & 1023;
#else
  return threadIdx.x;
#endif
}

// A value that all lanes of a wavefront have alike, so that the compiler sees that they do. What
// follows from it, where all branches do, too, is then made once for all lanes, in registers from
// which the matrix units and the copy engine take their operands.
__device__ inline int of_wavefront(int value) {
#if defined(__CUDACC__)
  return __shfl_sync(0xffffffffu, value, 0);
#else
  return value;
#endif
}

// True in one lane of a wavefront, whose lanes all ask. nvcc knows that it is but one: what
// image_gemm's lane asks of the copy engine then needs no loop over lanes. Elsewhere the compiled
// code is as by a comparison of threads' numbers.
__device__ inline bool one_of_wavefront() {
#if defined(DSCORE_COPY_ENGINE)
  int one = 0;
  asm volatile("{\n.reg .pred one;\nelect.sync _|one, 0xffffffff;\n@one mov.s32 %0, 1;\n}"
               : "+r"(one));
  return one != 0;
#else
  return threadIdx.x % 32 == 0;
#endif
}

// Summed elements of one instruction, and what they are summed in.
template <class T>
constexpr int product_depth = 32 / static_cast<int>(sizeof(T));
template <class T>
using ProductSum = std::conditional_t<sizeof(T) == 1, int32_t, float>;

#if defined(DSCORE_HOST)
namespace emulation {

// A product under way: of a first operand in LDS, or of the two rows of it that make this thread's
// results. TF32 is what is left of a float without its last 13 bits.
template <class T>
struct ProductUnderWay {
  using Sum = ProductSum<T>;
  Sum *sums;
  uint64_t a, b;
  T rows[2][product_depth<T>];
  int columns;
  bool of_registers, across_a, across_b, add;

  static Sum value(T element) {
    if constexpr (std::is_same_v<T, float>)
      return bits_as<float>(bits_as<uint32_t>(element) & ~0x1FFFu);
    else return static_cast<Sum>(element);
  }
  // The summed elements of a row (or column) of results, which lie in LDS as the descriptor says.
  static void read(Sum (&values)[product_depth<T>], uint64_t bits, bool across, int extent) {
    constexpr int size = static_cast<int>(sizeof(T)), within = swizzled_row / size;
    const auto field = [&](int from) { return static_cast<int>(bits >> from & 0x3FFF) << 4; };
    const int first = field(0), next_tile = field(32), next_columns = across ? field(16) : 0;
    const Lds &own = own_lds();
    for (int k = 0; k < product_depth<T>; k++) {
      const int row = across ? k : extent, column = across ? extent : k;
      const int at = first + row / 8 * next_tile + row % 8 * swizzled_row +
                     column / within * next_columns + column % within * size;
      T element;
      std::memcpy(&element, lds_at(own, swizzled(at), sizeof(T)), sizeof element);
      values[k] = value(element);
    }
  }
  // The first operand's rows of this thread's results.
  void read_rows(Sum (&values)[2][product_depth<T>], int row) const {
    for (int half = 0; half < 2; half++)
      if (!of_registers) read(values[half], a, across_a, row + half * 8);
      else
        for (int k = 0; k < product_depth<T>; k++) values[half][k] = value(rows[half][k]);
  }
  static void make(const void *given) {
    ProductUnderWay p;
    std::memcpy(&p, given, sizeof p);
    const int thread = device.current % device.threads % warpgroup_threads, lane = thread % 32;
    Sum of_row[2][product_depth<T>], of_column[product_depth<T>];
    p.read_rows(of_row, thread / 32 * 16 + lane / 4);
    for (int pair = 0; pair < p.columns / 4; pair++) {
      const int column = pair / 2 * 8 + lane % 4 * 2 + pair % 2;
      read(of_column, p.b, p.across_b, column);
      for (int half = 0; half < 2; half++) {
        Sum &sum = p.sums[pair / 2 * 4 + half * 2 + pair % 2];
        if (!p.add) sum = 0;
        for (int k = 0; k < product_depth<T>; k++) sum += of_row[half][k] * of_column[k];
      }
    }
  }
  void begin() const {
    if (copies_at_once()) make(this);
    else device.fibers[device.current].products.push(make, *this);
  }
};

// The two rows of a first operand whose words the wavefront's lanes hold.
template <class T>
void gather_rows(T (&rows)[2][product_depth<T>], const Word *words, int site) {
  struct Given {
    Word words[4];
  } given;
  std::memcpy(given.words, words, sizeof given.words);
  const Exchange<Given> lanes(&given, site);
  constexpr int each = 4 / static_cast<int>(sizeof(T));
  const int first = device.current % 32 / 4 * 4;
  for (int half = 0; half < 2; half++)
    for (int k = 0; k < product_depth<T>; k++) {
      const Word word = lanes.of(first + k / each % 4)->words[k / (4 * each) * 2 + half];
      std::memcpy(&rows[half][k], reinterpret_cast<const T *>(&word) + k % each, sizeof(T));
    }
  lanes.done();
}
}  // namespace emulation
#endif

// Says that a lane reads a row of a first operand from LDS to registers: the emulated device holds
// the copy engine to it until the product has been begun.
__device__ inline void reads_for_product(const void *lds, int bytes) {
#if defined(DSCORE_HOST)
  emulation::reads_for_product(lds, bytes);
#else
  (void)lds, (void)bytes;
#endif
}

// sums[64][Columns] (+)= a · b, of operands in LDS; `add`: whether the sums so far count. T is an
// element type of 16 bits, int8_t, or float, which is cut to TF32. Lane 4 g + i of wavefront w
// holds, of columns 8 j on, columns 2 i and 2 i + 1 of row 16 w + g in sums 4 j and 4 j + 1, of row
// g + 8 in the next two.
template <class T, int Columns, bool AcrossA = false, bool AcrossB = false>
__device__ inline void multiply_lds(ProductSum<T> *sums, LdsOperand a, LdsOperand b, bool add) {
  static_assert(sizeof(T) == 2 || !(AcrossA || AcrossB), "others lie along the sum");
#if defined(DSCORE_HOST)
  emulation::ProductUnderWay<T>{sums,  a.bits,  b.bits,  {},      Columns,
                                  false, AcrossA, AcrossB, add}.begin();
#elif defined(DSCORE_WARPGROUPS)
  using Product = WarpgroupProduct<Columns>;
  if constexpr (std::is_same_v<T, float16>)
    Product::template f16_by_lds<AcrossA, AcrossB>(sums, a.bits, b.bits, add);
  else if constexpr (std::is_same_v<T, bfloat16>)
    Product::template bf16_by_lds<AcrossA, AcrossB>(sums, a.bits, b.bits, add);
  else if constexpr (sizeof(T) == 1) Product::s8_by_lds(sums, a.bits, b.bits, add);
  else Product::tf32_by_lds(sums, a.bits, b.bits, add);
#elif defined(__CUDA_ARCH__)
  asm volatile("trap;");  // an architecture without warpgroups
#endif
}

// The same of a first operand in registers, held as mma.sync has it (support/matrix_units.hpp,
// FragmentA): of wavefront w rows 16 w to 16 w + 15. Of bytes, lane 4 g + i holds elements 4 i to
// 4 i + 3 of rows g and g + 8, then 4 i + 16 on of both. Of TF32, elements i of both, then i + 4.
template <class T, int Columns, bool AcrossB = false>
__device__ inline void multiply_registers(ProductSum<T> *sums, const Word (&a)[4], LdsOperand b,
                                          bool add) {
  static_assert(sizeof(T) == 2 || !AcrossB, "others lie along the sum");
#if defined(DSCORE_HOST)
  emulation::ProductUnderWay<T> product{sums, 0,     b.bits,  {},      Columns,
                                          true, false, AcrossB, add};
  emulation::gather_rows<T>(product.rows, a, __LINE__);
  emulation::product_has_reads();
  product.begin();
#elif defined(DSCORE_WARPGROUPS)
  using Product = WarpgroupProduct<Columns>;
  if constexpr (std::is_same_v<T, float16>)
    Product::template f16_by_registers<AcrossB>(sums, a, b.bits, add);
  else if constexpr (std::is_same_v<T, bfloat16>)
    Product::template bf16_by_registers<AcrossB>(sums, a, b.bits, add);
  else if constexpr (sizeof(T) == 1) Product::s8_by_registers(sums, a, b.bits, add);
  else Product::tf32_by_registers(sums, a, b.bits, add);
#elif defined(__CUDA_ARCH__)
  asm volatile("trap;");  // an architecture without warpgroups
#endif
}

}  // namespace dscore
