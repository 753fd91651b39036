// The tiling of channel vectors, and its block: which channels, rows and columns it takes of which
// image, and how these come to its LDS.
#pragma once

#include "channel_vectors/tile.hpp"
#include "support/banked_table.hpp"

namespace dscore {

// Repeat: tiles of rows, of one image or of the next, that a block takes one after the other.
// CopyX, CopyW: elements of the image and of the filters that come to LDS as one; VectorOut:
// results that leave as one. LeadH, LeadW: of the input gradient's axes. They depend on the image,
// so that a kernel for any sizes has them as arguments. Banked: whether a table of results lies in
// each bank of LDS.
template <int Vector, int LanesC, int ThreadH, int ThreadW, int LanesH, int LanesW, int Bands,
          int Repeat, bool Ahead, bool Diagonal, bool Banked, int Multiplier, int CopyX, int CopyW,
          int VectorOut, int Wavefront, int LeadH = 0, int LeadW = 0>
struct ChannelVectorsTiling {
  static constexpr int vector = Vector, lanes_c = LanesC, thread_h = ThreadH, thread_w = ThreadW;
  static constexpr int lanes_h = LanesH, lanes_w = LanesW, multiplier = Multiplier;
  static constexpr int copy_x = CopyX, copy_w = CopyW, vector_out = VectorOut;
  static constexpr int wavefront = Wavefront, lead_h = LeadH, lead_w = LeadW, bands = Bands;
  static constexpr int repeat = Repeat, buffers = Repeat > 1 ? 2 : 1;  // of LDS, for tiles
  static constexpr bool ahead = Ahead, diagonal = Diagonal, banked = Banked;
  static constexpr int channels = Vector * LanesC;  // of a block, written ones
  // On matrix units a wavefront takes two of the segments, else a lane takes one.
  static constexpr int segments = LanesW * LanesH;
  static constexpr int used_threads =
      LanesC * (Diagonal ? Wavefront * ceil_div(segments, 2) : segments);
  static constexpr int threads = ceil_div(used_threads, Wavefront) * Wavefront;
  static constexpr int walked_channels = channels_under(channels, Multiplier);
  // Elements of LDS from a pixel to the next: for matrix units an odd number of vectors, so that
  // the eight rows of a fragment lie in banks of their own.
  static constexpr int pitch =
      walked_channels + (Diagonal && walked_channels / 8 % 2 == 0 ? 8 : 0);
};

template <class T, class t, class View, class Shape, class Results>
struct ChannelBlock : View::template Kernel<T, Results> {
  using Arguments = typename Results::Arguments;
  using L = typename View::L;
  using Rows = typename View::Rows;
  using Columns = typename View::Columns;
  using Images = typename View::template Images<Shape>;
  static constexpr int layout = DSCORE_NHWC;
  static constexpr int block_h = t::lanes_h * t::thread_h, block_w = t::lanes_w * t::thread_w;
  static constexpr int tile_w = Columns::under(block_w);
  using Tile = ChannelTile<T, t::lanes_h, Rows::step(t::thread_h), Rows::under(t::thread_h),
                           t::bands, tile_w, t::walked_channels, t::copy_x, t::threads, t::pitch>;
  static constexpr int filters = t::channels * L::taps;  // elements
  static constexpr int whole = 16 / static_cast<int>(sizeof(T));
  // LDS holds a tile, or two, and behind these the filters and a table of results.
  static constexpr int buffer = ceil_div(Tile::elements, whole) * whole;
  static constexpr int filters_at = t::buffers * buffer;
  static constexpr int table_at = filters_at + ceil_div(filters, whole) * whole;
  static_assert(!t::banked || Results::table_bytes > 0, "a table to be copied");
  static constexpr int table_bytes = t::banked ? banked_table_bytes : Results::table_bytes;
  static constexpr int lds_elements = table_at + table_bytes / int{sizeof(T)};
  static constexpr int lds_bytes = lds_elements * int{sizeof(T)};
  static constexpr int alignment =
      greatest(greatest(t::copy_x, t::copy_w), t::vector_out) * int{sizeof(T)};
  // Vectors of 16 bytes pass the cache by. In float32 pointwise kernels, which layers of networks
  // stand between, do not ask for the most either.
  static constexpr bool most_lds = sizeof(T) < sizeof(float) && t::copy_x * int{sizeof(T)} == 16;

  static __host__ __device__ int channel_tiles(const Shape &s) {
    return ceil_div(s.out_channels, t::channels);
  }
  static __host__ __device__ int column_tiles(const Shape &s) {
    return ceil_div(Images::out_width(s), block_w);
  }
  static __host__ __device__ int row_tiles(const Shape &s) {
    return ceil_div(Images::out_height(s), block_h);
  }
  // Tiles of rows of all images.
  static __host__ __device__ int units(const Shape &s) { return row_tiles(s) * s.batch; }
  // Channel tile fastest, then column tile, then as many units as a block takes.
  static __host__ __device__ int blocks(const Shape &s) {
    return channel_tiles(s) * column_tiles(s) * ceil_div(units(s), t::repeat);
  }

  const Shape &s;
  const T *w, *images;
  T *out, *lds, *pixels, *other;  // of LDS: the tile at hand, and where the next one comes
  int thread, first_channel, unit, image, top, left;
  Tile tile;

  __device__ ChannelBlock(const Arguments &args, const Shape &shape)
      : s(shape), w(static_cast<const T *>(args.w)), out(static_cast<T *>(args.out)),
        thread(threadIdx.x) {
    int block = blockIdx.x;
    first_channel = block % channel_tiles(s) * t::channels;
    block /= channel_tiles(s);
    left = block % column_tiles(s) * block_w;
    block /= column_tiles(s);
    unit = block * t::repeat;
    images = static_cast<const T *>(View::walked(args));
    tile.height = Images::in_height(s), tile.width = Images::in_width(s);
    tile.channels = s.out_channels / t::multiplier;
    tile.column = Columns::step(left) + Columns::first(s.pad_left);
    tile.channel = first_channel / t::multiplier;
    place();
    pixels = lds = block_lds<T, lds_elements>();
    other = lds + filters_at - buffer;
    if constexpr (t::ahead) {
      tile.prefetch(thread);
      prefetch_filters();
    }
  }

  // Where the unit lies.
  __device__ void place() {
    image = unit / row_tiles(s), top = unit % row_tiles(s) * block_h;
    tile.image = images + image * (tile.height * tile.width * tile.channels);
    tile.row = Rows::step(top) + Rows::first(s.pad_top);
  }
  // Whether it is one of the block's behind its first.
  __device__ bool is_next(int of) const { return of % t::repeat != 0 && of < units(s); }

  // Of the filters what fills whole vectors, where these begin with one.
  __device__ void prefetch_filters() const {
    const int first = ceil_div(first_channel * L::taps, whole) * whole;
    const int end = least(first_channel + t::channels, s.out_channels) * L::taps;
    if (alignment == 16 && thread == t::threads - 1)
      prefetch_span(w + first, (end - first) / whole * whole);
  }

  static constexpr bool reads_constants_first = true;
  // Starts the load of the filters, and of whatever else was asked for before.
  __device__ void start_filters() const {
    start_load_filters<T, filters, t::copy_w, t::threads>(
        lds + filters_at, w + first_channel * L::taps,
        (s.out_channels - first_channel) * L::taps, thread);
    commit_copies();
  }
  // Calls take() once the filters have come, and starts the load of the first tile. Behind another
  // kernel, which is making the image, the filters are first; else both are on the way by then.
  template <class Take>
  __device__ void take_filters(const KernelBefore &before, const Take &take, int32_t zero = 0) {
    if (!before.behind) start_first_tile(zero);
    wait_copies_but<t::bands>(before.behind ? 0 : t::bands);
    __syncthreads();
    take();
    if (!before.behind) return;
    before.wait_for_images();
    start_first_tile(zero);
  }
  // Zero: of bytes, what is outside the image. It comes from memory as the image does, so that
  // nothing is made of it before it must be.
  __device__ void start_first_tile(int32_t zero) {
    const auto fill = [&] { tile.fill = static_cast<uint32_t>(zero & 0xFF) * 0x01010101u; };
    if constexpr (t::ahead) admit_next_kernel();
    if constexpr (Tile::filled && !fills_later) fill();
    start_tile(true);
    if constexpr (Tile::filled && fills_later) {
      fill();
      tile.fill_outside(lds, thread);
    }
  }
  // Starts the load of the tile to `pixels`, band by band; of none past the block's last.
  __device__ void start_tile(bool there) const {
    DSCORE_UNROLL
    for (int band = 0; band < t::bands; band++) {
      if (there) tile.start_load(pixels, band, thread);
      commit_copies();
    }
  }
  // Behind a tile's bands are those of the next one.
  __device__ void wait_for(int band) const {
    constexpr int behind = (t::buffers - 1) * t::bands;
    wait_copies_but<behind + t::bands - 1>(behind + t::bands - 1 - band);
    __syncthreads();
  }
  // Calls take(band) for each band that has come, which it knows as a constant: compilers do not
  // unroll a loop over that many instructions, and keep arrays in memory then.
  template <int Band = 0, class Take>
  __device__ void each_band(const Take &take) const {
    wait_for(Band);
    take(std::integral_constant<int, Band>{});
    if constexpr (Band + 1 < t::bands) each_band<Band + 1>(take);
  }
  // Of a block that takes several tiles: starts the load of the next one, before the one at hand is
  // worked on; goes to the next one, if there is one, and says so.
  __device__ void start_next() {
    if constexpr (t::repeat == 1) return;
    ChannelBlock next = *this;
    next.unit++, next.pixels = other, next.place();
    const bool there = is_next(next.unit);
    next.start_tile(there);
    if constexpr (Tile::filled)
      if (there) next.tile.fill_outside(next.pixels, thread);
  }
  __device__ bool go_to_next() {
    if constexpr (t::repeat == 1) return false;
    __syncthreads();
    T *const free = pixels;
    const bool there = is_next(unit + 1);
    unit++, pixels = other, other = free, place();
    return there;
  }
};

}  // namespace dscore
