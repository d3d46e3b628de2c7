/* A network on a CPU: makes it ready (maps weights, loads kernels, has weights packed by
 * prepare.c), runs it, and times its steps. network_main.c is the program; gpu_network.c is the
 * same for GPUs. */
#define _GNU_SOURCE
#include "prepare.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- making ready ---- */

static int no_memory(rt_network *n) {
  return rt_fail(&n->host->error, "memory", "there is not enough memory");
}

static size_t page(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* Maps a region's part of its file: weights are read once, page by page, where they are. */
static unsigned char *map_region(rt_network *n, const rt_region *r) {
  struct stat is;
  size_t ahead = (size_t)(r->at % page());
  int fd = open(r->file, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &is) != 0) {
    rt_fail(&n->host->error, "file", "%s: %s", r->file, strerror(errno));
    if (fd >= 0) close(fd);
    return NULL;
  }
  void *p = MAP_FAILED;
  if (is.st_size < 0 || (uint64_t)is.st_size < r->at || (uint64_t)is.st_size - r->at < r->bytes)
    rt_fail(&n->host->error, "file", "%s is cut", r->file);
  else if ((p = mmap(NULL, r->bytes + ahead, PROT_READ, MAP_PRIVATE, fd, (off_t)(r->at - ahead))) ==
           MAP_FAILED)
    rt_fail(&n->host->error, "file", "%s: %s", r->file, strerror(errno));
  close(fd);
  return p == MAP_FAILED ? NULL : (unsigned char *)p + ahead;
}

static void free_region(rt_network *n, uint32_t i) {
  if (i == n->packed_region) {
    rt_packed_close(&n->packed);
    n->packed_region = RT_NONE;
    n->regions[i] = NULL;
    return;
  }
  size_t ahead = (uintptr_t)n->regions[i] % page();
  if (n->mapped && n->mapped[i]) munmap(n->regions[i] - ahead, n->mapped[i] + ahead);
  else free(n->regions[i]);
  n->regions[i] = NULL;
}

static int fill_region(rt_network *n, const rt_region *r, unsigned char *to) {
  FILE *f = fopen(r->file, "rb");
  if (!f) return rt_fail(&n->host->error, "file", "%s: %s", r->file, strerror(errno));
  int fine = fseek(f, (long)r->at, SEEK_SET) == 0 && fread(to, 1, r->bytes, f) == r->bytes;
  fclose(f);
  return fine || rt_fail(&n->host->error, "file", "%s is cut", r->file);
}

/* Fresh memory, which is 0: of large pages where there are such, cleared only once. */
static unsigned char *fresh_region(rt_network *n, uint32_t i, uint64_t bytes) {
  const size_t big = (size_t)2 << 20, room = ((size_t)bytes / big + 1) * big;
  void *all = mmap(NULL, room + big, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return NULL;
  unsigned char *p = (unsigned char *)all;
  const size_t ahead = (big - (uintptr_t)p % big) % big;
  if (ahead) munmap(p, ahead);
  if (ahead < big) munmap(p + ahead + room, big - ahead);
#ifdef MADV_HUGEPAGE
  if (bytes >= big) madvise(p + ahead, room, MADV_HUGEPAGE);
#endif
  n->mapped[i] = room;
  return p + ahead;
}

/* The parts of a region of prepared weights, in the order of the calls. */
static rt_section *sections_of(const rt_plan *p, uint32_t region, uint32_t *count) {
  rt_section *all = calloc(p->step_count + 1u, sizeof *all);
  *count = 0;
  for (uint32_t i = 0; all && i < p->step_count; i++) {
    const rt_buffer *b = rt_packed_of(p, &p->steps[i]);
    if (b && b->region == region) all[(*count)++] = (rt_section){b->offset, b->is.count};
  }
  return all;
}

/* Has the region of prepared weights in a file that is kept, where that is possible. */
static void keep_region(rt_network *n, const rt_plan *p, uint32_t region, const char *path) {
  uint32_t count;
  rt_section *sections = sections_of(p, region, &count);
  const uint64_t bytes = p->regions[region].bytes;
  if (!sections) return;
  n->regions[region] = rt_packed_open(&n->packed, path, bytes, sections, count);
  n->is_ready = n->regions[region] != NULL;
  if (!n->is_ready) n->regions[region] = rt_packed_begin(&n->packed, path, bytes, count);
  if (n->regions[region]) n->packed_region = region;
  free(sections);
}

/* Memory of constants, of weights and of what is prepared of them. */
static int make_regions(rt_network *n, const rt_plan *p, const char *packed) {
  n->regions = calloc(p->region_count + 1u, sizeof *n->regions);
  n->mapped = calloc(p->region_count + 1u, sizeof *n->mapped);
  if (!n->regions || !n->mapped) return no_memory(n);
  for (uint32_t i = 0; i < p->region_count; i++) {
    const rt_region *r = &p->regions[i];
    if (r->role != RT_CONSTANT && r->role != RT_WEIGHT && r->role != RT_PREPARED) continue;
    if (r->role == RT_WEIGHT && r->bytes && r->file) {
      if (!(n->regions[i] = map_region(n, r))) return 0;
      n->mapped[i] = r->bytes;
      continue;
    }
    if (r->role == RT_PREPARED && packed && r->bytes && n->packed_region == RT_NONE)
      keep_region(n, p, i, packed);
    if (n->regions[i]) continue;
    n->regions[i] = r->file ? rt_large_memory(r->bytes) : fresh_region(n, i, r->bytes);
    if (!n->regions[i]) return no_memory(n);
    if (r->file && !fill_region(n, r, n->regions[i])) return 0;
  }
  return 1;
}

static int load_kernels(rt_network *n, const rt_plan *p) {
  n->kernels = calloc(p->kernel_count + 1u, sizeof *n->kernels);
  n->runs = calloc(p->kernel_count + 1u, sizeof *n->runs);
  if (!n->kernels || !n->runs) return no_memory(n);
  for (uint32_t i = 0; i < p->kernel_count; i++) {
    const rt_kernel *k = &p->kernels[i];
    if (k->cuda)
      return rt_fail(&n->host->error, "launch", "%s: networks run on the CPU", k->symbol);
    if (!rt_load(n->host, k, &n->kernels[i])) return 0;
    n->runs[i] = n->kernels[i].run;
  }
  return 1;
}

static int make_ready(rt_network *n, rt_plan *plan, const char *packed) {
  if (!make_regions(n, plan, packed) || !load_kernels(n, plan)) return 0;
  const void *const *contents = (const void *const *)n->regions;
  if (!rt_model_open(&n->model, plan, contents, n->runs, &n->host->error)) return 0;
  const rt_plan *p = &n->model.plan;
  if (!rt_prepare_all(n)) return 0;
  n->workspace = rt_large_memory(n->model.workspace_bytes);
  if (!n->workspace) return no_memory(n);
  /* Not a number: what no step wrote shows in the output. */
  memset(n->workspace, 0xff, n->model.workspace_bytes);
  /* Weights that only the preparation reads are let go. */
  for (uint32_t i = 0; i < p->region_count; i++) {
    if (p->regions[i].role != RT_WEIGHT) continue;
    free_region(n, i);
  }
  return 1;
}

int rt_network_open(rt_network *n, rt_host *h, rt_plan *plan, int threads, const char *packed) {
  memset(n, 0, sizeof *n);
  n->packed.file = -1;
  n->packed_region = RT_NONE;
  n->host = h;
  n->has_pool = rt_pool_of((size_t)threads, &n->pool);
  n->current = RT_NONE;
  uint32_t regions = plan->region_count, kernels = plan->kernel_count;
  if (make_ready(n, plan, packed)) return 1;
  /* What was not written to its end is not kept. */
  rt_packed_end(&n->packed, 0);
  /* The plan may not have been taken over yet. */
  for (uint32_t i = 0; n->regions && i < regions; i++) free_region(n, i);
  for (uint32_t i = 0; n->kernels && i < kernels; i++) rt_unload(h, &n->kernels[i]);
  free(n->mapped), free(n->regions), free(n->kernels), free(n->runs), free(n->workspace);
  rt_plan_close(plan);
  rt_model_close(&n->model);
  return 0;
}

void rt_network_close(rt_network *n) {
  const rt_plan *p = &n->model.plan;
  for (uint32_t i = 0; i < p->region_count; i++) free_region(n, i);
  for (uint32_t i = 0; i < p->kernel_count; i++) rt_unload(n->host, &n->kernels[i]);
  free(n->mapped), free(n->regions), free(n->kernels), free(n->runs), free(n->workspace);
  rt_model_close(&n->model);
}

/* ---- running ---- */

/* What is noted while a network runs. */
typedef struct {
  rt_network *network;
  uint64_t *best;
  double since;
} noted;

static void note(void *state, uint32_t step) {
  noted *s = (noted *)state;
  s->network->current = step;
  if (!s->best) return;
  double now = rt_now(s->network->host);
  if (step > 0 && now - s->since < (double)s->best[step - 1])
    s->best[step - 1] = (uint64_t)(now - s->since);
  s->since = now;
}

int rt_network_run(rt_network *n, const void *const *inputs, void *const *outputs,
                   uint64_t *best) {
  noted state = {n, best, 0};
  const rt_observer observer = {&state, note};
  const rt_pool *pool = n->has_pool ? &n->pool : NULL;
  uint32_t wrong = rt_execute(&n->model, inputs, outputs, n->workspace, pool, &observer);
  if (wrong == RT_NONE) return 1;
  return rt_fail(&n->host->error, "launch", "%s did not succeed", n->model.plan.steps[wrong].name);
}

void *rt_grown(const void *record, size_t *bytes) {
  const int64_t *words = (const int64_t *)record;
  *bytes = (size_t)words[1];
  return (void *)(uintptr_t)words[0];
}

void rt_network_let_go(const rt_network *n, void *const *outputs) {
  const rt_model *m = &n->model;
  for (uint32_t i = 0; i < m->output_count; i++) {
    size_t bytes;
    if (!m->outputs[i].grown) continue;
    free(rt_grown(outputs[i], &bytes));
    memset(outputs[i], 0, m->outputs[i].bytes);
  }
}

int rt_network_is_same(const rt_network *n, void *const *first, void *const *outputs) {
  const rt_model *m = &n->model;
  for (uint32_t i = 0; i < m->output_count; i++) {
    const unsigned char *a = first[i], *b = outputs[i];
    size_t bytes = m->outputs[i].bytes, skipped = 0, more, other;
    if (m->outputs[i].grown) {
      const void *x = rt_grown(a, &more), *y = rt_grown(b, &other);
      if (more != other || (more && memcmp(x, y, more) != 0)) return 0;
      skipped = 8; /* the address */
    }
    if (memcmp(a + skipped, b + skipped, bytes - skipped) != 0) return 0;
  }
  return 1;
}
