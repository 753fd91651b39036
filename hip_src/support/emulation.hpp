// The emulated device: a GPU's blocks run on the host, each thread a fiber, one at a time.
//
// A fiber runs until a barrier, a shuffle or its end. A barrier lets go when every thread of the
// block waits at it, a shuffle when every lane of the wavefront does; where that cannot happen the
// launch fails. DSCORE_LANE_ORDER (forward, reverse, random) orders the fibers between rendezvous:
// a result that depends on it is a race. LDS is full of NaN when a block starts, and fenced on both
// sides.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "support/fibers.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(from, bytes) ((void)(from), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(from, bytes) ((void)(from), (void)(bytes))
#endif

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline

namespace dscore::emulation {

constexpr std::size_t fence_bytes = 256;
constexpr unsigned char fence_value = 0xA5;

// The block's LDS: the same memory for all its threads, NaN at first, between two fences.
template <class T>
T *lds(std::size_t count) {
  auto &bytes = device.lds[device.current / device.threads];
  if (bytes.empty()) {
    bytes.assign(count * sizeof(T) + 2 * fence_bytes, fence_value);
    // All bits set are a NaN in every float type.
    std::fill(bytes.begin() + fence_bytes, bytes.end() - fence_bytes, 0xFF);
    // The address sanitizer sees what reads there, too.
    ASAN_POISON_MEMORY_REGION(bytes.data(), fence_bytes);
    ASAN_POISON_MEMORY_REGION(bytes.data() + bytes.size() - fence_bytes, fence_bytes);
  }
  return reinterpret_cast<T *>(bytes.data() + fence_bytes);
}

// What lies in another block of the cluster where `own` does in the lane's.
template <class T>
const T *of_block(const T *own, int rank) {
  const auto offset = reinterpret_cast<const unsigned char *>(own) -
                      device.lds[device.current / device.threads].data();
  return reinterpret_cast<const T *>(device.lds[rank].data() + offset);
}

inline bool fail(const std::string &what) {
  device.error = what + " (block " + std::to_string(block_index.x) + ")";
  return false;
}

template <class Bytes>
bool fence_holds(Bytes first) {
  return std::all_of(first, first + fence_bytes,
                     [](unsigned char byte) { return byte == fence_value; });
}

inline bool fences_hold() {
  for (auto &bytes : device.lds) {
    if (bytes.empty()) continue;
    ASAN_UNPOISON_MEMORY_REGION(bytes.data(), bytes.size());
    if (!fence_holds(bytes.end() - fence_bytes))
      return fail("LDS overrun: a lane wrote past the end of the block's LDS");
    if (!fence_holds(bytes.begin()))
      return fail("LDS underrun: a lane wrote before the beginning of the block's LDS");
  }
  return true;
}

inline bool copies_were_aligned() {
  return !device.misaligned || fail("an asynchronous copy of a vector that is not aligned");
}

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

inline bool stuck() {
  int barriers = 0, shuffles = 0, ended = 0, polls = 0;
  for (const Fiber &fiber : device.fibers) {
    barriers += fiber.waits == Waits::at_barrier || fiber.waits == Waits::at_cluster;
    shuffles += fiber.waits == Waits::at_shuffle;
    ended += fiber.waits == Waits::done;
    polls += fiber.waits == Waits::at_poll;
  }
  if (polls)
    return fail("blocks wait for one another: " + std::to_string(polls) +
                " threads poll counters that no other thread will change");
  return fail("divergent rendezvous: " + std::to_string(barriers) +
              " threads wait at a barrier, " + std::to_string(shuffles) + " at a shuffle, " +
              std::to_string(ended) + " ended");
}

// Lets the threads run that wait for nothing, or poll; whether any did more than poll again. Blocks
// that are uneven pause by chance, a few turns at a time.
inline bool advance(Device &d) {
  bool moved = false;
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
  return moved;
}

// One block, the blocks of a cluster together, or as many of a persistent kernel as are resident.
inline bool run_block() {
  Device &d = device;
  for (auto &bytes : d.lds) ASAN_UNPOISON_MEMORY_REGION(bytes.data(), bytes.size());
  d.lds.assign(d.cluster, {});
  d.misaligned = false;
  int number = 0;
  for (Fiber &fiber : d.fibers) {
    fiber.waits = d.first_block + number++ / d.threads < d.blocks ? Waits::no : Waits::done;
    fiber.copies.clear();
    fiber.asked.clear();
    std::fill_n(fiber.passed, kinds_of_waits, 0);
  }
  for (;;) {
    bool moved = advance(d);
    if (std::all_of(d.fibers.begin(), d.fibers.end(),
                    [](const Fiber &fiber) { return fiber.waits == Waits::done; }))
      return fences_hold() && copies_were_aligned();
    const int all = d.threads * d.cluster;
    moved |= release(d, 0, all, Waits::at_cluster);
    for (int first = 0; first < all; first += d.threads)
      moved |= release(d, first, first + d.threads, Waits::at_barrier);
    for (int first = 0; first < all; first += d.wavefront)
      moved |= release(d, first, first + d.wavefront, Waits::at_shuffle);
    if (!moved) return stuck();
  }
}

inline std::string lane_order() {
  const char *asked = std::getenv("DSCORE_LANE_ORDER");
  return asked && *asked ? asked : "forward";
}

// Generator for std::shuffle; the header <random> would cost as much as a kernel.
struct Generator {
  using result_type = uint32_t;
  unsigned short state[3] = {};
  static constexpr uint32_t min() { return 0; }
  static constexpr uint32_t max() { return 0x7FFFFFFF; }
  uint32_t operator()() { return static_cast<uint32_t>(nrand48(state)); }
};

inline void order_lanes(const std::string &order) {
  std::vector<int> &lanes = device.order;
  lanes.resize(device.threads * device.cluster);
  std::iota(lanes.begin(), lanes.end(), 0);
  if (order == "reverse") std::reverse(lanes.begin(), lanes.end());
  if (order == "random") {
    static thread_local Generator generator;
    std::shuffle(lanes.begin(), lanes.end(), generator);
  }
}

// Blocks of a persistent kernel that are resident at a time, of DSCORE_RESIDENT_BLOCKS.
inline int resident_blocks() {
  const char *asked = std::getenv("DSCORE_RESIDENT_BLOCKS");
  return std::max(asked ? std::atoi(asked) : 3, 1);
}

// Runs the blocks of a grid, `cluster` at a time, or so many of a persistent kernel.
inline int launch(int blocks, int threads, int wavefront, int cluster, Body body,
                  bool persistent = false) {
  device.shuffled.assign(threads * cluster, 0);
  device.body = body;
  device.threads = threads;
  device.wavefront = wavefront;
  device.cluster = cluster;
  device.blocks = blocks;
  device.error.clear();
  const std::string order = lane_order();
  if (order != "forward" && order != "reverse" && order != "random") {
    device.error = "DSCORE_LANE_ORDER is " + order + "; it is forward, reverse or random";
    return 1;
  }
  device.uneven = persistent && order == "random";
  device.pausing = 0;
  make_fibers();
  for (int block = 0; block < blocks; block += cluster) {
    device.first_block = block_index.x = block;
    order_lanes(order);
    if (!run_block()) return 1;
  }
  return 0;
}

template <class T>
T shuffle_down(T value, int by, int width, int site) {
  Device &d = device;
  const int thread = d.current;
  std::memcpy(&d.fibers[thread].given, &value, sizeof(T));
  yield(Waits::at_shuffle, site);
  const int lane = thread % d.wavefront;
  const int source = lane % width + by < width ? thread + by : thread;
  T result;
  std::memcpy(&result, &d.shuffled[source], sizeof(T));
  return result;
}

// Hardware copies at any time between the asking and the wait: here at the one or the other.
inline bool copies_at_once() { return device.order.front() != 0; }

// A look at what another thread may change meanwhile: all others go on first.
inline void poll() { yield(Waits::at_poll, 0); }

inline void make(const Copy &copy) {
  std::memcpy(copy.to, copy.from, copy.bytes);
  std::memset(static_cast<char *>(copy.to) + copy.bytes, 0, copy.size - copy.bytes);
}

inline void copy_async(void *to, const void *from, std::size_t bytes, std::size_t size) {
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % size != 0)
    device.misaligned = true;
  if (copies_at_once()) make({to, from, bytes, size});
  else device.fibers[device.current].asked.push_back({to, from, bytes, size});
}

inline void commit_copies() {
  Fiber &self = device.fibers[device.current];
  self.copies.push_back(std::move(self.asked));
  self.asked.clear();
}

inline void wait_copies(std::size_t ahead) {
  auto &copies = device.fibers[device.current].copies;
  for (; copies.size() > ahead; copies.pop_front())
    for (const Copy &copy : copies.front()) make(copy);
}

// d += a · b of a wavefront's fragments (support/vendor.hpp says which lane holds what): `given`
// are four elements of a and two of b.
inline void multiply_16x8x8(float *d, const float (&given)[6], int site) {
  Device &device_ = device;
  const int thread = device_.current, first = thread - thread % device_.wavefront;
  const float *mine = given;
  std::memcpy(&device_.fibers[thread].given, &mine, sizeof mine);
  yield(Waits::at_shuffle, site);
  const auto held = [&](int lane) {
    const float *values;
    std::memcpy(&values, &device_.shuffled[first + lane], sizeof values);
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

#define threadIdx dscore::emulation::thread_index
#define blockIdx dscore::emulation::block_index
#define __syncthreads() \
  dscore::emulation::yield(dscore::emulation::Waits::at_barrier, __LINE__)
#define DSCORE_SHFL_DOWN(value, by, width) \
  dscore::emulation::shuffle_down(value, by, width, __LINE__)
