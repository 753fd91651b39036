// Weight gradient of a pointwise convolution (warpgroup_gemm/kernel.hpp): sums over the pixels of
// all images, which are the rows of both operands. `parts` blocks share those of a tile of the
// result; a kernel that follows adds what each has.
#pragma once

#include "split_k/sum.hpp"
#include "warpgroup_gemm/input_gradient.hpp"

namespace dscore {

// dw[o][c] = sum over pixels of gradient[pixel][o] * x[pixel][c].
template <class Tiling, class Shape_, class Result_>
struct WarpgroupWeightGradientRoles : WarpgroupPlain<Shape_> {
  using Shape = Shape_;
  static constexpr bool along_a = false, along_b = false, sums_pixels = true;
  template <class>
  using Result = Result_;
  static constexpr bool shared = Tiling::parts > 1;
  using Arguments = std::conditional_t<shared, WorkspaceArguments, WeightGradientArguments>;
  // Parts, and results that are sums unrounded.
  static constexpr bool stores_sums = shared || std::is_same_v<Result_, float>;
  static __host__ __device__ const void *a(const Arguments &args) { return args.gradient; }
  static __host__ __device__ const void *b(const Arguments &args) { return args.x; }
  static __host__ __device__ int m(const Shape &s) { return s.out_channels; }
  static __host__ __device__ int n(const Shape &s) { return s.in_channels; }
  static __host__ __device__ int k(const Shape &s) {
    return s.batch * s.out_height * s.out_width;
  }
  // Two sums, as they are: of a part to the workspace, else to the result. A part past the last
  // step has none, and stores zeros.
  static __device__ void store_sums(const Arguments &args, const Shape &s, const float *sums,
                                    int part, int row, int column) {
    if (row >= m(s) || column >= n(s)) return;
    Pack<float, 2> two{};
    if (sums) two = {{sums[0], sums[1]}};
    write_vector(static_cast<float *>(sums_of(args)) + (part * m(s) + row) * n(s) + column, two);
  }
  static __device__ void *sums_of(const Arguments &args) {
    if constexpr (shared) return args.workspace;
    else return args.out;
  }
};

// Of the kernel that adds the parts.
template <class Tiling>
struct WarpgroupSumTiling {
  static constexpr int parts = Tiling::parts, wavefront = Tiling::wavefront, vector_w = 4;
};

template <class Tiling, class Shape, class Epilogue>
using WeightGradientRoles =
    WarpgroupWeightGradientRoles<Tiling, Shape, typename Epilogue::Result>;

template <class T, class Tiling, class Layer, class Shape, class Epilogue>
struct WarpgroupGemmWeightGradient
    : WarpgroupProducts<T, Tiling, WeightGradientRoles<Tiling, Shape, Epilogue>> {
  using Base = WarpgroupProducts<T, Tiling, WeightGradientRoles<Tiling, Shape, Epilogue>>;
  using Base::Base;
  static_assert(Layer::taps == 1 && Layer::stride_h == 1 && Layer::stride_w == 1, "all pixels");
  // Where a compute unit's LDS has one block of this kernel alone, those of the next launch, which
  // come early, cannot take the place of others.
  using Sum = SplitKSum<typename Epilogue::Result, WarpgroupSumTiling<Tiling>, Shape,
                        blocks_of_unit(Base::lds_bytes) < 2>;
  using Then = std::conditional_t<(Tiling::parts > 1), Sum, void>;

  static long long workspace_bytes(const Shape &s) {
    const long long bytes = sizeof(float);
    return Tiling::parts > 1 ? bytes * Tiling::parts * s.out_channels * s.in_channels : 0;
  }
};

}  // namespace dscore
