// What products of pixels by filters make of two neighbouring channels' sums
// (pixel_gemm/product.hpp).
#pragma once

#include "plane_gemm/roles.hpp"

namespace dscore {

// In place of what the roles of planes have of one channel. Beside: what results of two channels
// need beside their sums; Added: what is added to those of a pixel, which lie `apart` elements
// apart.
template <class Shape, class Epilogue>
struct PixelForward : PlaneForward<Shape, Epilogue> {
  using typename PlaneForward<Shape, Epilogue>::Arguments;
  using Element = typename Epilogue::Element;
  using Beside = Pack<float, 2>;
  using Added = Pack<Element, 2>;
  static __device__ Beside beside(const Arguments &args, int channel) {
    return Epilogue::template channels_of<2>(args, channel);
  }
  static __device__ Added added_to(const Arguments &args, int at, int apart) {
    return {Epilogue::template residual_of<1>(args, at).at[0],
            Epilogue::template residual_of<1>(args, at + apart).at[0]};
  }
  static __device__ Pack<Element, 2> results_of(const float *sums, const Beside &biases,
                                                const Added &added) {
    return Epilogue::template apply_read<2>(sums, biases.at, added);
  }
};

template <class T, class Shape>
struct PixelInputGradientRoles : PlaneInputGradientRoles<Shape> {
  using typename PlaneInputGradientRoles<Shape>::Arguments;
  struct Beside {};
  struct Added {};
  static __device__ Beside beside(const Arguments &, int) { return {}; }
  static __device__ Added added_to(const Arguments &, int, int) { return {}; }
  static __device__ Pack<T, 2> results_of(const float *sums, const Beside &, const Added &) {
    return rounded<T, 2>(sums);
  }
};

}  // namespace dscore
