/* The GPU back end of a session (session.h): loads, poisons, checks and times kernels in device
 * memory. The CPU back end is in session.c; gpu.c has the driver, module.c the launches. */
#define _GNU_SOURCE
#include "cuda.h"
#include "module.h"
#include <stdlib.h>
#include <string.h>

static int device_untouched(rt_gpu *g, const rt_device_buffer *b, const char *name) {
  unsigned char edge[RT_SLACK];
  for (int behind = 0; behind < 2; behind++) {
    cu_pointer from = behind ? rt_gpu_at(b) + b->size : b->base;
    if (!rt_gpu_take(g, edge, from, RT_SLACK)) return 0;
    for (int i = 0; i < RT_SLACK; i++)
      if (edge[i] != RT_CANARY)
        return rt_fail(&g->host->error, "damage", "wrote %s %s (byte %d of the edge)",
                       behind ? "behind the end of" : "in front of", name, i);
  }
  return 1;
}

/* ---- a session's kernels ---- */

typedef struct {
  rt_module module;
  rt_stream_run_function *run;         /* where it is linked in */
  rt_stream_prepare_function *prepare;
  cu_handle graph[2];                  /* by input set */
  long calls[2];                       /* that it holds */
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
  rt_module_close(g, &k->module);
  rt_idle(s->host);
  rt_device_buffer prepared = k->prepared, workspace = k->workspace;
  memset(k, 0, sizeof *k);
  k->prepared = prepared, k->workspace = workspace;
}

/* One call, or the preparation of weights, on the stream. */
static int launch_all(rt_session *s, int which, int set, int prepare) {
  struct rt_device *d = s->device;
  rt_gpu *g = d->g;
  device_kernel *k = &d->kernels[which];
  const rt_kernel *is = s->kernels[which].kernel;
  void *prepared = pointer(&k->prepared), *workspace = pointer(&k->workspace);
  rt_memory m = {d->data_at[set], d->weights_at, d->outputs_at, prepared, workspace, NULL};
  if (k->prepare && prepare)
    return rt_gpu_good(g, k->prepare(m.weights, prepared, g->stream), "the launch");
  if (k->run && !prepare)
    return rt_gpu_good(g, k->run(m.data, m.outputs, prepared, workspace, g->stream), "the launch");
  return rt_module_launch(g, &k->module, is, prepare, &m, g->stream);
}

static int gpu_load(rt_session *s, int which) {
  rt_gpu *g = s->device->g;
  device_kernel *k = &s->device->kernels[which];
  const rt_kernel *is = s->kernels[which].kernel;
  if (is->library) {
    if (!rt_module_open(g, is, &k->module)) return 0;
  } else {
    const rt_symbol *linked = rt_linked(s->host, is);
    if (!linked) return 0;
    k->run = (rt_stream_run_function *)linked->run;
    k->prepare = (rt_stream_prepare_function *)linked->prepare;
  }
  if (!rt_gpu_place(g, &k->prepared, is->prepared, RT_CANARY)) return 0;
  if (!rt_gpu_place(g, &k->workspace, is->workspace, RT_CANARY)) return 0;
  cu_pointer prepared = rt_gpu_at(&k->prepared);
  if (!rt_gpu_fill(g, prepared, RT_NOTHING_WRITTEN, is->prepared, "poisoning")) return 0;
  return launch_all(s, which, 0, 1) &&
         rt_gpu_good(g, g->cuStreamSynchronize(g->stream), "the preparation of weights") &&
         device_untouched(g, &k->prepared, "the prepared weights");
}

static int gpu_poison(rt_session *s, int which, int byte) {
  struct rt_device *d = s->device;
  rt_device_buffer *w = &d->kernels[which].workspace;
  for (uint32_t i = 0; i < s->output_count; i++) {
    rt_device_buffer *o = &d->outputs[i];
    if (!rt_gpu_fill(d->g, rt_gpu_at(o), byte, o->size, "poisoning")) return 0;
  }
  return rt_gpu_fill(d->g, rt_gpu_at(w), RT_NOTHING_WRITTEN, w->size, "poisoning");
}

static int gpu_fetch(rt_session *s, int which) {
  struct rt_device *d = s->device;
  (void)which; /* both kernels write the same outputs */
  for (uint32_t o = 0; o < s->output_count; o++) {
    rt_guarded *to = &s->outputs[o].at;
    if (!rt_gpu_take(d->g, to->at, rt_gpu_at(&d->outputs[o]), to->size)) return 0;
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

/* Times `calls` calls, which are recorded once as a graph and replayed. */
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
  return rt_gpu_fill(d->g, rt_gpu_at(&d->flush), 1, bytes, "flushing") &&
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
