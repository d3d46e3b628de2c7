/* Test program linked with a library that was exported for a GPU, on the emulated GPU
 * (`../gpu.rs`, which has the model: inputs x and z, outputs m, p, c and k, where k is z itself).
 * Runs the network, on a stream and as a captured graph, on tensors at all kinds of addresses in
 * one piece of memory: apart, off the multiples of 16 bytes that kernels want, and over each other.
 * After each run the memory must hold the same bytes as after a run that copies all tensors, and
 * the run must have asked the emulated driver for the number of copies that the case states. */
#include "net.h"
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int emulated_copies(void);

enum { X, Z, M, P, C, K, TENSORS, INPUTS = 2, ALL = 8192, GUARD = 4096 };

/* Outputs are in the order in which copies write them. */
static const size_t bytes[TENSORS] = {512, 512, 256, 256, 1024, 512};
static const size_t apart[TENSORS] = {0, 1024, 2048, 3072, 4096, 6144};

/* How many bytes each tensor is moved from its place in `apart`, and the number of copies that a
 * run makes then. The copy of z to k is always made, since that value is an input and an output. */
static const struct {
  const char *what;
  long by[TENSORS];
  int copies;
} cases[] = {
    {"all off 16 bytes", {4, 4, 4, 4, 4, 4}, 6},
    {"apart", {0}, 1},
    {"multiples of 16 bytes", {16, 16, 16, 16, 16, 16}, 1},
    {"an input off 16 bytes", {8}, 2},
    {"an input off its elements", {1}, 2},
    {"an input that is an output off 16 bytes", {0, 4}, 1},
    {"an output that a step reads off 16 bytes", {0, 0, 4}, 2},
    {"an output off its elements", {0, 0, 0, 2}, 2},
    {"an output off 16 bytes", {0, 0, 0, 0, 8}, 2},
    {"an output that is an input off 16 bytes", {0, 0, 0, 0, 0, 12}, 2},
    {"one tensor for two inputs", {0, -1024}, 1},
    {"inputs that overlap", {0, -768}, 1},
    {"an output over an input", {0, 0, -2048}, 2},
    {"an output over the end of an input", {0, 0, 0, 0, 256 - 4096}, 2},
    {"an output over the input that it is", {0, 0, 0, 0, 0, 1024 - 6144}, 2},
    {"an output over another input", {0, 0, 0, 0, 0, -6144}, 2},
    {"outputs over each other", {0, 0, 0, 2048 + 128 - 3072}, 3},
    {"an input before memory that is not there", {ALL - 512}, 1},
};

static unsigned char first[ALL], want[ALL], found[ALL], result[TENSORS][1024];

static void cuda(CUresult code) {
  if (code == CUDA_SUCCESS) return;
  fprintf(stderr, "CUDA: %d\n", code);
  exit(1);
}

static void good(int code) {
  if (code == NET_OK) return;
  fprintf(stderr, "%s\n", net_error_text(code));
  exit(1);
}

/* Memory as `first` has it, and a workspace that no run has used. */
static void bring(unsigned char *memory, void *workspace) {
  static unsigned char poison[NET_WORKSPACE_BYTES];
  memset(poison, 0xff, sizeof poison);
  cuda(cuMemcpyHtoD((CUdeviceptr)(uintptr_t)workspace, poison, sizeof poison));
  cuda(cuMemcpyHtoD((CUdeviceptr)(uintptr_t)memory, first, ALL));
  /* Our stream does not wait for the default one. */
  cuda(cuStreamSynchronize(NULL));
}

static void fetch(unsigned char *to, const unsigned char *from, size_t n) {
  cuda(cuMemcpyDtoH(to, (CUdeviceptr)(uintptr_t)from, n));
}

/* Memory as it is ahead of a run: the inputs at these places, between other bytes. */
static void prepare(const size_t *at) {
  for (size_t i = 0; i < ALL; i++) first[i] = (unsigned char)(0x55 + i / 512);
  for (int t = INPUTS - 1; t >= 0; t--)
    for (size_t i = 0; i < bytes[t] / 4; i++) {
      float x = (float)(int)((i + 50 * (size_t)t) * 37 % 101) / 50 - 1;
      memcpy(first + at[t] + 4 * i, &x, 4);
    }
}

/* The memory that is expected after a run: the results of a run by copies, which `result` holds, in
 * the places of the outputs. */
static void expect(const size_t *at) {
  memcpy(want, first, ALL);
  for (int t = INPUTS; t < TENSORS; t++) memcpy(want + at[t], result[t], bytes[t]);
}

static void check(const unsigned char *memory, const char *what, const char *how) {
  fetch(found, memory, ALL);
  for (size_t i = 0; i < ALL; i++)
    if (found[i] != want[i]) {
      printf("%s, %s: byte %zu differs\n", what, how, i);
      exit(1);
    }
}

/* Runs one inference on tensors at these places and returns the number of copies that it made. */
static int run(const net_model *model, unsigned char *memory, const size_t *at, void *workspace,
               CUstream stream) {
  void *p[TENSORS];
  for (int t = 0; t < TENSORS; t++) p[t] = memory + at[t];
  net_io io = {sizeof io, p[X], p[Z], p[M], p[P], p[C], p[K], stream};
  const int before = emulated_copies();
  good(net_run(model, &io, workspace));
  return emulated_copies() - before;
}

/* Sets `result` to the outputs of a run that copies all tensors, for inputs at these places. */
static void by_copies(const net_model *model, unsigned char *memory, const size_t *at,
                      void *workspace, CUstream stream) {
  static unsigned char kept[ALL];
  size_t off[TENSORS];
  memcpy(kept, first, ALL);
  for (int t = 0; t < TENSORS; t++) off[t] = apart[t] + 4;
  for (int t = 0; t < INPUTS; t++) memmove(first + off[t], kept + at[t], bytes[t]);
  bring(memory, workspace);
  memcpy(first, kept, ALL);
  if (run(model, memory, off, workspace, stream) != TENSORS) exit(3);
  good(net_finish(model, workspace, stream));
  fetch(found, memory, ALL);
  for (int t = INPUTS; t < TENSORS; t++) memcpy(result[t], found + off[t], bytes[t]);
  /* The run did compute: k equals z, and c begins with the first row of x. */
  if (memcmp(result[K], kept + at[Z], bytes[K]) || memcmp(result[C], kept + at[X], 128)) exit(4);
}

int main(void) {
  net_model *model = NULL;
  CUdevice gpu;
  CUcontext context;
  CUstream stream;
  CUdeviceptr room;
  cuda(cuInit(0));
  cuda(cuDeviceGet(&gpu, 0));
  cuda(cuDevicePrimaryCtxRetain(&context, gpu));
  cuda(cuCtxSetCurrent(context));
  cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  good(net_open(&model, "net.weights"));
  cuda(cuMemAlloc(&room, NET_WORKSPACE_BYTES));
  void *workspace = (void *)(uintptr_t)room;
  /* Memory of the emulated GPU is the host's: pages around it that nothing may touch. */
  unsigned char *memory =
      mmap(NULL, GUARD + ALL + GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory + GUARD, ALL, PROT_READ | PROT_WRITE)) return 1;
  memory += GUARD;
  int runs = 0;
  for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
    size_t at[TENSORS];
    for (int t = 0; t < TENSORS; t++) at[t] = (size_t)((long)apart[t] + cases[n].by[t]);
    prepare(at);
    by_copies(model, memory, at, workspace, stream);
    expect(at);
    bring(memory, workspace);
    int copies = run(model, memory, at, workspace, stream);
    good(net_finish(model, workspace, stream));
    check(memory, cases[n].what, "on a stream");
    if (copies != cases[n].copies) return printf("%s: %d copies\n", cases[n].what, copies), 1;
    CUgraph graph;
    CUgraphExec made;
    cuda(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    copies = run(model, memory, at, workspace, stream);
    cuda(cuStreamEndCapture(stream, &graph));
    cuda(cuGraphInstantiateWithFlags(&made, graph, 0));
    cuda(cuGraphDestroy(graph));
    if (copies != cases[n].copies) return printf("%s: %d recorded\n", cases[n].what, copies), 1;
    for (int replay = 0; replay < 2; replay++) {
      bring(memory, workspace);
      cuda(cuGraphLaunch(made, stream));
      good(net_finish(model, workspace, stream));
      check(memory, cases[n].what, "replayed");
    }
    runs += 3;
  }
  printf("%d equal\n", runs);
  net_close(model);
  return 0;
}
