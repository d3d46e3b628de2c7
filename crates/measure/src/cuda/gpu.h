/* Part of runner.c where it is compiled with SQUALL_CUDA: kernels that are cubins run on a GPU
 * through the driver, and NVRTC makes cubins of CUDA C. Both libraries are loaded at run time, so
 * that nothing of CUDA is needed to compile this. Prototypes are those of the driver's ABI.
 *
 * A cubin comes with a file PATH.launch of lines `prepare|call ENTRY X Y Z X Y Z SHARED COUNT MAPS ARGUMENT .. MAP ..`: blocks,
 * threads of a block, and arguments dN (data), oN (output), rN,M (output N after data M was copied to it), xBYTES (a number);
 * COUNT is -1 where the phase decides the arguments. A tensor map is `dN|pBYTE|wBYTE RANK EXTENT .. STRIDE .. SPANNED .. STEP ..`
 * (data, prepared memory or workspace from a byte on; RANK of each, of the strides one fewer).
 *
 * Everything that touches device memory goes through the one stream, so that it happens in the order in which it
 * is written here. The driver's calls without a stream use another one, which ours does not wait for, and filling
 * returns before it happened: poison could arrive behind what a kernel wrote (docs/decisions/0014). */

typedef int cu_result;
typedef unsigned long long cu_pointer;
typedef struct cu_opaque *cu_handle;

#define DRIVER(X)                                                                                   \
  X(cuInit, (unsigned))                                                                             \
  X(cuDriverGetVersion, (int *))                                                                    \
  X(cuDeviceGetCount, (int *))                                                                      \
  X(cuDeviceGet, (int *, int))                                                                      \
  X(cuDeviceGetName, (char *, int, int))                                                            \
  X(cuDeviceGetAttribute, (int *, int, int))                                                        \
  X(cuDeviceGetPCIBusId, (char *, int, int))                                                        \
  X(cuDevicePrimaryCtxRetain, (cu_handle *, int))                                                   \
  X(cuCtxSetCurrent, (cu_handle))                                                                   \
  X(cuMemAlloc_v2, (cu_pointer *, size_t))                                                          \
  X(cuMemFree_v2, (cu_pointer))                                                                     \
  X(cuMemcpyHtoDAsync_v2, (cu_pointer, const void *, size_t, cu_handle))                            \
  X(cuMemcpyDtoHAsync_v2, (void *, cu_pointer, size_t, cu_handle))                                  \
  X(cuMemcpyDtoDAsync_v2, (cu_pointer, cu_pointer, size_t, cu_handle))                              \
  X(cuMemsetD8Async, (cu_pointer, unsigned char, size_t, cu_handle))                                \
  X(cuModuleLoad, (cu_handle *, const char *))                                                      \
  X(cuModuleUnload, (cu_handle))                                                                    \
  X(cuModuleGetFunction, (cu_handle *, cu_handle, const char *))                                    \
  X(cuFuncSetAttribute, (cu_handle, int, int))                                                      \
  X(cuLaunchKernel, (cu_handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, cu_handle, void **, void **)) \
  X(cuStreamCreate, (cu_handle *, unsigned))                                                        \
  X(cuStreamSynchronize, (cu_handle))                                                               \
  X(cuStreamBeginCapture_v2, (cu_handle, int))                                                      \
  X(cuStreamEndCapture, (cu_handle, cu_handle *))                                                   \
  X(cuGraphInstantiateWithFlags, (cu_handle *, cu_handle, unsigned long long))                      \
  X(cuGraphLaunch, (cu_handle, cu_handle))                                                          \
  X(cuGraphExecDestroy, (cu_handle))                                                                \
  X(cuGraphDestroy, (cu_handle))                                                                    \
  X(cuEventCreate, (cu_handle *, unsigned))                                                         \
  X(cuEventRecord, (cu_handle, cu_handle))                                                          \
  X(cuEventSynchronize, (cu_handle))                                                                \
  X(cuEventElapsedTime, (float *, cu_handle, cu_handle))                                            \
  X(cuGetErrorString, (cu_result, const char **))

#define NVRTC(X)                                                                                    \
  X(nvrtcVersion, (int *, int *))                                                                   \
  X(nvrtcCreateProgram, (cu_handle *, const char *, const char *, int, const char *const *, const char *const *)) \
  X(nvrtcAddNameExpression, (cu_handle, const char *))                                              \
  X(nvrtcCompileProgram, (cu_handle, int, const char *const *))                                     \
  X(nvrtcGetLoweredName, (cu_handle, const char *, const char **))                                  \
  X(nvrtcGetProgramLogSize, (cu_handle, size_t *))                                                  \
  X(nvrtcGetProgramLog, (cu_handle, char *))                                                        \
  X(nvrtcGetCUBINSize, (cu_handle, size_t *))                                                       \
  X(nvrtcGetCUBIN, (cu_handle, char *))                                                             \
  X(nvrtcDestroyProgram, (cu_handle *))

/* In drivers of CUDA 12 and later. */
static cu_result (*cuTensorMapEncodeTiled)(void *, int, unsigned, cu_pointer, const unsigned long long *, const unsigned long long *, const unsigned *,
                                           const unsigned *, int, int, int, int);

#define DECLARE(name, arguments) static cu_result (*name) arguments;
DRIVER(DECLARE)
NVRTC(DECLARE)

#define RESOLVE(name, arguments)                                                                    \
  *(void **)&name = dlsym(library, #name);                                                          \
  if (!name) return fail("device", "the CUDA library is too old: it has no %s", #name);

static int open_driver(void) {
  const char *asked = getenv("SQUALL_LIBCUDA");
  void *library = dlopen(asked ? asked : "libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!library) return fail("device", "no NVIDIA driver: %s", dlerror());
  DRIVER(RESOLVE)
  *(void **)&cuTensorMapEncodeTiled = dlsym(library, "cuTensorMapEncodeTiled");
  return 1;
}

static int open_nvrtc(void) {
  static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"};
  const char *asked = getenv("SQUALL_NVRTC");
  void *library = asked ? dlopen(asked, RTLD_NOW) : NULL;
  for (int i = 0; !library && !asked && i < 4; i++) library = dlopen(names[i], RTLD_NOW);
  if (!library) return fail("device", "no NVRTC, which compiles CUDA C: %s (SQUALL_NVRTC names its file)", dlerror());
  NVRTC(RESOLVE)
  return 1;
}

/* A fault of the device ends the context: the process must be replaced. */
static int good(cu_result code, const char *what) {
  if (code == 0) return 1;
  const char *text = NULL;
  if (cuGetErrorString) cuGetErrorString(code, &text);
  int lasting = code == 700 || (code >= 702 && code <= 720 && code != 709) || code == 999;
  return fail(lasting ? "fault" : code == 2 ? "memory" : "launch", "%s: %s (CUDA error %d)", what, text ? text : "unknown", code);
}

#include "nvml.h"

enum { SLACK = 4096, LAUNCHES = 32, ARGUMENTS = 64, MAPS = 8, RANK = 5 };

typedef struct {
  cu_pointer base;
  size_t size, room;
} device_buffer;

typedef struct {
  char kind; /* d, o, r, x */
  int index, from;
  unsigned char bytes[8];
} argument;

typedef struct {
  char kind; /* d, p, w */
  unsigned long long at, extents[RANK], strides[RANK];
  unsigned rank, spanned[RANK], steps[RANK];
} tensor_map;

typedef struct {
  cu_handle function;
  int prepare;
  unsigned blocks[3], threads[3], shared;
  int count; /* of arguments, or -1 */
  argument arguments[ARGUMENTS];
  int mapped; /* how many maps */
  tensor_map maps[MAPS];
} launch;

typedef struct {
  cu_handle module;
  launch launches[LAUNCHES];
  int count;
  cu_handle graph[2]; /* by input set */
  long calls[2];      /* that it holds */
} gpu_kernel;

static gpu_kernel gpu_kernels[2];
static device_buffer gpu_data[2][TENSORS], gpu_weights[TENSORS], gpu_outputs[TENSORS], gpu_prepared[2], gpu_workspace[2], gpu_flush;
static cu_handle stream, began, ended;
static int gpu_ready, gpu_ordinal;

static int open_gpu(int ordinal) {
  int device, count = 0;
  cu_handle context;
  if (!open_driver() || !good(cuInit(0), "the driver does not start") || !good(cuDeviceGetCount(&count), "devices")) return 0;
  if (ordinal >= count) return fail("device", "there is no CUDA device %d: the driver sees %d", ordinal, count);
  gpu_ready = good(cuDeviceGet(&device, ordinal), "the device") && good(cuDevicePrimaryCtxRetain(&context, device), "its context") &&
              good(cuCtxSetCurrent(context), "its context") && good(cuStreamCreate(&stream, 1), "a stream") &&
              good(cuEventCreate(&began, 0), "an event") && good(cuEventCreate(&ended, 0), "an event");
  gpu_ordinal = ordinal;
  if (gpu_ready) open_nvml(device);
  return gpu_ready;
}

/* Which GPU it is, and its clocks as the kernel left them. */
static void say_gpu(void) {
  say(" %d", gpu_ordinal);
  say_clocks();
}

/* How many there are; versions; capability, multiprocessors, limits; clocks now and at most,
 * degrees, watts; then the name. */
static int describe_gpu(int ordinal) {
  static const int wanted[] = {75, 76, 16, 1, 39, 97, 81, 82, 38};
  int device, version = 0, major = 0, minor = 0, value;
  char name[200];
  if (!open_gpu(ordinal) || !open_nvrtc()) return 0;
  if (!good(cuDeviceGet(&device, ordinal), "the device") || !good(cuDeviceGetName(name, sizeof name, device), "its name")) return 0;
  cuDriverGetVersion(&version);
  nvrtcVersion(&major, &minor);
  unsigned degrees = 0, milliwatts = 0;
  int count = 0;
  if (nvml_device) nvmlDeviceGetTemperature(nvml_device, 0, &degrees);
  if (nvml_device) nvmlDeviceGetPowerUsage(nvml_device, &milliwatts);
  if (!good(cuDeviceGetCount(&count), "devices")) return 0;
  say("device %d %d %d %d", count, version, major, minor);
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    if (!good(cuDeviceGetAttribute(&value, wanted[i], device), "its attributes")) return 0;
    say(" %d", value);
  }
  say_clocks();
  say(" %u %u %u %u %s", nvml_clock(CLOCK_SM, 1), nvml_clock(CLOCK_MEMORY, 1), degrees, milliwatts / 1000, name);
  return 1;
}

static int gpu_fill(cu_pointer at, int byte, size_t size, const char *what) {
  return size == 0 || good(cuMemsetD8Async(at, (unsigned char)byte, size, stream), what);
}

static int gpu_give(cu_pointer to, const void *from, size_t size, const char *what) {
  return size == 0 || good(cuMemcpyHtoDAsync_v2(to, from, size, stream), what);
}

/* Reads device memory, after all that was begun before. */
static int gpu_take(void *to, cu_pointer from, size_t size) {
  return size == 0 || (good(cuMemcpyDtoHAsync_v2(to, from, size, stream), "reading back") && good(cuStreamSynchronize(stream), "reading back"));
}

/* Room with slack on both sides, filled with `byte` there. */
static int gpu_place(device_buffer *b, size_t size, int byte) {
  if (b->base && (b->room < size || b->room > 4 * size + (1 << 20))) {
    cuMemFree_v2(b->base);
    b->base = 0;
  }
  if (!b->base) {
    b->room = (size + 255) / 256 * 256;
    if (!good(cuMemAlloc_v2(&b->base, b->room + 2 * SLACK), "device memory")) {
      b->base = 0;
      return 0;
    }
  }
  b->size = size;
  return gpu_fill(b->base, byte, b->room + 2 * SLACK, "device memory");
}

static cu_pointer gpu_at(const device_buffer *b) { return b->base + SLACK; }

static int gpu_untouched(const device_buffer *b, const char *name) {
  unsigned char edge[SLACK];
  for (int behind = 0; behind < 2; behind++) {
    cu_pointer from = behind ? gpu_at(b) + b->size : b->base;
    if (!gpu_take(edge, from, SLACK)) return 0;
    for (int i = 0; i < SLACK; i++)
      if (edge[i] != CANARY) return fail("damage", "wrote %s %s (byte %d of the edge)", behind ? "behind the end of" : "in front of", name, i);
  }
  return 1;
}

static int gpu_task(void) {
  if (!gpu_ready) return 1;
  for (int set = 0; set < 2; set++)
    for (int i = 0; i < data_count; i++) {
      buffer *b = &data[set][i];
      if (!gpu_place(&gpu_data[set][i], b->size, 0xFF) || !gpu_give(gpu_at(&gpu_data[set][i]), b->at, b->size, "an input")) return 0;
    }
  for (int i = 0; i < weight_count; i++) {
    buffer *b = &weights[i];
    if (!gpu_place(&gpu_weights[i], b->size, 0xFF) || !gpu_give(gpu_at(&gpu_weights[i]), b->at, b->size, "a weight")) return 0;
  }
  for (int o = 0; o < output_count; o++)
    if (!gpu_place(&gpu_outputs[o], outputs[o].at.size, CANARY)) return 0;
  return 1;
}

static int is_cubin(const char *path) {
  size_t n = strlen(path);
  return n > 6 && strcmp(path + n - 6, ".cubin") == 0;
}

static void gpu_drop_graph(int which, int set) {
  gpu_kernel *k = &gpu_kernels[which];
  if (k->graph[set]) cuGraphExecDestroy(k->graph[set]);
  k->graph[set] = NULL;
  k->calls[set] = 0;
}

static void gpu_unload(int which) {
  gpu_drop_graph(which, 0);
  gpu_drop_graph(which, 1);
  if (gpu_kernels[which].module) cuModuleUnload(gpu_kernels[which].module);
  memset(&gpu_kernels[which], 0, sizeof gpu_kernels[which]);
}

/* Tensor maps as the driver encodes them: 16 bits an element, swizzled by 128 bytes, L2 fetched by 128 too. */
static int gpu_maps(int which, int set, launch *l, void **arguments) {
  static _Alignas(64) unsigned char encoded[MAPS][128];
  enum { UINT16 = 1, PLAIN = 0, BY_128 = 3, FETCH_128 = 2, ZEROS = 0 };
  if (l->mapped && !cuTensorMapEncodeTiled) return fail("launch", "the driver is too old for tensor maps, which CUDA 12 has");
  for (int i = 0; i < l->mapped; i++) {
    tensor_map *m = &l->maps[i];
    cu_pointer at = m->kind == 'd' ? gpu_at(&gpu_data[set][m->at]) : m->at + gpu_at(m->kind == 'p' ? &gpu_prepared[which] : &gpu_workspace[which]);
    if (!good(cuTensorMapEncodeTiled(encoded[i], UINT16, m->rank, at, m->extents, m->strides, m->spanned, m->steps, PLAIN, BY_128, FETCH_128, ZEROS), "a tensor map"))
      return 0;
    arguments[i] = encoded[i];
  }
  return 1;
}

/* The arguments of a launch as the driver takes them; what is restored is copied first. */
static int gpu_arguments(int which, int set, launch *l, void **arguments) {
  static cu_pointer values[TENSORS + ARGUMENTS];
  int n = 0;
  if (l->count < 0) {
    for (int i = 0; i < (l->prepare ? weight_count : data_count); i++) values[n++] = gpu_at(l->prepare ? &gpu_weights[i] : &gpu_data[set][i]);
    if (!l->prepare) values[n++] = gpu_at(&gpu_outputs[0]);
    values[n++] = gpu_at(&gpu_prepared[which]);
    values[n++] = gpu_at(&gpu_workspace[which]);
  }
  for (int i = 0; i < n; i++) arguments[i] = &values[i];
  for (int i = 0; i < l->count; i++) {
    argument *a = &l->arguments[i];
    device_buffer *b = a->kind == 'd' ? &gpu_data[set][a->index] : &gpu_outputs[a->index];
    arguments[i] = a->kind == 'x' ? (void *)a->bytes : (void *)&values[i];
    if (a->kind != 'x') values[i] = gpu_at(b);
    if (a->kind == 'r' && !good(cuMemcpyDtoDAsync_v2(values[i], gpu_at(&gpu_data[set][a->from]), b->size, stream), "restoring an input")) return 0;
  }
  return gpu_maps(which, set, l, arguments + (l->count < 0 ? n : l->count));
}

/* One call, or the preparation of weights, on the stream. */
static int gpu_launch(int which, int set, int prepare) {
  gpu_kernel *k = &gpu_kernels[which];
  static void *arguments[TENSORS + ARGUMENTS + MAPS];
  for (int i = 0; i < k->count; i++) {
    launch *l = &k->launches[i];
    const unsigned *b = l->blocks, *t = l->threads;
    if (l->prepare == prepare && !(gpu_arguments(which, set, l, arguments) &&
                                   good(cuLaunchKernel(l->function, b[0], b[1], b[2], t[0], t[1], t[2], l->shared, stream, arguments, NULL), "the launch")))
      return 0;
  }
  return 1;
}

/* An argument's text; its buffers must be there. */
static int read_argument(const char *text, argument *a) {
  char *end = NULL;
  a->kind = text[0];
  if (a->kind == 'x') {
    size_t n = strlen(text + 1) / 2;
    if (n < 1 || n > sizeof a->bytes) return 0;
    for (size_t i = 0; i < n; i++) {
      unsigned byte;
      if (sscanf(text + 1 + 2 * i, "%2x", &byte) != 1) return 0;
      a->bytes[i] = (unsigned char)byte;
    }
    return 1;
  }
  a->index = (int)strtol(text + 1, &end, 10);
  if (a->kind == 'd') return a->index >= 0 && a->index < data_count;
  if (a->kind != 'o' && a->kind != 'r') return 0;
  if (a->kind == 'r') a->from = *end == ',' ? (int)strtol(end + 1, NULL, 10) : -1;
  if (a->index < 0 || a->index >= output_count) return 0;
  return a->kind == 'o' || (a->from >= 0 && a->from < data_count && gpu_data[0][a->from].size >= gpu_outputs[a->index].size);
}

static int read_map(FILE *f, tensor_map *m) {
  if (fscanf(f, " %c%llu %u", &m->kind, &m->at, &m->rank) != 3 || m->rank < 1 || m->rank > RANK) return 0;
  for (unsigned i = 0; i < m->rank; i++)
    if (fscanf(f, "%llu", &m->extents[i]) != 1) return 0;
  for (unsigned i = 0; i + 1 < m->rank; i++)
    if (fscanf(f, "%llu", &m->strides[i]) != 1) return 0;
  for (unsigned i = 0; i < 2 * m->rank; i++)
    if (fscanf(f, "%u", i < m->rank ? &m->spanned[i] : &m->steps[i - m->rank]) != 1) return 0;
  return m->kind == 'p' || m->kind == 'w' || (m->kind == 'd' && m->at < (unsigned long long)data_count);
}

static int read_launches(FILE *f, const char *path, gpu_kernel *k) {
  char name[1100], phase_name[16];
  for (; k->count < LAUNCHES; k->count++) {
    launch *l = &k->launches[k->count];
    unsigned *b = l->blocks, *t = l->threads;
    int n = fscanf(f, "%15s %1023s %u %u %u %u %u %u %u %d %d", phase_name, name, b, b + 1, b + 2, t, t + 1, t + 2, &l->shared, &l->count, &l->mapped);
    if (n == EOF) break;
    if (n != 11 || l->count > ARGUMENTS || l->mapped < 0 || l->mapped > MAPS) return fail("launch", "%s: line %d is no launch", path, k->count + 1);
    l->prepare = strcmp(phase_name, "prepare") == 0;
    if (!good(cuModuleGetFunction(&l->function, k->module, name), name)) return 0;
    /* More than 48 KiB have to be asked for, and functions have some beside what a launch gives them. */
    if (l->shared && !good(cuFuncSetAttribute(l->function, 8, (int)l->shared), "its shared memory")) return 0;
    /* Clusters of more than 8 blocks; a device without them refuses the launch. */
    cuFuncSetAttribute(l->function, 14, 1);
    for (int i = 0; i < l->count; i++)
      if (fscanf(f, "%1023s", name) != 1 || !read_argument(name, &l->arguments[i])) return fail("launch", "%s: argument %d does not fit the task", path, i + 1);
    for (int i = 0; i < l->mapped; i++)
      if (!read_map(f, &l->maps[i])) return fail("launch", "%s: tensor map %d does not fit the task", path, i + 1);
  }
  return k->count > 0 && k->count < LAUNCHES ? 1 : fail("launch", "has %d launches", k->count);
}

static int gpu_load(int which, const char *path, size_t prepared_bytes, size_t workspace_bytes) {
  gpu_kernel *k = &gpu_kernels[which];
  char name[700];
  if (!gpu_ready) return fail("launch", "no GPU was opened");
  if (!good(cuModuleLoad(&k->module, path), "its loading")) return 0;
  snprintf(name, sizeof name, "%s.launch", path);
  FILE *f = fopen(name, "r");
  if (!f) return fail("launch", "%s cannot be read", name);
  int fine = read_launches(f, name, k);
  fclose(f);
  if (!fine) return 0;
  if (!gpu_place(&gpu_prepared[which], prepared_bytes, CANARY) || !gpu_place(&gpu_workspace[which], workspace_bytes, CANARY)) return 0;
  if (!gpu_fill(gpu_at(&gpu_prepared[which]), NOTHING_WRITTEN, prepared_bytes, "poisoning")) return 0;
  return gpu_launch(which, 0, 1) && good(cuStreamSynchronize(stream), "the preparation of weights") && gpu_untouched(&gpu_prepared[which], "the prepared weights");
}

static int gpu_poison(int which, int byte) {
  for (int o = 0; o < output_count; o++)
    if (!gpu_fill(gpu_at(&gpu_outputs[o]), byte, outputs[o].at.size, "poisoning")) return 0;
  return gpu_fill(gpu_at(&gpu_workspace[which]), NOTHING_WRITTEN, gpu_workspace[which].size, "poisoning");
}

/* What the kernel wrote, to where the check looks for it. */
static int gpu_fetch(int which) {
  for (int o = 0; o < output_count; o++)
    if (!gpu_take(outputs[o].at.at, gpu_at(&gpu_outputs[o]), outputs[o].at.size) ||
        !gpu_untouched(&gpu_outputs[o], output_count > 1 ? outputs[o].at.name : "the output"))
      return 0;
  return gpu_untouched(&gpu_workspace[which], "the workspace") && gpu_untouched(&gpu_prepared[which], "the prepared weights");
}

static int gpu_capture(int which, int set, long calls) {
  gpu_kernel *k = &gpu_kernels[which];
  cu_handle graph = NULL;
  gpu_drop_graph(which, set);
  if (!good(cuStreamBeginCapture_v2(stream, 2), "recording")) return 0;
  int fine = 1;
  for (long i = 0; fine && i < calls; i++) fine = gpu_launch(which, set, 0);
  cu_result code = cuStreamEndCapture(stream, &graph);
  if (!fine) return 0;
  fine = good(code, "recording") && good(cuGraphInstantiateWithFlags(&k->graph[set], graph, 0), "recording");
  if (graph) cuGraphDestroy(graph);
  if (fine) k->calls[set] = calls;
  return fine;
}

/* So many calls, recorded once and replayed; the time of one in ns. */
static double gpu_window(int which, int set, long calls) {
  gpu_kernel *k = &gpu_kernels[which];
  float ms = 0;
  int fresh = k->calls[set] != calls;
  if (fresh && !gpu_capture(which, set, calls)) return -1;
  phase = "the kernel";
  /* The first replay of a long recording carries its upload. */
  if (fresh && calls > 1 && !(good(cuGraphLaunch(k->graph[set], stream), "the launch") && good(cuStreamSynchronize(stream), "the kernel"))) return -1;
  int fine = good(cuEventRecord(began, stream), "timing") && good(cuGraphLaunch(k->graph[set], stream), "the launch") &&
             good(cuEventRecord(ended, stream), "timing") && good(cuEventSynchronize(ended), "the kernel") &&
             good(cuEventElapsedTime(&ms, began, ended), "timing");
  phase = "the runner itself";
  return fine ? 1e6 * (double)ms / (double)calls : -1;
}

static int gpu_flush_caches(size_t bytes) {
  if (gpu_flush.size < bytes && !gpu_place(&gpu_flush, bytes, 0)) return 0;
  return gpu_fill(gpu_at(&gpu_flush), 1, bytes, "flushing") && good(cuStreamSynchronize(stream), "flushing");
}

#include "nvrtc.h"
#include "roof.h"

/* What this process needs of CUDA, by what it was started as. */
static int begin_gpu(const char *argument) {
  if (process_mode == 'd') return describe_gpu(atoi(argument));
  if (process_mode == 'r') return measure_roof(argument);
  if (process_mode == 'g') return open_gpu(atoi(argument + 4));
  if (process_mode != 'n') return 1;
  snprintf(architecture, sizeof architecture, "--gpu-architecture=%s", argument);
  return open_nvrtc();
}
