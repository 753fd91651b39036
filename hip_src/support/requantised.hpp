// The epilogue of layers of int8 (docs/int8.md): from sums of int32 to results of int8, or floats.
#pragma once

#include "support/integers.hpp"

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

// The nearest number to a value, which is a number, between two bounds.
__device__ inline float between(float value, float low, float high) {
#if defined(DSCORE_HOST) || defined(__CUDACC__)
  return fminf(fmaxf(value, low), high);
#else
  return __builtin_amdgcn_fmed3f(value, low, high);
#endif
}

// A sum as a result of int8, in the lowest byte. The product is clamped first: the bounds are
// integers, so that it is the same as to clamp what it is rounded to, and an integer has no room
// for any product. Beside 1.5 * 2^23 floats are integers: the sum with that rounds as rint does, to
// the nearest and of two to the even one, and its lowest bits are the integer. No sum follows the
// product at once that a compiler could contract it with.
__device__ inline int32_t requantised(int32_t sum, float multiplier, const Points &points) {
  const float product = static_cast<float>(sum) * multiplier;
  const float clamped = between(product, points.low, points.high);
  return bits_as<int32_t>(clamped + 0x1.8p23f) + points.zero;
}

// What results of neighbouring channels need beside their sums.
template <int Count>
struct Channels {
  float multipliers[Count];
  int32_t biases[Count];
};

template <class Out, bool Bias, Activation activation>
struct Requantised {
  using Arguments = QuantisedArguments;
  using Sum = int32_t;
  using Result = Out;
  using PointsOf = Points;
  template <int Count>
  using ChannelsOf = Channels<Count>;
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

  // Of Count channels from `channel` on, a multiple of Count.
  template <int Count>
  static __device__ inline Channels<Count> channels_of(const Arguments &args, int channel) {
    constexpr int width = Count % 4 == 0 ? 4 : Count;  // of vectors of 16 bytes at most
    Channels<Count> read = {};
    DSCORE_UNROLL
    for (int first = 0; first < Count; first += width) {
      const int at = channel + first;
      const auto multipliers = read_vector<width>(static_cast<const float *>(args.multiplier) + at);
      Pack<int32_t, width> biases = {};
      if constexpr (Bias) biases = read_vector<width>(static_cast<const int32_t *>(args.bias) + at);
      DSCORE_UNROLL
      for (int i = 0; i < width; i++) {
        read.multipliers[first + i] = multipliers.at[i];
        read.biases[first + i] = biases.at[i];
      }
    }
    return read;
  }
  // Of one channel, as of Count like it.
  template <int Count>
  static __device__ inline Channels<Count> channel_of(const Arguments &args, int channel) {
    const auto one = channels_of<1>(args, channel);
    Channels<Count> all;
    DSCORE_UNROLL
    for (int i = 0; i < Count; i++)
      all.multipliers[i] = one.multipliers[0], all.biases[i] = one.biases[0];
    return all;
  }

  // Biases and multipliers of `Count` channels from `channel` on, a multiple of Count; there are
  // `channels` of them in all.
  template <int Count>
  static __device__ inline void channels(const Arguments &args, int channel, int channels,
                                         int32_t *biases, float *multipliers) {
    if (channels % Count == 0 && channel < channels) {
      const auto read = channels_of<Count>(args, channel);
      DSCORE_UNROLL
      for (int i = 0; i < Count; i++)
        biases[i] = read.biases[i], multipliers[i] = read.multipliers[i];
      return;
    }
    DSCORE_UNROLL
    for (int i = 0; i < Count; i++) {
      const auto read = channels_of<1>(args, least(channel + i, channels - 1));
      biases[i] = read.biases[0], multipliers[i] = read.multipliers[0];
    }
  }

  // Results of sums that lie side by side, of a channel each; the biases wrap modulo 2^32.
  template <int Count>
  static __device__ inline Pack<Out, Count> results(const int32_t *sums, const int32_t *biases,
                                                    const float *multipliers,
                                                    const Points &points) {
    const auto sum_of = [&](int i) {
      return static_cast<int32_t>(static_cast<uint32_t>(sums[i]) +
                                  static_cast<uint32_t>(biases[i]));
    };
    Pack<Out, Count> made;
    if constexpr (exact && Count % 4 == 0) {
      Pack<Word, Count / 4> words;
      DSCORE_UNROLL
      for (int i = 0; i < Count; i += 4) {
        int32_t four[4];
        DSCORE_UNROLL
        for (int j = 0; j < 4; j++)
          four[j] = requantised(sum_of(i + j), multipliers[i + j], points);
        words.at[i / 4] = packed_bytes(four[0], four[1], four[2], four[3]);
      }
      made = bits_as<Pack<Out, Count>>(words);
    } else {
      DSCORE_UNROLL
      for (int i = 0; i < Count; i++)
        if constexpr (exact)
          made.at[i] = static_cast<Out>(requantised(sum_of(i), multipliers[i], points));
        else
          made.at[i] = static_cast<Out>(Epilogue<float, false, activation>::activate(
              static_cast<float>(sum_of(i)) * multipliers[i]));
    }
    return made;
  }
  template <int Count>
  static __device__ inline Pack<Out, Count> results_of(const int32_t *sums,
                                                       const Channels<Count> &channels,
                                                       const Points &points) {
    return results<Count>(sums, channels.biases, channels.multipliers, points);
  }

  // Results of sums that lie side by side in one channel.
  template <int Count>
  static __device__ inline Pack<Out, Count> apply(const int32_t *sums, const Arguments &args,
                                                  int channel, int) {
    return results_of<Count>(sums, channel_of<Count>(args, channel), points_of(args));
  }
  // The same of as many channels from `channel` on, a multiple of Count, which lie side by side.
  template <int Count>
  static __device__ inline Pack<Out, Count> apply_channels(const int32_t *sums,
                                                           const Arguments &args, int channel,
                                                           int) {
    return results_of<Count>(sums, channels_of<Count>(args, channel), points_of(args));
  }
};

}  // namespace dscore
