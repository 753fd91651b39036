// Dense 3x3 convolution by Winograd's F(m x m, 3x3), as Jia et al. 2020 compute it: one persistent
// kernel whose blocks take tasks in the order of winograd/mapping.hpp, or a kernel for each kind of
// tasks.
//
// Each block takes the number of its next task, waits until the task's parents have ended, executes
// it and counts it as ended (section 6). Parents have lower numbers, and numbers are taken in their
// order: of the tasks that have not ended the lowest is being executed, so that any number of
// resident blocks comes to an end, one included. Towards the end of the current task a block finds
// what can be known of its next one: its number, whether its parents have ended already and, of a
// product after a product, its first data. Numbers taken earlier would keep others waiting.
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
  using Product = WinogradProduct<t, Shape>;
  using Ring = typename Product::Ring;
  static constexpr bool persistent = true;
  // The ring, and two tasks: the block's current one and the next.
  static constexpr int task_words = 4, lds_bytes = Ring::bytes + 2 * task_words * 4;

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
  // The number comes while the block goes on.
  __device__ void take(Order &order) const {
    if (thread == 0) order.number = take_number(counters + WinogradCounters::next);
  }
  // A task where the block's threads read it: kind, group, part, and whether it may begin.
  static __device__ WinogradTask task_of(const int *words) {
    return {static_cast<TaskKind>(uniform(words[0])), uniform(words[1]), uniform(words[2])};
  }
  // Calls wait(counter, count) for the parents that may not have ended.
  template <class Wait>
  __device__ void each_parent(Order &order, const WinogradTask &task, Wait wait) const {
    Mapping::waits(s, task, [&](int counter, int count) {
      if (counter == WinogradCounters::filters && order.filters) return;
      const bool ended = wait(counters + counter, count);
      order.filters |= counter == WinogradCounters::filters && ended;
    });
  }
  // Checks the task of the number: its parents are looked at once.
  __device__ void look_ahead(Order &order, int *words) const {
    if (thread != 0) return;
    const WinogradTask task = Mapping::task(s, order.number, order.round);
    bool ended = true;
    each_parent(order, task, [&](const int *counter, int count) {
      const bool reached = has_reached(counter, count);
      ended = ended && reached;
      return reached;
    });
    let_engine_see_writes();
    words[0] = static_cast<int>(task.kind), words[1] = task.group, words[2] = task.part;
    words[3] = ended;
  }
  // Waits until the task may begin.
  __device__ void wait(Order &order, const int *words) const {
    if (words[3]) return;
    if (thread == 0) {
      each_parent(order, task_of(words), [&](const int *counter, int count) {
        wait_for(counter, count);
        return true;
      });
      let_engine_see_writes();
    }
    __syncthreads();
  }
  __device__ void execute(const Arguments &args, const WinogradTask &task, Ring &ring,
                          Order &order, int *next) const {
    const auto take_next = [&] { take(order); };
    if (task.kind == TaskKind::product) {
      Product(s, this->filters, this->inputs, this->products, task.group, task.part)
          .run(ring, take_next, [&] { look_ahead(order, next); }, [&](auto load) {
            const WinogradTask following = task_of(next);
            if (following.kind == TaskKind::product && next[3])
              load(Product::sources(s, this->filters, this->inputs, following.group,
                                    following.part));
          });
      return;
    }
    if (task.kind == TaskKind::filter) this->filter_task(args, task.part, take_next);
    if (task.kind == TaskKind::input) this->input_task(args, task.group, task.part, take_next);
    if (task.kind == TaskKind::output) this->output_task(args, task.group, task.part, take_next);
    look_ahead(order, next);
  }

  __device__ void run(const Arguments &args) {
    float *const lds = block_lds<float, lds_bytes / 4>();
    int *words = reinterpret_cast<int *>(lds + Ring::bytes / 4);
    Ring ring(lds);
    Order order{0, 0, false};
    take(order);
    look_ahead(order, words);
    __syncthreads();
    for (int turn = 0;; turn ^= 1) {
      const int *const current = words + turn * task_words;
      wait(order, current);
      see_writes();
      const WinogradTask task = task_of(current);
      if (task.kind == TaskKind::none) return;
      execute(args, task, ring, order, words + (turn ^ 1) * task_words);
      end_writes();
      // Another wavefront than the one that waits and loads.
      if (thread == t::threads - t::wavefront)
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
  using Product = WinogradProduct<t, Shape>;
  using Ring = typename Product::Ring;
  static constexpr int lds_bytes = Kind == TaskKind::product ? Ring::bytes : 0;

  static int blocks(const Shape &s) {
    return Mapping::tasks_of(s, Kind) * (Kind == TaskKind::filter ? 1 : Mapping::task_groups(s));
  }
  __device__ void run(const Arguments &args) {
    const int number = blockIdx.x;
    const int each = Mapping::tasks_of(s, Kind), group = number / each, part = number % each;
    const auto nothing = [] {};
    if constexpr (Kind == TaskKind::filter) this->filter_task(args, number, nothing);
    if constexpr (Kind == TaskKind::input) this->input_task(args, group, part, nothing);
    if constexpr (Kind == TaskKind::output) this->output_task(args, group, part, nothing);
    if constexpr (Kind == TaskKind::product) {
      Ring ring(block_lds<float, Ring::bytes / 4>());
      Product(s, this->filters, this->inputs, this->products, group, part)
          .run(ring, nothing, nothing, [](auto) {});
    }
  }
};

template <class T, class Tiling, class Layer, class Shape, class Epilogue>
using Winograd =
    std::conditional_t<Tiling::fused, WinogradFused<T, Tiling, Layer, Shape, Epilogue>,
                       WinogradStage<T, Tiling, Layer, Shape, Epilogue,
                                     Tiling::packed ? TaskKind::input : TaskKind::filter>>;

}  // namespace dscore
