/* Test program linked with an exported library (`../library.rs`): a caller's pool that runs the
 * tasks of a loop all at once, one thread each; every run must give the bits of the first. The
 * test defines RUNS and TASKS. */
#include "net.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  void (*task)(void *, size_t);
  void *argument;
  size_t number;
} job;

static int loops;

static void *work(void *of) {
  const job *j = (const job *)of;
  j->task(j->argument, j->number);
  return NULL;
}

static void at_once(void *state, size_t tasks, void (*task)(void *, size_t), void *argument) {
  pthread_t threads[64];
  job jobs[64];
  (void)state;
  loops++;
  if (tasks > 64) abort();
  for (size_t i = 0; i < tasks; i++) {
    jobs[i] = (job){task, argument, i};
    if (pthread_create(&threads[i], NULL, work, &jobs[i]) != 0) abort();
  }
  for (size_t i = 0; i < tasks; i++) pthread_join(threads[i], NULL);
}

int main(void) {
  static float input[3 * 32 * 32], first[10], again[10];
  for (int i = 0; i < 3 * 32 * 32; i++) input[i] = (float)(i % 13) / 8 - 1;
  net_model *model = NULL;
  void *workspace = NULL;
  int code = net_open(&model, "net.weights"), others = 0;
  if (code != NET_OK || posix_memalign(&workspace, 64, net_workspace_bytes(model)) != 0) return 1;
  const net_pool pool = {NULL, at_once};
  for (int run = 0; run < RUNS; run++) {
    net_io io = {sizeof io, input, run ? again : first, &pool};
    if (net_run(model, &io, workspace) != NET_OK) return 1;
    others += run && memcmp(first, again, sizeof first) != 0;
  }
  printf("%d loops, %d others\n", loops, others);
  net_close(model);
  free(workspace);
  return 0;
}
