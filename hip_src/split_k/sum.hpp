// The parts of a weight gradient (split_k/kernel.hpp), added in their order.
#pragma once

#include "support/vendor.hpp"

namespace dscore {

template <class T, int Count>
__device__ inline void store_rounded(T *out, const Pack<float, Count> &sums) {
  Pack<T, Count> rounded;
  DSCORE_UNROLL
  for (int i = 0; i < Count; i++) rounded.at[i] = static_cast<T>(sums.at[i]);
  *reinterpret_cast<Pack<T, Count> *>(out) = rounded;
}

// Rows of threads share the parts: row r adds parts r, r + rows, … ascending, then the first row
// adds what the rows have, ascending. The next kernel's start would wait for the end of many short
// blocks, did these not admit it before: as they begin, or, where AdmitsFirst, as they come, so
// that it asks for its operands while parts are still summed.
template <class Result, class t, class Shape_, bool AdmitsFirst = false>
struct SplitKSum : KernelOn<Result, WorkspaceArguments> {
  using Shape = Shape_;
  using Vector = Pack<float, t::vector_w>;
  static constexpr int threads = 256, wavefront = t::wavefront;
  // About eight parts a row: a thread has them all under way at once.
  static constexpr int rows = t::parts <= 8     ? 1
                              : t::parts <= 16  ? 2
                              : t::parts <= 32  ? 4
                              : t::parts <= 64  ? 8
                              : t::parts <= 128 ? 16
                                                : 32;
  static constexpr int columns = threads / rows;
  static constexpr int lds_bytes = rows > 1 ? threads * int{sizeof(Vector)} : 0;
  static constexpr int alignment = t::vector_w * int{sizeof(Result)};

  static __host__ __device__ int vectors(const Shape &s) {
    return s.out_channels * s.in_channels / t::vector_w;
  }
  static int blocks(const Shape &s) { return ceil_div(vectors(s), columns); }

  const Shape &s;
  int column, row, at;

  __device__ SplitKSum(const WorkspaceArguments &, const Shape &shape)
      : s(shape), column(threadIdx.x % columns), row(threadIdx.x / columns),
        at(blockIdx.x * columns + column) {
    if (AdmitsFirst) admit_next_kernel();
  }

  static __device__ void add(Vector &sum, const Vector &other) {
    DSCORE_UNROLL
    for (int i = 0; i < t::vector_w; i++) sum.at[i] += other.at[i];
  }
  __device__ Vector parts_of_row(const Vector *workspace) const {
    Vector sum{};
    DSCORE_UNROLL
    for (int part = 0; part < t::parts; part += rows)
      if (part + row < t::parts) add(sum, workspace[(part + row) * vectors(s) + at]);
    return sum;
  }
  __device__ void run(const WorkspaceArguments &args) {
    if (!AdmitsFirst) admit_next_kernel();
    Vector sum{};
    if (at < vectors(s)) sum = parts_of_row(static_cast<const Vector *>(args.workspace));
    if constexpr (rows > 1) {
      Vector *sums = reinterpret_cast<Vector *>(block_lds<float, threads * t::vector_w>());
      sums[threadIdx.x] = sum;
      __syncthreads();
      if (row == 0) {
        DSCORE_UNROLL
        for (int other = 1; other < rows; other++) add(sum, sums[other * columns + column]);
      }
    }
    if (row == 0 && at < vectors(s))
      store_rounded(static_cast<Result *>(args.out) + at * t::vector_w, sum);
  }
};

}  // namespace dscore
