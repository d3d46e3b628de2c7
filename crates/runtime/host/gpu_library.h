/* The code behind the C interface of a network that was exported for NVIDIA GPUs: opening the
 * file of its prepared weights, and running it on a stream of the caller's. The driver is found
 * at run time: among what the program is linked with, else as libcuda.so.1. */
#ifndef SQUALL_GPU_LIBRARY_H
#define SQUALL_GPU_LIBRARY_H
#include "launch.h"
#include "library.h"

/* The address of a workspace is a multiple of RT_GPU_ALIGNMENT. Kernels use a caller's tensor where
 * it lies only if its address is a multiple of RT_GPU_STEP: they fetch and write at most 16 bytes
 * at once, and tensors of tensor maps begin at multiples of 16 bytes. */
enum { RT_DEVICE = RT_KERNEL + 1, RT_LAUNCH, RT_GPU_ALIGNMENT = 256, RT_GPU_STEP = 16 };

typedef unsigned long long rt_device_pointer;

#define RT_GPU_CALLS(X)                                                                           \
  X(cuInit, (unsigned))                                                                           \
  X(cuCtxGetCurrent, (void **))                                                                   \
  X(cuCtxSetCurrent, (void *))                                                                    \
  X(cuDeviceGet, (int *, int))                                                                    \
  X(cuDevicePrimaryCtxRetain, (void **, int))                                                     \
  X(cuMemAlloc_v2, (rt_device_pointer *, size_t))                                                 \
  X(cuMemFree_v2, (rt_device_pointer))                                                            \
  X(cuMemcpyHtoD_v2, (rt_device_pointer, const void *, size_t))                                   \
  X(cuMemcpyDtoDAsync_v2, (rt_device_pointer, rt_device_pointer, size_t, void *))                 \
  X(cuMemcpyDtoHAsync_v2, (void *, rt_device_pointer, size_t, void *))                            \
  X(cuMemsetD8Async, (rt_device_pointer, unsigned char, size_t, void *))                          \
  X(cuModuleLoadData, (void **, const void *))                                                    \
  X(cuModuleUnload, (void *))                                                                     \
  X(cuModuleGetFunction, (void **, void *, const char *))                                         \
  X(cuFuncSetAttribute, (void *, int, int))                                                       \
  X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,          \
                     unsigned, void *, void **, void **))                                         \
  X(cuStreamSynchronize, (void *))

#define RT_GPU_DECLARE(name, arguments) int(*name) arguments;

/* A kernel's cubin by the name that the kernel has in the plan. */
typedef struct {
  const char *symbol;
  const void *cubin;
} rt_gpu_image;

typedef struct {
  const char *plan;
  size_t plan_bytes;
  const rt_gpu_image *kernels;
  size_t kernel_count;
} rt_gpu_library;

/* A network that was opened: weights in device memory, and the functions of its kernels. Runs never
 * write it. */
typedef struct {
  RT_GPU_CALLS(RT_GPU_DECLARE)
  rt_encode_function *encode; /* NULL in drivers that have no tensor maps */
  rt_model model;
  rt_device_pointer *regions; /* constants and prepared weights, by region */
  void **modules;             /* by kernel */
  void ***functions;          /* by kernel, one a launch */
} rt_gpu_opened;

/* Opens the file of weights in the caller's current context; where there is none, that of the first
 * GPU becomes it. */
int rt_gpu_library_open(const rt_gpu_library *l, const char *path, rt_gpu_opened **to);
void rt_gpu_library_close(rt_gpu_opened *o);
/* Bytes of device memory that a run needs. */
size_t rt_gpu_library_workspace(const rt_gpu_opened *o);
/* Puts one inference on a stream: all pointers are the device's. Launches get the caller's tensors
 * themselves where bases.h says so, with RT_GPU_STEP; the others are copied on the stream, inputs
 * ahead of all launches and outputs behind them, with the same bits. */
int rt_gpu_library_run(const rt_gpu_opened *o, const void *const *inputs, void *const *outputs,
                       void *workspace, void *stream);
/* Waits for a stream, and says whether the last run with this workspace refused its input. */
int rt_gpu_library_finish(const rt_gpu_opened *o, void *workspace, void *stream);
const char *rt_gpu_library_error_text(int code);

#endif
