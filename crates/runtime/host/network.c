/* How the network of a program is made ready and run. */
#define _GNU_SOURCE
#include "network.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void *rt_large_memory(size_t bytes) {
  void *p = NULL;
  size_t big = (size_t)2 << 20, align = bytes >= big ? big : 64;
  bytes = (bytes / align + 1) * align;
  if (posix_memalign(&p, align, bytes) != 0) return NULL;
#ifdef MADV_HUGEPAGE
  if (align == big) madvise(p, bytes, MADV_HUGEPAGE);
#endif
  return p;
}

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

/* The buffer that a call's weights are packed into, if they are. */
static const rt_buffer *packed_of(const rt_plan *p, const rt_step *s) {
  if (s->kind != RT_CALL) return NULL;
  const rt_kernel *k = &p->kernels[s->kernel];
  return k->prepared ? &p->buffers[s->buffers[k->parameter_count]] : NULL;
}

/* The parts of a region of prepared weights, in the order of the calls. */
static rt_section *sections_of(const rt_plan *p, uint32_t region, uint32_t *count) {
  rt_section *all = calloc(p->step_count + 1u, sizeof *all);
  *count = 0;
  for (uint32_t i = 0; all && i < p->step_count; i++) {
    const rt_buffer *b = packed_of(p, &p->steps[i]);
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

/* Lets pages of a mapped file go that were read. */
static void let_go(const rt_network *n, const rt_buffer *b) {
  if (!n->mapped[b->region]) return;
  unsigned char *from = n->regions[b->region] + b->offset;
  size_t bytes = (size_t)b->is.count * rt_size_of(b->is.type), ahead = (uintptr_t)from % page();
  madvise(from - ahead, bytes + ahead, MADV_DONTNEED);
}

/* Has pages of a mapped file read before they are wanted. */
static void read_ahead(const rt_network *n, const rt_step *s) {
  const rt_plan *p = &n->model.plan;
  if (!packed_of(p, s)) return;
  const rt_kernel *k = &p->kernels[s->kernel];
  for (uint32_t i = 0; i < k->parameter_count; i++) {
    const rt_buffer *b = &p->buffers[s->buffers[i]];
    if (k->parameters[i].role != RT_WEIGHT) continue;
    if (b->region == RT_NONE || !n->mapped[b->region]) continue;
    unsigned char *from = n->regions[b->region] + b->offset;
    size_t bytes = (size_t)b->is.count * rt_size_of(b->is.type), ahead = (uintptr_t)from % page();
    madvise(from - ahead, bytes + ahead, MADV_WILLNEED);
  }
}

/* A weight where kernels take it: lying at any byte of a model's file, it is copied. `copied` says
 * how many bytes of the copies' memory are used. */
static const void *aligned(rt_network *n, const rt_buffer *b, size_t *copied) {
  unsigned char *from = n->regions[b->region] + b->offset;
  size_t bytes = (size_t)b->is.count * rt_size_of(b->is.type), at = *copied;
  if ((uintptr_t)from % RT_ALIGNMENT == 0) return from;
  if (bytes > n->copy_bytes - at) return NULL;
  memcpy(n->copies + at, from, bytes);
  *copied += (bytes + RT_ALIGNMENT - 1) / RT_ALIGNMENT * RT_ALIGNMENT;
  return n->copies + at;
}

/* Has memory for copies of a call's weights. */
static int room_for_copies(rt_network *n, const rt_step *s) {
  const rt_kernel *k = &n->model.plan.kernels[s->kernel];
  size_t bytes = 0;
  for (uint32_t i = 0; i < k->parameter_count; i++) {
    const rt_buffer *b = &n->model.plan.buffers[s->buffers[i]];
    if (k->parameters[i].role != RT_WEIGHT) continue;
    if (b->region == RT_NONE || !n->regions[b->region]) continue;
    if ((uintptr_t)(n->regions[b->region] + b->offset) % RT_ALIGNMENT)
      bytes += (size_t)b->is.count * rt_size_of(b->is.type) + RT_ALIGNMENT;
  }
  if (bytes <= n->copy_bytes) return 1;
  free(n->copies);
  n->copies = rt_large_memory(bytes);
  n->copy_bytes = n->copies ? bytes : 0;
  return n->copies != NULL || no_memory(n);
}

/* Packs the weights of a call. */
static int prepare(rt_network *n, const rt_step *s, void *to) {
  const rt_plan *p = &n->model.plan;
  const rt_kernel *k = &p->kernels[s->kernel];
  const void *weights[RT_PARAMETERS];
  uint32_t w = 0;
  size_t copied = 0;
  if (!room_for_copies(n, s)) return 0;
  for (uint32_t i = 0; i < k->parameter_count; i++) {
    if (k->parameters[i].role != RT_WEIGHT) continue;
    const rt_buffer *b = &p->buffers[s->buffers[i]];
    if (b->region == RT_NONE || !n->regions[b->region])
      return rt_fail(&n->host->error, "plan", "a weight of %s is not constant", k->symbol);
    weights[w++] = aligned(n, b, &copied);
  }
  if (!rt_prepare(n->host, k, &n->kernels[s->kernel], weights, to)) return 0;
  for (uint32_t i = 0; i < k->parameter_count; i++)
    if (k->parameters[i].role == RT_WEIGHT) let_go(n, &p->buffers[s->buffers[i]]);
  return 1;
}

/* Packs the weights of all calls into their file, by memory that each has in turn: 1 where that is
 * done, 0 where a kernel fails, -1 where the file does. */
static int prepare_file(rt_network *n) {
  const rt_plan *p = &n->model.plan;
  uint64_t most = 1;
  for (uint32_t i = 0; i < p->step_count; i++) {
    const rt_buffer *b = packed_of(p, &p->steps[i]);
    if (b && b->is.count > most) most = b->is.count;
  }
  void *room = rt_large_memory((size_t)most);
  int done = room ? 1 : -1;
  for (uint32_t i = 0; i < p->step_count && done == 1; i++) {
    const rt_buffer *b = packed_of(p, &p->steps[i]);
    if (!b || b->region != n->packed_region) continue;
    const rt_section section = {b->offset, b->is.count};
    if (i + 1 < p->step_count) read_ahead(n, &p->steps[i + 1]);
    memset(room, 0, (size_t)section.bytes);
    if (!prepare(n, &p->steps[i], room)) done = 0;
    else if (!rt_packed_put(&n->packed, &section, room)) done = -1;
  }
  free(room);
  int is_written = rt_packed_end(&n->packed, done == 1);
  return done == 1 && !is_written ? -1 : done;
}

/* Packs all weights. */
static int prepare_all(rt_network *n) {
  const rt_plan *p = &n->model.plan;
  if (n->packed_region != RT_NONE && !n->is_ready) {
    int done = prepare_file(n);
    if (done == 0) return 0;
    n->is_ready = done == 1;
    /* Without a file the same addresses are of memory. */
    if (done < 0 && mmap(n->packed.map, n->packed.bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
      return no_memory(n);
  }
  for (uint32_t i = 0; i < p->step_count; i++) {
    const rt_buffer *b = packed_of(p, &p->steps[i]);
    if (!b || (n->is_ready && b->region == n->packed_region)) continue;
    if (i + 1 < p->step_count) read_ahead(n, &p->steps[i + 1]);
    if (!prepare(n, &p->steps[i], n->regions[b->region] + b->offset)) return 0;
  }
  return 1;
}

static int make_ready(rt_network *n, rt_plan *plan, const char *packed) {
  if (!make_regions(n, plan, packed) || !load_kernels(n, plan)) return 0;
  const void *const *contents = (const void *const *)n->regions;
  if (!rt_model_open(&n->model, plan, contents, n->runs, &n->host->error)) return 0;
  const rt_plan *p = &n->model.plan;
  int fine = prepare_all(n);
  free(n->copies);
  n->copies = NULL, n->copy_bytes = 0;
  if (!fine) return 0;
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
