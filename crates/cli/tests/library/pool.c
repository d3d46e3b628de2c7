/* Test program linked with an exported library (`../library.rs`): runs it with the caller's own
 * thread pool, here one that does the tasks of each loop backwards and counts the loops. */
#include "net.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void backwards(void *state, size_t tasks, void (*task)(void *, size_t), void *argument) {
  ++*(int *)state;
  while (tasks-- > 0) task(argument, tasks);
}

int main(void) {
  static float input[3 * 32 * 32], alone[10], shared[10];
  for (int i = 0; i < 3 * 32 * 32; i++) input[i] = (float)(i % 13) / 8 - 1;
  net_model *model = NULL;
  void *workspace = NULL;
  int loops = 0, code = net_open(&model, "net.weights");
  if (code != NET_OK || posix_memalign(&workspace, 64, net_workspace_bytes(model)) != 0) return 1;
  const net_pool pool = {&loops, backwards};
  net_io io = {sizeof io, input, alone, NULL};
  if (net_run(model, &io, workspace) != NET_OK) return 1;
  net_io with = {sizeof with, input, shared, &pool};
  if (net_run(model, &with, workspace) != NET_OK) return 1;
  printf("%d loops, %s\n", loops, memcmp(alone, shared, sizeof alone) ? "different" : "equal");
  net_close(model);
  free(workspace);
  return 0;
}
