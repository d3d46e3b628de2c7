/* The process that runs kernels. It belongs to squall-measure, is compiled by the user's own C
 * compiler when a laboratory opens, and is spoken to in lines over its standard input and output:
 *
 *   task SEED REFERENCE_FILE LIB SYMBOL PREPARED WORKSPACE OUTPUTS N {d|w}INPUT ..
 *       -> CPU task SECONDS NONFINITE      inputs are made, or read where INPUT ends in ,@FILE; the
 *                                          reference outputs are computed by LIB (SECONDS a call) or,
 *                                          where LIB is `-`, read from the file; INPUT is TYPE,COUNT
 *                                          or TYPE,COUNT,LOW,HIGH, OUTPUTS are TYPE,COUNT;TYPE,COUNT..
 *                                          with the types of elements.h
 *   pace LIB SYMBOL PREPARED WORKSPACE TOLERANCE FLUSH_BYTES
 *       -> CPU paced NS                    until the next task or duel, runs tell how long this kernel took
 *   run LIB SYMBOL PREPARED WORKSPACE TOLERANCE LIMIT_NS FLUSH_BYTES
 *       -> CPU measured ERROR CALLS COUNT NS .. [PACE_NS] [GPU SM_MHZ MEMORY_MHZ THROTTLED_BY]
 *   duel TOLERANCE FLUSH_BYTES LIB SYMBOL PREPARED WORKSPACE  LIB SYMBOL PREPARED WORKSPACE
 *       -> CPU duel ERROR_A ERROR_B CALLS_A CALLS_B NS_A NS_B
 *   pairs COUNT
 *       -> CPU pairs NS_A NS_B NS_A NS_B ..
 *   any of them
 *       -> CPU failed WHERE MESSAGE        WHERE: launch wrong damage memory file
 *   when it dies by a signal
 *       -> 0 crash MESSAGE
 *
 * With SQUALL_CUDA, gpu.h lets LIB be a cubin too, and tells of further commands.
 * CPU is the CPU time in seconds that the command took. Every buffer that a kernel sees lies between
 * pages that cannot be touched, its end as close to the upper one as 64-byte alignment allows. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum { TENSORS = 512, WINDOWS = 7, NOTHING_WRITTEN = 0xFF };

static int out_fd;
static clockid_t clock_kind;
static const char *phase = "the runner itself"; /* whose code runs now, for the message of a crash */

/* ---- replies ---- */

static const char *fail_where;
static char fail_text[700];

static int fail(const char *where, const char *format, ...) {
  va_list a;
  va_start(a, format);
  vsnprintf(fail_text, sizeof fail_text, format, a);
  va_end(a);
  for (char *c = fail_text; *c; c++)
    if ((unsigned char)*c < ' ') *c = ' ';
  fail_where = where;
  return 0;
}

static double cpu_seconds(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return u.ru_utime.tv_sec + u.ru_stime.tv_sec + 1e-6 * (u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static char reply[16384];
static size_t reply_length;

static void say(const char *format, ...) {
  va_list a;
  va_start(a, format);
  int n = vsnprintf(reply + reply_length, sizeof reply - reply_length, format, a);
  va_end(a);
  if (n > 0) reply_length += (size_t)n;
  if (reply_length >= sizeof reply) reply_length = sizeof reply - 1;
}

static void send_all(const char *text, size_t length) {
  while (length > 0) {
    ssize_t n = write(out_fd, text, length);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(1);
    text += n;
    length -= (size_t)n;
  }
}

#include "guard.h"

static buffer data[2][TENSORS], weights[TENSORS], prepared[2], workspace[2];

/* ---- crashes ---- */

static void crashed(int number, siginfo_t *info, void *context) {
  (void)context;
  char text[400], where[200] = "";
  const char *name = number == SIGSEGV ? "SIGSEGV" : number == SIGBUS ? "SIGBUS" : number == SIGILL ? "SIGILL" : number == SIGFPE ? "SIGFPE" : "SIGABRT";
  unsigned char *at = info->si_addr;
  if (number == SIGSEGV || number == SIGBUS) {
    snprintf(where, sizeof where, ", at an address outside its buffers");
    for (int i = 0; i < known_count; i++) {
      buffer *b = known[i];
      if (!b->base || at < b->base || at >= b->base + b->inside + 2 * page) continue;
      char label[80];
      if (b->number < 0) snprintf(label, sizeof label, "%s", b->name);
      else snprintf(label, sizeof label, "%s %d", b->name, b->number);
      if (at < b->at) snprintf(where, sizeof where, ", %zu bytes in front of %s", (size_t)(b->at - at), label);
      else if (at >= b->at + b->size) snprintf(where, sizeof where, ", %zu bytes behind the end of %s (%zu bytes)", (size_t)(at - b->at - b->size), label, b->size);
      else snprintf(where, sizeof where, ", writing to %s, which is read-only (byte %zu)", label, (size_t)(at - b->at));
    }
  }
  int n = snprintf(text, sizeof text, "0 crash killed by signal %d (%s) in %s%s\n", number, name, phase, where);
  send_all(text, n < (int)sizeof text ? (size_t)n : sizeof text - 1);
  signal(number, SIG_DFL);
  raise(number);
}

/* A runner without its parent would run a hanging kernel for ever. */
static pid_t parent;

static void tick(int number) {
  (void)number;
  if (getppid() != parent) _exit(1);
}

static uint64_t random_bits(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

#include "elements.h"

/* ---- kernels ---- */

typedef int kernel_function(const void *const *, void *const *, const void *, void *);
typedef int prepare_function(const void *const *, void *);
typedef size_t size_function(void);

typedef struct {
  void *library;
  kernel_function *call;
  long calls;   /* in a window */
  double time;  /* of one call, estimated, in ns */
  double error; /* largest seen */
  int gpu;      /* whether it is a cubin */
} kernel;

static kernel kernels[2];
static const void *data_pointers[2][TENSORS], *weight_pointers[TENSORS];
static void *output_pointers[TENSORS];
static int data_count, weight_count, task_ready, duel_ready, pace_ready;
static int poison = NOTHING_WRITTEN;

static int process_mode; /* see main */
#ifdef SQUALL_CUDA
static int gpu_fetch(int which);
#include "outputs.h"
#include "gpu.h"
#else
#define gpu_unload(which) (void)0
#define gpu_fetch(which) 1
#define gpu_poison(which, byte) 1
#define gpu_flush_caches(bytes) 1
#define gpu_task() 1
#define compile(from, to, with) 0
#define say_gpu() (void)0
#include "outputs.h"
#endif

static double now(void) {
  struct timespec t;
  clock_gettime(clock_kind, &t);
  return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static void unload(int which) {
  phase = "its unloading";
  if (kernels[which].library) dlclose(kernels[which].library);
  if (kernels[which].gpu) gpu_unload(which);
  phase = "the runner itself";
  memset(&kernels[which], 0, sizeof kernels[which]);
}

static int agrees(void *library, const char *symbol, const char *suffix, size_t announced) {
  char name[600];
  snprintf(name, sizeof name, "%s_%s", symbol, suffix);
  size_function *f = (size_function *)(uintptr_t)dlsym(library, name);
  if (!f) return 1;
  phase = name;
  size_t said = f();
  phase = "the runner itself";
  return said == announced ? 1 : fail("launch", "%s() says %zu, %zu was announced", name, said, announced);
}

static int load(int which, const char *path, const char *symbol, size_t prepared_bytes, size_t workspace_bytes) {
  kernel *k = &kernels[which];
  buffer *p = &prepared[which];
  char name[600];
  unload(which);
#ifdef SQUALL_CUDA
  if (is_cubin(path)) {
    k->gpu = 1;
    return gpu_load(which, path, prepared_bytes, workspace_bytes);
  }
#endif
  fesetenv(FE_DFL_ENV);
  phase = "its loading";
  k->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  phase = "the runner itself";
  if (!k->library) return fail("launch", "cannot be loaded: %s", dlerror());
  k->call = (kernel_function *)(uintptr_t)dlsym(k->library, symbol);
  if (!k->call) return fail("launch", "has no symbol `%s`", symbol);
  if (!agrees(k->library, symbol, "prepared_bytes", prepared_bytes) || !agrees(k->library, symbol, "workspace_bytes", workspace_bytes)) return 0;
  if (!place(p, "the prepared weights", -1, prepared_bytes) || !place(&workspace[which], "the workspace", -1, workspace_bytes)) return 0;
  fill_slack(p, CANARY);
  fill_slack(&workspace[which], CANARY);
  if (prepared_bytes > 0) {
    snprintf(name, sizeof name, "%s_prepare", symbol);
    prepare_function *prepare = (prepare_function *)(uintptr_t)dlsym(k->library, name);
    if (!prepare) return fail("launch", "has no symbol `%s`", name);
    memset(p->at, NOTHING_WRITTEN, p->size);
    phase = "its preparation of weights";
    int code = prepare(weight_pointers, p->at);
    phase = "the runner itself";
    if (code != 0) return fail("launch", "%s returned %d", name, code);
    if (!untouched(p)) return 0;
  }
  access_to(p, PROT_READ);
  return 1;
}

/* `calls` calls on an input set; the time of one in ns, or a negative number after an error. */
static double window(int which, int set, long calls) {
  kernel *k = &kernels[which];
#ifdef SQUALL_CUDA
  if (k->gpu) return gpu_window(which, set, calls);
#endif
  const void *p = prepared[which].at;
  void *w = workspace[which].at;
  int code = 0;
  phase = "the kernel";
  double t = now();
  for (long i = 0; i < calls; i++) code |= k->call(data_pointers[set], output_pointers, p, w);
  t = now() - t;
  phase = "the runner itself";
  if (code != 0) {
    fail("launch", "returned %d", code);
    return -1;
  }
  return t / (double)calls;
}


/* A window of kernels that take `t` ns lasts a millisecond, or one call. */
static long calls_of_a_window(double t) {
  long calls = t >= 1e6 ? 1 : t > 0.05 ? (long)(1e6 / t) + 1 : 20000000;
  /* Each call is a node of a graph that has to be made. */
  return kernels[0].gpu && calls > 100 ? 100 : calls;
}

/* Checked on the first input set; then the time of a warm call on the second. Calls of 0.1 s and
 * more are not repeated for an estimate. */
static int examine(int which, double tolerance) {
  kernel *k = &kernels[which];
  clear_outputs(poison);
  if (!k->gpu) memset(workspace[which].at, NOTHING_WRITTEN, workspace[which].size);
  if (k->gpu && !gpu_poison(which, poison)) return 0;
  double t = window(which, 0, 1);
  if (t < 0 || !right(which, 0, tolerance)) return 0;
  if (k->gpu) {
    t = window(which, 1, t < 1e6 ? 10 : 1);
    if (t < 0) return 0;
  } else if (t < 1e8) {
    long n = 1;
    for (;;) {
      t = window(which, 1, n);
      if (t < 0) return 0;
      if (t * (double)n > 5e4 || n > 1L << 24) break;
      n *= t * (double)n < 5e3 ? 8 : 2;
    }
  }
  k->time = t;
  k->calls = calls_of_a_window(t);
  return 1;
}

#include "timing.h"

/* ---- tasks ---- */

/* Uniform, or read from a file; what lies beside it is NaN, so that reading it shows. Then read-only. */
static int make_input(buffer *b, const char *name, int number, const tensor *t, uint64_t seed) {
  if (t->count > SIZE_MAX / 64) return fail("memory", "%s is too large", name);
  if (!place(b, name, number, t->count * size_of(t->type))) return 0;
  fill_slack(b, NOTHING_WRITTEN);
  if (t->file) {
    int fd = open(t->file, O_RDONLY), good = fd >= 0 && transfer(fd, 0, b);
    if (fd >= 0) close(fd);
    if (!good) return fail("file", "%s cannot be read", t->file);
  } else {
    fill_elements(b->at, t, &seed);
  }
  access_to(b, PROT_READ);
  return 1;
}

static int task(uint64_t seed, const char *file, const char *library, const char *symbol, size_t prepared_bytes, size_t workspace_bytes, char *results,
                int count, char **tensors) {
  double seconds = 0;
  size_t nonfinite = 0;
  data_count = weight_count = 0;
  for (int i = 0; i < count; i++) {
    tensor t;
    if (!read_tensor(tensors[i] + 1, &t)) return fail("launch", "`%s` is no tensor", tensors[i]);
    uint64_t s = seed ^ (0xD1B54A32D192ED03u * (uint64_t)(i + 1));
    if (tensors[i][0] == 'd') {
      int d = data_count++;
      for (int set = 0; set < 2; set++) {
        if (!make_input(&data[set][d], "data input", d, &t, s + (uint64_t)set * 0x8CB92BA72F3D8DD7u)) return 0;
        data_pointers[set][d] = data[set][d].at;
      }
    } else {
      int w = weight_count++;
      if (!make_input(&weights[w], "weight input", w, &t, s)) return 0;
      weight_pointers[w] = weights[w].at;
    }
  }
  int whole = 0;
  output_count = 0;
  for (char *next, *result = results; result; result = next) {
    next = strchr(result, ';');
    if (next) *next++ = 0;
    tensor t;
    if (output_count == TENSORS) return fail("launch", "more than %d outputs", TENSORS);
    if (!read_tensor(result, &t)) return fail("launch", "`%s` is no tensor", result);
    if (t.count > SIZE_MAX / 64) return fail("memory", "the output is too large");
    int o = output_count++;
    size_t bytes = t.count * size_of(t.type);
    outputs[o].type = t.type;
    whole += is_whole(t.type);
    if (!place(&outputs[o].at, "the output", o > 0 ? o : -1, bytes)) return 0;
    for (int set = 0; set < 2; set++)
      if (!place(&outputs[o].expected[set], "the reference output", 2 * o + set, bytes)) return 0;
    fill_slack(&outputs[o].at, CANARY);
    output_pointers[o] = outputs[o].at.at;
  }
  mixed = whole > 0 && whole < output_count;
  if (!gpu_task()) return 0;
  if (strcmp(library, "-") != 0) {
    if (!load(0, library, symbol, prepared_bytes, workspace_bytes)) return 0;
    int gpu = kernels[0].gpu;
    for (int set = 0; set < 2; set++) {
      clear_outputs(NOTHING_WRITTEN);
      if (!gpu) memset(workspace[0].at, NOTHING_WRITTEN, workspace[0].size);
      if (gpu && !gpu_poison(0, NOTHING_WRITTEN)) return 0;
      double t = window(0, set, 1);
      if (t < 0 || (gpu && !gpu_fetch(0)) || !outputs_untouched() || (!gpu && !untouched(&workspace[0]))) return 0;
      seconds = t * 1e-9;
      for (int o = 0; o < output_count; o++) memcpy(outputs[o].expected[set].at, outputs[o].at.at, outputs[o].at.size);
    }
    unload(0);
    if (!keep(file, 1)) return 0;
  } else if (!keep(file, 0)) {
    return 0;
  }
  poison = NOTHING_WRITTEN;
  for (int set = 0; set < 2; set++)
    for (int o = 0; o < output_count; o++) {
      const unsigned char *want = outputs[o].expected[set].at;
      size_t each = size_of(outputs[o].type), n = outputs[o].at.size / each;
      double *largest = &outputs[o].largest[set];
      *largest = 0;
      for (size_t i = 0; i < n; i++) {
        double x = element(want, outputs[o].type, i);
        if (!isfinite(x)) nonfinite++;
        else if (fabs(x) > *largest) *largest = fabs(x);
        /* Nothing written must not pass for a result: NaN, or -1. */
        if (isnan(x) || all_bytes(want + i * each, each, NOTHING_WRITTEN)) poison = 0xFE;
      }
      if (*largest == 0) *largest = 1;
      access_to(&outputs[o].expected[set], PROT_READ);
    }
  say("task %.9f %zu", seconds, nonfinite);
  task_ready = 1;
  return 1;
}

/* ---- the conversation ---- */

static int obey(char *line) {
  char *word[TENSORS + 16];
  int n = 0;
  for (char *w = strtok(line, " \n"); w && n < TENSORS + 16; w = strtok(NULL, " \n")) word[n++] = w;
#define NUMBER(i) ((size_t)strtoull(word[i], NULL, 10))
  if (n >= 9 && strcmp(word[0], "task") == 0 && n == 9 + atoi(word[8])) {
    task_ready = duel_ready = pace_ready = 0;
    unload(1);
    if (n - 9 > TENSORS) return fail("launch", "more than %d inputs", TENSORS);
    return task(strtoull(word[1], NULL, 10), word[2], word[3], word[4], NUMBER(5), NUMBER(6), word[7], n - 9, word + 9);
  }
  if (n == 8 && strcmp(word[0], "run") == 0 && task_ready) {
    duel_ready = 0;
    if (!pace_ready) unload(1);
    return run(word[1], word[2], NUMBER(3), NUMBER(4), atof(word[5]), atof(word[6]), NUMBER(7));
  }
  if (n == 7 && strcmp(word[0], "pace") == 0 && task_ready) {
    duel_ready = pace_ready = 0;
    return pace(word[1], word[2], NUMBER(3), NUMBER(4), atof(word[5]), NUMBER(6));
  }
  if (n == 11 && strcmp(word[0], "duel") == 0 && task_ready) {
    const char *library[2] = {word[3], word[7]}, *symbol[2] = {word[4], word[8]};
    const size_t p[2] = {NUMBER(5), NUMBER(9)}, w[2] = {NUMBER(6), NUMBER(10)};
    duel_ready = pace_ready = 0;
    return duel(atof(word[1]), NUMBER(2), library, symbol, p, w);
  }
  if (n == 2 && strcmp(word[0], "pairs") == 0 && duel_ready) return pairs(atoi(word[1]));
  if ((n == 3 || n == 4) && strcmp(word[0], "compile") == 0 && process_mode == 'n') return compile(word[1], word[2], n == 4 ? word[3] : NULL);
  return fail("launch", "the runner does not understand `%s` now", n > 0 ? word[0] : "");
}

static int pin(const char *cores) {
#ifdef __linux__
  cpu_set_t *set = CPU_ALLOC(4096);
  size_t bytes = CPU_ALLOC_SIZE(4096);
  CPU_ZERO_S(bytes, set);
  for (const char *c = cores; *c;) {
    char *end;
    unsigned long core = strtoul(c, &end, 10);
    if (end == c || core >= 4096) return fail("launch", "no core number: %s", c);
    CPU_SET_S(core, bytes, set);
    c = *end == ',' ? end + 1 : end;
  }
  if (sched_setaffinity(0, bytes, set) != 0) return fail("launch", "cannot be pinned to cores %s: %s", cores, strerror(errno));
#else
  (void)cores;
#endif
  return 1;
}

/* runner CORE,CORE.. cpu|wall|gpu:ORDINAL   runs kernels
 * runner describe ORDINAL          says what the GPU is, and ends
 * runner roof ORDINAL:ARCHITECTURE  measures what the GPU can do at most (roof.h), and ends
 * runner nvrtc ARCHITECTURE        compiles: `compile SOURCE CUBIN [OPTIONS]` (nvrtc.h) */
int main(int argc, char **argv) {
  if (argc != 3) return 2;
  parent = getppid();
  page = (size_t)sysconf(_SC_PAGESIZE);
  clock_kind = strcmp(argv[2], "cpu") == 0 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;

  /* The conversation moves away from the standard streams, which are the kernels' to write to. */
  int in_fd = fcntl(0, F_DUPFD_CLOEXEC, 10);
  out_fd = fcntl(1, F_DUPFD_CLOEXEC, 10);
  int null = open("/dev/null", O_RDWR);
  if (in_fd < 0 || out_fd < 0 || null < 0) return 2;
  for (int i = 0; i < 3; i++) dup2(null, i);
  FILE *in = fdopen(in_fd, "r");
  if (!in) return 2;

  struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  process_mode = strcmp(argv[1], "describe") == 0 ? 'd' : strcmp(argv[1], "nvrtc") == 0 ? 'n' : strcmp(argv[1], "roof") == 0 ? 'r' : strncmp(argv[2], "gpu:", 4) == 0 ? 'g' : 'c';
#ifdef _SC_PHYS_PAGES
  /* A kernel that allocates without end shall fail alone. */
  rlim_t all = (rlim_t)sysconf(_SC_PHYS_PAGES) * page;
  struct rlimit memory = {all, all};
  /* CUDA reserves more addresses than there is memory. */
  if (process_mode == 'c') setrlimit(RLIMIT_AS, &memory);
#endif
  static unsigned char spare_stack[65536];
  stack_t stack = {.ss_sp = spare_stack, .ss_size = sizeof spare_stack};
  sigaltstack(&stack, NULL);
  struct sigaction on_crash = {.sa_sigaction = crashed, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND};
  const int deadly[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
  for (int i = 0; i < 5; i++) sigaction(deadly[i], &on_crash, NULL);
  struct sigaction on_tick = {.sa_handler = tick, .sa_flags = SA_RESTART | SA_ONSTACK};
  sigaction(SIGALRM, &on_tick, NULL);
  struct itimerval half = {{0, 500000}, {0, 500000}};
  setitimer(ITIMER_REAL, &half, NULL);

#ifdef _OPENMP
  /* Keeps the OpenMP library and its threads: unloading it with the first kernel would crash. */
  omp_set_dynamic(0);
#endif
  int fine = strchr("dnr", process_mode) || pin(argv[1]);
#ifdef SQUALL_CUDA
  fine = fine && begin_gpu(argv[2]);
#endif
  if (fine && process_mode != 'd' && process_mode != 'r') say("ready");
  double before = 0;
  char *line = NULL;
  size_t room = 0;
  do {
    double after = cpu_seconds();
    char start[32];
    send_all(start, (size_t)snprintf(start, sizeof start, "%.6f ", after - before));
    if (!fine) {
      reply_length = 0;
      say("failed %s %s", fail_where, fail_text);
    }
    reply[reply_length++] = '\n';
    send_all(reply, reply_length);
    reply_length = 0;
    before = after;
    if (getline(&line, &room, in) < 0) break;
    fine = obey(line);
  } while (1);
  return 0;
}
