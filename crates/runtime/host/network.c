/* How a network is made ready and run. */
#define _GNU_SOURCE
#include "network.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A step with addresses. Moves are of elements of 4 bytes. */
struct rt_instruction {
  const void *const *data;
  void *const *outputs;
  const void *prepared;
  void *workspace;
  const float *from;
  float *to;
  uint32_t rank;
  rt_axis axes[RT_AXES];
};

void *rt_large_memory(size_t bytes) {
  void *p = NULL;
  size_t big = (size_t)2 << 20, align = bytes >= big ? big : 64;
  bytes = (bytes + align) / align * align;
  if (posix_memalign(&p, align, bytes) != 0) return NULL;
#ifdef MADV_HUGEPAGE
  if (align == big) madvise(p, bytes, MADV_HUGEPAGE);
#endif
  return p;
}

/* ---- moves of data ---- */

/* The two innermost axes where the source is contiguous along one and the target along the other:
 * in squares, so that each line of the cache is used whole. */
static void turn(const float *from, float *to, rt_axis a, rt_axis b) {
  enum { N = 8 };
  size_t i = 0;
  for (; i + N <= a.extent; i += N) {
    size_t k = 0;
    for (; k + N <= b.extent; k += N) {
      float square[N][N];
      for (size_t y = 0; y < N; y++)
        memcpy(square[y], from + (ptrdiff_t)(k + y) * b.from + (ptrdiff_t)i, sizeof square[y]);
      for (size_t x = 0; x < N; x++) {
        float *row = to + (i + x) * a.to + k;
        for (size_t y = 0; y < N; y++) row[y] = square[y][x];
      }
    }
    for (; k < b.extent; k++)
      for (size_t x = 0; x < N; x++)
        to[(i + x) * a.to + k] = from[(ptrdiff_t)k * b.from + (ptrdiff_t)(i + x)];
  }
  for (; i < a.extent; i++)
    for (size_t k = 0; k < b.extent; k++)
      to[i * a.to + k] = from[(ptrdiff_t)k * b.from + (ptrdiff_t)i];
}

/* One instance of the outer axes of a copy: all of its last two. */
static void piece_of(const struct rt_instruction *s, size_t index) {
  const float *from = s->from;
  float *to = s->to;
  for (size_t a = s->rank - 2; a-- > 0;) {
    size_t place = index % s->axes[a].extent;
    index /= s->axes[a].extent;
    to += place * s->axes[a].to;
    from += (ptrdiff_t)place * s->axes[a].from;
  }
  rt_axis rows = s->axes[s->rank - 2], last = s->axes[s->rank - 1];
  if (last.to == 1 && last.from != 1 && rows.from == 1) {
    turn(from, to, rows, last);
    return;
  }
  for (size_t r = 0; r < rows.extent; r++, to += rows.to, from += rows.from) {
    if (last.to == 1 && last.from == 1) memcpy(to, from, last.extent * sizeof *to);
    else
      for (size_t i = 0; i < last.extent; i++) to[i * last.to] = from[(ptrdiff_t)i * last.from];
  }
}

static void copy(const struct rt_instruction *s, int threads) {
  size_t instances = 1, inner = s->axes[s->rank - 2].extent * s->axes[s->rank - 1].extent;
  for (size_t a = 0; a + 2 < s->rank; a++) instances *= s->axes[a].extent;
  int several = threads > 1 && instances > 1 && instances * inner > 32768;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(threads) if (several)
#endif
  for (size_t i = 0; i < instances; i++) piece_of(s, i);
  (void)several;
}

/* The axes of a step, two at least: rows of one element, or one row. The axis along which the
 * source is contiguous goes next to the innermost, for `turn`. */
static void arrange(struct rt_instruction *s, const rt_step *step) {
  uint32_t missing = step->rank < 2 ? 2 - step->rank : 0;
  for (uint32_t a = 0; a < missing; a++) s->axes[a] = (rt_axis){1, 1, 1};
  memcpy(s->axes + missing, step->axes, step->rank * sizeof *s->axes);
  s->rank = step->rank + missing;
  if (s->rank < 3 || s->axes[s->rank - 1].from == 1) return;
  for (uint32_t a = 0; a + 2 < s->rank; a++) {
    if (s->axes[a].from != 1) continue;
    rt_axis swap = s->axes[a];
    s->axes[a] = s->axes[s->rank - 2];
    s->axes[s->rank - 2] = swap;
    return;
  }
}

/* ---- making ready ---- */

static int no_memory(rt_network *n) {
  return rt_fail(&n->host->error, "memory", "there is not enough memory");
}

static int fill_region(rt_network *n, const rt_region *r, unsigned char *to) {
  if (!r->file) {
    /* Not a number: what no step wrote shows in the output. */
    memset(to, 0xff, r->bytes);
    return 1;
  }
  FILE *f = fopen(r->file, "rb");
  if (!f) return rt_fail(&n->host->error, "file", "%s: %s", r->file, strerror(errno));
  int fine = fseek(f, (long)r->at, SEEK_SET) == 0 && fread(to, 1, r->bytes, f) == r->bytes;
  fclose(f);
  return fine || rt_fail(&n->host->error, "file", "%s is cut", r->file);
}

static int make_memory(rt_network *n) {
  const rt_plan *p = &n->plan;
  n->regions = calloc(p->region_count + 1u, sizeof *n->regions);
  n->buffers = calloc(p->buffer_count + 1u, sizeof *n->buffers);
  if (!n->regions || !n->buffers) return no_memory(n);
  for (uint32_t i = 0; i < p->region_count; i++) {
    n->regions[i] = rt_large_memory(p->regions[i].bytes);
    if (!n->regions[i]) return no_memory(n);
    if (!fill_region(n, &p->regions[i], n->regions[i])) return 0;
  }
  for (uint32_t i = 0; i < p->buffer_count; i++) {
    const rt_buffer *b = &p->buffers[i];
    size_t bytes = b->is.count * rt_size_of(b->is.type);
    int own = b->region == RT_NONE;
    n->buffers[i] = own ? rt_large_memory(bytes) : n->regions[b->region] + b->offset;
    if (!n->buffers[i]) return no_memory(n);
    if (own) memset(n->buffers[i], 0xff, bytes);
  }
  return 1;
}

static int load_kernels(rt_network *n) {
  const rt_plan *p = &n->plan;
  n->kernels = calloc(p->kernel_count + 1u, sizeof *n->kernels);
  if (!n->kernels) return no_memory(n);
  for (uint32_t i = 0; i < p->kernel_count; i++) {
    const rt_kernel *k = &p->kernels[i];
    if (k->cuda)
      return rt_fail(&n->host->error, "launch", "%s: networks run on the CPU", k->symbol);
    if (!rt_load(n->host, k, &n->kernels[i])) return 0;
  }
  return 1;
}

static void *memory_of(const rt_network *n, uint64_t buffer) {
  return buffer == RT_NONE ? NULL : n->buffers[buffer];
}

/* Puts the pointers of a call at `at`, of which as many are taken as it has parameters. */
static int ready_call(rt_network *n, const rt_step *s, struct rt_instruction *to,
                      const void **at) {
  const rt_kernel *k = &n->plan.kernels[s->kernel];
  const void **data = at, **outputs = data + k->data_count, **weights = outputs + k->output_count;
  uint32_t d = 0, o = 0, w = 0;
  for (uint32_t i = 0; i < k->parameter_count; i++) {
    const void *p = memory_of(n, s->buffers[i]);
    switch (k->parameters[i].role) {
    case RT_DATA: data[d++] = p; break;
    case RT_WEIGHT: weights[w++] = p; break;
    default: outputs[o++] = p; break;
    }
  }
  to->data = data;
  to->outputs = (void *const *)outputs;
  to->workspace = memory_of(n, s->buffers[k->parameter_count + 1]);
  void *prepared = memory_of(n, s->buffers[k->parameter_count]);
  to->prepared = prepared;
  if (k->prepared == 0) return 1;
  return rt_prepare(n->host, k, &n->kernels[s->kernel], weights, prepared);
}

static int ready_steps(rt_network *n) {
  const rt_plan *p = &n->plan;
  size_t pointers = 1;
  for (uint32_t i = 0; i < p->step_count; i++)
    if (p->steps[i].kind == RT_CALL) pointers += p->kernels[p->steps[i].kernel].parameter_count;
  n->instructions = calloc(p->step_count + 1u, sizeof *n->instructions);
  n->pointers = calloc(pointers, sizeof *n->pointers);
  if (!n->instructions || !n->pointers) return no_memory(n);
  const void **at = n->pointers;
  for (uint32_t i = 0; i < p->step_count; i++) {
    const rt_step *s = &p->steps[i];
    struct rt_instruction *to = &n->instructions[i];
    if (s->kind == RT_CALL) {
      if (!ready_call(n, s, to, at)) return 0;
      at += p->kernels[s->kernel].parameter_count;
      continue;
    }
    if (s->kind != RT_FILL) to->from = (const float *)memory_of(n, s->from) + s->from_at;
    to->to = (float *)memory_of(n, s->to) + s->to_at;
    if (s->kind == RT_COPY) arrange(to, s);
  }
  return 1;
}

int rt_network_open(rt_network *n, rt_host *h, rt_plan *plan, int threads) {
  memset(n, 0, sizeof *n);
  n->host = h;
  n->plan = *plan;
  n->threads = threads;
  n->current = RT_NONE;
  memset(plan, 0, sizeof *plan);
  if (!make_memory(n) || !load_kernels(n) || !ready_steps(n)) return 0;
  /* Weights that only the preparation reads are let go. */
  for (uint32_t i = 0; i < n->plan.region_count; i++) {
    if (n->plan.regions[i].role != RT_WEIGHT) continue;
    free(n->regions[i]);
    n->regions[i] = NULL;
  }
  return 1;
}

void rt_network_close(rt_network *n) {
  for (uint32_t i = 0; n->buffers && i < n->plan.buffer_count; i++)
    if (n->plan.buffers[i].region == RT_NONE) free(n->buffers[i]);
  for (uint32_t i = 0; n->regions && i < n->plan.region_count; i++) free(n->regions[i]);
  for (uint32_t i = 0; n->kernels && i < n->plan.kernel_count; i++)
    rt_unload(n->host, &n->kernels[i]);
  free(n->regions), free(n->buffers), free(n->kernels);
  free(n->instructions), free(n->pointers);
  rt_plan_close(&n->plan);
}

void *rt_network_buffer(const rt_network *n, rt_role role, uint32_t number, size_t *bytes) {
  for (uint32_t i = 0; i < n->plan.buffer_count; i++) {
    const rt_buffer *b = &n->plan.buffers[i];
    if (b->role != role || number-- > 0) continue;
    *bytes = b->is.count * rt_size_of(b->is.type);
    return n->buffers[i];
  }
  return NULL;
}

/* ---- running ---- */

static int perform(const rt_network *n, const rt_step *s, const struct rt_instruction *i) {
  switch (s->kind) {
  case RT_CALL: return n->kernels[s->kernel].run(i->data, i->outputs, i->prepared, i->workspace);
  case RT_COPY: copy(i, n->threads); return 0;
  case RT_RUNS:
    for (uint64_t r = 0; r < s->count; r++) {
      const uint64_t *run = s->runs + 3 * r;
      memcpy(i->to + run[0], i->from + run[1], run[2] * sizeof *i->to);
    }
    return 0;
  default:
    for (uint64_t e = 0; e < s->count; e++) memcpy(i->to + e, &s->bits, sizeof s->bits);
    return 0;
  }
}

int rt_network_run(rt_network *n, uint64_t *best) {
  double t = best ? rt_now(n->host) : 0;
  for (uint32_t i = 0; i < n->plan.step_count; i++) {
    const rt_step *s = &n->plan.steps[i];
    n->current = i;
    int code = perform(n, s, &n->instructions[i]);
    if (code != 0) return rt_fail(&n->host->error, "launch", "%s did not succeed", s->name);
    if (!best) continue;
    double end = rt_now(n->host);
    if (end - t < (double)best[i]) best[i] = (uint64_t)(end - t);
    t = end;
  }
  return 1;
}
