// What vendors do not share: copies to LDS that nobody waits for, matrix units, large LDS.
#pragma once

#include "support/common.hpp"

// A loop over what is read from LDS: unrolled, hipcc would read all of it into registers first.
#if defined(__CUDACC__)
#define DSCORE_UNROLL_READS DSCORE_UNROLL
#else
#define DSCORE_UNROLL_READS DSCORE_ROLLED
#endif

// The same of a long one: all of it, nvcc would read at once into all registers, too.
#if defined(__CUDACC__)
#define DSCORE_UNROLL_FEW _Pragma("unroll 4")
#else
#define DSCORE_UNROLL_FEW DSCORE_UNROLL_READS
#endif

namespace dscore {

// A number of which nvcc knows nothing, made here: it computes neither the number again in each
// round of a loop, nor what follows from it once for all rounds, which would take registers.
__device__ inline int opaque(int number) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(number));
#endif
  return number;
}

// Has a value computed here: hipcc would put off the sums of all rows of a thread to the last, and
// hold all of these in registers.
__device__ inline void settle(float &value) {
#if !defined(DSCORE_HOST) && !defined(__CUDACC__)
  asm volatile("" : "+v"(value));
#else
  (void)value;
#endif
}

// Has all that is read so far read here: hipcc would read all rows of a thread before it adds the
// first, and hold them in registers.
__device__ inline void settle_reads() {
#if !defined(DSCORE_HOST) && !defined(__CUDACC__)
  asm volatile("" ::: "memory");
#endif
}

// Adds products if they are `there`. Behind a branch hipcc would keep arrays of registers that such
// sums are part of in scratch memory, where a filter has one column.
template <int Count>
__device__ inline void add_products_if(bool there, float *sums, const float *a, const float *b) {
#if !defined(DSCORE_HOST) && !defined(__CUDACC__)
  DSCORE_UNROLL
  for (int i = 0; i < Count; i++) {
    const float with = sums[i] + a[i] * b[i];
    sums[i] = there ? with : sums[i];
  }
#else
  if (!there) return;
  DSCORE_UNROLL
  for (int i = 0; i < Count; i++) sums[i] += a[i] * b[i];
#endif
}

// A vector of memory, or zeros where there is none.
template <int Count, class T>
__device__ inline Pack<T, Count> vector_or_zeros(const T *from, bool there) {
#if defined(DSCORE_HOST) || defined(__CUDACC__)
  using Vector = Pack<T, Count>;
  return there ? read_vector<Count>(from) : Vector{};
#else
  // hipcc would keep a struct that is one of two in scratch memory.
  constexpr int bytes = Count * static_cast<int>(sizeof(T));
  if constexpr (sizeof(T) < 4 && !std::is_unsigned_v<T>) {
    using Word = std::conditional_t<bytes % 4 == 0, uint32_t,
                                    std::conditional_t<bytes % 2 == 0, uint16_t, uint8_t>>;
    constexpr int words = bytes / static_cast<int>(sizeof(Word));
    return bits_as<Pack<T, Count>>(
        vector_or_zeros<words>(reinterpret_cast<const Word *>(from), there));
  } else if constexpr (bytes == 1) {  // clang 15 fails for a vector of one byte
    return {{there ? *from : T(0)}};
  } else {
    using Vector = T __attribute__((ext_vector_type(Count)));
    const Vector read = there ? *reinterpret_cast<const Vector *>(from) : Vector(0);
    Pack<T, Count> made;
    DSCORE_UNROLL
    for (int i = 0; i < Count; i++) made.at[i] = read[i];
    return made;
  }
#endif
}

constexpr int lds_alignment = 128;

// The array of a block in LDS, aligned for every vector and for the copy engine.
template <class T, int Count, int Alignment = lds_alignment>
__device__ inline T *block_lds() {
#if defined(DSCORE_HOST)
  return emulation::lds<T>(Count, Alignment);
#else
#if defined(__CUDACC__)
  if constexpr (Count * sizeof(T) > most_static_lds_bytes && Alignment > lds_alignment) {
    extern __shared__ __align__(1024) unsigned char aligned_lds[];
    static_assert(Alignment <= 1024, "alignment");
    return reinterpret_cast<T *>(aligned_lds);
  } else if constexpr (Count * sizeof(T) > most_static_lds_bytes) {
    extern __shared__ __align__(lds_alignment) unsigned char dynamic_lds[];
    return reinterpret_cast<T *>(dynamic_lds);
  } else
#endif
  {
    __shared__ __align__(Alignment) unsigned char static_lds[Count * sizeof(T)];
    return reinterpret_cast<T *>(static_lds);
  }
#endif
}

// Before sm_80 and on other vendors' devices a copy passes through registers and is waited for.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define DSCORE_ASYNC_COPIES
#endif

// Copies a vector to LDS, zeros where there is none at the source. It has arrived for the lane that
// asked once wait_copies lets it go, for others after a barrier that follows.
template <int Bytes>
__device__ inline void copy_async(void *lds, const void *from, bool there = true) {
#if defined(DSCORE_HOST)
  emulation::copy_async(lds, from, there ? Bytes : 0, Bytes);
#elif defined(DSCORE_ASYNC_COPIES)
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(lds));
  if constexpr (Bytes == 1)
    *static_cast<uint8_t *>(lds) = there ? *static_cast<const uint8_t *>(from) : 0;
  else if constexpr (Bytes == 2)  // the least that passes by itself are four
    *static_cast<uint16_t *>(lds) = there ? *static_cast<const uint16_t *>(from) : 0;
  else if constexpr (Bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(there ? Bytes : 0) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(Bytes),
                 "r"(there ? Bytes : 0) : "memory");
#else
  using Word = std::conditional_t<Bytes == 1, uint8_t,
                                  std::conditional_t<Bytes == 2, uint16_t, uint32_t>>;
  constexpr int words = Bytes / static_cast<int>(sizeof(Word));
  *static_cast<Pack<Word, words> *>(lds) =
      vector_or_zeros<words>(static_cast<const Word *>(from), there);
#endif
}

// Ends a group of copies.
__device__ inline void commit_copies() {
#if defined(DSCORE_HOST)
  emulation::commit_copies();
#elif defined(DSCORE_ASYNC_COPIES)
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most `Ahead` of the lane's groups are under way.
template <int Ahead>
__device__ inline void wait_copies() {
#if defined(DSCORE_HOST)
  emulation::wait_copies(Ahead);
#elif defined(DSCORE_ASYNC_COPIES)
  asm volatile("cp.async.wait_group %0;" ::"n"(Ahead) : "memory");
#endif
}

// The nearest TF32, of 10 bits of fraction, of two the even one; a NaN stays one.
__device__ inline float to_tf32(float value) {
  uint32_t bits;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
#else
  constexpr uint32_t left_out = 0x1FFF, infinity = 0x7F800000, quiet = 0x400000;
  __builtin_memcpy(&bits, &value, sizeof bits);
  if ((bits & ~0x80000000u) > infinity) bits |= quiet;
  else bits += (left_out >> 1) + (bits >> 13 & 1);
  bits &= ~left_out;
#endif
  __builtin_memcpy(&value, &bits, sizeof bits);
  return value;
}

// A float32 as the sum of two TF32: exact to 2^-22 of it.
struct Halves {
  float big, small;
  Halves() = default;
  __device__ inline explicit Halves(float value)
      : big(to_tf32(value)), small(to_tf32(value - big)) {}
};

#if defined(DSCORE_HOST) || defined(__CUDACC__)
constexpr bool has_tf32 = true;
#else
constexpr bool has_tf32 = false;
#endif

// d[16][8] += a[16][8] · b[8][8] by the wavefront of 32, of the parts named; lane 4 g + i holds
// a[g][i], a[g + 8][i], a[g][i + 4], a[g + 8][i + 4], b[i][g], b[i + 4][g] and, of d, columns 2 i
// and 2 i + 1 of rows g and g + 8 (PTX ISA, mma.m16n8k8).
__device__ inline void multiply_tf32(float *d, const Halves (&a)[4], const Halves (&b)[2],
                                     bool small_a, bool small_b) {
#if defined(__CUDACC__)
  const auto bits = [](const Halves &value, bool small) {
    return __float_as_uint(small ? value.small : value.big);
  };
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(bits(a[0], small_a)), "r"(bits(a[1], small_a)), "r"(bits(a[2], small_a)),
        "r"(bits(a[3], small_a)), "r"(bits(b[0], small_b)), "r"(bits(b[1], small_b)));
#elif defined(DSCORE_HOST)
  float mine[6];
  for (int i = 0; i < 4; i++) mine[i] = small_a ? a[i].small : a[i].big;
  for (int i = 0; i < 2; i++) mine[4 + i] = small_b ? b[i].small : b[i].big;
  emulation::multiply_16x8x8(d, mine, __LINE__);
#endif
}

}  // namespace dscore
