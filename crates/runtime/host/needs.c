/* A constant with one bit for each instruction set that the kernels of an exported library need.
 * The file is compiled with the kernels' flags, whose macros say which sets the compiler may
 * use. It has no code, so that it can be read on any processor; library.c compares it with what
 * cpu.c finds. */
#include "cpu.h"

extern const uint64_t rt_cpu_needs;
const uint64_t rt_cpu_needs = 0
#ifdef __SSE3__
                              | (uint64_t)1 << 0
#endif
#ifdef __SSSE3__
                              | (uint64_t)1 << 1
#endif
#ifdef __SSE4_1__
                              | (uint64_t)1 << 2
#endif
#ifdef __SSE4_2__
                              | (uint64_t)1 << 3
#endif
#ifdef __POPCNT__
                              | (uint64_t)1 << 4
#endif
#ifdef __AVX__
                              | (uint64_t)1 << 5
#endif
#ifdef __F16C__
                              | (uint64_t)1 << 6
#endif
#ifdef __FMA__
                              | (uint64_t)1 << 7
#endif
#ifdef __AVX2__
                              | (uint64_t)1 << 8
#endif
#ifdef __BMI__
                              | (uint64_t)1 << 9
#endif
#ifdef __BMI2__
                              | (uint64_t)1 << 10
#endif
#ifdef __LZCNT__
                              | (uint64_t)1 << 11
#endif
#ifdef __AVX512F__
                              | (uint64_t)1 << 12
#endif
#ifdef __AVX512DQ__
                              | (uint64_t)1 << 13
#endif
#ifdef __AVX512CD__
                              | (uint64_t)1 << 14
#endif
#ifdef __AVX512BW__
                              | (uint64_t)1 << 15
#endif
#ifdef __AVX512VL__
                              | (uint64_t)1 << 16
#endif
#ifdef __AVX512IFMA__
                              | (uint64_t)1 << 17
#endif
#ifdef __AVX512VBMI__
                              | (uint64_t)1 << 18
#endif
#ifdef __AVX512VBMI2__
                              | (uint64_t)1 << 19
#endif
#ifdef __AVX512VNNI__
                              | (uint64_t)1 << 20
#endif
#ifdef __AVX512BITALG__
                              | (uint64_t)1 << 21
#endif
#ifdef __AVX512VPOPCNTDQ__
                              | (uint64_t)1 << 22
#endif
#ifdef __AVX512FP16__
                              | (uint64_t)1 << 23
#endif
#ifdef __GFNI__
                              | (uint64_t)1 << 24
#endif
#ifdef __AVX512BF16__
                              | (uint64_t)1 << 25
#endif
#ifdef __ARM_FEATURE_DOTPROD
                              | (uint64_t)1 << 26
#endif
#ifdef __ARM_FEATURE_MATMUL_INT8
                              | (uint64_t)1 << 27
#endif
#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
                              | (uint64_t)1 << 28
#endif
#ifdef __AMX_TILE__
                              | (uint64_t)1 << 29
#endif
#ifdef __AMX_INT8__
                              | (uint64_t)1 << 30
#endif
#ifdef __AMX_BF16__
                              | (uint64_t)1 << 31
#endif
    ;
