"""Elements of 16 bits in kernels: their conversions on the host are NumPy's, bit for bit."""

import numpy as np
import pytest
from host_units import host_library, needs_host, pointer

from dscore.core.numerics import ELEMENTS

UNIT = """
#include "support/elements.hpp"
using namespace dscore;
template <class T> void widen(const uint16_t *bits, float *values, int count) {
  for (int i = 0; i < count; i++) values[i] = static_cast<float>(bits_as<T>(bits[i]));
}
template <class T> void narrow(const float *values, uint16_t *bits, int count) {
  for (int i = 0; i < count; i++) bits[i] = static_cast<T>(values[i]).bits;
}
template <class T> void pairs(const float *values, uint16_t *bits, int count) {
  for (int i = 0; i < count; i += 2) {
    const Pack<T, 2> pair = rounded<T, 2>(values + i);
    Pack<T, 2> moved;
    write_vector(moved.at, pair);
    const Pack<T, 2> read = read_vector<2>(moved.at);
    for (int j = 0; j < 2; j++) bits[i + j] = read.at[j].bits;
  }
}
#define EXPORT(T)                                                                          \\
  void widen_##T(const uint16_t *b, float *v, int n) { widen<T>(b, v, n); }                \\
  void narrow_##T(const float *v, uint16_t *b, int n) { narrow<T>(v, b, n); }              \\
  void pairs_##T(const float *v, uint16_t *b, int n) { pairs<T>(v, b, n); }
extern "C" {
EXPORT(float16)
EXPORT(bfloat16)
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return host_library(tmp_path_factory.mktemp("elements"), UNIT, "-O2")


def call(library, name, given, result):
    getattr(library, name)(pointer(given), pointer(result), given.size)
    return result


def floats():
    """Random bits, and those about the middle between two numbers of each type."""
    random = np.random.default_rng(0).integers(0, 2**32, 400_000, dtype=np.uint64)
    halves = np.arange(2**16, dtype=np.uint64)
    middles = [(halves << shift) + offset for shift, first in ((13, 0x37800000), (16, 0))
               for offset in (first, first + (1 << shift - 1), first + (1 << shift - 1) - 1,
                              first + (1 << shift - 1) + 1)]
    small = np.ldexp(np.arange(-4100, 4100) / 4, -24).astype(np.float32).view(np.uint32)
    bits = np.concatenate([random, *middles, small.astype(np.uint64)]) & 0xFFFFFFFF
    return np.concatenate([bits, bits ^ 0x80000000]).astype(np.uint32).view(np.float32)


@needs_host
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_conversions_are_numpys(library, name):
    element = ELEMENTS[name].numpy
    every = np.arange(2**16, dtype=np.uint16)
    widened = call(library, f"widen_{name}", every, np.empty(every.size, np.float32))
    assert np.array_equal(widened, every.view(element).astype(np.float32), equal_nan=True)
    assert np.array_equal(np.signbit(widened), every >= 0x8000)
    values = floats()
    with np.errstate(all="ignore"):
        wanted = values.astype(element)
    for way in ("narrow", "pairs"):
        bits = call(library, f"{way}_{name}", values, np.empty(values.size, np.uint16))
        assert np.array_equal(np.isnan(values), np.isnan(bits.view(element).astype(np.float32)))
        finite = ~np.isnan(values)
        assert np.array_equal(bits[finite], wanted.view(np.uint16)[finite])
