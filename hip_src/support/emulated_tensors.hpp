// Boxes of tensors on the emulated device (support/tensor_copy.hpp): their maps, and the barriers
// that count their bytes. A box comes to LDS at once, or when somebody waits for it.
#pragma once

#include "support/bulk_copy.hpp"

namespace dscore::emulation {

// A tensor's sizes, the bytes from an element to the next, and its boxes: in a row, by rows, and by
// matrices.
constexpr int most_rank = 3;
struct TensorMap {
  const unsigned char *base;
  uint64_t sizes[most_rank], steps[most_rank];
  uint32_t box[most_rank];
  int rank, element_bytes;
  bool exchanged;
};

// A TransferBarrier: arrivals that are missing of the `count` of a phase, bytes that are, and the
// phases that are over.
struct Counters {
  int32_t count, missing, bytes, phase;

  void settle() {
    if (missing != 0 || bytes != 0) return;
    phase++;
    missing = count;
  }
};
static_assert(sizeof(Counters) == sizeof(TransferBarrier), "one in place of the other");

inline Counters &counters(const TransferBarrier *barrier) {
  return *reinterpret_cast<Counters *>(const_cast<TransferBarrier *>(barrier));
}

struct Box {
  const TensorMap *map;
  unsigned char *lds;
  TransferBarrier *barrier;
  int at[most_rank];
};

// Calls each(place in LDS, in memory, whether the tensor has it) for the elements of a box.
template <class Each>
void walk_box(const Box &box, Each each) {
  const TensorMap &map = *box.map;
  int total = 1;
  for (int i = 0; i < map.rank; i++) total *= static_cast<int>(map.box[i]);
  const int from = static_cast<int>(lds_offset(box.lds));
  for (int number = 0; number < total; number++) {
    const unsigned char *place = map.base;
    bool there = true;
    for (int i = 0, left = number; i < map.rank; left /= static_cast<int>(map.box[i++])) {
      const int64_t index = box.at[i] + int64_t{left} % map.box[i];
      there = there && index >= 0 && static_cast<uint64_t>(index) < map.sizes[i];
      place += index * static_cast<int64_t>(map.steps[i]);
    }
    // Vectors are exchanged by the bits of the address in LDS, whatever the box begins at.
    const int all = from + number * map.element_bytes;
    each(box.lds + (map.exchanged ? all ^ ((all >> 7 & 7) << 4) : all) - from, place, there);
  }
}

inline void load(const void *given) {
  Box box;
  std::memcpy(&box, given, sizeof box);
  const int size = box.map->element_bytes;
  int bytes = 0;
  walk_box(box, [&](unsigned char *lds, const unsigned char *from, bool there) {
    if (there) std::memcpy(lds, from, size);
    else std::memset(lds, 0, size);
    bytes += size;
  });
  counters(box.barrier).bytes -= bytes;
  counters(box.barrier).settle();
}

inline void store(const void *given) {
  Box box;
  std::memcpy(&box, given, sizeof box);
  walk_box(box, [&](unsigned char *lds, const unsigned char *to, bool there) {
    if (there) std::memcpy(const_cast<unsigned char *>(to), lds, box.map->element_bytes);
  });
}

struct Span {
  void *to;
  const void *lds;
  int bytes;
};

struct LoadedSpan {
  const void *from;
  void *lds;
  TransferBarrier *barrier;
  int bytes;
};

inline LoadedSpan span_of(const void *from, void *lds, TransferBarrier *barrier, int bytes) {
  if (lds_offset(lds) % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0 || bytes % 16 != 0)
    device.misaligned = true;
  filling(lds, bytes);
  return {from, lds, barrier, bytes};
}

inline void load_bytes(const void *given) {
  LoadedSpan span;
  std::memcpy(&span, given, sizeof span);
  std::memcpy(span.lds, span.from, span.bytes);
  counters(span.barrier).bytes -= span.bytes;
  counters(span.barrier).settle();
}

inline void store_bytes(const void *given) {
  Span span;
  std::memcpy(&span, given, sizeof span);
  std::memcpy(span.to, span.lds, span.bytes);
}

template <int Rank>
Box box_of(const TensorMap &map, const void *lds, TransferBarrier *barrier, const int (&at)[Rank]) {
  if (lds_offset(lds) % 128 != 0 || at[0] * map.element_bytes % 16 != 0) device.misaligned = true;
  Box box{&map, static_cast<unsigned char *>(const_cast<void *>(lds)), barrier, {}};
  int bytes = map.element_bytes;
  for (int i = 0; i < Rank; i++) box.at[i] = at[i], bytes *= static_cast<int>(map.box[i]);
  if (barrier) filling(lds, bytes);
  return box;
}

// Begins what comes to a barrier: at once, or when somebody waits for it.
template <class Given>
void begin_arrival(TransferBarrier *barrier, void (*make)(const void *), const Given &given) {
  if (copies_at_once()) return make(&given);
  Queue one{};
  one.push(make, given);
  device.arrivals.push_back({barrier, one.begun[0]});
  one.begun.drop();
}

// Makes the boxes that are to come to a barrier, in the order in which they were begun.
inline void make_arrivals(const TransferBarrier *barrier) {
  List<Arrival> &all = device.arrivals;
  int kept = 0;
  for (int i = 0; i < all.count; i++)
    if (all[i].barrier == barrier) all[i].later.make(all[i].later.given);
    else all[kept++] = all[i];
  all.count = kept;
}

}  // namespace dscore::emulation
