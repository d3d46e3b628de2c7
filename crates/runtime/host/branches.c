/* Finds the steps of a model that may run at the same time, from the bytes of memory that each
 * reads and writes, and deals them out to streams. branches.h has the interface. */
#include "branches.h"
#include <stdlib.h>
#include <string.h>

/* Bytes of the workspace that a step touches. */
typedef struct {
  uint64_t begin, end;
  int written;
} span;

typedef struct {
  uint32_t count;
  span all[RT_PARAMETERS + 1];
} touched;

static void touch(touched *t, const rt_address *a, uint64_t bytes, int written) {
  /* No run writes to memory outside of the workspace. */
  if (a->at || bytes == 0) return;
  t->all[t->count++] = (span){a->offset, a->offset + bytes, written};
}

static void spans_of(const rt_model *m, uint32_t number, touched *t) {
  const rt_plan *p = &m->plan;
  const rt_step *s = &p->steps[number];
  const rt_kernel *k = &p->kernels[s->kernel];
  t->count = 0;
  for (uint32_t i = 0; i < k->parameter_count; i++) {
    if (k->parameters[i].role == RT_WEIGHT) continue;
    const rt_buffer *b = &p->buffers[s->buffers[i]];
    touch(t, &m->buffers[s->buffers[i]], b->is.count * rt_size_of(b->is.type),
          k->parameters[i].role == RT_OUTPUT);
  }
  uint64_t workspace = s->buffers[k->parameter_count + 1];
  if (workspace != RT_NONE) touch(t, &m->buffers[workspace], k->workspace, 1);
}

static int meet(const touched *a, const touched *b) {
  for (uint32_t i = 0; i < a->count; i++)
    for (uint32_t k = 0; k < b->count; k++) {
      const span *x = &a->all[i], *y = &b->all[k];
      if ((x->written || y->written) && x->begin < y->end && y->begin < x->end) return 1;
    }
  return 0;
}

typedef struct {
  uint32_t steps;
  touched *of;
  unsigned char *behind; /* [i * steps + k]: whether step i comes behind step k */
  rt_branch *branches;
} finding;

/* The steps that number `i` waits for, the latest first. */
static int find_before(finding *f, uint32_t i) {
  unsigned char *behind = f->behind + (size_t)i * f->steps;
  rt_branch *b = &f->branches[i];
  uint32_t *list = malloc((i + 1u) * sizeof *list);
  if (!list) return 0;
  b->before = list;
  for (uint32_t k = i; k-- > 0;) {
    if (behind[k] || !meet(&f->of[k], &f->of[i])) continue;
    list[b->count++] = k;
    const unsigned char *further = f->behind + (size_t)k * f->steps;
    behind[k] = 1;
    for (uint32_t n = 0; n < k; n++) behind[n] |= further[n];
  }
  return 1;
}

/* The stream of a step: that of one that it waits for and nothing else ran on since, else one on
 * which all came before it, else that of the latest that it waits for. */
static uint32_t stream_of(const finding *f, uint32_t i, const uint32_t *last) {
  const rt_branch *b = &f->branches[i];
  const unsigned char *behind = f->behind + (size_t)i * f->steps;
  for (uint32_t k = 0; k < b->count; k++)
    if (last[f->branches[b->before[k]].stream] == b->before[k])
      return f->branches[b->before[k]].stream;
  for (uint32_t s = 0; s < RT_STREAMS; s++)
    if (last[s] == RT_NONE || behind[last[s]]) return s;
  return b->count ? f->branches[b->before[0]].stream : 0;
}

rt_branch *rt_branches_of(const rt_model *m) {
  uint32_t n = m->plan.step_count, last[RT_STREAMS];
  finding f = {n, calloc(n + 1u, sizeof *f.of), calloc((size_t)n * n + 1, 1),
               calloc(n + 1u, sizeof *f.branches)};
  int fine = f.of && f.behind && f.branches;
  for (uint32_t s = 0; s < RT_STREAMS; s++) last[s] = RT_NONE;
  for (uint32_t i = 0; fine && i < n; i++) {
    spans_of(m, i, &f.of[i]);
    fine = find_before(&f, i);
    if (!fine) break;
    uint32_t s = stream_of(&f, i, last);
    f.branches[i].stream = s;
    last[s] = i;
  }
  free(f.of), free(f.behind);
  if (fine) return f.branches;
  rt_branches_free(f.branches, n);
  return NULL;
}

void rt_branches_free(rt_branch *all, uint32_t steps) {
  for (uint32_t i = 0; all && i < steps; i++) free(all[i].before);
  free(all);
}

int rt_branches_part(const rt_branch *all, uint32_t steps) {
  for (uint32_t i = 0; i < steps; i++)
    if (all[i].stream != 0) return 1;
  return 0;
}
