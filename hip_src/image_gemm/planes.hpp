// How a step's planes come to LDS (image_gemm/product.hpp): of whole images as one span, of parts
// of planes by boxes.
#pragma once

#include "image_gemm/pixels.hpp"

namespace dscore {

// An image is rows of `run` elements, one after the other, of which it and a step's planes are
// multiples: so one box brings a step of several images.
template <class T, class t>
struct WholePlanes {
  using Pixels = ImagePixels<T, t>;
  static int map(TensorMap &map, const void *planes, int batch, int summed) {
    const uint64_t bytes = sizeof(T), image = static_cast<uint64_t>(summed) * t::area;
    return make_map<T>(map, planes,
                       BoxedTensor<3, false>{{t::run, image / t::run, static_cast<uint64_t>(batch)},
                                             {t::run * bytes, image * bytes},
                                             {t::run, t::runs, t::images}});
  }
  static __device__ void load(TransferBarrier *barrier, T *to, const TensorMap &map, int image, int,
                              int summed) {
    load_box(barrier, to, map, {0, summed * t::area / t::run, image});
  }
};

// Two planes are a multiple of 16 bytes, as rows of a map must be, and a row has two: the second
// one begins in the middle of a vector, and its boxes half a vector earlier. Pixels of the plane
// before or behind a row of a box make no result that is stored.
template <class T, class t>
struct PartPlanes {
  using Pixels = PartPixels<T, t>;
  static int map(TensorMap &map, const void *planes, int batch, int summed) {
    const uint64_t bytes = sizeof(T), image = static_cast<uint64_t>(summed) * t::area;
    return make_map<T>(map, planes,
                       BoxedTensor<3>{{t::apart * t::area, static_cast<uint64_t>(summed) / t::apart,
                                       static_cast<uint64_t>(batch)},
                                      {t::apart * t::area * bytes, image * bytes},
                                      {t::row, t::box_rows, 1}});
  }
  static __device__ void load(TransferBarrier *barrier, T *to, const TensorMap &map, int image,
                              int pixel, int summed) {
    DSCORE_UNROLL
    for (int box = 0; box < t::apart * t::boxes; box++) {
      const int second = box / t::boxes, first = pixel + box % t::boxes * t::row;
      load_box(barrier, to + box * t::box_elements, map,
               {second * (t::area - t::moved) + first, summed / t::apart, image});
    }
  }
};

template <class T, class t>
using ImagePlanes = std::conditional_t<(t::parts > 1), PartPlanes<T, t>, WholePlanes<T, t>>;

}  // namespace dscore
