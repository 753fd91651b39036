// The walk over rows of images of int8 whose channels lie side by side: a lane takes words of four
// channels, turns four columns of them into words of four columns, and multiplies these by words of
// four taps. Sums are of int32, and exact in any order.
#pragma once

#include "channel_vectors/block.hpp"
#include "channel_vectors/row_words.hpp"
#include "support/integers.hpp"
#include "support/requantised.hpp"

namespace dscore {

template <class T, class Tiling, class View, class Shape_, class Results>
struct IntegerWalk : ChannelBlock<T, Tiling, View, Shape_, Results> {
  using Shape = Shape_;
  using t = Tiling;
  using Block = ChannelBlock<T, t, View, Shape, Results>;
  using Arguments = typename Block::Arguments;
  using L = typename Block::L;
  using Rows = typename Block::Rows;
  using Columns = typename Block::Columns;
  using Images = typename Block::Images;
  using Tile = typename Block::Tile;
  using Of = RowWords<L, Columns, t::thread_w>;
  using Result = typename Results::Result;
  using Points = std::conditional_t<t::banked, BankedPoints, dscore::Points>;
  using Block::s, Block::lds, Block::pixels, Block::thread, Block::first_channel, Block::image;
  using Block::tile, Block::block_h, Block::block_w, Block::tile_w, Block::filters_at;
  static constexpr int threads = t::threads, wavefront = t::wavefront, alignment = 16;
  static constexpr int held = Columns::under(t::thread_w), rows = Rows::under(t::thread_h);
  static constexpr int live_rows = Rows::live(t::thread_h), fours = t::vector / 4;
  static_assert(t::vector % 4 == 0 && t::vector % t::vector_out == 0, "vectors");
  static_assert(t::vector_out * sizeof(Result) <= 16, "what leaves as one");

  static constexpr __host__ __device__ bool under_tap(int offset) {
    for (int c = 0; c < t::thread_w; c++)
      for (int g = 0; g < L::kernel_w; g++)
        if (Columns::position(c, g) == offset) return true;
    return false;
  }

  int lane_c, lane_w, lane_h, channel, out_row, out_column;
  int32_t accumulators[live_rows][t::thread_w][t::vector];
  Word row[held][fours], before[held][fours];  // a row's columns, and those of the one before
  Word taps[L::kernel_h][Of::phases][Of::whole][t::vector];
  Word paired_taps[greatest(Of::pairs, 1)][Of::phases][t::vector];
  int32_t biases[t::vector];  // with what the zero point of x takes away
  float multipliers[t::vector];

  __device__ IntegerWalk(const Arguments &args, const Shape &shape)
      : Block(args, shape) {
    lane_c = thread % t::lanes_c;
    lane_w = thread / t::lanes_c % t::lanes_w;
    lane_h = thread / (t::lanes_c * t::lanes_w);
    channel = first_channel + lane_c * t::vector;
    out_column = Block::left + lane_w * t::thread_w;
    place_lane();
    if (thread == 0) prefetch_channels<Results>(args, s.out_channels, Block::blocks(s));
  }

  __device__ void place_lane() { out_row = Block::top + lane_h * t::thread_h; }

  static __device__ Word word_of(const T *from) { return bits_as<Word>(read_vector<4>(from)); }

  // `count` of the lane's filters' bytes from number `first` on, zeros above them.
  __device__ Word filter_bytes(int first, int count) const {
    const T *const mine =
        lds + filters_at + lane_c * t::vector * L::taps + first / 4 * 4;
    const int shift = first % 4 * 8;
    Word bytes = word_of(mine) >> shift;
    if (first % 4 + count > 4) bytes |= word_of(mine + 4) << (32 - shift);
    return count < 4 ? bytes & ((1u << count * 8) - 1) : bytes;
  }

  __device__ void load_taps() {
    DSCORE_UNROLL
    for (int v = 0; v < t::vector; v++)
      DSCORE_UNROLL
      for (int phase = 0; phase < Of::phases; phase++)
        DSCORE_UNROLL
        for (int f = 0; f < L::kernel_h; f++) {
          DSCORE_UNROLL
          for (int word = 0; word < Of::whole; word++)
            taps[f][phase][word][v] = row_taps(v, f, word * 4 - phase, 4);
          if (Of::ends_pair(f))
            paired_taps[f / 2][phase][v] =
                row_taps(v, f, Of::whole * 4 - phase, 2) << 16 |
                (f % 2 == 1 ? row_taps(v, f - 1, Of::whole * 4 - phase, 2) : 0);
        }
  }
  // A channel's taps of a filter row from number `first` on, `most` at most; one before the first
  // is 0.
  __device__ Word row_taps(int v, int f, int first, int most) const {
    const int from = v * L::taps + f * L::kernel_w;
    if (first < 0) return filter_bytes(from, least(L::kernel_w, most + first)) << -first * 8;
    return filter_bytes(from + first, least(L::kernel_w - first, most));
  }

  __device__ void load_channels(const Arguments &args) {
    DSCORE_UNROLL
    for (int v = 0; v < t::vector; v += 4)
      Results::template channels<4>(args, channel + v, s.out_channels, biases + v, multipliers + v);
  }
  // Takes the zero point by the sum of the filter off the biases.
  __device__ void correct_biases(int32_t zero) {
    DSCORE_UNROLL
    for (int n = 0; n < t::vector; n++) {
      int32_t sum = 0;
      DSCORE_UNROLL
      for (int f = 0; f < L::kernel_h; f++) {
        DSCORE_UNROLL
        for (int word = 0; word < Of::whole; word++) sum = add_bytes(taps[f][0][word][n], sum);
        if (Of::ends_pair(f)) sum = add_bytes(paired_taps[f / 2][0][n], sum);
      }
      biases[n] = static_cast<int32_t>(static_cast<Word>(biases[n]) -
                                       static_cast<Word>(zero) * static_cast<Word>(sum));
    }
  }

  // Columns of local row i of the thread; of one that no tap reaches, zeros.
  __device__ void read_row(int i) {
    const T *const pixel = pixels + ((lane_h * Rows::step(t::thread_h) + i) * tile_w +
                                  lane_w * Columns::step(t::thread_w)) * t::pitch;
    DSCORE_UNROLL
    for (int offset = 0; offset < held; offset++) {
      DSCORE_UNROLL
      for (int q = 0; q < fours; q++) row[offset][q] = 0;
      if (under_tap(offset)) read_pixel(row[offset], pixel + offset * t::pitch);
    }
  }
  __device__ void read_pixel(Word *to, const T *pixel) const {
    if constexpr (t::multiplier == 1) {
      const auto read = bits_as<Pack<Word, fours>>(
          read_vector<t::vector>(pixel + (channel - tile.channel)));
      DSCORE_UNROLL
      for (int q = 0; q < fours; q++) to[q] = read.at[q];
    } else {
      const auto byte = [&](int v) { return pixel[(channel + v) / t::multiplier - tile.channel]; };
      DSCORE_UNROLL
      for (int q = 0; q < fours; q++)
        to[q] = packed_bytes(byte(q * 4), byte(q * 4 + 1), byte(q * 4 + 2), byte(q * 4 + 3));
    }
  }

  static __device__ Word column(const Word (&of)[held][fours], int offset, int q) {
    return offset < held ? of[offset][q] : 0;
  }

  // Written columns that share a word turn it each; compilers find that these are one.
  __device__ void add_row(int i) {
    DSCORE_UNROLL
    for (int q = 0; q < fours; q++)
      DSCORE_UNROLL
      for (int c = 0; c < t::thread_w; c++) {
        DSCORE_UNROLL
        for (int word = 0; word < Of::whole; word++) {
          Word columns[4];
          DSCORE_UNROLL
          for (int n = 0; n < 4; n++)
            columns[n] = column(row, Of::begin(c, word) + n * L::dilation_w, q);
          transpose_bytes(columns);
          DSCORE_UNROLL
          for (int f = 0; f < L::kernel_h; f++)
            add_word(Rows::written(i, f), c, q, columns, taps[f][Of::phase(c)][word]);
        }
        if (Of::paired && i > 0) add_pair(i, c, q, Of::begin(c, Of::whole));
      }
    DSCORE_UNROLL
    for (int offset = 0; offset < held; offset++)
      DSCORE_UNROLL
      for (int q = 0; q < fours; q++) before[offset][q] = row[offset][q];
  }
  // Two columns of the row before and of this one.
  __device__ void add_pair(int i, int c, int q, int offset) {
    Word columns[4] = {column(before, offset, q), column(before, offset + 1, q),
                       column(row, offset, q), column(row, offset + 1, q)};
    transpose_bytes(columns);
    DSCORE_UNROLL
    for (int f = 1; f < L::kernel_h; f++)
      if (Of::ends_pair(f))
        add_word(Rows::written(i, f), c, q, columns, paired_taps[f / 2][Of::phase(c)]);
  }
  // Four channels of a word, to the sums of a written row and column, if that is the thread's.
  __device__ void add_word(int r, int c, int q, const Word (&columns)[4],
                           const Word (&of_taps)[t::vector]) {
    if (r < 0 || r >= t::thread_h) return;
    DSCORE_UNROLL
    for (int n = 0; n < 4; n++) {
      int32_t &sum = accumulators[r % live_rows][c][q * 4 + n];
      sum = dot4(columns[n], of_taps[q * 4 + n], sum);
    }
  }

  // Gives away local written row r, which is complete, and its registers to another.
  __device__ void finish(int r, const Arguments &args, const Points &points) {
    const int height = Images::out_height(s), width = Images::out_width(s);
    const bool there = height % t::thread_h == 0 || out_row + r < height;
    const int first = ((image * height + out_row + r) * width + out_column) * s.out_channels;
    Result *const out = static_cast<Result *>(args.out);
    DSCORE_UNROLL
    for (int c = 0; c < t::thread_w; c++) {
      int32_t *const done = accumulators[r % live_rows][c];
      if (there && (width % block_w == 0 || out_column + c < width)) {
        DSCORE_UNROLL
        for (int v = 0; v < t::vector; v += t::vector_out)
          if (s.out_channels % t::vector == 0 || channel + v < s.out_channels) {
            const int at = first + c * s.out_channels + channel + v;
            write_vector(out + at, Results::template results_of_biased<t::vector_out>(
                                       done + v, multipliers + v, points, at));
          }
      }
      begin_sums(done);
    }
  }
  // The sums of a written column begin with the biases.
  __device__ void begin_sums(int32_t *sums) const {
    DSCORE_UNROLL
    for (int v = 0; v < t::vector; v++) sums[v] = biases[v];
  }

  template <int Band>
  __device__ void walk(const Arguments &args, const Points &points) {
    DSCORE_UNROLL
    for (int i = Band * Tile::band_rows; i < least(rows, (Band + 1) * Tile::band_rows); i++) {
      read_row(i);
      add_row(i);
      DSCORE_UNROLL
      for (int n = 0; n < Rows::at_once; n++)
        if (const int r = Rows::complete(i) + n; r < least(Rows::complete(i + 1), t::thread_h))
          finish(r, args, points);
    }
  }

  __device__ void run(const Arguments &args, const KernelBefore &before) {
    before.wait_for_constants();
    const int32_t zero = Results::zero_of(args);
    int8_t *const table = lds + Block::table_at;
    if constexpr (!t::banked) Results::copy_table(args, table, thread, threads);
    Block::start_filters();
    const bool present = thread < t::used_threads && channel < s.out_channels &&
                         out_column < Images::out_width(s);
    // All that comes from memory is asked for before any of it is waited for; compilers subtract
    // points of each other as soon as they have read them, so these come last.
    if (present) load_channels(args);
    TableOfBanks banks;
    if constexpr (t::banked) banks.ask(args.table, thread);
    const auto raw_points = Results::read_points(args);
    Points points;
    Block::take_filters(before, [&] {
      points = points_in_lds(Results::points_of(args, raw_points), banks, table);
      if (present) begin(zero);
    }, zero);
    DSCORE_ROLLED
    do {
      Block::start_next();
      if (t::repeat > 1) place_lane();
      const bool live = present && out_row < Images::out_height(s);
      Block::each_band([&](auto constant) {
        if (live) this->template walk<decltype(constant)::value>(args, points);
      });
    } while (Block::go_to_next());
  }
  // Points of all results, whose table is in LDS; a table for each bank comes by registers.
  struct NoBanks {};
  using TableOfBanks = std::conditional_t<t::banked, BankedTable<threads>, NoBanks>;
  __device__ Points points_in_lds(dscore::Points points, const TableOfBanks &banks,
                                  int8_t *table) const {
    if constexpr (Results::table_bytes > 0) points.table = table;
    if constexpr (t::banked) {
      banks.put(reinterpret_cast<unsigned char *>(table), thread);
      return BankedPoints::of(points, thread);
    } else {
      return points;
    }
  }
  __device__ void begin(int32_t zero) {
    load_taps();
    correct_biases(zero);
    DSCORE_UNROLL
    for (int r = 0; r < live_rows; r++)
      DSCORE_UNROLL
      for (int c = 0; c < t::thread_w; c++) begin_sums(accumulators[r][c]);
  }
};

}  // namespace dscore
