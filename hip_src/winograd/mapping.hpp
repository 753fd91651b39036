// Sizes and the order of the tasks of Winograd's convolution: Algorithm 1 of Jia et al. 2020 as
// dscore/algorithms/winograd/tasks.py has it, with its names and, behind them, the paper's letters.
#pragma once

#include "winograd/transforms.hpp"

namespace dscore {

enum class TaskKind { filter, input, product, output, none };

// `part` is the task's number among those of its kind in its task group.
struct WinogradTask {
  TaskKind kind;
  int group, part;
};

// Counters in memory, of tasks that have ended: the filters', and for each task group those of
// inputs, products and outputs. The first one is the number of the next task.
struct WinogradCounters {
  static constexpr int head = 8, each = 4, next = 0, filters = 1;
  static __host__ __device__ int of(TaskKind kind, int group) {
    if (kind == TaskKind::filter) return filters;
    return head + each * group + static_cast<int>(kind) - 1;
  }
};

template <class t, class Shape>
struct WinogradMapping {
  static constexpr int m = t::outputs, planes = t::planes_all;

  static __host__ __device__ int rows(const Shape &s) { return ceil_div(s.out_height, m); }
  static __host__ __device__ int columns(const Shape &s) { return ceil_div(s.out_width, m); }
  static __host__ __device__ int tiles(const Shape &s) { return s.batch * rows(s) * columns(s); }
  static __host__ __device__ int steps(const Shape &s) { return ceil_div(s.in_channels, t::step); }
  static __host__ __device__ int depth(const Shape &s) { return steps(s) * t::step; }
  static __host__ __device__ int k_blocks(const Shape &s) {
    return ceil_div(s.out_channels, t::tile_k);
  }
  static __host__ __device__ int channels(const Shape &s) { return k_blocks(s) * t::tile_k; }

  // N_G, S_I, S_G, S_O, N_F.
  static __host__ __device__ int task_groups(const Shape &s) {
    return ceil_div(tiles(s), t::tile_t);
  }
  static __host__ __device__ int input_tasks(const Shape &s) {
    return ceil_div(depth(s), t::input_channels);
  }
  static __host__ __device__ int product_tasks(const Shape &s) {
    return k_blocks(s) * (planes / t::planes);
  }
  static __host__ __device__ int output_tasks(const Shape &s) {
    return ceil_div(s.out_channels, t::output_channels);
  }
  // None where filters come transformed.
  static __host__ __device__ int filter_tasks(const Shape &s) {
    return t::packed ? 0 : k_blocks(s) * input_tasks(s);
  }
  static __host__ __device__ int tasks(const Shape &s) {
    return filter_tasks(s) +
           task_groups(s) * (input_tasks(s) + product_tasks(s) + output_tasks(s));
  }
  static __host__ __device__ int tasks_of(const Shape &s, TaskKind kind) {
    return kind == TaskKind::filter    ? filter_tasks(s)
           : kind == TaskKind::input   ? input_tasks(s)
           : kind == TaskKind::product ? product_tasks(s)
                                       : output_tasks(s);
  }

  // Task groups whose transformed inputs, and whose products, the workspace holds.
  static __host__ __device__ int slots(const Shape &s, int rounds) {
    return t::fused ? least(rounds * t::groups, task_groups(s)) : task_groups(s);
  }
  static __host__ __device__ int input_slots(const Shape &s) {
    return slots(s, t::lead + t::spare);
  }
  static __host__ __device__ int product_slots(const Shape &s) {
    return slots(s, t::lag + t::spare);
  }

  // Rounds of M task groups; inputs are `lead` rounds ahead of products (D_IG), outputs `lag`
  // rounds behind (D_GO).
  static __host__ __device__ int rounds(const Shape &s) {
    return ceil_div(task_groups(s), t::groups);
  }
  static __host__ __device__ int groups_before(const Shape &s, int round) {
    return least(greatest(round, 0) * t::groups, task_groups(s));
  }
  static __host__ __device__ int start(const Shape &s, int round) {
    return filter_tasks(s) + input_tasks(s) * groups_before(s, round + t::lead) +
           product_tasks(s) * groups_before(s, round) +
           output_tasks(s) * groups_before(s, round - t::lag);
  }

  // The task of a number. `round`, of an earlier task or 0, is brought up to its round.
  static __device__ WinogradTask task(const Shape &s, int number, int &round) {
    if (number >= tasks(s)) return {TaskKind::none, 0, 0};
    if (number < filter_tasks(s)) return {TaskKind::filter, 0, number};
    if (number < start(s, 0))
      return nth(TaskKind::input, input_tasks(s), number - filter_tasks(s));
    while (number >= start(s, round + 1)) round++;
    // Rounds of outputs alone.
    if (round >= rounds(s))
      return nth(TaskKind::output, output_tasks(s),
                 output_tasks(s) * groups_before(s, round - t::lag) + number - start(s, round));
    return in_round(s, round, number - start(s, round));
  }
  static __device__ WinogradTask nth(TaskKind kind, int each, int number) {
    return {kind, number / each, number % each};
  }
  // For each of the S_G products of a task group: a share of the round's inputs, the product for
  // M task groups, a share of the outputs.
  static __device__ WinogradTask in_round(const Shape &s, int round, int at) {
    const int all = product_tasks(s), ahead = groups_before(s, round + t::lead),
              first = groups_before(s, round), behind = groups_before(s, round - t::lag);
    const int inputs = input_tasks(s) * (groups_before(s, round + t::lead + 1) - ahead);
    const int products = groups_before(s, round + 1) - first;
    const int outputs = output_tasks(s) * (groups_before(s, round - t::lag + 1) - behind);
    const auto before = [&](int j) { return j * inputs / all + j * products + j * outputs / all; };
    int j = static_cast<int>(static_cast<float>(at) * all / before(all));  // about
    while (before(j) > at) j--;
    while (before(j + 1) <= at) j++;
    at -= before(j);
    const int share = (j + 1) * inputs / all - j * inputs / all;
    if (at < share)
      return nth(TaskKind::input, input_tasks(s),
                 input_tasks(s) * ahead + j * inputs / all + at);
    if (at < share + products) return {TaskKind::product, first + at - share, j};
    return nth(TaskKind::output, output_tasks(s),
               output_tasks(s) * behind + j * outputs / all + at - share - products);
  }

  // Calls wait(counter, count) for all that must have ended before the task: its parents, and the
  // readers of the slot that it writes to.
  template <class Wait>
  static __device__ void waits(const Shape &s, const WinogradTask &task, Wait wait) {
    const auto all = [&](TaskKind kind, int group) {
      const int count = tasks_of(s, kind);
      if (group >= 0 && count > 0) wait(WinogradCounters::of(kind, group), count);
    };
    if (task.kind == TaskKind::input) all(TaskKind::product, task.group - input_slots(s));
    if (task.kind == TaskKind::product) {
      all(TaskKind::filter, 0);
      all(TaskKind::input, task.group);
      all(TaskKind::output, task.group - product_slots(s));
    }
    if (task.kind == TaskKind::output) all(TaskKind::product, task.group);
  }

  // Floats of the workspace's parts, in their order: filters U, inputs V, products M; before them
  // the counters.
  static constexpr int alignment = 128;
  static __host__ __device__ int counter_bytes(const Shape &s) {
    if (!t::fused) return 0;
    const int counters = WinogradCounters::head + WinogradCounters::each * task_groups(s);
    return ceil_div(4 * counters, alignment) * alignment;
  }
  static __host__ __device__ long long filters(const Shape &s) {
    return t::packed ? 0 : static_cast<long long>(planes) * channels(s) * depth(s);
  }
  static __host__ __device__ long long inputs(const Shape &s) {
    return static_cast<long long>(planes) * input_slots(s) * t::tile_t * depth(s);
  }
  static __host__ __device__ long long products(const Shape &s) {
    return static_cast<long long>(planes) * product_slots(s) * t::tile_t * channels(s);
  }
};

}  // namespace dscore
