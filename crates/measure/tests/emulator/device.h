/* What CUDA C++ means where driver.c stands for the GPU: put in front of a kernel's source, which
 * g++ then compiles. The threads of a block are fibers that take turns at barriers; blocks run one
 * after another, so that a static variable is a shared one. No warps, no clusters, no assembly. */
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <utility>

struct uint3 { unsigned x, y, z; };
typedef uint3 dim3;
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) int4 { int x, y, z, w; };
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }

extern "C" uint3 emulated_thread, emulated_block, emulated_threads, emulated_blocks;
extern "C" char emulated_shared[];
extern "C" void emulated_barrier(void);
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
#define __trap __builtin_trap
using std::max;
using std::min;
template <class T> static inline T __ldg(const T *p) { return *p; }
template <class T> static inline T __ldcg(const T *p) { return *p; }
template <class T> static inline T atomicAdd(T *p, T v) { T old = *p; *p += v; return old; }
static inline long long clock64(void) { return 1 + (long long)clock(); }
static inline float __int_as_float(int i) { float x; memcpy(&x, &i, 4); return x; }
static inline int __float_as_int(float x) { int i; memcpy(&i, &x, 4); return i; }
static inline float __fdividef(float a, float b) { return a / b; }

/* A function from pointers to its arguments, and the arguments' sizes. */
template <class... A> struct emulated_call {
  template <size_t... I> static void go(void (*f)(A...), void **a, std::index_sequence<I...>) { f(*(std::remove_reference_t<A> *)a[I]...); }
};
template <class... A> static void emulated_run(void (*f)(A...), void **a) { emulated_call<A...>::go(f, a, std::index_sequence_for<A...>()); }
template <class... A> static int emulated_sizes(void (*)(A...), size_t *out) {
  size_t all[] = {sizeof(A)..., 0};
  memcpy(out, all, sizeof...(A) * sizeof *out);
  return (int)sizeof...(A);
}
