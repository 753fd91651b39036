// Dense 3x3 convolution by Winograd's F(m x m, 3x3), as Jia et al. 2020 compute it: one persistent
// kernel whose blocks take tasks in the order of winograd/mapping.hpp, or a kernel for each kind of
// tasks.
//
// Each block takes the number of its next task, waits until the task's parents have ended, executes
// it and counts it as ended (section 6). Parents have lower numbers, and numbers are taken in their
// order: of the tasks that have not ended the lowest is being executed, so that any number of
// resident blocks comes to an end, one included.
#pragma once

#include "winograd/product.hpp"

namespace dscore {

// Blocks: of the persistent kernel, on all compute units. VectorX, VectorY: elements of a row of
// the input and of the output that lie side by side and aligned. Packed: filters come transformed,
// by plane, four of input channels and output channel (dscore.pack).
template <int Outputs, int TileK, int TileT, int WaveK, int WaveT, int LanesK, int Step, int Stages,
          int Planes, int InputChannels, int OutputChannels, int Groups, int Lead, int Lag,
          int Spare, int Blocks, bool Fused, bool Split, bool Packed, int VectorX,
          int VectorY, int Wavefront>
struct WinogradTiling {
  static constexpr int outputs = Outputs, planes_all = (Outputs + 2) * (Outputs + 2);
  static constexpr int tile_k = TileK, tile_t = TileT, wave_k = WaveK, wave_t = WaveT;
  static constexpr int lanes_k = LanesK, lanes_t = Wavefront / LanesK;
  static constexpr int step = Step, stages = Stages, planes = Planes;
  static constexpr int input_channels = InputChannels, output_channels = OutputChannels;
  static constexpr int groups = Groups, lead = Lead, lag = Lag, spare = Spare, blocks = Blocks;
  static constexpr bool fused = Fused, split = Split, packed = Packed;
  static constexpr int vector_x = VectorX, vector_y = VectorY, wavefront = Wavefront;
  static constexpr int threads = TileK / WaveK * (TileT / WaveT) * Wavefront;
  static constexpr int buffer = Step * (TileK + TileT);
  static constexpr int accumulators = WaveK * WaveT / Wavefront;
  // Where the four channels of a row lie; `number` is that of the four in its step.
  static __device__ int place(int chunk, int number, int row, int rows) {
    return (chunk * rows + (row ^ number % 4 * 2)) * 4;
  }
  static_assert(Outputs == 2 || Outputs == 4, "F(2x2, 3x3) or F(4x4, 3x3)");
  static_assert(TileK % WaveK == 0 && TileT % WaveT == 0, "a block holds whole wavefronts");
  static_assert(TileK % 8 == 0 && TileT % 8 == 0, "eights of rows, which are permuted");
  static_assert(Stages >= 2, "one buffer is filled while another is read");
  static_assert(planes_all % Planes == 0, "a task has whole planes");
  static_assert(InputChannels % 4 == 0, "whole fours of channels");
  static_assert(has_tf32 || !Split, "matrix units of TF32");
  static_assert(Split ? Step % 16 == 0 && WaveK % 16 == 0 && WaveT % 16 == 0 && LanesK == 8 &&
                            Wavefront == 32
                      : Step % 4 == 0 && WaveK % LanesK == 0 && WaveT % lanes_t == 0,
                "whole fragments");
};

template <class T, class Tiling, class Layer, class Shape_, class Epilogue>
struct WinogradFused : WinogradTasks<T, Tiling, Shape_, Epilogue> {
  using Shape = Shape_;
  using t = Tiling;
  using Tasks = WinogradTasks<T, t, Shape, Epilogue>;
  using typename Tasks::Arguments, typename Tasks::Mapping;
  using Tasks::s, Tasks::thread, Tasks::counters, Tasks::Tasks;
  static constexpr bool persistent = true;
  // The ring, and the task of the block.
  static constexpr int ring = t::stages * t::buffer, lds_bytes = (ring + 4) * 4;

  static int blocks(const Shape &s) { return least(t::blocks, Mapping::tasks(s)); }
  static long long cleared_bytes(const Shape &s) {
    return Mapping::alignment + Mapping::counter_bytes(s);
  }

  // Tasks in the order of their numbers: `number` is the block's next one, of `round` or a later
  // one. All filters, once seen, need not be waited for again.
  struct Order {
    int number, round;
    bool filters;
  };
  // Puts the next task where the block's threads read it, as soon as it may begin.
  __device__ void obtain(Order &order, int *task_of_block) const {
    const WinogradTask task = Mapping::task(s, order.number, order.round);
    // Before the task is executed: the number is there when it ends.
    if (task.kind != TaskKind::none)
      order.number = take_number(counters + WinogradCounters::next);
    task_of_block[0] = static_cast<int>(task.kind);
    task_of_block[1] = task.group;
    task_of_block[2] = task.part;
    Mapping::waits(s, task, [&](int counter, int count) {
      if (counter == WinogradCounters::filters && order.filters) return;
      wait_for(counters + counter, count);
      order.filters |= counter == WinogradCounters::filters;
    });
  }
  __device__ void execute(const Arguments &args, const WinogradTask &task, float *lds) const {
    if (task.kind == TaskKind::filter) this->filter_task(args, task.part);
    if (task.kind == TaskKind::input) this->input_task(args, task.group, task.part);
    if (task.kind == TaskKind::product)
      WinogradProduct<t, Shape>(s, this->filters, this->inputs, this->products, task.group,
                                task.part).run(lds);
    if (task.kind == TaskKind::output) this->output_task(args, task.group, task.part);
  }

  __device__ void run(const Arguments &args) {
    float *lds = block_lds<float, ring + 4>();
    int *task_of_block = reinterpret_cast<int *>(lds + ring);
    Order order{0, 0, false};
    if (thread == 0) order.number = take_number(counters + WinogradCounters::next);
    for (;;) {
      if (thread == 0) obtain(order, task_of_block);
      __syncthreads();
      see_writes();
      const WinogradTask task{static_cast<TaskKind>(uniform(task_of_block[0])),
                              uniform(task_of_block[1]), uniform(task_of_block[2])};
      if (task.kind == TaskKind::none) return;
      execute(args, task, lds);
      count_up(counters + WinogradCounters::of(task.kind, task.group));
    }
  }
};

// A kernel for each kind of tasks, a block for each task.
template <class T, class Tiling, class Layer, class Shape_, class Epilogue, TaskKind Kind>
struct WinogradStage : WinogradTasks<T, Tiling, Shape_, Epilogue> {
  using Shape = Shape_;
  using t = Tiling;
  using Tasks = WinogradTasks<T, t, Shape, Epilogue>;
  using typename Tasks::Arguments, typename Tasks::Mapping;
  using Tasks::s, Tasks::Tasks;
  static constexpr auto following = static_cast<TaskKind>(static_cast<int>(Kind) + 1);
  using Then = std::conditional_t<Kind == TaskKind::output, void,
                                  WinogradStage<T, t, Layer, Shape, Epilogue, following>>;
  static constexpr int lds_bytes = Kind == TaskKind::product ? t::stages * t::buffer * 4 : 0;

  static int blocks(const Shape &s) {
    return Mapping::tasks_of(s, Kind) * (Kind == TaskKind::filter ? 1 : Mapping::task_groups(s));
  }
  __device__ void run(const Arguments &args) {
    const int number = blockIdx.x;
    const int each = Mapping::tasks_of(s, Kind), group = number / each, part = number % each;
    if constexpr (Kind == TaskKind::filter) this->filter_task(args, number);
    if constexpr (Kind == TaskKind::input) this->input_task(args, group, part);
    if constexpr (Kind == TaskKind::output) this->output_task(args, group, part);
    if constexpr (Kind == TaskKind::product)
      WinogradProduct<t, Shape>(s, this->filters, this->inputs, this->products, group, part)
          .run(block_lds<float, t::stages * t::buffer>());
  }
};

template <class T, class Tiling, class Layer, class Shape, class Epilogue>
using Winograd =
    std::conditional_t<Tiling::fused, WinogradFused<T, Tiling, Layer, Shape, Epilogue>,
                       WinogradStage<T, Tiling, Layer, Shape, Epilogue,
                                     Tiling::packed ? TaskKind::input : TaskKind::filter>>;

}  // namespace dscore
