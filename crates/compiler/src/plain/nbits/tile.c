/* Products of rows with tiles of 16 columns of packed weights. The generator defines BITS, BLOCK,
   BLOCKS, BLOCK_BYTES and KP (BLOCKS * BLOCK), STEP, ZERO where all zero points are equal, else
   ZEROS, the type of the tensor of zero points; and WHOLE where activations are quantised.

   A vector has a lane for each column and `LANES` of them are one vector. In a lane lie the codes
   of 4 (8 bits) or 8 (4 bits) consecutive elements of the reduction. */
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)
#include <immintrin.h>
#define LANES 16
#define BEST 8
#elif defined(__AVX2__)
#include <immintrin.h>
#define LANES 8
#define BEST 4
#else
#define LANES 4
#define BEST 4
#endif
/* Rows whose sums are in registers, where no knob says how many. */
#ifndef MOST
#define MOST BEST
#endif
/* A knob says how many cache lines of weights are asked for ahead of their use. */
#ifdef AHEAD
#define ASK(w) __builtin_prefetch((w) + AHEAD * 64)
#else
#define ASK(w) (void)0
#endif
/* Where AMX multiplies tiles of rows, the rows of a block lie together, else the blocks of a row:
   elements from row to row and from block to block, of activations and of what each block has. */
#if defined(WHOLE) && LANES == 16 && MM >= 32 && BLOCK % 16 == 0 && BLOCK <= 256 && \
    (BLOCK <= 64 || BLOCK % 64 == 0) && defined(__AMX_TILE__) && defined(__AMX_INT8__) && \
    !defined(NO_TILES)
#define TALL 64
#define FEWEST 32
#define A_ROW BLOCK
#define A_BLOCK (BY_TILES * BLOCK)
#define S_ROW 1
#define S_BLOCK BY_TILES
#else
#define A_ROW KP
#define A_BLOCK BLOCK
#define S_ROW BLOCKS
#define S_BLOCK 1
#endif
#define PARTS (16 / LANES)
#define GROUPS (BLOCK * BITS / 32)
/* Loops over rows and parts are written out, so that what they index lies in registers. */
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define INLINE static inline __attribute__((always_inline))
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define BYTE(j) (24 - 8 * (j))
#else
#define BYTE(j) (8 * (j))
#endif
typedef int Ints __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef float Floats __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef unsigned char Bytes __attribute__((vector_size(LANES), aligned(1), may_alias));

INLINE Floats floats_of_ints(const Ints *v) { return __builtin_convertvector(*v, Floats); }

/* 4 activations in an int. */
INLINE int four(const signed char *a) {
  int v;
  memcpy(&v, a, 4);
  return v;
}

#ifdef WHOLE
typedef signed char Activation;
typedef int Sum;
/* Sums of products of a block for some rows, of which `s` has the first terms. */
#if LANES == 16 || (LANES == 8 && defined(__AVXVNNI__))
#if LANES == 16
#define DOT(s, w, a) ((Ints)_mm512_dpbusd_epi32((__m512i)(s), (__m512i)(w), _mm512_set1_epi32(a)))
#else
#define DOT(s, w, a) \
  ((Ints)_mm256_dpbusd_avx_epi32((__m256i)(s), (__m256i)(w), _mm256_set1_epi32(a)))
#endif
INLINE void block(const int rows, const unsigned char *w, const Activation *a, Ints *s) {
  for (long g = 0; g < GROUPS; g++) {
    ASK(w + g * 64);
    const Ints v = *(const Ints *)(w + g * 64);
#if BITS == 4
    const Ints low = v & 0x0f0f0f0f, high = (v >> 4) & 0x0f0f0f0f;
    UNROLL
    for (int r = 0; r < rows; r++) {
      s[r] = DOT(s[r], low, four(a + r * A_ROW + g * 8));
      s[r] = DOT(s[r], high, four(a + r * A_ROW + g * 8 + 4));
    }
#else
    UNROLL
    for (int r = 0; r < rows; r++) s[r] = DOT(s[r], v, four(a + r * A_ROW + g * 4));
#endif
  }
}
#elif LANES == 8
/* Products of pairs are summed in 16 bits: STEP elements of at most 15 * 127 fit. Codes of 8 bits
   are multiplied by halves. */
#define PAIRS(w, a) _mm256_maddubs_epi16((__m256i)(w), _mm256_set1_epi32(a))
INLINE void block(const int rows, const unsigned char *w, const Activation *a, Ints *s) {
  const __m256i one = _mm256_set1_epi16(1);
#if BITS == 8
  const __m256i sixteen = _mm256_set1_epi16(16);
#endif
  for (long k = 0; k < BLOCK; k += STEP) {
    __m256i low[MOST], high[MOST];
    UNROLL
    for (int r = 0; r < rows; r++) low[r] = high[r] = _mm256_setzero_si256();
    for (long g = 0; g < STEP * BITS / 32; g++) {
      ASK(w + (k * BITS / 32 + g) * 64);
      const Ints v = *(const Ints *)(w + (k * BITS / 32 + g) * 64);
      const Ints l = v & 0x0f0f0f0f, h = (v >> 4) & 0x0f0f0f0f;
      UNROLL
      for (int r = 0; r < rows; r++) {
        const signed char *x = a + r * A_ROW + k + g * (32 / BITS);
#if BITS == 4
        const __m256i both = _mm256_add_epi16(PAIRS(l, four(x)), PAIRS(h, four(x + 4)));
        low[r] = _mm256_add_epi16(low[r], both);
#else
        low[r] = _mm256_add_epi16(low[r], PAIRS(l, four(x)));
        high[r] = _mm256_add_epi16(high[r], PAIRS(h, four(x)));
#endif
      }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
      s[r] += (Ints)_mm256_madd_epi16(low[r], one);
#if BITS == 8
      s[r] += (Ints)_mm256_madd_epi16(high[r], sixteen);
#endif
    }
  }
}
#else
INLINE void block(const int rows, const unsigned char *w, const Activation *a, Ints *s) {
  for (long g = 0; g < GROUPS; g++) {
    ASK(w + g * 64);
    const Ints v = *(const Ints *)(w + g * 64);
    UNROLL
    for (int j = 0; j < 32 / BITS; j++) {
      const Ints c = (v >> (BITS == 4 ? BYTE(j % 4) + j / 4 * 4 : BYTE(j))) & ((1 << BITS) - 1);
      UNROLL
      for (int r = 0; r < rows; r++) s[r] += c * (int)a[r * A_ROW + g * (32 / BITS) + j];
    }
  }
}
#endif
#define IN_FLOATS(s) floats_of_ints(&(s))
typedef Ints Products;
#else
typedef float Activation;
typedef float Sum;
typedef Floats Products;
#define IN_FLOATS(s) (s)
#if LANES == 16 && BITS == 4
/* The lookup reads the lowest 4 bits of a lane. */
#define CODE(v, shift) ((Floats)_mm512_permutexvar_ps((__m512i)((v) >> (shift)), \
  _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)))
#else
INLINE Floats code_of(const Ints *v, int shift) {
  const Ints c = (*v >> shift) & ((1 << BITS) - 1);
  return __builtin_convertvector(c, Floats);
}
#define CODE(v, shift) code_of(&(v), shift)
#endif
INLINE void block(const int rows, const unsigned char *w, const Activation *a, Floats *s) {
  /* A second sum shortens the chain of additions where rows are few. */
  Floats t[MOST];
  UNROLL
  for (int r = 0; r < rows; r++) t[r] = (Floats){0};
  for (long g = 0; g < GROUPS; g++) {
    ASK(w + g * 64);
    const Ints v = *(const Ints *)(w + g * 64);
    UNROLL
    for (int j = 0; j < 32 / BITS; j += 2) {
      const int m = j + 1;
      const Floats c = CODE(v, BITS == 4 ? BYTE(j % 4) + j / 4 * 4 : BYTE(j));
      const Floats d = CODE(v, BITS == 4 ? BYTE(m % 4) + m / 4 * 4 : BYTE(m));
      UNROLL
      for (int r = 0; r < rows; r++) s[r] += c * a[r * A_ROW + g * (32 / BITS) + j];
      UNROLL
      for (int r = 0; r < rows; r++) t[r] += d * a[r * A_ROW + g * (32 / BITS) + m];
    }
  }
  UNROLL
  for (int r = 0; r < rows; r++) s[r] += t[r];
}
#endif

/* A tile's products with some rows. `steps` has the scales of quantised activations, `sums` the
   sums of each block of a row; `y` gets 16 numbers a row. */
INLINE void tile(const int rows, const unsigned char *codes, const float *scales,
                 const ZEROS *zeros, const Activation *a, const float *steps, const Sum *sums,
                 float *y) {
  Floats out[MOST][PARTS];
  UNROLL
  for (int r = 0; r < rows; r++)
    UNROLL
    for (int h = 0; h < PARTS; h++) out[r][h] = (Floats){0};
  for (long b = 0; b < BLOCKS; b++) {
    UNROLL
    for (int h = 0; h < PARTS; h++) {
      const Floats scale = *(const Floats *)(scales + b * 16 + h * LANES);
      Products s[MOST];
#if defined(ZERO) && defined(WHOLE)
      UNROLL
      for (int r = 0; r < rows; r++) s[r] = (Ints){0} - sums[r * S_ROW + b * S_BLOCK];
#else
      UNROLL
      for (int r = 0; r < rows; r++) s[r] = (Products){0};
#endif
      block(rows, codes + b * BLOCK_BYTES + h * LANES * 4, a + b * A_BLOCK, s);
#ifndef ZERO
      const Floats zero = ZERO_VECTOR(zeros + b * 16 + h * LANES);
#endif
      UNROLL
      for (int r = 0; r < rows; r++) {
        Floats v = IN_FLOATS(s[r]);
#ifndef ZERO
        v -= zero * (float)sums[r * S_ROW + b * S_BLOCK];
#elif !defined(WHOLE)
        v -= sums[r * S_ROW + b * S_BLOCK];
#endif
#ifdef WHOLE
        out[r][h] += v * (scale * steps[r * S_ROW + b * S_BLOCK]);
#else
        out[r][h] += v * scale;
#endif
      }
    }
  }
  (void)zeros, (void)steps, (void)sums;
  UNROLL
  for (int r = 0; r < rows; r++)
    UNROLL
    for (int h = 0; h < PARTS; h++) *(Floats *)(y + r * 16 + h * LANES) = out[r][h];
}

/* By AMX, where blocks fill tiles: 16 rows of activations by 16 columns are one register, and each
   block's exact sums are scaled by vectors. */
#ifdef TALL
#define DEPTH (BLOCK < 64 ? BLOCK : 64)
AMX
/* Signed activations by codes without sign. */
#define TILE_ADD(t, a) \
  TILE_LOAD(a, x + (t) * 16 * A_ROW, A_ROW); \
  __asm__ volatile("tdpbsud %%tmm6, %%tmm" #a ", %%tmm" #t ::)

/* The codes of a block, one a byte, as tiles have them. */
INLINE const unsigned char *opened(const unsigned char *w, unsigned char *open) {
#if BITS == 4
  for (long g = 0; g < GROUPS; g++) {
    ASK(w + g * 64);
    const Ints v = *(const Ints *)(w + g * 64);
    *(Ints *)(open + g * 128) = v & 0x0f0f0f0f;
    *(Ints *)(open + g * 128 + 64) = (v >> 4) & 0x0f0f0f0f;
  }
  return open;
#else
  (void)open;
  return w;
#endif
}

/* As `tile`, of 32 rows or of 64. Of three blocks at once one is opened, one multiplied and one
   scaled: what one of these stores is in the cache when the next loads it. */
INLINE void tall(const int rows, const unsigned char *codes, const float *scales,
                 const ZEROS *zeros, const Activation *a, const float *steps, const Sum *sums,
                 float *y) {
  static const struct tile_shapes shapes = {
      1, 0, {0}, {64, 64, 64, 64, DEPTH, DEPTH, 64}, {16, 16, 16, 16, 16, 16, DEPTH / 4}};
  int all[2][TALL * 16] __attribute__((aligned(64)));
  unsigned char open[2][BLOCK * 16] __attribute__((aligned(64)));
  memset(y, 0, (unsigned long)rows * 16 * sizeof *y);
  TILES_BEGIN(shapes)
  const unsigned char *next = opened(codes, open[0]);
  for (long b = 0; b <= BLOCKS; b++) {
    const unsigned char *w = next;
    if (b + 1 < BLOCKS) next = opened(codes + (b + 1) * BLOCK_BYTES, open[(b + 1) % 2]);
    if (b < BLOCKS) {
      int *c = all[b % 2];
      TILE_ZERO(0);
      TILE_ZERO(1);
      if (rows > 32) {
        TILE_ZERO(2);
        TILE_ZERO(3);
      }
      for (long k = 0; k < BLOCK; k += DEPTH) {
        const Activation *x = a + b * A_BLOCK + k;
        TILE_LOAD(6, w + k * 16, 64);
        TILE_ADD(0, 4);
        TILE_ADD(1, 5);
        if (rows > 32) {
          TILE_ADD(2, 4);
          TILE_ADD(3, 5);
        }
      }
      TILE_STORE(0, c, 64);
      TILE_STORE(1, c + 256, 64);
      if (rows > 32) {
        TILE_STORE(2, c + 512, 64);
        TILE_STORE(3, c + 768, 64);
      }
    }
    if (b == 0) continue;
    const long of = b - 1;
    const int *c = all[of % 2];
    const Floats scale = *(const Floats *)(scales + of * 16);
#ifndef ZERO
    const Floats zero = ZERO_VECTOR(zeros + of * 16);
#endif
    const Sum *sum = sums + of * S_BLOCK;
    const float *step = steps + of * S_BLOCK;
    UNROLL
    for (int r = 0; r < rows; r++) {
#ifdef ZERO
      const Ints s = *(const Ints *)(c + r * 16) - sum[r * S_ROW];
      const Floats v = IN_FLOATS(s);
#else
      const Floats v = IN_FLOATS(*(const Ints *)(c + r * 16)) - zero * (float)sum[r * S_ROW];
#endif
      *(Floats *)(y + r * 16) += v * (scale * step[r * S_ROW]);
    }
  }
  TILES_END()
  (void)zeros;
}
#endif
