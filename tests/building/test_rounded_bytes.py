"""Floats and scaled bytes that become bytes, two at a time in halves of a word, against NumPy:
floats within all bounds, and all bytes with some factors and zero points."""

import numpy as np
import pytest
from host_units import host_library, needs_host, pointer

HOST = """
#include "support/byte_scaling.hpp"
using namespace dscore;
// Of every range [low, high] of `ranges` and its zero point, all values: their lowest bytes.
template <class PointsLike>
void rounded(const int32_t *ranges, int count, const float *values, int n, int8_t *results) {
  for (int i = 0; i < count; i++, ranges += 3) {
    const auto points = PointsLike::of(ranges[0], ranges[1], ranges[2]);
    for (int at = 0; at < n; at += 2, results += 2) {
      const Word two = points.pair(values[at], values[at + 1]);
      results[0] = byte_of(two, 0), results[1] = byte_of(two, 2);
    }
  }
}
extern "C" void rounded_HalfPoints(const int32_t *ranges, int count, const float *values, int n,
                                   int8_t *results) {
  rounded<HalfPoints>(ranges, count, values, n, results);
}
extern "C" void rounded_ShortPoints(const int32_t *ranges, int count, const float *values, int n,
                                    int8_t *results) {
  rounded<ShortPoints>(ranges, count, values, n, results);
}
extern "C" void entries_BesideEntries(int zero, const float *values, int n, int32_t *numbers) {
  for (int i = 0; i < n; i++) numbers[i] = BesideEntries::of(zero).number(values[i]);
}
extern "C" void entries_ShortEntries(int zero, const float *values, int n, int32_t *numbers) {
  for (int i = 0; i < n; i++) numbers[i] = ShortEntries::of(zero).number(values[i]);
}
extern "C" void scaled(int from, int to, const uint16_t *factors, int count, int8_t *results) {
  const ByteScaling scaling(nullptr, 1.0f, from, to);
  for (int i = 0; i < count; i++)
    for (int at = 0; at < 256; at += 4, results += 4) {
      const Word factor = factors[i] | factors[i] << 16;
      const Word four = scaling.apply((at + 1) << 8 | at | (at + 2) << 16 |
                                      static_cast<Word>(at + 3) << 24, {{factor, factor}});
      std::memcpy(results, &four, 4);
    }
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return host_library(tmp_path_factory.mktemp("rounded_bytes"), HOST, "-O2")


def ranges_of(least, greatest, zero_points):
    """All bounds within these, less a zero point; and that zero point."""
    rows = [(low - zero, high - zero, zero) for zero in zero_points
            for low in range(least, greatest + 1) for high in range(low, greatest + 1)]
    return np.array(rows, np.int32)


def ties(size):
    """Numbers of both signs: integers, halves, next to halves, and what is past any range."""
    whole = np.arange(-size, size + 1, dtype=np.float32)
    half = whole + np.float32(0.5)
    past = np.array([1e3, 2049, 65504, 65519, 65536, 1e6, 2**22 + 1, 2**23, 3e9, 1e30, np.inf],
                    np.float32)
    return np.concatenate([whole, half, np.nextafter(half, np.float32(-np.inf)),
                           np.nextafter(half, np.float32(np.inf)), past, -past, [-0.0, 1e-40]]
                          ).astype(np.float32)


def check(library, points, ranges, values):
    values = values[:values.size // 2 * 2]
    results = np.empty((len(ranges), values.size), np.int8)
    rounded = getattr(library, f"rounded_{points}")
    rounded(pointer(ranges), len(ranges), pointer(values), values.size, pointer(results))
    for (low, high, zero), got in zip(ranges.tolist(), results, strict=True):
        wanted = np.clip(np.rint(values.astype(np.float64)), low, high) + zero
        wrong = np.flatnonzero(got != wanted)
        assert not wrong.size, (low, high, zero, values[wrong[0]], got[wrong[0]])


@needs_host
@pytest.mark.parametrize("points", ["HalfPoints", "ShortPoints"])
def test_bytes_of_all_bounds(library, points):
    # With a zero point at either end, bounds less that are all that there are.
    ranges = ranges_of(-128, 127, (-128, 127))
    random = np.random.default_rng(0)
    # Each eighth of them with other values: all ranges with all values would be millions.
    for some in np.array_split(ranges[random.permutation(len(ranges))], 8):
        check(library, points, some, random.choice(ties(256), 150))


@needs_host
@pytest.mark.parametrize("points", ["HalfPoints", "ShortPoints"])
@pytest.mark.parametrize("zero_point", [-128, -77, -1, 0, 5, 127])
def test_bytes_of_all_values(library, points, zero_point):
    bounds = [(-128, 127), (zero_point, 127), (-128, zero_point), (zero_point, zero_point),
              (-127, 126), (100, 127), (126, 127), (-128, -125)]
    ranges = np.array([(low - zero_point, high - zero_point, zero_point)
                       for low, high in bounds], np.int32)
    check(library, points, ranges, ties(600))


@needs_host
@pytest.mark.parametrize("entries", ["BesideEntries", "ShortEntries"])
@pytest.mark.parametrize("zero_point", [0, 1, 511, 700, 1023])
def test_entries_of_tables(library, entries, zero_point):
    values = ties(2500)
    numbers = np.empty(values.size, np.int32)
    numbered = getattr(library, f"entries_{entries}")
    numbered(zero_point, pointer(values), values.size, pointer(numbers))
    assert np.array_equal(numbers, np.clip(np.rint(values.astype(np.float64)) + zero_point, 0,
                                           1023))


@needs_host
def test_scaled_bytes_of_all_bytes(library):
    random = np.random.default_rng(1)
    factors = np.concatenate([random.uniform(0, 2, 24), [0, 1, -1, 0.5, 0.25, 1.5, 6e-8, 300, -70,
                                                         65504, -65504]]).astype(np.float16)
    given = np.arange(256).astype(np.uint8).view(np.int8).astype(np.float64)
    results = np.empty((factors.size, 256), np.int8)
    for of in range(-128, 128, 5):
        for to in (*range(-128, 128, 11), 127):
            library.scaled(of, to, pointer(factors), factors.size, pointer(results))
            exact = (given - of) * factors.astype(np.float64)[:, None]
            assert np.array_equal(results, np.clip(np.rint(exact) + to, -128, 127)), (of, to)
