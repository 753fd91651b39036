// The products of a warpgroup by their columns: one instruction of PTX for each number of these, as
// its operands are that many registers (PTX ISA, wgmma.mma_async). support/warpgroups.hpp has what
// they mean.
#pragma once

#include <cstdint>

namespace dscore {

// Of Columns columns: `by_lds` of two operands in LDS, `by_registers` of the first in registers. In
// 16 bits an operand in LDS is turned where its rows are the summed elements. Of signed bytes there
// are 8, 24 or a multiple of 16 columns.
template <int Columns>
struct WarpgroupProduct;

// Operands that are sums, in registers of floats ("+f") or of integers ("+r").
#define DSCORE_FOUR_SUMS(as, i) as(d[i]), as(d[i + 1]), as(d[i + 2]), as(d[i + 3])
#define DSCORE_NAMES_8 "%0,%1,%2,%3"
#define DSCORE_SUMS_8(as) DSCORE_FOUR_SUMS(as, 0)
#define DSCORE_NAMES_16 DSCORE_NAMES_8 ",%4,%5,%6,%7"
#define DSCORE_SUMS_16(as) DSCORE_SUMS_8(as), DSCORE_FOUR_SUMS(as, 4)
#define DSCORE_NAMES_24 DSCORE_NAMES_16 ",%8,%9,%10,%11"
#define DSCORE_SUMS_24(as) DSCORE_SUMS_16(as), DSCORE_FOUR_SUMS(as, 8)
#define DSCORE_NAMES_32 DSCORE_NAMES_24 ",%12,%13,%14,%15"
#define DSCORE_SUMS_32(as) DSCORE_SUMS_24(as), DSCORE_FOUR_SUMS(as, 12)
#define DSCORE_NAMES_40 DSCORE_NAMES_32 ",%16,%17,%18,%19"
#define DSCORE_SUMS_40(as) DSCORE_SUMS_32(as), DSCORE_FOUR_SUMS(as, 16)
#define DSCORE_NAMES_48 DSCORE_NAMES_40 ",%20,%21,%22,%23"
#define DSCORE_SUMS_48(as) DSCORE_SUMS_40(as), DSCORE_FOUR_SUMS(as, 20)
#define DSCORE_NAMES_56 DSCORE_NAMES_48 ",%24,%25,%26,%27"
#define DSCORE_SUMS_56(as) DSCORE_SUMS_48(as), DSCORE_FOUR_SUMS(as, 24)
#define DSCORE_NAMES_64 DSCORE_NAMES_56 ",%28,%29,%30,%31"
#define DSCORE_SUMS_64(as) DSCORE_SUMS_56(as), DSCORE_FOUR_SUMS(as, 28)
#define DSCORE_NAMES_72 DSCORE_NAMES_64 ",%32,%33,%34,%35"
#define DSCORE_SUMS_72(as) DSCORE_SUMS_64(as), DSCORE_FOUR_SUMS(as, 32)
#define DSCORE_NAMES_80 DSCORE_NAMES_72 ",%36,%37,%38,%39"
#define DSCORE_SUMS_80(as) DSCORE_SUMS_72(as), DSCORE_FOUR_SUMS(as, 36)
#define DSCORE_NAMES_88 DSCORE_NAMES_80 ",%40,%41,%42,%43"
#define DSCORE_SUMS_88(as) DSCORE_SUMS_80(as), DSCORE_FOUR_SUMS(as, 40)
#define DSCORE_NAMES_96 DSCORE_NAMES_88 ",%44,%45,%46,%47"
#define DSCORE_SUMS_96(as) DSCORE_SUMS_88(as), DSCORE_FOUR_SUMS(as, 44)
#define DSCORE_NAMES_104 DSCORE_NAMES_96 ",%48,%49,%50,%51"
#define DSCORE_SUMS_104(as) DSCORE_SUMS_96(as), DSCORE_FOUR_SUMS(as, 48)
#define DSCORE_NAMES_112 DSCORE_NAMES_104 ",%52,%53,%54,%55"
#define DSCORE_SUMS_112(as) DSCORE_SUMS_104(as), DSCORE_FOUR_SUMS(as, 52)
#define DSCORE_NAMES_120 DSCORE_NAMES_112 ",%56,%57,%58,%59"
#define DSCORE_SUMS_120(as) DSCORE_SUMS_112(as), DSCORE_FOUR_SUMS(as, 56)
#define DSCORE_NAMES_128 DSCORE_NAMES_120 ",%60,%61,%62,%63"
#define DSCORE_SUMS_128(as) DSCORE_SUMS_120(as), DSCORE_FOUR_SUMS(as, 60)
#define DSCORE_NAMES_136 DSCORE_NAMES_128 ",%64,%65,%66,%67"
#define DSCORE_SUMS_136(as) DSCORE_SUMS_128(as), DSCORE_FOUR_SUMS(as, 64)
#define DSCORE_NAMES_144 DSCORE_NAMES_136 ",%68,%69,%70,%71"
#define DSCORE_SUMS_144(as) DSCORE_SUMS_136(as), DSCORE_FOUR_SUMS(as, 68)
#define DSCORE_NAMES_152 DSCORE_NAMES_144 ",%72,%73,%74,%75"
#define DSCORE_SUMS_152(as) DSCORE_SUMS_144(as), DSCORE_FOUR_SUMS(as, 72)
#define DSCORE_NAMES_160 DSCORE_NAMES_152 ",%76,%77,%78,%79"
#define DSCORE_SUMS_160(as) DSCORE_SUMS_152(as), DSCORE_FOUR_SUMS(as, 76)
#define DSCORE_NAMES_168 DSCORE_NAMES_160 ",%80,%81,%82,%83"
#define DSCORE_SUMS_168(as) DSCORE_SUMS_160(as), DSCORE_FOUR_SUMS(as, 80)
#define DSCORE_NAMES_176 DSCORE_NAMES_168 ",%84,%85,%86,%87"
#define DSCORE_SUMS_176(as) DSCORE_SUMS_168(as), DSCORE_FOUR_SUMS(as, 84)
#define DSCORE_NAMES_184 DSCORE_NAMES_176 ",%88,%89,%90,%91"
#define DSCORE_SUMS_184(as) DSCORE_SUMS_176(as), DSCORE_FOUR_SUMS(as, 88)
#define DSCORE_NAMES_192 DSCORE_NAMES_184 ",%92,%93,%94,%95"
#define DSCORE_SUMS_192(as) DSCORE_SUMS_184(as), DSCORE_FOUR_SUMS(as, 92)
#define DSCORE_NAMES_200 DSCORE_NAMES_192 ",%96,%97,%98,%99"
#define DSCORE_SUMS_200(as) DSCORE_SUMS_192(as), DSCORE_FOUR_SUMS(as, 96)
#define DSCORE_NAMES_208 DSCORE_NAMES_200 ",%100,%101,%102,%103"
#define DSCORE_SUMS_208(as) DSCORE_SUMS_200(as), DSCORE_FOUR_SUMS(as, 100)
#define DSCORE_NAMES_216 DSCORE_NAMES_208 ",%104,%105,%106,%107"
#define DSCORE_SUMS_216(as) DSCORE_SUMS_208(as), DSCORE_FOUR_SUMS(as, 104)
#define DSCORE_NAMES_224 DSCORE_NAMES_216 ",%108,%109,%110,%111"
#define DSCORE_SUMS_224(as) DSCORE_SUMS_216(as), DSCORE_FOUR_SUMS(as, 108)
#define DSCORE_NAMES_232 DSCORE_NAMES_224 ",%112,%113,%114,%115"
#define DSCORE_SUMS_232(as) DSCORE_SUMS_224(as), DSCORE_FOUR_SUMS(as, 112)
#define DSCORE_NAMES_240 DSCORE_NAMES_232 ",%116,%117,%118,%119"
#define DSCORE_SUMS_240(as) DSCORE_SUMS_232(as), DSCORE_FOUR_SUMS(as, 116)
#define DSCORE_NAMES_248 DSCORE_NAMES_240 ",%120,%121,%122,%123"
#define DSCORE_SUMS_248(as) DSCORE_SUMS_240(as), DSCORE_FOUR_SUMS(as, 120)
#define DSCORE_NAMES_256 DSCORE_NAMES_248 ",%124,%125,%126,%127"
#define DSCORE_SUMS_256(as) DSCORE_SUMS_248(as), DSCORE_FOUR_SUMS(as, 124)

// Of n columns; o0 to o6 are the numbers of the operands after the sums.
#define DSCORE_PRODUCT(n, o0, o1, o2, o3, o4, o5, o6)                                              \
template <>                                                                                        \
struct WarpgroupProduct<n> {                                                                       \
  template <bool TurnedA, bool TurnedB>                                                            \
  static __device__ void f16_by_lds(float *d, uint64_t a, uint64_t b, int add) {                   \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #o2 ", 0;\n"                             \
      "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 {" DSCORE_NAMES_##n "},"             \
      "%" #o0 ",%" #o1 ",add,1,1,%" #o3 ",%" #o4 ";\n}"                                            \
      : DSCORE_SUMS_##n("+f") : "l"(a), "l"(b), "r"(add), "n"(int{TurnedA}), "n"(int{TurnedB}));   \
  }                                                                                                \
  template <bool TurnedB>                                                                          \
  static __device__ void f16_by_registers(float *d, const uint32_t *a, uint64_t b, int add) {      \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #o5 ", 0;\n"                             \
      "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 {" DSCORE_NAMES_##n "},"             \
      "{%" #o0 ",%" #o1 ",%" #o2 ",%" #o3 "},%" #o4 ",add,1,1,%" #o6 ";\n}"                        \
      : DSCORE_SUMS_##n("+f") : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add),      \
        "n"(int{TurnedB}));                                                                        \
  }                                                                                                \
  template <bool TurnedA, bool TurnedB>                                                            \
  static __device__ void bf16_by_lds(float *d, uint64_t a, uint64_t b, int add) {                  \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #o2 ", 0;\n"                             \
      "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" DSCORE_NAMES_##n "},"           \
      "%" #o0 ",%" #o1 ",add,1,1,%" #o3 ",%" #o4 ";\n}"                                            \
      : DSCORE_SUMS_##n("+f") : "l"(a), "l"(b), "r"(add), "n"(int{TurnedA}), "n"(int{TurnedB}));   \
  }                                                                                                \
  template <bool TurnedB>                                                                          \
  static __device__ void bf16_by_registers(float *d, const uint32_t *a, uint64_t b, int add) {     \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #o5 ", 0;\n"                             \
      "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" DSCORE_NAMES_##n "},"           \
      "{%" #o0 ",%" #o1 ",%" #o2 ",%" #o3 "},%" #o4 ",add,1,1,%" #o6 ";\n}"                        \
      : DSCORE_SUMS_##n("+f") : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add),      \
        "n"(int{TurnedB}));                                                                        \
  }                                                                                                \
  static __device__ void tf32_by_lds(float *d, uint64_t a, uint64_t b, int add) {                  \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #o2 ", 0;\n"                             \
      "wgmma.mma_async.sync.aligned.m64n" #n "k8.f32.tf32.tf32 {" DSCORE_NAMES_##n "},"            \
      "%" #o0 ",%" #o1 ",add,1,1;\n}"                                                              \
      : DSCORE_SUMS_##n("+f") : "l"(a), "l"(b), "r"(add));                                         \
  }                                                                                                \
  static __device__ void tf32_by_registers(float *d, const uint32_t *a, uint64_t b, int add) {     \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #o5 ", 0;\n"                             \
      "wgmma.mma_async.sync.aligned.m64n" #n "k8.f32.tf32.tf32 {" DSCORE_NAMES_##n "},"            \
      "{%" #o0 ",%" #o1 ",%" #o2 ",%" #o3 "},%" #o4 ",add,1,1;\n}"                                 \
      : DSCORE_SUMS_##n("+f") : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));     \
  }                                                                                                \
  static __device__ void s8_by_lds(int32_t *d, uint64_t a, uint64_t b, int add) {                  \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #o2 ", 0;\n"                             \
      "wgmma.mma_async.sync.aligned.m64n" #n "k32.s32.s8.s8 {" DSCORE_NAMES_##n "},"               \
      "%" #o0 ",%" #o1 ",add;\n}"                                                                  \
      : DSCORE_SUMS_##n("+r") : "l"(a), "l"(b), "r"(add));                                         \
  }                                                                                                \
  static __device__ void s8_by_registers(int32_t *d, const uint32_t *a, uint64_t b, int add) {     \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #o5 ", 0;\n"                             \
      "wgmma.mma_async.sync.aligned.m64n" #n "k32.s32.s8.s8 {" DSCORE_NAMES_##n "},"               \
      "{%" #o0 ",%" #o1 ",%" #o2 ",%" #o3 "},%" #o4 ",add;\n}"                                     \
      : DSCORE_SUMS_##n("+r") : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));     \
  }                                                                                                \
};

DSCORE_PRODUCT(8, 4, 5, 6, 7, 8, 9, 10)
DSCORE_PRODUCT(16, 8, 9, 10, 11, 12, 13, 14)
DSCORE_PRODUCT(24, 12, 13, 14, 15, 16, 17, 18)
DSCORE_PRODUCT(32, 16, 17, 18, 19, 20, 21, 22)
DSCORE_PRODUCT(40, 20, 21, 22, 23, 24, 25, 26)
DSCORE_PRODUCT(48, 24, 25, 26, 27, 28, 29, 30)
DSCORE_PRODUCT(56, 28, 29, 30, 31, 32, 33, 34)
DSCORE_PRODUCT(64, 32, 33, 34, 35, 36, 37, 38)
DSCORE_PRODUCT(72, 36, 37, 38, 39, 40, 41, 42)
DSCORE_PRODUCT(80, 40, 41, 42, 43, 44, 45, 46)
DSCORE_PRODUCT(88, 44, 45, 46, 47, 48, 49, 50)
DSCORE_PRODUCT(96, 48, 49, 50, 51, 52, 53, 54)
DSCORE_PRODUCT(104, 52, 53, 54, 55, 56, 57, 58)
DSCORE_PRODUCT(112, 56, 57, 58, 59, 60, 61, 62)
DSCORE_PRODUCT(120, 60, 61, 62, 63, 64, 65, 66)
DSCORE_PRODUCT(128, 64, 65, 66, 67, 68, 69, 70)
DSCORE_PRODUCT(136, 68, 69, 70, 71, 72, 73, 74)
DSCORE_PRODUCT(144, 72, 73, 74, 75, 76, 77, 78)
DSCORE_PRODUCT(152, 76, 77, 78, 79, 80, 81, 82)
DSCORE_PRODUCT(160, 80, 81, 82, 83, 84, 85, 86)
DSCORE_PRODUCT(168, 84, 85, 86, 87, 88, 89, 90)
DSCORE_PRODUCT(176, 88, 89, 90, 91, 92, 93, 94)
DSCORE_PRODUCT(184, 92, 93, 94, 95, 96, 97, 98)
DSCORE_PRODUCT(192, 96, 97, 98, 99, 100, 101, 102)
DSCORE_PRODUCT(200, 100, 101, 102, 103, 104, 105, 106)
DSCORE_PRODUCT(208, 104, 105, 106, 107, 108, 109, 110)
DSCORE_PRODUCT(216, 108, 109, 110, 111, 112, 113, 114)
DSCORE_PRODUCT(224, 112, 113, 114, 115, 116, 117, 118)
DSCORE_PRODUCT(232, 116, 117, 118, 119, 120, 121, 122)
DSCORE_PRODUCT(240, 120, 121, 122, 123, 124, 125, 126)
DSCORE_PRODUCT(248, 124, 125, 126, 127, 128, 129, 130)
DSCORE_PRODUCT(256, 128, 129, 130, 131, 132, 133, 134)

#undef DSCORE_PRODUCT

}  // namespace dscore
