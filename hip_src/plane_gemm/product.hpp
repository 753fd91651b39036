// A product of filters by planes on Hopper's warpgroups: pointwise layers of 16 bits in NCHW, and
// their input gradients. Rows of results are channels, columns the pixels of a plane, as they lie.
//
// One wavefront brings boxes of planes and filters to a ring of LDS buffers; warpgroups, of 64
// channels each, multiply them. Planes lie across the sum there, which the matrix units take as
// they are. Rows of a tensor's map must be multiples of 16 bytes, and a plane of 7 x 7 pixels is
// none; `apart` of them are. So a row of the map is `apart` planes, and a box has every `apart`-th
// plane. It begins at a multiple of 16 bytes, too: planes that do not are moved to one in LDS, by a
// warpgroup of their own. What a box has beyond its planes makes results that nobody stores.
// So the summed elements of an instruction are not neighbours. Filters come in that order from LDS
// to registers.
//
// Order of additions, as the reference backend has it: step by step; in each the elements of
// 8 * apart planes after the other; of these those of 0, apart, 2 apart ..., then 1, apart + 1 ...
#pragma once

#include "plane_gemm/filters.hpp"
#include "plane_gemm/move.hpp"
#include "plane_gemm/results.hpp"

namespace dscore {

// Roles: rows m and summed elements k of a problem's product; the planes that are summed, the
// filters, whether these lie along the sum; `results_of` sums side by side.
template <class T, class Tiling, class Roles_>
struct PlaneProducts : KernelOn<T, typename Roles_::Arguments, Roles_::optional> {
  using Roles = Roles_;
  using Shape = typename Roles::Shape;
  using Arguments = typename Roles::Arguments;
  using t = PlaneGemmShape<Tiling, Roles>;
  struct Maps {
    TensorMap planes, filters, out;
  };
  static constexpr int threads = t::threads, wavefront = t::wavefront, layout = t::layout;
  static constexpr int multiplying = t::consumers / wavefront;  // wavefronts
  static constexpr int lds_bytes = t::lds_bytes, alignment = 16;
  static_assert(sizeof(T) == 2, "elements of 16 bits");

  static __host__ __device__ int area(const Shape &s) { return s.out_height * s.out_width; }
  static __host__ __device__ int tiles_m(const Shape &s) {
    return ceil_div(Roles::m(s), t::tile_m);
  }
  static __host__ __device__ int of_plane(const Shape &s) { return ceil_div(area(s), t::tile_p); }
  static __host__ __device__ int tiles_p(const Shape &s) {
    return ceil_div(s.batch, t::images) * of_plane(s);
  }
  static __host__ __device__ int blocks_p(const Shape &s) {
    return ceil_div(tiles_p(s), t::repeat);
  }
  static __host__ __device__ int all_steps(const Shape &s) {
    return ceil_div(Roles::k(s), t::step);
  }
  // Tiles of channels fastest: blocks that read the same planes follow one another.
  static __host__ __device__ int blocks(const Shape &s) { return tiles_m(s) * blocks_p(s); }

  static int make_maps(Maps &maps, const Arguments &args, const Shape &s) {
    const auto unsign = [](int size) { return static_cast<uint64_t>(size); };
    const int k = Roles::k(s), m = Roles::m(s);
    const uint64_t plane = unsign(area(s)), row = plane * t::apart, bytes = sizeof(T);
    int code = make_map<T>(
        maps.planes, Roles::planes(args),
        BoxedTensor<3>{{row, unsign(k / t::apart), unsign(s.batch)},
                       {row * bytes, plane * unsign(k) * bytes},
                       {t::row, t::box_rows, t::images}});
    if constexpr (t::boxed)
      if (!code)
        code = make_map<T>(maps.out, args.out,
                           BoxedTensor<3, t::exchanged>{
                               {plane, unsign(m), unsign(s.batch)},
                               {plane * bytes, plane * unsign(m) * bytes},
                               {t::result_pixels, warpgroup_rows, 1}});
    if (code) return code;
    const uint64_t side = unsign(Roles::along ? k : m), rows = unsign(Roles::along ? m : k);
    return make_map<T>(maps.filters, Roles::filters(args),
                       BoxedMatrix{{side, rows}, {side * bytes}, {t::row, t::filter_box}});
  }

  const Shape &s;
  const Maps &maps;
  int thread, wave, block_p, first_m, steps;
  unsigned char *lds;
  TransferBarrier *full, *empty, *moved;

  __device__ PlaneProducts(const Arguments &, const Shape &shape, const Maps &maps_)
      : s(shape), maps(maps_), thread(thread_number()),
        wave(of_wavefront(thread / wavefront)), block_p(blockIdx.x / tiles_m(shape)),
        first_m(blockIdx.x % tiles_m(shape) * t::tile_m), steps(all_steps(shape)),
        lds(block_lds<unsigned char, lds_bytes, swizzled_tile>()),
        full(reinterpret_cast<TransferBarrier *>(lds + t::barriers_at)), empty(full + t::stages),
        moved(empty + t::stages) {
    if (wave == multiplying && one_of_wavefront()) {
      prefetch_map(maps.planes);
      prefetch_map(maps.filters);
      if (t::boxed) prefetch_map(maps.out);
      prepare_barriers(full, t::stages, 1);
      prepare_barriers(empty, t::stages, t::groups);
      if (t::moved) prepare_barriers(moved, t::stages, t::movers);
    }
    __syncthreads();
  }

  // The planes of all first tiles, and all filters.
  static constexpr bool works_ahead = true;
  static __device__ void fetch_ahead(const Arguments &args, const Shape &s) {
    const int images = least(s.batch, ceil_div(blocks_p(s), of_plane(s)) * t::images);
    const int k = Roles::k(s);
    prefetch_share<T>(Roles::planes(args), rows_ahead<T>(images * k, area(s)) * area(s), blocks(s));
    prefetch_share<T>(Roles::filters(args), Roles::m(s) * k, blocks(s));
    prefetch_channels<typename Roles::Results>(args, Roles::m(s), blocks(s));
  }

  // Calls each(a tile's first image, its first pixel, whether it is the block's first tile).
  template <class Each>
  __device__ void each_tile(Each each) const {
    DSCORE_ROLLED
    for (int i = 0; i < t::repeat; i++) {
      const int tile = block_p + i * blocks_p(s);
      if (t::repeat > 1 && tile >= tiles_p(s)) return;
      if constexpr (t::whole) each(tile * t::images, 0, i == 0);
      else each(tile / of_plane(s) * t::images, tile % of_plane(s) * t::tile_p, i == 0);
    }
  }
  using Turn = RingTurn<t::stages>;
  __device__ unsigned char *planes_at(int stage) const { return lds + stage * t::stage_bytes; }
  __device__ unsigned char *filters_at(int stage, int step) const {
    return t::kept > 0 ? lds + t::kept_at + step * t::filter_bytes
                       : planes_at(stage) + t::plane_bytes;
  }

  // One thread: fills the ring, ahead of the warpgroups by as many steps as it has buffers.
  __device__ void copy_all() const {
    Turn turn;
    bool refilled = false;
    each_tile([&](int image, int pixel, bool first) {
      DSCORE_ROLLED
      for (int step = 0; step < steps; step++) {
        if (refilled) wait_barrier(empty + turn.stage, turn.parity ^ 1);
        const bool filters = t::kept == 0 || first;
        TransferBarrier *barrier = full + turn.stage;
        arrive_expecting(barrier, t::plane_bytes + (filters ? t::filter_bytes : 0));
        copy_planes(barrier, planes_at(turn.stage), image, pixel, step);
        if (filters) copy_filters(barrier, filters_at(turn.stage, step), step);
        turn.pass();
        refilled = refilled || turn.stage == 0;
      }
    });
  }
  __device__ void copy_planes(TransferBarrier *barrier, unsigned char *to, int image, int pixel,
                              int step) const {
    DSCORE_UNROLL
    for (int i = 0; i < t::columns * t::apart; i++) {
      const int first = (i % t::apart * area(s) + pixel) / 8 * 8 + i / t::apart * t::row;
      load_box(barrier, to + i * t::box_bytes, maps.planes, {first, step * t::box_rows, image});
    }
  }
  // Moves the planes of each step to the beginning of their rows in LDS.
  __device__ void move_all() const {
    Turn turn;
    each_tile([&](int, int, bool) {
      DSCORE_ROLLED
      for (int step = 0; step < steps; step++) {
        wait_barrier(full + turn.stage, turn.parity);
        move_planes<t>(planes_at(turn.stage), area(s), thread - t::movers_at);
        let_engine_see_lds();
        wavefront_barrier();
        if (thread % t::wavefront == 0) arrive(moved + turn.stage);
        turn.pass();
      }
    });
  }
  __device__ void copy_filters(TransferBarrier *barrier, unsigned char *to, int step) const {
    DSCORE_UNROLL
    for (int i = 0; i < t::filter_boxes; i++) {
      const int side = (Roles::along ? step * t::step : first_m) + i * t::row;
      load_box(barrier, to + i * t::filter_box * swizzled_row, maps.filters,
               {side, Roles::along ? first_m : step * t::step});
    }
  }

  // A step's products.
  using Sums = float[t::images][t::tile_p / 2];
  __device__ void multiply(Sums &sums, const unsigned char *planes, const unsigned char *filters,
                           bool further) const {
    constexpr int eights = t::box_rows / 8;
    PlaneOperands<t> words[eights];
    DSCORE_UNROLL
    for (int eight = 0; eight < eights; eight++)
      read_filters<T, t>(words[eight], filters, eight, thread);
    order_products();
    DSCORE_UNROLL
    for (int eight = 0; eight < eights; eight++)
      DSCORE_UNROLL
      for (int i = 0; i < t::apart / 2; i++)
        DSCORE_UNROLL
        for (int image = 0; image < t::images; image++) {
          const LdsOperand b(planes + 2 * i * t::box_bytes + image * t::box_rows * swizzled_row +
                                 eight * swizzled_tile, t::box_bytes, t::column_bytes);
          multiply_registers<T, t::tile_p, true>(sums[image], words[eight][i], b,
                                                 further || eight + i > 0);
        }
    commit_products();
    wait_products<0>();
  }

  __device__ void multiply_all(const Arguments &args) const {
    const PlaneResults<PlaneProducts> results(*this, args);
    Turn turn;
    each_tile([&](int image, int pixel, bool first) {
      Sums sums;
      DSCORE_ROLLED
      for (int step = 0; step < steps; step++) {
        wait_barrier(full + turn.stage, turn.parity);
        if (t::moved) wait_barrier(moved + turn.stage, turn.parity);
        multiply(sums, planes_at(turn.stage), filters_at(turn.stage, step), step > 0);
        if (thread % warpgroup_threads == 0) arrive(empty + turn.stage);
        turn.pass();
      }
      results.finish(sums, image, pixel, first);
    });
    if (t::by_engine && thread % warpgroup_threads == 0) wait_stores<0>();
  }

  __device__ void run(const Arguments &args) {
    if (wave < multiplying) multiply_all(args);
    else if (t::moved && wave > multiplying) move_all();
    else if (one_of_wavefront()) copy_all();
  }
};

}  // namespace dscore
