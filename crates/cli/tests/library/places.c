/* Test program linked with an exported library (`../library.rs`): runs a network on tensors at
 * all kinds of addresses: apart, off the alignment of their elements, and with the output over
 * the input. All outputs must have the same bytes, and an input that no output overlaps must
 * stay as it was. */
#include "net.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IN = 3 * 32 * 32 * 4, OUT = 10 * 4 };

static unsigned char first[IN], memory[IN + 256] __attribute__((aligned(64)));
static unsigned char other[OUT + 256] __attribute__((aligned(64))), want[OUT];

static int run(net_model *model, size_t input, unsigned char *output, void *workspace) {
  memcpy(memory + input, first, IN);
  memset(workspace, 0xff, NET_WORKSPACE_BYTES);
  net_io io = {sizeof io, (const float *)(const void *)(memory + input),
               (float *)(void *)output, NULL};
  return net_run(model, &io, workspace) == NET_OK;
}

int main(void) {
  net_model *model = NULL;
  unsigned char *workspace = NULL;
  if (net_open(&model, "net.weights") != NET_OK) return 1;
  if (posix_memalign((void **)&workspace, 64, NET_WORKSPACE_BYTES) != 0) return 1;
  for (size_t i = 0; i < IN / 4; i++) {
    float x = (float)(int)(i * 37 % 101) / 50 - 1;
    memcpy(first + 4 * i, &x, 4);
  }
  if (!run(model, 0, want, workspace)) return 1;
  static const size_t by[] = {0, 1, 2, 4, 16, 20, 64, 67};
  int runs = 0;
  for (size_t i = 0; i < sizeof by / sizeof *by; i++)
    for (size_t o = 0; o < sizeof by / sizeof *by; o++) {
      memset(other, 0x55, sizeof other);
      if (!run(model, by[i], other + by[o], workspace)) return 1;
      if (memcmp(other + by[o], want, OUT)) return printf("in %zu, out %zu\n", by[i], by[o]), 1;
      if (memcmp(memory + by[i], first, IN)) return printf("the input was written\n"), 1;
      if (other[by[o] + OUT] != 0x55) return printf("behind the output was written\n"), 1;
      /* Over the input, from its own begin or from within. */
      if (!run(model, by[i], memory + by[o], workspace)) return 1;
      if (memcmp(memory + by[o], want, OUT)) return printf("%zu over %zu\n", by[o], by[i]), 1;
      runs += 2;
    }
  printf("%d equal\n", runs);
  net_close(model);
  free(workspace);
  return 0;
}
