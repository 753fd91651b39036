// The gate whose second activation is hardsigmoid.
#pragma once

#include "gate/kernel.hpp"

namespace dscore {

template <class T, class Tiling, class Layer, class Shape, class Epilogue>
using GateHardGate = Gate<T, Tiling, Layer, Shape, Epilogue, Activation::hardsigmoid>;

}  // namespace dscore
