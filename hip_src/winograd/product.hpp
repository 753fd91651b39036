// The tasks of Winograd's convolution that multiply: of some planes, products of matrices of
// transformed filters [output channel][input channel] by inputs [input channel][tile].
//
// Order of additions, as the reference backend has it: channels ascending; on matrix units sixteen
// at a time, in two products of eight: first and second channels of four fours, then third and
// fourth ones.
#pragma once

#include "support/bulk_copy.hpp"
#include "support/joined_sums.hpp"
#include "support/ring.hpp"
#include "winograd/tasks.hpp"

namespace dscore {

// The LDS buffers of a block's products, gone round from one to the next, each with a barrier for
// its loads.
template <class t>
struct WinogradRing {
  // Loads of whole pieces, where a step's filters and inputs are one each.
  static constexpr bool bulk = t::stages > 2 && !t::packed;
  static constexpr int barrier_bytes = bulk ? t::stages * int{sizeof(TransferBarrier)} : 0;
  static constexpr int bytes = t::stages * t::buffer * 4 + barrier_bytes;
  using Bulk = BulkCopy<float, t::threads, t::wavefront>;

  float *lds;
  int stage = 0, parity = 0;
  bool filled = false;  // the first buffers of the next product are, or will be

  __device__ explicit WinogradRing(float *lds_of_block) : lds(lds_of_block) {
    if constexpr (bulk) Bulk::template prepare<t::stages>(barriers(), threadIdx.x);
  }
  __device__ TransferBarrier *barriers() const {
    return reinterpret_cast<TransferBarrier *>(lds + t::stages * t::buffer);
  }
  __device__ float *buffer(int number) const { return lds + number * t::buffer; }
  // The buffer so many steps later, fewer than there are.
  __device__ int later(int steps) const {
    return stage + steps < t::stages ? stage + steps : stage + steps - t::stages;
  }
  __device__ void advance() {
    if (++stage == t::stages) stage = 0, parity ^= 1;
  }
};

template <class t, class Shape>
struct WinogradProduct {
  using Mapping = WinogradMapping<t, Shape>;
  using Ring = WinogradRing<t>;
  using Bulk = typename Ring::Bulk;
  using Vector = Pack<float, 4>;
  static constexpr int threads = t::threads;
  static constexpr bool async = t::stages > 2;
  using Copies = Walk<threads, 1, t::buffer / 4>;

  // U and V of a task's first plane; `part` has the block of output channels fastest, then the
  // planes.
  struct Sources {
    const float *filters, *inputs;
  };
  static __device__ Sources sources(const Shape &s, const float *u, const float *v, int group,
                                    int part) {
    const int k_block = part % Mapping::k_blocks(s);
    const int first = part / Mapping::k_blocks(s) * t::planes;
    const int slot = group % Mapping::input_slots(s);
    const long long depth = Mapping::depth(s), channels = Mapping::channels(s);
    return {t::packed ? u + first * packed_plane(s) + k_block * t::tile_k * 4
                      : u + first * channels * depth + k_block * depth * t::tile_k,
            v + (static_cast<long long>(slot) * t::planes_all + first) * depth * t::tile_t};
  }

  const Shape &s;
  Sources from;
  float *products;
  int thread, lane, wave_k, wave_t, first_k, step = 0, plane = 0;
  Vector fetched[async ? 1 : Copies::count];
  float accumulators[t::accumulators];

  __device__ WinogradProduct(const Shape &shape, const float *u, const float *v, float *m,
                             int group, int part)
      : s(shape), from(sources(shape, u, v, group, part)), thread(threadIdx.x),
        lane(threadIdx.x % t::wavefront), accumulators{} {
    const int wave = thread / t::wavefront;
    wave_t = wave % (t::tile_t / t::wave_t) * t::wave_t;
    wave_k = wave / (t::tile_t / t::wave_t) * t::wave_k;
    first_k = part % Mapping::k_blocks(s) * t::tile_k;
    const int first = part / Mapping::k_blocks(s) * t::planes;
    const long long all = group % Mapping::product_slots(s) * t::planes_all + first;
    products = m + (all * Mapping::channels(s) + first_k) * t::tile_t;
  }

  // Filters that came transformed lie by fours of input channels, of which the last may be no whole
  // step, and by output channels.
  static __device__ int packed_fours(const Shape &s) { return ceil_div(s.in_channels, 4); }
  static __device__ long long packed_plane(const Shape &s) {
    return static_cast<long long>(packed_fours(s)) * s.out_channels * 4;
  }

  // Where a step's filters and inputs lie: those of filters before those of inputs in LDS, each in
  // one piece as in memory, but for filters that came transformed.
  static __device__ Sources of_step(const Shape &s, const Sources &first, int number) {
    const int which = number / Mapping::steps(s), within = number % Mapping::steps(s);
    const long long depth = Mapping::depth(s);
    return {first.filters +
                (t::packed ? which * packed_plane(s) +
                                 static_cast<long long>(within) * (t::step * s.out_channels)
                           : which * (Mapping::channels(s) * depth) + within * before),
            first.inputs + (which * depth + within * t::step) * t::tile_t};
  }
  static constexpr int before = t::step * t::tile_k;  // inputs, in a buffer

  // Calls take(i, place in the buffer, source, whether it exists) for the thread's vectors of a
  // step.
  template <class Take>
  __device__ void each(int number, Take take) const {
    const Sources sources = of_step(s, from, number);
    DSCORE_UNROLL
    for (int i = 0; i < Copies::count; i++) {
      const int at = (i * threads + thread) * 4;
      if (t::buffer / 4 % threads != 0 && at >= t::buffer) continue;
      // Most vectors of a thread are of one of the two, whichever thread it is.
      const bool of_filters = (i + 1) * threads * 4 <= before ||
                              (i * threads * 4 < before && at < before);
      if (t::packed && of_filters)
        take_packed(i, at, sources.filters, number % Mapping::steps(s), take);
      else
        take(i, at, of_filters ? sources.filters + at : sources.inputs + (at - before), true);
    }
  }
  template <class Take>
  __device__ void take_packed(int i, int at, const float *u, int within, Take take) const {
    const int row = at / 4 % t::tile_k, four = at / 4 / t::tile_k;
    const bool there = first_k + row < s.out_channels &&
                       within * (t::step / 4) + four < packed_fours(s);
    take(i, t::place(four, four, row, t::tile_k), u + (four * s.out_channels + row) * 4, there);
  }
  __device__ void copy(float *lds, int number) const {
    each(number, [&](int, int at, const float *source, bool there) {
      copy_async<16>(lds + at, source, there);
    });
  }
  __device__ void fetch(int number) {
    each(number, [&](int i, int, const float *source, bool there) {
      fetched[i] = vector_or_zeros<4>(source, there);
    });
  }
  __device__ void put(float *lds) const {
    each(0, [&](int i, int at, const float *, bool) {
      *reinterpret_cast<Vector *>(lds + at) = fetched[i];
    });
  }

  static __device__ Vector read(const float *lds, int chunk, int row, int rows) {
    return *reinterpret_cast<const Vector *>(lds + t::place(chunk, chunk, row, rows));
  }

  // A lane's output channels lie lanes_k apart, its tiles lanes_t.
  static constexpr int thread_k = t::wave_k / t::lanes_k, thread_t = t::wave_t / t::lanes_t;
  __device__ void multiply_plain(const float *lds) {
    const int row = wave_k + lane / t::lanes_t, column = wave_t + lane % t::lanes_t;
    DSCORE_UNROLL_READS
    for (int chunk = 0; chunk < t::step / 4; chunk++) {
      Vector a[thread_k], b[thread_t];
      DSCORE_UNROLL
      for (int i = 0; i < thread_k; i++) a[i] = read(lds, chunk, row + i * t::lanes_k, t::tile_k);
      DSCORE_UNROLL
      for (int j = 0; j < thread_t; j++)
        b[j] = read(lds + t::step * t::tile_k, chunk, column + j * t::lanes_t, t::tile_t);
      DSCORE_UNROLL
      for (int c = 0; c < 4; c++)
        DSCORE_UNROLL
        for (int i = 0; i < thread_k; i++)
          DSCORE_UNROLL
          for (int j = 0; j < thread_t; j++)
            accumulators[i * thread_t + j] += a[i].at[c] * b[j].at[c];
    }
  }

  // Matrix units, in fragments of 16 output channels by 8 tiles: each product as three of TF32, the
  // small parts' first. Lane 4 g + i reads the four channels of chunk i of row g, two for each of
  // two products, in place of columns i and i + 4 of the fragments. Of 16 tiles those that a lane
  // holds sums of lie side by side: columns 2 i and 2 i + 1 of two fragments are 4 i to 4 i + 3.
  static constexpr int rows8 = t::wave_k / 8, columns8 = t::wave_t / 8;
  __device__ void multiply_split(const float *lds) {
    const int g = lane / 4, tile = g / 2 * 4 + g % 2;
    DSCORE_UNROLL
    for (int k = 0; k < t::step / 16; k++) {
      const int chunk = k * 4 + lane % 4;
      Vector a[rows8], b[columns8];
      DSCORE_UNROLL
      for (int i = 0; i < rows8; i++) a[i] = read(lds, chunk, wave_k + i * 8 + g, t::tile_k);
      DSCORE_UNROLL
      for (int j = 0; j < columns8; j++)
        b[j] = read(lds + t::step * t::tile_k, chunk, wave_t + j / 2 * 16 + tile + j % 2 * 2,
                    t::tile_t);
      DSCORE_UNROLL
      for (int half = 0; half < 4; half += 2) multiply_eight(a, b, half);
    }
  }
  __device__ void multiply_eight(const Vector (&a)[rows8], const Vector (&b)[columns8], int half) {
    Halves rows[rows8 / 2][4], columns[columns8][2];
    DSCORE_UNROLL
    for (int i = 0; i < rows8; i++)
      DSCORE_UNROLL
      for (int c = 0; c < 2; c++) rows[i / 2][i % 2 + 2 * c] = Halves(a[i].at[half + c]);
    DSCORE_UNROLL
    for (int j = 0; j < columns8; j++)
      DSCORE_UNROLL
      for (int c = 0; c < 2; c++) columns[j][c] = Halves(b[j].at[half + c]);
    multiply_in_three(accumulators, rows, columns);
  }

  __device__ void store_plain(float *to) const {
    to += (wave_k + lane / t::lanes_t) * t::tile_t + wave_t + lane % t::lanes_t;
    DSCORE_UNROLL
    for (int i = 0; i < thread_k; i++)
      DSCORE_UNROLL
      for (int j = 0; j < thread_t; j++)
        to[i * t::lanes_k * t::tile_t + j * t::lanes_t] = accumulators[i * thread_t + j];
  }
  __device__ void store_split(float *to) const {
    to += (wave_k + lane / 4) * t::tile_t + wave_t + lane % 4 * 4;
    DSCORE_UNROLL
    for (int i = 0; i < rows8; i++)
      DSCORE_UNROLL
      for (int j = 0; j < columns8; j += 2) {
        const float *two = accumulators + (i / 2 * columns8 + j) * 4 + i % 2 * 2;
        *reinterpret_cast<Vector *>(to + i * 8 * t::tile_t + j * 8) = {
            {two[0], two[1], two[4], two[5]}};
      }
  }

  __device__ void multiply(const float *lds) {
    if constexpr (t::split) multiply_split(lds);
    else multiply_plain(lds);
    if (++step < Mapping::steps(s)) return;
    // The last step of a plane.
    float *to = products + static_cast<long long>(plane) * Mapping::channels(s) * t::tile_t;
    if constexpr (t::split) store_split(to);
    else store_plain(to);
    DSCORE_UNROLL
    for (int i = 0; i < t::accumulators; i++) accumulators[i] = 0.0f;
    step = 0, plane++;
  }

  // Begins the load of a step of this or another product to a buffer.
  __device__ void load(const Ring &ring, int buffer, const Sources &first, int number) const {
    if (!Bulk::copies(thread)) return;
    const Sources sources = of_step(s, first, number);
    TransferBarrier *const barrier = ring.barriers() + buffer;
    Bulk::expect(barrier, t::buffer, thread);
    Bulk::template copy<before>(barrier, ring.buffer(buffer), sources.filters, before, thread);
    Bulk::template copy<t::buffer - before>(barrier, ring.buffer(buffer) + before, sources.inputs,
                                            t::buffer - before, thread);
  }

  // Runs the product. Towards its end `take` and then `look_ahead` find the block's next task;
  // where that is a product as well, and may begin, `next` calls what it is given with its sources,
  // and loads go on.
  template <class Take, class LookAhead, class Next>
  __device__ void run(Ring &ring, Take take, LookAhead look_ahead, Next next) {
    const int steps = t::planes * Mapping::steps(s);
    if constexpr (!Ring::bulk) {
      run_ring<t>(*this, ring.lds, steps, [](float *, int) {});
      take();
      look_ahead();
    } else {
      constexpr int ahead = t::stages - 1;
      DSCORE_UNROLL
      for (int step = 0; step < ahead; step++) {
        if (ring.filled) break;
        if (step < steps) load(ring, ring.later(step), from, step);
        Bulk::end_copies();
      }
      ring.filled = false;
      // One step before the last one of its own loads, which all threads wait at.
      const int looks = greatest(steps - ahead - 1, 0), takes = greatest(looks - 1, 0);
      DSCORE_ROLLED
      for (int step = 0; step < steps; step++) {
        if (step == takes) take();
        if (step == looks) look_ahead();
        Bulk::template wait_for_load<ahead - 1>(ring.barriers() + ring.stage, true, ring.parity);
        const int later = step + ahead;
        if (later < steps) load(ring, ring.later(ahead), from, later);
        else if (steps >= ahead)
          next([&](const Sources &first) {
            load(ring, ring.later(ahead), first, later - steps);
            ring.filled = true;
          });
        Bulk::end_copies();
        multiply(ring.buffer(ring.stage));
        ring.advance();
      }
    }
  }
};

}  // namespace dscore
