// The emulated device: a GPU's blocks run on the host, each thread a fiber, one at a time.
//
// A fiber runs until a barrier, a shuffle or its end. A barrier lets go when every thread of the
// block waits at it, a shuffle when every lane of the wavefront does; where that cannot happen the
// launch fails. DSCORE_LANE_ORDER (forward, reverse, random) orders the fibers between rendezvous:
// a result that depends on it is a race.
#pragma once

#include "support/emulated_lds.hpp"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline

namespace dscore::emulation {

// Lets go of the threads first..last if all of them wait for the same thing at the same place.
inline bool release(Device &d, int first, int last, Waits waits) {
  for (int thread = first; thread < last; thread++) {
    const Fiber &fiber = d.fibers[thread], &other = d.fibers[first];
    const int kind = static_cast<int>(waits);
    if (fiber.waits != waits || fiber.site != other.site ||
        fiber.passed[kind] != other.passed[kind])
      return false;
  }
  for (int thread = first; thread < last; thread++) {
    d.shuffled[thread] = d.fibers[thread].given;
    d.fibers[thread].waits = Waits::no;
  }
  return true;
}

// The same of the whole warpgroups of a block.
inline bool release_warpgroups(Device &d, int first) {
  constexpr int threads = 128;
  bool moved = false;
  for (int at = 0; at + threads <= d.threads; at += threads)
    moved |= release(d, first + at, first + at + threads, Waits::at_warpgroup);
  return moved;
}

inline bool stuck() {
  int barriers = 0, shuffles = 0, ended = 0, polls = 0;
  for (const Fiber &fiber : device.fibers) {
    barriers += fiber.waits == Waits::at_barrier || fiber.waits == Waits::at_cluster ||
                fiber.waits == Waits::at_warpgroup;
    shuffles += fiber.waits == Waits::at_shuffle;
    ended += fiber.waits == Waits::done;
    polls += fiber.waits == Waits::at_poll;
  }
  if (polls)
    return fail("blocks wait for one another: %d threads poll counters that no other thread will "
                "change", polls);
  return fail("divergent rendezvous: %d threads wait at a barrier, %d at a shuffle, %d ended",
              barriers, shuffles, ended);
}

// Lets the threads run that wait for nothing, or poll; whether any did more than poll again. One
// that has seen what it polled for may poll for something else by then. Blocks that are uneven
// pause by chance, a few turns at a time.
inline bool advance(Device &d) {
  bool moved = false;
  d.seen = false;
  if (d.uneven && lrand48() % 4 == 0) d.pausing = static_cast<int>(lrand48());
  for (int thread : d.order) {
    Fiber &fiber = d.fibers[thread];
    const bool polled = fiber.waits == Waits::at_poll;
    if (fiber.waits != Waits::no && !polled) continue;
    if (d.pausing >> thread / d.threads % 31 & 1) {
      moved = true;
      continue;
    }
    resume(d, thread);
    moved |= !polled || fiber.waits != Waits::at_poll;
  }
  return moved || d.seen;
}

inline bool all_ended(const Device &d) {
  for (const Fiber &fiber : d.fibers)
    if (fiber.waits != Waits::done) return false;
  return true;
}

// One block, the blocks of a cluster together, or as many of a persistent kernel as are resident.
inline bool run_block() {
  Device &d = device;
  drop_lds();
  d.misaligned = d.stray = d.refilled = false;
  d.arrivals.count = 0;
  int number = 0;
  for (Fiber &fiber : d.fibers) {
    fiber.waits = d.first_block + number++ / d.threads < d.blocks ? Waits::no : Waits::done;
    fiber.copies.count = fiber.groups = 0;
    fiber.products.begun.count = fiber.products.groups = 0;
    fiber.stores.begun.count = fiber.stores.groups = 0;
    fiber.reads = fiber.reads_end = 0;
    memset(fiber.passed, 0, sizeof fiber.passed);
  }
  for (;;) {
    bool moved = advance(d);
    if (all_ended(d))
      return fences_hold() && copies_were_aligned() && operands_were_inside() && boxes_arrived() &&
             reads_had_come();
    const int all = d.threads * d.cluster;
    moved |= release(d, 0, all, Waits::at_cluster);
    for (int first = 0; first < all; first += d.threads)
      moved |= release(d, first, first + d.threads, Waits::at_barrier) |
               release_warpgroups(d, first);
    for (int first = 0; first < all; first += d.wavefront)
      moved |= release(d, first, first + d.wavefront, Waits::at_shuffle);
    if (!moved) return stuck();
  }
}

enum class LaneOrder { forward, reverse, random };

// The order that DSCORE_LANE_ORDER names; false, and an error, where it names none.
inline bool lane_order(LaneOrder &order) {
  const char *asked = getenv("DSCORE_LANE_ORDER");
  if (!asked || !*asked || !strcmp(asked, "forward")) order = LaneOrder::forward;
  else if (!strcmp(asked, "reverse")) order = LaneOrder::reverse;
  else if (!strcmp(asked, "random")) order = LaneOrder::random;
  else {
    snprintf(device.error, sizeof device.error,
             "DSCORE_LANE_ORDER is %s; it is forward, reverse or random", asked);
    return false;
  }
  return true;
}

inline void order_lanes(LaneOrder order) {
  static thread_local unsigned short state[3];
  List<int> &lanes = device.order;
  for (int i = 0; i < lanes.count; i++)
    lanes[i] = order == LaneOrder::reverse ? lanes.count - 1 - i : i;
  if (order != LaneOrder::random) return;
  for (int left = lanes.count; left > 1; left--) {
    int &last = lanes[left - 1], &other = lanes[static_cast<int>(nrand48(state) % left)];
    const int lane = last;
    last = other;
    other = lane;
  }
}

// Blocks of a persistent kernel that are resident at a time, of DSCORE_RESIDENT_BLOCKS.
inline int resident_blocks() {
  const char *asked = getenv("DSCORE_RESIDENT_BLOCKS");
  const int blocks = asked ? atoi(asked) : 3;
  return blocks > 1 ? blocks : 1;
}

// Runs the blocks of a grid, `cluster` at a time, or so many of a persistent kernel.
inline int launch(int blocks, int threads, int wavefront, int cluster, Body body,
                  bool persistent = false) {
  device.body = body;
  device.threads = threads;
  device.wavefront = wavefront;
  device.cluster = cluster;
  device.blocks = blocks;
  device.error[0] = 0;
  LaneOrder order;
  if (!lane_order(order)) return 1;
  device.uneven = persistent && order == LaneOrder::random;
  device.pausing = 0;
  make_fibers();
  device.shuffled.make(threads * cluster);
  device.order.make(threads * cluster);
  device.lds.make(cluster);
  bool ran = true;
  for (int block = 0; ran && block < blocks; block += cluster) {
    device.first_block = block_index.x = block;
    order_lanes(order);
    ran = run_block();
  }
  drop_lds();
  device.lds.drop();
  device.arrivals.drop();
  device.order.drop();
  device.shuffled.drop();
  drop_fibers();
  return ran ? 0 : 1;
}

// The value of the thread `source` of the wavefront.
template <class T>
T shuffle(T value, int source, int site) {
  memcpy(&device.fibers[device.current].given, &value, sizeof(T));
  yield(Waits::at_shuffle, site);
  T result;
  memcpy(&result, &device.shuffled[source], sizeof(T));
  return result;
}
template <class T>
T shuffle_down(T value, int by, int width, int site) {
  const int thread = device.current, lane = thread % device.wavefront;
  return shuffle(value, lane % width + by < width ? thread + by : thread, site);
}
template <class T>
T shuffle_xor(T value, int by, int site) {
  return shuffle(value, device.current ^ by, site);
}

// Looks at what other threads change until it is so: between two looks all others go on.
template <class Look>
void poll_until(Look so) {
  bool polled = false;
  for (; !so(); polled = true) yield(Waits::at_poll, 0);
  device.seen |= polled;
}

// d += a · b of a wavefront's fragments (support/vendor.hpp says which lane holds what): `given`
// are four elements of a and two of b.
inline void multiply_16x8x8(float *d, const float (&given)[6], int site) {
  Device &device_ = device;
  const int thread = device_.current, first = thread - thread % device_.wavefront;
  const float *mine = given;
  memcpy(&device_.fibers[thread].given, &mine, sizeof mine);
  yield(Waits::at_shuffle, site);
  const auto held = [&](int lane) {
    const float *values;
    memcpy(&values, &device_.shuffled[first + lane], sizeof values);
    return values;
  };
  const int row = thread % device_.wavefront / 4, column = thread % 4 * 2;
  for (int k = 0; k < 8; k++)
    for (int out = 0; out < 4; out++) {
      const float a = held(4 * row + k % 4)[k / 4 * 2 + out / 2];
      const float b = held(4 * (column + out % 2) + k % 4)[4 + k / 4];
      d[out] += a * b;
    }
  // Nobody's fragments may change before all have read them.
  yield(Waits::at_shuffle, site);
}

}  // namespace dscore::emulation

namespace dscore {
// Of <cmath>, which takes a compiler as long as all these headers.
inline float fminf(float a, float b) { return __builtin_fminf(a, b); }
inline float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
}  // namespace dscore

#define threadIdx dscore::emulation::thread_index
#define blockIdx dscore::emulation::block_index
#define __syncthreads() \
  dscore::emulation::yield(dscore::emulation::Waits::at_barrier, __LINE__)
#define DSCORE_SHFL_DOWN(value, by, width) \
  dscore::emulation::shuffle_down(value, by, width, __LINE__)
#define DSCORE_SHFL_XOR(value, by) dscore::emulation::shuffle_xor(value, by, __LINE__)
