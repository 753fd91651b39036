// How the pixels under a tile of a first layer come to LDS (stem/kernel.hpp, stem_sums/kernel.hpp):
// with four channels each, zeros for those that there are not. Where they are Given as floats, and
// T is of bytes, they become these on their way.
#pragma once

#include "stem/shape.hpp"
#include "support/quantised_operands.hpp"

namespace dscore {

template <class T, class t, class Layer, class Shape, class Given = T>
struct StemPixels {
  static constexpr bool of_floats = !std::is_same_v<T, Given>;
  // What comes as words stays words: of bytes nvcc would hold each in a register.
  static constexpr int given_size = static_cast<int>(sizeof(Given));
  static constexpr int copy_bytes = t::copy_x * given_size;
  static constexpr int words = t::unit * t::channels * given_size / 4;
  static constexpr bool by_words = copy_bytes % 4 == 0;
  using Part = std::conditional_t<by_words, Word, Given>;
  static constexpr int parts = by_words ? copy_bytes / 4 : t::copy_x;  // of a vector
  struct Unit {
    Pack<Part, parts> at[t::copies];
    __device__ Part part(int i) const { return at[i / parts].at[i % parts]; }
  };
  static constexpr int pixel_words = t::pixel / 4, made_words = t::unit * pixel_words;
  struct Made {
    Word at[made_words];
  };

  const Given *image;
  const Shape &s;
  int row, column;  // of the first unit, which begins at a multiple of its pixels
  int before;       // pixels of it that the tile does not need
  uint32_t fill = 0;
  FloatPoints floats = {};  // where these are given

  // For a tile whose first tap lies at a row and column, which may be outside of the image.
  __device__ StemPixels(const Given *x, const Shape &shape, int number, int first_row,
                        int first_column)
      : image(x + number * (shape.height * shape.width * t::channels)), s(shape), row(first_row),
        column(first_column & -t::unit), before(first_column - column) {}

  struct At {
    int row, unit;
    bool part;
  };
  __device__ At at(int turn, int thread) const {
    const int number = turn * t::threads + thread;
    return {number / t::row_units, number % t::row_units,
            t::units % (t::threads * t::together) == 0 || number < t::units};
  }
  // Rows of the image are whole units, so that none lies half in it.
  __device__ bool there(const At &place) const {
    return place.part && inside(row + place.row, s.height) &&
           inside(column + place.unit * t::unit, s.width);
  }
  __device__ Unit read(const At &place) const {
    const Given *const from =
        image + ((row + place.row) * s.width + column + place.unit * t::unit) * t::channels;
    Unit unit;
    DSCORE_UNROLL
    for (int i = 0; i < t::copies; i++)
      unit.at[i] = vector_or_zeros<parts>(
          reinterpret_cast<const Part *>(from + i * t::copy_x), there(place));
    return unit;
  }
  // A word of LDS, of a pixel's bytes from `first` on in what came, as far as it has channels.
  static __device__ Word word_of(const Unit &unit, int first, int bytes) {
    if (bytes <= 0) return 0;
    if constexpr (by_words) {
      const Word here = unit.part(first / 4), next = unit.part(least(first / 4 + 1, words - 1));
      const Word word = first % 4 == 0 ? here : shifted_bytes(here, next, first % 4);
      // Of bytes what is past the channels meets zeros of the filter, and no infinity is among it.
      return t::exact || bytes >= 4 ? word : word & 0xFFFFu;
    } else {
      Word word = 0;
      DSCORE_UNROLL
      for (int i = 0; i < least(bytes, 4) / t::size; i++)
        word |= bits_of(unit.part(first / t::size + i)) << i * t::size * 8;
      return word;
    }
  }
  static __device__ Word bits_of(T element) {
    if constexpr (t::exact) return static_cast<uint8_t>(element);
    else return element.bits;
  }
  // An element of a unit, as a float.
  static __device__ float float_of(const Unit &unit, int i) {
    if constexpr (!by_words) return static_cast<float>(unit.part(i));
    else if constexpr (given_size == 4) return bits_as<float>(unit.part(i));
    else return static_cast<float>(
        bits_as<Given>(static_cast<uint16_t>(unit.part(i / 2) >> i % 2 * 16)));
  }
  // A pixel's integers; what is past its channels meets zeros of the filter.
  __device__ Word integers_of(const Unit &unit, int pixel) const {
    return bits_as<Word>(floats.bytes<4>([&](int c) {
      return float_of(unit, pixel * t::channels + least(c, t::channels - 1));
    }));
  }
  __device__ Made made_of(const Unit &unit, bool there) const {
    constexpr int bytes = t::channels * t::size;  // of a pixel in memory
    Made made;
    DSCORE_UNROLL
    for (int i = 0; i < made_words; i++) {
      const int word = i % pixel_words * 4;
      if constexpr (of_floats) made.at[i] = integers_of(unit, i);
      else made.at[i] = word_of(unit, i / pixel_words * bytes + word, bytes - word);
      if constexpr (t::exact) made.at[i] = there ? made.at[i] : fill;
    }
    return made;
  }
  // By vectors of 16 bytes, or all of a smaller unit.
  __device__ void write(char *lds, const At &place, const Unit &unit) const {
    if (!place.part) return;
    constexpr int width = least(made_words, 4);
    const Made made = made_of(unit, there(place));
    Word *const to =
        reinterpret_cast<Word *>(lds + place.row * t::row_bytes + place.unit * t::pitch);
    DSCORE_UNROLL
    for (int first = 0; first < made_words; first += width) {
      Pack<Word, width> vector;
      DSCORE_UNROLL
      for (int i = 0; i < width; i++) vector.at[i] = made.at[first + i];
      write_vector(to + first, vector);
    }
  }

  // Some of the thread's units, which are read before the first of them is written.
  using Units = Unit[t::together];
  __device__ void read(Units &units, int thread, int first = 0) const {
    DSCORE_UNROLL
    for (int i = 0; i < t::together; i++) units[i] = read(at(first + i, thread));
  }
  __device__ void write(char *lds, const Units &units, int thread, int first = 0) const {
    DSCORE_UNROLL
    for (int i = 0; i < t::together; i++) write(lds, at(first + i, thread), units[i]);
  }
  // All of a tile, of which the first ones are read.
  __device__ void stage(char *lds, Units &units, int thread) const {
    write(lds, units, thread);
    DSCORE_ROLLED
    for (int first = t::together; first < t::turns; first += t::together) {
      read(units, thread, first);
      write(lds, units, thread, first);
    }
  }
};

}  // namespace dscore
