// The epilogue of layers of int8 (docs/int8.md): from sums of int32 to results of int8, or floats.
#pragma once

#include "support/common.hpp"

namespace dscore {

// The operands of a layer of int8, in the order of their addresses. `points` has four int32: the
// zero points of x and y, the least and the greatest y.
struct QuantisedArguments {
  const void *x, *w, *bias, *multiplier, *points;
  void *out;
};

// Of the results: their zero point, and the bounds of what is added to it, as floats.
struct Points {
  int32_t zero;
  float low, high;
};

// A sum as a result of int8, in the lowest byte. The product is clamped first: the bounds are
// integers, so that it is the same as to clamp what it is rounded to, and an integer has no room
// for any product. Beside 1.5 * 2^23 floats are integers: the sum with that rounds as rint does, to
// the nearest and of two to the even one, and its lowest bits are the integer. No sum follows the
// product at once that a compiler could contract it with.
__device__ inline int32_t requantised(int32_t sum, float multiplier, const Points &points) {
  const float product = static_cast<float>(sum) * multiplier;
  const float clamped = fminf(fmaxf(product, points.low), points.high);
  return bits_as<int32_t>(clamped + 0x1.8p23f) + points.zero;
}

template <class Out, bool Bias, Activation activation>
struct Requantised {
  using Arguments = QuantisedArguments;
  using Sum = int32_t;
  using Result = Out;
  static constexpr bool scaled = false, exact = std::is_same_v<Out, int8_t>;
  static constexpr int alignment = sizeof(int32_t);

  // What an element of x stands for is its distance from this.
  static __device__ inline int32_t zero_of(const Arguments &args) {
    return static_cast<const int32_t *>(args.points)[0];
  }
  static __device__ inline Points points_of(const Arguments &args) {
    const int32_t *points = static_cast<const int32_t *>(args.points);
    if constexpr (!exact) return {};
    else return {points[1], static_cast<float>(points[2] - points[1]),
                 static_cast<float>(points[3] - points[1])};
  }

  // The result of a sum and its channel's bias; they wrap modulo 2^32.
  static __device__ inline Out result(int32_t sum, int32_t bias, float multiplier,
                                      const Points &points) {
    sum = static_cast<int32_t>(static_cast<uint32_t>(sum) + static_cast<uint32_t>(bias));
    if constexpr (exact)
      return static_cast<int8_t>(requantised(sum, multiplier, points));
    else
      return static_cast<Out>(Epilogue<float, false, activation>::activate(
          static_cast<float>(sum) * multiplier));
  }

  // Biases and multipliers of `Count` channels from `channel` on, a multiple of Count, of `channels`
  // that there are.
  template <int Count>
  static __device__ inline void channels(const Arguments &args, int channel, int channels,
                                         int32_t *biases, float *multipliers) {
    const int32_t *const all = static_cast<const int32_t *>(args.bias);
    const float *const each = static_cast<const float *>(args.multiplier);
    if (channels % Count == 0 && channel < channels) {
      const auto read = read_vector<Count>(each + channel);
      Pack<int32_t, Count> added = {};
      if constexpr (Bias) added = read_vector<Count>(all + channel);
      DSCORE_UNROLL
      for (int i = 0; i < Count; i++) biases[i] = added.at[i], multipliers[i] = read.at[i];
      return;
    }
    DSCORE_UNROLL
    for (int i = 0; i < Count; i++) {
      const int at = least(channel + i, channels - 1);
      multipliers[i] = each[at], biases[i] = 0;
      if constexpr (Bias) biases[i] = all[at];
    }
  }
  // Results of sums that lie side by side, of a channel each.
  template <int Count>
  static __device__ inline Pack<Out, Count> results(const int32_t *sums, const int32_t *biases,
                                                    const float *multipliers,
                                                    const Points &points) {
    Pack<Out, Count> made;
    DSCORE_UNROLL
    for (int i = 0; i < Count; i++)
      made.at[i] = result(sums[i], biases[i], multipliers[i], points);
    return made;
  }

  // Results of sums that lie side by side in one channel.
  template <int Count>
  static __device__ inline Pack<Out, Count> apply(const int32_t *sums, const Arguments &args,
                                                  int channel, int) {
    const Points points = points_of(args);
    const float multiplier = static_cast<const float *>(args.multiplier)[channel];
    int32_t bias = 0;
    if constexpr (Bias) bias = static_cast<const int32_t *>(args.bias)[channel];
    Pack<Out, Count> results;
    DSCORE_UNROLL
    for (int i = 0; i < Count; i++) results.at[i] = result(sums[i], bias, multiplier, points);
    return results;
  }
  // The same of as many channels from `channel` on, a multiple of Count, which lie side by side.
  template <int Count>
  static __device__ inline Pack<Out, Count> apply_channels(const int32_t *sums,
                                                           const Arguments &args, int channel,
                                                           int) {
    constexpr int width = Count % 4 == 0 ? 4 : Count;  // of vectors of 16 bytes at most
    const Points points = points_of(args);
    Pack<Out, Count> results;
    DSCORE_UNROLL
    for (int first = 0; first < Count; first += width) {
      const int at = channel + first;
      const auto multipliers = read_vector<width>(static_cast<const float *>(args.multiplier) + at);
      Pack<int32_t, width> biases = {};
      if constexpr (Bias) biases = read_vector<width>(static_cast<const int32_t *>(args.bias) + at);
      DSCORE_UNROLL
      for (int i = 0; i < width; i++)
        results.at[first + i] = result(sums[first + i], biases.at[i], multipliers.at[i], points);
    }
    return results;
  }
};

}  // namespace dscore
