// What all kernels share: operands, the layer's constants, the epilogue, and small arithmetic.
#pragma once

#include "support/elements.hpp"
#include "support/exponentials.hpp"

namespace dscore {

enum class Activation { none, relu, relu6, silu, hardswish, sigmoid, hardsigmoid };
// What is added to a result, and on which side of the activation.
enum class Residual { none, before, after };

__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
__host__ __device__ constexpr int greatest(int a, int b) { return a > b ? a : b; }
__host__ __device__ constexpr int least(int a, int b) { return a < b ? a : b; }

__device__ inline bool inside(int position, int size) {
  // One comparison: a negative position is a large unsigned one.
  return static_cast<unsigned>(position) < static_cast<unsigned>(size);
}

// The operands of a forward convolution, in the order of their addresses: the residual and the
// scale of the input, by image and channel, only where the layer has them.
template <bool Residual, bool Scaled>
struct ConvArguments {
  const void *x, *w, *bias, *residual, *scale;
  void *out;
};
template <>
struct ConvArguments<true, false> {
  const void *x, *w, *bias, *residual;
  void *out;
};
template <>
struct ConvArguments<false, true> {
  const void *x, *w, *bias, *scale;
  void *out;
};
template <>
struct ConvArguments<false, false> {
  const void *x, *w, *bias;
  void *out;
};

struct InputGradientArguments {
  const void *gradient, *w;
  void *out;
};
// What makes results of an input gradient: its sums, rounded to the element type.
template <class T>
struct RoundedSums {
  using Arguments = InputGradientArguments;
  static constexpr int table_bytes = 0;
  static __device__ inline float bias_of(const Arguments &, int) { return 0.0f; }
  template <int Count>
  static __device__ inline Pack<T, Count> apply_each(const float *sums, const Arguments &,
                                                     const float *, int) {
    return rounded<T, Count>(sums);
  }
};
// With a workspace where the parts of several blocks are added afterwards.
struct WeightGradientArguments {
  const void *x, *gradient;
  void *out;
};
struct WorkspaceArguments : WeightGradientArguments {
  void *workspace;
};

// What kernels have in common that read any operands but the bias of a forward convolution.
template <class T, class Arguments_, unsigned Optional = 0>
struct KernelOn {
  using Element = T;
  using Arguments = Arguments_;
  using Then = void;  // the kernel that follows it in the same launch
  using Maps = void;  // of tensors, if its copies go by them
  static constexpr unsigned optional_operands = Optional;  // a bit for each
  static constexpr int layout = DSCORE_NCHW, cluster = 1;
  // Of memory behind the operands.
  template <class Shape>
  static long long workspace_bytes(const Shape &) { return 0; }
  // Whether its blocks wait for one another through memory; such a kernel has its workspace zero
  // from the beginning up to `cleared_bytes` when it starts.
  static constexpr bool persistent = false;
  // Whether a compute unit's memory is to be LDS as far as it can be, rather than cache: of kernels
  // that read nothing by the cache twice.
  static constexpr bool most_lds = false;
  // LDS that a launch asks for of each block, where that is more than a block uses: so many fit a
  // compute unit then (dscore/algorithms/early_start.py).
  static constexpr int asked_lds_bytes = 0;
  static constexpr int asked_behind_lds_bytes = 0;  // behind another kernel's launch
  // Whether blocks that come while the kernel before still runs ask the L2 cache for its operands,
  // each for a share (`fetch_ahead`), and let the next kernel's come as soon as they run.
  static constexpr bool works_ahead = false;
  // Whether `run` waits for the kernel before by itself (KernelBefore).
  static constexpr bool reads_constants_first = false;
  // Blocks of which a compute unit is to have the registers at a time; of nvcc alone, which else
  // takes all that one block leaves a thread, to read early.
  static constexpr int resident_blocks = 1;
};
template <class T, class Epilogue>
using ConvKernel = KernelOn<T, typename Epilogue::Arguments, 1u << 2>;  // the bias

// Results that are their sums.
struct PlainResults {
  using Sum = float;
  static constexpr bool biased = false;
  static constexpr int table_bytes = 0;
};

// Where images of a layout have their elements: the steps from a channel and from a pixel to the
// next, the first pixel of a group's first channel, a pixel of a channel. `area` is how many pixels
// a channel has.
template <int Layout>
struct Images {
  static constexpr bool last = Layout == DSCORE_NHWC;  // channels are
  static __device__ inline int channel_step(int area) { return last ? 1 : area; }
  static __device__ inline int pixel_step(int channels) { return last ? channels : 1; }
  static __device__ inline int of_group(int image, int group, int groups, int channels, int area) {
    return last ? (image * area * groups + group) * channels
                : (image * groups + group) * channels * area;
  }
  static __device__ inline int at(int image, int channel, int pixel, int channels, int area) {
    return last ? (image * area + pixel) * channels + channel
                : (image * channels + channel) * area + pixel;
  }
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

// A gate of hardswish or hardsigmoid divided by 6, rounded once, in three operations: a division
// is a call, with a slow branch for 0, as which every closed gate comes. A gate is 0 or above
// 2^-23, so that no remainder falls below the normal range. None differs from the quotient.
__device__ inline float sixth(float gate) {
  constexpr float inverse = 1.0f / 6.0f;
  const float quotient = gate * inverse;
  return fmaf(fmaf(-6.0f, quotient, gate), inverse, quotient);
}

// Bias, residual, activation and the rounding to the element type, in float32 until the last.
template <class T, bool Bias, Activation activation, Residual residual = Residual::none,
          bool Scaled_ = false>
struct Epilogue {
  using Element = T;
  using Arguments = ConvArguments<residual != Residual::none, Scaled_>;
  using Sum = float;
  using Result = T;
  using Given = T;  // what x is of
  static constexpr bool of_floats = false;  // which become integers
  static constexpr bool scaled = Scaled_, added = residual != Residual::none, biased = Bias;
  static constexpr int table_bytes = 0;        // of LDS
  static constexpr int alignment = sizeof(T);  // of operands other than vectors of elements

  static __device__ inline float activate(float sum) {
    if constexpr (activation == Activation::relu || activation == Activation::relu6)
      // Written so that a NaN stays one, which fmaxf would drop.
      sum = sum < 0.0f ? 0.0f : sum;
    if constexpr (activation == Activation::relu6) sum = sum > 6.0f ? 6.0f : sum;
    if constexpr (activation == Activation::silu) sum *= logistic(sum);
    if constexpr (activation == Activation::sigmoid) sum = logistic(sum);
    if constexpr (activation == Activation::hardswish || activation == Activation::hardsigmoid) {
      float gate = sum + 3.0f;
      gate = gate < 0.0f ? 0.0f : gate > 6.0f ? 6.0f : gate;
      sum = activation == Activation::hardswish ? sum * sixth(gate) : sixth(gate);
    }
    return sum;
  }

  // The bias of a channel; 0 without one.
  static __device__ inline float bias_of(const Arguments &args, int channel) {
    if constexpr (Bias) return static_cast<float>(static_cast<const T *>(args.bias)[channel]);
    else return 0.0f;
  }

  // What results of neighbouring channels need beside their sums: biases, which are numbers of
  // float32 whatever the elements are.
  template <int Count>
  using ChannelsOf = Pack<float, Count>;
  struct PointsOf {};
  // Of Count channels from `channel` on, which lie side by side; of one, as of Count like it.
  template <int Count>
  static __device__ inline Pack<float, Count> channels_of(const Arguments &args, int channel) {
    Pack<float, Count> biases = {};
    if constexpr (Bias) {
      const auto read = read_vector<Count>(static_cast<const T *>(args.bias) + channel);
      DSCORE_UNROLL
      for (int i = 0; i < Count; i++) biases.at[i] = static_cast<float>(read.at[i]);
    }
    return biases;
  }
  template <int Count>
  static __device__ inline Pack<float, Count> channel_of(const Arguments &args, int channel) {
    Pack<float, Count> biases;
    DSCORE_UNROLL
    for (int i = 0; i < Count; i++) biases.at[i] = bias_of(args, channel);
    return biases;
  }

  // Results of sums that lie side by side, from element `at` of the output on, in one channel.
  template <int Count>
  static __device__ inline Pack<T, Count> apply(const float *sums, const Arguments &args,
                                                int channel, int at) {
    return apply_each<Count>(sums, args, channel_of<Count>(args, channel).at, at);
  }
  // The same of as many channels from `channel` on, which lie side by side.
  template <int Count>
  static __device__ inline Pack<T, Count> apply_channels(const float *sums, const Arguments &args,
                                                         int channel, int at) {
    return apply_each<Count>(sums, args, channels_of<Count>(args, channel).at, at);
  }
  // The same of a channel each, whose biases are given.
  template <int Count>
  static __device__ inline Pack<T, Count> apply_each(const float *sums, const Arguments &args,
                                                     const float *biases, int at) {
    return apply_read<Count>(sums, biases, residual_of<Count>(args, at));
  }
  // What is added from element `at` of the output on; zeros where nothing is.
  template <int Count>
  static __device__ inline Pack<T, Count> residual_of(const Arguments &args, int at) {
    if constexpr (added) return read_vector<Count>(static_cast<const T *>(args.residual) + at);
    else return {};
  }
  // The same where both have been read. Compilers move no load in front of a store, which may be to
  // the same memory for all they know: of loads that all come before the first store, one wait is
  // for all.
  template <int Count>
  static __device__ inline Pack<T, Count> apply_read(const float *sums, const float *biases,
                                                     const Pack<T, Count> &residuals) {
    float results[Count];
    DSCORE_UNROLL
    for (int i = 0; i < Count; i++) {
      float sum = sums[i];
      if constexpr (Bias) sum += biases[i];
      if constexpr (residual == Residual::before) sum += static_cast<float>(residuals.at[i]);
      sum = activate(sum);
      if constexpr (residual == Residual::after) sum += static_cast<float>(residuals.at[i]);
      results[i] = sum;
    }
    return rounded<T, Count>(results);
  }
};

}  // namespace dscore
