/* A network on a GPU: makes it ready (weights, cubins, one CUDA graph of all launches), runs it,
 * and times it whole and step by step. gpu_network_main.c is the program; network.c is the same
 * for CPUs. */
#define _GNU_SOURCE
#include "gpu_network.h"
#include "weights.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int lacks_memory(rt_gpu_network *n) {
  return rt_fail(&n->host->error, "memory", "there is not enough memory");
}

/* Waits for the one stream through which all work goes; work on other streams would not be waited
 * for. */
static int finished(rt_gpu_network *n, const char *what) {
  return rt_gpu_good(n->gpu, n->gpu->cuStreamSynchronize(n->gpu->stream), what);
}

/* ---- making ready ---- */

/* Fills a region from its file, piece by piece. */
static int upload(rt_gpu_network *n, const rt_region *r, cu_pointer to) {
  enum { PIECE = 16 << 20 };
  rt_gpu *g = n->gpu;
  FILE *f = fopen(r->file, "rb");
  if (!f) return rt_fail(&n->host->error, "file", "%s: %s", r->file, strerror(errno));
  unsigned char *piece = malloc(PIECE);
  int fine = piece ? 1 : lacks_memory(n);
  if (fine && fseek(f, (long)r->at, SEEK_SET) != 0)
    fine = rt_fail(&n->host->error, "file", "%s is cut", r->file);
  for (uint64_t at = 0; fine && at < r->bytes; at += PIECE) {
    size_t bytes = r->bytes - at < PIECE ? (size_t)(r->bytes - at) : (size_t)PIECE;
    if (fread(piece, 1, bytes, f) != bytes)
      fine = rt_fail(&n->host->error, "file", "%s is cut", r->file);
    /* The piece is used again: it must have left. */
    fine = fine &&
           rt_gpu_good(g, g->cuMemcpyHtoDAsync_v2(to + at, piece, bytes, g->stream), "weights") &&
           finished(n, "weights");
  }
  free(piece);
  fclose(f);
  return fine;
}

static int make_regions(rt_gpu_network *n, const rt_plan *p) {
  n->regions = calloc(p->region_count + 1u, sizeof *n->regions);
  if (!n->regions) return lacks_memory(n);
  n->region_count = p->region_count;
  for (uint32_t i = 0; i < p->region_count; i++) {
    const rt_region *r = &p->regions[i];
    if (r->role != RT_CONSTANT && r->role != RT_WEIGHT && r->role != RT_PREPARED) continue;
    if (!rt_gpu_place(n->gpu, &n->regions[i], r->bytes, 0)) return 0;
    if (r->file && r->bytes && !upload(n, r, rt_gpu_at(&n->regions[i]))) return 0;
  }
  return 1;
}

static int load_kernels(rt_gpu_network *n, const rt_plan *p) {
  n->modules = calloc(p->kernel_count + 1u, sizeof *n->modules);
  if (!n->modules) return lacks_memory(n);
  n->kernel_count = p->kernel_count;
  for (uint32_t i = 0; i < p->kernel_count; i++) {
    const rt_kernel *k = &p->kernels[i];
    if (!k->cuda || !k->library)
      return rt_fail(&n->host->error, "plan", "%s is no cubin: it cannot run on a GPU", k->symbol);
    if (!rt_module_open(n->gpu, k, &n->modules[i])) return 0;
  }
  return 1;
}

/* The model over device memory. */
static int make_model(rt_gpu_network *n, rt_plan *plan) {
  const void **contents = calloc(plan->region_count + 1u, sizeof *contents);
  rt_run_function **runs = calloc(plan->kernel_count + 1u, sizeof *runs);
  int fine = contents && runs ? 1 : lacks_memory(n);
  for (uint32_t i = 0; fine && i < plan->region_count; i++)
    if (n->regions[i].base) contents[i] = (const void *)(uintptr_t)rt_gpu_at(&n->regions[i]);
  fine = fine && rt_model_open(&n->model, plan, contents, runs, &n->host->error);
  free(contents), free(runs);
  return fine;
}

/* Launches the preparation of a step's weights. */
static int prepare(rt_gpu_network *n, const rt_step *s) {
  const rt_plan *p = &n->model.plan;
  const rt_kernel *k = &p->kernels[s->kernel];
  const void *weights[RT_PARAMETERS];
  uint32_t w = 0;
  if (k->prepared == 0) return 1;
  for (uint32_t i = 0; i < k->parameter_count; i++) {
    if (k->parameters[i].role != RT_WEIGHT) continue;
    const rt_buffer *b = &p->buffers[s->buffers[i]];
    if (b->region == RT_NONE || !n->regions[b->region].base)
      return rt_fail(&n->host->error, "plan", "a weight of %s is not constant", k->symbol);
    weights[w++] = (const void *)(uintptr_t)(rt_gpu_at(&n->regions[b->region]) + b->offset);
  }
  const rt_buffer *to = &p->buffers[s->buffers[k->parameter_count]];
  cu_pointer prepared = rt_gpu_at(&n->regions[to->region]) + to->offset;
  rt_memory on = {NULL, weights, NULL, (void *)(uintptr_t)prepared, NULL, NULL};
  n->host->phase = "its preparation of weights";
  int fine = rt_module_launch(n->gpu, &n->modules[s->kernel], k, 1, &on, n->gpu->stream);
  rt_idle(n->host);
  return fine;
}

static int prepare_all(rt_gpu_network *n) {
  const rt_plan *p = &n->model.plan;
  for (uint32_t i = 0; i < p->step_count; i++) {
    if (p->steps[i].kind != RT_CALL)
      return rt_fail(&n->host->error, "plan", "%s is no kernel: it cannot run on a GPU",
                     p->steps[i].name);
    if (!prepare(n, &p->steps[i])) return 0;
  }
  if (!finished(n, "the preparation of weights")) return 0;
  for (uint32_t i = 0; i < p->region_count; i++) {
    if (p->regions[i].role != RT_WEIGHT || !n->regions[i].base) continue;
    n->gpu->cuMemFree_v2(n->regions[i].base);
    n->regions[i].base = 0;
  }
  return 1;
}

static unsigned char **pinned(rt_gpu_network *n, const rt_port *ports, uint32_t count) {
  unsigned char **all = calloc(count + 1u, sizeof *all);
  for (uint32_t i = 0; all && i < count; i++) {
    void *at = NULL;
    size_t bytes = ports[i].bytes ? ports[i].bytes : 1;
    if (!rt_gpu_good(n->gpu, n->gpu->cuMemAllocHost_v2(&at, bytes), "pinned memory")) {
      free(all);
      return NULL;
    }
    memset(at, 0, bytes);
    all[i] = at;
  }
  if (!all) lacks_memory(n);
  return all;
}

static int make_ports(rt_gpu_network *n) {
  const rt_model *m = &n->model;
  void *at = NULL;
  size_t bytes = (m->plan.step_count + 1u) * sizeof *n->status;
  /* Not a number: what no step wrote shows in the output. */
  if (!rt_gpu_place(n->gpu, &n->arena, m->workspace_bytes, 0xff)) return 0;
  if (!rt_gpu_place(n->gpu, &n->statuses, bytes, 0)) return 0;
  if (!rt_gpu_good(n->gpu, n->gpu->cuMemAllocHost_v2(&at, bytes), "pinned memory")) return 0;
  n->status = at;
  memset(n->status, 0, bytes);
  n->given = pinned(n, m->inputs, m->input_count);
  if (!n->given) return 0;
  n->results = pinned(n, m->outputs, m->output_count);
  return n->results != NULL;
}

/* ---- steps ---- */

static void *place_of(const rt_gpu_network *n, const rt_address *a) {
  if (a->at) return (void *)(uintptr_t)a->at;
  return (void *)(uintptr_t)(rt_gpu_at(&n->arena) + a->offset);
}

static int run_step(rt_gpu_network *n, uint32_t number, cu_handle stream) {
  const rt_instruction *i = &n->model.instructions[number];
  uint32_t kernel = n->model.plan.steps[number].kernel;
  const void *data[RT_PARAMETERS];
  void *outputs[RT_PARAMETERS];
  for (uint32_t d = 0; d < i->data_count; d++) data[d] = place_of(n, &i->operands[d]);
  for (uint32_t o = 0; o < i->output_count; o++)
    outputs[o] = place_of(n, &i->operands[i->data_count + o]);
  rt_memory on = {data,
                  NULL,
                  outputs,
                  i->is_prepared ? place_of(n, &i->prepared) : NULL,
                  i->has_workspace ? place_of(n, &i->workspace) : NULL,
                  (uint32_t *)(uintptr_t)rt_gpu_at(&n->statuses) + number};
  const rt_kernel *k = &n->model.plan.kernels[kernel];
  return rt_module_launch(n->gpu, &n->modules[kernel], k, 0, &on, stream);
}

/* Runs one step `times` times. */
static int repeat(rt_gpu_network *n, uint32_t step, int times) {
  int fine = 1;
  for (int t = 0; fine && t < times; t++) fine = run_step(n, step, n->gpu->stream);
  return fine;
}

static int run_all(rt_gpu_network *n) {
  int fine = 1;
  for (uint32_t i = 0; fine && i < n->model.plan.step_count; i++)
    fine = run_step(n, i, n->gpu->stream);
  return fine;
}

static int wait_for(rt_gpu_network *n, uint32_t stream, uint32_t event) {
  rt_gpu *g = n->gpu;
  return rt_gpu_good(g, g->cuStreamWaitEvent(n->streams[stream], n->events[event], 0), "branches");
}

static int note(rt_gpu_network *n, uint32_t stream, uint32_t event) {
  rt_gpu *g = n->gpu;
  return rt_gpu_good(g, g->cuEventRecord(n->events[event], n->streams[stream]), "branches");
}

/* All steps on several streams, each behind those that it waits for. */
static int run_parted(rt_gpu_network *n) {
  const uint32_t steps = n->model.plan.step_count;
  uint32_t last[RT_STREAMS];
  for (uint32_t s = 0; s < RT_STREAMS; s++) last[s] = RT_NONE;
  int fine = note(n, 0, steps);
  for (uint32_t i = 0; fine && i < steps; i++) {
    const rt_branch *b = &n->branches[i];
    /* A stream takes part from the first time on that it waits for one that does. */
    if (b->stream && last[b->stream] == RT_NONE) fine = wait_for(n, b->stream, steps);
    for (uint32_t k = 0; fine && k < b->count; k++)
      if (n->branches[b->before[k]].stream != b->stream)
        fine = wait_for(n, b->stream, b->before[k]);
    fine = fine && run_step(n, i, n->streams[b->stream]) && note(n, b->stream, i);
    last[b->stream] = i;
  }
  for (uint32_t s = 1; fine && s < RT_STREAMS; s++)
    if (last[s] != RT_NONE) fine = wait_for(n, 0, last[s]);
  return fine;
}

/* Between both, what is launched on the GPU's stream is recorded; `fine` is what came of it. */
static int begin_capture(rt_gpu_network *n) {
  rt_gpu *g = n->gpu;
  return rt_gpu_good(g, g->cuStreamBeginCapture_v2(g->stream, 2), "recording");
}

static int end_capture(rt_gpu_network *n, int fine, cu_handle *made) {
  rt_gpu *g = n->gpu;
  cu_handle graph = NULL;
  *made = NULL;
  cu_result code = g->cuStreamEndCapture(g->stream, &graph);
  fine = fine && rt_gpu_good(g, code, "recording") &&
         rt_gpu_good(g, g->cuGraphInstantiateWithFlags(made, graph, 0), "recording");
  if (graph) g->cuGraphDestroy(graph);
  return fine;
}

/* Device time of replays, each in ns; negative at a fault. */
static double timed(rt_gpu_network *n, cu_handle graph, long replays) {
  rt_gpu *g = n->gpu;
  float ms = 0;
  if (!rt_gpu_good(g, g->cuEventRecord(g->began, g->stream), "timing")) return -1;
  for (long i = 0; i < replays; i++)
    if (!rt_gpu_good(g, g->cuGraphLaunch(graph, g->stream), "a run")) return -1;
  int fine = rt_gpu_good(g, g->cuEventRecord(g->ended, g->stream), "timing") &&
             rt_gpu_good(g, g->cuEventSynchronize(g->ended), "a run") &&
             rt_gpu_good(g, g->cuEventElapsedTime(&ms, g->began, g->ended), "timing");
  return fine ? 1e6 * (double)ms / (double)replays : -1;
}

/* Streams and events for branches; whether there are any branches. */
static int make_branches(rt_gpu_network *n, int *are_there) {
  rt_gpu *g = n->gpu;
  const uint32_t steps = n->model.plan.step_count;
  n->branches = rt_branches_of(&n->model);
  if (!n->branches) return lacks_memory(n);
  *are_there = rt_branches_part(n->branches, steps);
  if (!*are_there) return 1;
  n->streams[0] = g->stream;
  for (uint32_t s = 1; s < RT_STREAMS; s++)
    if (!rt_gpu_good(g, g->cuStreamCreate(&n->streams[s], 1), "a stream")) return 0;
  n->events = calloc(steps + 1u, sizeof *n->events);
  if (!n->events) return lacks_memory(n);
  for (uint32_t i = 0; i <= steps; i++)
    if (!rt_gpu_good(g, g->cuEventCreate(&n->events[i], 2), "an event")) return 0;
  return 1;
}

/* The least time of a graph in a few replays, in ns; negative at a fault. A long network takes
 * fewer of them: its replays differ less, and a user waits for them. */
static double least(rt_gpu_network *n, cu_handle graph) {
  enum { ROUNDS = 5, REPLAYS = 10 };
  const double budget_ns = 2e8;
  double best = timed(n, graph, 1), spent = 0;
  for (int r = 0; r < ROUNDS && best >= 0 && spent < budget_ns; r++) {
    const double fit = budget_ns / ROUNDS / (best + 1);
    const long replays = fit < 1 ? 1 : fit < REPLAYS ? (long)fit : REPLAYS;
    double ns = timed(n, graph, replays);
    spent += ns * (double)replays;
    if (ns < 0) return -1;
    if (r == 0 || ns < best) best = ns;
  }
  return best;
}

/* Whether a variable of the environment forbids or demands a way to run; -1 where it does not. */
static int asked(const char *name) {
  const char *text = getenv(name);
  return text && (*text == '0' || *text == '1') ? *text - '0' : -1;
}

/* Takes a graph in place of the one that is there, where it is faster or demanded. `best` is the
 * time of that one, 0 where it was not measured yet; nothing is measured for what is demanded. */
static int prefer(rt_gpu_network *n, cu_handle graph, int demanded, double *best) {
  double ns = 0;
  if (demanded != 1) {
    if (*best == 0) *best = least(n, n->inference);
    ns = least(n, graph);
  }
  const int is_better = demanded == 1 || (ns >= 0 && *best >= 0 && ns < *best);
  n->gpu->cuGraphExecDestroy(is_better ? n->inference : graph);
  if (is_better) n->inference = graph, *best = ns;
  return is_better;
}

/* The inference with launches that overlap, where kernels are made for that: all of them wait for
 * the launch before them by themselves. A driver that cannot record it leaves it out. */
static void try_overlaps(rt_gpu_network *n, double *best) {
  rt_gpu *g = n->gpu;
  int major = 0, demanded = asked("SQUALL_OVERLAPS");
  cu_handle graph = NULL;
  if (demanded == 0 || !g->cuLaunchKernelEx || !rt_gpu_attribute(g, 75, &major) || major < 9)
    return;
  g->overlaps = 1;
  int fine = begin_capture(n) && end_capture(n, run_all(n), &graph);
  g->overlaps = 0;
  if (fine) n->is_overlapped = prefer(n, graph, demanded, best);
}

/* Records the inference: one launch behind the other, with launches that overlap, or with branches,
 * whatever is fastest; SQUALL_OVERLAPS and SQUALL_BRANCHES, 0 or 1, decide it. */
static int make_graph(rt_gpu_network *n) {
  rt_gpu *g = n->gpu;
  cu_handle parted = NULL;
  const int demanded = asked("SQUALL_BRANCHES");
  int are_there = 0;
  double best = 0;
  if (!begin_capture(n) || !end_capture(n, run_all(n), &n->inference)) return 0;
  if (demanded != 0 && !make_branches(n, &are_there)) return 0;
  try_overlaps(n, &best);
  if (are_there) {
    if (!begin_capture(n) || !end_capture(n, run_parted(n), &parted)) return 0;
    n->is_parted = prefer(n, parted, demanded, &best);
    if (n->is_parted) n->is_overlapped = 0;
  }
  /* Inputs were none: what steps say of them does not count. */
  return rt_gpu_fill(g, rt_gpu_at(&n->statuses), 0, n->statuses.size, "the steps' results") &&
         rt_gpu_fill(g, rt_gpu_at(&n->arena), 0xff, n->arena.size, "device memory") &&
         finished(n, "a run");
}

int rt_gpu_network_open(rt_gpu_network *n, rt_gpu *g, rt_plan *plan) {
  memset(n, 0, sizeof *n);
  n->gpu = g;
  n->host = g->host;
  return make_regions(n, plan) && load_kernels(n, plan) && make_model(n, plan) && prepare_all(n) &&
         make_ports(n) && make_graph(n);
}

static void drop_pinned(rt_gpu_network *n, unsigned char **all, uint32_t count) {
  for (uint32_t i = 0; all && i < count; i++)
    if (all[i]) n->gpu->cuMemFreeHost(all[i]);
  free(all);
}

void rt_gpu_network_close(rt_gpu_network *n) {
  rt_gpu *g = n->gpu;
  if (!g) return;
  if (n->inference) g->cuGraphExecDestroy(n->inference);
  for (uint32_t i = 0; n->events && i <= n->model.plan.step_count; i++)
    if (n->events[i]) g->cuEventDestroy_v2(n->events[i]);
  free(n->events);
  rt_branches_free(n->branches, n->model.plan.step_count);
  drop_pinned(n, n->given, n->model.input_count);
  drop_pinned(n, n->results, n->model.output_count);
  for (uint32_t i = 0; n->first && i < n->model.output_count; i++) free(n->first[i]);
  free(n->first);
  if (n->status) g->cuMemFreeHost(n->status);
  if (n->arena.base) g->cuMemFree_v2(n->arena.base);
  if (n->statuses.base) g->cuMemFree_v2(n->statuses.base);
  for (uint32_t i = 0; n->modules && i < n->kernel_count; i++) rt_module_close(g, &n->modules[i]);
  for (uint32_t i = 0; n->regions && i < n->region_count; i++)
    if (n->regions[i].base) g->cuMemFree_v2(n->regions[i].base);
  free(n->modules), free(n->regions);
  rt_model_close(&n->model);
  memset(n, 0, sizeof *n);
}

/* ---- runs ---- */

static int bring_inputs(rt_gpu_network *n) {
  rt_gpu *g = n->gpu;
  for (uint32_t i = 0; i < n->model.input_count; i++) {
    const rt_port *p = &n->model.inputs[i];
    cu_pointer to = (cu_pointer)(uintptr_t)place_of(n, &p->place);
    if (p->bytes && !rt_gpu_good(g, g->cuMemcpyHtoDAsync_v2(to, n->given[i], p->bytes, g->stream),
                                 "an input"))
      return 0;
  }
  return 1;
}

static int fetch_outputs(rt_gpu_network *n) {
  rt_gpu *g = n->gpu;
  for (uint32_t i = 0; i < n->model.output_count; i++) {
    const rt_port *p = &n->model.outputs[i];
    cu_pointer from = (cu_pointer)(uintptr_t)place_of(n, &p->place);
    if (p->bytes &&
        !rt_gpu_good(g, g->cuMemcpyDtoHAsync_v2(n->results[i], from, p->bytes, g->stream),
                     "an output"))
      return 0;
  }
  size_t bytes = n->model.plan.step_count * sizeof *n->status;
  cu_pointer from = rt_gpu_at(&n->statuses);
  return bytes == 0 ||
         rt_gpu_good(g, g->cuMemcpyDtoHAsync_v2(n->status, from, bytes, g->stream),
                     "the steps' results");
}

/* What a step's call says of itself. */
static int succeeded(rt_gpu_network *n) {
  for (uint32_t i = 0; i < n->model.plan.step_count; i++) {
    if (!n->status[i]) continue;
    /* The next run begins anew. */
    rt_gpu_fill(n->gpu, rt_gpu_at(&n->statuses), 0, n->statuses.size, "the steps' results");
    return rt_fail(&n->host->error, "launch", "%s did not succeed", n->model.plan.steps[i].name);
  }
  return 1;
}

int rt_gpu_network_run(rt_gpu_network *n) {
  rt_gpu *g = n->gpu;
  return bring_inputs(n) && rt_gpu_good(g, g->cuGraphLaunch(n->inference, g->stream), "a run") &&
         fetch_outputs(n) && finished(n, "a run") && succeeded(n);
}

int rt_gpu_network_remember(rt_gpu_network *n) {
  const rt_model *m = &n->model;
  n->first = calloc(m->output_count + 1u, sizeof *n->first);
  for (uint32_t i = 0; n->first && i < m->output_count; i++) {
    n->first[i] = malloc(m->outputs[i].bytes + 1);
    if (!n->first[i]) return lacks_memory(n);
    memcpy(n->first[i], n->results[i], m->outputs[i].bytes);
  }
  return n->first ? 1 : lacks_memory(n);
}

int rt_gpu_network_is_same(const rt_gpu_network *n) {
  for (uint32_t i = 0; i < n->model.output_count; i++)
    if (memcmp(n->first[i], n->results[i], n->model.outputs[i].bytes) != 0) return 0;
  return 1;
}

int rt_gpu_network_weights(rt_gpu_network *n, const char *path, const char *plan_path) {
  const rt_plan *p = &n->model.plan;
  void **all = calloc(p->region_count + 1u, sizeof *all);
  int fine = all ? 1 : lacks_memory(n);
  for (uint32_t i = 0; fine && i < p->region_count; i++) {
    if (!n->regions[i].base || p->regions[i].bytes == 0) continue;
    all[i] = malloc((size_t)p->regions[i].bytes);
    fine = all[i] ? rt_gpu_take(n->gpu, all[i], rt_gpu_at(&n->regions[i]),
                                (size_t)p->regions[i].bytes)
                  : lacks_memory(n);
  }
  fine = fine && rt_weights_write(path, plan_path, p, (const void *const *)all, &n->host->error);
  for (uint32_t i = 0; all && i < p->region_count; i++) free(all[i]);
  free(all);
  return fine;
}

double rt_gpu_network_replay(rt_gpu_network *n, long replays) {
  return timed(n, n->inference, replays);
}

/* The least time of a step in graphs of some calls, in ns a call; negative at a fault. */
static double step_time(rt_gpu_network *n, uint32_t step, int calls, int rounds) {
  cu_handle graph = NULL;
  double best = -1;
  if (!begin_capture(n)) return -1;
  int fine = end_capture(n, repeat(n, step, calls), &graph);
  /* The first replay carries the upload. */
  fine = fine && timed(n, graph, 1) >= 0;
  for (int r = 0; fine && r < rounds; r++) {
    double ns = timed(n, graph, 1);
    fine = ns >= 0;
    if (fine && (r == 0 || ns < best)) best = ns;
  }
  if (graph) n->gpu->cuGraphExecDestroy(graph);
  return fine ? best / calls : -1;
}

int rt_gpu_network_steps(rt_gpu_network *n, uint64_t *best) {
  enum { CALLS = 20, ROUNDS = 3 };
  /* A step this long differs little from call to call. */
  const double is_long = 1e7;
  /* A step reads what those before it wrote, and writes the same each time. */
  if (!bring_inputs(n)) return 0;
  for (uint32_t i = 0; i < n->model.plan.step_count; i++) {
    double ns = step_time(n, i, 1, 1);
    if (ns >= 0 && ns < is_long) ns = step_time(n, i, CALLS, ROUNDS);
    if (ns < 0) return 0;
    best[i] = (uint64_t)ns;
  }
  return 1;
}

/* All steps, with an event before the first and behind each that a replay records, too. */
static int run_noted(rt_gpu_network *n, cu_handle *events) {
  enum { EXTERNAL = 1 };
  rt_gpu *g = n->gpu;
  int fine = rt_gpu_good(g, g->cuEventRecordWithFlags(events[0], g->stream, EXTERNAL), "a clock");
  for (uint32_t i = 0; fine && i < n->model.plan.step_count; i++)
    fine = run_step(n, i, g->stream) &&
           rt_gpu_good(g, g->cuEventRecordWithFlags(events[i + 1], g->stream, EXTERNAL), "a clock");
  return fine;
}

static int rising(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

/* Replays a graph of steps with clocks, and reads those. */
static int read_places(rt_gpu_network *n, cu_handle graph, cu_handle *events, uint64_t *place) {
  enum { REPLAYS = 25, FEWEST = 3 };
  const double budget_ns = 5e8;
  rt_gpu *g = n->gpu;
  const uint32_t steps = n->model.plan.step_count;
  float *ms = calloc((size_t)steps * REPLAYS + 1u, sizeof *ms);
  /* The first replay carries the upload. */
  double spent = ms ? timed(n, graph, 1) : -1;
  int fine = ms ? spent >= 0 : lacks_memory(n), replays = 0;
  while (fine && replays < REPLAYS && (replays < FEWEST || spent < budget_ns)) {
    double ns = timed(n, graph, 1);
    spent += ns;
    fine = ns >= 0;
    for (uint32_t i = 0; fine && i < steps; i++)
      fine = rt_gpu_good(g,
                         g->cuEventElapsedTime(&ms[(size_t)i * REPLAYS + (size_t)replays],
                                               events[i], events[i + 1]),
                         "timing");
    replays++;
  }
  for (uint32_t i = 0; fine && i < steps; i++) {
    qsort(ms + (size_t)i * REPLAYS, (size_t)replays, sizeof *ms, rising);
    place[i] = (uint64_t)(1e6 * (double)ms[(size_t)i * REPLAYS + (size_t)replays / 2]);
  }
  free(ms);
  return fine;
}

int rt_gpu_network_places(rt_gpu_network *n, uint64_t *place, int *is_known) {
  rt_gpu *g = n->gpu;
  const uint32_t steps = n->model.plan.step_count;
  *is_known = 0;
  if (!g->cuEventRecordWithFlags || !bring_inputs(n)) return !g->cuEventRecordWithFlags;
  cu_handle *events = calloc(steps + 1u, sizeof *events), graph = NULL;
  int fine = events ? 1 : lacks_memory(n);
  for (uint32_t i = 0; fine && i <= steps; i++)
    fine = rt_gpu_good(g, g->cuEventCreate(&events[i], 0), "an event");
  /* A driver that cannot record it leaves it out. */
  *is_known = fine && begin_capture(n) && end_capture(n, run_noted(n, events), &graph);
  if (*is_known) fine = *is_known = read_places(n, graph, events, place);
  if (graph) g->cuGraphExecDestroy(graph);
  for (uint32_t i = 0; events && i <= steps; i++)
    if (events[i]) g->cuEventDestroy_v2(events[i]);
  free(events);
  return fine;
}
