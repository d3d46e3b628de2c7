/* How a GPU is opened, and its memory and clocks are used. */
#define _GNU_SOURCE
#include "cuda.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { SLACK = 4096 };

static int open_driver(rt_host *h, rt_gpu *g) {
  const char *asked = getenv("SQUALL_LIBCUDA");
  void *library = dlopen(asked ? asked : "libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!library) return rt_fail(&h->error, "device", "no NVIDIA driver: %s", dlerror());
#define RESOLVE(name, arguments)                                                                  \
  *(void **)&g->name = dlsym(library, #name);                                                     \
  if (!g->name)                                                                                   \
    return rt_fail(&h->error, "device", "the CUDA library is too old: it has no %s", #name);
  RT_DRIVER(RESOLVE)
  *(void **)&g->cuTensorMapEncodeTiled = dlsym(library, "cuTensorMapEncodeTiled");
  return 1;
}

/* Without it there are no clocks, and that is all. */
static void open_nvml(rt_gpu *g) {
  const char *asked = getenv("SQUALL_NVML");
  char id[64];
  void *library = dlopen(asked ? asked : "libnvidia-ml.so.1", RTLD_NOW);
  if (!library) return;
#define RESOLVE_NVML(name, arguments)                                                             \
  *(void **)&g->nvml.name = dlsym(library, #name);                                                \
  if (!g->nvml.name) return;
  RT_NVML(RESOLVE_NVML)
  if (g->nvml.nvmlInit_v2() != 0 || g->cuDeviceGetPCIBusId(id, sizeof id, g->device) != 0) return;
  if (g->nvml.nvmlDeviceGetHandleByPciBusId_v2(id, &g->nvml.device) != 0) g->nvml.device = NULL;
}

/* A fault of the device ends the context: the process must be replaced. */
int rt_gpu_good(rt_gpu *g, cu_result code, const char *what) {
  if (code == 0) return 1;
  const char *text = NULL;
  g->cuGetErrorString(code, &text);
  int lasting = code == 700 || (code >= 702 && code <= 720 && code != 709) || code == 999;
  return rt_fail(&g->host->error, lasting ? "fault" : code == 2 ? "memory" : "launch",
                 "%s: %s (CUDA error %d)", what, text ? text : "unknown", code);
}

int rt_gpu_open(rt_host *h, int ordinal, rt_gpu *g) {
  int count = 0;
  cu_handle context;
  memset(g, 0, sizeof *g);
  g->host = h;
  g->ordinal = ordinal;
  if (!open_driver(h, g)) return 0;
  if (!rt_gpu_good(g, g->cuInit(0), "the driver does not start")) return 0;
  if (!rt_gpu_good(g, g->cuDeviceGetCount(&count), "devices")) return 0;
  if (ordinal < 0 || ordinal >= count)
    return rt_fail(&h->error, "device", "there is no CUDA device %d: the driver sees %d", ordinal,
                   count);
  if (!rt_gpu_good(g, g->cuDeviceGet(&g->device, ordinal), "the device") ||
      !rt_gpu_good(g, g->cuDevicePrimaryCtxRetain(&context, g->device), "its context") ||
      !rt_gpu_good(g, g->cuCtxSetCurrent(context), "its context") ||
      !rt_gpu_good(g, g->cuStreamCreate(&g->stream, 1), "a stream") ||
      !rt_gpu_good(g, g->cuEventCreate(&g->began, 0), "an event") ||
      !rt_gpu_good(g, g->cuEventCreate(&g->ended, 0), "an event"))
    return 0;
  open_nvml(g);
  h->gpu = g;
  return 1;
}

int rt_gpu_attribute(rt_gpu *g, int which, int *value) {
  return rt_gpu_good(g, g->cuDeviceGetAttribute(value, which, g->device), "its attributes");
}

static unsigned clock_now(rt_nvml *n, int which) {
  unsigned mhz = 0;
  if (n->device && n->nvmlDeviceGetClockInfo(n->device, which, &mhz) != 0) mhz = 0;
  return mhz;
}

unsigned rt_gpu_most_mhz(rt_gpu *g, int which) {
  unsigned mhz = 0;
  rt_nvml *n = &g->nvml;
  if (n->device && n->nvmlDeviceGetMaxClockInfo(n->device, which, &mhz) != 0) mhz = 0;
  return mhz;
}

rt_clocks rt_gpu_clocks(rt_gpu *g) {
  rt_nvml *n = &g->nvml;
  unsigned long long reasons = 0;
  if (n->device && n->nvmlDeviceGetCurrentClocksThrottleReasons(n->device, &reasons) != 0)
    reasons = 0;
  rt_clocks c = {clock_now(n, RT_CLOCK_SM), clock_now(n, RT_CLOCK_MEMORY), 0};
  /* Idleness, chosen clocks and displays are no throttling. */
  c.throttle = reasons & 0xEC;
  return c;
}

/* ---- memory ---- */

cu_pointer rt_gpu_at(const rt_device_buffer *b) { return b->base + SLACK; }

static int device_fill(rt_gpu *g, cu_pointer at, int byte, size_t size, const char *what) {
  if (size == 0) return 1;
  return rt_gpu_good(g, g->cuMemsetD8Async(at, (unsigned char)byte, size, g->stream), what);
}

/* Reads device memory, after all that was begun before. */
static int take(rt_gpu *g, void *to, cu_pointer from, size_t size) {
  if (size == 0) return 1;
  return rt_gpu_good(g, g->cuMemcpyDtoHAsync_v2(to, from, size, g->stream), "reading back") &&
         rt_gpu_good(g, g->cuStreamSynchronize(g->stream), "reading back");
}

int rt_gpu_place(rt_gpu *g, rt_device_buffer *b, size_t size, int byte) {
  if (b->base && (b->room < size || b->room > 4 * size + (1 << 20))) {
    g->cuMemFree_v2(b->base);
    b->base = 0;
  }
  if (!b->base) {
    b->room = (size + 255) / 256 * 256;
    if (!rt_gpu_good(g, g->cuMemAlloc_v2(&b->base, b->room + 2 * SLACK), "device memory")) {
      b->base = 0;
      return 0;
    }
  }
  b->size = size;
  return device_fill(g, b->base, byte, b->room + 2 * SLACK, "device memory");
}

static int device_untouched(rt_gpu *g, const rt_device_buffer *b, const char *name) {
  unsigned char edge[SLACK];
  for (int behind = 0; behind < 2; behind++) {
    cu_pointer from = behind ? rt_gpu_at(b) + b->size : b->base;
    if (!take(g, edge, from, SLACK)) return 0;
    for (int i = 0; i < SLACK; i++)
      if (edge[i] != RT_CANARY)
        return rt_fail(&g->host->error, "damage", "wrote %s %s (byte %d of the edge)",
                       behind ? "behind the end of" : "in front of", name, i);
  }
  return 1;
}

/* ---- a session's kernels ---- */

typedef struct {
  cu_handle module;
  cu_handle *functions;                /* one a launch */
  rt_stream_run_function *run;         /* where it is linked in */
  rt_stream_prepare_function *prepare;
  cu_handle graph[2];                  /* by input set */
  long calls[2];                       /* that it holds */
  /* What a launch is given, with room for the largest. */
  const void **values;
  void **arguments;
  rt_encoded_map *maps;
  rt_device_buffer prepared, workspace;
} device_kernel;

struct rt_device {
  rt_gpu *g;
  device_kernel kernels[2];
  rt_device_buffer data[2][RT_TENSORS], weights[RT_TENSORS], outputs[RT_TENSORS], flush;
  const void *data_at[2][RT_TENSORS], *weights_at[RT_TENSORS];
  void *outputs_at[RT_TENSORS];
};

static void *pointer(const rt_device_buffer *b) { return (void *)(uintptr_t)rt_gpu_at(b); }

static int give(rt_gpu *g, rt_device_buffer *to, const rt_guarded *from, const char *what) {
  if (!rt_gpu_place(g, to, from->size, 0xFF)) return 0;
  if (from->size == 0) return 1;
  return rt_gpu_good(
      g, g->cuMemcpyHtoDAsync_v2(rt_gpu_at(to), from->at, from->size, g->stream), what);
}

static int gpu_task(rt_session *s) {
  struct rt_device *d = s->device;
  for (int set = 0; set < 2; set++)
    for (uint32_t i = 0; i < s->data_count; i++) {
      if (!give(d->g, &d->data[set][i], &s->data[set][i], "an input")) return 0;
      d->data_at[set][i] = pointer(&d->data[set][i]);
    }
  for (uint32_t i = 0; i < s->weight_count; i++) {
    if (!give(d->g, &d->weights[i], &s->weights[i], "a weight")) return 0;
    d->weights_at[i] = pointer(&d->weights[i]);
  }
  for (uint32_t o = 0; o < s->output_count; o++) {
    if (!rt_gpu_place(d->g, &d->outputs[o], s->outputs[o].at.size, RT_CANARY)) return 0;
    d->outputs_at[o] = pointer(&d->outputs[o]);
  }
  return 1;
}

static void drop_graph(rt_gpu *g, device_kernel *k, int set) {
  if (k->graph[set]) g->cuGraphExecDestroy(k->graph[set]);
  k->graph[set] = NULL;
  k->calls[set] = 0;
}

static void gpu_unload(rt_session *s, int which) {
  rt_gpu *g = s->device->g;
  device_kernel *k = &s->device->kernels[which];
  s->host->phase = "its unloading";
  drop_graph(g, k, 0);
  drop_graph(g, k, 1);
  if (k->module) g->cuModuleUnload(k->module);
  rt_idle(s->host);
  free(k->functions), free(k->values), free(k->arguments), free(k->maps);
  rt_device_buffer prepared = k->prepared, workspace = k->workspace;
  memset(k, 0, sizeof *k);
  k->prepared = prepared, k->workspace = workspace;
}

static int run_launch(rt_gpu *g, device_kernel *k, const rt_kernel *is, const rt_launch *l,
                      const rt_memory *m) {
  for (uint32_t i = 0; i < l->argument_count; i++) {
    const rt_argument *a = &l->arguments[i];
    if (a->kind != 'r') continue;
    cu_pointer to = (cu_pointer)(uintptr_t)m->outputs[a->index];
    cu_pointer from = (cu_pointer)(uintptr_t)m->data[a->from];
    size_t bytes = rt_restored_bytes(is, a);
    if (!rt_gpu_good(g, g->cuMemcpyDtoDAsync_v2(to, from, bytes, g->stream), "restoring an input"))
      return 0;
  }
  if (l->map_count && !g->cuTensorMapEncodeTiled)
    return rt_fail(&g->host->error, "launch",
                   "the driver is too old for tensor maps, which CUDA 12 has");
  for (uint32_t i = 0; i < l->map_count; i++) {
    int code = rt_encode_map(&l->maps[i], m, g->cuTensorMapEncodeTiled, &k->maps[i]);
    if (!rt_gpu_good(g, code, "a tensor map")) return 0;
  }
  rt_bind(l, m, k->values, k->maps, k->arguments);
  const uint32_t *b = l->blocks, *t = l->threads;
  cu_handle f = k->functions[l - is->launches];
  return rt_gpu_good(g,
                     g->cuLaunchKernel(f, b[0], b[1], b[2], t[0], t[1], t[2], l->shared, g->stream,
                                       k->arguments, NULL),
                     "the launch");
}

/* One call, or the preparation of weights, on the stream. */
static int launch_all(rt_session *s, int which, int set, int prepare) {
  struct rt_device *d = s->device;
  rt_gpu *g = d->g;
  device_kernel *k = &d->kernels[which];
  const rt_kernel *is = s->kernels[which].kernel;
  void *prepared = pointer(&k->prepared), *workspace = pointer(&k->workspace);
  rt_memory m = {d->data_at[set], d->weights_at, d->outputs_at, prepared, workspace};
  if (k->prepare && prepare)
    return rt_gpu_good(g, k->prepare(m.weights, prepared, g->stream), "the launch");
  if (k->run && !prepare)
    return rt_gpu_good(g, k->run(m.data, m.outputs, prepared, workspace, g->stream), "the launch");
  for (uint32_t i = 0; i < is->launch_count; i++)
    if (is->launches[i].prepare == prepare && !run_launch(g, k, is, &is->launches[i], &m)) return 0;
  return 1;
}

/* Finds the functions of a cubin, and room for what their launches are given. */
static int load_module(rt_gpu *g, device_kernel *k, const rt_kernel *is) {
  uint32_t most = 1, maps = 1;
  if (!rt_gpu_good(g, g->cuModuleLoad(&k->module, is->library), "its loading")) return 0;
  k->functions = calloc(is->launch_count, sizeof *k->functions);
  for (uint32_t i = 0; k->functions && i < is->launch_count; i++) {
    const rt_launch *l = &is->launches[i];
    cu_handle *f = &k->functions[i];
    if (!rt_gpu_good(g, g->cuModuleGetFunction(f, k->module, l->entry), l->entry)) return 0;
    /* More than 48 KiB have to be asked for, and functions have some beside what a launch gives
     * them. */
    if (l->shared &&
        !rt_gpu_good(g, g->cuFuncSetAttribute(*f, 8, (int)l->shared), "its shared memory"))
      return 0;
    /* Clusters of more than 8 blocks; a device without them refuses the launch. */
    g->cuFuncSetAttribute(*f, 14, 1);
    if (l->argument_count > most) most = l->argument_count;
    if (l->map_count > maps) maps = l->map_count;
  }
  k->values = calloc(most, sizeof *k->values);
  k->arguments = calloc(most, sizeof *k->arguments);
  k->maps = aligned_alloc(64, maps * sizeof *k->maps);
  if (k->functions && k->values && k->arguments && k->maps) return 1;
  return rt_fail(&g->host->error, "memory", "no memory for its launches");
}

static int gpu_load(rt_session *s, int which) {
  rt_gpu *g = s->device->g;
  device_kernel *k = &s->device->kernels[which];
  const rt_kernel *is = s->kernels[which].kernel;
  if (is->library) {
    if (!load_module(g, k, is)) return 0;
  } else {
    const rt_symbol *linked = rt_linked(s->host, is);
    if (!linked) return 0;
    k->run = (rt_stream_run_function *)linked->run;
    k->prepare = (rt_stream_prepare_function *)linked->prepare;
  }
  if (!rt_gpu_place(g, &k->prepared, is->prepared, RT_CANARY)) return 0;
  if (!rt_gpu_place(g, &k->workspace, is->workspace, RT_CANARY)) return 0;
  cu_pointer prepared = rt_gpu_at(&k->prepared);
  if (!device_fill(g, prepared, RT_NOTHING_WRITTEN, is->prepared, "poisoning")) return 0;
  return launch_all(s, which, 0, 1) &&
         rt_gpu_good(g, g->cuStreamSynchronize(g->stream), "the preparation of weights") &&
         device_untouched(g, &k->prepared, "the prepared weights");
}

static int gpu_poison(rt_session *s, int which, int byte) {
  struct rt_device *d = s->device;
  rt_device_buffer *w = &d->kernels[which].workspace;
  for (uint32_t i = 0; i < s->output_count; i++) {
    rt_device_buffer *o = &d->outputs[i];
    if (!device_fill(d->g, rt_gpu_at(o), byte, o->size, "poisoning")) return 0;
  }
  return device_fill(d->g, rt_gpu_at(w), RT_NOTHING_WRITTEN, w->size, "poisoning");
}

static int gpu_fetch(rt_session *s, int which) {
  struct rt_device *d = s->device;
  (void)which; /* both kernels write the same outputs */
  for (uint32_t o = 0; o < s->output_count; o++) {
    rt_guarded *to = &s->outputs[o].at;
    if (!take(d->g, to->at, rt_gpu_at(&d->outputs[o]), to->size)) return 0;
    if (!device_untouched(d->g, &d->outputs[o], to->name)) return 0;
  }
  return 1;
}

static int gpu_intact(rt_session *s, int which) {
  device_kernel *k = &s->device->kernels[which];
  return device_untouched(s->device->g, &k->workspace, "the workspace") &&
         device_untouched(s->device->g, &k->prepared, "the prepared weights");
}

static int capture(rt_session *s, int which, int set, long calls) {
  rt_gpu *g = s->device->g;
  device_kernel *k = &s->device->kernels[which];
  cu_handle graph = NULL;
  drop_graph(g, k, set);
  if (!rt_gpu_good(g, g->cuStreamBeginCapture_v2(g->stream, 2), "recording")) return 0;
  int fine = 1;
  for (long i = 0; fine && i < calls; i++) fine = launch_all(s, which, set, 0);
  cu_result code = g->cuStreamEndCapture(g->stream, &graph);
  if (!fine) return 0;
  fine = rt_gpu_good(g, code, "recording") &&
         rt_gpu_good(g, g->cuGraphInstantiateWithFlags(&k->graph[set], graph, 0), "recording");
  if (graph) g->cuGraphDestroy(graph);
  if (fine) k->calls[set] = calls;
  return fine;
}

/* So many calls, recorded once and replayed. */
static double gpu_window(rt_session *s, int which, int set, long calls) {
  rt_gpu *g = s->device->g;
  device_kernel *k = &s->device->kernels[which];
  float ms = 0;
  int fresh = k->calls[set] != calls;
  if (fresh && !capture(s, which, set, calls)) return -1;
  s->host->phase = "the kernel";
  /* The first replay of a long recording carries its upload. */
  if (fresh && calls > 1 &&
      !(rt_gpu_good(g, g->cuGraphLaunch(k->graph[set], g->stream), "the launch") &&
        rt_gpu_good(g, g->cuStreamSynchronize(g->stream), "the kernel")))
    return -1;
  int fine = rt_gpu_good(g, g->cuEventRecord(g->began, g->stream), "timing") &&
             rt_gpu_good(g, g->cuGraphLaunch(k->graph[set], g->stream), "the launch") &&
             rt_gpu_good(g, g->cuEventRecord(g->ended, g->stream), "timing") &&
             rt_gpu_good(g, g->cuEventSynchronize(g->ended), "the kernel") &&
             rt_gpu_good(g, g->cuEventElapsedTime(&ms, g->began, g->ended), "timing");
  rt_idle(s->host);
  return fine ? 1e6 * (double)ms / (double)calls : -1;
}

static int gpu_flush(rt_session *s, size_t bytes) {
  struct rt_device *d = s->device;
  if (d->flush.size < bytes && !rt_gpu_place(d->g, &d->flush, bytes, 0)) return 0;
  return device_fill(d->g, rt_gpu_at(&d->flush), 1, bytes, "flushing") &&
         rt_gpu_good(d->g, d->g->cuStreamSynchronize(d->g->stream), "flushing");
}

/* Each call of a window is a node of a graph that has to be made: 100 at most. */
static const rt_backend backend = {gpu_load,   gpu_unload, gpu_poison, gpu_fetch, gpu_intact,
                                   gpu_window, gpu_flush,  100,        10};

int rt_gpu_attach(rt_session *s, rt_gpu *g) {
  s->device = calloc(1, sizeof *s->device);
  if (!s->device) return rt_fail(&g->host->error, "memory", "no memory for a GPU's tables");
  s->device->g = g;
  s->gpu = &backend;
  s->gpu_task = gpu_task;
  return 1;
}
