/* Runs @NAME@. Made by Squall; it is yours to change.
 *
 *   example [--weights FILE] [--copy] [--runs N] [INPUT.bin ..]
 *
 * INPUT.bin are raw tensors in the order of the network's inputs; without them inputs are numbers
 * of a fixed pattern. The outputs go to output_0.bin, output_1.bin .. where inputs are given. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include "@NAME@.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

@TENSORS@

/* Memory for a tensor or a workspace. Large pages, where the system has them, make runs faster. */
static void *memory(size_t bytes) {
  const size_t large = (size_t)2 << 20;
  void *p = NULL;
  if (posix_memalign(&p, bytes >= large ? large : 64, (bytes / large + 1) * large) != 0) {
    fprintf(stderr, "there is not enough memory\n");
    exit(1);
  }
#ifdef MADV_HUGEPAGE
  if (bytes >= large) madvise(p, (bytes / large + 1) * large, MADV_HUGEPAGE);
#endif
  return p;
}

static double milliseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void fill(void *to, size_t count, char type) {
  unsigned state = 1;
  for (size_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    if (type == 'f') ((float *)to)[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    else if (type == 'd') ((double *)to)[i] = (double)(state >> 8) / 8388608.0 - 1.0;
  }
}

static int read_tensor(const char *path, void *to, size_t bytes) {
  FILE *f = fopen(path, "rb");
  int fine = f && fread(to, 1, bytes, f) == bytes && fgetc(f) == EOF;
  if (f) fclose(f);
  if (!fine) fprintf(stderr, "%s is no file of %zu bytes\n", path, bytes);
  return fine;
}

static int write_tensor(size_t number, const void *from, size_t bytes) {
  char name[40];
  snprintf(name, sizeof name, "output_%zu.bin", number);
  FILE *f = fopen(name, "wb");
  int fine = f && fwrite(from, 1, bytes, f) == bytes;
  if (f && fclose(f) != 0) fine = 0;
  if (!fine) fprintf(stderr, "%s cannot be written\n", name);
  return fine;
}

int main(int argc, char **argv) {
  const char *weights = "@NAME@.weights", *files[INPUTS + 1] = {NULL};
  long runs = 1;
  int copies = 0;
  size_t given = 0;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--weights") == 0 && i + 1 < argc) weights = argv[++i];
    else if (strcmp(argv[i], "--copy") == 0) copies = 1;
    else if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc) runs = atol(argv[++i]);
    else if (argv[i][0] != '-' && given < INPUTS) files[given++] = argv[i];
    else given = INPUTS + 1, i = argc;
  }
  if (runs < 1 || (given != 0 && given != INPUTS)) {
    fprintf(stderr, "usage: %s [--weights FILE] [--copy] [--runs N] [INPUT.bin ..], %d inputs\n",
            argv[0], (int)INPUTS);
    return 2;
  }

  @NAME@_model *model;
  double begin = milliseconds();
  int code = copies ? @NAME@_open_copy(&model, weights) : @NAME@_open(&model, weights);
  double opened = milliseconds() - begin;
  if (code != @UPPER@_OK) {
    fprintf(stderr, "%s: %s\n", weights, @NAME@_error_text(code));
    return 1;
  }
  void *workspace = memory(@NAME@_workspace_bytes(model));
  void *input[INPUTS], *output[OUTPUTS];
  for (size_t i = 0; i < INPUTS; i++) {
    input[i] = memory(inputs[i].count * inputs[i].size);
    memset(input[i], 0, inputs[i].count * inputs[i].size);
    if (given == 0) fill(input[i], inputs[i].count, inputs[i].type);
    else if (!read_tensor(files[i], input[i], inputs[i].count * inputs[i].size)) return 1;
  }
  for (size_t i = 0; i < OUTPUTS; i++) output[i] = memory(outputs[i].count * outputs[i].size);

  @NAME@_io io = {sizeof io, @IO@, @EXTENTS@NULL};
  double *took = (double *)malloc((size_t)runs * sizeof *took);
  for (long i = 0; i < runs && took; i++) {
@RELEASE@    begin = milliseconds();
    code = @NAME@_run(model, &io, workspace);
    took[i] = milliseconds() - begin;
    if (code != @UPPER@_OK) {
      fprintf(stderr, "%s\n", @NAME@_error_text(code));
      return 1;
    }
  }
  @NAME@_close(model);
  if (!took) return 1;
  qsort(took, (size_t)runs, sizeof *took, ascending);
  printf("opened in %.3f ms; %ld runs: best %.3f ms, median %.3f ms\n", opened, runs, took[0],
         took[runs / 2]);
  for (size_t i = 0; i < OUTPUTS; i++) {
@SHOWN@    if (given && !write_tensor(i, output[i], outputs[i].count * outputs[i].size)) return 1;
    if (outputs[i].type != 'f') continue;
    printf("%s:", outputs[i].name);
    for (size_t e = 0; e < outputs[i].count && e < 5; e++)
      printf(" %g", (double)((const float *)output[i])[e]);
    printf("%s\n", outputs[i].count > 5 ? " .." : "");
  }
  return 0;
}
