// The emulated device: a GPU's blocks run on the host, each thread a fiber, one at a time.
//
// A fiber runs until a barrier, a shuffle or its end. A barrier lets go when every thread of the
// block waits at it, a shuffle when every lane of the wavefront does; where that cannot happen the
// launch fails. DSCORE_LANE_ORDER (forward, reverse, random) orders the fibers between rendezvous:
// a result that depends on it is a race. LDS is full of NaN when a block starts, and fenced.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline

namespace dscore::emulation {

struct Index {
  int x;
};
inline thread_local Index thread_index, block_index;

enum class Waits { no, at_barrier, at_shuffle, at_cluster, done };

// Where a fiber or the scheduler stands.
struct Context {
  ucontext_t start{};
  jmp_buf at;
  bool running = false;
};

// Leaves `from` where it stands and goes on with `to`.
inline void change(Context &from, Context &to) {
#if defined(__SANITIZE_ADDRESS__)
  swapcontext(&from.start, &to.start);
#else
  // swapcontext saves the signal mask by a system call, which a jump does without.
  if (_setjmp(from.at)) return;
  from.running = true;
  if (to.running) _longjmp(to.at, 1);
  to.running = true;
  setcontext(&to.start);
#endif
}

// A copy to LDS that is under way: `bytes` of the source, then zeros up to `size`.
struct Copy {
  void *to;
  const void *from;
  std::size_t bytes, size;
};

struct Fiber {
  Context context;
  std::unique_ptr<char[]> stack;
  Waits waits = Waits::no;
  int site = 0;         // source line of the rendezvous
  int passed[5] = {};   // rendezvous of each kind so far
  uint64_t given = 0;   // what the lane passes to a shuffle
  std::deque<std::vector<Copy>> copies;  // asynchronous ones under way, in groups
  std::vector<Copy> asked;               // those of the group that is not ended
  void *fake_stack = nullptr;
};

constexpr std::size_t stack_bytes = 256 * 1024;
constexpr std::size_t fence_bytes = 256;
constexpr unsigned char fence_value = 0xA5;

struct Device {
  std::vector<Fiber> fibers;
  std::vector<uint64_t> shuffled;  // a wavefront's values as of its last rendezvous
  std::vector<std::vector<unsigned char>> lds;  // of each block of the cluster; empty: not claimed
  std::vector<int> order;
  Context scheduler;
  const std::function<void()> *body = nullptr;
  int current = 0, threads = 0, wavefront = 0, cluster = 1, first_block = 0;
  bool misaligned = false;  // some copy, at its source or in LDS
  std::string error;
  const void *main_stack = nullptr;
  std::size_t main_stack_bytes = 0;
};
inline thread_local Device device;

inline void enter_switch(void **save, const void *bottom, std::size_t size) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(save, bottom, size);
#else
  (void)save, (void)bottom, (void)size;
#endif
}

inline void leave_switch(void *saved, const void **bottom, std::size_t *size) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(saved, bottom, size);
#else
  (void)saved, (void)bottom, (void)size;
#endif
}

inline void yield(Waits waits, int site) {
  Device &d = device;
  Fiber &self = d.fibers[d.current];
  self.waits = waits;
  self.site = site;
  self.passed[static_cast<int>(waits)]++;
  enter_switch(&self.fake_stack, d.main_stack, d.main_stack_bytes);
  change(self.context, d.scheduler);
  leave_switch(self.fake_stack, nullptr, nullptr);
}

inline void fiber_main() {
  leave_switch(nullptr, &device.main_stack, &device.main_stack_bytes);
  for (;;) {  // once a block
    (*device.body)();
    yield(Waits::done, 0);
  }
}

inline void resume(Device &d, int thread) {
  Fiber &fiber = d.fibers[thread];
  d.current = thread;
  thread_index.x = thread % d.threads;
  block_index.x = d.first_block + thread / d.threads;
  void *fake_stack = nullptr;
  enter_switch(&fake_stack, fiber.stack.get(), stack_bytes);
  change(d.scheduler, fiber.context);
  leave_switch(fake_stack, nullptr, nullptr);
}

// The block's LDS: the same memory for all its threads, NaN at first, with a fence behind it.
template <class T>
T *lds(std::size_t count) {
  auto &bytes = device.lds[device.current / device.threads];
  if (bytes.empty()) {
    // All bits set are a NaN in every float type.
    bytes.assign(count * sizeof(T) + fence_bytes, 0xFF);
    std::fill(bytes.end() - fence_bytes, bytes.end(), fence_value);
  }
  return reinterpret_cast<T *>(bytes.data());
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

inline bool fence_holds() {
  const bool holds = std::all_of(device.lds.begin(), device.lds.end(), [](const auto &bytes) {
    return bytes.empty() || std::all_of(bytes.end() - fence_bytes, bytes.end(),
                                        [](unsigned char byte) { return byte == fence_value; });
  });
  return holds || fail("LDS overrun: a lane wrote past the end of the block's LDS");
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
  int barriers = 0, shuffles = 0, ended = 0;
  for (const Fiber &fiber : device.fibers) {
    barriers += fiber.waits == Waits::at_barrier || fiber.waits == Waits::at_cluster;
    shuffles += fiber.waits == Waits::at_shuffle;
    ended += fiber.waits == Waits::done;
  }
  return fail("divergent rendezvous: " + std::to_string(barriers) +
              " threads wait at a barrier, " + std::to_string(shuffles) + " at a shuffle, " +
              std::to_string(ended) + " ended");
}

inline void make_fibers() {
  std::size_t number = 0;
  device.fibers = std::vector<Fiber>(device.threads * device.cluster);
  for (Fiber &fiber : device.fibers) {
    fiber.stack.reset(new char[stack_bytes]);
    ucontext_t &start = fiber.context.start;
    getcontext(&start);
    start.uc_stack.ss_sp = fiber.stack.get();
    // Tops at the same offset of a page would all fall into the same few cache sets.
    start.uc_stack.ss_size = stack_bytes - (++number % 61) * 320 / 64 * 64;
    start.uc_link = nullptr;
    makecontext(&start, fiber_main, 0);
  }
}

// One block, or the blocks of a cluster together.
inline bool run_block() {
  Device &d = device;
  d.lds.assign(d.cluster, {});
  d.misaligned = false;
  for (Fiber &fiber : d.fibers) {
    fiber.waits = Waits::no;
    fiber.copies.clear();
    fiber.asked.clear();
    std::fill_n(fiber.passed, 5, 0);
  }
  for (;;) {
    for (int thread : d.order)
      if (d.fibers[thread].waits == Waits::no) resume(d, thread);
    if (std::all_of(d.fibers.begin(), d.fibers.end(),
                    [](const Fiber &fiber) { return fiber.waits == Waits::done; }))
      return fence_holds() && copies_were_aligned();
    const int all = d.threads * d.cluster;
    bool moved = release(d, 0, all, Waits::at_cluster);
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

inline void order_lanes(const std::string &order) {
  std::vector<int> &lanes = device.order;
  lanes.resize(device.threads * device.cluster);
  std::iota(lanes.begin(), lanes.end(), 0);
  if (order == "reverse") std::reverse(lanes.begin(), lanes.end());
  if (order == "random") {
    static thread_local std::mt19937 generator(0);
    std::shuffle(lanes.begin(), lanes.end(), generator);
  }
}

inline int launch(int blocks, int threads, int wavefront, int cluster,
                  const std::function<void()> &body) {
  device.shuffled.assign(threads * cluster, 0);
  device.body = &body;
  device.threads = threads;
  device.wavefront = wavefront;
  device.cluster = cluster;
  device.error.clear();
  const std::string order = lane_order();
  if (order != "forward" && order != "reverse" && order != "random") {
    device.error = "DSCORE_LANE_ORDER is " + order + "; it is forward, reverse or random";
    return 1;
  }
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

// d += a · b of a wavefront's fragments (vendor.hpp says which lane holds what): `given` are four
// elements of a and two of b.
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
#define DSCORE_LDS(type, name, count) type *name = dscore::emulation::lds<type>(count)
