/* A library that stands for NVIDIA's driver, NVRTC and NVML where there is no GPU, with the
 * functions that runner.c calls, on the CPU. Kernels are compiled by g++ behind device.h, and
 * run thread by thread (see there for what they may use). Tests show with it that kernels are
 * built, launched, checked, guarded and replaced as they should be; it says nothing of times,
 * registers or a device's rules.
 *
 * Work of a stream happens as late as the driver's rules allow: when something waits for it. Of
 * a graph's nodes that do not wait for each other the first comes first, or the last where
 * EMULATED_ORDER is `last`. So work that is not ordered behind what it needs finds it undone, at
 * every run: calls without a stream go through the default one, filling and copying to the
 * device among them, which streams that do not block (flag 1) do not wait for.
 *
 * Environment: EMULATED_HEADER device.h's path; EMULATED_GPUS how many there are (1);
 * EMULATED_CAPABILITY as 75. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <setjmp.h>
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
enum {
  INVALID = 1,
  MEMORY = 2,
  NOT_FOUND = 500,
  THREADS = 1024,
  CLUSTER = 16,
  SHARED = 99 << 10,
  STACK = 64 << 10,
  MOST = 64,
  BEFORE = 16,
  UNJOINED = 904,
  SLOT = 64
};

static int setting(const char *name, int otherwise) {
  const char *text = getenv(name);
  return text ? atoi(text) : otherwise;
}

#include "fibers.h"

static void perform(work *w) {
  if (w->clock) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    *w->clock = 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
  } else if (!w->f && w->from)
    memcpy(w->to, w->from, w->bytes);
  else if (!w->f)
    memset(w->to, w->byte, w->bytes);
  if (w->staged) free(w->from);
  if (!w->f) return;
  current = w;
  emulated_blocks = w->blocks;
  emulated_threads = w->threads;
  unsigned cluster = (unsigned)w->f->cluster;
  for (unsigned z = 0; z < w->blocks.z; z++)
    for (unsigned y = 0; y < w->blocks.y; y++)
      for (unsigned x = 0; x < w->blocks.x; x += cluster) {
        first_block = (triple){x, y, z};
        run_cluster(w, (int)cluster);
      }
}

/* ---- the driver ---- */

typedef struct {
  int count, room;
  work *all;
} graph;

typedef struct {
  graph queue;
  int blocking;
  /* While its work is recorded: the nodes behind which the next one comes. */
  int records, last[BEFORE], last_count;
} stream;

typedef struct {
  double at;
  stream *in;
  int recorded, last[BEFORE], last_count;
} event;

static graph *recording;
static stream *streams[MOST]; /* the default one first */

static void append(graph *g, const work *w) {
  if (g->count == g->room) g->all = realloc(g->all, (g->room = 2 * g->room + 8) * sizeof *g->all);
  g->all[g->count++] = *w;
}

static void finish(stream *s) {
  graph now = s->queue;
  memset(&s->queue, 0, sizeof s->queue);
  for (int i = 0; i < now.count; i++) perform(&now.all[i]);
  free(now.all);
}

static stream *default_stream(void) {
  if (!streams[0]) streams[0] = calloc(1, sizeof **streams);
  return streams[0];
}

static void finish_all(void) {
  for (int i = 0; i < MOST; i++)
    if (streams[i]) finish(streams[i]);
}

/* The default stream and those that block wait for each other's work. */
static void wait_for_others(stream *s) {
  for (int i = 1; i < MOST && s == default_stream(); i++)
    if (streams[i] && streams[i]->blocking) finish(streams[i]);
  if (s->blocking) finish(default_stream());
}

static int submit(stream *s, work w) {
  if (!s) s = default_stream();
  if (recording && s->records) {
    memcpy(w.before, s->last, sizeof w.before);
    w.before_count = s->last_count;
    s->last[0] = recording->count, s->last_count = 1;
    return append(recording, &w), 0;
  }
  wait_for_others(s);
  return append(&s->queue, &w), 0;
}
API int cuInit(unsigned flags) { return flags; }
API int cuDriverGetVersion(int *v) { return *v = 13000, 0; }
API int cuDeviceGetCount(int *n) { return *n = setting("EMULATED_GPUS", 1), 0; }
API int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, 0; }
API int cuDeviceGetName(char *name, int room, int device) {
  return (void)device, snprintf(name, (size_t)room, "Emulated GPU"), 0;
}
API int cuDeviceGetPCIBusId(char *name, int room, int device) {
  return snprintf(name, (size_t)room, "0000:%02x:00.0", device), 0;
}
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
API int cuDevicePrimaryCtxRetain(void **c, int d) { return *c = (void *)(size_t)(d + 1), 0; }
static void *context;
API int cuCtxSetCurrent(void *c) { return context = c, c ? 0 : INVALID; }
API int cuCtxGetCurrent(void **c) { return *c = context, 0; }
API int cuMemAlloc_v2(void **p, size_t bytes) {
  return (*p = aligned_alloc(256, (bytes + 255) / 256 * 256)) ? 0 : MEMORY;
}
API int cuMemFree_v2(void *p) { return finish_all(), free(p), 0; }
API int cuMemAllocHost_v2(void **p, size_t bytes) { return (*p = malloc(bytes)) ? 0 : MEMORY; }
API int cuMemFreeHost(void *p) { return finish_all(), free(p), 0; }
/* Memory of the host is read at once, and may be used again. */
API int cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t n, stream *s) {
  work w = {.to = to, .from = memcpy(malloc(n + 1), from, n), .bytes = n, .staged = 1};
  return submit(s, w);
}
API int cuMemcpyHtoD_v2(void *to, const void *from, size_t n) {
  return cuMemcpyHtoDAsync_v2(to, from, n, NULL);
}
API int cuMemcpyDtoHAsync_v2(void *to, void *from, size_t n, stream *s) {
  return submit(s, (work){.to = to, .from = from, .bytes = n});
}
/* How many copies within device memory were asked for: tests of networks that need none ask. */
static int copies;
API int emulated_copies(void) { return copies; }
API int cuMemcpyDtoDAsync_v2(void *to, void *from, size_t n, stream *s) {
  return copies++, cuMemcpyDtoHAsync_v2(to, from, n, s);
}
API int cuMemcpyDtoH_v2(void *to, void *from, size_t n) {
  return cuMemcpyDtoHAsync_v2(to, from, n, NULL), finish(default_stream()), 0;
}
API int cuMemsetD8Async(void *p, unsigned char byte, size_t n, stream *s) {
  return submit(s, (work){.to = p, .byte = byte, .bytes = n});
}
API int cuMemsetD8_v2(void *p, unsigned char byte, size_t n) {
  return cuMemsetD8Async(p, byte, n, NULL);
}

/* What is no library is taken for a cubin of the real NVRTC: launching its functions does nothing,
 * so that they fail their check, after everything else was as it is with a GPU. */
static int foreign;
API int cuModuleLoad(void **m, const char *path) {
  if (access(path, R_OK) != 0) return 301;
  if (!(*m = dlopen(path, RTLD_NOW | RTLD_LOCAL))) *m = &foreign;
  return 0;
}
/* An image is a library in memory, which says itself where it ends: behind its section headers. */
API int cuModuleLoadData(void **m, const void *image) {
  const Elf64_Ehdr *e = image;
  char path[] = "/tmp/emulated-XXXXXX";
  if (memcmp(image, ELFMAG, SELFMAG) != 0) return 200;
  size_t bytes = e->e_shoff + (size_t)e->e_shnum * e->e_shentsize;
  int f = mkstemp(path), whole = f >= 0 && write(f, image, bytes) == (ssize_t)bytes;
  *m = whole ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  return f >= 0 && close(f), unlink(path), *m ? 0 : 209;
}
API int cuModuleUnload(void *m) { return finish_all(), m == &foreign ? 0 : dlclose(m); }
API int cuModuleGetFunction(function **f, void *module, const char *name) {
  char text[1200];
  function *made = *f = calloc(1, sizeof *made);
  if (module == &foreign) return 0;
  snprintf(text, sizeof text, "emulated_run_%s", name);
  *(void **)&made->run = dlsym(module, text);
  snprintf(text, sizeof text, "emulated_sizes_%s", name);
  *(void **)&made->sizes = dlsym(module, text);
  snprintf(text, sizeof text, "emulated_cluster_%s", name);
  int *cluster = dlsym(module, text);
  made->cluster = cluster ? *cluster : 1;
  return made->run && made->sizes ? 0 : NOT_FOUND;
}
API int cuFuncSetAttribute(function *f, int which, int value) {
  if (which == 8 && value > SHARED) return INVALID;
  if (which == 8) f->shared = value;
  return 0;
}
API int cuFuncGetAttribute(int *value, int which, function *f) {
  return (void)which, (void)f, *value = 0, 0;
}
API int cuLaunchKernel(function *f, unsigned bx, unsigned by, unsigned bz, unsigned tx, unsigned ty,
                       unsigned tz, unsigned shared, stream *s, void **arguments, void **extra) {
  size_t sizes[MOST];
  work w = {.f = f, .blocks = {bx, by, bz}, .threads = {tx, ty, tz}, .shared = shared};
  (void)extra;
  if (!bx || !by || !bz || !tx || !ty || !tz || by > 65535 || bz > 65535 || tz > 64 ||
      tx * ty * tz > THREADS)
    return INVALID;
  if (shared > (unsigned)(f->shared ? f->shared : 48 << 10)) return INVALID;
  if (!f->run) return 0;
  if (bx % (unsigned)f->cluster || f->cluster > CLUSTER) return INVALID;
  w.count = f->sizes(sizes);
  for (int i = 0; i < w.count; i++) memcpy(w.values[i], arguments[i], sizes[i]);
  return submit(s, w);
}
/* Attributes of a launch are of no meaning here. */
typedef struct {
  unsigned blocks[3], threads[3], shared;
  stream *s;
  void *attributes;
  unsigned count;
} launch_config;
API int cuLaunchKernelEx(const launch_config *c, function *f, void **arguments, void **extra) {
  const unsigned *b = c->blocks, *t = c->threads;
  return cuLaunchKernel(f, b[0], b[1], b[2], t[0], t[1], t[2], c->shared, c->s, arguments, extra);
}
/* As tma_copy of device.h reads it. */
typedef struct {
  char *at;
  unsigned rank, extents[5], strides[5], steps[5];
  unsigned short spanned[5];
} tensor_map;
API int cuTensorMapEncodeTiled(void *to, int type, unsigned rank, void *at,
                               const unsigned long long *extents, const unsigned long long *strides,
                               const unsigned *spanned, const unsigned *steps, int interleave,
                               int swizzle, int l2, int fill) {
  tensor_map m = {.at = at, .rank = rank};
  _Static_assert(sizeof m <= 128, "a tensor map has 128 bytes");
  if (type != 1 || interleave || swizzle != 3 || l2 > 3 || fill || !rank || rank > 5 ||
      (size_t)to % 64 || (size_t)at % 16 || spanned[0] * 2 > 128)
    return INVALID;
  for (unsigned i = 0; i < rank; i++) {
    if (!extents[i] || extents[i] >> 32 || !spanned[i] || spanned[i] > 256 || !steps[i] ||
        steps[i] > 8)
      return INVALID;
    if (i && (strides[i - 1] % 16 || strides[i - 1] >> 32)) return INVALID;
    m.extents[i] = (unsigned)extents[i], m.spanned[i] = (unsigned short)spanned[i],
    m.steps[i] = steps[i];
    m.strides[i] = i ? (unsigned)strides[i - 1] : 2;
  }
  return memset(to, 0, 128), memcpy(to, &m, sizeof m), 0;
}
API int cuStreamCreate(stream **made, unsigned flags) {
  int i = 1;
  while (i < MOST && streams[i]) i++;
  if (i == MOST) return MEMORY;
  *made = streams[i] = calloc(1, sizeof **made);
  streams[i]->blocking = !(flags & 1);
  return 0;
}
API int cuStreamDestroy_v2(stream *s) { return finish(s), 0; }
API int cuStreamSynchronize(stream *s) { return finish(s ? s : default_stream()), 0; }
API int cuStreamBeginCapture_v2(stream *s, int mode) {
  (void)mode, s->records = 1, s->last_count = 0;
  return recording = calloc(1, sizeof *recording), 0;
}
/* All that was recorded must come before the end of the stream that began. */
API int cuStreamEndCapture(stream *s, graph **g) {
  int n = recording->count, all = n;
  char *seen = calloc(1, (size_t)n + 1);
  for (int i = 0; i < s->last_count; i++) seen[s->last[i]] = 1;
  for (int i = n - 1; i >= 0; i--) {
    if (!seen[i]) continue;
    all--;
    for (int k = 0; k < recording->all[i].before_count; k++)
      seen[recording->all[i].before[k]] = 1;
  }
  free(seen);
  *g = recording, recording = NULL;
  for (int i = 0; i < MOST; i++)
    if (streams[i]) streams[i]->records = 0;
  return all ? UNJOINED : 0;
}
API int cuStreamWaitEvent(stream *s, event *e, unsigned flags) {
  if (!e->recorded) return finish(e->in), (int)flags;
  if (!s->records) s->records = 1, s->last_count = 0;
  for (int i = 0; i < e->last_count; i++) {
    int known = 0;
    for (int k = 0; k < s->last_count; k++) known |= s->last[k] == e->last[i];
    if (!known && s->last_count == BEFORE) return INVALID;
    if (!known) s->last[s->last_count++] = e->last[i];
  }
  return (int)flags;
}
API int cuGraphInstantiateWithFlags(graph **made, graph *g, unsigned long long flags) {
  *made = calloc(1, sizeof **made);
  **made = *g;
  g->all = NULL;
  return (int)flags;
}
API int cuGraphLaunch(graph *g, stream *s) {
  const char *order = getenv("EMULATED_ORDER");
  int last = order && strcmp(order, "last") == 0;
  char *done = calloc(1, (size_t)g->count + 1);
  for (int left = g->count, next = -1; left > 0; left--, next = -1) {
    for (int i = 0; i < g->count && (next < 0 || last); i++) {
      int ready = !done[i];
      for (int k = 0; k < g->all[i].before_count; k++) ready &= done[g->all[i].before[k]];
      if (ready) next = i;
    }
    done[next] = 1, submit(s, g->all[next]);
  }
  return free(done), 0;
}
API int cuGraphDestroy(graph *g) { return free(g->all), free(g), 0; }
API int cuGraphExecDestroy(graph *g) { return free(g->all), free(g), 0; }
API int cuEventCreate(event **e, unsigned flags) {
  return *e = calloc(1, sizeof **e), flags & ~2u ? INVALID : 0;
}
API int cuEventRecord(event *e, stream *s) {
  if (!s) s = default_stream();
  e->in = s, e->recorded = recording && s->records;
  memcpy(e->last, s->last, sizeof e->last), e->last_count = s->last_count;
  return e->recorded ? 0 : submit(s, (work){.clock = &e->at});
}
/* A replay records it, too. */
API int cuEventRecordWithFlags(event *e, stream *s, unsigned flags) {
  if (flags != 1 || !recording || !s || !s->records) return INVALID;
  return e->in = s, submit(s, (work){.clock = &e->at});
}
API int cuEventDestroy_v2(event *e) { return free(e), 0; }
API int cuEventSynchronize(event *e) { return finish(e->in), 0; }
API int cuEventElapsedTime(float *ms, event *a, event *b) {
  return *ms = (float)(b->at - a->at), 0;
}
API int cuGetErrorString(int code, const char **text) {
  return *text = code == INVALID     ? "invalid argument"
                 : code == MEMORY    ? "out of memory"
                 : code == NOT_FOUND ? "named symbol not found"
                                     : "an error of the emulated driver",
         0;
}

/* ---- NVML ---- */

API int nvmlInit_v2(void) { return 0; }
API int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device) {
  return (void)id, *device = (void *)1, 0;
}
API int nvmlDeviceGetClockInfo(void *d, int which, unsigned *mhz) {
  return (void)d, *mhz = which == 2 ? 2000 : 1000, 0;
}
API int nvmlDeviceGetMaxClockInfo(void *d, int which, unsigned *mhz) {
  return nvmlDeviceGetClockInfo(d, which, mhz);
}
API int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *reasons) {
  return (void)d, *reasons = (unsigned long long)setting("EMULATED_THROTTLE", 0), 0;
}
API int nvmlDeviceGetTemperature(void *d, int which, unsigned *degrees) {
  return (void)d, (void)which, *degrees = 40, 0;
}
API int nvmlDeviceGetPowerUsage(void *d, unsigned *milliwatts) {
  return (void)d, *milliwatts = 100000, 0;
}

#include "nvrtc.h"
