// Tiles of images whose channels lie side by side: how the pixels under a block come to its LDS,
// and the channels, rows and columns of a lane.
#pragma once

#include "row_reuse/view.hpp"
#include "support/bulk_copy.hpp"

namespace dscore {

// A copy of Count elements to LDS, zeros where there are none at the source: one that nobody waits
// for where the bytes are enough for it.
template <int Count, class T>
__device__ inline void copy_elements(T *lds, const T *from, bool there) {
  if constexpr (Count * sizeof(T) >= 4)
    copy_async<Count * int{sizeof(T)}>(lds, from, there);
  else
    *lds = vector_or_zeros<1>(from, there).at[0];
}

// Rows x Columns pixels of an image, of Channels channels each, that come to a block's LDS: zeros
// for all that is outside the image. Copy: elements that move as one, which divide the channels of
// the tile and of the image.
template <class T, int Rows, int Columns, int Channels, int Copy, int Threads>
struct ChannelTile {
  static constexpr int elements = Rows * Columns * Channels;
  static constexpr int vectors = Channels / Copy;  // of a pixel
  static constexpr int places = Columns * vectors;  // that a row has
  static constexpr int groups = greatest(1, Threads / places);  // of threads, a row each
  static_assert(Channels % Copy == 0, "whole vectors");

  const T *image;  // of one image, at its first element
  int height, width, channels;  // of the image
  int row, column, channel;     // where the tile begins
  int row_end, column_end;      // past the last that is read

  __device__ bool pixel_there(int r, int c) const {
    return inside(row + r, row_end) && inside(column + c, column_end);
  }
  __device__ const T *pixel(int r, int c) const {
    return image + ((row + r) * width + column + c) * channels + channel;
  }

  __device__ void start_load(T *lds, int thread) const {
    const int first_place = groups > 1 ? thread % places : thread;
    const int group = groups > 1 ? thread / places : 0;
    if (groups > 1 && group >= groups) return;
    DSCORE_UNROLL
    for (int at = 0; at < ceil_div(places, Threads); at++) {
      const int place = at * Threads + first_place, c = place / vectors;
      const int offset = place % vectors * Copy;
      if (places % Threads != 0 && groups == 1 && place >= places) break;
      const bool beside = inside(column + c, column_end) && channel + offset < channels;
      const T *const from = pixel(group, c) + offset;
      DSCORE_UNROLL
      for (int r = 0; r < Rows; r += groups)
        if (Rows % groups == 0 || r + group < Rows)
          copy_elements<Copy>(lds + (r * places + group * places + place) * Copy,
                              from + r * width * channels,
                              beside && inside(row + r + group, row_end));
    }
  }

  // Brings whole pixels to the L2 cache, where it does no harm that the kernel before may still
  // write to them: compute units share it, and keep nothing of what is only prefetched.
  __device__ void prefetch(int thread) const {
    if constexpr (Copy * sizeof(T) == 16) {
      const int left = channels - channel, count = least(Channels, left);
      DSCORE_ROLLED
      for (int at = thread; at < Rows * Columns; at += Threads)
        if (pixel_there(at / Columns, at % Columns))
          prefetch_span(pixel(at / Columns, at % Columns), count);
    }
  }
};

// The filters of a block's channels, which lie in one piece; Copy as above.
template <class T, int Elements, int Copy, int Threads>
__device__ inline void start_load_filters(T *lds, const T *filters, int elements, int thread) {
  DSCORE_UNROLL
  for (int at = 0; at < Elements; at += Threads * Copy)
    if (const int place = at + thread * Copy; place < Elements)
      copy_elements<Copy>(lds + place, filters + place, place < elements);
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

}  // namespace dscore
