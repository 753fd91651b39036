// Pointwise convolution in NCHW as a product of pixels by filters (pixel_gemm/product.hpp).
#pragma once

#include "pixel_gemm/product.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape, class Epilogue>
struct PixelGemm : PixelProducts<T, Tiling, PixelForward<Shape, Epilogue>> {
  using PixelProducts<T, Tiling, PixelForward<Shape, Epilogue>>::PixelProducts;
  static_assert(Layer::taps == 1 && Layer::stride_h == 1 && Layer::stride_w == 1, "all pixels");
};

}  // namespace dscore
