/* The device side of the GPU emulator: gives CUDA C++ a meaning for g++, which compiles a
 * kernel's source behind this header (driver.c is the host side). The threads of a cluster's
 * blocks are fibers that take turns where they wait for each other; clusters run one after
 * another, so that a static variable serves as a shared one where blocks are alone. Of assembly
 * it has the instructions of Squall's own kernels (compiler/src/emit/cuda_helpers.rs), written
 * here anew after the PTX manual; asynchronous copies arrive as late as they may. */
#include <stddef.h>
#include <stdint.h>

/* By hand: the headers of C++ take five times as long to read as a kernel to compile. */
#define FUNCTION(name)                                                                             \
  extern "C" double name(double) noexcept;                                                         \
  extern "C" float name##f(float) noexcept;
#define FUNCTION2(name)                                                                            \
  extern "C" double name(double, double) noexcept;                                                 \
  extern "C" float name##f(float, float) noexcept;
FUNCTION(exp)
FUNCTION(exp2) FUNCTION(log) FUNCTION(log2) FUNCTION(sqrt) FUNCTION(tanh) FUNCTION(erf)
    FUNCTION(floor) FUNCTION(ceil) FUNCTION(rint) FUNCTION(round) FUNCTION(sin) FUNCTION(cos)
        FUNCTION(acos) FUNCTION(acosh) FUNCTION(asin) FUNCTION(asinh) FUNCTION(atan)
            FUNCTION(atanh) FUNCTION(cosh) FUNCTION(expm1) FUNCTION(log1p) FUNCTION(sinh)
                FUNCTION(tan) FUNCTION2(copysign) FUNCTION(fabs) FUNCTION2(fmax) FUNCTION2(fmin)
                    FUNCTION2(pow)
            FUNCTION2(fmod) extern "C" float fmaf(float, float, float) noexcept;
extern "C" double fma(double, double, double) noexcept;
extern "C" long clock(void) noexcept;
extern "C" void *memcpy(void *, const void *, size_t) noexcept;
extern "C" void *memset(void *, int, size_t) noexcept;
template <class T> static inline T max(T a, T b) { return a < b ? b : a; }
template <class T> static inline T min(T a, T b) { return b < a ? b : a; }

struct uint3 {
  unsigned x, y, z;
};
typedef uint3 dim3;
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }

extern "C" uint3 emulated_thread, emulated_block, emulated_threads, emulated_blocks;
extern "C" char *emulated_here;
extern "C" unsigned emulated_rank;
extern "C" void emulated_barrier(void);
extern "C" void emulated_cluster_barrier(void);
extern "C" char *emulated_exchange(const void *mine, size_t n);
extern "C" void emulated_copy(void *to, const void *from, int bytes, int valid);
extern "C" void emulated_commit(void);
extern "C" void emulated_arrive(int last);
#define threadIdx emulated_thread
#define blockIdx emulated_block
#define blockDim emulated_threads
#define gridDim emulated_blocks
#define __syncthreads emulated_barrier
#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __trap __builtin_trap
template <class T> static inline T __ldg(const T *p) { return *p; }
template <class T> static inline T __ldcg(const T *p) { return *p; }
template <class T> static inline T atomicAdd(T *p, T v) {
  T old = *p;
  *p += v;
  return old;
}
template <class T> static inline T atomicMax(T *p, T v) {
  T old = *p;
  *p = old < v ? v : old;
  return old;
}
template <class T> static inline T atomicExch(T *p, T v) {
  T old = *p;
  *p = v;
  return old;
}
static inline long long clock64(void) { return 1 + (long long)clock(); }
static inline float __int_as_float(int i) {
  float x;
  memcpy(&x, &i, 4);
  return x;
}
static inline int __float_as_int(float x) {
  int i;
  memcpy(&i, &x, 4);
  return i;
}
static inline float __uint_as_float(unsigned i) {
  float x;
  memcpy(&x, &i, 4);
  return x;
}
static inline unsigned __float_as_uint(float x) {
  unsigned i;
  memcpy(&i, &x, 4);
  return i;
}
/* NaN where one of them is. */
static inline float max_nan(float a, float b) { return a > b || a != a ? a : b; }
static inline float min_nan(float a, float b) { return a < b || a != a ? a : b; }
static inline float __fdividef(float a, float b) { return a / b; }

/* A function from pointers to its arguments, and the arguments' sizes. */
template <size_t...> struct emulated_numbers {};
template <class... A, size_t... I>
static void emulated_go(void (*f)(A...), void **a, emulated_numbers<I...>) {
  f(*(A *)a[I]...);
}
template <class... A> static void emulated_run(void (*f)(A...), void **a) {
  emulated_go(f, a, emulated_numbers<__integer_pack(sizeof...(A))...>());
}
template <class... A> static int emulated_sizes(void (*)(A...), size_t *out) {
  size_t all[] = {sizeof(A)..., 0};
  memcpy(out, all, sizeof...(A) * sizeof *out);
  return (int)sizeof...(A);
}

/* ---- what Squall's kernels have as assembly ---- */

enum { EMULATED_SHARED = 99 << 10, EMULATED_SLOT = 64 };
static inline char *emulated_peer(const void *p, unsigned rank, size_t bytes) {
  size_t at = (size_t)((const char *)p - emulated_here);
  if (at + bytes > EMULATED_SHARED || at % bytes) __builtin_trap();
  return (char *)emulated_here + ((ptrdiff_t)rank - (ptrdiff_t)emulated_rank) * EMULATED_SHARED +
         (ptrdiff_t)at;
}
static inline float peer(const float *p, unsigned rank) {
  return *(const float *)emulated_peer(p, rank, 4);
}
template <class T> static inline void bring(float *p, unsigned rank, T x) {
  memcpy(emulated_peer(p, rank, sizeof x), &x, sizeof x);
}
static inline void cluster_begin(void) {}
static inline void cluster_begun(void) { emulated_cluster_barrier(); }
static inline void cluster_barrier(void) { emulated_cluster_barrier(); }
static inline void cluster_leave(void) { emulated_cluster_barrier(); }
static inline void copy4(void *to, const void *from, bool valid) {
  emulated_copy(to, from, 4, valid);
}
static inline void copy8(void *to, const void *from, bool valid) {
  emulated_copy(to, from, 8, valid);
}
static inline void copy16(void *to, const void *from, bool valid) {
  emulated_copy(to, from, 16, valid);
}
static inline void copies_arrive(void) { emulated_arrive(-1); }
static inline void copies_commit(void) { emulated_commit(); }
template <int LAST> static inline void copies_await(void) { emulated_arrive(LAST); }

/* To the nearest, ties to even: 10 bits of the fraction stay. */
static inline unsigned tf32_bits(float x) {
  unsigned bits = __float_as_uint(x);
  return (bits >> 23 & 255) == 255 ? bits : (bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFFu;
}
/* To the nearest, ties to even. */
static inline unsigned short emulated_bf16(float x) {
  unsigned bits = __float_as_uint(x);
  if ((bits >> 23 & 255) == 255) return (unsigned short)(bits >> 16 | ((bits & 0x7FFFFF) != 0));
  return (unsigned short)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
static inline unsigned short emulated_f16(float x) {
  unsigned sign = __float_as_uint(x) >> 16 & 0x8000;
  double a = __builtin_fabs((double)x);
  if (x != x) return 0x7FFF;
  if (a >= 65520) return (unsigned short)(sign | 0x7C00);
  if (a < 6.103515625e-5) return (unsigned short)(sign | (unsigned)rint(a * 16777216));
  int e;
  double fraction = __builtin_frexp(a, &e);
  return (unsigned short)(sign |
                          (((unsigned)(e + 14) << 10) + (unsigned)rint(fraction * 2048) - 1024));
}
static inline float emulated_of_f16(unsigned short h) {
  int e = h >> 10 & 31, m = h & 1023;
  double a = e == 31 ? (m ? __builtin_nan("") : __builtin_inf())
             : e     ? __builtin_ldexp(1024 + m, e - 25)
                     : __builtin_ldexp(m, -24);
  return (float)(h & 0x8000 ? -a : a);
}
static inline float emulated_of_bf16(unsigned short h) {
  return __uint_as_float((unsigned)h << 16);
}
/* Launches follow one another in full. */
static inline void await_launches() {}
struct bfloat_t {
  unsigned short bits;
  operator float() const { return emulated_of_bf16(bits); }
  bfloat_t &operator=(float x) {
    bits = emulated_bf16(x);
    return *this;
  }
};
struct half_t {
  unsigned short bits;
  operator float() const { return emulated_of_f16(bits); }
  half_t &operator=(float x) {
    bits = emulated_f16(x);
    return *this;
  }
};
static inline unsigned pair_bfloat_t(float low, float high) {
  return emulated_bf16(low) | (unsigned)emulated_bf16(high) << 16;
}
static inline unsigned pair_half_t(float low, float high) {
  return emulated_f16(low) | (unsigned)emulated_f16(high) << 16;
}

/* Lane l names row l % 8 of matrix l / 8, and gets 4 bytes of row l / 4 of each. */
static inline const char *emulated_row(const char *slots, int lane) {
  const char *p;
  memcpy(&p, slots + lane * EMULATED_SLOT, sizeof p);
  if ((size_t)p % 16 || (size_t)(p - emulated_here) > EMULATED_SHARED - 16) __builtin_trap();
  return p;
}
static inline void matrix(unsigned *r, unsigned address) {
  const void *row = emulated_here + (address & 0xFFFFFF);
  int l = (int)(emulated_thread.x & 31);
  const char *slots = emulated_exchange(&row, sizeof row);
  for (int m = 0; m < 4; m++) memcpy(&r[m], emulated_row(slots, 8 * m + l / 4) + l % 4 * 4, 4);
}
static inline void matrix_transposed(unsigned *r, unsigned address) {
  const void *row = emulated_here + (address & 0xFFFFFF);
  int l = (int)(emulated_thread.x & 31);
  const char *slots = emulated_exchange(&row, sizeof row);
  for (int m = 0; m < 4; m++) {
    unsigned short pair[2];
    for (int i = 0; i < 2; i++)
      memcpy(&pair[i], emulated_row(slots, 8 * m + l % 4 * 2 + i) + l / 4 * 2, 2);
    r[m] = pair[0] | (unsigned)pair[1] << 16;
  }
}
static inline unsigned __shfl_sync(unsigned, unsigned mine, int lane) {
  const char *slots = emulated_exchange(&mine, sizeof mine);
  unsigned other;
  memcpy(&other, slots + lane * EMULATED_SLOT, sizeof other);
  return other;
}
static inline void __syncwarp(void) {
  char none = 0;
  emulated_exchange(&none, sizeof none);
}
static inline unsigned __shfl_xor_sync(unsigned all, unsigned mine, int mask) {
  return __shfl_sync(all, mine, (int)(emulated_thread.x & 31) ^ mask);
}
/* Denormal results are 0. */
static inline float power_of_two(float x) { return x < -126 ? 0 : exp2f(x); }
/* Which format an instruction's name says. */
enum { F16, BF16, TF32 };
static constexpr int emulated_format(const char *what) {
  for (; *what; what++)
    if (what[1] == 'f' && (*what == 't' || *what == 'b')) return *what == 't' ? TF32 : BF16;
  return F16;
}
/* Elements of a register: two of 16 bits, or one whose last bits do not count. */
template <int FORMAT> static inline float emulated_element(unsigned r, int i) {
  if (FORMAT == TF32) return __uint_as_float(r & ~0x1FFFu);
  unsigned short h = (unsigned short)(r >> 16 * i);
  return FORMAT == BF16 ? emulated_of_bf16(h) : emulated_of_f16(h);
}
/* Rows l / 4 and 8 further, columns 2 * (l % 4) and the next, of 16 x 8 sums. */
template <int FORMAT>
static void emulated_multiply(float *c, const unsigned *a, unsigned b0, unsigned b1) {
  unsigned mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
  int l = (int)(emulated_thread.x & 31), per = FORMAT == TF32 ? 1 : 2;
  const char *slots = emulated_exchange(mine, sizeof mine);
  auto element = [&](int lane, int which, int i) {
    unsigned r;
    memcpy(&r, slots + lane * EMULATED_SLOT + 4 * which, 4);
    return (double)emulated_element<FORMAT>(r, i);
  };
  for (int s = 0; s < 4; s++) {
    int row = l / 4 + s / 2 * 8, column = l % 4 * 2 + s % 2;
    double sum = c[s];
    for (int k = 0; k < 8 * per; k++) {
      int lane = k / per % 4, far = k / per / 4, i = k % per;
      sum += element(row % 8 * 4 + lane, row / 8 + 2 * far, i) *
             element(column * 4 + lane, 4 + far, i);
    }
    c[s] = (float)sum;
  }
}
#define MULTIPLY(name, what, b0, b1)                                                               \
  static inline void name(float *c, const unsigned *a, const unsigned *b) {                        \
    emulated_multiply<emulated_format(what)>(c, a, b[b0], b[b1]);                                  \
  }

/* The block's number in its cluster stands above its own addresses. */
static inline size_t __cvta_generic_to_shared(const void *p) {
  return (size_t)((const char *)p - emulated_here) | (size_t)emulated_rank << 24;
}

/* ---- copies of boxes ---- */

extern "C" void emulated_turn(void);
static inline void lines_at(unsigned *lines, const void *place) {
  for (unsigned i = 0; i < 4; i++) lines[i] = (unsigned)__cvta_generic_to_shared(place) ^ 32 * i;
}
/* As cuTensorMapEncodeTiled of driver.c writes it. */
struct emulated_map {
  const char *at;
  unsigned rank, extents[5], strides[5], steps[5];
  unsigned short spanned[5];
};
/* What was asked for by a block and not awaited by any of its threads: it is copied when it is, and
 * no sooner. */
struct emulated_box {
  emulated_map map;
  char *to;
  int first[5], batch;
};
enum { EMULATED_BOXES = 256 };
static emulated_box emulated_asked[16][EMULATED_BOXES];
static int emulated_boxes[16], emulated_batches[16], emulated_seen[16 * 1024];
#define TMA_COPY(...)
static inline bool elected(void) { return (emulated_thread.x & 31) == 0; }
static inline void tma_begin(unsigned long long *) {
  emulated_seen[emulated_rank * 1024 + emulated_thread.x] = 0;
  if (emulated_thread.x == 0) emulated_boxes[emulated_rank] = emulated_batches[emulated_rank] = 0;
  emulated_barrier();
}
template <class M, class... C>
static inline void tma_copy(void *to, const M &map, unsigned long long *, unsigned bytes,
                            C... first) {
  int &n = emulated_boxes[emulated_rank];
  emulated_box b = {{}, (char *)to, {first...}, emulated_batches[emulated_rank]};
  memcpy(&b.map, &map, sizeof b.map);
  unsigned all = 2;
  for (unsigned d = 0; d < b.map.rank; d++) all *= (b.map.spanned[d] - 1) / b.map.steps[d] + 1;
  if (sizeof...(C) != b.map.rank || n == EMULATED_BOXES || all != bytes ||
      (size_t)(b.to - emulated_here) % 128)
    __builtin_trap();
  emulated_asked[emulated_rank][n++] = b;
}
/* Rows of 128 bytes; bits 4 to 6 of an address are those exclusive-or bits 7 to 9. */
static void emulated_bring(const emulated_box &b) {
  const emulated_map &m = b.map;
  unsigned taken[5], total = 1;
  for (unsigned d = 0; d < m.rank; d++) total *= taken[d] = (m.spanned[d] - 1) / m.steps[d] + 1;
  for (unsigned i = 0; i < total; i++) {
    unsigned rest = i;
    const char *from = m.at;
    bool inside = true;
    for (unsigned d = 0; d < m.rank; d++) {
      long at = (long)b.first[d] + (long)(rest % taken[d] * m.steps[d]);
      inside &= at >= 0 && at < (long)m.extents[d];
      from += at * (long)m.strides[d];
      rest /= taken[d];
    }
    size_t to = (size_t)(b.to - emulated_here) + 2 * (size_t)i;
    to ^= (to >> 7 & 7) << 4;
    if (to > EMULATED_SHARED - 2) __builtin_trap();
    unsigned short zero = 0;
    memcpy(emulated_here + to, inside ? (const void *)from : &zero, 2);
  }
}
static inline void tma_commit(unsigned long long *) { emulated_batches[emulated_rank]++; }
static void tma_await(unsigned long long *, unsigned phase) {
  int &seen = emulated_seen[emulated_rank * 1024 + emulated_thread.x],
      &n = emulated_boxes[emulated_rank], kept = 0;
  if (phase != (unsigned)(seen >> 3 & 1)) __builtin_trap();
  while (emulated_batches[emulated_rank] <= seen) emulated_turn();
  for (int i = 0; i < n; i++) {
    emulated_box &b = emulated_asked[emulated_rank][i];
    if (b.batch <= seen)
      emulated_bring(b);
    else
      emulated_asked[emulated_rank][kept++] = b;
  }
  n = kept;
  seen++;
}

/* ---- products of groups of four warps ---- */
/* What was begun and not awaited, by thread; its sums are added up when it is awaited, and no
 * sooner, of what then lies in shared memory. */
struct emulated_product {
  float *c;
  unsigned long long a, b;
  int columns, bf16, across_a, across_b, batch, held;
  /* Of a first factor in registers, the thread's two rows. */
  float rows[2][16];
};
enum { EMULATED_THREADS = 16 * 1024, EMULATED_BEGUN = 64 };
static emulated_product emulated_begun[EMULATED_THREADS][EMULATED_BEGUN];
static int emulated_count[EMULATED_THREADS], emulated_batch[EMULATED_THREADS];
static inline int emulated_me(void) { return (int)(emulated_rank * 1024 + emulated_thread.x); }

static inline void products_see(void) {}
static inline void products_begin(void) {}
static inline void products_commit(void) { emulated_batch[emulated_me()]++; }
static inline void product_done(float &) {}
static inline void factor_made(unsigned &) {}
static inline void emulated_begin(float *c, unsigned long long a, unsigned long long b, int columns,
                                  int bf16, int across_a, int across_b) {
  int me = emulated_me();
  if (emulated_count[me] == EMULATED_BEGUN) __builtin_trap();
  emulated_begun[me][emulated_count[me]++] = {
      c, a, b, columns, bf16, across_a, across_b, emulated_batch[me], 0, {}};
}
static inline void emulated_begin_held(float *c, const unsigned *a, unsigned long long b,
                                       int columns, int bf16, int across_b) {
  int me = emulated_me(), l = (int)(emulated_thread.x & 31);
  emulated_begin(c, 0, b, columns, bf16, 0, across_b);
  emulated_product &p = emulated_begun[me][emulated_count[me] - 1];
  p.held = 1;
  const char *slots = emulated_exchange(a, 4 * sizeof *a);
  for (int r = 0; r < 2; r++)
    for (int k = 0; k < 16; k++) {
      unsigned pair;
      memcpy(&pair, slots + (l / 4 * 4 + k % 8 / 2) * EMULATED_SLOT + 4 * (r + 2 * (k / 8)), 4);
      p.rows[r][k] =
          bf16 ? emulated_element<BF16>(pair, k % 2) : emulated_element<F16>(pair, k % 2);
    }
}
static inline void emulated_empty(float *c, int columns) {
  for (int i = 0; i < columns / 2; i++) c[i] = 0;
}
template <int N, int A, int B>
static inline void group_bf16(float *c, unsigned long long a, unsigned long long b) {
  emulated_begin(c, a, b, N, 1, A, B);
}
template <int N, int A, int B>
static inline void group_f16(float *c, unsigned long long a, unsigned long long b) {
  emulated_begin(c, a, b, N, 0, A, B);
}
template <int N, int A, int B>
static inline void group_first_bf16(float *c, unsigned long long a, unsigned long long b) {
  emulated_empty(c, N);
  emulated_begin(c, a, b, N, 1, A, B);
}
template <int N, int A, int B>
static inline void group_first_f16(float *c, unsigned long long a, unsigned long long b) {
  emulated_empty(c, N);
  emulated_begin(c, a, b, N, 0, A, B);
}
template <int N, int A, int B>
static inline void group_held_bf16(float *c, const unsigned *a, unsigned long long b) {
  emulated_begin_held(c, a, b, N, 1, B);
}
template <int N, int A, int B>
static inline void group_held_f16(float *c, const unsigned *a, unsigned long long b) {
  emulated_begin_held(c, a, b, N, 0, B);
}

/* An element of a factor that a descriptor tells of: eight rows of 128 bytes side by side, the next
 * eight a stride further; across, eight columns of 64 rows, the next eight a stride and the next
 * rows a leading stride further. Bits 4 to 6 of the address that this gives are those exclusive-or
 * bits 7 to 9. */
static inline float emulated_factor(unsigned long long d, int row, int k, int across, int bf16) {
  size_t at = (size_t)(d & 0x3FFF) << 4, leading = (size_t)(d >> 16 & 0x3FFF) << 4,
         stride = (size_t)(d >> 32 & 0x3FFF) << 4;
  at += across ? (size_t)(row / 64) * leading + (size_t)(k / 8) * stride + (size_t)(k % 8) * 128 +
                     (size_t)(row % 64) * 2
               : (size_t)(row / 8) * stride + (size_t)(row % 8) * 128 + 2 * (size_t)k;
  if (d >> 62 != 1) __builtin_trap();
  at ^= (at >> 7 & 7) << 4;
  if (at > EMULATED_SHARED - 2) __builtin_trap();
  unsigned short h;
  memcpy(&h, emulated_here + at, 2);
  return bf16 ? emulated_of_bf16(h) : emulated_of_f16(h);
}
/* The q-th warp has rows 16 q to 16 q + 15, its threads what they have of any matrix of sums. */
template <int LAST> static void products_await(void) {
  int me = emulated_me(), l = (int)(emulated_thread.x & 31), q = (int)(emulated_thread.x >> 5 & 3),
      done = 0;
  for (; done < emulated_count[me]; done++) {
    emulated_product p = emulated_begun[me][done];
    if (p.batch >= emulated_batch[me] - LAST) break;
    for (int s = 0; s < p.columns / 2; s++) {
      int row = 16 * q + l / 4 + s / 2 % 2 * 8, column = s / 4 * 8 + l % 4 * 2 + s % 2;
      double sum = p.c[s];
      for (int k = 0; k < 16; k++)
        sum += (double)(p.held ? p.rows[s / 2 % 2][k]
                               : emulated_factor(p.a, row, k, p.across_a, p.bf16)) *
               (double)emulated_factor(p.b, column, k, p.across_b, p.bf16);
      p.c[s] = (float)sum;
    }
  }
  for (int i = done; i < emulated_count[me]; i++)
    emulated_begun[me][i - done] = emulated_begun[me][i];
  emulated_count[me] -= done;
}
