// LDS of the emulated device, full of NaN when a block starts and fenced on both sides; and the
// copies to it that are under way.
#pragma once

#include <stdarg.h>
#include <stdio.h>

#include "support/fibers.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(from, bytes) ((void)(from), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(from, bytes) ((void)(from), (void)(bytes))
#endif

namespace dscore::emulation {

constexpr size_t fence_bytes = 256;

// What a fence repeats: not what another fence did, nor what the one on the other side does, which
// is its complement. A lane that goes on past the end of images may copy either over this one: LDS
// may begin where they end, and what nobody owns any more keeps its contents.
inline uint64_t new_fence() {
  const uint64_t seed = reinterpret_cast<uintptr_t>(&device) + ++device.claims;
  return (seed ^ seed >> 29) * 0x9E3779B97F4A7C15u;
}
inline void fill_fence(unsigned char *first, uint64_t word) {
  for (size_t at = 0; at < fence_bytes; at += sizeof word) memcpy(first + at, &word, sizeof word);
}
inline bool fence_holds(const unsigned char *first, uint64_t word) {
  for (size_t at = 0; at < fence_bytes; at += sizeof word)
    if (memcmp(first + at, &word, sizeof word) != 0) return false;
  return true;
}

// Memory of `bytes` between two fences, from a multiple of `alignment` on.
inline void claim(Lds &lds, size_t bytes, size_t alignment) {
  lds.first = alignment > fence_bytes ? alignment : fence_bytes;
  lds.size = lds.first + bytes + fence_bytes;
  lds.bytes = static_cast<unsigned char *>(
      aligned_alloc(lds.first, (lds.size + lds.first - 1) / lds.first * lds.first));
  if (!lds.bytes) abort();
  lds.fence = new_fence();
  fill_fence(lds.bytes + lds.first - fence_bytes, lds.fence);
  // All bits set are a NaN in every float type.
  memset(lds.bytes + lds.first, 0xFF, bytes);
  fill_fence(lds.bytes + lds.first + bytes, ~lds.fence);
  // The address sanitizer sees what reads there, too.
  ASAN_POISON_MEMORY_REGION(lds.bytes, lds.first);
  ASAN_POISON_MEMORY_REGION(lds.bytes + lds.size - fence_bytes, fence_bytes);
}

inline Lds &own_lds() { return device.lds[device.current / device.threads]; }

// The block's LDS: the same memory for all its threads, NaN at first, between two fences.
template <class T>
T *lds(size_t count, size_t alignment) {
  Lds &own = own_lds();
  if (!own.bytes) claim(own, count * sizeof(T), alignment);
  return reinterpret_cast<T *>(own.bytes + own.first);
}

// Bytes from the beginning of the block's LDS, and the place that lies so many behind it: its
// first one, and the launch fails, where that is past its end.
inline size_t lds_offset(const void *place) {
  const Lds &own = own_lds();
  return static_cast<const unsigned char *>(place) - (own.bytes + own.first);
}
inline void *lds_at(const Lds &own, size_t offset, size_t bytes) {
  const bool inside = offset + bytes + own.first + fence_bytes <= own.size;
  if (!inside) device.stray = true;
  return own.bytes + own.first + (inside ? offset : 0);
}

inline void drop_lds() {
  for (Lds &lds : device.lds) {
    if (lds.bytes) ASAN_UNPOISON_MEMORY_REGION(lds.bytes, lds.size);
    free(lds.bytes);
    lds = {};
  }
}

// What lies in another block of the cluster where `own` does in the lane's.
template <class T>
const T *of_block(const T *own, int rank) {
  const auto offset = reinterpret_cast<const unsigned char *>(own) - own_lds().bytes;
  return reinterpret_cast<const T *>(device.lds[rank].bytes + offset);
}

// False; the device's error is as printf has it of the arguments, and the block's number.
__attribute__((format(printf, 1, 2))) inline bool fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(device.error, sizeof device.error, format, arguments);
  va_end(arguments);
  const size_t length = strlen(device.error);
  snprintf(device.error + length, sizeof device.error - length, " (block %d)", block_index.x);
  return false;
}

inline bool fences_hold() {
  for (Lds &lds : device.lds) {
    if (!lds.bytes) continue;
    ASAN_UNPOISON_MEMORY_REGION(lds.bytes, lds.size);
    if (!fence_holds(lds.bytes + lds.size - fence_bytes, ~lds.fence))
      return fail("LDS overrun: a lane wrote past the end of the block's LDS");
    if (!fence_holds(lds.bytes + lds.first - fence_bytes, lds.fence))
      return fail("LDS underrun: a lane wrote before the beginning of the block's LDS");
  }
  return true;
}

inline bool copies_were_aligned() {
  return !device.misaligned || fail("an asynchronous copy of a vector that is not aligned");
}

inline bool operands_were_inside() {
  return !device.stray || fail("matrix units read an operand past the end of the block's LDS");
}

inline bool boxes_arrived() {
  return !device.arrivals.count || fail("%d boxes or numbers came to LDS that nobody waited for",
                                        device.arrivals.count);
}

// A wavefront goes on before what it reads of LDS has come to registers: it has come for certain
// once a product that takes it is begun. Until then nobody may fill that LDS by the copy engine.
inline void reads_for_product(const void *lds, int bytes) {
  Fiber &self = device.fibers[device.current];
  const auto from = reinterpret_cast<uintptr_t>(lds);
  if (self.reads == self.reads_end) self.reads = from, self.reads_end = from + bytes;
  if (from < self.reads) self.reads = from;
  if (from + bytes > self.reads_end) self.reads_end = from + bytes;
}
inline void product_has_reads() {
  Fiber &self = device.fibers[device.current];
  self.reads = self.reads_end = 0;
}
inline void filling(const void *lds, int bytes) {
  const auto from = reinterpret_cast<uintptr_t>(lds);
  for (const Fiber &fiber : device.fibers)
    if (from < fiber.reads_end && fiber.reads < from + bytes) device.refilled = true;
}
inline bool reads_had_come() {
  return !device.refilled ||
         fail("LDS is filled again before what was read of it is in a product");
}

// Hardware copies at any time between the asking and the wait: here at the one or the other.
inline bool copies_at_once() { return device.order[0] != 0; }

inline void make(const Copy &copy) {
  memcpy(copy.to, copy.from, copy.bytes);
  memset(static_cast<char *>(copy.to) + copy.bytes, 0, copy.size - copy.bytes);
}

inline void copy_async(void *to, const void *from, size_t bytes, size_t size) {
  Fiber &self = device.fibers[device.current];
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % size != 0)
    device.misaligned = true;
  if (copies_at_once()) make({to, from, bytes, size});
  else self.copies.push_back({to, from, bytes, size, self.groups});
}

inline void commit_copies() { device.fibers[device.current].groups++; }

inline void wait_copies(int ahead) {
  Fiber &self = device.fibers[device.current];
  int made = 0;
  for (; made < self.copies.count && self.copies[made].group + ahead < self.groups; made++)
    make(self.copies[made]);
  self.copies.drop_first(made);
}

}  // namespace dscore::emulation
