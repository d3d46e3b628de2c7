/* The instruction sets of a processor as bits of one word: those that it has (cpu.c), and those
 * that a compiler was allowed to use (needs.c), so that code for a processor that lacks one is
 * refused before it runs. */
#ifndef SQUALL_CPU_H
#define SQUALL_CPU_H
#include <stdint.h>

/* Name, bit, the macro by which GCC and Clang say that they may use it, and where CPUID reports it:
 * leaf, subleaf, register (0 eax, 1 ebx, 2 ecx, 3 edx), bit. */
#define RT_CPU_SETS(SET)                                                                           \
  SET(SSE3, 0, 1, 0, 2, 0)                                                                         \
  SET(SSSE3, 1, 1, 0, 2, 9)                                                                        \
  SET(SSE4_1, 2, 1, 0, 2, 19)                                                                      \
  SET(SSE4_2, 3, 1, 0, 2, 20)                                                                      \
  SET(POPCNT, 4, 1, 0, 2, 23)                                                                      \
  SET(AVX, 5, 1, 0, 2, 28)                                                                         \
  SET(F16C, 6, 1, 0, 2, 29)                                                                        \
  SET(FMA, 7, 1, 0, 2, 12)                                                                         \
  SET(AVX2, 8, 7, 0, 1, 5)                                                                         \
  SET(BMI, 9, 7, 0, 1, 3)                                                                          \
  SET(BMI2, 10, 7, 0, 1, 8)                                                                        \
  SET(LZCNT, 11, 0x80000001, 0, 2, 5)                                                              \
  SET(AVX512F, 12, 7, 0, 1, 16)                                                                    \
  SET(AVX512DQ, 13, 7, 0, 1, 17)                                                                   \
  SET(AVX512CD, 14, 7, 0, 1, 28)                                                                   \
  SET(AVX512BW, 15, 7, 0, 1, 30)                                                                   \
  SET(AVX512VL, 16, 7, 0, 1, 31)                                                                   \
  SET(AVX512IFMA, 17, 7, 0, 1, 21)                                                                 \
  SET(AVX512VBMI, 18, 7, 0, 2, 1)                                                                  \
  SET(AVX512VBMI2, 19, 7, 0, 2, 6)                                                                 \
  SET(AVX512VNNI, 20, 7, 0, 2, 11)                                                                 \
  SET(AVX512BITALG, 21, 7, 0, 2, 12)                                                               \
  SET(AVX512VPOPCNTDQ, 22, 7, 0, 2, 14)                                                            \
  SET(AVX512FP16, 23, 7, 0, 3, 23)                                                                 \
  SET(GFNI, 24, 7, 0, 2, 8)                                                                        \
  SET(AVX512BF16, 25, 7, 1, 0, 5)                                                                  \
  SET(AMX_TILE, 29, 7, 0, 3, 24)                                                                   \
  SET(AMX_INT8, 30, 7, 0, 3, 25)                                                                   \
  SET(AMX_BF16, 31, 7, 0, 3, 22)

/* The sets of this processor that its system saves between threads. */
uint64_t rt_cpu_has(void);

#endif
