// Pointwise convolution in NCHW as a product of whole images by filters (image_gemm/product.hpp).
#pragma once

#include "image_gemm/product.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape, class Epilogue>
struct ImageGemm : ImageProducts<T, Tiling, PlaneForward<Shape, Epilogue>> {
  using ImageProducts<T, Tiling, PlaneForward<Shape, Epilogue>>::ImageProducts;
  static_assert(Layer::taps == 1 && Layer::stride_h == 1 && Layer::stride_w == 1, "all pixels");
};

}  // namespace dscore
