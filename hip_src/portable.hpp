// One vocabulary for three compilers: HIP's own words, and a few of dscore's where vendors differ.
#pragma once

#include <type_traits>

extern "C" {
#include "abi.h"
}
#define DSCORE_ABI 1

#if defined(DSCORE_HOST)
#include "emulation.hpp"
#elif defined(__CUDACC__)
#include <cuda_runtime.h>
#define hipError_t cudaError_t
#define hipSuccess cudaSuccess
#define hipStream_t cudaStream_t
#define hipGetErrorString cudaGetErrorString
#define hipGetLastError cudaGetLastError
#else
#include <hip/hip_runtime.h>
#endif

// The value of the lane `by` further on in the segment of `width`, past its end one's own; all
// lanes of the wavefront take part. LDS of a block: one array a kernel.
#if defined(DSCORE_HOST)
#define DSCORE_UNROLL
#else
#define DSCORE_UNROLL _Pragma("unroll")
#define DSCORE_LDS(type, name, count) __shared__ type name[count]
#if defined(__CUDACC__)
#define DSCORE_SHFL_DOWN(value, by, width) __shfl_down_sync(0xffffffffu, value, by, width)
#else
#define DSCORE_SHFL_DOWN(value, by, width) __shfl_down(value, by, width)
#endif
#endif

namespace dscore {

#if defined(DSCORE_HOST)
template <class Kernel>
int run(const dscore_args &args, typename Kernel::Shape shape) {
  return emulation::launch(Kernel::blocks(shape), Kernel::threads, Kernel::wavefront,
                           [&] { Kernel::body(args, shape); });
}
#else
template <class Kernel>
__global__ __launch_bounds__(Kernel::threads) void entry(dscore_args args,
                                                         typename Kernel::Shape shape) {
  Kernel::body(args, shape);
}

template <class Kernel>
int run(const dscore_args &args, typename Kernel::Shape shape) {
  entry<Kernel><<<Kernel::blocks(shape), Kernel::threads, 0,
                  static_cast<hipStream_t>(args.stream)>>>(args, shape);
  return static_cast<int>(hipGetLastError());
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

template <class Kernel>
int launch(const dscore_args *args) {
  if constexpr (std::is_same_v<typename Kernel::Shape, dscore_shape>)
    return run<Kernel>(*args, args->shape);
  else if (!sizes_fit<typename Kernel::Shape>(args->shape))
    return wrong_sizes;
  else
    return run<Kernel>(*args, {});
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
