// What a library offers of its kernels (abi.h): a row of its table for each, with checks of what a
// call gives it.
#pragma once

#include "support/portable.hpp"

namespace dscore {

// A kernel, and those that follow it on the same operands, one after the other.
template <class Kernel, bool Behind>
int run_all(const typename Kernel::Arguments &args, const typename Kernel::Shape &shape,
            void *stream, int device) {
  const int code = run<Kernel, Behind>(args, shape, stream, device);
  if constexpr (std::is_void_v<typename Kernel::Then>) return code;
  else return code ? code : run_all<typename Kernel::Then, Behind>(args, shape, stream, device);
}

// Whether the sizes given are those that a kernel was built for.
template <class F>
bool sizes_fit(const dscore_shape &given) {
  return given.batch == F::batch && given.in_channels == F::in_channels &&
         given.height == F::height && given.width == F::width &&
         given.out_channels == F::out_channels && given.out_height == F::out_height &&
         given.out_width == F::out_width && given.groups == F::groups &&
         given.pad_top == F::pad_top && given.pad_left == F::pad_left;
}

constexpr int wrong_sizes = -1;

// Addresses that a kernel's arguments, which are pointers alone, take.
template <class Kernel>
constexpr int operands = sizeof(typename Kernel::Arguments) / sizeof(dscore_address);

// Whether every operand is where the kernel can take it, or missing where it may be.
template <class Kernel>
bool well_placed(const dscore_address *at) {
  dscore_address all = 0;
  for (int i = 0; i < operands<Kernel>; i++) {
    if (at[i] == 0 && (Kernel::optional_operands >> i & 1) == 0) return false;
    all |= at[i];
  }
  return all % Kernel::alignment == 0;
}

template <class Kernel, bool Behind>
int launch(const dscore_shape *shape, const dscore_operands *given, int device) {
  static_assert(sizeof(void *) == sizeof(dscore_address), "an address is a pointer's bits");
  static_assert(operands<Kernel> <= DSCORE_MOST_OPERANDS, "operands");
  if (!well_placed<Kernel>(given->at)) return DSCORE_MISPLACED;
  if (shape->layout != Kernel::layout) return wrong_sizes;
  typename Kernel::Arguments args;
  std::memcpy(&args, given->at, sizeof args);
  void *const stream = reinterpret_cast<void *>(static_cast<uintptr_t>(given->stream));
  if constexpr (std::is_same_v<typename Kernel::Shape, dscore_shape>)
    return run_all<Kernel, Behind>(args, *shape, stream, device);
  else if (!sizes_fit<typename Kernel::Shape>(*shape))
    return wrong_sizes;
  else
    return run_all<Kernel, Behind>(args, {}, stream, device);
}

// The launch behind another kernel's, which is the same one where nothing differs.
template <class Kernel>
constexpr dscore_launch launch_behind =
    launch<Kernel, (Kernel::asked_behind_lds_bytes != Kernel::asked_lds_bytes ||
                    Kernel::reads_constants_first)>;

template <class Kernel>
long long workspace_bytes(const dscore_shape *shape) {
  if constexpr (std::is_same_v<typename Kernel::Shape, dscore_shape>)
    return Kernel::workspace_bytes(*shape);
  else
    return Kernel::workspace_bytes(typename Kernel::Shape{});
}

inline const char *error_text(int code) {
  if (code == wrong_sizes) return "the library was built for other sizes, or another layout";
  if (code == DSCORE_MISPLACED)
    return "an array's address is 0, or no multiple of the kernel's alignment";
#if defined(DSCORE_HOST)
  return emulation::device.error;
#else
  return hipGetErrorString(static_cast<hipError_t>(code));
#endif
}

}  // namespace dscore

// One row of a library's table.
#define DSCORE_KERNEL(name)                                               \
  {#name,           name::threads,          name::lds_bytes,              \
   name::wavefront, name::alignment,        dscore::operands<name>,       \
   int{sizeof(typename name::Element)},     dscore::workspace_bytes<name>, \
   dscore::launch<name, false>, dscore::launch_behind<name>}
#define DSCORE_EXPORT extern "C" __attribute__((visibility("default")))
