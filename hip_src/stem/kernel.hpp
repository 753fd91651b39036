// The first layer of a network: a dense convolution of images of up to four channels, which lie
// side by side, on matrix units. A block brings the pixels under its tile to LDS once, each with
// four channels, and its filters; each wavefront keeps filters in registers, and multiplies pieces
// of 16 pixels of a row one after the other. Blocks have a tile each, or several.
//
// Order of additions of 16 bits: rows of the filter, in these taps, of these channels, all
// ascending; then bias. Of bytes sums are exact.
#pragma once

#include "stem/lanes.hpp"
#include "stem/pixels.hpp"
#include "support/bulk_copy.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape_, class Epilogue>
struct Stem : ConvKernel<T, Epilogue> {
  using Shape = Shape_;
  using Given = typename Epilogue::Given;
  using t = StemShape<T, Tiling, Layer, Given>;
  using Arguments = typename Epilogue::Arguments;
  using Sum = typename t::Sum;
  using Result = typename Epilogue::Result;
  using Columns = StemColumns<t, Result>;
  using Lanes = StemLanes<T, t, Layer>;
  using Pixels = StemPixels<T, t, Layer, Shape, Given>;
  static constexpr int threads = t::threads, wavefront = t::wavefront;
  static constexpr int lds_bytes = t::lds_bytes + Epilogue::table_bytes;
  static constexpr int layout = DSCORE_NHWC, alignment = 16;
  static constexpr bool most_lds = true;

  static __host__ __device__ int channel_tiles(const Shape &s) {
    return ceil_div(s.out_channels, t::tile_n);
  }
  static __host__ __device__ int column_tiles(const Shape &s) {
    return ceil_div(s.out_width, t::tile_w);
  }
  static __host__ __device__ int row_tiles(const Shape &s) {
    return ceil_div(s.out_height, t::tile_h);
  }
  static __host__ __device__ int row_blocks(const Shape &s) {
    return ceil_div(row_tiles(s), t::repeat);
  }
  // Channel tile fastest, then column tile, row tiles of a block, image.
  static __host__ __device__ int blocks(const Shape &s) {
    return channel_tiles(s) * column_tiles(s) * row_blocks(s) * s.batch;
  }
  static constexpr bool works_ahead = true;
  static __device__ void fetch_ahead(const Arguments &args, const Shape &s) {
    const int elements = s.batch * s.height * s.width * t::channels;
    prefetch_share<Given>(args.x, least(elements, most_ahead_bytes / t::given_size), blocks(s));
    prefetch_share<T>(args.w, s.out_channels * t::filter, blocks(s));
    prefetch_channels<Epilogue>(args, s.out_channels, blocks(s));
  }

  const Shape &s;
  int thread, lane, wave_p, tile_channel, first_channel, left, top, image;

  __device__ Stem(const Arguments &, const Shape &shape)
      : s(shape), thread(threadIdx.x), lane(threadIdx.x % t::wavefront) {
    const int wave = thread / t::wavefront;
    wave_p = wave % t::waves_p;
    int block = blockIdx.x;
    tile_channel = block % channel_tiles(s) * t::tile_n;
    first_channel = tile_channel + wave / t::waves_p * t::wave_n;
    block /= channel_tiles(s);
    left = block % column_tiles(s) * t::tile_w;
    block /= column_tiles(s);
    top = block % row_blocks(s) * t::repeat * t::tile_h;
    image = block / row_blocks(s);
  }

  // The filters of the tile as they lie in memory, zeros for those past the last.
  __device__ void copy_filters(T *lds, const T *w) const {
    const int there = (s.out_channels - tile_channel) * t::filter;
    DSCORE_UNROLL_FEW
    for (int at = thread * 8; at < t::filters; at += threads * 8)
      copy_async<8 * t::size>(lds + at, w + tile_channel * t::filter + at, at < there);
  }
  __device__ void read_filters(typename Lanes::Words &words, const Lanes &lanes,
                               const T *lds) const {
    DSCORE_UNROLL
    for (int n = 0; n < t::columns; n++) {
      const int channel = first_channel - tile_channel + Columns::channel(n, lanes.g);
      DSCORE_UNROLL
      for (int step = 0; step < t::steps; step++)
        DSCORE_UNROLL
        for (int half = 0; half < 2; half++)
          words[step][n][half] =
              lanes.filter_word(lds + channel * t::filter, step * 2 + half);
    }
  }

  // What results of the lane's channels need beside their sums.
  using OfChannels = typename Epilogue::template ChannelsOf<Columns::run>;
  __device__ bool wanted(int channel) const {
    return s.out_channels % t::tile_n == 0 || channel < s.out_channels;
  }
  __device__ void read_channels(OfChannels (&channels)[Columns::runs],
                                const Arguments &args) const {
    DSCORE_UNROLL
    for (int q = 0; q < Columns::runs; q++) {
      const int channel = first_channel + Columns::run_channel(q, lane);
      channels[q] = {};
      if (wanted(channel))
        channels[q] = Epilogue::template channels_of<Columns::run>(args, channel);
    }
  }
  static __device__ int zero_of(const Arguments &args) {
    if constexpr (t::exact) return Epilogue::zero_of(args);
    else return 0;
  }
  static __device__ typename Epilogue::PointsOf points_of(const Arguments &args) {
    if constexpr (t::exact) return Epilogue::points_of(args);
    else return {};
  }
  static __device__ Pack<Result, Columns::run> results(const Sum *values, const Arguments &args,
                                                       const OfChannels &channels,
                                                       const typename Epilogue::PointsOf &points,
                                                       int at) {
    if constexpr (t::exact)
      return Epilogue::template results_of_biased<Columns::run>(values, channels.multipliers,
                                                                points, at);
    else return Epilogue::template apply_each<Columns::run>(values, args, channels.at, at);
  }
  // What a lane's sums begin with: of bytes biases, which wrap, less what x's zero point adds.
  static __device__ void begin(Sum (&first)[t::columns * 2],
                               const OfChannels (&channels)[Columns::runs]) {
    if constexpr (t::exact) {
      DSCORE_UNROLL
      for (int i = 0; i < t::columns * 2; i++)
        first[i] = static_cast<Sum>(
            static_cast<Word>(channels[i / Columns::run].biases[i % Columns::run]) -
            static_cast<Word>(first[i]));
    }
  }
  // The lane's sums of two pixels of a piece.
  __device__ void store(const Arguments &args, const Sum *sums, int row, int column,
                        const OfChannels (&channels)[Columns::runs],
                        const typename Epilogue::PointsOf &points) const {
    DSCORE_UNROLL
    for (int half = 0; half < 2; half++) {
      const int x = column + half * 8 + lane / 4;
      if (s.out_width % 16 != 0 && x >= s.out_width) continue;
      const int pixel = (image * s.out_height + row) * s.out_width + x;
      DSCORE_UNROLL
      for (int q = 0; q < Columns::runs; q++) {
        const int channel = first_channel + Columns::run_channel(q, lane);
        if (!wanted(channel)) continue;
        Sum values[Columns::run];
        DSCORE_UNROLL
        for (int e = 0; e < Columns::run; e++) values[e] = sums[Columns::index(half, q, e)];
        const int at = pixel * s.out_channels + channel;
        write_vector(static_cast<Result *>(args.out) + at,
                     results(values, args, channels[q], points, at));
      }
    }
  }

  // What results need beside a lane's sums, and what these begin with.
  struct Beside {
    OfChannels channels[Columns::runs];
    typename Epilogue::PointsOf points;
    Sum first[t::columns * 2];
  };
  // The wavefront's pieces of a tile in LDS whose first row is `tile_top`.
  __device__ void multiply(const Arguments &args, const char *lds, const Lanes &lanes,
                           const typename Lanes::Words &words, const Beside &beside,
                           int tile_top) const {
    DSCORE_ROLLED
    for (int piece = wave_p; piece < t::pieces; piece += t::waves_p) {
      const int row = piece / t::pieces_w, column = piece % t::pieces_w * 16;
      if (s.out_height % t::tile_h != 0 && tile_top + row >= s.out_height) continue;
      if (s.out_width % t::tile_w != 0 && left + column >= s.out_width) continue;
      Sum sums[t::columns * 4];
      DSCORE_UNROLL
      for (int i = 0; i < t::columns * 4; i++) sums[i] = beside.first[i / 4 * 2 + i % 2];
      lanes.multiply(sums, words,
                     lds + row * Layer::stride_h * t::row_bytes +
                         column * Layer::stride_w / t::unit * t::pitch);
      store(args, sums, tile_top + row, left + column, beside.channels, beside.points);
    }
  }

  __device__ void run(const Arguments &args) {
    char *const lds = block_lds<char, lds_bytes>();
    T *const filters = reinterpret_cast<T *>(lds + t::filters_at);
    Pixels pixels(static_cast<const Given *>(args.x), s, image, top * Layer::stride_h - s.pad_top,
                  left * Layer::stride_w - s.pad_left);
    const Lanes lanes(lane, pixels.before);
    Beside beside;
    const int8_t *table = nullptr;
    if constexpr (Epilogue::table_bytes > 0)
      table = Epilogue::copy_table(args, lds + t::lds_bytes, thread, threads);
    copy_filters(filters, static_cast<const T *>(args.w));
    commit_copies();
    typename Pixels::Units units;
    pixels.read(units, thread);
    const int zero = zero_of(args);
    if constexpr (Epilogue::of_floats) pixels.floats = Epilogue::floats_of(args);
    read_channels(beside.channels, args);
    // The last that is asked for: compilers subtract points of each other, and so wait for them.
    beside.points = points_of(args);
    if constexpr (Epilogue::table_bytes > 0) beside.points.table = table;
    pixels.fill = static_cast<Word>(zero & 0xFF) * 0x01010101u;
    pixels.stage(lds, units, thread);
    wait_copies<0>();
    __syncthreads();

    typename Lanes::Words words;
    read_filters(words, lanes, filters);
    lanes.sum_filters(beside.first, words, zero);
    begin(beside.first, beside.channels);
    const int tiles = least(t::repeat, row_tiles(s) - top / t::tile_h);
    DSCORE_ROLLED
    for (int tile = 0; tile < tiles; tile++) {
      const bool more = t::repeat > 1 && tile + 1 < tiles;
      pixels.row += t::tile_h * Layer::stride_h;
      if (more) pixels.read(units, thread);
      multiply(args, lds + tile % 2 * t::tile_bytes, lanes, words, beside,
               top + tile * t::tile_h);
      if (!more) break;
      pixels.write(lds + (tile + 1) % 2 * t::tile_bytes, units, thread);
      __syncthreads();
    }
  }
};

}  // namespace dscore
