/* Packs the weights of a network's kernel calls before the first run, several calls at once,
 * into memory or into the file of packed.h. network.c calls it when a network is opened. */
#define _GNU_SOURCE
#include "prepare.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const rt_buffer *rt_packed_of(const rt_plan *p, const rt_step *s) {
  if (s->kind != RT_CALL) return NULL;
  const rt_kernel *k = &p->kernels[s->kernel];
  return k->prepared ? &p->buffers[s->buffers[k->parameter_count]] : NULL;
}

/* Why packing ended early. After BY_FILE the weights are packed into memory instead. */
typedef enum { BY_NOTHING, BY_MEMORY, BY_FILE, BY_PLAN, BY_KERNEL } ended;

/* Calls whose weights are packed, which threads take one by one. */
typedef struct {
  rt_network *network;
  uint32_t *calls; /* steps of the plan */
  uint32_t count, next;
  uint32_t tasks; /* threads that take them */
  int is_file; /* whether they go into the file */
  size_t most; /* bytes of the most packed weights of one call */
  int has_ended;
  ended why; /* of the first that failed, with its kernel and the kernel's answer */
  const rt_kernel *kernel;
  int code;
} packing;

/* A thread's own memory: room in which a call's weights are packed on their way to the file, and
 * aligned copies of weights that lie at any byte of a model's file. */
typedef struct {
  unsigned char *room, *copies;
  size_t copy_bytes;
} packer;

static int end_packing(packing *all, ended why, const rt_kernel *k, int code) {
  if (!__atomic_exchange_n(&all->has_ended, 1, __ATOMIC_ACQ_REL))
    all->why = why, all->kernel = k, all->code = code;
  return 0;
}

/* The bytes of a weight, from where its page begins, and advice on them where they are mapped. */
static void advise(const rt_network *n, const rt_buffer *b, int advice) {
  if (b->region == RT_NONE || !n->mapped[b->region]) return;
  unsigned char *from = n->regions[b->region] + b->offset;
  size_t bytes = (size_t)b->is.count * rt_size_of(b->is.type);
  size_t ahead = (uintptr_t)from % (size_t)sysconf(_SC_PAGESIZE);
  madvise(from - ahead, bytes + ahead, advice);
}

/* Has pages of a call's weights read before they are wanted, or lets them go. */
static void advise_on(const rt_network *n, const rt_step *s, int advice) {
  const rt_plan *p = &n->model.plan;
  const rt_kernel *k = &p->kernels[s->kernel];
  for (uint32_t i = 0; i < k->parameter_count; i++)
    if (k->parameters[i].role == RT_WEIGHT) advise(n, &p->buffers[s->buffers[i]], advice);
}

/* A weight where kernels take it: lying at any byte of a model's file, it is copied. `copied` says
 * how many bytes of the copies' memory are used. */
static const void *aligned(const rt_network *n, packer *w, const rt_buffer *b, size_t *copied) {
  unsigned char *from = n->regions[b->region] + b->offset;
  size_t bytes = (size_t)b->is.count * rt_size_of(b->is.type), at = *copied;
  if ((uintptr_t)from % RT_ALIGNMENT == 0) return from;
  if (bytes > w->copy_bytes - at) return NULL;
  memcpy(w->copies + at, from, bytes);
  *copied += (bytes + RT_ALIGNMENT - 1) / RT_ALIGNMENT * RT_ALIGNMENT;
  return w->copies + at;
}

/* The bytes that copies of a call's weights take. */
static size_t copies_of(const rt_network *n, const rt_step *s) {
  const rt_kernel *k = &n->model.plan.kernels[s->kernel];
  size_t bytes = 0;
  for (uint32_t i = 0; i < k->parameter_count; i++) {
    const rt_buffer *b = &n->model.plan.buffers[s->buffers[i]];
    if (k->parameters[i].role != RT_WEIGHT) continue;
    if (b->region == RT_NONE || !n->regions[b->region]) continue;
    if ((uintptr_t)(n->regions[b->region] + b->offset) % RT_ALIGNMENT)
      bytes += (size_t)b->is.count * rt_size_of(b->is.type) + RT_ALIGNMENT;
  }
  return bytes;
}

/* Has memory for copies of a call's weights. */
static int room_for_copies(const rt_network *n, packer *w, const rt_step *s) {
  const size_t bytes = copies_of(n, s);
  if (bytes <= w->copy_bytes) return 1;
  free(w->copies);
  w->copies = rt_large_memory(bytes);
  w->copy_bytes = w->copies ? bytes : 0;
  return w->copies != NULL;
}

/* Packs the weights of a call. */
static int pack(packing *all, packer *w, const rt_step *s, void *to) {
  const rt_network *n = all->network;
  const rt_plan *p = &n->model.plan;
  const rt_kernel *k = &p->kernels[s->kernel];
  const void *weights[RT_PARAMETERS];
  uint32_t count = 0;
  size_t copied = 0;
  if (!room_for_copies(n, w, s)) return end_packing(all, BY_MEMORY, k, 0);
  for (uint32_t i = 0; i < k->parameter_count; i++) {
    if (k->parameters[i].role != RT_WEIGHT) continue;
    const rt_buffer *b = &p->buffers[s->buffers[i]];
    if (b->region == RT_NONE || !n->regions[b->region]) return end_packing(all, BY_PLAN, k, 0);
    weights[count++] = aligned(n, w, b, &copied);
  }
  int code = n->kernels[s->kernel].prepare(weights, to);
  if (code != 0) return end_packing(all, BY_KERNEL, k, code);
  advise_on(n, s, MADV_DONTNEED);
  return 1;
}

/* Packs the weights of a call into its section of the file, by memory of its own. */
static int pack_into_file(packing *all, packer *w, uint32_t number) {
  rt_network *n = all->network;
  const rt_step *s = &n->model.plan.steps[all->calls[number]];
  const rt_buffer *b = rt_packed_of(&n->model.plan, s);
  const rt_section section = {b->offset, b->is.count};
  if (!w->room) w->room = rt_large_memory(all->most);
  if (!w->room) return end_packing(all, BY_FILE, NULL, 0);
  memset(w->room, 0, (size_t)section.bytes);
  if (!pack(all, w, s, w->room)) return 0;
  if (rt_packed_put(&n->packed, number, &section, w->room)) return 1;
  return end_packing(all, BY_FILE, NULL, 0);
}

/* Packs calls that no other thread has taken. */
static void pack_some(void *argument, size_t task) {
  packing *all = (packing *)argument;
  rt_network *n = all->network;
  const rt_plan *p = &n->model.plan;
  packer own = {NULL, NULL, 0};
  (void)task;
  while (!__atomic_load_n(&all->has_ended, __ATOMIC_ACQUIRE)) {
    uint32_t i = __atomic_fetch_add(&all->next, 1, __ATOMIC_RELAXED);
    if (i >= all->count) break;
    const uint32_t ahead = all->tasks;
    if (all->count - i > ahead) advise_on(n, &p->steps[all->calls[i + ahead]], MADV_WILLNEED);
    const rt_step *s = &p->steps[all->calls[i]];
    const rt_buffer *b = rt_packed_of(p, s);
    if (all->is_file) pack_into_file(all, &own, i);
    else pack(all, &own, s, n->regions[b->region] + b->offset);
  }
  free(own.room), free(own.copies);
}

/* Packs the calls of one region, or of all regions but that one. */
static ended pack_calls(rt_network *n, packing *all, int is_file) {
  const rt_plan *p = &n->model.plan;
  size_t bytes = 0, copies = 0;
  memset(all, 0, sizeof *all);
  all->network = n, all->is_file = is_file, all->most = 1;
  all->calls = calloc(p->step_count + 1u, sizeof *all->calls);
  if (!all->calls) return all->why = BY_MEMORY;
  for (uint32_t i = 0; i < p->step_count; i++) {
    const rt_buffer *b = rt_packed_of(p, &p->steps[i]);
    const int is_kept = b && b->region == n->packed_region;
    if (!b || (is_file ? !is_kept : is_kept && n->is_ready)) continue;
    all->calls[all->count++] = i;
    const size_t own = copies_of(n, &p->steps[i]);
    bytes += (size_t)b->is.count;
    if (b->is.count > all->most) all->most = (size_t)b->is.count;
    if (own > copies) copies = own;
  }
  /* What each thread has for itself is bounded: all but the first have an eighth of all packed
   * weights at most. */
  const size_t each = copies + (is_file ? all->most : 0);
  size_t tasks = n->has_pool ? n->pool.tasks : 1;
  if (each && tasks > 1 + bytes / 8 / each) tasks = 1 + bytes / 8 / each;
  if (tasks > all->count) tasks = all->count;
  all->tasks = (uint32_t)tasks;
  n->host->phase = "the preparation of weights";
  if (tasks > 1) n->pool.parallel_for(n->pool.state, tasks, pack_some, all);
  else pack_some(all, 0);
  rt_idle(n->host);
  free(all->calls);
  return all->why;
}

/* Says why packing ended. */
static int failed_of(rt_network *n, const packing *all) {
  rt_error *e = &n->host->error;
  if (all->why == BY_PLAN)
    return rt_fail(e, "plan", "a weight of %s is not constant", all->kernel->symbol);
  if (all->why == BY_KERNEL)
    return rt_fail(e, "launch", "%s_prepare returned %d", all->kernel->symbol, all->code);
  return rt_fail(e, "memory", "there is not enough memory");
}

int rt_prepare_all(rt_network *n) {
  packing all;
  if (n->packed_region != RT_NONE && !n->is_ready) {
    ended why = pack_calls(n, &all, 1);
    if (why == BY_PLAN || why == BY_KERNEL) return failed_of(n, &all);
    n->is_ready = rt_packed_end(&n->packed, why == BY_NOTHING);
    /* Without a file the same addresses are of memory. */
    if (!n->is_ready && mmap(n->packed.map, n->packed.bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
      all.why = BY_MEMORY;
      return failed_of(n, &all);
    }
  }
  return pack_calls(n, &all, 0) == BY_NOTHING || failed_of(n, &all);
}
