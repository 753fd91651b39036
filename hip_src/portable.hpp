// One vocabulary for three compilers: HIP's own words, and a few of dscore's where vendors differ.
#pragma once

#include <cstdint>
#include <type_traits>

extern "C" {
#include "abi.h"
}
#define DSCORE_ABI 2

#if defined(DSCORE_HOST)
#include "emulation.hpp"
#elif defined(__CUDACC__)
#include <cuda_runtime.h>
#define hipError_t cudaError_t
#define hipSuccess cudaSuccess
#define hipStream_t cudaStream_t
#define hipGetErrorString cudaGetErrorString
#define hipGetLastError cudaGetLastError
#define hipGetDevice cudaGetDevice
#define hipSetDevice cudaSetDevice
#else
#include <hip/hip_runtime.h>
#endif

// The value of the lane `by` further on in the segment of `width`, past its end one's own; all
// lanes of the wavefront take part. LDS of a block: one array a kernel.
#if defined(DSCORE_HOST)
#define DSCORE_UNROLL
#define DSCORE_ROLLED
#else
#define DSCORE_UNROLL _Pragma("unroll")
#define DSCORE_ROLLED _Pragma("unroll 1")
#define DSCORE_LDS(type, name, count) __shared__ type name[count]
#if defined(__CUDACC__)
#define DSCORE_SHFL_DOWN(value, by, width) __shfl_down_sync(0xffffffffu, value, by, width)
#else
#define DSCORE_SHFL_DOWN(value, by, width) __shfl_down(value, by, width)
#endif
#endif

namespace dscore {

// What a kernel is started with.
struct Arguments {
  const void *x, *w, *bias;
  void *out;
};

#if defined(DSCORE_HOST)
template <class Kernel>
int run(const Arguments &args, typename Kernel::Shape shape, void *, int) {
  return emulation::launch(Kernel::blocks(shape), Kernel::threads, Kernel::wavefront,
                           [&] { Kernel::body(args, shape); });
}
#else
template <class Kernel>
__global__ __launch_bounds__(Kernel::threads) void entry(Arguments args,
                                                         typename Kernel::Shape shape) {
  Kernel::body(args, shape);
}

template <class Kernel>
int run(const Arguments &args, typename Kernel::Shape shape, void *stream, int device) {
  int before = device;
  hipError_t code = hipGetDevice(&before);
  if (code == hipSuccess && before != device) code = hipSetDevice(device);
  if (code != hipSuccess) return static_cast<int>(code);
  entry<Kernel><<<Kernel::blocks(shape), Kernel::threads, 0, static_cast<hipStream_t>(stream)>>>(
      args, shape);
  code = hipGetLastError();
  if (before != device) (void)hipSetDevice(before);
  return static_cast<int>(code);
}
#endif

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

template <class T = void>
T *pointer(dscore_address address) {
  return reinterpret_cast<T *>(static_cast<uintptr_t>(address));
}

template <class Kernel>
int launch(const dscore_shape *shape, dscore_address x, dscore_address w, dscore_address bias,
           dscore_address out, dscore_address stream, int device) {
  const Arguments args{pointer(x), pointer(w), pointer(bias), pointer(out)};
  if constexpr (std::is_same_v<typename Kernel::Shape, dscore_shape>)
    return run<Kernel>(args, *shape, pointer(stream), device);
  else if (!sizes_fit<typename Kernel::Shape>(*shape))
    return wrong_sizes;
  else
    return run<Kernel>(args, {}, pointer(stream), device);
}

inline const char *error_text(int code) {
  if (code == wrong_sizes) return "the library was built for other sizes";
#if defined(DSCORE_HOST)
  return emulation::device.error.c_str();
#else
  return hipGetErrorString(static_cast<hipError_t>(code));
#endif
}

}  // namespace dscore

// One row of a library's table.
#define DSCORE_KERNEL(name) \
  {#name, name::threads, name::lds_bytes, name::wavefront, dscore::launch<name>}
#define DSCORE_EXPORT extern "C" __attribute__((visibility("default")))
