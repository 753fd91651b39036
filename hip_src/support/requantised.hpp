// The epilogue of layers of int8 (docs/int8.md): from sums of int32 to results of int8, or floats.
#pragma once

#include "support/byte_scaling.hpp"
#include "support/quantised_operands.hpp"

namespace dscore {

template <class Out, bool Bias, Activation activation, bool Residual = false, bool Scaled = false,
          bool Table = false, class In = int8_t>
struct Requantised {
  static constexpr bool of_floats = !std::is_same_v<In, int8_t>;  // x, which becomes integers
  using Arguments = QuantisedArguments<Residual, Scaled, Table, of_floats>;
  using Element = int8_t;
  using Given = In;
  using Sum = int32_t;
  using Result = Out;
  using PointsOf = Points;
  template <int Count>
  using ChannelsOf = Channels<Count>;
  static constexpr bool scaled = Scaled, added = Residual, biased = true;
  static constexpr bool exact = std::is_same_v<Out, int8_t>;
  // Of LDS, for a copy of the table. Lanes look up different entries: in memory each of the lines
  // that they meet is an access of its own, and an address takes two instructions.
  static constexpr int table_bytes = Table ? table_entries : 0;
  static_assert(exact || !(Residual || Table), "of a result of int8");
  static constexpr int alignment = sizeof(int32_t), least_points = 4;

  static_assert(!of_floats || !(Residual || Scaled), "the ratio of floats is the only one");
  static __device__ inline FloatPoints floats_of(const Arguments &args) {
    return FloatPoints::of(static_cast<const float *>(args.ratios)[0], zero_of(args));
  }
  // What an element of x stands for is its distance from this.
  static __device__ inline int32_t zero_of(const Arguments &args) {
    return static_cast<const int32_t *>(args.points)[0];
  }
  static __device__ inline Points points_of(const Arguments &args) {
    return points_of(args, read_points(args));
  }
  // As they are in memory, for kernels that ask for more before they wait for these: compilers
  // subtract points of each other as soon as they may.
  static __device__ inline RawPoints read_points(const Arguments &args) {
    const int32_t *points = static_cast<const int32_t *>(args.points);
    RawPoints read = {};
    DSCORE_UNROLL
    for (int i = 0; i < (Residual ? 5 : least_points); i++) read.at[i] = points[i];
    if constexpr (Residual) read.residual_multiplier = static_cast<const float *>(args.ratios)[0];
    return read;
  }
  static __device__ inline Points points_of(const Arguments &args, const RawPoints &raw) {
    const auto &points = raw.at;
    Points read = {};
    if constexpr (exact) {
      read.range = ByteRange::of(points[2], points[3], points[1]);
      read.entries = EntryPoints::of(points[1]);
    }
    if constexpr (Residual) {
      read.residual_zero = points[4];
      read.residual_multiplier = raw.residual_multiplier;
      read.residual = static_cast<const int8_t *>(args.residual);
    }
    if constexpr (Table) read.table = static_cast<const int8_t *>(args.table);
    return read;
  }

  // Threads: start to copy the table to LDS, from where points are then to take it; without one,
  // nothing.
  static __device__ inline const int8_t *copy_table(const Arguments &args, void *lds, int thread,
                                                    int threads) {
    int8_t *const copy = static_cast<int8_t *>(lds);
    if constexpr (Table) {
      constexpr int vector = 16;
      DSCORE_UNROLL_FEW
      for (int at = thread * vector; at < table_entries; at += threads * vector)
        copy_async<vector>(copy + at, static_cast<const int8_t *>(args.table) + at);
    }
    return copy;
  }

  static __device__ inline ByteScaling scaling_of(const Arguments &args) {
    const int32_t *points = static_cast<const int32_t *>(args.points);
    return ByteScaling(static_cast<const float16 *>(args.scale),
                       static_cast<const float *>(args.ratios)[Residual], points[4 + Residual],
                       points[5 + Residual]);
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

  // Results of sums that lie side by side, of a channel each, from element `at` of the output on;
  // the biases wrap modulo 2^32.
  template <int Count>
  static __device__ inline Pack<Out, Count> results(const int32_t *sums, const int32_t *biases,
                                                    const float *multipliers, const Points &points,
                                                    int at) {
    return apply_read<Count>(sums, {biases, multipliers}, points, residual_of<Count>(points, at));
  }
  struct OfChannels {
    const int32_t *biases;
    const float *multipliers;
  };
  // The same where residuals have been read.
  template <int Count, class PointsLike>
  static __device__ inline Pack<Out, Count> apply_read(const int32_t *sums, OfChannels channels,
                                                       const PointsLike &points,
                                                       const Pack<int8_t, Count> &residuals) {
    int32_t biased_sums[Count];
    DSCORE_UNROLL
    for (int i = 0; i < Count; i++)
      biased_sums[i] = static_cast<int32_t>(static_cast<uint32_t>(sums[i]) +
                                            static_cast<uint32_t>(channels.biases[i]));
    return results_read<Count>(biased_sums, channels.multipliers, points, residuals);
  }
  // The same of sums that began with the biases.
  template <int Count, class PointsLike>
  static __device__ inline Pack<Out, Count> results_of_biased(const int32_t *sums,
                                                              const float *multipliers,
                                                              const PointsLike &points, int at) {
    return results_read<Count>(sums, multipliers, points, residual_of<Count>(points, at));
  }
  // What is added from element `at` of the output on; zeros where nothing is.
  template <int Count>
  static __device__ inline Pack<int8_t, Count> residual_of(const Points &points, int at) {
    if constexpr (Residual) return read_vector<Count>(points.residual + at);
    else return {};
  }
  // The same where that has been read.
  template <int Count, class PointsLike>
  static __device__ inline Pack<Out, Count> results_read(const int32_t *sums,
                                                         const float *multipliers,
                                                         const PointsLike &points,
                                                         const Pack<int8_t, Count> &residuals) {
    const auto product_of = [&](int i) {
      const float product = rounded_product(static_cast<float>(sums[i]), multipliers[i]);
      // The residual's own product is exact, so that this rounds once, as its sum would.
      if constexpr (Residual)
        return fmaf(static_cast<float>(residuals.at[i] - points.residual_zero),
                    points.residual_multiplier, product);
      else return product;
    };
    if constexpr (exact) return bytes_of<Count>(product_of, points);
    else {
      Pack<Out, Count> made;
      DSCORE_UNROLL
      for (int i = 0; i < Count; i++)
        made.at[i] = static_cast<Out>(Epilogue<float, false, activation>::activate(product_of(i)));
      return made;
    }
  }

  // Results of int8 by their products, or by the entries that have their numbers in a table.
  template <int Count, class ProductOf, class PointsLike>
  static __device__ inline Pack<int8_t, Count> bytes_of(ProductOf product_of,
                                                        const PointsLike &points) {
    if constexpr (Table) {
      int32_t results[Count];
      DSCORE_UNROLL
      for (int i = 0; i < Count; i++)
        results[i] = points.entry(points.entries.number(product_of(i)));
      return lowest_bytes<Count>(results);
    } else {
      return points.range.template bytes<Count>(product_of);
    }
  }
  template <int Count>
  static __device__ inline Pack<Out, Count> results_of(const int32_t *sums,
                                                       const Channels<Count> &channels,
                                                       const Points &points, int at) {
    return results<Count>(sums, channels.biases, channels.multipliers, points, at);
  }

  // Results of sums that lie side by side, from element `at` of the output on, in one channel.
  template <int Count>
  static __device__ inline Pack<Out, Count> apply(const int32_t *sums, const Arguments &args,
                                                  int channel, int at) {
    return results_of<Count>(sums, channel_of<Count>(args, channel), points_of(args), at);
  }
  // The same of as many channels from `channel` on, a multiple of Count, which lie side by side.
  template <int Count>
  static __device__ inline Pack<Out, Count> apply_channels(const int32_t *sums,
                                                           const Arguments &args, int channel,
                                                           int at) {
    return results_of<Count>(sums, channels_of<Count>(args, channel), points_of(args), at);
  }
};

}  // namespace dscore
