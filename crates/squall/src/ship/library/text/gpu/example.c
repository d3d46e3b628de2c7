/* Runs @NAME@ on a GPU. Made by Squall; it is yours to change.
 *
 *   example [--weights FILE] [--runs N] [INPUT.bin ..]
 *
 * INPUT.bin are raw tensors in the order of the network's inputs; without them inputs are numbers
 * of a fixed pattern. The outputs go to output_0.bin, output_1.bin .. where inputs are given. One
 * inference is recorded as a graph, which is replayed. */
#include "@NAME@.h"
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

@TENSORS@

/* Ends the program where a call of CUDA fails. */
static void cuda(CUresult code, const char *what) {
  const char *text = "unknown";
  if (code == CUDA_SUCCESS) return;
  cuGetErrorString(code, &text);
  fprintf(stderr, "%s: %s\n", what, text);
  exit(1);
}

static void good(int code, const char *what) {
  if (code == @UPPER@_OK) return;
  fprintf(stderr, "%s: %s\n", what, @NAME@_error_text(code));
  exit(1);
}

static void *on_device(size_t bytes) {
  CUdeviceptr p = 0;
  cuda(cuMemAlloc(&p, bytes ? bytes : 1), "device memory");
  return (void *)(uintptr_t)p;
}

static void fill(void *to, size_t count, char type) {
  unsigned state = 1;
  for (size_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    if (type == 'f') ((float *)to)[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    else if (type == 'd') ((double *)to)[i] = (double)(state >> 8) / 8388608.0 - 1.0;
  }
}

/* The tensor of a file, or one of a fixed pattern, in device memory. */
static void *input_of(size_t i, const char *path) {
  const size_t bytes = inputs[i].count * inputs[i].size;
  void *host = calloc(1, bytes + 1), *to = on_device(bytes);
  FILE *f = path ? fopen(path, "rb") : NULL;
  if (!host) exit(1);
  if (path && (!f || fread(host, 1, bytes, f) != bytes || fgetc(f) != EOF)) {
    fprintf(stderr, "%s is no file of %zu bytes\n", path, bytes);
    exit(1);
  }
  if (f) fclose(f);
  else fill(host, inputs[i].count, inputs[i].type);
  cuda(cuMemcpyHtoD((CUdeviceptr)(uintptr_t)to, host, bytes), "an input");
  free(host);
  return to;
}

static void show_output(size_t i, const void *from, int is_written) {
  const size_t bytes = outputs[i].count * outputs[i].size;
  char *host = calloc(1, bytes + 1), name[40];
  if (!host) exit(1);
  cuda(cuMemcpyDtoH(host, (CUdeviceptr)(uintptr_t)from, bytes), "an output");
  snprintf(name, sizeof name, "output_%zu.bin", i);
  FILE *f = is_written ? fopen(name, "wb") : NULL;
  if (is_written && (!f || fwrite(host, 1, bytes, f) != bytes || fclose(f) != 0)) {
    fprintf(stderr, "%s cannot be written\n", name);
    exit(1);
  }
  if (outputs[i].type == 'f') {
    printf("%s:", outputs[i].name);
    for (size_t e = 0; e < outputs[i].count && e < 5; e++)
      printf(" %g", (double)((const float *)(void *)host)[e]);
    printf("%s\n", outputs[i].count > 5 ? " .." : "");
  }
  free(host);
}

/* Records one inference as a graph. */
static CUgraphExec recorded(const @NAME@_model *model, const @NAME@_io *io, void *workspace,
                            CUstream stream) {
  CUgraph graph;
  CUgraphExec made;
  cuda(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "recording");
  good(@NAME@_run(model, io, workspace), "a run");
  cuda(cuStreamEndCapture(stream, &graph), "recording");
  cuda(cuGraphInstantiateWithFlags(&made, graph, 0), "recording");
  cuda(cuGraphDestroy(graph), "recording");
  return made;
}

static float replayed(CUgraphExec graph, CUstream stream, long runs) {
  CUevent began, ended;
  float ms = 0;
  cuda(cuEventCreate(&began, CU_EVENT_DEFAULT), "an event");
  cuda(cuEventCreate(&ended, CU_EVENT_DEFAULT), "an event");
  cuda(cuGraphLaunch(graph, stream), "a run");
  cuda(cuEventRecord(began, stream), "timing");
  for (long i = 0; i < runs; i++) cuda(cuGraphLaunch(graph, stream), "a run");
  cuda(cuEventRecord(ended, stream), "timing");
  cuda(cuEventSynchronize(ended), "a run");
  cuda(cuEventElapsedTime(&ms, began, ended), "timing");
  return ms / (float)runs;
}

int main(int argc, char **argv) {
  const char *weights = "@NAME@.weights", *files[INPUTS + 1] = {NULL};
  long runs = 1;
  size_t given = 0;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--weights") == 0 && i + 1 < argc) weights = argv[++i];
    else if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc) runs = atol(argv[++i]);
    else if (argv[i][0] != '-' && given < INPUTS) files[given++] = argv[i];
    else given = INPUTS + 1, i = argc;
  }
  if (runs < 1 || (given != 0 && given != INPUTS)) {
    fprintf(stderr, "usage: %s [--weights FILE] [--runs N] [INPUT.bin ..], %d inputs\n", argv[0],
            (int)INPUTS);
    return 2;
  }
  CUdevice gpu;
  CUcontext context;
  CUstream stream;
  cuda(cuInit(0), "the driver");
  cuda(cuDeviceGet(&gpu, 0), "the GPU");
  cuda(cuDevicePrimaryCtxRetain(&context, gpu), "its context");
  cuda(cuCtxSetCurrent(context), "its context");
  cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "a stream");

  @NAME@_model *model;
  good(@NAME@_open(&model, weights), weights);
  void *workspace = on_device(@NAME@_workspace_bytes(model)), *input[INPUTS], *output[OUTPUTS];
  for (size_t i = 0; i < INPUTS; i++) input[i] = input_of(i, files[i]);
  /* Our stream does not wait for the default one, by which inputs were brought. */
  cuda(cuStreamSynchronize(NULL), "inputs");
  for (size_t i = 0; i < OUTPUTS; i++) output[i] = on_device(outputs[i].count * outputs[i].size);
  @NAME@_io io = {sizeof io, @IO@, stream};
  good(@NAME@_run(model, &io, workspace), "a run");
  good(@NAME@_finish(model, workspace, stream), "a run");

  CUgraphExec graph = recorded(model, &io, workspace, stream);
  printf("%ld runs: %.4f ms each\n", runs, (double)replayed(graph, stream, runs));
  good(@NAME@_finish(model, workspace, stream), "a run");
  for (size_t i = 0; i < OUTPUTS; i++) show_output(i, output[i], given > 0);
  @NAME@_close(model);
  return 0;
}
