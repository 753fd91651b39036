// Input gradient of a pointwise convolution in NCHW (image_gemm/product.hpp): the images of the
// output's gradient by the turned filters.
#pragma once

#include "image_gemm/product.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape, class>
struct ImageGemmInputGradient : ImageProducts<T, Tiling, PlaneInputGradientRoles<Shape>> {
  using ImageProducts<T, Tiling, PlaneInputGradientRoles<Shape>>::ImageProducts;
  static_assert(Layer::taps == 1 && Layer::stride_h == 1 && Layer::stride_w == 1, "all pixels");
};

}  // namespace dscore
