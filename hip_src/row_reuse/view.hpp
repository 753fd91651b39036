// The two views of a depthwise layer: which image a kernel walks over, and which it writes.
//
// Forward it walks over x and writes the output; for the input gradient it walks over the output's
// gradient and writes that of x. What differs is which tap lies between two rows, or columns.
#pragma once

#include "support/common.hpp"

namespace dscore {

// Rows or columns of the forward view. Positions are counted from a tile's first: of what is
// walked over, that under the first tap of the first written one.
template <int Kernel, int Stride, int Dilation>
struct ForwardAxis {
  static constexpr int kernel = Kernel, span = (Kernel - 1) * Dilation + 1;
  static constexpr int at_once = 1;  // written ones that one walked over may complete
  // Walked over from a tile's first to another's, whose first is `written` further on.
  static constexpr __host__ __device__ int step(int written) { return written * Stride; }
  // Walked over in all by a tile of `written`.
  static constexpr __host__ __device__ int under(int written) {
    return (written - 1) * Stride + span;
  }
  // Of a tile of `written`, those that are accumulated at a time.
  static constexpr __host__ __device__ int live(int written) {
    return least(written, (span - 1) / Stride + 1);
  }
  // The position under a tap of a written one, and the written one over it; -1 for none.
  static constexpr __host__ __device__ int position(int written, int tap) {
    return written * Stride + tap * Dilation;
  }
  static constexpr __host__ __device__ int written(int position, int tap) {
    const int first = position - tap * Dilation;
    return first >= 0 && first % Stride == 0 ? first / Stride : -1;
  }
  // How far a position lies from the first tap of a written one, in the direction of its taps; the
  // tap that connects both, -1 for none.
  static constexpr __host__ __device__ int apart(int position, int written) {
    return position - written * Stride;
  }
  static constexpr __host__ __device__ int tap(int position, int written) {
    const int from = apart(position, written);
    return from >= 0 && from < span && from % Dilation == 0 ? from / Dilation : -1;
  }
  // Written ones that are complete before a position.
  static constexpr __host__ __device__ int complete(int position) {
    return position < span ? 0 : (position - span) / Stride + 1;
  }
  // The first position of a tile that begins at 0.
  static constexpr __host__ __device__ int first(int pad) { return -pad; }
};

// The same of the input gradient, whose tiles are multiples of the stride. Lead: by how much the
// first tap of the first position lies before the tile's first, which makes it a constant: the
// padding less a multiple of the stride, and the least of which no tap of a position before the
// first lies in the tile.
template <int Kernel, int Stride, int Dilation, int Lead>
struct GradientAxis {
  static constexpr int kernel = Kernel, span = (Kernel - 1) * Dilation + 1;
  static constexpr int at_once = Stride;
  static_assert(Lead >= greatest(0, span - Stride) && Lead < greatest(0, span - Stride) + Stride,
                "the first position");
  static constexpr __host__ __device__ int step(int written) { return written / Stride; }
  static constexpr __host__ __device__ int under(int written) {
    return (written - 1 + Lead) / Stride + 1;
  }
  static constexpr __host__ __device__ int live(int written) {
    return least(written, greatest(span, Stride));
  }
  static constexpr __host__ __device__ int position(int written, int tap) {
    const int first = written + Lead - tap * Dilation;
    return first >= 0 && first % Stride == 0 ? first / Stride : -1;
  }
  static constexpr __host__ __device__ int written(int position, int tap) {
    return position * Stride + tap * Dilation - Lead;
  }
  static constexpr __host__ __device__ int apart(int position, int written) {
    return written + Lead - position * Stride;
  }
  static constexpr __host__ __device__ int tap(int position, int written) {
    const int from = apart(position, written);
    return from >= 0 && from < span && from % Dilation == 0 ? from / Dilation : -1;
  }
  // Also of those that no tap reaches, which are complete as zeros.
  static constexpr __host__ __device__ int complete(int position) {
    return greatest(0, position * Stride - Lead);
  }
  static constexpr __host__ __device__ int first(int pad) { return (pad - Lead) / Stride; }
};

template <class Layer>
struct ForwardView {
  using L = Layer;
  using Rows = ForwardAxis<L::kernel_h, L::stride_h, L::dilation_h>;
  using Columns = ForwardAxis<L::kernel_w, L::stride_w, L::dilation_w>;
  template <class T, class Results>
  using Kernel = ConvKernel<T, Results>;
  template <class Arguments>
  static __device__ const void *walked(const Arguments &args) { return args.x; }
  template <class Shape>
  struct Images {
    static __host__ __device__ int in_height(const Shape &s) { return s.height; }
    static __host__ __device__ int in_width(const Shape &s) { return s.width; }
    static __host__ __device__ int out_height(const Shape &s) { return s.out_height; }
    static __host__ __device__ int out_width(const Shape &s) { return s.out_width; }
  };
};

// Of layers with a filter for each channel.
template <class Layer, int LeadH, int LeadW>
struct GradientView {
  using L = Layer;
  using Rows = GradientAxis<L::kernel_h, L::stride_h, L::dilation_h, LeadH>;
  using Columns = GradientAxis<L::kernel_w, L::stride_w, L::dilation_w, LeadW>;
  template <class T, class Results>
  using Kernel = KernelOn<T, InputGradientArguments>;
  static __device__ const void *walked(const InputGradientArguments &args) {
    return args.gradient;
  }
  template <class Shape>
  struct Images {
    static __host__ __device__ int in_height(const Shape &s) { return s.out_height; }
    static __host__ __device__ int in_width(const Shape &s) { return s.out_width; }
    static __host__ __device__ int out_height(const Shape &s) { return s.height; }
    static __host__ __device__ int out_width(const Shape &s) { return s.width; }
  };
};

}  // namespace dscore
