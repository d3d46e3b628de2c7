/* Measures how fast this machine can go: fused multiply-adds in registers, and reading and
 * copying memory. `roof.rs` compiles it with -DVECTOR_BYTES and -DVECTOR_REGISTERS of the device
 * and runs it.
 *
 *   roof CORE[,CORE..] TEST ..      one thread a core, all at once
 *   TEST: fma:MILLISECONDS          -> GFLOP/s
 *         read:BYTES:MILLISECONDS   -> GB/s; BYTES are each thread's
 *         copy:BYTES:MILLISECONDS   -> GB/s, read and written together
 *         ghz:MILLISECONDS          -> GHz: additions that wait for each other, one a cycle
 *
 * Prints one number a line: the rate of the best window, since the machine may be shared. A
 * single thread is timed by its CPU time; several threads by the wall clock, in windows so short
 * that in some of them no core is disturbed. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef float vec __attribute__((vector_size(VECTOR_BYTES)));
enum { LANES = VECTOR_BYTES / 4, THREADS = 1024 };
static const double WINDOW = 4e-4;

/* As many independent chains as registers allow: latency x units is 8 to 16 on today's cores. */
#if VECTOR_REGISTERS >= 32
#define CHAINS(X)                                                                                  \
  X(0)                                                                                             \
  X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17)     \
      X(18) X(19) X(20) X(21) X(22) X(23)
enum { COUNT = 24 };
#else
#define CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
enum { COUNT = 12 };
#endif

static volatile float start = 1.0f;
static volatile float sink;

static void fma_loop(long rounds) {
  float s = start;
  vec m = (vec){0} + 0.999f * s, d = (vec){0} + 1e-3f * s;
#define DECLARE(i) vec x##i = (vec){0} + (s + i);
#define STEP(i) x##i = x##i * m + d;
#define TOTAL(i) sum += x##i;
  CHAINS(DECLARE)
  for (long r = 0; r < rounds; r++) {
    CHAINS(STEP)
  }
  vec sum = (vec){0};
  CHAINS(TOTAL)
  sink = sum[0];
}

enum { ADDITIONS = 64 };

static void clock_loop(long rounds) {
  unsigned long x = 1, step = 3;
  /* The compiler may not know either number, or it would add once. */
#define ADD                                                                                        \
  __asm__ volatile("" : "+r"(x), "+r"(step));                                                      \
  x += step;
#define ADD4 ADD ADD ADD ADD
#define ADD16 ADD4 ADD4 ADD4 ADD4
  for (long r = 0; r < rounds; r++) {
    ADD16 ADD16 ADD16 ADD16
  }
  sink = (float)x;
}

static void read_loop(const float *memory, size_t floats, long rounds) {
  vec s[8];
  memset(s, 0, sizeof s);
  vec s0 = s[0], s1 = s[1], s2 = s[2], s3 = s[3], s4 = s[4], s5 = s[5], s6 = s[6], s7 = s[7];
  for (long r = 0; r < rounds; r++) {
    const vec *p = (const vec *)memory, *end = (const vec *)(memory + floats);
    for (; p < end; p += 8) {
      s0 += p[0];
      s1 += p[1];
      s2 += p[2];
      s3 += p[3];
      s4 += p[4];
      s5 += p[5];
      s6 += p[6];
      s7 += p[7];
    }
    __asm__ volatile("" ::: "memory");
  }
  vec sum = s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7;
  sink = sum[0];
}

static void copy_loop(float *memory, size_t floats, long rounds) {
  for (long r = 0; r < rounds; r++) {
    memcpy(memory + floats / 2, memory, floats / 2 * sizeof(float));
    __asm__ volatile("" ::: "memory");
  }
}

static int threads;
static long core[THREADS];
static char kind;
static size_t floats;
static double duration, best[THREADS];
static pthread_barrier_t together;
static volatile int enough;

static double now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void work(float *memory, long rounds) {
  if (kind == 'f')
    fma_loop(rounds);
  else if (kind == 'g')
    clock_loop(rounds);
  else if (kind == 'r')
    read_loop(memory, floats, rounds);
  else
    copy_loop(memory, floats, rounds);
}

static void *thread(void *argument) {
  int me = (int)(size_t)argument;
#ifdef __linux__
  cpu_set_t *set = CPU_ALLOC(4096);
  size_t bytes = CPU_ALLOC_SIZE(4096);
  CPU_ZERO_S(bytes, set);
  CPU_SET_S(core[me], bytes, set);
  sched_setaffinity(0, bytes, set);
#endif
  float *memory = NULL;
  if (floats && posix_memalign((void **)&memory, 4096, floats * sizeof(float)) != 0) exit(3);
  if (floats) memset(memory, 0, floats * sizeof(float));
  clockid_t clock = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  long rounds = 1;
  double t = 0;
  for (;;) {
    t = now(clock);
    work(memory, rounds);
    t = now(clock) - t;
    if (t > WINDOW / 4) break;
    rounds *= 2;
  }
  if (t < WINDOW) rounds = (long)((double)rounds * WINDOW / t) + 1;
  double amount = kind == 'f'   ? 2.0 * LANES * COUNT
                  : kind == 'g' ? (double)ADDITIONS
                                : (double)(floats * sizeof(float));
  double begin = now(CLOCK_MONOTONIC);
  best[me] = 0;
  /* All leave the loop in the same round: the first one decides between two barriers. */
  for (int window = 0;; window++) {
    pthread_barrier_wait(&together);
    if (enough) break;
    t = now(clock);
    work(memory, rounds);
    t = now(clock) - t;
    pthread_barrier_wait(&together);
    double rate = amount * (double)rounds / t * 1e-9;
    if (rate > best[me]) best[me] = rate;
    if (me == 0 && window >= 2 && now(CLOCK_MONOTONIC) - begin > duration) enough = 1;
  }
  free(memory);
  return NULL;
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  for (char *c = strtok(argv[1], ","); c && threads < THREADS; c = strtok(NULL, ","))
    core[threads++] = atol(c);
  for (int i = 2; i < argc; i++) {
    kind = argv[i][0];
    char *first = strchr(argv[i], ':');
    if (!first || !strchr("frcg", kind)) return 2;
    floats = 0;
    if (kind == 'r' || kind == 'c') {
      size_t whole =
          16 * LANES; /* both halves of a copy, and steps of eight vectors, come out even */
      floats = strtoull(first + 1, &first, 10) / sizeof(float) / whole * whole;
      if (floats == 0 || *first != ':') return 2;
    }
    duration = atof(first + 1) * 1e-3;
    enough = 0;
    if (pthread_barrier_init(&together, NULL, (unsigned)threads) != 0) return 3;
    pthread_t handle[THREADS];
    for (int t = 0; t < threads; t++)
      if (pthread_create(&handle[t], NULL, thread, (void *)(size_t)t) != 0) return 3;
    double total = 0;
    for (int t = 0; t < threads; t++) {
      pthread_join(handle[t], NULL);
      total += best[t];
    }
    pthread_barrier_destroy(&together);
    printf("%.3f\n", total);
  }
  return 0;
}
