/* Opens a GPU through the NVIDIA driver (found by dlopen), and gives out device memory, copies,
 * and clocks. gpu.h has the interface and says why all work goes through one stream. */
#define _GNU_SOURCE
#include "gpu.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static int open_driver(rt_host *h, rt_gpu *g) {
  const char *asked = getenv("SQUALL_LIBCUDA");
  void *library = dlopen(asked ? asked : "libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!library) return rt_fail(&h->error, "device", "no NVIDIA driver: %s", dlerror());
#define RESOLVE(name, arguments)                                                                  \
  *(void **)&g->name = dlsym(library, #name);                                                     \
  if (!g->name)                                                                                   \
    return rt_fail(&h->error, "device", "the CUDA library is too old: it has no %s", #name);
  RT_DRIVER(RESOLVE)
  *(void **)&g->cuTensorMapEncodeTiled = dlsym(library, "cuTensorMapEncodeTiled");
  *(void **)&g->cuLaunchKernelEx = dlsym(library, "cuLaunchKernelEx");
  *(void **)&g->cuEventRecordWithFlags = dlsym(library, "cuEventRecordWithFlags");
  return 1;
}

/* Without it there are no clocks, and that is all. */
static void open_nvml(rt_gpu *g) {
  const char *asked = getenv("SQUALL_NVML");
  char id[64];
  void *library = dlopen(asked ? asked : "libnvidia-ml.so.1", RTLD_NOW);
  if (!library) return;
#define RESOLVE_NVML(name, arguments)                                                             \
  *(void **)&g->nvml.name = dlsym(library, #name);                                                \
  if (!g->nvml.name) return;
  RT_NVML(RESOLVE_NVML)
  if (g->nvml.nvmlInit_v2() != 0 || g->cuDeviceGetPCIBusId(id, sizeof id, g->device) != 0) return;
  if (g->nvml.nvmlDeviceGetHandleByPciBusId_v2(id, &g->nvml.device) != 0) g->nvml.device = NULL;
}

/* A fault of the device ends the context: the process must be replaced. */
int rt_gpu_good(rt_gpu *g, cu_result code, const char *what) {
  if (code == 0) return 1;
  const char *text = NULL;
  g->cuGetErrorString(code, &text);
  int lasting = code == 700 || (code >= 702 && code <= 720 && code != 709) || code == 999;
  return rt_fail(&g->host->error, lasting ? "fault" : code == 2 ? "memory" : "launch",
                 "%s: %s (CUDA error %d)", what, text ? text : "unknown", code);
}

int rt_gpu_open(rt_host *h, int ordinal, rt_gpu *g) {
  int count = 0;
  cu_handle context;
  memset(g, 0, sizeof *g);
  g->host = h;
  g->ordinal = ordinal;
  if (!open_driver(h, g)) return 0;
  if (!rt_gpu_good(g, g->cuInit(0), "the driver does not start")) return 0;
  if (!rt_gpu_good(g, g->cuDeviceGetCount(&count), "devices")) return 0;
  if (ordinal < 0 || ordinal >= count)
    return rt_fail(&h->error, "device", "there is no CUDA device %d: the driver sees %d", ordinal,
                   count);
  if (!rt_gpu_good(g, g->cuDeviceGet(&g->device, ordinal), "the device") ||
      !rt_gpu_good(g, g->cuDevicePrimaryCtxRetain(&context, g->device), "its context") ||
      !rt_gpu_good(g, g->cuCtxSetCurrent(context), "its context") ||
      !rt_gpu_good(g, g->cuStreamCreate(&g->stream, 1), "a stream") ||
      !rt_gpu_good(g, g->cuEventCreate(&g->began, 0), "an event") ||
      !rt_gpu_good(g, g->cuEventCreate(&g->ended, 0), "an event"))
    return 0;
  open_nvml(g);
  h->gpu = g;
  return 1;
}

int rt_gpu_attribute(rt_gpu *g, int which, int *value) {
  return rt_gpu_good(g, g->cuDeviceGetAttribute(value, which, g->device), "its attributes");
}

static unsigned clock_now(rt_nvml *n, int which) {
  unsigned mhz = 0;
  if (n->device && n->nvmlDeviceGetClockInfo(n->device, which, &mhz) != 0) mhz = 0;
  return mhz;
}

unsigned rt_gpu_most_mhz(rt_gpu *g, int which) {
  unsigned mhz = 0;
  rt_nvml *n = &g->nvml;
  if (n->device && n->nvmlDeviceGetMaxClockInfo(n->device, which, &mhz) != 0) mhz = 0;
  return mhz;
}

rt_clocks rt_gpu_clocks(rt_gpu *g) {
  rt_nvml *n = &g->nvml;
  unsigned long long reasons = 0;
  if (n->device && n->nvmlDeviceGetCurrentClocksThrottleReasons(n->device, &reasons) != 0)
    reasons = 0;
  rt_clocks c = {clock_now(n, RT_CLOCK_SM), clock_now(n, RT_CLOCK_MEMORY), 0};
  /* Idleness, chosen clocks and displays are no throttling. */
  c.throttle = reasons & 0xEC;
  return c;
}

/* ---- memory ---- */

cu_pointer rt_gpu_at(const rt_device_buffer *b) { return b->base + RT_SLACK; }

int rt_gpu_fill(rt_gpu *g, cu_pointer at, int byte, size_t size, const char *what) {
  if (size == 0) return 1;
  return rt_gpu_good(g, g->cuMemsetD8Async(at, (unsigned char)byte, size, g->stream), what);
}

int rt_gpu_take(rt_gpu *g, void *to, cu_pointer from, size_t size) {
  if (size == 0) return 1;
  return rt_gpu_good(g, g->cuMemcpyDtoHAsync_v2(to, from, size, g->stream), "reading back") &&
         rt_gpu_good(g, g->cuStreamSynchronize(g->stream), "reading back");
}

int rt_gpu_place(rt_gpu *g, rt_device_buffer *b, size_t size, int byte) {
  if (b->base && (b->room < size || b->room > 4 * size + (1 << 20))) {
    g->cuMemFree_v2(b->base);
    b->base = 0;
  }
  if (!b->base) {
    b->room = (size + 255) / 256 * 256;
    if (!rt_gpu_good(g, g->cuMemAlloc_v2(&b->base, b->room + 2 * RT_SLACK), "device memory")) {
      b->base = 0;
      return 0;
    }
  }
  b->size = size;
  return rt_gpu_fill(g, b->base, byte, b->room + 2 * RT_SLACK, "device memory");
}
