// The tasks of Winograd's convolution that multiply: of some planes, products of matrices of
// transformed filters [output channel][input channel] by inputs [input channel][tile].
//
// Order of additions, as the reference backend has it: channels ascending; on matrix units sixteen
// at a time, in two products of eight: first and second channels of four fours, then third and
// fourth ones.
#pragma once

#include "support/joined_sums.hpp"
#include "support/ring.hpp"
#include "winograd/tasks.hpp"

namespace dscore {

template <class t, class Shape>
struct WinogradProduct {
  using Mapping = WinogradMapping<t, Shape>;
  using Vector = Pack<float, 4>;
  static constexpr int threads = t::threads;
  static constexpr bool async = t::stages > 2;
  using Copies = Walk<threads, 1, t::buffer / 4>;

  const Shape &s;
  const float *filters, *inputs;  // of the task's first plane
  float *products;
  int thread, lane, wave_k, wave_t, first_k, step = 0, plane = 0;
  Vector fetched[async ? 1 : Copies::count];
  float accumulators[t::accumulators];

  // U, V and M of the workspace; `part` has the block of output channels fastest, then the planes.
  __device__ WinogradProduct(const Shape &shape, const float *u, const float *v, float *m,
                             int group, int part)
      : s(shape), thread(threadIdx.x), lane(threadIdx.x % t::wavefront), accumulators{} {
    const int wave = thread / t::wavefront;
    wave_t = wave % (t::tile_t / t::wave_t) * t::wave_t;
    wave_k = wave / (t::tile_t / t::wave_t) * t::wave_k;
    const int k_block = part % Mapping::k_blocks(s);
    const int first = part / Mapping::k_blocks(s) * t::planes;
    const long long depth = Mapping::depth(s), channels = Mapping::channels(s);
    first_k = k_block * t::tile_k;
    filters = t::packed ? u + first * packed_plane() + first_k * 4
                        : u + first * channels * depth + k_block * depth * t::tile_k;
    const int in = group % Mapping::input_slots(s), out = group % Mapping::product_slots(s);
    inputs = v + (static_cast<long long>(in) * t::planes_all + first) * depth * t::tile_t;
    products = m + ((static_cast<long long>(out) * t::planes_all + first) * channels +
                    k_block * t::tile_k) * t::tile_t;
  }

  // Filters that came transformed lie by fours of input channels, of which the last may be no whole
  // step, and by output channels.
  __device__ int packed_fours() const { return ceil_div(s.in_channels, 4); }
  __device__ long long packed_plane() const {
    return static_cast<long long>(packed_fours()) * s.out_channels * 4;
  }

  // Calls take(i, place in the buffer, source, whether it exists) for the thread's vectors of a
  // step: those of filters lie before those of inputs, one after the other in memory as in LDS.
  template <class Take>
  __device__ void each(int number, Take take) const {
    constexpr int before = t::step * t::tile_k;
    const int which = number / Mapping::steps(s), within = number % Mapping::steps(s);
    const float *u =
        filters + (t::packed ? which * packed_plane() +
                                   static_cast<long long>(within) * (t::step * s.out_channels)
                             : static_cast<long long>(which) * Mapping::channels(s) *
                                       Mapping::depth(s) + within * before);
    const float *v = inputs + (static_cast<long long>(which) * Mapping::depth(s) +
                               within * t::step) * t::tile_t;
    DSCORE_UNROLL
    for (int i = 0; i < Copies::count; i++) {
      const int at = (i * threads + thread) * 4;
      if (t::buffer / 4 % threads != 0 && at >= t::buffer) continue;
      // Most vectors of a thread are of one of the two, whichever thread it is.
      const bool of_filters = (i + 1) * threads * 4 <= before ? true
                              : i * threads * 4 >= before     ? false
                                                              : at < before;
      if (t::packed && of_filters) take_packed(i, at, u, within, take);
      else take(i, at, of_filters ? u + at : v + (at - before), true);
    }
  }
  template <class Take>
  __device__ void take_packed(int i, int at, const float *u, int within, Take take) const {
    const int row = at / 4 % t::tile_k, four = at / 4 / t::tile_k;
    const bool there = first_k + row < s.out_channels &&
                       within * (t::step / 4) + four < packed_fours();
    take(i, t::place(four, four, row, t::tile_k), u + (four * s.out_channels + row) * 4, there);
  }
  __device__ void copy(float *lds, int number) const {
    each(number, [&](int, int at, const float *from, bool there) {
      copy_async<16>(lds + at, from, there);
    });
  }
  __device__ void fetch(int number) {
    each(number, [&](int i, int, const float *from, bool there) {
      fetched[i] = vector_or_zeros<4>(from, there);
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

  __device__ void run(float *lds) {
    run_ring<t>(*this, lds, t::planes * Mapping::steps(s), [](float *, int) {});
  }
};

}  // namespace dscore
