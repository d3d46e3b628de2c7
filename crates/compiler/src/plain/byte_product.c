/* c[m * NN + n] = the sum over k < KK of the products of a[m * KK + k] - row_zero[m] and
   b[k * NN + n] - column_zero[n], of bytes, in whole numbers of 32 bits that wrap around. `rows`,
   `panel` and `row_sums` are memory for MM * (KK + 4), 64 * (KK + 4) and MM elements. Sums of 64
   columns at a time lie in registers. */
#if defined __AVX512F__ && defined __AVX512BW__ && defined __AVX512VNNI__ && !defined __CUDACC__
#include <immintrin.h>
/* Four bytes without a sign are multiplied by four with one: 128 is added to or taken from bytes of
   another kind, and what that and the zero points amount to is taken from the sums. */
enum { DEEP = (KK + 3) / 4, LEFT_TURN = (TA)-1 < 0 ? 128 : 0, RIGHT_TURN = (TB)-1 < 0 ? 0 : 128 };
static inline __attribute__((always_inline)) void byte_tile(
    int m, const unsigned char *left, const unsigned *packed, int sums[4][64]) {
  __m512i s[4][4];
  _Pragma("GCC unroll 4") for (int r = 0; r < m; r++)
    _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++) s[r][v] = _mm512_setzero_si512();
  for (long k = 0; k < DEEP; k++) {
    __m512i b[4];
    _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++)
      b[v] = _mm512_loadu_si512(packed + k * 64 + 16 * v);
    _Pragma("GCC unroll 4") for (int r = 0; r < m; r++) {
      int four;
      memcpy(&four, left + (r * DEEP + k) * 4, 4);
      const __m512i a = _mm512_set1_epi32(four);
      _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++)
        s[r][v] = _mm512_dpbusd_epi32(s[r][v], a, b[v]);
    }
  }
  _Pragma("GCC unroll 4") for (int r = 0; r < m; r++)
    _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++)
      _mm512_storeu_si512(&sums[r][16 * v], s[r][v]);
}
static void byte_product(const TA *a, const TB *b, const int *row_zero, const int *column_zero,
                         int *restrict c, short *restrict rows, short *restrict panel,
                         int *restrict row_sums) {
  unsigned char *left = (unsigned char *)rows;
  unsigned *packed = (unsigned *)(void *)panel;
  for (long m = 0; m < MM; m++) {
    int sum = 0;
    for (long k = 0; k < KK; k++) {
      const unsigned char v = (unsigned char)((unsigned char)a[m * KK + k] ^ LEFT_TURN);
      left[m * DEEP * 4 + k] = v, sum += v;
    }
    for (long k = KK; k < DEEP * 4; k++) left[m * DEEP * 4 + k] = 0;
    row_sums[m] = sum;
  }
  for (long n = 0; n < NN; n += 64) {
    const long wide = NN - n < 64 ? NN - n : 64;
    int column_sums[64] = {0};
    memset(packed, 0, sizeof(unsigned) * 64 * DEEP);
    for (long k = 0; k + 4 <= KK; k += 4) {
      const TB *b0 = b + k * NN + n, *b1 = b0 + NN, *b2 = b1 + NN, *b3 = b2 + NN;
      for (long l = 0; l < wide; l++) {
        const unsigned char v0 = (unsigned char)((unsigned char)b0[l] ^ RIGHT_TURN);
        const unsigned char v1 = (unsigned char)((unsigned char)b1[l] ^ RIGHT_TURN);
        const unsigned char v2 = (unsigned char)((unsigned char)b2[l] ^ RIGHT_TURN);
        const unsigned char v3 = (unsigned char)((unsigned char)b3[l] ^ RIGHT_TURN);
        packed[k * 16 + l] = v0 | (unsigned)v1 << 8 | (unsigned)v2 << 16 | (unsigned)v3 << 24;
        column_sums[l] += (signed char)v0 + (signed char)v1 + (signed char)v2 + (signed char)v3;
      }
    }
    for (long k = KK / 4 * 4; k < KK; k++)
      for (long l = 0; l < wide; l++) {
        const unsigned char v = (unsigned char)((unsigned char)b[k * NN + n + l] ^ RIGHT_TURN);
        packed[k / 4 * 64 + l] |= (unsigned)v << 8 * (k % 4);
        column_sums[l] += (signed char)v;
      }
    for (long m = 0; m < MM; m += 4) {
      int sums[4][64];
      const long count = MM - m < 4 ? MM - m : 4;
      if (count == 4) byte_tile(4, left + m * DEEP * 4, packed, sums);
      else
        for (long r = 0; r < count; r++) byte_tile(1, left + (m + r) * DEEP * 4, packed, sums + r);
      for (long r = 0; r < count; r++) {
        const unsigned p = (unsigned)(row_zero[m + r] + LEFT_TURN), s = (unsigned)row_sums[m + r];
        for (long l = 0; l < wide; l++) {
          const unsigned q = (unsigned)(column_zero[n + l] - RIGHT_TURN);
          const unsigned all = (unsigned)sums[r][l] - q * s - p * (unsigned)column_sums[l];
          c[(m + r) * NN + n + l] = (int)(all + (unsigned)KK * p * q);
        }
      }
    }
  }
}
#elif defined __AVX2__ && !defined __CUDACC__
#include <immintrin.h>
/* Pairs of words, less their zero points. */
enum { DEEP = (KK + 1) / 2 };
static inline unsigned pair_of(int low, int high) {
  return (unsigned)low % 65536u | (unsigned)high << 16;
}
static inline __attribute__((always_inline)) void word_tile(int m, const short *left,
                                                            const unsigned *packed, int *sums) {
  for (int part = 0; part < 64; part += 16) {
    __m256i s[4][2];
    _Pragma("GCC unroll 4") for (int r = 0; r < m; r++)
      _Pragma("GCC unroll 2") for (int v = 0; v < 2; v++) s[r][v] = _mm256_setzero_si256();
    for (long k = 0; k < DEEP; k++) {
      __m256i b[2];
      _Pragma("GCC unroll 2") for (int v = 0; v < 2; v++)
        b[v] = _mm256_loadu_si256((const __m256i *)(const void *)(packed + k * 64 + part + 8 * v));
      _Pragma("GCC unroll 4") for (int r = 0; r < m; r++) {
        int two;
        memcpy(&two, left + (r * DEEP + k) * 2, 4);
        const __m256i a = _mm256_set1_epi32(two);
        _Pragma("GCC unroll 2") for (int v = 0; v < 2; v++)
          s[r][v] = _mm256_add_epi32(s[r][v], _mm256_madd_epi16(a, b[v]));
      }
    }
    _Pragma("GCC unroll 4") for (int r = 0; r < m; r++)
      _Pragma("GCC unroll 2") for (int v = 0; v < 2; v++)
        _mm256_storeu_si256((__m256i *)(void *)(sums + r * 64 + part + 8 * v), s[r][v]);
  }
}
static void byte_product(const TA *a, const TB *b, const int *row_zero, const int *column_zero,
                         int *restrict c, short *restrict rows, short *restrict panel,
                         int *restrict row_sums) {
  unsigned *packed = (unsigned *)(void *)panel;
  (void)row_sums;
  for (long m = 0; m < MM; m++) {
    for (long k = 0; k < KK; k++)
      rows[m * DEEP * 2 + k] = (short)((int)a[m * KK + k] - row_zero[m]);
    for (long k = KK; k < DEEP * 2; k++) rows[m * DEEP * 2 + k] = 0;
  }
  for (long n = 0; n < NN; n += 64) {
    const long wide = NN - n < 64 ? NN - n : 64;
    memset(packed, 0, sizeof(unsigned) * 64 * DEEP);
    for (long k = 0; k + 2 <= KK; k += 2)
      for (long l = 0; l < wide; l++)
        packed[k * 32 + l] = pair_of((int)b[k * NN + n + l] - column_zero[n + l],
                                     (int)b[(k + 1) * NN + n + l] - column_zero[n + l]);
    if (KK % 2)
      for (long l = 0; l < wide; l++)
        packed[(KK - 1) * 32 + l] = pair_of((int)b[(KK - 1) * NN + n + l] - column_zero[n + l], 0);
    for (long m = 0; m < MM; m += 4) {
      int sums[4 * 64];
      const long count = MM - m < 4 ? MM - m : 4;
      if (count == 4) word_tile(4, rows + m * DEEP * 2, packed, sums);
      else
        for (long r = 0; r < count; r++)
          word_tile(1, rows + (m + r) * DEEP * 2, packed, sums + r * 64);
      for (long r = 0; r < count; r++)
        for (long l = 0; l < wide; l++) c[(m + r) * NN + n + l] = sums[r * 64 + l];
    }
  }
}
#else
static void byte_product(const TA *a, const TB *b, const int *row_zero, const int *column_zero,
                         int *restrict c, short *restrict rows, short *restrict panel,
                         int *restrict row_sums) {
  (void)rows, (void)panel, (void)row_sums;
  for (long m = 0; m < MM; m++) {
    for (long n = 0; n < NN; n++) c[m * NN + n] = 0;
    for (long k = 0; k < KK; k++) {
      const unsigned v = (unsigned)((int)a[m * KK + k] - row_zero[m]);
      for (long n = 0; n < NN; n++) {
        const unsigned w = (unsigned)((int)b[k * NN + n] - column_zero[n]);
        c[m * NN + n] = (int)((unsigned)c[m * NN + n] + v * w);
      }
    }
  }
}
#endif
