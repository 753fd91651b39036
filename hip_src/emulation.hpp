// The emulated device: a GPU's blocks run on the host, each thread a fiber, one at a time.
//
// A fiber runs until a barrier, a shuffle or its end. A barrier lets go when every thread of the
// block waits at it, a shuffle when every lane of the wavefront does; where that cannot happen the
// launch fails. DSCORE_LANE_ORDER (forward, reverse, random) orders the fibers between rendezvous:
// a result that depends on it is a race. LDS is full of NaN when a block starts, and fenced.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

enum class Waits { no, at_barrier, at_shuffle, done };

struct Fiber {
  ucontext_t context{};
  std::unique_ptr<char[]> stack;
  Waits waits = Waits::no;
  int site = 0;         // source line of the rendezvous
  int passed[4] = {};   // rendezvous of each kind so far
  uint64_t given = 0;   // what the lane passes to a shuffle
  void *fake_stack = nullptr;
};

constexpr std::size_t stack_bytes = 256 * 1024;
constexpr std::size_t fence_bytes = 256;
constexpr unsigned char fence_value = 0xA5;

struct Device {
  std::vector<Fiber> fibers;
  std::vector<uint64_t> shuffled;  // a wavefront's values as of its last rendezvous
  std::vector<unsigned char> lds;
  bool lds_claimed = false;
  std::vector<int> order;
  ucontext_t scheduler{};
  const std::function<void()> *body = nullptr;
  int current = 0, threads = 0, wavefront = 0;
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
  Fiber &self = device.fibers[device.current];
  self.waits = waits;
  self.site = site;
  self.passed[static_cast<int>(waits)]++;
  enter_switch(waits == Waits::done ? nullptr : &self.fake_stack, device.main_stack,
               device.main_stack_bytes);
  swapcontext(&self.context, &device.scheduler);
  leave_switch(self.fake_stack, nullptr, nullptr);
}

inline void fiber_main() {
  leave_switch(nullptr, &device.main_stack, &device.main_stack_bytes);
  (*device.body)();
  yield(Waits::done, 0);
}

inline void resume(int thread) {
  Fiber &fiber = device.fibers[thread];
  device.current = thread;
  thread_index.x = thread;
  void *fake_stack = nullptr;
  enter_switch(&fake_stack, fiber.stack.get(), stack_bytes);
  swapcontext(&device.scheduler, &fiber.context);
  leave_switch(fake_stack, nullptr, nullptr);
}

// The block's LDS: the same memory for all its threads, NaN at first, with a fence behind it.
template <class T>
T *lds(std::size_t count) {
  if (!device.lds_claimed) {
    device.lds_claimed = true;
    // All bits set are a NaN in every float type.
    device.lds.assign(count * sizeof(T) + fence_bytes, 0xFF);
    std::fill(device.lds.end() - fence_bytes, device.lds.end(), fence_value);
  }
  return reinterpret_cast<T *>(device.lds.data());
}

inline bool fail(const std::string &what) {
  device.error = what + " (block " + std::to_string(block_index.x) + ")";
  return false;
}

inline bool fence_holds() {
  const bool holds = !device.lds_claimed ||
                     std::all_of(device.lds.end() - fence_bytes, device.lds.end(),
                                 [](unsigned char byte) { return byte == fence_value; });
  return holds || fail("LDS overrun: a lane wrote past the end of the block's LDS");
}

// Lets go of the threads first..last if all of them wait for the same thing at the same place.
inline bool release(int first, int last, Waits waits) {
  for (int thread = first; thread < last; thread++) {
    const Fiber &fiber = device.fibers[thread], &other = device.fibers[first];
    const int kind = static_cast<int>(waits);
    if (fiber.waits != waits || fiber.site != other.site ||
        fiber.passed[kind] != other.passed[kind])
      return false;
  }
  for (int thread = first; thread < last; thread++) {
    device.shuffled[thread] = device.fibers[thread].given;
    device.fibers[thread].waits = Waits::no;
  }
  return true;
}

inline bool stuck() {
  int barriers = 0, shuffles = 0, ended = 0;
  for (const Fiber &fiber : device.fibers) {
    barriers += fiber.waits == Waits::at_barrier;
    shuffles += fiber.waits == Waits::at_shuffle;
    ended += fiber.waits == Waits::done;
  }
  return fail(std::string(shuffles ? "divergent shuffle" : "divergent barrier") + ": " +
              std::to_string(barriers) + " threads wait at a barrier, " +
              std::to_string(shuffles) + " at a shuffle, " + std::to_string(ended) + " ended");
}

inline bool run_block() {
  device.lds_claimed = false;
  for (int thread = 0; thread < device.threads; thread++) {
    Fiber &fiber = device.fibers[thread];
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = stack_bytes;
    fiber.context.uc_link = nullptr;
    fiber.waits = Waits::no;
    std::fill_n(fiber.passed, 4, 0);
    makecontext(&fiber.context, fiber_main, 0);
  }
  for (;;) {
    for (int thread : device.order)
      if (device.fibers[thread].waits == Waits::no) resume(thread);
    if (std::all_of(device.fibers.begin(), device.fibers.end(),
                    [](const Fiber &fiber) { return fiber.waits == Waits::done; }))
      return fence_holds();
    bool moved = release(0, device.threads, Waits::at_barrier);
    for (int first = 0; first < device.threads; first += device.wavefront)
      moved |= release(first, first + device.wavefront, Waits::at_shuffle);
    if (!moved) return stuck();
  }
}

inline void order_lanes() {
  const char *asked = std::getenv("DSCORE_LANE_ORDER");
  const std::string order = asked ? asked : "forward";
  device.order.resize(device.threads);
  std::iota(device.order.begin(), device.order.end(), 0);
  if (order == "reverse") std::reverse(device.order.begin(), device.order.end());
  if (order == "random") {
    static std::mt19937 generator(0);
    std::shuffle(device.order.begin(), device.order.end(), generator);
  }
}

inline int launch(int blocks, int threads, int wavefront, const std::function<void()> &body) {
  device.fibers.resize(threads);
  for (Fiber &fiber : device.fibers)
    if (!fiber.stack) fiber.stack.reset(new char[stack_bytes]);
  device.shuffled.assign(threads, 0);
  device.body = &body;
  device.threads = threads;
  device.wavefront = wavefront;
  device.error.clear();
  for (int block = 0; block < blocks; block++) {
    block_index.x = block;
    order_lanes();
    if (!run_block()) return 1;
  }
  return 0;
}

template <class T>
T shuffle_down(T value, int by, int width, int site) {
  const int thread = device.current;
  std::memcpy(&device.fibers[thread].given, &value, sizeof(T));
  yield(Waits::at_shuffle, site);
  const int lane = thread % device.wavefront;
  const int source = lane % width + by < width ? thread + by : thread;
  T result;
  std::memcpy(&result, &device.shuffled[source], sizeof(T));
  return result;
}

}  // namespace dscore::emulation

#define threadIdx dscore::emulation::thread_index
#define blockIdx dscore::emulation::block_index
#define __syncthreads() \
  dscore::emulation::yield(dscore::emulation::Waits::at_barrier, __LINE__)
#define DSCORE_SHFL_DOWN(value, by, width) \
  dscore::emulation::shuffle_down(value, by, width, __LINE__)
#define DSCORE_LDS(type, name, count) type *name = dscore::emulation::lds<type>(count)
