/* Test program linked with an exported library (`../library.rs`): calls each function with wrong
 * arguments and with broken weight files, and checks the error codes. */
#include "net.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The library's own, to make files that are damaged and sealed all the same. */
extern unsigned long long net_rt_digest(const void *bytes, size_t length);

static int wrong;

static void expect(const char *what, int got, int want) {
  if (got == want) return;
  fprintf(stderr, "%s: %d (%s), not %d\n", what, got, net_error_text(got), want);
  wrong = 1;
}

static void put(const char *path, const void *bytes, size_t count) {
  FILE *f = fopen(path, "wb");
  if (!f || fwrite(bytes, 1, count, f) != count || fclose(f) != 0) exit(1);
}

int main(void) {
  static float input[3 * 32 * 32], output[10];
  static unsigned char file[1 << 20] __attribute__((aligned(64)));
  net_model *model = NULL;
  FILE *f = fopen("net.weights", "rb");
  size_t bytes = f ? fread(file, 1, sizeof file, f) : 0;
  if (f) fclose(f);
  expect("open", net_open(&model, "net.weights"), NET_OK);
  expect("verify", net_verify(model), NET_OK);
  if (net_workspace_bytes(model) != NET_WORKSPACE_BYTES) wrong = 1, fprintf(stderr, "bytes\n");
  if (net_abi_version() != NET_ABI) wrong = 1, fprintf(stderr, "version\n");
  unsigned char *workspace = NULL;
  if (posix_memalign((void **)&workspace, 64, NET_WORKSPACE_BYTES + 64) != 0) return 1;
  net_io io = {sizeof io, input, output, NULL};
  expect("run", net_run(model, &io, workspace), NET_OK);
  expect("no model", net_run(NULL, &io, workspace), NET_ERROR_ARGUMENT);
  expect("no io", net_run(model, NULL, workspace), NET_ERROR_ARGUMENT);
  expect("no workspace", net_run(model, &io, NULL), NET_ERROR_ARGUMENT);
  expect("not aligned", net_run(model, &io, workspace + 4), NET_ERROR_ALIGNMENT);
  net_io without = io;
  without.struct_size = offsetof(net_io, pool);
  expect("an older struct", net_run(model, &without, workspace), NET_OK);
  without.struct_size = 8;
  expect("a struct of nothing", net_run(model, &without, workspace), NET_ERROR_ARGUMENT);
  net_io none = {sizeof none, NULL, output, NULL};
  expect("no input", net_run(model, &none, workspace), NET_ERROR_ARGUMENT);
  net_close(model);
  net_close(NULL);

  expect("no path", net_open(&model, NULL), NET_ERROR_ARGUMENT);
  expect("nowhere", net_open(NULL, "net.weights"), NET_ERROR_ARGUMENT);
  expect("no file", net_open(&model, "absent"), NET_ERROR_FILE);
  expect("a folder", net_open(&model, "."), NET_ERROR_FILE);
  put("w", file, 0);
  expect("an empty file", net_open(&model, "w"), NET_ERROR_DAMAGED);
  put("w", file, bytes - 1);
  expect("a cut file", net_open(&model, "w"), NET_ERROR_DAMAGED);
  file[8] = 99;
  put("w", file, bytes);
  expect("another version", net_open(&model, "w"), NET_ERROR_VERSION);
  file[8] = 1;
  file[24] ^= 1;
  put("w", file, bytes);
  expect("a changed head", net_open(&model, "w"), NET_ERROR_DAMAGED);
  file[24] ^= 1;
  file[bytes - 4096] ^= 1;
  put("w", file, bytes);
  expect("a changed body", net_open(&model, "w"), NET_OK);
  expect("is seen when asked", net_verify(model), NET_ERROR_DAMAGED);
  net_close(model);
  put("w", net_describe(), strlen(net_describe()));
  expect("another kind of file", net_open(&model, "w"), NET_ERROR_DAMAGED);
  file[bytes - 4096] ^= 1;
  file[24] ^= 1;
  unsigned sections;
  memcpy(&sections, file + 32, sizeof sections);
  unsigned long long digest = net_rt_digest(file, 40 + 32 * sections);
  memcpy(file + 40 + 32 * sections, &digest, sizeof digest);
  put("w", file, bytes);
  expect("another network's file", net_open(&model, "w"), NET_ERROR_OTHER);
  expect("memory off by 4", net_open_memory(&model, file + 4, 100), NET_ERROR_ALIGNMENT);
  free(workspace);
  if (!wrong) printf("fine\n");
  return wrong;
}
