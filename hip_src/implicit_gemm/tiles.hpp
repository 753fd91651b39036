// The tiles of the implicit product of matrices (implicit_gemm/kernel.hpp): which of them a block
// takes, where they lie, and how they come to LDS.
#pragma once

#include "implicit_gemm/patch.hpp"

#if defined(DSCORE_HOST)
#define DSCORE_UNROLL_COPIES
#else
#define DSCORE_UNROLL_COPIES _Pragma("unroll 8")
#endif

namespace dscore {

// A tiling with the buffers of a layer's filters and images.
template <class Tiling, class Layer>
struct ImplicitGemmBuffers : Tiling {
  static constexpr int row = Tiling::step_c * Layer::taps;  // of a filter, in a step
  // Rows begin 4 banks apart, so that lanes of eight rows by four channels meet no bank twice where
  // the taps are odd.
  static constexpr int filter_row = row + (12 - row % 8) % 8;
  static constexpr int filters = Tiling::tile_c * filter_row;
  static constexpr int buffer = (filters + Tiling::step_c * Tiling::patch + 3) / 4 * 4;
  static constexpr bool fetched = Tiling::stages == 2;  // through registers
  static_assert(row % Tiling::vector_c == 0, "rows of whole vectors");
};

// How many threads of `waves` wavefronts take elements of one channel, so that they go over the
// patches of a step in the fewest turns; the others take those of other channels meanwhile.
constexpr int patch_threads(int waves, int wavefront, int patch, int channels) {
  int best = wavefront, fewest = INT32_MAX;
  for (int across = 1; across <= waves; across++) {
    const int turns =
        ceil_div(patch, across * wavefront) * ceil_div(channels, waves / across);
    if (waves % across == 0 && turns < fewest) best = across * wavefront, fewest = turns;
  }
  return best;
}

template <class T, class t, class Layer, class Shape, class Epilogue>
struct ImplicitGemmTiles : ImplicitGemmPatch<T, t, Layer, Shape, Epilogue> {
  using Patch = ImplicitGemmPatch<T, t, Layer, Shape, Epilogue>;
  using typename Patch::Arguments;
  using Patch::threads, Patch::group_in, Patch::group_out, Patch::x, Patch::w, Patch::s;
  using Patch::table, Patch::thread, Patch::group, Patch::first_channel, Patch::first_step;
  using Patch::wanted, Patch::summed;
  static constexpr bool fetched = t::fetched;
  static constexpr int table_at = t::stages * t::buffer * int{sizeof(T)};  // bytes

  using FilterWalk = Walk<threads, t::tile_c, t::row / t::vector_c>;
  using FilterVector = Pack<T, t::vector_c>;
  // Threads go over the patches of a step in rows of `across`, a channel each. A thread keeps to
  // its columns, so that it looks their places up once for all channels.
  static constexpr int across = patch_threads(threads / t::wavefront, t::wavefront, t::patch,
                                              t::step_c);
  static constexpr int columns = ceil_div(t::patch, across), beside = threads / across;
  static constexpr int channels_each = ceil_div(t::step_c, beside);

  FilterVector filter_temp[fetched ? FilterWalk::count : 1];
  T image_temp[fetched ? columns * channels_each : 1];

  __device__ ImplicitGemmTiles(const Arguments &args, const Shape &shape) : Patch(args, shape) {}
  __device__ void fill_table(T *lds) {
    Patch::fill_table(reinterpret_cast<int *>(reinterpret_cast<char *>(lds) + table_at));
  }

  // Calls each(i) for i below Count. Of many copies that pass through no array of registers not all
  // are unrolled: compilers would hold the addresses of all.
  template <int Count, class Each>
  static __device__ inline void each_turn(Each each) {
    if constexpr (fetched || Count <= 8) {
      DSCORE_UNROLL
      for (int i = 0; i < Count; i++) each(i);
    } else {
      DSCORE_UNROLL_COPIES
      for (int i = 0; i < Count; i++) each(i);
    }
  }
  // Calls take(i, place in the buffer, source, whether it exists) for the thread's vectors.
  template <class Take>
  __device__ void each_filter(int step, Take take) const {
    const int depth = group_in(s) * Layer::taps, first = (first_step + step) * t::row;
    each_turn<FilterWalk::count>([&](int i) {
      if (!FilterWalk::part(i, thread)) return;
      const int row = FilterWalk::row(i, thread), channel = first_channel + row;
      const int column = FilterWalk::column(i, thread) * t::vector_c;
      take(i, row * t::filter_row + column,
           w + (group * group_out(s) + channel) * depth + first + column,
           wanted(channel) && (group_in(s) % t::step_c == 0 || first + column < depth));
    });
  }
  template <class Take>
  __device__ void each_element(int step, Take take) const {
    const int plane = s.height * s.width, own = thread / across;
    const int first = (first_step + step) * t::step_c + own;
    each_turn<columns>([&](int j) {
      const int element = thread % across + j * across;
      if (t::patch % across != 0 && element >= t::patch) return;
      const int place = table[element];
      const T *const from = x + place + first * plane;
      each_turn<channels_each>([&](int i) {
        if (t::step_c % beside != 0 && own + i * beside >= t::step_c) return;
        take(j * channels_each + i, t::filters + (own + i * beside) * t::patch + element,
             from + i * beside * plane, place >= 0 && summed(first + i * beside));
      });
    });
  }

  __device__ void copy(T *lds, int step) const {
    each_filter(step, [&](int, int at, const T *from, bool there) {
      copy_async<t::vector_c * sizeof(T)>(lds + at, from, there);
    });
    each_element(step, [&](int, int at, const T *from, bool there) {
      copy_async<sizeof(T)>(lds + at, from, there);
    });
  }
  __device__ void fetch(int step) {
    each_filter(step, [&](int i, int, const T *from, bool there) {
      filter_temp[i] = vector_or_zeros<t::vector_c>(from, there);
    });
    each_element(step, [&](int i, int, const T *from, bool there) {
      image_temp[i] = there ? *from : T(0);
    });
  }
  __device__ void put(T *lds) const {
    each_filter(0, [&](int i, int at, const T *, bool) {
      *reinterpret_cast<FilterVector *>(lds + at) = filter_temp[i];
    });
    each_element(0, [&](int i, int at, const T *, bool) { lds[at] = image_temp[i]; });
  }
};

}  // namespace dscore
