// The walk of row reuse by matrix units: the eight results of a patch are a product of the pixels
// under it with a Toeplitz matrix of the taps.
//
// A wavefront takes sixteen places of a plane, each of some rows of patches. It reads two rows of
// the eight columns under a patch as the sixteen summed elements of a product, and adds it into all
// the patches that these rows lie under. So rows come once, and no lane multiplies by a tap.
#pragma once

#include "row_reuse/rows.hpp"
#include "support/matrix_units.hpp"

namespace dscore {

template <class T, class Tiling, class View, class Shape_, class Results>
struct ToeplitzWalk : RowSource<T, Tiling, View, Shape_, Results> {
  using Shape = Shape_;
  using t = Tiling;
  using Arguments = typename Results::Arguments;
  using Block = RowSource<T, t, View, Shape, Results>;
  using L = typename Block::L;
  using Rows = typename Block::Rows;
  using Columns = typename Block::Columns;
  using Images = typename Block::Images;
  using Move = typename Block::Move;
  using Block::s, Block::thread, Block::x, Block::w, Block::lds, Block::barrier, Block::row_end;
  using Block::span_start, Block::out_start, Block::out_first, Block::out_end, Block::input_plane;
  using Block::column_end, Block::ends_amid_vector, Block::start_load;
  static constexpr int threads = t::threads, wavefront = t::wavefront, alignment = 16;
  // Results, columns and rows of a patch; columns that may lie under one.
  static constexpr int patch = 8, patch_w = t::thread_w, patch_h = patch / patch_w, window = 8;
  // Rows that a place walks over; pairs of them under a patch, and from a patch to the next.
  static constexpr int rows = Rows::under(t::thread_h);
  static constexpr int pairs = ceil_div(Rows::under(patch_h), 2), step = Rows::step(patch_h) / 2;
  static constexpr int patches = t::thread_h / patch_h;
  static constexpr int live = least(patches, ceil_div(pairs, step));
  // Where all rows of the image begin with a word, two columns come as one: from the even column on
  // that is the patch's first or the one before.
  static constexpr int before = t::vector_in % 2 == 0 ? t::phase % 2 : 0;
  static constexpr bool words = t::vector_in % 2 == 0 && Columns::under(patch_w) + before <= window;
  static constexpr int lead = words ? before : 0;
  static constexpr int halves = t::lanes_h * t::lanes_w > 8 ? 2 : 1;  // of sixteen places
  static constexpr int vector = least(2, t::vector_out);  // of a lane's two results of a patch
  static constexpr int plane_step = t::planes / t::repeat;  // from a wavefront's to its next
  static_assert(sizeof(T) == 2 && wavefront == 32 && t::through_lds, "fragments through LDS");
  static_assert((patch_w == 2 || patch_w == 4) && t::thread_h % patch_h == 0 && step > 0 &&
                    Rows::step(patch_h) % 2 == 0 && Columns::under(patch_w) <= window &&
                    t::planes % t::repeat == 0,
                "whole patches over pairs of rows");

  T *out;
  int lane, plane;
  // Of a place: the first row that it walks over, how many from there on the image has, and its
  // lane's first column; where these lie in a plane, and where the lane's first result does, from
  // whose row on the image has `height_left` rows.
  int in_row[halves], rows_left[halves], in_column[halves], at[halves];
  int to[halves], height_left[halves];
  bool left[halves], right[halves], last[halves];
  // What a plane is multiplied by: a Toeplitz matrix for each pair of rows under a patch. Lane
  // 4 g + i holds what connects columns 2 i and 2 i + 1 of either row with result g.
  struct Filter {
    Word taps[pairs][2];
    float bias;
  };
  float sums[live][4];
  float spoiled;  // NaN once a sum was not finite

  // The first of the two results of a patch that a lane has, which lie side by side.
  __device__ int result_row() const { return lane % 4 * 2 / patch_w; }
  __device__ int result_column() const { return lane % 4 * 2 % patch_w; }

  __device__ ToeplitzWalk(const Arguments &args, const Shape &shape)
      : Block(args, shape), out(static_cast<T *>(args.out)), lane(thread % wavefront), sums{} {
    const int wave = thread / wavefront, height = Images::out_height(s);
    const int width = Images::out_width(s);
    plane = Block::first_plane + wave / t::plane_waves;
    DSCORE_UNROLL
    for (int half = 0; half < halves; half++) {
      const int place = wave % t::plane_waves * 16 + half * 8 + lane / 4;
      constexpr int all = t::lanes_h * t::lanes_w;
      const bool there = all % (8 * halves) == 0 || place < all;
      const int out_row = Block::top + place / t::lanes_w * t::thread_h;
      const int out_column = Block::left + place % t::lanes_w * patch_w;
      in_row[half] = Rows::step(out_row) + Rows::first(s.pad_top);
      rows_left[half] = row_end - in_row[half];
      in_column[half] =
          Columns::step(out_column) + Columns::first(s.pad_left) - lead + lane % 4 * 2;
      left[half] = there && inside(in_column[half], column_end);
      right[half] = there && inside(in_column[half] + 1, column_end);
      if (words && !left[half]) rows_left[half] = 0;
      at[half] = in_row[half] * Images::in_width(s) + in_column[half];
      const int row = out_row + result_row(), column = out_column + result_column();
      to[half] = row * width + column;
      height_left[half] = there && column < width ? height - row : 0;
      last[half] = vector == 1 && column + 1 == width;
    }
  }
  __device__ bool wanted(int turn) const {
    return Block::planes(s) % t::planes == 0 || plane + turn * plane_step < Block::planes(s);
  }

  __device__ Filter filter_of(int turn, const Arguments &args) const {
    Filter filter;
    const int channel = wanted(turn) ? (plane + turn * plane_step) % s.out_channels : 0;
    const int result = lane / 4, row = result / patch_w, column = result % patch_w;
    const int first = lane % 4 * 2 - lead;
    const T *const from = w + channel * L::taps;
    // Where a tap lies is a sum of the lane's own and a constant.
    const T *const mine =
        from + (Rows::apart(0, row) * L::kernel_w + Columns::apart(first, column));
    DSCORE_UNROLL
    for (int i = 0; i < pairs * 2; i++) {
      Word pair = 0;
      DSCORE_UNROLL
      for (int n = 0; n < 2; n++) {
        const int f = Rows::tap(i, row), g = Columns::tap(first + n, column);
        if (f < 0 || g < 0) continue;
        const T *const tap = L::dilation_h == 1 && L::dilation_w == 1
                                 ? mine + (Rows::apart(i, 0) - Rows::apart(0, 0)) * L::kernel_w +
                                       (Columns::apart(n, 0) - Columns::apart(0, 0))
                                 : from + (f * L::kernel_w + g);
        pair |= Word{tap->bits} << 16 * n;
      }
      filter.taps[i / 2][i % 2] = pair;
    }
    filter.bias = Results::bias_of(args, channel);
    return filter;
  }

  // Of a turn's plane: its first element in LDS.
  __device__ const T *plane_at(int turn) const {
    return lds + (input_plane(plane + turn * plane_step) - span_start);
  }
  // The lane's two columns of local row i of a place.
  __device__ Word columns(const T *of_plane, int half, int i) const {
    const bool below = Rows::first(s.pad_top) + i >= 0 || in_row[half] + i >= 0;
    if (i >= rows || !below || i >= rows_left[half]) return 0;
    const T *const from = of_plane + (at[half] + i * Images::in_width(s));
    if constexpr (words) {
      return bits_as<Word>(read_vector<2>(from));
    } else {
      const Word low = left[half] ? from[0].bits : 0, high = right[half] ? from[1].bits : 0;
      return high << 16 | low;
    }
  }

  // Every pair of rows once, into all the patches that it lies under.
  __device__ void walk(int turn, const Filter &filter, const Arguments &args) {
    const T *const of_plane = plane_at(turn);
    DSCORE_UNROLL
    for (int q = 0; q < (patches - 1) * step + pairs; q++) {
      FragmentA<T> a = {};
      DSCORE_UNROLL
      for (int n = 0; n < 4; n++)
        if (n % 2 < halves) a.words[n] = columns(of_plane, n % 2, 2 * q + n / 2);
      DSCORE_UNROLL
      for (int p = 0; p < patches; p++)
        if (const int under = q - p * step; under >= 0 && under < pairs) {
          multiply_16(sums[p % live], a,
                      FragmentB<T>{{filter.taps[under][0], filter.taps[under][1]}});
          if (under == pairs - 1) finish(turn, p, filter.bias, args);
        }
    }
  }

  // Where the lane's results of a turn's plane begin, of the output.
  __device__ int plane_to(int turn) const {
    return (plane + turn * plane_step) * (Images::out_height(s) * Images::out_width(s));
  }
  // Whether the n-th of the lane's two results of patch p exists.
  __device__ bool has(int half, int p, int n) const {
    return p * patch_h < height_left[half] && (n == 0 || !last[half]);
  }
  __device__ int result_at(int turn, int half, int p, int n) const {
    return plane_to(turn) + to[half] + p * patch_h * Images::out_width(s) + n;
  }
  // Gives away patch p, which is complete, and clears its registers for another.
  __device__ void finish(int turn, int p, float bias, const Arguments &args) {
    DSCORE_UNROLL
    for (int half = 0; half < halves; half++)
      DSCORE_UNROLL
      for (int n = 0; n < 2; n += vector)
        if (has(half, p, n))
          store<vector>(sums[p % live] + half * 2 + n, result_at(turn, half, p, n), bias, args);
    DSCORE_UNROLL
    for (int n = 0; n < 4; n++) {
      spoiled += sums[p % live][n] * 0.0f;
      sums[p % live][n] = 0.0f;
    }
  }
  template <int Count>
  __device__ void store(const float *results, int first, float bias, const Arguments &args) {
    const float of_each[2] = {bias, bias};
    write_vector(t::out_through_lds ? lds + (t::span_in + first - out_start) : out + first,
                 Results::template apply_each<Count>(results, args, of_each, first));
  }

  // Zeros of a Toeplitz matrix make a NaN of what is not finite, beside the results that it belongs
  // to: a lane that had one makes its results anew, of their own products alone.
  __device__ void mend(int turn, float bias, const Arguments &args) {
    const T *const of_plane = plane_at(turn);
    const T *const from = w + (plane + turn * plane_step) % s.out_channels * L::taps;
    DSCORE_UNROLL
    for (int half = 0; half < halves; half++)
      DSCORE_ROLLED
      for (int number = 0; number < patches * 2; number++) {
        const int p = number / 2, n = number % 2;
        if (!has(half, p, n)) continue;
        const float sum = plain_sum(of_plane, from, half, p * patch_h + result_row(),
                                    result_column() + n);
        store<1>(&sum, result_at(turn, half, p, n), bias, args);
      }
  }
  __device__ float plain_sum(const T *of_plane, const T *from, int half, int row,
                             int column) const {
    float sum = 0.0f;
    DSCORE_ROLLED
    for (int tap = 0; tap < L::taps; tap++) {
      const int i = Rows::position(row, tap / L::kernel_w);
      const int under = Columns::position(column, tap % L::kernel_w);
      const int c = under + lead - lane % 4 * 2;  // from the lane's first column on
      if (i >= 0 && under >= 0 && inside(in_row[half] + i, row_end) &&
          inside(in_column[half] + c, column_end))
        sum += static_cast<float>(of_plane[at[half] + i * Images::in_width(s) + c]) *
               static_cast<float>(from[tap]);
    }
    return sum;
  }

  __device__ void run(const Arguments &args) {
    if constexpr (t::ahead) admit_next_kernel();
    start_load();
    // The filters of all turns come while the rows are on their way.
    Filter filters[t::repeat];
    DSCORE_UNROLL
    for (int turn = 0; turn < t::repeat; turn++) filters[turn] = filter_of(turn, args);
    Move::wait_for_load(barrier, ends_amid_vector());
    DSCORE_UNROLL
    for (int turn = 0; turn < t::repeat; turn++) {
      if (!wanted(turn)) continue;
      spoiled = 0.0f;
      walk(turn, filters[turn], args);
      if (spoiled != 0.0f) mend(turn, filters[turn].bias, args);
    }
    if constexpr (t::out_through_lds)
      Move::template store<t::span_out>(out, lds + t::span_in, out_first(), out_end(), thread);
  }
};

}  // namespace dscore
