// Pointwise convolution as a product of matrices (gemm_universal/product.hpp): pixels by channels
// where these come last, else channels by pixels.
#pragma once

#include "gemm_universal/product.hpp"

namespace dscore {

// Operands that hold filters: rows of output channels by input channels.
template <class Shape, bool Outs>
struct Filters {
  const Shape &s;
  __device__ int extent() const { return Outs ? s.out_channels : s.in_channels; }
  __device__ int depth() const { return Outs ? s.in_channels : s.out_channels; }
  __device__ int row(int row) const { return row * s.in_channels; }
  __device__ int column(int column) const { return column; }
};

// Operands that hold images, by pixels counted through in the order of Pick. Last: rows of pixels,
// else rows of channels. Summed: the pixels are summed.
template <class Shape, class Pick, bool Last, bool Summed>
struct ImagesOf {
  const Shape &s;
  __device__ int extent() const { return Summed ? Pick::channels(s) : Pick::pixels(s); }
  __device__ int depth() const { return Summed ? Pick::pixels(s) : Pick::channels(s); }
  __device__ int row(int row) const {
    return Last ? Pick::pixel(s, row) * Pick::channels(s) : row * Pick::area(s);
  }
  __device__ int column(int column) const {
    return Last ? column : in_planes(Pick::pixel(s, column), Pick::channels(s), Pick::area(s));
  }
};

// The input's pixels, by those of the output that they make.
template <class Layer, class Shape, bool Gathered>
struct InputPixels {
  using Places = Pixels<Layer, Shape>;
  static __device__ int channels(const Shape &s) { return s.in_channels; }
  static __device__ int area(const Shape &s) { return s.height * s.width; }
  static __device__ int pixels(const Shape &s) { return Places::of_output(s); }
  static __device__ int pixel(const Shape &s, int pixel) {
    return Gathered ? Places::source(s, pixel) : pixel;
  }
};

// Where a result lies: in a row of `columns`, or, of planes, in those of `rows` channels.
template <bool Last>
__device__ inline int result_at(int row, int column, int columns, int rows, int area) {
  return Last ? row * columns + column : in_planes(column, rows, area) + row * area;
}

// y[pixel][o] = sum over c of x[pixel][c] * w[o][c], or y[o][pixel] = the same sum.
template <class Tiling, class Layer, class Shape_, class Epilogue>
struct PointwiseForward : PlainRoles {
  using Shape = Shape_;
  using Arguments = typename Epilogue::Arguments;
  using Results = Epilogue;
  static constexpr bool last = Tiling::last;
  using Places = InputPixels<Layer, Shape, Tiling::gathered>;
  using Images = ImagesOf<Shape, Places, last, false>;
  using Weights = Filters<Shape, true>;
  using A = std::conditional_t<last, Images, Weights>;
  using B = std::conditional_t<last, Weights, Images>;
  static constexpr unsigned optional = 1u << 2;  // the bias
  static constexpr bool exact = std::is_integral_v<typename Epilogue::Sum>;
  // Scales of bytes that are read at once.
  static constexpr int scales = last && exact && Epilogue::scaled ? least(Tiling::vector_a, 8) : 1;
  // Of operands other than those multiplied: vectors of results, of a channel's values, of scales.
  template <class, int Width>
  static constexpr int alignment =
      greatest(greatest(Width * static_cast<int>(sizeof(typename Epilogue::Result)),
                        scales * static_cast<int>(sizeof(float16))),
               Epilogue::alignment * (last ? least(Width, 4) : 1));
  static constexpr bool along_a = true, along_b = last, scaled = Epilogue::scaled;
  static __device__ const void *a(const Arguments &args) { return last ? args.x : args.w; }
  static __device__ const void *b(const Arguments &args) { return last ? args.w : args.x; }
  static __host__ __device__ int pixels(const Shape &s) {
    return Pixels<Layer, Shape>::of_output(s);
  }
  static __host__ __device__ int m(const Shape &s) { return last ? pixels(s) : s.out_channels; }
  static __host__ __device__ int n(const Shape &s) { return last ? s.out_channels : pixels(s); }
  static __host__ __device__ int k(const Shape &s) { return s.in_channels; }

  // Multiplies a step's elements of x by the scale of their image and channel.
  template <class TileA, class TileB, class T>
  static __device__ void scale(const Arguments &args, const Shape &s, const TileA &a,
                               const TileB &b, T *lds_a, T *lds_b, int step) {
    if constexpr (exact) scale_bytes(args, s, a, b, lds_a, lds_b, step);
    else scale_floats(args, s, a, b, lds_a, lds_b, step);
  }
  // Of signed bytes, which are rounded to others.
  template <class TileA, class TileB, class T>
  static __device__ void scale_bytes(const Arguments &args, const Shape &s, const TileA &a,
                                     const TileB &b, T *lds_a, T *lds_b, int step) {
    const auto scaling = Epilogue::scaling_of(args);
    const int area = s.out_height * s.out_width;
    if constexpr (last)
      a.change(lds_a, step, [&](const auto &bytes, int pixel, int channel) {
        const float16 *own = scaling.scales + pixel / area * s.in_channels + channel;
        Pack<Pack<float16, scales>, Tiling::vector_a / scales> read;
        DSCORE_UNROLL
        for (int i = 0; i < Tiling::vector_a / scales; i++)
          read.at[i] = read_vector<scales>(own + i * scales);
        return scaling.scaled(bytes, [&](int i) { return read.at[i / scales].at[i % scales]; });
      });
    else
      b.change(lds_b, step, [&](const auto &bytes, int channel, int pixel) {
        const float16 scale = scaling.scales[pixel / area * s.in_channels + channel];
        return scaling.scaled(bytes, [=](int) { return scale; });
      });
  }
  template <class TileA, class TileB, class T>
  static __device__ void scale_floats(const Arguments &args, const Shape &s, const TileA &a,
                                      const TileB &b, T *lds_a, T *lds_b, int step) {
    const T *scales = static_cast<const T *>(args.scale);
    const int area = s.out_height * s.out_width;
    if constexpr (last)
      a.scale(lds_a, step, [&](int pixel, int channel) {
        const auto factors = read_vector<Tiling::vector_a>(
            scales + pixel / area * s.in_channels + channel);
        return [=](int j) { return static_cast<float>(factors.at[j]); };
      });
    else
      b.scale(lds_b, step, [&](int channel, int pixel) {
        const auto factor = static_cast<float>(scales[pixel / area * s.in_channels + channel]);
        return [=](int) { return factor; };
      });
  }
  // What results need beside their sums: of all, those of signed bytes; of a channel or of several,
  // these and those with biases.
  static constexpr bool of_channels = exact || Epilogue::biased;
  static constexpr bool of_columns = of_channels && last;
  using Points = typename ReadBeside<Epilogue, exact>::Points;
  template <int Width>
  using OfRow = typename ReadBeside<Epilogue, of_channels && !last>::template Channels<Width>;
  template <int Width>
  using OfColumn = typename ReadBeside<Epilogue, of_columns>::template Channels<Width>;
  static __device__ Points points_of(const Arguments &args) {
    if constexpr (exact) return Epilogue::points_of(args);
    else return {};
  }
  template <int Width>
  static __device__ OfRow<Width> of_row(const Arguments &args, int row) {
    if constexpr (of_channels && !last) return Epilogue::template channel_of<Width>(args, row);
    else return {};
  }
  template <int Width>
  static __device__ OfColumn<Width> of_column(const Arguments &args, int column) {
    if constexpr (of_columns) return Epilogue::template channels_of<Width>(args, column);
    else return {};
  }
  // Of signed bytes: what x counts from, and whether a result's pixel is one of the input's, and
  // not of its padding, which is that.
  static __device__ int zero(const Arguments &args) { return Epilogue::zero_of(args); }
  static __device__ bool present(const Shape &s, int row, int column) {
    return !Tiling::gathered || Places::pixel(s, last ? row : column) >= 0;
  }
  template <class T, int Width>
  static __device__ void store(const Arguments &args, const Shape &s, int, int row, int column,
                               const typename Epilogue::Sum *values, const OfRow<Width> &of_row,
                               const OfColumn<Width> &of_column, const Points &points) {
    const int at =
        result_at<last>(row, column, s.out_channels, s.out_channels, s.out_height * s.out_width);
    auto *out = static_cast<typename Epilogue::Result *>(args.out) + at;
    if constexpr (exact && last)
      write_vector(out, Epilogue::template results_of<Width>(values, of_column, points, at));
    else if constexpr (exact)
      write_vector(out, Epilogue::template results_of<Width>(values, of_row, points, at));
    else if constexpr (of_columns)
      write_vector(out, Epilogue::template apply_each<Width>(values, args, of_column.at, at));
    else if constexpr (of_channels)
      write_vector(out, Epilogue::template apply_each<Width>(values, args, of_row.at, at));
    else write_vector(out, Epilogue::template apply_each<Width>(values, args, nullptr, at));
  }
};

template <class T, class Tiling, class Layer, class Shape, class Epilogue>
struct GemmUniversal : Product<T, Tiling, PointwiseForward<Tiling, Layer, Shape, Epilogue>> {
  using Product<T, Tiling, PointwiseForward<Tiling, Layer, Shape, Epilogue>>::Product;
};

}  // namespace dscore
