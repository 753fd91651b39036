// Input gradient of a pointwise convolution in NCHW (plane_gemm/kernel.hpp): the turned filters by
// the planes of the output's gradients.
#pragma once

#include "plane_gemm/product.hpp"
#include "plane_gemm/roles.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape, class>
struct PlaneGemmInputGradient : PlaneProducts<T, Tiling, PlaneInputGradientRoles<Shape>> {
  using PlaneProducts<T, Tiling, PlaneInputGradientRoles<Shape>>::PlaneProducts;
  static_assert(Layer::taps == 1 && Layer::stride_h == 1 && Layer::stride_w == 1, "all pixels");
};

}  // namespace dscore
