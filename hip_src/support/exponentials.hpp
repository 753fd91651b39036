// The logistic function, of which silu and sigmoid are made, by the instructions that GPUs have for
// 2^x and 1 / x. docs/bounds.md has its error bound, which holds for all of these ways.
#pragma once

#include "support/portable.hpp"

namespace dscore {

// Both to an ulp or two, without the numbers below the normal range, which are taken for 0.
__device__ inline float fast_exp2(float value) {
#if defined(__CUDACC__)
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
#else
  return __builtin_exp2f(value);  // of AMD's GPUs v_exp_f32, scaled below the normal range
#endif
}
__device__ inline float fast_reciprocal(float value) {
#if defined(DSCORE_HOST)
  return 1.0f / value;
#elif defined(__CUDACC__)
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
#else
  return __builtin_amdgcn_rcpf(value);
#endif
}

// 1 / (1 + e^-value), of any value: 1 and 0 for infinities, NaN for a NaN.
__device__ inline float logistic(float value) {
  constexpr float log2_e = 0x1.715476p+0f;
  return fast_reciprocal(1.0f + fast_exp2(value * -log2_e));
}

}  // namespace dscore
