/* Test program linked with a library over a range (`../ranges.rs`). It runs extents in the order of
 * the arguments after the number of elements of one input and output at each: `every THREADS
 * E:IN:OUT E:IN:OUT ..`. Threads take turns through the list, each with its own workspace, which is
 * filled with NaN before each run; inputs and outputs end at pages that may not be touched.
 * `in_E.bin` is read and `out_E.bin` written; a later run at the same extent must give the same
 * bits. */
#include "net.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_THREADS = 8, MOST = 4096 };

struct one {
  int64_t extent;
  size_t in, out;
  float *x, *y;
};

static net_model *model;
static struct one all[MOST];
static size_t count, threads;

/* Memory of `bytes` bytes whose end is the begin of a page that may not be read or written. */
static void *guarded(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
  char *at = mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED || mprotect(at + whole, page, PROT_NONE) != 0) return NULL;
  return at + whole - bytes;
}

static void *file_of(const char *way, int64_t extent) {
  char name[64];
  snprintf(name, sizeof name, "%s_%lld.bin", way, (long long)extent);
  return fopen(name, way[0] == 'i' ? "rb" : "wb");
}

static void *work(void *number) {
  size_t bytes = net_workspace_bytes(model);
  char *workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (!workspace) return (void *)"no memory";
  for (size_t i = (size_t)number % count, n = 0; n < count; n++, i = (i + 1) % count) {
    struct one *o = &all[i];
    float *y = guarded(o->out * sizeof *y);
    if (!y) return (void *)"no memory";
    memset(workspace, 0xff, bytes);
    memset(y, 0xff, o->out * sizeof *y);
    net_io io = {sizeof io, o->x, y, &o->extent, NULL};
    if (net_run(model, &io, workspace) != NET_OK) return (void *)"a run failed";
    if (number == NULL) {
      o->y = y;
    } else if (o->y && memcmp(o->y, y, o->out * sizeof *y) != 0) {
      return (void *)"two runs differ";
    }
  }
  return NULL;
}

int main(int argc, char **argv) {
  threads = (size_t)atoi(argv[1]);
  count = (size_t)argc - 2;
  int code = net_open(&model, "net.weights");
  if (code != NET_OK) return fprintf(stderr, "%s\n", net_error_text(code)), 1;
  for (size_t i = 0; i < count; i++) {
    struct one *o = &all[i];
    long long extent = 0;
    if (sscanf(argv[i + 2], "%lld:%zu:%zu", &extent, &o->in, &o->out) != 3) return 2;
    o->extent = extent;
    o->x = guarded(o->in * sizeof *o->x);
    FILE *f = file_of("in", extent);
    if (!o->x || !f || fread(o->x, sizeof *o->x, o->in, f) != o->in) return 3;
    fclose(f);
  }
  /* The first pass is of one thread; its results are those of the others. */
  void *wrong = work(NULL);
  if (wrong) return fprintf(stderr, "%s\n", (char *)wrong), 1;
  pthread_t ids[MOST_THREADS];
  for (size_t t = 1; t <= threads; t++) pthread_create(&ids[t - 1], NULL, work, (void *)(t * 7));
  for (size_t t = 0; t < threads; t++) {
    pthread_join(ids[t], &wrong);
    if (wrong) return fprintf(stderr, "%s\n", (char *)wrong), 1;
  }
  for (size_t i = 0; i < count; i++) {
    FILE *f = file_of("out", all[i].extent);
    if (!f || fwrite(all[i].y, sizeof(float), all[i].out, f) != all[i].out) return 4;
    fclose(f);
  }
  /* Extents outside of the range are refused. */
  for (int64_t outside = -1; outside <= 1 << 20; outside += 1 << 20) {
    net_io io = {sizeof io, all[0].x, all[0].y, &outside, NULL};
    void *workspace = aligned_alloc(64, (net_workspace_bytes(model) + 63) / 64 * 64);
    if (net_run(model, &io, workspace) != NET_ERROR_EXTENT) return fprintf(stderr, "taken\n"), 1;
    free(workspace);
  }
  net_close(model);
  printf("%zu extents\n", count);
  return 0;
}
