/* GPUs of NVIDIA, through the driver, which is loaded at run time: nothing of CUDA is needed to
 * compile this. Prototypes are those of the driver's ABI.
 *
 * Everything that touches device memory goes through one stream, so that it happens in the order
 * in which it is written. The driver's calls without a stream use another stream, for which this
 * one does not wait, and filling returns before it happened: poison could arrive after a
 * kernel's results (docs/decisions/0014). */
#ifndef SQUALL_GPU_H
#define SQUALL_GPU_H
#include "host.h"

typedef int cu_result;
typedef unsigned long long cu_pointer;
typedef struct cu_opaque *cu_handle;

#define RT_DRIVER(X)                                                                              \
  X(cuInit, (unsigned))                                                                           \
  X(cuDriverGetVersion, (int *))                                                                  \
  X(cuDeviceGetCount, (int *))                                                                    \
  X(cuDeviceGet, (int *, int))                                                                    \
  X(cuDeviceGetName, (char *, int, int))                                                          \
  X(cuDeviceGetAttribute, (int *, int, int))                                                      \
  X(cuDeviceGetPCIBusId, (char *, int, int))                                                      \
  X(cuDevicePrimaryCtxRetain, (cu_handle *, int))                                                 \
  X(cuCtxSetCurrent, (cu_handle))                                                                 \
  X(cuMemAlloc_v2, (cu_pointer *, size_t))                                                        \
  X(cuMemFree_v2, (cu_pointer))                                                                   \
  X(cuMemAllocHost_v2, (void **, size_t))                                                         \
  X(cuMemFreeHost, (void *))                                                                      \
  X(cuMemcpyHtoDAsync_v2, (cu_pointer, const void *, size_t, cu_handle))                          \
  X(cuMemcpyDtoHAsync_v2, (void *, cu_pointer, size_t, cu_handle))                                \
  X(cuMemcpyDtoDAsync_v2, (cu_pointer, cu_pointer, size_t, cu_handle))                            \
  X(cuMemsetD8Async, (cu_pointer, unsigned char, size_t, cu_handle))                              \
  X(cuModuleLoad, (cu_handle *, const char *))                                                    \
  X(cuModuleUnload, (cu_handle))                                                                  \
  X(cuModuleGetFunction, (cu_handle *, cu_handle, const char *))                                  \
  X(cuFuncSetAttribute, (cu_handle, int, int))                                                    \
  X(cuLaunchKernel, (cu_handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,       \
                     unsigned, cu_handle, void **, void **))                                      \
  X(cuStreamCreate, (cu_handle *, unsigned))                                                      \
  X(cuStreamSynchronize, (cu_handle))                                                             \
  X(cuStreamWaitEvent, (cu_handle, cu_handle, unsigned))                                          \
  X(cuStreamBeginCapture_v2, (cu_handle, int))                                                    \
  X(cuStreamEndCapture, (cu_handle, cu_handle *))                                                 \
  X(cuGraphInstantiateWithFlags, (cu_handle *, cu_handle, unsigned long long))                    \
  X(cuGraphLaunch, (cu_handle, cu_handle))                                                        \
  X(cuGraphExecDestroy, (cu_handle))                                                              \
  X(cuGraphDestroy, (cu_handle))                                                                  \
  X(cuEventCreate, (cu_handle *, unsigned))                                                       \
  X(cuEventDestroy_v2, (cu_handle))                                                               \
  X(cuEventRecord, (cu_handle, cu_handle))                                                        \
  X(cuEventSynchronize, (cu_handle))                                                              \
  X(cuEventElapsedTime, (float *, cu_handle, cu_handle))                                          \
  X(cuGetErrorString, (cu_result, const char **))

#define RT_DECLARE(name, arguments) cu_result(*name) arguments;

/* Clocks, by NVIDIA's management library, where it is there. Nothing is ever set. */
#define RT_NVML(X)                                                                                \
  X(nvmlInit_v2, (void))                                                                          \
  X(nvmlDeviceGetHandleByPciBusId_v2, (const char *, cu_handle *))                                \
  X(nvmlDeviceGetClockInfo, (cu_handle, int, unsigned *))                                         \
  X(nvmlDeviceGetMaxClockInfo, (cu_handle, int, unsigned *))                                      \
  X(nvmlDeviceGetCurrentClocksThrottleReasons, (cu_handle, unsigned long long *))                 \
  X(nvmlDeviceGetTemperature, (cu_handle, int, unsigned *))                                       \
  X(nvmlDeviceGetPowerUsage, (cu_handle, unsigned *))

typedef struct {
  RT_NVML(RT_DECLARE)
  cu_handle device; /* NULL where there are no clocks */
} rt_nvml;

/* Memory of the device with RT_SLACK bytes of slack on both sides. */
enum { RT_SLACK = 4096 };
typedef struct {
  cu_pointer base;
  size_t size, room;
} rt_device_buffer;

/* How the driver takes a launch with attributes. */
typedef struct {
  int id;
  char unused[4];
  union {
    char room[64];
    int flag;
  } value;
} rt_launch_attribute;

typedef struct {
  unsigned blocks[3], threads[3], shared;
  cu_handle stream;
  rt_launch_attribute *attributes;
  unsigned count;
} rt_launch_config;

typedef cu_result rt_note_function(cu_handle, cu_handle, unsigned);
typedef cu_result rt_launch_function(const rt_launch_config *, cu_handle, void **, void **);

typedef struct rt_gpu {
  RT_DRIVER(RT_DECLARE)
  rt_launch_function *cuLaunchKernelEx;       /* in drivers of CUDA 12 and later, or NULL */
  rt_note_function *cuEventRecordWithFlags;   /* in drivers of CUDA 11.1 and later, or NULL */
  rt_encode_function *cuTensorMapEncodeTiled; /* in drivers of CUDA 12 and later, or NULL */
  rt_nvml nvml;
  rt_host *host;
  cu_handle stream, began, ended;
  int ordinal, device;
  int overlaps; /* launches are set up while the one before them ends; their kernels wait for it */
} rt_gpu;

typedef struct {
  unsigned sm_mhz, memory_mhz;
  unsigned long long throttle; /* bits of what slows the clocks down */
} rt_clocks;

enum { RT_CLOCK_SM = 1, RT_CLOCK_MEMORY = 2 };

/* Opens the driver and a device; fills `g`, which must outlive the host. */
int rt_gpu_open(rt_host *h, int ordinal, rt_gpu *g);
/* The clocks now; 0 where unknown. */
rt_clocks rt_gpu_clocks(rt_gpu *g);
unsigned rt_gpu_most_mhz(rt_gpu *g, int which);
int rt_gpu_attribute(rt_gpu *g, int which, int *value);
/* Whether a call of the driver succeeded; `what` begins the message. */
int rt_gpu_good(rt_gpu *g, cu_result code, const char *what);
/* Bytes of device memory become the same. */
int rt_gpu_fill(rt_gpu *g, cu_pointer at, int byte, size_t size, const char *what);
/* Reads device memory, after all that was begun before. */
int rt_gpu_take(rt_gpu *g, void *to, cu_pointer from, size_t size);
/* Room of a size, all of it filled with `byte`. */
int rt_gpu_place(rt_gpu *g, rt_device_buffer *b, size_t size, int byte);
cu_pointer rt_gpu_at(const rt_device_buffer *b);

#endif
