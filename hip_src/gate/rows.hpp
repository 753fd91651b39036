// Products of a filter's rows by numbers in LDS, for one image at a time.
#pragma once

#include "support/integers.hpp"

namespace dscore {

// Products of a filter's rows by a vector in LDS. `lanes` of a wavefront share a row, each the
// vectors of `vector` elements that lie so many apart; the block's threads have `at_once` rows at a
// time. As the reference backend counts (dscore/algorithms/gate/tiling.py).
template <int Threads, int Wavefront, int Rows, int Length, int Vector>
struct RowProducts {
  static constexpr int vectors = ceil_div(Length, Vector);
  // By so many lanes of a row: loads of a thread, each of which takes a turn for every eighth lane
  // that neighbours do not share a line with; and additions between lanes.
  static constexpr int cost(int lanes) {
    int steps = 0;
    for (int joined = 1; joined < lanes; joined *= 2) steps++;
    return ceil_div(Rows, Threads / lanes) * ceil_div(vectors, lanes) *
               greatest(Wavefront / lanes, Wavefront / 8) +
           steps;
  }
  static constexpr int best() {
    int lanes = 1;
    for (int more = 2; more <= Wavefront; more *= 2)
      if (cost(more) < cost(lanes)) lanes = more;
    return lanes;
  }
  static constexpr int lanes = best(), at_once = Threads / lanes;
  static constexpr int rounds = ceil_div(Rows, at_once), loads = ceil_div(vectors, lanes);
};

// Elements side by side as they are read: small ones as words, which compilers would take apart as
// soon as they have come, and wait for that.
template <class W, int Count>
struct Read {
  static constexpr bool in_words = Count * sizeof(W) % 4 == 0;
  static constexpr int words = in_words ? Count * static_cast<int>(sizeof(W)) / 4 : 1;
  using Unit = std::conditional_t<in_words, Word, W>;
  Pack<Unit, in_words ? words : Count> units;
  __device__ void from(const W *memory, bool there) {
    units = vector_or_zeros<in_words ? words : Count>(reinterpret_cast<const Unit *>(memory),
                                                      there);
  }
  __device__ Pack<W, Count> elements() const { return bits_as<Pack<W, Count>>(units); }
};

// A lane's share of the products of a filter's rows by numbers in LDS. As many elements of as many
// rows as registers may hold are read at once, the first of them while the numbers are made.
template <class Products, class W, int Vector, int Threads, int Wavefront>
struct FilterRows {
  static constexpr int most_words = Threads > 256 ? 24 : 48, words = Read<W, Vector>::words;
  // Loads of a row at once, and how often; rounds of whole rows at once.
  static constexpr int span = least(Products::loads, greatest(most_words / words, 1));
  static constexpr int spans = ceil_div(Products::loads, span);
  static constexpr int held =
      least(Products::rounds, greatest(most_words / (Products::loads * words), 1));

  const W *filter, *biases;  // of the first row; no biases: null
  int step, rows, count;     // elements from a row to the next; rows, and how much of each
  Read<W, Vector> read[held][span];
  Read<W, 1> addends[held];

  __device__ FilterRows(const W *filter_, const W *biases_, int step_, int rows_, int count_)
      : filter(filter_), biases(biases_), step(step_), rows(rows_), count(count_) {
    load(0, 0);
  }

  static __device__ int lane() { return threadIdx.x % Products::lanes; }
  static __device__ int row_of(int round) {
    return threadIdx.x / Products::lanes + round * Products::at_once;
  }
  static __device__ int column_of(int i) { return (lane() + i * Products::lanes) * Vector; }

  // Of the rounds from `first` on, the loads from number `begin` on.
  __device__ void load(int first, int begin) {
    DSCORE_UNROLL
    for (int to = 0; to < held; to++) {
      const int row = row_of(first + to);
      DSCORE_UNROLL
      for (int i = 0; i < span; i++)
        read[to][i].from(filter + row * step + column_of(begin + i),
                         row < rows && column_of(begin + i) < count);
      addends[to].from(biases + row, biases != nullptr && row < rows);
    }
  }

  // The sum of each row with its bias goes to store(row, sum).
  template <class Store>
  __device__ void multiply(const float *numbers, const Store &store) {
    DSCORE_ROLLED
    for (int first = 0; first < Products::rounds; first += held) {
      float sums[held] = {};
      DSCORE_ROLLED
      for (int begin = 0; begin < spans * span; begin += span) {
        if (first + begin > 0) load(first, begin);
        DSCORE_UNROLL
        for (int from = 0; from < held; from++) add_products(sums[from], from, begin, numbers);
      }
      DSCORE_UNROLL
      for (int from = 0; from < held; from++) finish(sums[from], from, first + from, store);
    }
  }
  __device__ void add_products(float &sum, int from, int begin, const float *numbers) const {
    DSCORE_UNROLL
    for (int i = 0; i < span; i++)
      if (column_of(begin + i) < count) {
        const auto by = read_vector<Vector>(numbers + column_of(begin + i));
        const auto elements = read[from][i].elements();
        DSCORE_UNROLL
        for (int k = 0; k < Vector; k++) sum += by.at[k] * static_cast<float>(elements.at[k]);
      }
  }
  // Adds the lanes of a row.
  template <class Store>
  __device__ void finish(float sum, int from, int round, const Store &store) const {
    DSCORE_UNROLL
    for (int by = Products::lanes / 2; by > 0; by /= 2)
      sum += DSCORE_SHFL_DOWN(sum, by, Wavefront);
    if (lane() == 0 && row_of(round) < rows)
      store(row_of(round), sum + static_cast<float>(addends[from].elements().at[0]));
  }
};

}  // namespace dscore
