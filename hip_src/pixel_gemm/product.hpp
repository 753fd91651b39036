// A product of pixels by filters on Hopper's warpgroups: pointwise layers of 16 bits in NCHW, and
// their input gradients, on planes of whole vectors. Rows of results are pixels, columns channels.
//
// A plane of a multiple of 8 pixels begins at a multiple of 16 bytes, so that 64 of its pixels in
// all summed channels of a step are one box. They lie across the sum in LDS, and the matrix units
// turn them themselves; filters they read there as well. Lanes turn results, and these leave by a
// box of 64 pixels in all channels of the tile.
//
// A warpgroup has a run of 64 pixels; a block's warpgroups have runs that follow one another, in
// one image or in two. A block takes `repeat` tiles of them, `blocks_p` apart, and its ring runs on
// from each to the next.
//
// Order of additions, as the reference backend has it: step by step, in the order of the summed
// channels in each.
#pragma once

#include "pixel_gemm/results.hpp"
#include "pixel_gemm/roles.hpp"

namespace dscore {

// Roles: as for products of filters by planes (plane_gemm/roles.hpp), of two channels side by side.
template <class T, class Tiling, class Roles_>
struct PixelProducts : KernelOn<T, typename Roles_::Arguments, Roles_::optional> {
  using Roles = Roles_;
  using Shape = typename Roles::Shape;
  using Arguments = typename Roles::Arguments;
  using t = PixelGemmShape<Tiling, Roles>;
  struct Maps {
    TensorMap planes, filters, out;
  };
  static constexpr int threads = t::threads, wavefront = t::wavefront, layout = t::layout;
  static constexpr int lds_bytes = t::lds_bytes, alignment = 16;
  static constexpr bool most_lds = true, reads_constants_first = true;
  static_assert(sizeof(T) == 2, "elements of 16 bits");

  static __host__ __device__ int area(const Shape &s) { return s.out_height * s.out_width; }
  // Runs of 64 pixels.
  static __host__ __device__ int of_plane(const Shape &s) {
    return ceil_div(area(s), warpgroup_rows);
  }
  static __host__ __device__ int tiles_n(const Shape &s) {
    return ceil_div(Roles::m(s), t::tile_n);
  }
  static __host__ __device__ int tiles_p(const Shape &s) {
    return ceil_div(s.batch * of_plane(s), t::groups);
  }
  static __host__ __device__ int blocks_p(const Shape &s) {
    return ceil_div(tiles_p(s), t::repeat);
  }
  // Tiles of channels fastest: blocks that read the same pixels follow one another.
  static __host__ __device__ int blocks(const Shape &s) { return tiles_n(s) * blocks_p(s); }

  static int make_maps(Maps &maps, const Arguments &args, const Shape &s) {
    const auto unsign = [](int size) { return static_cast<uint64_t>(size); };
    // The planes of so many channels, by boxes of 64 pixels in some of them.
    const auto map_planes = [&](TensorMap &map, const void *at, int channels, int box) {
      const uint64_t plane = unsign(area(s)), bytes = sizeof(T);
      return make_map<T>(map, at, BoxedTensor<3>{{plane, unsign(channels), unsign(s.batch)},
                                                 {plane * bytes, plane * unsign(channels) * bytes},
                                                 {t::row, static_cast<uint32_t>(box), 1}});
    };
    const int k = Roles::k(s), m = Roles::m(s);
    int code = map_planes(maps.planes, Roles::planes(args), k, t::step);
    if (!code) code = map_planes(maps.out, args.out, m, t::tile_n);
    if (code) return code;
    const uint64_t side = unsign(t::across ? m : k), rows = unsign(t::across ? k : m);
    return make_map<T>(maps.filters, Roles::filters(args),
                       BoxedMatrix{{side, rows}, {side * sizeof(T)}, {t::row, t::filter_box}});
  }

  const Shape &s;
  const Maps &maps;
  int thread, group, block_p, first_n, steps;
  unsigned char *lds;
  TransferBarrier *full, *empty;

  __device__ PixelProducts(const Arguments &, const Shape &shape, const Maps &maps_)
      : s(shape), maps(maps_), thread(thread_number()),
        group(of_wavefront(thread / warpgroup_threads)), block_p(blockIdx.x / tiles_n(shape)),
        first_n(blockIdx.x % tiles_n(shape) * t::tile_n),
        steps(ceil_div(Roles::k(shape), t::step)),
        lds(block_lds<unsigned char, lds_bytes, swizzled_tile>()),
        full(reinterpret_cast<TransferBarrier *>(lds + t::barriers_at)), empty(full + t::stages) {
    if (group == t::groups && one_of_wavefront()) {
      prefetch_map(maps.planes);
      prefetch_map(maps.filters);
      prefetch_map(maps.out);
      prepare_barriers(full, t::stages, 1);
      prepare_barriers(empty, t::stages, t::groups);
    }
    __syncthreads();
  }

  // The planes of all first tiles, and all filters.
  static constexpr bool works_ahead = true;
  static __device__ void fetch_ahead(const Arguments &args, const Shape &s) {
    const int runs = blocks_p(s) * t::groups, k = Roles::k(s);
    const int images = least(s.batch, ceil_div(runs, of_plane(s)));
    prefetch_share<T>(Roles::planes(args), rows_ahead<T>(images * k, area(s)) * area(s), blocks(s));
    prefetch_share<T>(Roles::filters(args), Roles::m(s) * k, blocks(s));
    prefetch_channels<typename Roles::Results>(args, Roles::m(s), blocks(s));
  }

  // Of the `run`-th 64 pixels of all images.
  __device__ int image_of(int run) const { return run / of_plane(s); }
  __device__ int pixel_of(int run) const { return run % of_plane(s) * warpgroup_rows; }

  // Calls each(a tile's first run of pixels, whether it is the block's first tile).
  template <class Each>
  __device__ void each_tile(Each each) const {
    DSCORE_ROLLED
    for (int i = 0; i < t::repeat; i++)
      if (const int tile = block_p + i * blocks_p(s); t::repeat == 1 || tile < tiles_p(s))
        each(tile * t::groups, i == 0);
  }
  using Turn = RingTurn<t::stages>;
  __device__ unsigned char *planes_at(int stage) const { return lds + stage * t::stage_bytes; }
  __device__ unsigned char *filters_at(int stage, int step) const {
    return t::kept > 0 ? lds + t::kept_at + step * t::filter_bytes
                       : planes_at(stage) + t::plane_bytes;
  }

  // One thread: fills the ring, ahead of the warpgroups by as many steps as it has buffers. Filters
  // of the first buffers come first where they are kept, or planes are to be waited for.
  template <class Before>
  __device__ void copy_all(const Before &before) const {
    before.wait_for_constants();
    const bool filters_first = t::kept > 0 || before.behind;
    const int begun = filters_first ? least(steps, t::stages) : 0;
    DSCORE_ROLLED
    for (int step = 0; step < begun; step++) begin_step(step, step, true);
    before.wait_for_images();
    Turn turn;
    bool refilled = false;
    each_tile([&](int run, bool first) {
      DSCORE_ROLLED
      for (int step = 0; step < steps; step++) {
        if (refilled) wait_barrier(empty + turn.stage, turn.parity ^ 1);
        if (refilled || !first || !filters_first)
          begin_step(turn.stage, step, t::kept == 0 || first);
        copy_planes(turn.stage, step, run);
        turn.pass();
        refilled = refilled || turn.stage == 0;
      }
    });
  }
  // Says what a buffer waits for, and starts the copy of a step's filters, if they come.
  __device__ void begin_step(int stage, int step, bool filters) const {
    arrive_expecting(full + stage, t::plane_bytes + (filters ? t::filter_bytes : 0));
    if (!filters) return;
    unsigned char *to = filters_at(stage, step);
    const int summed = step * t::step;
    DSCORE_UNROLL
    for (int i = 0; i < t::filter_boxes; i++)
      load_box(full + stage, to + i * t::filter_box * swizzled_row, maps.filters,
               {(t::across ? first_n : summed) + i * t::row, t::across ? summed : first_n});
  }
  // What is past the plane, the last channel or the last image comes as zeros.
  __device__ void copy_planes(int stage, int step, int run) const {
    DSCORE_UNROLL
    for (int i = 0; i < t::groups; i++)
      load_box(full + stage, planes_at(stage) + i * t::group_bytes, maps.planes,
               {pixel_of(run + i), step * t::step, image_of(run + i)});
  }

  using Sums = float[t::tile_n / 2];
  // Summed channels of a step: where one has all of them, and a compiler knows how many, no more
  // than there are.
  __device__ int depth_end() const {
    return std::is_empty_v<Shape> && steps == 1 ? Roles::k(s) : t::step;
  }
  // A step's products.
  __device__ void multiply(Sums &sums, int stage, int step) const {
    const LdsOperand pixels(planes_at(stage) + group * t::group_bytes);
    const LdsOperand filters(filters_at(stage, step), swizzled_tile, t::filter_box * swizzled_row);
    order_products();
    DSCORE_UNROLL
    for (int k = 0; k < depth_end(); k += t::depth)
      multiply_lds<T, t::tile_n, true, t::across>(
          sums, pixels.further(operand_place<T>(true, t::step, k)),
          filters.further(operand_place<T>(t::across, t::filter_box, k)), step + k > 0);
    commit_products();
  }
  __device__ void release(int stage) const {
    if (thread % warpgroup_threads == 0) arrive(empty + stage);
  }
  // The sums of a tile's steps, of which the next one's products begin before the last one's end.
  __device__ void accumulate(Sums &sums, Turn &turn) const {
    const auto previous = [&] { return turn.stage == 0 ? t::stages - 1 : turn.stage - 1; };
    DSCORE_ROLLED
    for (int step = 0; step < steps; step++) {
      if (t::stages == 1 && step > 0) {
        wait_products<0>();
        release(0);
      }
      wait_barrier(full + turn.stage, turn.parity);
      multiply(sums, turn.stage, step);
      if (t::stages > 1 && step > 0) {
        wait_products<1>();
        release(previous());
      }
      turn.pass();
    }
    wait_products<0>();
    release(previous());
  }

  template <class Before>
  __device__ void multiply_all(const Arguments &args, const Before &before) const {
    before.wait_for_constants();
    before.wait_for_images();
    const PixelResults<PixelProducts> results(*this, args);
    Turn turn;
    each_tile([&](int run, bool first) {
      Sums sums;
      accumulate(sums, turn);
      results.finish(sums, run + group, first);
    });
    if (thread % warpgroup_threads == 0) wait_stores<0>();
  }

  template <class Before = NothingBefore>
  __device__ void run(const Arguments &args, const Before &before = {}) {
    if (group < t::groups) multiply_all(args, before);
    else if (one_of_wavefront()) copy_all(before);
  }
};

}  // namespace dscore
