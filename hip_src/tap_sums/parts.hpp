// The second step of tap sums: the slices' sums, added in a fixed order.
#pragma once

#include "support/common.hpp"
#include "support/vendor.hpp"

namespace dscore {

// Order of additions: of each group of lanes parts group, group + groups, …; then groups,
// ascending.
// Parts: of the workspace. ByTap: it has all channels of a tap, then those of the next one.
template <class Result, class t, class L, class Shape_, int Parts, bool ByTap = false,
          class Arguments_ = WorkspaceArguments>
struct TapSumsParts : KernelOn<Result, Arguments_> {
  using Arguments = Arguments_;
  using Shape = Shape_;
  // Sums of a block side by side, and threads for each: whole wavefronts of every device.
  static constexpr int lanes = 32, groups = [] {
    int most = 2;
    while (2 * most <= least(Parts, 16)) most *= 2;
    return most;
  }();
  static constexpr int threads = groups * lanes;
  static constexpr int wavefront = t::wavefront, alignment = sizeof(float);
  static constexpr int lds_bytes = threads * int{sizeof(float)};

  static __host__ __device__ int sums(const Shape &s) { return s.out_channels * L::taps; }
  static int blocks(const Shape &s) { return ceil_div(sums(s), lanes); }

  const Shape &s;

  __device__ TapSumsParts(const Arguments &, const Shape &shape) : s(shape) {}

  __device__ void run(const Arguments &args) {
    admit_next_kernel();  // whose start would else wait for the end of many short blocks
    float *const parts = block_lds<float, threads>();
    const int lane = threadIdx.x % lanes, group = threadIdx.x / lanes;
    const int at = blockIdx.x * lanes + lane;
    float sum = 0.0f;
    if (at < sums(s)) {
      const float *const from = static_cast<const float *>(args.workspace) + at;
      DSCORE_UNROLL
      for (int i = 0; i < ceil_div(Parts, groups); i++)
        if (const int part = i * groups + group; part < Parts) sum += from[part * sums(s)];
    }
    parts[threadIdx.x] = sum;
    __syncthreads();
    if (group > 0 || at >= sums(s)) return;
    DSCORE_UNROLL
    for (int other = 1; other < groups; other++) sum += parts[other * lanes + lane];
    const int place = ByTap ? at % s.out_channels * L::taps + at / s.out_channels : at;
    static_cast<Result *>(args.out)[place] = static_cast<Result>(sum);
  }
};

}  // namespace dscore
