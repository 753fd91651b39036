// A product of whole images by filters on Hopper's warpgroups: pointwise layers of 16 bits in NCHW
// on small planes, and their input gradients. Rows of results are pixels, columns are channels.
//
// The planes of an image follow one another in memory, whatever their size: those of a step of the
// summed channels come to LDS as one span, and those of a block's results leave as one. So a plane
// of 7 x 7 pixels, which no map of a tensor takes, needs no moving: to the map an image is one row
// after the other of `run` elements. Lanes read pixels from LDS to registers, from which matrix
// units take rows; filters they read from LDS by themselves.
//
// Where planes are in `parts`, a block has one of an image, which comes by boxes of every second
// plane (image_gemm/planes.hpp): all channels of results then need its pixels but once.
//
// A block takes `repeat` tiles of images, and its ring runs on from each to the next. One wavefront
// brings boxes of images and filters to that ring of LDS buffers. A warpgroup has 64 pixels of a
// block's images or several times as many; `slices` of them share the steps. The blocks of a
// cluster share them, too: each image is then read once for more channels (image_gemm/shared.hpp).
//
// Order of additions, as the reference backend has it: step by step, in the order of the summed
// channels in each. Of a block's steps, which follow one another, a slice has every slices-th; then
// the slices' sums, ascending; then those of a cluster's blocks, ascending.
#pragma once

#include "image_gemm/planes.hpp"
#include "image_gemm/results.hpp"
#include "image_gemm/shared.hpp"
#include "plane_gemm/roles.hpp"
#include "warpgroup_gemm/shape.hpp"

namespace dscore {

// Roles: as for products of filters by planes (plane_gemm/roles.hpp).
template <class T, class Tiling, class Roles_>
struct ImageProducts : KernelOn<T, typename Roles_::Arguments, Roles_::optional> {
  using Roles = Roles_;
  using Shape = typename Roles::Shape;
  using Arguments = typename Roles::Arguments;
  using t = ImageGemmShape<Tiling, Roles>;
  using Planes = ImagePlanes<T, t>;
  using Pixels = typename Planes::Pixels;
  struct Maps {
    TensorMap planes, filters;
  };
  static constexpr int threads = t::threads, wavefront = t::wavefront, layout = t::layout;
  static constexpr int lds_bytes = t::lds_bytes, alignment = 16, cluster = t::cluster;
  static_assert(sizeof(T) == 2, "elements of 16 bits");

  static __host__ __device__ int tiles_n(const Shape &s) {
    return ceil_div(Roles::m(s), t::tile_n);
  }
  static __host__ __device__ int all_steps(const Shape &s) {
    return ceil_div(Roles::k(s), t::step);
  }
  // Blocks of a cluster fastest, then tiles of channels: those that read the same images follow one
  // another.
  static __host__ __device__ int blocks(const Shape &s) {
    return cluster * tiles_n(s) * blocks_i(s);
  }
  // The first step of a cluster's block.
  static __device__ int first_of(const Shape &s, int rank) { return all_steps(s) * rank / cluster; }
  static __host__ __device__ int tiles_i(const Shape &s) {
    return ceil_div(s.batch, t::images) * t::parts;
  }
  static __host__ __device__ int blocks_i(const Shape &s) {
    return ceil_div(tiles_i(s), t::repeat);
  }
  static int make_maps(Maps &maps, const Arguments &args, const Shape &s) {
    const int code = Planes::map(maps.planes, Roles::planes(args), s.batch, Roles::k(s));
    if (code) return code;
    return map_operand<T>(maps.filters, Roles::filters(args), Roles::m(s), Roles::k(s), t::across,
                          t::filter_box);
  }

  const Shape &s;
  const Maps &maps;
  int thread, slice, rank, block_i, first_n, first_step, steps;
  unsigned char *lds;
  TransferBarrier *full, *empty, *shared, *vacant, *made;

  __device__ ImageProducts(const Arguments &, const Shape &shape, const Maps &maps_)
      : s(shape), maps(maps_), thread(thread_number()),
        slice(of_wavefront(thread / t::slice_threads)), rank(blockIdx.x % cluster),
        block_i(blockIdx.x / cluster / tiles_n(shape)),
        first_n(blockIdx.x / cluster % tiles_n(shape) * t::tile_n),
        first_step(first_of(shape, rank)), steps(first_of(shape, rank + 1) - first_step),
        lds(block_lds<unsigned char, lds_bytes, swizzled_tile>()),
        full(reinterpret_cast<TransferBarrier *>(lds + t::barriers_at)), empty(full + t::stages),
        shared(empty + t::stages), vacant(shared + 1), made(vacant + 1) {
    constexpr int wavefronts = t::slice_threads / t::wavefront;
    if (slice == t::slices && one_of_wavefront()) {
      prefetch_map(maps.planes);
      prefetch_map(maps.filters);
      prepare_barriers(full, t::stages, 1);
      prepare_barriers(empty, t::stages, wavefronts);
      if (t::slices > 1) prepare_barriers(shared, 1, (t::slices - 1) * t::slice_threads);
      if (t::over_ring || t::repeat > 1)
        prepare_barriers(vacant, 1, t::over_ring ? t::consumers : 1);
      prepare_barriers(made, t::chunks, wavefronts);
      if (cluster > 1) sums_of_cluster().runs.prepare();
    }
    __syncthreads();
    if (cluster > 1) announce_block();
  }

  // All images and filters.
  static constexpr bool works_ahead = true;
  static __device__ void fetch_ahead(const Arguments &args, const Shape &s) {
    const int k = Roles::k(s);
    const int rows = rows_ahead<T>(s.batch * k, t::area, most_ahead_of(blocks(s), lds_bytes));
    prefetch_share<T>(Roles::planes(args), rows * t::area, blocks(s));
    prefetch_share<T>(Roles::filters(args), Roles::m(s) * k, blocks(s));
    prefetch_channels<typename Roles::Results>(args, Roles::m(s), blocks(s));
  }

  // A tile of a block: which one, its first image, and its first pixel in a part of the planes.
  struct Tile {
    int number, image, pixel;
  };
  __device__ Tile tile_of(int number) const {
    const int tile = block_i + number * blocks_i(s);
    return {number, tile / t::parts * t::images, tile % t::parts * t::part};
  }
  // Calls each(tile) of those of this block.
  template <class Each>
  __device__ void each_tile(Each each) const {
    DSCORE_ROLLED
    for (int i = 0; i < t::repeat; i++)
      if (t::repeat == 1 || block_i + i * blocks_i(s) < tiles_i(s)) each(tile_of(i));
  }
  __device__ int images_from(int first) const { return least(t::images, s.batch - first); }
  __device__ unsigned char *filters_at(int stage) const { return lds + stage * t::stage_bytes; }
  __device__ T *planes_at(int stage) const {
    return reinterpret_cast<T *>(filters_at(stage) + t::filter_bytes);
  }

  // One thread: fills the ring, ahead of the warpgroups by as many steps as it has buffers. What is
  // past the last image or channel comes as zeros. Returns how many tiles it has stored meanwhile.
  __device__ int fill_ring(const Arguments &args) const {
    const ImageResults<ImageProducts> results{*this, args};
    RingTurn<t::stages> turn;
    int copied = 0, stored = 0;
    each_tile([&](const Tile &tile) {
      DSCORE_ROLLED
      for (int step = 0; step < steps; step++, copied++) {
        // A buffer is free when a tile is under way, before which all others have been made.
        for (; t::repeat > 1 && (stored + 1) * steps <= copied - t::stages; stored++)
          results.store(tile_of(stored));
        if (copied >= t::stages) wait_barrier(empty + turn.stage, turn.parity ^ 1);
        TransferBarrier *barrier = full + turn.stage;
        arrive_expecting(barrier, t::filter_bytes + t::plane_bytes);
        const int summed = (first_step + step) * t::step;
        copy_filters(barrier, filters_at(turn.stage), summed);
        Planes::load(barrier, planes_at(turn.stage), maps.planes, tile.image, tile.pixel, summed);
        turn.pass();
      }
    });
    return stored;
  }
  // Stores the results of all tiles but so many.
  __device__ void store_results(const Arguments &args, int stored) const {
    const ImageResults<ImageProducts> results{*this, args};
    each_tile([&](const Tile &tile) {
      if (tile.number >= stored) results.store(tile);
    });
    wait_stores<0>();
  }
  __device__ void copy_filters(TransferBarrier *barrier, unsigned char *to, int summed) const {
    DSCORE_UNROLL
    for (int i = 0; i < t::filter_boxes; i++)
      load_box(barrier, to + i * t::filter_box * swizzled_row, maps.filters,
               {(t::across ? first_n : summed) + i * t::row, t::across ? summed : first_n});
  }

  using Sums = float[t::rows][t::tile_n / 2];
  // Of the channels whose sums this block adds, and stores: the first of them, and where they end.
  using OwnSums = float[t::rows][t::own_n / 2];
  __device__ int own_first() const { return first_n + rank * t::own_n; }
  __device__ int own_end() const { return least(first_n + t::tile_n, Roles::m(s)); }
  __device__ ClusterImageSums<t> sums_of_cluster() const {
    return {{lds + t::sent_at, {full + t::barriers - 1}, rank}};
  }
  // Starts the products of a step from the `depth`-th instruction on.
  __device__ void multiply(Sums &sums, const typename Pixels::Words &words, int stage, int depth,
                           bool further) const {
    const LdsOperand filters(filters_at(stage), swizzled_tile, t::filter_box * swizzled_row);
    order_products();
    DSCORE_UNROLL
    for (int i = 0; i < t::together; i++) {
      const LdsOperand columns = filters.further(
          operand_place<T>(t::across, t::filter_box, (depth + i) * t::depth));
      DSCORE_UNROLL
      for (int r = 0; r < t::rows; r++)
        multiply_registers<T, t::tile_n, t::across>(sums[r], words[i][r], columns,
                                                    further || i > 0);
    }
    commit_products();
  }

  // The sums of a slice's steps, with so many steps of tiles before: lanes read the pixels of the
  // next instructions while the units multiply.
  __device__ void accumulate(Sums &sums, const Pixels &pixels, int slice, int before) const {
    typename Pixels::Words words[2];
    constexpr int turns = t::depths / t::together;  // of reading, in a step
    const auto take = [&](typename Pixels::Words &to, int step, int turn) {
      const int number = before + step, stage = number % t::stages;
      if (turn == 0) wait_barrier(full + stage, number / t::stages & 1);
      pixels.read(to, planes_at(stage), turn * t::together);
    };
    // First: where the step's first words are.
    const auto add = [&](auto first, int step) {
      DSCORE_UNROLL
      for (int turn = 0; turn < turns; turn++) {
        const int own = (decltype(first)::value + turn) % 2;
        multiply(sums, words[own], (before + step) % t::stages, turn * t::together,
                 step > slice || turn > 0);
        wait_products<1>();
        if (turn == 0 && step > slice) pass(empty + (before + step - t::slices) % t::stages);
        if (turn + 1 < turns) take(words[1 - own], step, turn + 1);
        else if (step + t::slices < steps) take(words[1 - own], step + t::slices, 0);
      }
    };
    take(words[0], slice, 0);
    if constexpr (turns % 2 == 0) {
      DSCORE_ROLLED
      for (int step = slice; step < steps; step += t::slices)
        add(std::integral_constant<int, 0>{}, step);
    } else {
      DSCORE_ROLLED
      for (int step = slice; step < steps; step += 2 * t::slices) {
        add(std::integral_constant<int, 0>{}, step);
        if (step + t::slices < steps) add(std::integral_constant<int, 1>{}, step + t::slices);
      }
    }
    wait_products<0>();
    if (t::repeat > 1) pass(empty + (before + steps - 1) % t::stages);
  }
  // Of a wavefront whose lanes have all come here: with a buffer, or with what they wrote to LDS.
  __device__ void pass(TransferBarrier *barrier) const {
    wavefront_barrier();
    if (thread % t::wavefront == 0) arrive(barrier);
  }
  __device__ void multiply_all(const Arguments &args) const {
    const int of_slice = thread % t::slice_threads;
    const Pixels pixels(of_slice / warpgroup_threads, of_slice % warpgroup_threads);
    const ImageResults<ImageProducts> results{*this, args};
    each_tile([&](const Tile &tile) {
      Sums sums;
      accumulate(sums, pixels, slice, tile.number * steps);
      wait_for_room(tile);
      if constexpr (t::slices > 1)
        if (!join_image_slices(*this, sums)) {
          if (cluster > 1) meet_cluster();
          return;
        }
      if constexpr (cluster > 1) {
        wait_for_cluster();
        OwnSums own{};
        sums_of_cluster().send(sums, own, pixels, of_slice);
        sums_of_cluster().join(own, pixels, of_slice);
        put_all(results, own, pixels, tile);
      } else {
        put_all(results, sums, pixels, tile);
      }
    });
  }
  // Until results have room: where the ring was, which all warpgroups have read, or where those of
  // the tile before were, which have left.
  __device__ void wait_for_room(const Tile &tile) const {
    if (t::over_ring) arrive(vacant);
    if (t::over_ring) wait_barrier(vacant, 0);
    else if (t::repeat > 1 && tile.number > 0) wait_barrier(vacant, (tile.number - 1) & 1);
  }
  // Results to LDS, of which the first leave while others are made; those of parts leave together.
  __device__ void put_all(const ImageResults<ImageProducts> &results, const OwnSums &sums,
                          const Pixels &pixels, const Tile &tile) const {
    DSCORE_UNROLL
    for (int chunk = 0; chunk < t::chunks; chunk++) {
      results.put(sums, pixels, tile, chunk);
      if constexpr (t::parts == 1) {
        let_engine_see_lds();
        pass(made + chunk);
      }
    }
    if constexpr (t::parts > 1) results.store_part(tile);
  }

  __device__ void run(const Arguments &args) {
    if (slice < t::slices) return multiply_all(args);
    const bool moves = one_of_wavefront();
    const int stored = moves ? fill_ring(args) : 0;
    if (cluster > 1) meet_cluster();
    if (moves && t::parts == 1) store_results(args, stored);
  }
  // Of a wavefront that has no sums to send: all threads are to be there before any is sent.
  __device__ void meet_cluster() const {
    wavefront_barrier();
    wait_for_cluster();
  }
};

}  // namespace dscore
