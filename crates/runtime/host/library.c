/* The code behind an exported network for CPUs: checks that the CPU has the kernels' instruction
 * sets, maps the file of weights and makes the model. library.h has the interface; execute.c
 * runs the model. */
#include "library.h"
#include "cpu.h"
#include "digest.h"
#include "weights.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* In needs.c, which is compiled as the kernels are. */
extern const uint64_t rt_cpu_needs;

static int runs_of(const rt_library *l, const rt_plan *p, rt_run_function **runs) {
  for (uint32_t k = 0; k < p->kernel_count; k++) {
    for (size_t i = 0; i < l->kernel_count && !runs[k]; i++)
      if (strcmp(l->kernels[i].symbol, p->kernels[k].symbol) == 0) runs[k] = l->kernels[i].run;
    if (!runs[k]) return 0;
  }
  return 1;
}

/* Binds the plan of a text to a file; the plan is taken over. */
static int bind_plan(const char *text, size_t bytes, rt_plan *plan, rt_opened *o) {
  rt_error e;
  rt_run_function **runs = calloc(plan->kernel_count + 1u, sizeof *runs);
  const void **contents = calloc(plan->region_count + 1u, sizeof *contents);
  int code = RT_MEMORY;
  if (runs && contents) {
    uint64_t digest = rt_digest(text, bytes);
    switch (rt_weights_check(o->file, o->file_bytes, plan, digest, contents)) {
    case RT_WEIGHTS_FINE: code = RT_OK; break;
    case RT_WEIGHTS_OTHER: code = RT_OTHER; break;
    case RT_WEIGHTS_VERSION_DIFFERS: code = RT_VERSION; break;
    default: code = RT_DAMAGED; break;
    }
    if (code == RT_OK && !runs_of(o->library, plan, runs)) code = RT_OTHER;
    /* The plan is the library's own: only memory can be lacking. */
    if (code == RT_OK && !rt_model_open(&o->model, plan, contents, runs, &e)) code = RT_MEMORY;
  }
  if (code == RT_OK && o->symbols) {
    o->runs = runs;
    o->contents = contents;
    return code;
  }
  free(runs), free(contents);
  return code;
}

/* Binds the plan of a library, of a range that at the largest extents. */
static int bind_library(rt_opened *o) {
  const rt_library *l = o->library;
  rt_error e;
  rt_plan plan;
  if (!rt_varying_is(l->plan, l->plan_bytes)) {
    if (!rt_plan_read(l->plan, l->plan_bytes, &plan, &e)) return RT_MEMORY;
    int code = bind_plan(l->plan, l->plan_bytes, &plan, o);
    rt_plan_close(&plan);
    return code;
  }
  int64_t most[RT_SYMBOLS];
  char *text;
  size_t bytes;
  o->symbols = rt_varying_most(l->plan, l->plan_bytes, most);
  if (rt_varying_text(l->plan, l->plan_bytes, most, &text, &bytes) != RT_VARYING_FINE)
    return RT_MEMORY;
  int code = RT_MEMORY;
  if (rt_plan_read(text, bytes, &plan, &e)) {
    code = bind_plan(text, bytes, &plan, o);
    rt_plan_close(&plan);
  }
  free(text);
  return code;
}

/* How many models of a range are kept; each is some hundred bytes a step. */
enum { MOST_KNOWN = 1024 };

/* The list that a model at some extents is in. */
static rt_at **list_of(rt_opened *o, const int64_t *extents) {
  uint64_t hash = 0;
  for (uint32_t s = 0; s < o->symbols; s++) hash = 31 * hash + (uint64_t)extents[s];
  return &o->known[hash % RT_KNOWN];
}

static rt_at *known_at(rt_opened *o, const int64_t *extents) {
  rt_at **list = list_of(o, extents);
  for (rt_at *a = __atomic_load_n(list, __ATOMIC_ACQUIRE); a; a = a->next)
    if (memcmp(a->extents, extents, o->symbols * sizeof *extents) == 0) return a;
  return NULL;
}

int rt_library_at(rt_opened *o, const int64_t *extents, rt_at **to) {
  *to = known_at(o, extents);
  if (*to) return RT_OK;
  rt_error e;
  rt_plan plan;
  char *text;
  size_t bytes;
  switch (rt_varying_text(o->library->plan, o->library->plan_bytes, extents, &text, &bytes)) {
  case RT_VARYING_FINE: break;
  case RT_VARYING_MEMORY: return RT_MEMORY;
  default: return RT_EXTENT;
  }
  rt_at *a = calloc(1, sizeof *a);
  int fine = a && rt_plan_read(text, bytes, &plan, &e);
  free(text);
  if (fine) {
    fine = rt_model_open(&a->model, &plan, o->contents, o->runs, &e);
    rt_plan_close(&plan);
  }
  if (!fine) {
    free(a);
    return RT_MEMORY;
  }
  memcpy(a->extents, extents, o->symbols * sizeof *extents);
  *to = a;
  if (__atomic_fetch_add(&o->known_count, 1, __ATOMIC_RELAXED) >= MOST_KNOWN) {
    __atomic_fetch_sub(&o->known_count, 1, __ATOMIC_RELAXED);
    /* It is its own successor: no model that is kept is. */
    a->next = a;
    return RT_OK;
  }
  rt_at **list = list_of(o, extents);
  a->next = __atomic_load_n(list, __ATOMIC_ACQUIRE);
  while (!__atomic_compare_exchange_n(list, &a->next, a, 0, __ATOMIC_RELEASE, __ATOMIC_ACQUIRE)) {
  }
  return RT_OK;
}

void rt_library_leave(rt_opened *o, rt_at *at) {
  (void)o;
  if (at->next != at) return;
  rt_model_close(&at->model);
  free(at);
}

static int open_memory(const rt_library *l, const void *file, size_t bytes, int is_mapped,
                       rt_opened **to) {
  *to = NULL;
  if ((uintptr_t)file % RT_ALIGNMENT) return RT_UNALIGNED;
  if (rt_cpu_needs & ~rt_cpu_has()) return RT_CPU;
  rt_opened *o = calloc(1, sizeof *o);
  int code = RT_MEMORY;
  if (o) {
    o->library = l;
    o->file = file;
    o->file_bytes = bytes;
    o->is_mapped = is_mapped;
    code = bind_library(o);
  }
  if (code == RT_OK) *to = o;
  else free(o);
  return code;
}

int rt_library_open_memory(const rt_library *l, const void *file, size_t bytes, rt_opened **to) {
  if (!to || !file) return RT_ARGUMENT;
  return open_memory(l, file, bytes, 0, to);
}

/* Maps a file; gives a code. */
static int map(const char *path, void **to, size_t *size) {
  int f = open(path, O_RDONLY | O_CLOEXEC);
  if (f < 0) return RT_FILE;
  struct stat s;
  if (fstat(f, &s) != 0 || !S_ISREG(s.st_mode)) {
    close(f);
    return RT_FILE;
  }
  size_t bytes = (size_t)s.st_size;
  void *file = bytes > 0 ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, f, 0) : MAP_FAILED;
  close(f);
  if (file == MAP_FAILED) return bytes > 0 ? RT_FILE : RT_DAMAGED;
  *to = file;
  *size = bytes;
  return RT_OK;
}

int rt_library_open(const rt_library *l, const char *path, rt_opened **to) {
  void *file;
  size_t bytes;
  if (!to || !path) return RT_ARGUMENT;
  *to = NULL;
  int code = map(path, &file, &bytes);
  if (code != RT_OK) return code;
  code = open_memory(l, file, bytes, 1, to);
  if (code != RT_OK) munmap(file, bytes);
  return code;
}

int rt_library_open_copy(const rt_library *l, const char *path, rt_opened **to) {
  void *file, *copy = NULL;
  size_t bytes, large = (size_t)2 << 20;
  if (!to || !path) return RT_ARGUMENT;
  *to = NULL;
  int code = map(path, &file, &bytes);
  if (code != RT_OK) return code;
  size_t room = (bytes / large + 1) * large;
  if (posix_memalign(&copy, bytes >= large ? large : RT_ALIGNMENT, room) == 0) {
#ifdef MADV_HUGEPAGE
    if (bytes >= large) madvise(copy, room, MADV_HUGEPAGE);
#endif
    memcpy(copy, file, bytes);
    code = open_memory(l, copy, bytes, 0, to);
    if (code == RT_OK) (*to)->is_copied = 1;
    else free(copy);
  } else {
    code = RT_MEMORY;
  }
  munmap(file, bytes);
  return code;
}

int rt_library_verify(const rt_opened *o) {
  if (!o) return RT_ARGUMENT;
  return rt_weights_intact(o->file) ? RT_OK : RT_DAMAGED;
}

void rt_library_close(rt_opened *o) {
  if (!o) return;
  rt_model_close(&o->model);
  for (uint32_t k = 0; k < RT_KNOWN; k++)
    for (rt_at *a = o->known[k], *next; a; a = next) {
      next = a->next;
      rt_model_close(&a->model);
      free(a);
    }
  free(o->runs), free(o->contents);
  if (o->is_mapped) munmap((void *)(uintptr_t)o->file, o->file_bytes);
  if (o->is_copied) free((void *)(uintptr_t)o->file);
  free(o);
}

const char *rt_library_error_text(int code) {
  switch (code) {
  case RT_OK: return "all went well";
  case RT_ARGUMENT: return "an argument is NULL, or a struct_size is smaller than the struct";
  case RT_UNALIGNED: return "the memory is not aligned by 64 bytes";
  case RT_FILE: return "the file of weights cannot be opened or mapped";
  case RT_DAMAGED: return "it is no file of weights, or it is cut or changed: export it again";
  case RT_OTHER: return "the file of weights belongs to another network or another export";
  case RT_VERSION: return "the file of weights has another version or another byte order";
  case RT_CPU:
    return "this processor lacks an instruction set that the kernels were compiled for: export "
           "with a lower --isa";
  case RT_MEMORY: return "there is not enough memory";
  case RT_KERNEL: return "a step refused its input, such as an index outside of its tensor";
  case RT_EXTENT:
    return "an extent is outside of the range that the network was exported for: the description "
           "has the range";
  default: return "there is no such code";
  }
}
