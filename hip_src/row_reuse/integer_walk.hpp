// The walk of row reuse over rows of signed bytes: a lane has words of four columns of a row and of
// four taps of a filter row, which one instruction multiplies and adds. Sums are of int32, exact in
// any order.
#pragma once

#include "row_reuse/rows.hpp"
#include "support/requantised.hpp"

namespace dscore {

// The words of a lane. Its columns lie in them from byte Lead on, the taps of a filter row as far
// apart as the columns under them. The taps are there several times, each a byte further on
// (phases), as far as they need no more words: so fewer words of columns have to be made that begin
// anywhere.
template <class L, class Columns, int ThreadW, int Lead>
struct WordsOfRow {
  static constexpr int count = ceil_div(Lead + Columns::under(ThreadW), 4);
  static constexpr int of_taps = ceil_div(L::span_w, 4), spare = of_taps * 4 - L::span_w;
  static constexpr int phases = spare == 3 && of_taps == 1 ? 4 : spare > 0 ? 2 : 1;

  static constexpr __host__ __device__ int first(int c) { return Lead + Columns::position(c, 0); }
  static constexpr __host__ __device__ int phase(int c) { return first(c) % phases; }
  // The byte of the row with which the columns under a written one's word of taps begin.
  static constexpr __host__ __device__ int begin(int c, int word) {
    return first(c) - phase(c) + word * 4;
  }
  // Whether a word has any taps: dilated ones leave some out.
  static constexpr __host__ __device__ bool has_taps(int phase, int word) {
    for (int g = 0; g < L::kernel_w; g++)
      if ((phase + g * L::dilation_w) / 4 == word) return true;
    return false;
  }
  static constexpr __host__ __device__ bool begins_at(int byte) {
    for (int c = 0; c < ThreadW; c++)
      for (int word = 0; word < of_taps; word++)
        if (begin(c, word) == byte && has_taps(phase(c), word)) return true;
    return false;
  }
};

template <class T, class Tiling, class View, class Shape_, class Results>
struct IntegerRowWalk : RowLane<T, Tiling, View, Shape_, Results> {
  using Shape = Shape_;
  using t = Tiling;
  using Arguments = typename Results::Arguments;
  using Block = RowLane<T, t, View, Shape, Results>;
  using L = typename Block::L;
  using Rows = typename Block::Rows;
  using Columns = typename Block::Columns;
  using Images = typename Block::Images;
  using Result = typename Results::Result;
  using Block::s, Block::thread, Block::plane, Block::live, Block::x, Block::w, Block::lds;
  using Block::out_row, Block::out_column, Block::in_row, Block::in_column, Block::column_end;
  using Block::span_start, Block::out_start, Block::barrier, Block::input_plane;
  using Block::column_tiles, Block::ends_amid_vector, Block::reaches;
  static constexpr int threads = t::threads, wavefront = t::wavefront;
  static constexpr int rows = Rows::under(t::thread_h), live_rows = Rows::live(t::thread_h);
  // Where all rows of the image begin with a word, a lane's first column has the same place in a
  // word in all of them. Elsewhere words are shifted, so that it is the first.
  static constexpr bool aligned = t::vector_in % 4 == 0;
  using Words = WordsOfRow<L, Columns, t::thread_w, aligned ? (t::vector_in - t::phase) % 4 : 0>;
  static constexpr int lead = Words::first(0), words = Words::count, read = words + !aligned;
  static constexpr int alignment =
      greatest(t::through_lds ? 16 : 4, t::vector_out * static_cast<int>(sizeof(Result)));
  using Move = typename Block::Move;
  static_assert(!t::column_reuse, "bytes are not passed between lanes");
  static_assert(!t::out_through_lds || std::is_same_v<T, Result>, "results as wide as elements");

  // Sums begin with the bias, less what x's zero point adds to them.
  int32_t accumulators[live_rows][t::thread_w], bias = 0;
  Word row[words], inside_row[words], taps[L::kernel_h][Words::phases][Words::of_taps];
  Word fill;  // x's zero point, which all is that lies outside the image
  float multiplier = 0.0f;

  __device__ IntegerRowWalk(const Arguments &args, const Shape &shape) : Block(args, shape) {
    if (thread == 0) prefetch_channels<Results>(args, s.out_channels, Block::blocks(s));
  }

  __device__ void load_taps() {
    const T *filter = w + plane % s.out_channels * L::taps;
    DSCORE_UNROLL
    for (int f = 0; f < L::kernel_h; f++) {
      DSCORE_UNROLL
      for (int word = 0; word < Words::of_taps; word++) taps[f][0][word] = 0;
      DSCORE_UNROLL
      for (int g = 0; g < L::kernel_w; g++) {
        const int at = g * L::dilation_w;
        const Word tap = live ? static_cast<uint8_t>(filter[f * L::kernel_w + g]) : 0;
        taps[f][0][at / 4] |= tap << at % 4 * 8;
      }
      DSCORE_UNROLL
      for (int phase = 1; phase < Words::phases; phase++)
        DSCORE_UNROLL
        for (int word = 0; word < Words::of_taps; word++)
          taps[f][phase][word] = shifted_bytes(word > 0 ? taps[f][0][word - 1] : 0,
                                               taps[f][0][word], 4 - phase);
    }
  }

  // The channel's multiplier, and its bias less the zero point by the sum of the filter.
  __device__ void load_channel(const Arguments &args) {
    int32_t sum = 0;
    DSCORE_UNROLL
    for (int f = 0; f < L::kernel_h; f++)
      DSCORE_UNROLL
      for (int word = 0; word < Words::of_taps; word++) sum = add_bytes(taps[f][0][word], sum);
    if (!live) return;
    const auto of_channel = Results::template channels_of<1>(args, plane % s.out_channels);
    multiplier = of_channel.multipliers[0];
    bias = static_cast<int32_t>(static_cast<Word>(of_channel.biases[0]) -
                                static_cast<Word>(Results::zero_of(args)) * static_cast<Word>(sum));
    DSCORE_UNROLL
    for (int r = 0; r < live_rows; r++)
      DSCORE_UNROLL
      for (int c = 0; c < t::thread_w; c++) accumulators[r][c] = bias;
  }

  // Whether so many columns on from the lane's first one is left of `end`, and not below 0.
  __device__ bool column_reaches(int offset, int end) const {
    const int last = (column_tiles(s) * t::lanes_w - 1) * Columns::step(t::thread_w);
    const int first = Columns::first(s.pad_left);
    return reaches(in_column, first, first + last, offset, end);
  }
  // Which bytes of the lane's words lie in a row of the image.
  __device__ void find_inside() {
    DSCORE_UNROLL
    for (int word = 0; word < words; word++) {
      inside_row[word] = 0;
      DSCORE_UNROLL
      for (int byte = 0; byte < 4; byte++)
        if (column_reaches(word * 4 + byte - lead, column_end))
          inside_row[word] |= 0xFFu << byte * 8;
    }
  }
  // Whether a word has any: its first column is `offset` on from the lane's, less a shift.
  __device__ bool has_columns(int offset, int shift) const {
    if constexpr (aligned) return column_reaches(offset + 3, column_end + 3);
    else return inside(in_column + offset - shift + 3, column_end + 3);
  }

  // A word at a multiple of four elements of the images, which has columns of a row.
  __device__ Word word_at(int at, bool there) const {
    if constexpr (t::through_lds) {
      return word_of(lds + (there ? at - span_start : 0));  // of which the first is always written
    } else {
      if (!there) return 0;
      const int left = Block::elements() - at;
      if (Block::elements() % 4 == 0 || left >= 4) return word_of(x + at);
      Word word = 0;
      for (int byte = 0; byte < left; byte++)
        word |= static_cast<Word>(static_cast<uint8_t>(x[at + byte])) << byte * 8;
      return word;
    }
  }
  static __device__ Word word_of(const T *from) { return bits_as<Word>(read_vector<4>(from)); }

  // The lane's words of local row i.
  __device__ void read_row(int i) {
    const int first =
        input_plane(plane) + (in_row + i) * Images::in_width(s) + in_column - lead;
    const int shift = aligned ? 0 : first & 3;
    Word found[read];
    DSCORE_UNROLL
    for (int word = 0; word < read; word++)
      found[word] = word_at(first - shift + word * 4, has_columns(word * 4 - lead, shift));
    DSCORE_UNROLL
    for (int word = 0; word < words; word++) {
      const Word after = found[least(word + 1, read - 1)];
      const Word own = aligned ? found[word] : shifted_bytes(found[word], after, shift);
      row[word] = (own & inside_row[word]) | (fill & ~inside_row[word]);
    }
  }

  __device__ void add_row(int i) {
    DSCORE_UNROLL
    for (int byte = 0; byte < words * 4; byte++) {
      if (!Words::begins_at(byte)) continue;
      const int word = byte / 4;
      const Word after = word + 1 < words ? row[least(word + 1, words - 1)] : 0;
      const Word four = byte % 4 == 0 ? row[word] : shifted_bytes(row[word], after, byte % 4);
      DSCORE_UNROLL
      for (int c = 0; c < t::thread_w; c++)
        DSCORE_UNROLL
        for (int of_taps = 0; of_taps < Words::of_taps; of_taps++)
          if (Words::begin(c, of_taps) == byte && Words::has_taps(Words::phase(c), of_taps))
            add_word(i, c, of_taps, four);
    }
  }
  __device__ void add_word(int i, int c, int word, Word four) {
    DSCORE_UNROLL
    for (int f = 0; f < L::kernel_h; f++) {
      const int r = Rows::written(i, f);
      if (r < 0 || r >= t::thread_h) continue;
      int32_t &sum = accumulators[r % live_rows][c];
      sum = dot4(four, taps[f][Words::phase(c)][word], sum);
    }
  }

  // Gives away local written row r, which is complete, and readies its registers for another.
  __device__ void finish(int r, const Arguments &args, const Points &points) {
    constexpr int vector = t::vector_out;
    const int height = Images::out_height(s), width = Images::out_width(s);
    Channels<vector> same = {};
    DSCORE_UNROLL
    for (int j = 0; j < vector; j++) same.multipliers[j] = multiplier;
    DSCORE_UNROLL
    for (int c = 0; c < t::thread_w; c += vector) {
      int32_t *const done = accumulators[r % live_rows] + c;
      const int at = (plane * height + out_row + r) * width + out_column + c;
      const bool inside_w = column_tiles(s) * t::lanes_w * t::thread_w == width;
      if ((height % t::thread_h == 0 || out_row + r < height) &&
          (inside_w || out_column + c < width)) {
        const auto results = Results::template results_of<vector>(done, same, points, at);
        if constexpr (t::out_through_lds)
          write_vector(lds + (t::span_in + at - out_start), results);
        else write_vector(static_cast<Result *>(args.out) + at, results);
      }
      DSCORE_UNROLL
      for (int j = 0; j < vector; j++) done[j] = bias;
    }
  }

  // Local rows from i on. A loop of many of them is longer than compilers unroll, and would leave
  // its sums in memory.
  template <int i = 0>
  __device__ void walk(const Arguments &args, const Points &points) {
    if (Block::row_inside(i)) {
      read_row(i);
    } else {
      DSCORE_UNROLL
      for (int word = 0; word < words; word++) row[word] = fill;
    }
    add_row(i);
    DSCORE_UNROLL
    for (int n = 0; n < Rows::at_once; n++)
      if (const int r = Rows::complete(i) + n; r < least(Rows::complete(i + 1), t::thread_h))
        finish(r, args, points);
    if constexpr (i + 1 < rows) walk<i + 1>(args, points);
  }

  __device__ void run(const Arguments &args) {
    if constexpr (t::ahead) admit_next_kernel();
    if constexpr (t::through_lds) Block::start_load();
    // Filters come to registers meanwhile.
    fill = static_cast<Word>(Results::zero_of(args) & 0xFF) * 0x01010101u;
    load_taps();
    load_channel(args);
    const Points points = Results::points_of(args);
    if constexpr (t::through_lds) Move::wait_for_load(barrier, ends_amid_vector());
    if (live) {
      find_inside();
      walk(args, points);
    }
    if constexpr (t::out_through_lds)
      Move::template store<t::span_out>(static_cast<T *>(args.out), lds + t::span_in,
                                        Block::out_first(), Block::out_end(), thread);
  }
};

}  // namespace dscore
