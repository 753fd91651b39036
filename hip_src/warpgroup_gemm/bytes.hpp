// Products of signed bytes by warpgroups (warpgroup_gemm/product.hpp): what their results need, and
// how these leave. The sum of (x - zero) * w is that of x * w less zero times that of w.
#pragma once

#include "support/banked_table.hpp"
#include "support/requantised.hpp"
#include "support/warpgroups.hpp"

namespace dscore {

// What results of a tile's columns need beside their sums: biases, less x's zero point times what a
// column's elements sum to, and multipliers. A thread of a warpgroup has one of every 128 columns,
// or several threads share the elements of one. It asks for both before the first step, and sums
// what each step has of its columns while the matrix units multiply the same. Results then find all
// of it in LDS: read one after the other from memory, they would wait for it as often as a thread
// has columns.
template <class t, class Epilogue>
struct ColumnValues {
  static constexpr int each = ceil_div(t::tile_n, warpgroup_threads);
  static constexpr int shares = greatest(warpgroup_threads / t::tile_n, 1);
  int sums[each] = {};
  int32_t biases[each] = {};
  float multipliers[each] = {};

  static __device__ int share_of(int thread) { return shares > 1 ? thread / t::tile_n : 0; }
  // Calls take(number, column) for the columns of a thread, whichever share it has of them.
  template <class Take>
  static __device__ void each_column(int thread, Take take) {
    DSCORE_UNROLL
    for (int i = 0; i < each; i++) {
      const int column = shares > 1 ? thread % t::tile_n : i * warpgroup_threads + thread;
      if (t::tile_n % warpgroup_threads == 0 || (column < t::tile_n && share_of(thread) < shares))
        take(i, column);
    }
  }
  // Of the tile's columns the first `columns` are there.
  __device__ ColumnValues(const typename Epilogue::Arguments &args, int first, int columns,
                          int thread) {
    each_column(thread, [&](int i, int column) {
      if (column >= columns) return;
      const auto read = Epilogue::template channels_of<1>(args, first + column);
      biases[i] = read.biases[0], multipliers[i] = read.multipliers[0];
    });
  }
  __device__ void add(const unsigned char *elements, int thread) {
    constexpr int of_row = swizzled_row / 16, vectors = t::step / 16;
    each_column(thread, [&](int i, int column) {
      DSCORE_UNROLL
      for (int first = 0; first < vectors; first += shares) {
        const int vector = first + share_of(thread);
        if (vectors % shares != 0 && vector >= vectors) continue;
        const int place = (vector / of_row * t::box_b + t::row_of(column)) * swizzled_row +
                          vector % of_row * 16;
        const auto words =
            read_vector<4>(reinterpret_cast<const Word *>(elements + swizzled(place)));
        DSCORE_UNROLL
        for (int word = 0; word < 4; word++) sums[i] = add_bytes(words.at[word], sums[i]);
      }
    });
  }
  // To LDS, biases before multipliers, where they are after a barrier. The shares of a column meet
  // in `apart`, where nothing else is yet; without a zero point nothing was summed.
  template <class Meet>
  __device__ void put(unsigned char *lds, unsigned char *apart, int zero, int thread, Meet meet) {
    auto *to = reinterpret_cast<int32_t *>(lds), *others = reinterpret_cast<int32_t *>(apart);
    const int share = share_of(thread);
    const bool summed = shares > 1 && zero != 0;
    if (summed) {
      each_column(thread, [&](int i, int column) {
        if (share > 0) others[(share - 1) * t::tile_n + column] = sums[i];
      });
      meet();
    }
    each_column(thread, [&](int i, int column) {
      if (share > 0) return;
      DSCORE_UNROLL
      for (int other = 0; other < shares - 1; other++)
        if (summed) sums[i] += others[other * t::tile_n + column];
      to[column] = static_cast<int32_t>(static_cast<uint32_t>(biases[i]) -
                                        static_cast<uint32_t>(zero) *
                                            static_cast<uint32_t>(sums[i]));
      reinterpret_cast<float *>(to + t::tile_n)[column] = multipliers[i];
    });
    meet();
  }
  // Those of columns that lie side by side.
  template <int Count>
  static __device__ Channels<Count> of(const unsigned char *lds, int column) {
    constexpr int width = Count < 4 ? Count : 4;
    const auto *from = reinterpret_cast<const int32_t *>(lds) + column;
    Channels<Count> all;
    DSCORE_UNROLL
    for (int first = 0; first < Count; first += width) {
      const auto read = read_vector<width>(from + first);
      const auto factors =
          read_vector<width>(reinterpret_cast<const float *>(from + t::tile_n + first));
      DSCORE_UNROLL
      for (int i = 0; i < width; i++)
        all.biases[first + i] = read.at[i], all.multipliers[first + i] = factors.at[i];
    }
    return all;
  }
};

// A table of results, one copy of it in LDS or one in each bank: asked for at once, put there where
// it comes by registers, and there once all warpgroups have met.
template <class t, class Results>
struct TableInLds {
  static constexpr bool any = Results::table_bytes > 0;
  struct None {};
  unsigned char *lds;
  int thread;
  std::conditional_t<t::banked, BankedTable<t::consumers>, None> banks;

  template <class Arguments>
  __device__ TableInLds(const Arguments &args, unsigned char *lds_, int thread_)
      : lds(lds_), thread(thread_) {
    if constexpr (t::banked) banks.ask(args.table, thread);
    else if constexpr (any) Results::copy_table(args, lds, thread, t::consumers);
  }
  __device__ void put() const {
    if constexpr (t::banked) banks.put(lds, thread);
  }
  // Points of results that look up there.
  template <class Points>
  __device__ typename t::Points points(Points points) const {
    if constexpr (any) points.table = reinterpret_cast<const int8_t *>(lds);
    if constexpr (t::banked) return BankedPoints::of(points, thread);
    else return points;
  }
};

// Of elements whose results need no more than the arguments have.
struct NoColumnValues {
  template <class Arguments>
  __device__ NoColumnValues(const Arguments &, int, int, int) {}
};

// A wavefront's rows of results from LDS to `out`, `pitch` apart there, by vectors: of `rows` and
// `columns` left what a tile has.
template <class t, class Result>
__device__ inline void store_rows(Result *out, const unsigned char *results, int rows, int columns,
                                  int pitch, int lane) {
  constexpr int vector = 16 / static_cast<int>(sizeof(Result)), of_row = t::tile_n / vector;
  DSCORE_UNROLL_FEW
  for (int at = lane; at < wavefront_rows * of_row; at += t::wavefront) {
    const int row = at / of_row, column = at % of_row * vector;
    if (row >= rows || column >= columns) continue;
    const unsigned char *from = results + row * t::result_pitch + column * int{sizeof(Result)};
    write_vector(out + row * pitch + column,
                 read_vector<vector>(reinterpret_cast<const Result *>(from)));
  }
}

}  // namespace dscore
