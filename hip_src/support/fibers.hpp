// The threads of the emulated device (support/emulation.hpp): fibers of the host, of which one runs
// at a time. In C, all but for a few templates: a compiler takes three times as long for vectors,
// queues and strings of the standard library as for the kernel of a unit.
#pragma once

#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace dscore::emulation {

struct Index {
  int x;
};
// As __thread and not as thread_local: of the latter a compiler asks at each access whether they
// have been initialised.
inline __thread Index thread_index{}, block_index{};

// At a poll a thread waits for nothing that can be seen from outside: it looks again.
enum class Waits { no, at_barrier, at_shuffle, at_cluster, at_warpgroup, at_poll, done };
constexpr int kinds_of_waits = 7;

// Where a fiber or the scheduler stands.
struct Context {
  ucontext_t start{};
  jmp_buf at{};
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

// Elements one after the other, all bits 0 at first; a plain type's. Whoever makes them drops them:
// a thread's variables with destructors would be looked for at each access.
template <class T>
struct List {
  T *at = nullptr;
  int count = 0, room = 0;

  void make(int size) {
    drop();
    at = static_cast<T *>(calloc(size, sizeof(T)));
    if (!at) abort();
    count = room = size;
  }
  void drop() {
    free(at);
    *this = {};
  }
  void push_back(const T &element) {
    if (count == room) {
      room = 2 * room + 4;
      at = static_cast<T *>(realloc(at, room * sizeof(T)));
      if (!at) abort();
    }
    at[count++] = element;
  }
  void drop_first(int several) {
    if (several == 0) return;
    count -= several;
    memmove(at, at + several, count * sizeof(T));
  }
  T &operator[](int index) const { return at[index]; }
  T *begin() const { return at; }
  T *end() const { return at + count; }
};

// A copy to LDS that is under way: `bytes` of the source, then zeros up to `size`.
struct Copy {
  void *to;
  const void *from;
  size_t bytes, size;
  int group = 0;  // of the lane's, by number
};

// Something that a thread has begun, and hardware does at any time until it is waited for.
struct Later {
  void (*make)(const void *given);
  int group;  // of the thread's, by number
  alignas(8) unsigned char given[240];
};

// Those of one kind, in groups.
struct Queue {
  List<Later> begun;
  int groups;  // that have been ended

  template <class Given>
  void push(void (*make)(const void *), const Given &given) {
    static_assert(sizeof(Given) <= sizeof(Later::given), "room for it");
    Later later{make, groups, {}};
    memcpy(later.given, &given, sizeof given);
    begun.push_back(later);
  }
  // Makes all but those of the last `ahead` groups.
  void wait(int ahead) {
    int made = 0;
    for (; made < begun.count && begun[made].group + ahead < groups; made++)
      begun[made].make(begun[made].given);
    begun.drop_first(made);
  }
};

struct Fiber {
  Context context;
  char *stack = nullptr;
  Waits waits = Waits::no;
  int site = 0;         // source line of the rendezvous
  int passed[kinds_of_waits] = {};  // rendezvous of each kind so far
  uint64_t given = 0;   // what the lane passes to a shuffle
  List<Copy> copies;    // asynchronous ones under way
  int groups = 0;       // of copies that have been ended
  Queue products{};     // of its warpgroup's matrix units
  Queue stores{};       // of boxes of tensors
  uintptr_t reads = 0, reads_end = 0;  // of LDS, for a product that has not been begun
  void *fake_stack = nullptr;
};

// What each thread of a launch runs.
struct Body {
  void (*run)(const void *thread);
  const void *thread;
};

constexpr size_t stack_bytes = 256 * 1024;

// The LDS of a block, with its fences; nullptr until a thread claims it. It begins at `first`.
struct Lds {
  unsigned char *bytes;
  size_t size, first;
  uint64_t fence;  // what the fence before it repeats
};

// A box of a tensor on its way to LDS: whoever waits at the barrier makes it.
struct Arrival {
  void *barrier;
  Later later;
};

struct Device {
  List<Fiber> fibers;
  List<uint64_t> shuffled;  // a wavefront's values as of its last rendezvous
  List<Lds> lds;            // of each block that runs
  uint64_t claims;          // of LDS so far
  List<Arrival> arrivals;
  List<int> order;
  Context scheduler;
  Body body{};
  int current = 0, threads = 0, wavefront = 0, cluster = 1, first_block = 0, blocks = 0;
  bool uneven = false;  // blocks pause: those whose bits are set
  int pausing = 0;
  bool misaligned = false;  // some copy, at its source or in LDS
  bool seen = false;        // by some thread, what it polled for
  bool refilled = false;    // some LDS, before what was read of it was in use
  bool stray = false;       // some operand of matrix units, outside of LDS
  char error[256] = {};
  const void *main_stack = nullptr;
  size_t main_stack_bytes = 0;
};
inline __thread Device device{};

inline void enter_switch(void **save, const void *bottom, size_t size) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(save, bottom, size);
#else
  (void)save, (void)bottom, (void)size;
#endif
}

inline void leave_switch(void *saved, const void **bottom, size_t *size) {
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
    device.body.run(device.body.thread);
    yield(Waits::done, 0);
  }
}

inline void resume(Device &d, int thread) {
  Fiber &fiber = d.fibers[thread];
  d.current = thread;
  thread_index.x = thread % d.threads;
  block_index.x = d.first_block + thread / d.threads;
  void *fake_stack = nullptr;
  enter_switch(&fake_stack, fiber.stack, stack_bytes);
  change(d.scheduler, fiber.context);
  leave_switch(fake_stack, nullptr, nullptr);
}

inline void make_fibers() {
  size_t number = 0;
  device.fibers.make(device.threads * device.cluster);
  for (Fiber &fiber : device.fibers) {
    fiber.stack = static_cast<char *>(malloc(stack_bytes));
    if (!fiber.stack) abort();
    ucontext_t &start = fiber.context.start;
    getcontext(&start);
    start.uc_stack.ss_sp = fiber.stack;
    // Tops at the same offset of a page would all fall into the same few cache sets.
    start.uc_stack.ss_size = stack_bytes - (++number % 61) * 320 / 64 * 64;
    start.uc_link = nullptr;
    makecontext(&start, fiber_main, 0);
  }
}

inline void drop_fibers() {
  for (Fiber &fiber : device.fibers) {
    fiber.copies.drop();
    fiber.products.begun.drop();
    fiber.stores.begun.drop();
    free(fiber.stack);
  }
  device.fibers.drop();
}

}  // namespace dscore::emulation
