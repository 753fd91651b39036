// The tasks of Winograd's convolution that transform filters, inputs and outputs.
//
// In the workspace four channels lie side by side, and the rows of eight tiles (or of eight output
// channels of filters) are permuted by the number of the four in its step, so that lanes that read
// four such fours at once from LDS meet no bank twice.
#pragma once

#include "support/counters.hpp"
#include "winograd/mapping.hpp"

namespace dscore {

template <class Base>
struct WinogradArguments : Base {
  void *workspace;
};

template <class T, class t, class Shape, class Epilogue>
struct WinogradTasks : KernelOn<T, WinogradArguments<typename Epilogue::Arguments>, 1u << 2> {
  using Arguments = WinogradArguments<typename Epilogue::Arguments>;
  using Mapping = WinogradMapping<t, Shape>;
  using Transform = WinogradTransform<t::outputs>;
  static constexpr int threads = t::threads, wavefront = t::wavefront, cluster = 1;
  static constexpr int m = t::outputs, side = m + 2, planes = side * side;
  static constexpr int width_x = least(t::vector_x, m), width = least(t::vector_y, m);
  static constexpr int alignment =
      greatest(greatest(width_x, width) * int{sizeof(T)}, t::packed ? 16 : 1);

  static long long workspace_bytes(const Shape &s) {
    return Mapping::alignment + Mapping::counter_bytes(s) +
           4 * (Mapping::filters(s) + Mapping::inputs(s) + Mapping::products(s));
  }

  const Shape &s;
  int thread;
  int *counters;
  float *filters, *inputs, *products;  // U, V, M

  __device__ WinogradTasks(const Arguments &args, const Shape &shape)
      : s(shape), thread(threadIdx.x) {
    // A pointer made of a number would be one to any memory, LDS included.
    auto *at = static_cast<char *>(args.workspace);
    at += -reinterpret_cast<uintptr_t>(at) % Mapping::alignment;
    counters = reinterpret_cast<int *>(at);
    filters = reinterpret_cast<float *>(at + Mapping::counter_bytes(s));
    inputs = filters + Mapping::filters(s);
    // Which no task writes to.
    if constexpr (t::packed) filters = static_cast<float *>(const_cast<void *>(args.w));
    products = inputs + Mapping::inputs(s);
  }

  // Place of a row's channel, of four, among `rows` rows.
  static __device__ int place(int chunk, int row, int channel, int rows) {
    return t::place(chunk, chunk % (t::step / 4), row, rows) + channel;
  }
  // `side` by `side` numbers, one to each plane, at the lane's place in it.
  static __device__ void put(float *to, int lane, long long plane,
                             const float (&numbers)[side][side]) {
    DSCORE_UNROLL
    for (int p = 0; p < planes; p++)
      *element(to, p * plane, lane) = numbers[p / side][p % side];
  }

  // Tasks call `take` once in each thread that has a part in them, in its last turn.
  // U = G w Gᵀ of tile_k output channels by input_channels; channels that are not there are zero.
  template <class Take>
  __device__ void filter_task(const Arguments &args, int part, Take take) const {
    const int k_block = part / Mapping::input_tasks(s);
    const int first = part % Mapping::input_tasks(s) * t::input_channels;
    const int count = least(t::input_channels, Mapping::depth(s) - first) * t::tile_k;
    const T *w = static_cast<const T *>(args.w);
    DSCORE_ROLLED
    for (int e = thread; e < count; e += threads) {
      if (e + threads >= count) take();
      const int row = e / 4 % t::tile_k, chunk = first / 4 + e / 4 / t::tile_k;
      const int k = k_block * t::tile_k + row, c = chunk * 4 + e % 4;
      const bool there = k < s.out_channels && c < s.in_channels;
      const T *from = w + (k * s.in_channels + c) * 9;
      float taps[9], u[side][side];
      DSCORE_UNROLL
      for (int i = 0; i < 9; i++) taps[i] = there ? static_cast<float>(from[i]) : 0.0f;
      Transform::filter(taps, u);
      put(filters + static_cast<long long>(k_block) * Mapping::depth(s) * t::tile_k,
          place(chunk, row, e % 4, t::tile_k),
          static_cast<long long>(Mapping::channels(s)) * Mapping::depth(s), u);
    }
  }

  // Where a tile's first row and column of output lie, of an image; tiles past the last have
  // image -1.
  struct Tile {
    int image, row, column;
  };
  __device__ Tile tile_at(int group, int local) const {
    const int tile = group * t::tile_t + local;
    if (tile >= Mapping::tiles(s)) return {-1, 0, 0};
    const int columns = Mapping::columns(s), rows = Mapping::rows(s);
    return {tile / columns / rows, tile / columns % rows * m, tile % columns * m};
  }

  // A row of a tile's input. With vectors the image has one column of padding on the left, so that
  // all but the first and the last element lie in whole vectors.
  static __device__ void load_row(float (&row)[side], const T *from, bool held,
                                  const bool (&columns)[side]) {
    constexpr int first = t::vector_x > 1;
    DSCORE_UNROLL
    for (int j = first; j < side - first; j += width_x) {
      const auto several = vector_or_zeros<width_x>(from + j, held && columns[j]);
      DSCORE_UNROLL
      for (int k = 0; k < width_x; k++) row[j + k] = static_cast<float>(several.at[k]);
    }
    if constexpr (first == 1) {
      row[0] = held && columns[0] ? static_cast<float>(from[0]) : 0.0f;
      row[side - 1] = held && columns[side - 1] ? static_cast<float>(from[side - 1]) : 0.0f;
    }
  }

  // V = Bᵀ d B of a task group's tiles by input_channels.
  template <class Take>
  __device__ void input_task(const Arguments &args, int group, int part, Take take) const {
    const int first = part * t::input_channels, slot = group % Mapping::input_slots(s);
    const int count = least(t::input_channels, Mapping::depth(s) - first) * t::tile_t;
    const T *x = static_cast<const T *>(args.x);
    const long long plane = static_cast<long long>(Mapping::depth(s)) * t::tile_t;
    DSCORE_ROLLED
    for (int e = thread; e < count; e += threads) {
      if (e + threads >= count) take();
      const int local = e / 4 % t::tile_t, chunk = first / 4 + e / 4 / t::tile_t;
      const int c = chunk * 4 + e % 4;
      const Tile tile = tile_at(group, local);
      const int row = tile.row - s.pad_top, column = tile.column - s.pad_left;
      const bool there = tile.image >= 0 && c < s.in_channels;
      const int at = ((tile.image * s.in_channels + c) * s.height + row) * s.width + column;
      bool columns[side];
      DSCORE_UNROLL
      for (int j = 0; j < side; j++) columns[j] = there && inside(column + j, s.width);
      float d[side][side];
      DSCORE_UNROLL
      for (int i = 0; i < side; i++) {
        const bool held = inside(row + i, s.height);
        load_row(d[i], x + at + i * s.width, held, columns);
      }
      Transform::input(d);
      put(inputs + slot * planes * plane, place(chunk, local, e % 4, t::tile_t), plane, d);
    }
  }

  // Outputs Aᵀ m A of a task group's tiles by output_channels.
  template <class Take>
  __device__ void output_task(const Arguments &args, int group, int part, Take take) const {
    const int first = part * t::output_channels, slot = group % Mapping::product_slots(s);
    const int count = least(t::output_channels, s.out_channels - first) * t::tile_t;
    const long long plane = static_cast<long long>(Mapping::channels(s)) * t::tile_t;
    const float *own = products + slot * planes * plane;
    DSCORE_ROLLED
    for (int e = thread; e < count; e += threads) {
      if (e + threads >= count) take();
      const int local = e % t::tile_t, k = first + e / t::tile_t;
      const Tile tile = tile_at(group, local);
      if (tile.image < 0) continue;
      float sums[side][side], y[m][m];
      DSCORE_UNROLL
      for (int p = 0; p < planes; p++)
        sums[p / side][p % side] = read_shared(element(own, p * plane, k * t::tile_t + local));
      Transform::output(sums, y);
      const int at = ((tile.image * s.out_channels + k) * s.out_height + tile.row) * s.out_width +
                     tile.column;
      DSCORE_UNROLL
      for (int i = 0; i < m; i++)
        DSCORE_UNROLL
        for (int j = 0; j < m; j += width)
          if (tile.row + i < s.out_height && tile.column + j < s.out_width) {
            const int to = at + i * s.out_width + j;
            store_once(static_cast<T *>(args.out) + to,
                       Epilogue::template apply<width>(y[i] + j, args, k, to));
          }
    }
  }
};

}  // namespace dscore
