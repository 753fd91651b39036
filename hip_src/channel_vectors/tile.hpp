// Tiles of images whose channels lie side by side: how the pixels under a block come to its LDS,
// and the channels, rows and columns of a lane.
#pragma once

#include "row_reuse/view.hpp"
#include "support/bulk_copy.hpp"
#include "support/integers.hpp"

namespace dscore {

// Rows x Columns pixels of an image, of Channels channels each, that come to a block's LDS: zeros
// (of int8 the bytes of `fill`) for all that is outside the image. Strips: of threads one above the
// other, each of which walks over Walked rows that begin Step rows after those of the strip before.
// Bands: in which the rows come, so many of each strip at a time. Copy: elements that move as one,
// which divide the channels of the tile and of the image. Pitch: elements of LDS from a pixel to
// the next. BandRows: of a strip, that come in a band.
template <class T, int Strips, int Step, int Walked, int Bands, int Columns, int Channels, int Copy,
          int Threads, int Pitch = Channels, int BandRows = ceil_div(Walked, Bands)>
struct ChannelTile {
  static constexpr int rows = (Strips - 1) * Step + Walked;
  static constexpr int elements = rows * Columns * Pitch;
  static constexpr int vectors = Channels / Copy;  // of a pixel
  static constexpr int places = Columns * vectors;  // that a row has
  static constexpr int groups = greatest(1, Threads / places);  // of threads, a row each
  static constexpr int band_rows = BandRows;
  static_assert(Bands * BandRows >= Walked, "rows in no band");
  static_assert(Channels % Copy == 0, "whole vectors");

  const T *image;  // of one image, at its first element
  int height, width, channels;  // of the image
  int row, column, channel;     // where the tile begins
  uint32_t fill;                // of int8

  __device__ const T *pixel(int r, int c) const {
    return image + ((row + r) * width + column + c) * channels + channel;
  }

  // Rows of a strip that it loads: others are those of the next one.
  static constexpr __device__ int loaded(int strip) {
    return strip == Strips - 1 ? Walked : least(Walked, Step);
  }

  // Calls visit(where in LDS, where in memory, whether it is there) for each vector of a band that
  // is the thread's. Groups of threads take every so many rows. What differs from a row to the next
  // is constant.
  template <class Visit>
  __device__ void each_vector(T *lds, int band, int thread, Visit visit) const {
    const int first_place = groups > 1 ? thread % places : thread;
    const int group = groups > 1 ? thread / places : 0;
    if (groups > 1 && group >= groups) return;
    DSCORE_UNROLL
    for (int at = 0; at < places; at += Threads) {
      const int place = at + first_place, c = place / vectors;
      const int offset = place % vectors * Copy;
      if (groups == 1 && place >= places) break;
      const bool beside = inside(column + c, width) && channel + offset < channels;
      const T *const from = pixel(group, c) + offset;
      T *const to = lds + ((group * Columns + c) * Pitch + offset);
      DSCORE_UNROLL
      for (int strip = 0; strip < Strips; strip++) {
        const int end = least(loaded(strip), (band + 1) * band_rows);
        DSCORE_UNROLL
        for (int i = band * band_rows; i < end; i += groups)
          if (const int r = strip * Step + i; i + groups <= end || i + group < end)
            visit(to + r * Columns * Pitch, from + r * width * channels,
                  beside && inside(row + group + r, height));
      }
    }
  }
  static constexpr bool filled = sizeof(T) == 1;  // by bytes that are not zero

  __device__ void start_load(T *lds, int band, int thread) const {
    each_vector(lds, band, thread, [&](T *to, const T *from, bool there) {
      if constexpr (!filled) copy_async<Copy * int{sizeof(T)}>(to, from, there);
      else if constexpr (!fills_later) write_bytes<Copy>(to, from, there, fill);
      else if (there) copy_async<Copy>(to, from);
    });
  }
  // Where the copies left it out, `fill` comes to what is not there, before any band is waited for.
  __device__ void fill_outside(T *lds, int thread) const {
    const bool whole = row >= 0 && row + rows <= height && column >= 0 &&
                       column + Columns <= width && channel + Channels <= channels;
    if (!fills_later || whole) return;
    DSCORE_UNROLL
    for (int band = 0; band < Bands; band++)
      each_vector(lds, band, thread, [&](T *to, const T *from, bool there) {
        if (!there) write_bytes<Copy>(to, from, false, fill);
      });
  }

  // Brings pixels to the L2 cache, where it does no harm that the kernel before may still write to
  // them: compute units share it, and keep nothing of what is only prefetched. The tiles that lie
  // side by side over the channels share whole rows, of which each asks for one piece: small ones
  // would come one after the other.
  __device__ void prefetch(int thread) const {
    const int first = greatest(column, 0), end = least(column + Columns, width);
    const int span = (end - first) * channels;
    const int piece = ceil_div(end - first, ceil_div(channels, Channels)) * channels;
    const int start = channel / Channels * piece;
    // Neighbours in different wavefronts: a wavefront's requests leave one by one. Each lane's
    // number of bytes is made of its own address. One that all lanes share comes to the
    // instruction by a uniform register, which nvcc 13.0 then writes under the wrong predicate:
    // the number is whatever the register held, and a kernel of 19 us took 119.
    const int turn = thread % 32 * (Threads / 32) + thread / 32;
    DSCORE_ROLLED
    for (int r = turn; r < rows; r += Threads)
      if (inside(row + r, height))
        prefetch_vectors(pixel(r, first - column) - channel + start, least(piece, span - start));
  }
};

// The filters of a block's channels, which lie in one piece; Copy as above.
template <class T, int Elements, int Copy, int Threads>
__device__ inline void start_load_filters(T *lds, const T *filters, int elements, int thread) {
  DSCORE_UNROLL
  for (int at = 0; at < Elements; at += Threads * Copy)
    if (const int place = at + thread * Copy; place < Elements)
      copy_async<Copy * int{sizeof(T)}>(lds + place, filters + place, place < elements);
}

// Waits until at most `ahead` of the groups of copies are under way.
template <int Most>
__device__ inline void wait_copies_but(int ahead) {
  if constexpr (Most == 0) wait_copies<0>();
  else if (ahead >= Most) wait_copies<Most>();
  else wait_copies_but<Most - 1>(ahead);
}

// Channel multipliers share inputs: channels of x under `lanes` of the output that begin at a
// multiple of these.
constexpr __host__ __device__ int channels_under(int lanes, int multiplier) {
  int shared = lanes, rest = multiplier;
  while (rest != 0) {
    const int next = shared % rest;
    shared = rest, rest = next;
  }
  return (lanes - 1 + multiplier - shared) / multiplier + 1;
}

// A vector of channels of a pixel in LDS, which begins with channel `first` of x: those under the
// written channels from `channel` on, which a multiplier makes share them.
template <int Vector, int Multiplier, class T>
__device__ inline void read_channels(float *to, const T *pixel, int channel, int first) {
  if constexpr (Multiplier == 1) {
    const auto read = read_vector<Vector>(pixel + (channel - first));
    DSCORE_UNROLL
    for (int v = 0; v < Vector; v++) to[v] = static_cast<float>(read.at[v]);
  } else {
    DSCORE_UNROLL
    for (int v = 0; v < Vector; v++)
      to[v] = static_cast<float>(pixel[(channel + v) / Multiplier - first]);
  }
}

}  // namespace dscore
