/* Vectors of 32-bit floats that are as wide as the machine's, for kernels that write their vectors
   out. `mad_lanes` adds a product, rounded once where the machine has the instruction. */
#ifndef __CUDACC__
#if defined __AVX512F__
#define LANE_COUNT 16
#elif defined __AVX__
#define LANE_COUNT 8
#else
#define LANE_COUNT 4
#endif
#ifdef __clang__
#define WRITTEN_OUT _Pragma("unroll")
#define SHUFFLED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define WRITTEN_OUT _Pragma("GCC unroll 16")
#define SHUFFLED(a, b, ...) __builtin_shuffle(a, b, (lane_numbers){__VA_ARGS__})
#endif
/* Keeps a vector in a register, where a compiler would load it anew at each use. */
#if defined __AVX512F__ && !defined __clang__
#define KEPT(x) __asm__("" : "+v"(x))
#else
#define KEPT(x) (void)0
#endif
typedef float lanes __attribute__((vector_size(LANE_COUNT * 4), aligned(4), may_alias));
typedef int lane_numbers __attribute__((vector_size(LANE_COUNT * 4)));
static inline lanes load_lanes(const float *from) { return *(const lanes *)(const void *)from; }
static inline void store_lanes(float *to, lanes x) { *(lanes *)(void *)to = x; }
static inline lanes mad_lanes(lanes a, lanes b, lanes c) {
#if defined __clang__ && (defined __FMA__ || defined __ARM_FEATURE_FMA)
  return __builtin_elementwise_fma(a, b, c);
#elif defined __AVX512F__
  return (lanes)__builtin_ia32_vfmaddps512_mask(a, b, c, (short)-1, 4);
#elif defined __FMA__ && LANE_COUNT == 8
  return (lanes)__builtin_ia32_vfmaddps256(a, b, c);
#elif defined __aarch64__
  return (lanes)__builtin_aarch64_fmav4sf(a, b, c);
#else
  return c + a * b;
#endif
}
#if LANE_COUNT == 16
#define EVEN_LANES 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define ODD_LANES 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31
#define FIRST_LANES 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define SECOND_LANES 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define LOW_LANES 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_LANES 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif LANE_COUNT == 8
#define EVEN_LANES 0, 8, 2, 10, 4, 12, 6, 14
#define ODD_LANES 1, 9, 3, 11, 5, 13, 7, 15
#define FIRST_LANES 0, 1, 8, 9, 4, 5, 12, 13
#define SECOND_LANES 2, 3, 10, 11, 6, 7, 14, 15
#define LOW_LANES 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_LANES 4, 12, 5, 13, 6, 14, 7, 15
#else
#define EVEN_LANES 0, 4, 2, 6
#define ODD_LANES 1, 5, 3, 7
#define FIRST_LANES 0, 1, 4, 5
#define SECOND_LANES 2, 3, 6, 7
#define LOW_LANES 0, 4, 1, 5
#define HIGH_LANES 2, 6, 3, 7
#endif
/* The sums of four vectors. */
static inline void sum_four(const lanes *x, float *to) {
  const lanes a = SHUFFLED(x[0], x[1], EVEN_LANES) + SHUFFLED(x[0], x[1], ODD_LANES);
  const lanes b = SHUFFLED(x[2], x[3], EVEN_LANES) + SHUFFLED(x[2], x[3], ODD_LANES);
  const lanes c = SHUFFLED(a, b, FIRST_LANES) + SHUFFLED(a, b, SECOND_LANES);
  typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
  float part[LANE_COUNT];
  store_lanes(part, c);
  four s = *(const four *)(const void *)part;
  WRITTEN_OUT for (int l = 4; l < LANE_COUNT; l += 4) s += *(const four *)(const void *)(part + l);
  *(four *)(void *)to = s;
}
#endif
