/* Test program linked with an exported library (`../library.rs`): two threads share a model,
 * each with its own workspace; every run must give the same bits. */
#include "net.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IN = 3 * 32 * 32, OUT = 10, RUNS = 30 };

static net_model *model;
static float input[IN];

static void *work(void *to) {
  void *workspace = aligned_alloc(64, (net_workspace_bytes(model) + 63) / 64 * 64);
  net_io io = {sizeof io, input, (float *)to, NULL};
  float first[OUT];
  if (!workspace) return (void *)"no memory";
  for (int i = 0; i < RUNS; i++) {
    if (net_run(model, &io, workspace) != NET_OK) return (void *)"a run failed";
    if (i == 0) memcpy(first, to, sizeof first);
    if (memcmp(first, to, sizeof first) != 0) return (void *)"runs differ";
  }
  free(workspace);
  return NULL;
}

int main(void) {
  pthread_t threads[2];
  float outputs[2][OUT];
  for (int i = 0; i < IN; i++) input[i] = (float)(i % 17) / 8 - 1;
  int code = net_open(&model, "net.weights");
  if (code != NET_OK) return fprintf(stderr, "%s\n", net_error_text(code)), 1;
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, outputs[i]);
  for (int i = 0; i < 2; i++) {
    void *wrong = NULL;
    pthread_join(threads[i], &wrong);
    if (wrong) return fprintf(stderr, "%s\n", (char *)wrong), 1;
  }
  net_close(model);
  if (memcmp(outputs[0], outputs[1], sizeof outputs[0]) != 0)
    return fprintf(stderr, "threads differ\n"), 1;
  printf("equal\n");
  return 0;
}
