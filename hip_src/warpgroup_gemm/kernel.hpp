// Pointwise convolution as a product of pixels by channels (warpgroup_gemm/product.hpp).
#pragma once

#include "warpgroup_gemm/product.hpp"

namespace dscore {

// y[pixel][o] = sum over c of x[pixel][c] * w[o][c].
template <class Shape_, class Epilogue>
struct WarpgroupForward {
  using Shape = Shape_;
  using Arguments = typename Epilogue::Arguments;
  using Results = Epilogue;
  static constexpr unsigned optional = 1u << 2;  // the bias
  static constexpr bool along_a = true, along_b = true, stores_sums = false;
  static constexpr bool scaled = Epilogue::scaled, sums_pixels = false;
  static __host__ __device__ const void *a(const Arguments &args) { return args.x; }
  static __host__ __device__ const void *b(const Arguments &args) { return args.w; }
  static __host__ __device__ int m(const Shape &s) {
    return s.batch * s.out_height * s.out_width;
  }
  static __host__ __device__ int n(const Shape &s) { return s.out_channels; }
  static __host__ __device__ int k(const Shape &s) { return s.in_channels; }

  static constexpr bool exact = std::is_integral_v<typename Epilogue::Sum>;
  template <class>
  using Result = typename Epilogue::Result;
  // What all results need beside their sums, those of signed bytes; and those of some channels.
  using Points = typename Epilogue::PointsOf;
  template <int Count>
  using Beside = typename Epilogue::template ChannelsOf<Count>;
  static __device__ auto read_points(const Arguments &args) {
    if constexpr (exact) return Epilogue::read_points(args);
    else return Points{};
  }
  template <class Raw>
  static __device__ Points points_of(const Arguments &args, const Raw &raw) {
    if constexpr (exact) return Epilogue::points_of(args, raw);
    else return {};
  }
  template <class T>
  static __device__ auto scales_of(const Arguments &args) {
    if constexpr (!scaled) return NoScales{};
    else if constexpr (exact)
      return ByteScales{Epilogue::scaling_of(args)};
    else return FloatScales<T>{};
  }
  static __device__ int zero_of(const Arguments &args) {
    if constexpr (exact) return Epilogue::zero_of(args);
    else return 0;
  }
  template <class t>
  using Columns = std::conditional_t<exact, ColumnValues<t, Epilogue>, NoColumnValues>;
  // Of the channels that a lane has together, which are `within` the tile; those of signed bytes
  // are in LDS.
  template <class t>
  static __device__ Beside<t::together> beside(const Arguments &args, int channel,
                                               const unsigned char *lds, int within) {
    if constexpr (exact) return Columns<t>::template of<t::together>(lds, within);
    else return {{Epilogue::bias_of(args, channel), Epilogue::bias_of(args, channel + 1)}};
  }
  // What is added to results of a pixel from a channel on. Rows past the last are not stored; a
  // residual is not read there.
  template <int Count>
  using Added = Pack<typename Epilogue::Element, Count>;
  template <int Count>
  static __device__ Added<Count> added_to(const Arguments &args, const Shape &s, int pixel,
                                          int channel, const Points &points) {
    if (!Epilogue::added || (m(s) % warpgroup_rows != 0 && pixel >= m(s))) return {};
    const int at = pixel * n(s) + channel;
    if constexpr (exact) return Epilogue::template residual_of<Count>(points, at);
    else return Epilogue::template residual_of<Count>(args, at);
  }
  template <class T, int Count, class Sum, class PointsLike = Points>
  static __device__ Pack<Result<T>, Count> results_of(const Sum *sums, const Beside<Count> &beside,
                                                      const PointsLike &points,
                                                      const Added<Count> &added) {
    if constexpr (exact)
      return Epilogue::template apply_read<Count>(sums, {beside.biases, beside.multipliers},
                                                  points, added);
    else return Epilogue::template apply_read<Count>(sums, beside.at, added);
  }
};

template <class T, class Tiling, class Layer, class Shape, class Epilogue>
struct WarpgroupGemm : WarpgroupProducts<T, Tiling, WarpgroupForward<Shape, Epilogue>> {
  using WarpgroupProducts<T, Tiling, WarpgroupForward<Shape, Epilogue>>::WarpgroupProducts;
  static_assert(Layer::taps == 1 && Layer::stride_h == 1 && Layer::stride_w == 1, "all pixels");
};

}  // namespace dscore
