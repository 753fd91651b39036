// Pointwise convolution in NCHW as a product of filters by planes (plane_gemm/product.hpp).
#pragma once

#include "plane_gemm/product.hpp"
#include "plane_gemm/roles.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape, class Epilogue>
struct PlaneGemm : PlaneProducts<T, Tiling, PlaneForward<Shape, Epilogue>> {
  using PlaneProducts<T, Tiling, PlaneForward<Shape, Epilogue>>::PlaneProducts;
  static_assert(Layer::taps == 1 && Layer::stride_h == 1 && Layer::stride_w == 1, "all pixels");
};

}  // namespace dscore
