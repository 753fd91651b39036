// Geometry of a gate's blocks: which channels and pixels each has, and which products a lane.
#pragma once

#include "support/mean_sums.hpp"

namespace dscore {

// Threads: of a block. `Cluster` blocks have an image; `Sharers` of them share the pixels of the
// same channels. Vector: elements of x that a load has, channels of a pixel in NHWC, else pixels.
template <int Threads, int Cluster, int Sharers, int Channels, int Between, int Vector,
          int Wavefront, int Layout>
struct GateTiling {
  using Images = dscore::Images<Layout>;
  static constexpr int threads = Threads, cluster = Cluster, sharers = Sharers;
  static constexpr int channels = Channels, between = Between, vector = Vector;
  static constexpr int wavefront = Wavefront, layout = Layout;
  static constexpr bool last = Images::last;
  // What a thread sums: a vector of channels, or the plane of one.
  static constexpr int unit = last ? Vector : 1, units = ceil_div(Channels, unit);
  static constexpr int slices = Cluster / Sharers;
  static constexpr int slice_units = ceil_div(units, slices), slice = slice_units * unit;
  // Of them each sharer goes on with some.
  static constexpr int share_units = ceil_div(slice_units, Sharers), share = share_units * unit;
  static constexpr int columns = least(slice_units, Threads), parts = Threads / columns;
  // Sums of a unit that go to LDS together. Those of neighbouring units lie side by side there.
  static constexpr int quad = least(unit, 4), row = slice_units * quad;
  // Which channel of the slice has number `at` there.
  static __host__ __device__ int channel_at(int at) {
    return at % row / quad * unit + at / row * quad + at % quad;
  }
  // Neighbouring parts of a channel that a thread adds first.
  static constexpr int runs = least(greatest(Threads / slice, 1), parts);
  static constexpr int of_run = ceil_div(parts, runs);
  static_assert(Cluster % Sharers == 0, "as many blocks for each slice of channels");
};

}  // namespace dscore
