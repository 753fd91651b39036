// What of a depthwise kernel is chosen: the tile of a thread and of a block, and how rows move.
#pragma once

#include "common.hpp"

namespace dscore {

// Where the rows of an image pass on their way: to registers, through LDS, and results as well.
enum class Staging { registers, lds, both };

// SpanIn, SpanOut: elements of LDS for the block's rows and results, which lie in one piece in
// memory. VectorIn, VectorOut: columns that a lane moves as one, as a row of the image is a multiple
// of them; the first that a lane's row begins with is its column Phase. They depend on the image's
// sizes, so that a kernel for any sizes has them as arguments.
template <int ThreadH, int ThreadW, int LanesH, int LanesW, int Planes, Staging Staging_,
          bool ColumnReuse, bool Ahead, int SpanIn, int SpanOut, int VectorIn, int Phase,
          int VectorOut, int Wavefront>
struct DepthwiseTiling {
  static constexpr int thread_h = ThreadH, thread_w = ThreadW, lanes_h = LanesH;
  static constexpr int lanes_w = LanesW, planes = Planes, wavefront = Wavefront;
  static constexpr int span_in = SpanIn, span_out = SpanOut;
  static constexpr int vector_in = VectorIn, phase = Phase, vector_out = VectorOut;
  static constexpr bool through_lds = Staging_ != Staging::registers;
  static constexpr bool out_through_lds = Staging_ == Staging::both, column_reuse = ColumnReuse;
  static constexpr bool ahead = Ahead;
  static constexpr int used_threads = Planes * LanesH * LanesW;
  static constexpr int threads = ceil_div(used_threads, Wavefront) * Wavefront;
  static_assert(!ColumnReuse || (Wavefront % LanesW == 0 && !through_lds),
                "a row of lanes is a segment");
  static_assert(ThreadW % VectorOut == 0 && (!ColumnReuse || VectorIn == 1), "vectors");
};

}  // namespace dscore
