// Scales of the input, by image and channel, of the fragments of matrix units that a lane reads in
// a step: in its registers, so that a fragment is multiplied on its way from LDS. A pass over what
// has come to LDS would read and write all of it once more.
#pragma once

#include "gemm/tiles.hpp"

namespace dscore {

// Of pixels that lie Apart elements apart, Reach of them in a step. Where there are too many for
// the registers, none is `present`, and the pass is taken.
template <class T, class t, int Reach, int Apart, bool Scaled>
struct FragmentScales {
  static constexpr int channels = t::slice / 4, most = 32;
  static constexpr bool present = Scaled && Reach * channels <= most;
  float factors[present ? Reach : 1][present ? channels : 1];

  // Of the lane whose first pixel of a step is `first_pixel`, and its first channel `first`.
  template <class Tiles>
  __device__ void read(const Tiles &tiles, const void *scales, int first_pixel, int first) {
    const int area = tiles.area(tiles.s), depth = tiles.depth(tiles.s);
    DSCORE_UNROLL
    for (int q = 0; q < Reach; q++) {
      const int pixel = least(first_pixel + q * Apart, tiles.pixels(tiles.s) - 1);
      const T *own = static_cast<const T *>(scales) + pixel / area * depth;
      DSCORE_UNROLL
      for (int i = 0; i < channels; i++) {
        const int channel = first + i / 2 * 8 + i % 2;
        // Tiles within one image, which fixed sizes show, have the same for all pixels.
        if (q > 0 && area % t::tile_p == 0) factors[q][i] = factors[0][i];
        else factors[q][i] = tiles.held(channel) ? static_cast<float>(own[channel]) : 0.0f;
      }
    }
  }
  // An element of the q-th pixels and the i-th of the lane's channels.
  __device__ float scaled(T element, int q, int i) const {
    if constexpr (present) return static_cast<float>(element) * factors[q][i];
    else return static_cast<float>(element);
  }
};

}  // namespace dscore
