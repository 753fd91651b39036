// A table of results in each bank of LDS, so that lanes that look up different entries never wait
// for a bank: 32 copies of its 1,024 bytes.
#pragma once

#include "support/quantised_operands.hpp"
#include "support/rounded_bytes.hpp"

namespace dscore {

constexpr int lds_banks = 32, table_rows = 256;  // a row has a word for each bank
constexpr int table_row_bytes = lds_banks * static_cast<int>(sizeof(Word));
constexpr int banked_table_bytes = table_rows * table_row_bytes;
static_assert(table_entries == table_rows * static_cast<int>(sizeof(Word)), "four entries a word");

// The place of entry 0 <= `number` < 1024 in a bank's copy: the row of its lowest byte, and in the
// word there the byte of its other.
__device__ inline int banked_place(int number, int bank_at) {
#if defined(__CUDACC__)
  return static_cast<int>(__dp4a(static_cast<unsigned>(number), 0x0180u,
                                 static_cast<unsigned>(bank_at)));
#else
  return number % table_rows * table_row_bytes + number / table_rows + bank_at;
#endif
}

// Points of results whose table lies so.
struct BankedPoints : Points {
  int bank_at;  // of a lane's bank in a row
  static __device__ inline BankedPoints of(const Points &points, int lane) {
    return {points, lane % lds_banks * static_cast<int>(sizeof(Word))};
  }
  __device__ inline int entry(int number) const { return table[banked_place(number, bank_at)]; }
};

// A thread's words of a table, of all that `Threads` bring: asked for, and put to all banks.
template <int Threads>
struct BankedTable {
  static constexpr int rows = ceil_div(table_rows, Threads);
  Pack<int8_t, 4> words[rows];

  __device__ inline void ask(const void *table, int thread) {
    DSCORE_UNROLL
    for (int i = 0; i < rows; i++)
      DSCORE_UNROLL
      for (int j = 0; j < 4; j++)
        words[i].at[j] = static_cast<const int8_t *>(
            table)[least(thread + i * Threads, table_rows - 1) + j * table_rows];
  }
  // Neighbouring threads begin a vector further on each, so that they write to all banks at once.
  __device__ inline void put(unsigned char *lds, int thread) const {
    constexpr int vectors = table_row_bytes / 16;
    DSCORE_UNROLL
    for (int i = 0; i < rows; i++) {
      const int row = thread + i * Threads;
      if (table_rows % Threads != 0 && row >= table_rows) continue;
      const Word word = bits_as<Word>(words[i]);
      DSCORE_UNROLL
      for (int j = 0; j < vectors; j++)
        write_vector(reinterpret_cast<Word *>(lds + row * table_row_bytes +
                                              (j + thread) % vectors * 16),
                     Pack<Word, 4>{{word, word, word, word}});
    }
  }
};

}  // namespace dscore
