// The tiles of the implicit product of matrices of both layouts (implicit_gemm_universal/
// kernel.hpp): how the images and filters of a step come to LDS.
#pragma once

#include "implicit_gemm_universal/shape.hpp"
#include "support/integers.hpp"

namespace dscore {

template <class T, class t, class Layer, class Shape, class Epilogue>
struct ImplicitGemmUniversalTiles : ImplicitGemmPatch<T, t, Layer, Shape, Epilogue> {
  using Base = ImplicitGemmPatch<T, t, Layer, Shape, Epilogue>;
  using typename Base::Arguments;
  using Base::threads, Base::group_in, Base::group_out, Base::x, Base::w, Base::s, Base::table;
  using Base::thread, Base::group, Base::first_channel, Base::first_step, Base::wanted;
  static constexpr int taps = Layer::taps, piece = t::piece, pieces = t::pieces;
  using Piece = Pack<T, piece>;
  // Where a group's channels lie in whole pieces, a thread takes all taps of a piece of a filter,
  // which lie side by side in memory as in LDS, though in another order. Else a tap of it.
  static constexpr bool whole = t::vector_in >= piece && taps <= 9;
  static constexpr int taps_each = whole ? taps : 1;
  static constexpr int all_filters = t::tile_c * pieces * taps / taps_each;
  static constexpr int all_images = t::patch * pieces;
  static constexpr int filter_turns = ceil_div(all_filters, threads);
  static constexpr int image_turns = ceil_div(all_images, threads);
  static constexpr bool fetched = t::stages == 2;
  // Images pass by themselves where threads bring whole words of them.
  static constexpr int moved = least(t::vector_in, piece);
  static constexpr bool passing = t::last && moved * sizeof(T) >= 4;

  struct Filters {
    Piece at[taps_each];
  };
  Filters filter_temp[fetched ? filter_turns : 1];
  Piece image_temp[fetched ? image_turns : 1];
  // Of bytes: what x counts from, of which the padding is full.
  int zero = 0;
  uint32_t fill = 0;

  __device__ ImplicitGemmUniversalTiles(const Arguments &args, const Shape &shape)
      : Base(args, shape) {}
  // Before anything is copied.
  __device__ void read_zero(const Arguments &args) {
    if constexpr (t::exact) {
      zero = Epilogue::zero_of(args);
      fill = static_cast<uint32_t>(zero & 0xFF) * 0x01010101u;
    }
  }

  __device__ int first_summed(int step) const { return (first_step + step) * t::step_c; }
  // Where steps divide the channels, which fixed sizes show, there is nothing to ask.
  __device__ bool summed(int channel) const {
    return group_in(s) % t::step_c == 0 || channel < group_in(s);
  }

  // A thread's filters of a turn: the row of LDS, and its piece and tap.
  struct FilterPlace {
    int row, first, tap;
    bool part;
  };
  __device__ FilterPlace filter_place(int turn) const {
    constexpr int each = taps / taps_each;
    const int at = turn * threads + thread;
    return {at / (each * pieces), at / each % pieces * piece, at % each,
            all_filters % threads == 0 || at < all_filters};
  }
  __device__ Filters read_filters(int turn, int step) const {
    const FilterPlace place = filter_place(turn);
    const int channel = first_channel + t::channel_of_row(place.row);
    const int first = first_summed(step) + place.first;
    const bool there = place.part && wanted(channel);
    const T *from = w + ((group * group_out(s) + channel) * group_in(s) + first) * taps + place.tap;
    Filters filters;
    if constexpr (whole) {
      DSCORE_UNROLL
      for (int tap = 0; tap < taps; tap++)
        filters.at[tap] = vector_or_zeros<piece>(from + tap * piece, there && summed(first));
    } else {
      DSCORE_UNROLL
      for (int j = 0; j < piece; j++)
        filters.at[0].at[j] =
            vector_or_zeros<1>(from + j * taps, there && summed(first + j)).at[0];
    }
    return filters;
  }
  // Of a piece, [input channel][tap] to [tap][input channel].
  static __device__ Filters turned(const Filters &filters) {
    if constexpr (t::exact) {
      return turned_bytes<piece, taps_each>(filters);
    } else {
      Filters others;
      DSCORE_UNROLL
      for (int tap = 0; tap < taps_each; tap++)
        DSCORE_UNROLL
        for (int j = 0; j < piece; j++) {
          const int at = j * taps_each + tap;
          others.at[tap].at[j] = filters.at[at / piece].at[at % piece];
        }
      return others;
    }
  }
  static __device__ T *filter_at(T *lds, const FilterPlace &place) {
    return lds + place.row * t::filter_row + t::filter_place(place.first, place.tap);
  }
  __device__ void write_filters(T *lds, int turn, const Filters &filters) const {
    const FilterPlace place = filter_place(turn);
    if (!place.part) return;
    const Filters others = turned(filters);
    DSCORE_UNROLL
    for (int tap = 0; tap < taps_each; tap++)
      write_vector(filter_at(lds, place) + tap * piece, others.at[tap]);
  }
  // Filters of whole pieces pass by themselves, neighbouring threads' vectors side by side, and are
  // turned once they are there.
  static constexpr int row_vectors = pieces * taps, all_vectors = t::tile_c * row_vectors;
  static constexpr int vector_turns = ceil_div(all_vectors, threads);
  __device__ void pass_filters(T *lds, int turn, int step) const {
    const int at = turn * threads + thread, row = at / row_vectors, vector = at % row_vectors;
    if (all_vectors % threads != 0 && at >= all_vectors) return;
    const int channel = first_channel + t::channel_of_row(row), first = first_summed(step);
    const T *from = w + ((group * group_out(s) + channel) * group_in(s) + first) * taps;
    copy_async<piece * int{sizeof(T)}>(lds + row * t::filter_row + vector * piece,
                                       from + vector * piece,
                                       wanted(channel) && summed(first + vector / taps * piece));
  }
  __device__ void arrived(T *lds) const {
    if constexpr (whole && taps > 1 && !fetched) {
      __syncthreads();
      DSCORE_ROLLED
      for (int turn = 0; turn < filter_turns; turn++) {
        const FilterPlace place = filter_place(turn);
        if (!place.part) continue;
        Filters filters;
        DSCORE_UNROLL
        for (int tap = 0; tap < taps; tap++)
          filters.at[tap] = read_vector<piece>(filter_at(lds, place) + tap * piece);
        write_filters(lds, turn, filters);
      }
    }
  }

  // A thread's element of the patch in a turn, and its piece: those of neighbours lie side by side
  // in memory.
  __device__ int image_element(int turn) const {
    const int at = turn * threads + thread;
    return t::last ? at / pieces : at % t::patch;
  }
  __device__ int image_piece(int turn) const {
    const int at = turn * threads + thread;
    return (t::last ? at % pieces : at / t::patch) * piece;
  }
  __device__ bool image_part(int turn) const {
    return all_images % threads == 0 || turn * threads + thread < all_images;
  }
  __device__ int image_place(int turn) const {
    return image_part(turn) ? table[image_element(turn)] : Base::nowhere;
  }
  // Calls take(j, source, whether it exists) for each `Width` elements of a thread's piece.
  template <int Width, class Take>
  __device__ void each_of_piece(int turn, int step, Take take) const {
    const int place = image_place(turn), first = first_summed(step) + image_piece(turn);
    const int apart = t::last ? 1 : s.height * s.width;
    DSCORE_UNROLL
    for (int j = 0; j < piece; j += Width)
      take(j, x + place + (first + j) * apart, place >= 0 && summed(first + j));
  }
  // Bytes outside of the images are what x counts from; those past the last channel meet zeros.
  __device__ Piece filled(const Piece &read, bool there) const {
    auto words = bits_as<Pack<uint32_t, piece / 4>>(read);
    DSCORE_UNROLL
    for (int i = 0; i < piece / 4; i++) words.at[i] = there ? words.at[i] : fill;
    return bits_as<Piece>(words);
  }
  __device__ Piece read_image(int turn, int step) const {
    constexpr int width = t::last ? moved : 1;
    Piece read;
    each_of_piece<width>(turn, step, [&](int j, const T *from, bool there) {
      const auto several = vector_or_zeros<width>(from, there);
      DSCORE_UNROLL
      for (int i = 0; i < width; i++) read.at[j + i] = several.at[i];
    });
    if constexpr (t::exact) return filled(read, image_place(turn) >= 0);
    else return read;
  }
  __device__ T *image_at(T *lds, int turn) const {
    return lds + t::filters + image_element(turn) * t::element + image_piece(turn);
  }
  __device__ void write_image(T *lds, int turn, const Piece &image) const {
    if (image_part(turn)) write_vector(image_at(lds, turn), image);
  }

  // Reads so many turns' elements, and writes them then: what is written first would be waited for.
  static constexpr int images_together = least(4, image_turns);
  static constexpr int filters_together = least(4, filter_turns);
  __device__ void copy_image(T *lds, int turn, int step) const {
    if (!image_part(turn)) return;
    each_of_piece<moved>(turn, step, [&](int j, const T *from, bool there) {
      if constexpr (t::exact) copy_or_fill<moved>(image_at(lds, turn) + j, from, there, fill);
      else copy_async<moved * int{sizeof(T)}>(image_at(lds, turn) + j, from, there);
    });
  }
  __device__ void copy_images(T *lds, int step) const {
    if constexpr (passing) {
      DSCORE_UNROLL_FEW
      for (int turn = 0; turn < image_turns; turn++) copy_image(lds, turn, step);
    } else {
      DSCORE_ROLLED
      for (int first = 0; first < image_turns; first += images_together) {
        Piece images[images_together];
        DSCORE_UNROLL
        for (int i = 0; i < images_together; i++)
          if (image_turns % images_together == 0 || first + i < image_turns)
            images[i] = read_image(first + i, step);
        DSCORE_UNROLL
        for (int i = 0; i < images_together; i++)
          if (image_turns % images_together == 0 || first + i < image_turns)
            write_image(lds, first + i, images[i]);
      }
    }
  }
  __device__ void copy_filters(T *lds, int step) const {
    if constexpr (whole) {
      DSCORE_UNROLL_FEW
      for (int turn = 0; turn < vector_turns; turn++) pass_filters(lds, turn, step);
    } else {
      DSCORE_ROLLED
      for (int first = 0; first < filter_turns; first += filters_together) {
        Filters filters[filters_together];
        DSCORE_UNROLL
        for (int i = 0; i < filters_together; i++)
          if (filter_turns % filters_together == 0 || first + i < filter_turns)
            filters[i] = read_filters(first + i, step);
        DSCORE_UNROLL
        for (int i = 0; i < filters_together; i++)
          if (filter_turns % filters_together == 0 || first + i < filter_turns)
            write_filters(lds, first + i, filters[i]);
      }
    }
  }

  __device__ void copy(T *lds, int step) const {
    copy_images(lds, step);
    copy_filters(lds, step);
  }
  __device__ void fetch(int step) {
    DSCORE_UNROLL
    for (int turn = 0; turn < filter_turns; turn++) filter_temp[turn] = read_filters(turn, step);
    DSCORE_UNROLL
    for (int turn = 0; turn < image_turns; turn++) image_temp[turn] = read_image(turn, step);
  }
  __device__ void put(T *lds) const {
    DSCORE_UNROLL
    for (int turn = 0; turn < filter_turns; turn++) write_filters(lds, turn, filter_temp[turn]);
    DSCORE_UNROLL
    for (int turn = 0; turn < image_turns; turn++) write_image(lds, turn, image_temp[turn]);
  }
};

}  // namespace dscore
