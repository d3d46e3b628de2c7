/* Test program linked with an exported library (`../library.rs`), compiled with sanitizers:
 * opens mutated weight files, each in memory that ends where the file does, and runs the network
 * where opening succeeds. Prints how many were refused and how many ran. */
#include "net.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IN = 3 * 32 * 32, OUT = 10, FILES = 10000, HEAD = 152 };

static unsigned long long state = 1;

static size_t any(size_t below) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return below ? (size_t)(state >> 33) % below : 0;
}

/* The library's own, to make files that are damaged and sealed all the same. */
extern unsigned long long net_rt_digest(const void *bytes, size_t length);

/* Makes the digest of the head right again, so that what stands behind it is reached. */
static void seal(unsigned char *file, size_t bytes) {
  unsigned sections;
  memcpy(&sections, file + 32, sizeof sections);
  size_t at = 40 + (size_t)sections * 32;
  if (bytes < 48 || at > bytes - 8) return;
  unsigned long long digest = net_rt_digest(file, at);
  memcpy(file + at, &digest, sizeof digest);
}

int main(void) {
  static float input[IN], output[OUT];
  FILE *f = fopen("net.weights", "rb");
  if (!f || fseek(f, 0, SEEK_END) != 0) return 1;
  size_t whole = (size_t)ftell(f);
  unsigned char *right = malloc(whole);
  rewind(f);
  if (!right || fread(right, 1, whole, f) != whole) return 1;
  fclose(f);
  int refused = 0, ran = 0, verified = 0;
  for (int i = 0; i < FILES; i++) {
    size_t bytes = any(4) == 0 ? any(whole + 1) : whole;
    unsigned char *file = NULL;
    if (posix_memalign((void **)&file, 64, bytes ? bytes : 1) != 0) return 1;
    memcpy(file, right, bytes);
    size_t within = any(3) ? (bytes < HEAD ? bytes : HEAD) : bytes;
    for (size_t n = any(4); n > 0 && within > 0; n--) {
      size_t at = any(within);
      switch (any(4)) {
      case 0: file[at] ^= (unsigned char)(1u << any(8)); break;
      case 1: file[at] = (unsigned char)any(256); break;
      case 2: memset(file + at, 0xff, within - at < 8 ? within - at : 8); break;
      default: memset(file + at, 0, within - at < 4 ? within - at : 4); break;
      }
    }
    if (any(2) && bytes >= HEAD) seal(file, bytes);
    net_model *model = NULL;
    int code = net_open_memory(&model, file, bytes);
    if (code != NET_OK) {
      if (model) return fprintf(stderr, "an error, and a model\n"), 1;
      refused++;
    } else {
      void *workspace = NULL;
      if (posix_memalign(&workspace, 64, net_workspace_bytes(model)) != 0) return 1;
      net_io io = {sizeof io, input, output, NULL};
      if (net_run(model, &io, workspace) != NET_OK) return fprintf(stderr, "a run failed\n"), 1;
      verified += net_verify(model) == NET_OK;
      ran++;
      free(workspace);
      net_close(model);
    }
    free(file);
  }
  free(right);
  printf("refused %d ran %d intact %d\n", refused, ran, verified);
  return 0;
}
