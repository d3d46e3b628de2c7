/* Products of matrices of bytes: c[m * NN + n] = the sum over k < KK of the products of
   a[m * KK + k] - row_zero[m] and b[k * NN + n] less its column's zero point, in whole numbers of
   32 bits that wrap around. `zero` has one zero point for each column (COLUMN_STEP is 1) or one of
   all (0), or is null: all are 0. 64 columns at a time are a panel of PANEL words, which all rows
   meet. Where b and its zero points never change (PACKED_AHEAD), `pack_bytes` packs all panels of
   a matrix, PANELS words, once; else `byte_product` packs one panel after the other into the same
   memory, by the same function, just before rows meet it. `rows` and `row_sums` are memory for
   MM * (KK + 4) and MM elements. A panel has at most 64 * ((KK + 1) / 2 + 2) words. */
#if defined __AVX512F__ && defined __AVX512BW__ && defined __AVX512VNNI__ && !defined __CUDACC__
#include <immintrin.h>
/* Four bytes without a sign are multiplied by four with one: 128 is added to or taken from bytes of
   another kind, and the share of these 128s and of the zero points is taken from the sums. Behind
   its bytes a panel has for each column the zero point q, and the sum of its bytes less KK * q.
   From the sum of products with a row of zero point p, the code takes q times the row's sum, and
   p times the column's sum less KK * q. */
enum { DEEP = (KK + 3) / 4, LEFT_TURN = (TA)-1 < 0 ? 128 : 0, RIGHT_TURN = (TB)-1 < 0 ? 0 : 128 };
#define PANEL (64L * (DEEP + 2))
static void pack_panel(const TB *b, const TZ *zero, long n, unsigned *panel) {
  const long wide = NN - n < 64 ? NN - n : 64;
  int sums[64] = {0}, *zeros = (int *)(void *)(panel + 64L * DEEP), *less = zeros + 64;
  if (wide < 64 || KK % 4) memset(panel, 0, sizeof(unsigned) * 64 * DEEP);
  for (long k = 0; k + 4 <= KK; k += 4) {
    const TB *b0 = b + k * NN + n, *b1 = b0 + NN, *b2 = b1 + NN, *b3 = b2 + NN;
    for (long l = 0; l < wide; l++) {
      const unsigned char v0 = (unsigned char)((unsigned char)b0[l] ^ RIGHT_TURN);
      const unsigned char v1 = (unsigned char)((unsigned char)b1[l] ^ RIGHT_TURN);
      const unsigned char v2 = (unsigned char)((unsigned char)b2[l] ^ RIGHT_TURN);
      const unsigned char v3 = (unsigned char)((unsigned char)b3[l] ^ RIGHT_TURN);
      panel[k * 16 + l] = v0 | (unsigned)v1 << 8 | (unsigned)v2 << 16 | (unsigned)v3 << 24;
      sums[l] += (signed char)v0 + (signed char)v1 + (signed char)v2 + (signed char)v3;
    }
  }
  for (long k = KK / 4 * 4; k < KK; k++)
    for (long l = 0; l < wide; l++) {
      const unsigned char v = (unsigned char)((unsigned char)b[k * NN + n + l] ^ RIGHT_TURN);
      panel[k / 4 * 64 + l] |= (unsigned)v << 8 * (k % 4);
      sums[l] += (signed char)v;
    }
  for (long l = 0; l < 64; l++) {
    zeros[l] = l < wide ? (zero ? (int)zero[(n + l) * COLUMN_STEP] : 0) - RIGHT_TURN : 0;
    less[l] = (int)((unsigned)sums[l] - (unsigned)KK * (unsigned)zeros[l]);
  }
}
static void pack_rows(const TA *a, const int *row_zero, short *restrict rows,
                      int *restrict row_sums) {
  unsigned char *left = (unsigned char *)rows;
  (void)row_zero;
  for (long m = 0; m < MM; m++) {
    int sum = 0;
    for (long k = 0; k < KK; k++) {
      const unsigned char v = (unsigned char)((unsigned char)a[m * KK + k] ^ LEFT_TURN);
      left[m * DEEP * 4 + k] = v, sum += v;
    }
    for (long k = KK; k < DEEP * 4; k++) left[m * DEEP * 4 + k] = 0;
    row_sums[m] = sum;
  }
}
static inline __attribute__((always_inline)) void byte_tile(
    int m, const unsigned char *left, const unsigned *panel, const int *row_zero,
    const int *row_sums, int *c, long step) {
  __m512i s[6][4];
  _Pragma("GCC unroll 16") for (int r = 0; r < m; r++)
    _Pragma("GCC unroll 16") for (int v = 0; v < 4; v++) s[r][v] = _mm512_setzero_si512();
  for (long k = 0; k < DEEP; k++) {
    __m512i b[4];
    _Pragma("GCC unroll 16") for (int v = 0; v < 4; v++)
      b[v] = _mm512_loadu_si512(panel + k * 64 + 16 * v);
    _Pragma("GCC unroll 16") for (int r = 0; r < m; r++) {
      int four;
      memcpy(&four, left + (r * DEEP + k) * 4, 4);
      const __m512i a = _mm512_set1_epi32(four);
      _Pragma("GCC unroll 16") for (int v = 0; v < 4; v++) {
        s[r][v] = _mm512_dpbusd_epi32(s[r][v], a, b[v]);
        /* Sums stay in registers: GCC would write each to memory at each step. */
        __asm__("" : "+v"(s[r][v]));
      }
    }
  }
  const unsigned *zeros = panel + 64L * DEEP, *less = zeros + 64;
  _Pragma("GCC unroll 16") for (int r = 0; r < m; r++) {
    const __m512i p = _mm512_set1_epi32(row_zero[r] + LEFT_TURN);
    const __m512i sum = _mm512_set1_epi32(row_sums[r]);
    _Pragma("GCC unroll 16") for (int v = 0; v < 4; v++) {
      const __m512i of_row = _mm512_mullo_epi32(_mm512_loadu_si512(zeros + 16 * v), sum);
      const __m512i of_column = _mm512_mullo_epi32(_mm512_loadu_si512(less + 16 * v), p);
      const __m512i taken = _mm512_add_epi32(of_row, of_column);
      _mm512_storeu_si512(c + r * step + 16 * v, _mm512_sub_epi32(s[r][v], taken));
    }
  }
}
/* Multiplies some rows from m on by a panel and returns the number of rows. It is not a part of
   the loop around it, since compilers would keep the panel's zero points in registers that sums
   need. */
static __attribute__((noinline)) long sums_of_panel(long m, const short *rows,
                                                     const int *row_zero, const int *row_sums,
                                                     const unsigned *panel, int *c, long step) {
  const unsigned char *left = (const unsigned char *)rows + m * DEEP * 4;
  const long count = MM - m;
  row_zero += m, row_sums += m;
  if (count >= 6) return byte_tile(6, left, panel, row_zero, row_sums, c, step), 6;
  if (count >= 4) return byte_tile(4, left, panel, row_zero, row_sums, c, step), 4;
  if (count >= 2) return byte_tile(2, left, panel, row_zero, row_sums, c, step), 2;
  return byte_tile(1, left, panel, row_zero, row_sums, c, step), 1;
}
#elif defined __AVX2__ && !defined __CUDACC__
#include <immintrin.h>
/* Pairs of words, less their zero points. */
enum { DEEP = (KK + 1) / 2 };
#define PANEL (64L * DEEP)
static inline unsigned pair_of(int low, int high) {
  return (unsigned)low % 65536u | (unsigned)high << 16;
}
static void pack_panel(const TB *b, const TZ *zero, long n, unsigned *panel) {
  const long wide = NN - n < 64 ? NN - n : 64;
  int z[64];
  for (long l = 0; l < wide; l++) z[l] = zero ? (int)zero[(n + l) * COLUMN_STEP] : 0;
  if (wide < 64) memset(panel, 0, sizeof(unsigned) * 64 * DEEP);
  for (long k = 0; k + 2 <= KK; k += 2)
    for (long l = 0; l < wide; l++)
      panel[k * 32 + l] =
          pair_of((int)b[k * NN + n + l] - z[l], (int)b[(k + 1) * NN + n + l] - z[l]);
  if (KK % 2)
    for (long l = 0; l < wide; l++)
      panel[(KK - 1) * 32 + l] = pair_of((int)b[(KK - 1) * NN + n + l] - z[l], 0);
}
static void pack_rows(const TA *a, const int *row_zero, short *restrict rows,
                      int *restrict row_sums) {
  (void)row_sums;
  for (long m = 0; m < MM; m++) {
    for (long k = 0; k < KK; k++)
      rows[m * DEEP * 2 + k] = (short)((int)a[m * KK + k] - row_zero[m]);
    for (long k = KK; k < DEEP * 2; k++) rows[m * DEEP * 2 + k] = 0;
  }
}
static inline __attribute__((always_inline)) void word_tile(
    int m, const short *left, const unsigned *panel, int *c, long step) {
  for (int part = 0; part < 64; part += 16) {
    __m256i s[4][2];
    _Pragma("GCC unroll 16") for (int r = 0; r < m; r++)
      _Pragma("GCC unroll 16") for (int v = 0; v < 2; v++) s[r][v] = _mm256_setzero_si256();
    for (long k = 0; k < DEEP; k++) {
      __m256i b[2];
      /* Loaded columns stay in their registers for all rows, as sums do. */
      _Pragma("GCC unroll 16") for (int v = 0; v < 2; v++) {
        b[v] = _mm256_loadu_si256((const __m256i *)(const void *)(panel + k * 64 + part + 8 * v));
        __asm__("" : "+x"(b[v]));
      }
      _Pragma("GCC unroll 16") for (int r = 0; r < m; r++) {
        int two;
        memcpy(&two, left + (r * DEEP + k) * 2, 4);
        const __m256i a = _mm256_set1_epi32(two);
        _Pragma("GCC unroll 16") for (int v = 0; v < 2; v++) {
          s[r][v] = _mm256_add_epi32(s[r][v], _mm256_madd_epi16(a, b[v]));
          __asm__("" : "+x"(s[r][v]));
        }
      }
    }
    _Pragma("GCC unroll 16") for (int r = 0; r < m; r++)
      _Pragma("GCC unroll 16") for (int v = 0; v < 2; v++)
        _mm256_storeu_si256((__m256i *)(void *)(c + r * step + part + 8 * v), s[r][v]);
  }
}
static long sums_of_panel(long m, const short *rows, const int *row_zero, const int *row_sums,
                           const unsigned *panel, int *c, long step) {
  (void)row_zero, (void)row_sums;
  rows += m * DEEP * 2;
  if (MM - m >= 4) return word_tile(4, rows, panel, c, step), 4;
  return word_tile(1, rows, panel, c, step), 1;
}
#else
/* Words, less their zero points: 64 columns of an element, then those of the next. */
#define PANEL (64L * ((KK + 1) / 2))
static void pack_panel(const TB *b, const TZ *zero, long n, unsigned *panel) {
  const long wide = NN - n < 64 ? NN - n : 64;
  short *to = (short *)(void *)panel;
  for (long k = 0; k < KK; k++)
    for (long l = 0; l < 64; l++) {
      const int z = zero && l < wide ? (int)zero[(n + l) * COLUMN_STEP] : 0;
      to[k * 64 + l] = (short)(l < wide ? (int)b[k * NN + n + l] - z : 0);
    }
}
static void pack_rows(const TA *a, const int *row_zero, short *restrict rows,
                      int *restrict row_sums) {
  (void)row_sums;
  for (long m = 0; m < MM; m++)
    for (long k = 0; k < KK; k++) rows[m * KK + k] = (short)((int)a[m * KK + k] - row_zero[m]);
}
static long sums_of_panel(long m, const short *rows, const int *row_zero, const int *row_sums,
                           const unsigned *panel, int *c, long step) {
  const short *right = (const short *)(const void *)panel;
  unsigned sums[64] = {0};
  (void)row_zero, (void)row_sums, (void)step;
  for (long k = 0; k < KK; k++) {
    const int v = rows[m * KK + k];
    for (long l = 0; l < 64; l++) sums[l] += (unsigned)(v * right[k * 64 + l]);
  }
  for (long l = 0; l < 64; l++) c[l] = (int)sums[l];
  return 1;
}
#endif
#define PANELS ((NN + 63) / 64 * PANEL)
#if PACKED_AHEAD
typedef const unsigned byte_panels;
static void pack_bytes(const TB *b, const TZ *zero, unsigned *panels) {
  for (long n = 0; n < NN; n += 64) pack_panel(b, zero, n, panels + n / 64 * PANEL);
}
#define PANEL_AT(n) (panels + (n) / 64 * PANEL)
#else
typedef unsigned byte_panels;
#define PANEL_AT(n) (pack_panel(b, zero, n, panels), panels)
#endif
static void byte_product(const TA *a, const TB *b, const TZ *zero, const int *row_zero,
                         byte_panels *panels, int *restrict c, short *restrict rows,
                         int *restrict row_sums) {
  (void)b, (void)zero;
  pack_rows(a, row_zero, rows, row_sums);
  for (long n = 0; n < NN; n += 64) {
    const long wide = NN - n < 64 ? NN - n : 64;
    const unsigned *panel = PANEL_AT(n);
    for (long m = 0, some; m < MM; m += some) {
      int *to = c + m * NN + n, part[6 * 64];
      if (wide == 64) {
        some = sums_of_panel(m, rows, row_zero, row_sums, panel, to, NN);
        continue;
      }
      some = sums_of_panel(m, rows, row_zero, row_sums, panel, part, 64);
      for (long r = 0; r < some; r++)
        for (long l = 0; l < wide; l++) to[r * NN + l] = part[r * 64 + l];
    }
  }
}
