// Input gradient of a pointwise convolution in NCHW (pixel_gemm/kernel.hpp): the pixels of the
// output's gradients by the turned filters.
#pragma once

#include "pixel_gemm/product.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape, class>
struct PixelGemmInputGradient : PixelProducts<T, Tiling, PixelInputGradientRoles<T, Shape>> {
  using PixelProducts<T, Tiling, PixelInputGradientRoles<T, Shape>>::PixelProducts;
  static_assert(Layer::taps == 1 && Layer::stride_h == 1 && Layer::stride_w == 1, "all pixels");
};

}  // namespace dscore
