// What all kernels share: operands, the layer's constants, the epilogue, and small arithmetic.
#pragma once

#include "support/portable.hpp"

namespace dscore {

enum class Activation { none, relu, relu6, silu, hardswish };

__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
__host__ __device__ constexpr int greatest(int a, int b) { return a > b ? a : b; }
__host__ __device__ constexpr int least(int a, int b) { return a < b ? a : b; }

__device__ inline bool inside(int position, int size) {
  // One comparison: a negative position is a large unsigned one.
  return static_cast<unsigned>(position) < static_cast<unsigned>(size);
}

// The operands of a forward convolution, in the order of their addresses.
struct ConvArguments {
  const void *x, *w, *bias;
  void *out;
};

// What the kernels of a forward convolution have in common.
template <class T>
struct ConvKernel {
  using Element = T;
  using Arguments = ConvArguments;
  static constexpr unsigned optional_operands = 1u << 2;  // a bit for each: the bias
  static constexpr int layout = DSCORE_NCHW;
  static constexpr long long workspace_bytes = 0;
};

// Kernel, stride and dilation of a layer, (height, width) each.
template <int KernelH, int KernelW, int StrideH, int StrideW, int DilationH, int DilationW>
struct Layer {
  static constexpr int kernel_h = KernelH, kernel_w = KernelW;
  static constexpr int stride_h = StrideH, stride_w = StrideW;
  static constexpr int dilation_h = DilationH, dilation_w = DilationW;
  static constexpr int taps = KernelH * KernelW;
  // Rows and columns of input under one output.
  static constexpr int span_h = (KernelH - 1) * DilationH + 1;
  static constexpr int span_w = (KernelW - 1) * DilationW + 1;
};

// Bias, activation and the rounding to the element type, in float32 until the last.
template <class T, bool Bias, Activation activation>
struct Epilogue {
  static __device__ inline T apply(float sum, const T *bias, int channel) {
    if constexpr (Bias) sum += static_cast<float>(bias[channel]);
    if constexpr (activation == Activation::relu || activation == Activation::relu6)
      // Written so that a NaN stays one, which fmaxf would drop.
      sum = sum < 0.0f ? 0.0f : sum;
    if constexpr (activation == Activation::relu6) sum = sum > 6.0f ? 6.0f : sum;
    if constexpr (activation == Activation::silu) sum = sum / (1.0f + expf(-sum));
    if constexpr (activation == Activation::hardswish) {
      float gate = sum + 3.0f;
      gate = gate < 0.0f ? 0.0f : gate > 6.0f ? 6.0f : gate;
      sum = sum * gate / 6.0f;
    }
    return static_cast<T>(sum);
  }
};

}  // namespace dscore
