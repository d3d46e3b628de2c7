/* Compares two builds of generated C functions (plain operators of a network): the usual build
 * and an independent one of the same text, on the same random operands. Each run is a process of
 * its own, so that a crash or a hang ends that run alone. Input: the table of cases (`cases.h`),
 * linked in; output: a line for each case with its number, a word and the difference.
 * `trust/mod.rs` builds and runs it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cases.h"
#include "guarded.h"
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Sets of operands: ordinary ones, ordinary ones with zeros of both signs and denormals, large and
 * tiny ones, and ones with infinities and what is no number. */
enum { SETS = 4 };

/* Operands of at most FEW elements in all are drawn ROUNDS times: rare numbers are to be among
 * them. */
enum { ROUNDS = 4, FEW = 4096 };

/* Ranges of whole numbers that are tried until the operator takes one: what its text names, any
 * small ones, those that count from both ends of the least extent, and ever fewer. */
enum { RANGES = 7 };

/* Seconds of a processor that the independent build may take, those of a region, whose loops random
 * data may never end, and seconds after which no further set is tried. */
enum { PATIENCE = 20, SHORT_PATIENCE = 2 };
static const double ENOUGH = 1.0;

/* Bytes of memory that a process with a region may have, which grows for the same reason. */
static const double MOST_MEMORY = 4e9;

/* How far a process of a run came, and what came of it. */
enum { NOTHING, TAKEN, REFUSED, DIFFERENT };
typedef struct {
  int stage; /* 0 before the independent build ends, 1 before the other ends, 2 behind both */
  int result;
  char text[256];
} report;

static report *said;
static unsigned char *blob;
/* The memory that the user allows a process. */
static rlim_t allowed;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A number from 0 up to 1. */
static double part(void) { return (double)(next() >> 11) * 0x1p-53; }

static size_t size_of(char type) {
  switch (type) {
    case 'd': case 'l': case 'L': return 8;
    case 'f': case 'i': case 'I': return 4;
    case 's': case 'S': case 'h': case 'B': return 2;
    default: return 1;
  }
}

static double hard(int set, int is_double) {
  static const double small[] = {0.0, -0.0, 1e-40, -1e-40, 1.0, -1.0, 0.5, -0.5, 2.5, -1.5};
  static const double large[] = {1e10,  -1e10, 1e30,   -1e30, 3e38,
                                 -3e38, 1e-30, -1e-30, 1e-38, 65504};
  static const double none[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, NAN};
  const double huge = is_double && next() % 4 == 0 ? 1e270 : 1.0;
  switch (set) {
    case 1: return small[next() % 10];
    case 2: return large[next() % 10] * huge;
    default: return none[next() % 6];
  }
}

static double real(int set, int is_double) {
  if (set > 0 && next() % 4 == 0) return hard(set, is_double);
  const double x = 2 * part() - 1;
  return next() % 2 ? x : 4 * x;
}

/* The number that 16 bits stand for: a half (`h`), or the front of a float (`B`). */
static double wide(uint16_t bits, char type) {
  if (type == 'B') {
    const uint32_t front = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &front, 4);
    return x;
  }
  const int e = bits >> 10 & 31, m = bits & 1023;
  const double x = e == 31 ? m ? NAN : INFINITY : ldexp(m + (e ? 1024 : 0), (e ? e : 1) - 25);
  return bits >> 15 ? -x : x;
}

/* Such a number of a set. */
static uint16_t narrow(char type, int set) {
  static const uint16_t hard_halves[] = {0, 0x8000, 0x7c00, 0xfc00, 0x7e00, 1, 0x8001, 0x7bff};
  if (type == 'h') {
    /* Those between 1/16 and 4, which are ordinary ones. */
    const unsigned sign = (unsigned)(next() % 2) << 15, e = 11 + (unsigned)(next() % 6);
    const unsigned ordinary = sign | e << 10 | (unsigned)(next() % 1024);
    return set > 0 && next() % 4 == 0 ? hard_halves[next() % 8] : (uint16_t)ordinary;
  }
  const float x = (float)real(set, 0);
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return (uint16_t)(bits >> 16);
}

/* A whole number of a range; each type has what fits it. */
static long long whole(char type, const check_operand *o, int range, long long least) {
  long long low = -100, high = 100;
  switch (range) {
    case 0: if (o->low <= o->high) low = o->low, high = o->high; break;
    case 1: break;
    case 2: low = -least, high = least - 1; break;
    case 3: low = 0, high = least - 1; break;
    case 4: low = 0, high = 1; break;
    case 5: low = high = 1; break;
    default: low = high = 0;
  }
  if (range <= 1 && type == 'b') low = -128, high = 127;
  if (range <= 1 && type == 'u') low = 0, high = 255;
  const int is_signed = type == 'b' || type == 's' || type == 'i' || type == 'l';
  if (!is_signed && low < 0) low = 0;
  if (high < low) high = low;
  return low + (long long)(next() % (uint64_t)(high - low + 1));
}

static void fill(const check_operand *o, unsigned char *m, int set, int range, long long least) {
  if (o->constant >= 0) {
    memcpy(m, blob + o->constant, (size_t)o->count * size_of(o->type));
    return;
  }
  for (long long i = 0; i < o->count; i++) {
    if (o->type == 'f') ((float *)(void *)m)[i] = (float)real(set, 0);
    else if (o->type == 'd') ((double *)(void *)m)[i] = real(set, 1);
    else if (o->type == 'h' || o->type == 'B') ((uint16_t *)(void *)m)[i] = narrow(o->type, set);
    else if (o->type == 'o') m[i] = (unsigned char)(next() % 2);
    else {
      const long long v = whole(o->type, o, range, least);
      switch (size_of(o->type)) {
        case 8: ((long long *)(void *)m)[i] = v; break;
        case 4: ((int *)(void *)m)[i] = (int)v; break;
        case 2: ((short *)(void *)m)[i] = (short)v; break;
        default: m[i] = (unsigned char)v;
      }
    }
  }
}

/* Whether two numbers are the same but for what folding of constants may round otherwise. */
static int same(double a, double b, double share) {
  if (a == b || (a != a && b != b)) return 1;
  return !isinf(a) && !isinf(b) && fabs(a - b) <= share * fabs(b);
}

static int differ(int n, const check_operand *o, const unsigned char *a, const unsigned char *b) {
  check_operand elements = *o;
  if (o->grown) {
    /* A record: where the elements lie, their bytes, the rank, the extents. */
    const long long *x = (const void *)a, *y = (const void *)b;
    if (!x[0] != !y[0] || memcmp(x + 1, y + 1, (size_t)(o->count - 1) * sizeof *x)) {
      snprintf(said->text, sizeof said->text, "the extents of result %d differ", n);
      return 1;
    }
    if (!x[0]) return 0;
    a = (const unsigned char *)(size_t)x[0], b = (const unsigned char *)(size_t)y[0];
    elements.count = x[1] / (long long)size_of(o->type);
    o = &elements;
  }
  if (!memcmp(a, b, (size_t)o->count * size_of(o->type))) return 0;
  for (long long i = 0; i < o->count; i++) {
    double x, y;
    int is_same;
    if (o->type == 'f') {
      x = ((const float *)(const void *)a)[i], y = ((const float *)(const void *)b)[i];
      is_same = same(x, y, 1e-6);
    } else if (o->type == 'd') {
      x = ((const double *)(const void *)a)[i], y = ((const double *)(const void *)b)[i];
      is_same = same(x, y, 1e-14);
    } else if (o->type == 'h' || o->type == 'B') {
      x = wide(((const uint16_t *)(const void *)a)[i], o->type);
      y = wide(((const uint16_t *)(const void *)b)[i], o->type);
      is_same = same(x, y, 0);
    } else {
      const size_t size = size_of(o->type);
      long long u = 0, v = 0;
      is_same = !memcmp(a + (size_t)i * size, b + (size_t)i * size, size);
      memcpy(&u, a + (size_t)i * size, size), memcpy(&v, b + (size_t)i * size, size);
      x = (double)u, y = (double)v;
    }
    if (is_same) continue;
    snprintf(said->text, sizeof said->text, "element %lld of result %d is %.9g and not %.9g", i, n,
             x, y);
    return 1;
  }
  return 0;
}

/* Bounds what a build may take. The usual build has the time that the independent one took many
 * times over, since the machine may be busy, and more memory, since that of the first run is still
 * held. */
static void bound(const check_case *c, int is_usual, double first_took) {
  const int patience = c->is_region ? SHORT_PATIENCE : PATIENCE;
  struct itimerval left = {{0, 0}, {is_usual ? 0 : patience, 0}};
  setitimer(ITIMER_PROF, &left, 0);
  alarm(is_usual ? PATIENCE + (unsigned)(20 * first_took) : 10u * (unsigned)patience);
  struct rlimit memory;
  const double most = MOST_MEMORY * (is_usual ? 3 : 1);
  if (!c->is_region || getrlimit(RLIMIT_AS, &memory) != 0) return;
  if (!is_usual) allowed = memory.rlim_cur;
  memory.rlim_cur = allowed == RLIM_INFINITY || (double)allowed > most ? (rlim_t)most : allowed;
  setrlimit(RLIMIT_AS, &memory);
}

/* One run of both builds, in a process that ends here. */
static void run(const check_case *c, int set, int range) {
  const void **in = malloc((size_t)(c->operands + 1) * sizeof *in), **data = in;
  const void **weights = malloc((size_t)(c->operands + 1) * sizeof *weights), **weight = weights;
  void **out[2] = {malloc((size_t)(c->results + 1) * sizeof **out),
                   malloc((size_t)(c->results + 1) * sizeof **out)};
  if (!in || !weights || !out[0] || !out[1]) _exit(3);
  long long least = c->least > 0 ? c->least : 1;
  for (int i = 0; i < c->operands; i++) {
    const check_operand *o = &c->in[i];
    unsigned char *m = guarded((size_t)o->count * size_of(o->type));
    fill(o, m, set, range, least);
    if (o->weight) *weight++ = m;
    else *data++ = m;
  }
  int gave[2];
  double took = 0;
  for (int build = 0; build < 2; build++) {
    for (int i = 0; i < c->results; i++) {
      const int grown = c->out[i].grown;
      const size_t bytes = (size_t)c->out[i].count * (grown ? 8 : size_of(c->out[i].type));
      out[build][i] = memset(guarded(bytes), grown ? 0 : 0x5a, bytes);
    }
    void *scratch = memset(guarded(c->scratch), 0xa5, c->scratch);
    void *prepared = c->prepared ? memset(guarded(c->prepared), 0xa5, c->prepared) : 0;
    check_preparation *prepare = build ? c->usual_preparation : c->independent_preparation;
    bound(c, build, took);
    const double began = now();
    gave[build] = prepare ? prepare(weights, prepared) : 0;
    if (!gave[build])
      gave[build] = (build ? c->usual : c->independent)(in, out[build], prepared, scratch);
    took = now() - began;
    said->stage++;
  }
  alarm(PATIENCE);
  if (c->is_region && gave[0] && !gave[1]) {
    /* It may have had too little memory. */
    said->result = REFUSED;
  } else if (!gave[0] != !gave[1]) {
    said->result = DIFFERENT;
    snprintf(said->text, sizeof said->text, "it %s",
             gave[1] ? "refuses its operands" : "takes what it should refuse");
  } else if (gave[0]) {
    said->result = REFUSED;
  } else {
    said->result = TAKEN;
    for (int i = 0; i < c->results && said->result == TAKEN; i++)
      if (differ(i, &c->out[i], out[1][i], out[0][i])) said->result = DIFFERENT;
  }
  _exit(0);
}

/* What came of a run; NOTHING where the independent build itself comes to no end. */
static int tried(const check_case *c, int set, int range, uint64_t seed) {
  memset(said, 0, sizeof *said);
  state = seed;
  const pid_t child = fork();
  if (child < 0) return NOTHING;
  if (child == 0) run(c, set, range);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return said->result;
  const int by = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  const int crashed =
      by == SIGSEGV || by == SIGBUS || by == SIGILL || by == SIGFPE || by == SIGABRT;
  const char *what = 0;
  if (said->stage == 1 && by == SIGALRM) what = "does not end";
  if (said->stage == 1 && crashed) what = "crashes";
  if (said->stage == 2 && crashed) what = "gives memory that cannot be read";
  /* The system may end a process as well, for memory or threads that it does not have. */
  if (!what) return NOTHING;
  snprintf(said->text, sizeof said->text, "it %s", what);
  return DIFFERENT;
}

int main(int count, char **arguments) {
  if (count < 3) return 2;
  FILE *f = fopen(arguments[1], "rb");
  const size_t bytes = strtoull(arguments[2], 0, 10);
  blob = malloc(bytes + 1);
  if (!f || !blob || fread(blob, 1, bytes, f) != bytes) return 2;
  fclose(f);
  said = mmap(0, sizeof *said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (said == MAP_FAILED) return 2;
  for (int k = 0; k < check_count; k++) {
    const check_case *c = &check_cases[k];
    const double began = now();
    int range = 0, result = NOTHING, taken = 0, refused = 0;
    long long elements = 0;
    for (int i = 0; i < c->operands; i++) elements += c->in[i].count;
    const int rounds = elements <= FEW ? ROUNDS : 1;
    for (int n = 0; n < SETS * rounds && result != DIFFERENT; n++) {
      const int set = n % SETS;
      for (;; range++) {
        result = tried(c, set, range, 77u + 1000u * (unsigned)n + (unsigned)range);
        taken += result == TAKEN, refused += result == REFUSED;
        if (result == TAKEN || result == DIFFERENT || !c->has_whole || range + 1 >= RANGES) break;
        /* What takes so long without an end has no legal operands that are found here. */
        if (now() - began > (c->is_region ? SHORT_PATIENCE : PATIENCE)) break;
      }
      if (now() - began > ENOUGH) break;
    }
    const char *word = result == DIFFERENT ? "wrong" : taken || refused ? "right" : "unknown";
    printf("%d %s %s\n", k, word, result == DIFFERENT ? said->text : "");
    fflush(stdout);
  }
  return 0;
}
