// Tiles of memory that pass through a ring of LDS buffers, a step of the sums in each.
#pragma once

#include "support/vendor.hpp"

namespace dscore {

// How `Threads` threads go over a tile of `Rows` rows of `Columns` vectors. Where a row takes a
// whole part of the threads, a thread keeps to its column, and addresses are a constant apart.
// Where a row takes all threads several times, a thread has as many columns, in turn.
template <int Threads, int Rows, int Columns>
struct Walk {
  static constexpr int total = Rows * Columns, count = ceil_div(total, Threads);
  static constexpr bool straight = Threads % Columns == 0;
  static constexpr bool steady = straight || Columns % Threads == 0;
  static constexpr int rows_apart = straight ? Threads / Columns : 0;
  // Columns of a thread, of a steady walk; and rows from its first vector to its i-th.
  static constexpr int columns = steady && !straight ? Columns / Threads : 1;
  static __device__ inline int rows_to(int i) {
    return straight ? i * rows_apart : i / columns;
  }
  static __device__ inline int row(int i, int thread) {
    return straight ? thread / Columns + i * rows_apart : (i * Threads + thread) / Columns;
  }
  static __device__ inline int column(int i, int thread) {
    return straight ? thread % Columns : (i * Threads + thread) % Columns;
  }
  static __device__ inline bool part(int i, int thread) {
    return total % Threads == 0 || i * Threads + thread < total;
  }
};

// The ring of asynchronous copies runs stages - 1 steps ahead. One barrier a step: a buffer is
// filled again only after the barrier that follows its last reading. A thread sees its own copies
// before the barrier, when arrived(buffer, step) is called.
template <class t, class Kernel, class T, class Arrived>
__device__ inline void run_copied(Kernel &kernel, T *lds, int steps, Arrived arrived) {
  DSCORE_UNROLL
  for (int step = 0; step < t::stages - 1; step++) {
    if (step < steps) kernel.copy(lds + step * t::buffer, step);
    commit_copies();
  }
  DSCORE_ROLLED
  for (int step = 0; step < steps; step++) {
    wait_copies<t::stages - 2>();
    arrived(lds + step % t::stages * t::buffer, step);
    __syncthreads();
    const int ahead = step + t::stages - 1;
    if (ahead < steps) kernel.copy(lds + ahead % t::stages * t::buffer, ahead);
    commit_copies();
    kernel.multiply(lds + step % t::stages * t::buffer);
  }
}

// Two buffers, filled through registers.
template <class t, class Kernel, class T, class Arrived>
__device__ inline void run_fetched(Kernel &kernel, T *lds, int steps, Arrived arrived) {
  if (steps <= 0) return;
  kernel.fetch(0);
  kernel.put(lds);
  arrived(lds, 0);
  __syncthreads();
  DSCORE_ROLLED
  for (int step = 0; step + 1 < steps; step++) {
    kernel.fetch(step + 1);
    kernel.multiply(lds + step % 2 * t::buffer);
    kernel.put(lds + (step + 1) % 2 * t::buffer);
    arrived(lds + (step + 1) % 2 * t::buffer, step + 1);
    __syncthreads();
  }
  kernel.multiply(lds + (steps - 1) % 2 * t::buffer);
}

// One buffer: each step is waited for, which other blocks on the compute unit hide.
template <class Kernel, class T, class Arrived>
__device__ inline void run_single(Kernel &kernel, T *lds, int steps, Arrived arrived) {
  DSCORE_ROLLED
  for (int step = 0; step < steps; step++) {
    if (step > 0) __syncthreads();
    kernel.copy(lds, step);
    commit_copies();
    wait_copies<0>();
    arrived(lds, step);
    __syncthreads();
    kernel.multiply(lds);
  }
}

template <class t, class Kernel, class T, class Arrived>
__device__ inline void run_ring(Kernel &kernel, T *lds, int steps, Arrived arrived) {
  if constexpr (t::stages == 1) run_single(kernel, lds, steps, arrived);
  else if constexpr (t::stages > 2) run_copied<t>(kernel, lds, steps, arrived);
  else run_fetched<t>(kernel, lds, steps, arrived);
}

}  // namespace dscore
