/* A library that stands for NVIDIA's driver, NVRTC and NVML where there is no GPU: what runner.c
 * asks of them, on the CPU. Kernels are compiled by g++ behind device.h, and run thread by thread
 * (see there for what they may use). It shows that kernels are built, launched, checked, guarded
 * and replaced as they should be; it says nothing of times, registers or a device's own rules.
 *
 * Environment: EMULATED_HEADER device.h's path; EMULATED_GPUS how many there are (1);
 * EMULATED_CAPABILITY as 75. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
enum { INVALID = 1, MEMORY = 2, NO_DEVICE = 100, NOT_FOUND = 500, THREADS = 1024, SHARED = 99 << 10, STACK = 64 << 10, MOST = 64 };

static int setting(const char *name, int otherwise) {
  const char *text = getenv(name);
  return text ? atoi(text) : otherwise;
}

/* ---- blocks of fibers ---- */

typedef struct { unsigned x, y, z; } triple;
API triple emulated_thread, emulated_block, emulated_threads, emulated_blocks;
API char emulated_shared[SHARED + 64] __attribute__((aligned(64)));

typedef struct {
  void (*run)(void **);
  int (*sizes)(size_t *);
  int shared;
} function;

typedef struct {
  function *f;
  triple blocks, threads;
  unsigned shared;
  int count;
  unsigned char values[MOST][16];
  /* A copy where there is no function. */
  void *to, *from;
  size_t bytes;
} work;

static ucontext_t scheduler, fibers[THREADS];
static char alive[THREADS];
static char *stacks;
static int turn;
static work *current;

API void emulated_barrier(void) {
  triple me = emulated_thread;
  swapcontext(&fibers[turn], &scheduler);
  emulated_thread = me;
}

static void fiber(void) {
  void *a[MOST];
  for (int i = 0; i < current->count; i++) a[i] = current->values[i];
  current->f->run(a);
  alive[turn] = 0;
}

static void run_block(work *w) {
  int n = (int)(w->threads.x * w->threads.y * w->threads.z), left = n;
  if (!stacks) stacks = mmap(NULL, (size_t)THREADS * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (int i = 0; i < n; i++) {
    getcontext(&fibers[i]);
    fibers[i].uc_stack.ss_sp = stacks + (size_t)i * STACK;
    fibers[i].uc_stack.ss_size = STACK;
    fibers[i].uc_link = &scheduler;
    makecontext(&fibers[i], fiber, 0);
    alive[i] = 1;
  }
  for (int first = 1; left > 0; first = 0)
    for (turn = 0; turn < n; turn++) {
      if (!alive[turn]) continue;
      if (first) emulated_thread = (triple){turn % w->threads.x, turn / w->threads.x % w->threads.y, turn / w->threads.x / w->threads.y};
      swapcontext(&scheduler, &fibers[turn]);
      left -= !alive[turn];
    }
}

static void perform(work *w) {
  if (!w->f) {
    memcpy(w->to, w->from, w->bytes);
    return;
  }
  current = w;
  emulated_blocks = w->blocks;
  emulated_threads = w->threads;
  for (unsigned z = 0; z < w->blocks.z; z++)
    for (unsigned y = 0; y < w->blocks.y; y++)
      for (unsigned x = 0; x < w->blocks.x; x++) {
        emulated_block = (triple){x, y, z};
        memset(emulated_shared, 0xFF, SHARED);
        run_block(w);
      }
}

/* ---- the driver ---- */

typedef struct {
  int count, room;
  work *all;
} graph;

static graph *recording;

static void submit(work *w) {
  if (!recording) {
    perform(w);
    return;
  }
  graph *g = recording;
  if (g->count == g->room) g->all = realloc(g->all, (g->room = 2 * g->room + 8) * sizeof *g->all);
  g->all[g->count++] = *w;
}

API int cuInit(unsigned flags) { return flags; }
API int cuDriverGetVersion(int *v) { return *v = 13000, 0; }
API int cuDeviceGetCount(int *n) { return *n = setting("EMULATED_GPUS", 1), 0; }
API int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, 0; }
API int cuDeviceGetName(char *name, int room, int device) { return (void)device, snprintf(name, (size_t)room, "Emulated GPU"), 0; }
API int cuDeviceGetPCIBusId(char *name, int room, int device) { return snprintf(name, (size_t)room, "0000:%02x:00.0", device), 0; }
API int cuDeviceGetAttribute(int *value, int which, int device) {
  int capability = setting("EMULATED_CAPABILITY", 75);
  (void)device;
  switch (which) {
  case 75: *value = capability / 10; return 0;
  case 76: *value = capability % 10; return 0;
  case 16: *value = 4; return 0;
  case 1: *value = THREADS; return 0;
  case 39: *value = 2048; return 0;
  case 97: *value = SHARED; return 0;
  case 81: *value = 100 << 10; return 0;
  case 82: *value = 65536; return 0;
  case 38: *value = 4 << 20; return 0;
  case 13: *value = 1000000; return 0;
  case 36: *value = 2000000; return 0;
  default: return INVALID;
  }
}
API int cuDevicePrimaryCtxRetain(void **c, int device) { return *c = (void *)(size_t)(device + 1), 0; }
API int cuCtxSetCurrent(void *c) { return c ? 0 : INVALID; }
API int cuMemAlloc_v2(void **p, size_t bytes) { return (*p = aligned_alloc(256, (bytes + 255) / 256 * 256)) ? 0 : MEMORY; }
API int cuMemFree_v2(void *p) { return free(p), 0; }
API int cuMemcpyHtoD_v2(void *to, const void *from, size_t n) { return memcpy(to, from, n), 0; }
API int cuMemcpyDtoH_v2(void *to, const void *from, size_t n) { return memcpy(to, from, n), 0; }
API int cuMemcpyDtoDAsync_v2(void *to, void *from, size_t n, void *stream) {
  work w = {.to = to, .from = from, .bytes = n};
  return (void)stream, submit(&w), 0;
}
API int cuMemsetD8_v2(void *p, unsigned char byte, size_t n) { return memset(p, byte, n), 0; }
API int cuMemsetD8Async(void *p, unsigned char byte, size_t n, void *stream) { return (void)stream, memset(p, byte, n), 0; }

/* What is no library is taken for a cubin of the real NVRTC: launching its functions does nothing, so
 * that they fail their check, after everything else was as it is with a GPU. */
static int foreign;
API int cuModuleLoad(void **m, const char *path) {
  if (access(path, R_OK) != 0) return 301;
  if (!(*m = dlopen(path, RTLD_NOW | RTLD_LOCAL))) *m = &foreign;
  return 0;
}
API int cuModuleUnload(void *m) { return m == &foreign ? 0 : dlclose(m); }
API int cuModuleGetFunction(function **f, void *module, const char *name) {
  char text[1200];
  function *made = *f = calloc(1, sizeof *made);
  if (module == &foreign) return 0;
  snprintf(text, sizeof text, "emulated_run_%s", name);
  *(void **)&made->run = dlsym(module, text);
  snprintf(text, sizeof text, "emulated_sizes_%s", name);
  *(void **)&made->sizes = dlsym(module, text);
  return made->run && made->sizes ? 0 : NOT_FOUND;
}
API int cuFuncSetAttribute(function *f, int which, int value) {
  if (which == 8 && value > SHARED) return INVALID;
  if (which == 8) f->shared = value;
  return 0;
}
API int cuFuncGetAttribute(int *value, int which, function *f) { return (void)which, (void)f, *value = 0, 0; }
API int cuLaunchKernel(function *f, unsigned bx, unsigned by, unsigned bz, unsigned tx, unsigned ty, unsigned tz, unsigned shared, void *stream, void **arguments, void **extra) {
  size_t sizes[MOST];
  work w = {.f = f, .blocks = {bx, by, bz}, .threads = {tx, ty, tz}, .shared = shared};
  (void)stream, (void)extra;
  if (!bx || !by || !bz || !tx || !ty || !tz || by > 65535 || bz > 65535 || tz > 64 || tx * ty * tz > THREADS) return INVALID;
  if (shared > (unsigned)(f->shared ? f->shared : 48 << 10)) return INVALID;
  if (!f->run) return 0;
  w.count = f->sizes(sizes);
  for (int i = 0; i < w.count; i++) memcpy(w.values[i], arguments[i], sizes[i]);
  submit(&w);
  return 0;
}
API int cuStreamCreate(void **s, unsigned flags) { return *s = (void *)(size_t)(flags + 1), 0; }
API int cuStreamSynchronize(void *s) { return s ? 0 : INVALID; }
API int cuStreamBeginCapture_v2(void *s, int mode) { return (void)s, (void)mode, recording = calloc(1, sizeof *recording), 0; }
API int cuStreamEndCapture(void *s, graph **g) { return (void)s, *g = recording, recording = NULL, 0; }
API int cuGraphInstantiateWithFlags(graph **made, graph *g, unsigned long long flags) {
  *made = calloc(1, sizeof **made);
  **made = *g;
  g->all = NULL;
  return (int)flags;
}
API int cuGraphLaunch(graph *g, void *s) {
  for (int i = 0; i < g->count; i++) perform(&g->all[i]);
  return s ? 0 : INVALID;
}
API int cuGraphDestroy(graph *g) { return free(g->all), free(g), 0; }
API int cuGraphExecDestroy(graph *g) { return free(g->all), free(g), 0; }
API int cuEventCreate(double **e, unsigned flags) { return *e = calloc(1, sizeof **e), (int)flags; }
API int cuEventRecord(double *e, void *s) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  *e = 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
  return s ? 0 : INVALID;
}
API int cuEventSynchronize(double *e) { return e ? 0 : INVALID; }
API int cuEventElapsedTime(float *ms, double *a, double *b) { return *ms = (float)(*b - *a), 0; }
API int cuGetErrorString(int code, const char **text) {
  return *text = code == INVALID ? "invalid argument" : code == MEMORY ? "out of memory" : code == NOT_FOUND ? "named symbol not found" : "an error of the emulated driver", 0;
}

/* ---- NVML ---- */

API int nvmlInit_v2(void) { return 0; }
API int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device) { return (void)id, *device = (void *)1, 0; }
API int nvmlDeviceGetClockInfo(void *d, int which, unsigned *mhz) { return (void)d, *mhz = which == 2 ? 2000 : 1000, 0; }
API int nvmlDeviceGetMaxClockInfo(void *d, int which, unsigned *mhz) { return nvmlDeviceGetClockInfo(d, which, mhz); }
API int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *reasons) { return (void)d, *reasons = (unsigned long long)setting("EMULATED_THROTTLE", 0), 0; }
API int nvmlDeviceGetTemperature(void *d, int which, unsigned *degrees) { return (void)d, (void)which, *degrees = 40, 0; }
API int nvmlDeviceGetPowerUsage(void *d, unsigned *milliwatts) { return (void)d, *milliwatts = 100000, 0; }

/* ---- NVRTC ---- */

typedef struct {
  char *source, *names[MOST], lowered[MOST][32];
  int count;
  char log[4000], *binary;
  size_t size;
} program;

API int nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 0, 0; }
API int nvrtcCreateProgram(program **p, const char *source, const char *name, int n, const char *const *a, const char *const *b) {
  (void)name, (void)n, (void)a, (void)b;
  *p = calloc(1, sizeof **p);
  (*p)->source = strdup(source);
  return 0;
}
API int nvrtcAddNameExpression(program *p, const char *name) { return p->names[p->count++] = strdup(name), 0; }

/* `extern __shared__ TYPE NAME[];` declares what no C++ compiler knows. */
static void print_source(FILE *f, const char *s) {
  static const char mark[] = "extern __shared__";
  for (const char *at; (at = strstr(s, mark)); s = at) {
    fwrite(s, 1, (size_t)(at - s), f);
    at += sizeof mark - 1;
    while (*at == ' ') at++;
    if (strncmp(at, "__align__(", 10) == 0) at = strchr(at, ')') + 1;
    const char *bracket = strchr(at, '['), *name = bracket;
    while (name > at && name[-1] != ' ') name--;
    fprintf(f, "static %.*s *const %.*s = (%.*s *)emulated_shared", (int)(name - at), at, (int)(bracket - name), name, (int)(name - at), at);
    at = strchr(bracket, ']') + 1;
  }
  fputs(s, f);
}

static void print_entry(FILE *f, const char *name, const char *expression) {
  fprintf(f, "extern \"C\" __attribute__((visibility(\"default\"))) void emulated_run_%s(void **a) { emulated_run(&%s, a); }\n", name, expression);
  fprintf(f, "extern \"C\" __attribute__((visibility(\"default\"))) int emulated_sizes_%s(size_t *s) { return emulated_sizes(&%s, s); }\n", name, expression);
}

API int nvrtcCompileProgram(program *p, int count, const char *const *options) {
  char folder[] = "/tmp/emulated-XXXXXX", path[100], command[4000], flags[2000] = "";
  for (int i = 0; i < count; i++)
    if (strncmp(options[i], "-D", 2) == 0 || strncmp(options[i], "-I", 2) == 0) snprintf(flags + strlen(flags), sizeof flags - strlen(flags), " '%s'", options[i]);
  if (!mkdtemp(folder)) return 1;
  snprintf(path, sizeof path, "%s/kernel.cu", folder);
  FILE *f = fopen(path, "w");
  if (!f) return 1;
  fprintf(f, "#include \"%s\"\n#line 1 \"kernel.cu\"\n", getenv("EMULATED_HEADER"));
  print_source(f, p->source);
  fprintf(f, "\n#line 1 \"emulated entries\"\n");
  for (int i = 0; i < p->count; i++) {
    snprintf(p->lowered[i], sizeof p->lowered[i], "expression%d", i);
    print_entry(f, p->lowered[i], p->names[i]);
  }
  static const char c_function[] = "extern \"C\" __global__ void ";
  for (const char *at = p->source; !p->count && (at = strstr(at, c_function));) {
    char name[200] = "";
    at += sizeof c_function - 1;
    if (strncmp(at, "__launch_bounds__", 17) == 0) at = strchr(at, ')') + 2;
    sscanf(at, "%199[A-Za-z0-9_]", name);
    print_entry(f, name, name);
  }
  fclose(f);
  snprintf(command, sizeof command, "cd %s && g++ -x c++ -std=c++17 -O1 -w -fpermissive -fvisibility=hidden -fPIC -shared%s kernel.cu -o out 2>log", folder, flags);
  int code = system(command);
  snprintf(path, sizeof path, "%s/%s", folder, code == 0 ? "out" : "log");
  f = fopen(path, "r");
  if (f && code == 0) {
    p->binary = malloc(16 << 20);
    p->size = fread(p->binary, 1, 16 << 20, f);
  } else if (f) {
    size_t n = fread(p->log, 1, sizeof p->log - 1, f);
    p->log[n] = 0;
  }
  if (f) fclose(f);
  snprintf(command, sizeof command, "rm -r %s", folder);
  return code == 0 ? system(command) : (system(command), 6);
}
API int nvrtcGetProgramLogSize(program *p, size_t *n) { return *n = strlen(p->log) + 1, 0; }
API int nvrtcGetProgramLog(program *p, char *to) { return strcpy(to, p->log), 0; }
API int nvrtcGetCUBINSize(program *p, size_t *n) { return *n = p->size, 0; }
API int nvrtcGetCUBIN(program *p, char *to) { return memcpy(to, p->binary, p->size), 0; }
API int nvrtcGetLoweredName(program *p, const char *name, const char **lowered) {
  for (int i = 0; i < p->count; i++)
    if (strcmp(p->names[i], name) == 0) return *lowered = p->lowered[i], 0;
  return 1;
}
API int nvrtcDestroyProgram(program **p) {
  free((*p)->binary);
  free((*p)->source);
  free(*p);
  return 0;
}
