/* NVRTC (NVIDIA's runtime compiler), which makes cubins of CUDA C; and a GPU's roof (its
 * measured peak and bandwidths). */
#ifndef SQUALL_NVRTC_H
#define SQUALL_NVRTC_H
#include "cuda.h"

#define RT_NVRTC(X)                                                                               \
  X(nvrtcVersion, (int *, int *))                                                                 \
  X(nvrtcCreateProgram, (cu_handle *, const char *, const char *, int, const char *const *,       \
                         const char *const *))                                                    \
  X(nvrtcAddNameExpression, (cu_handle, const char *))                                            \
  X(nvrtcCompileProgram, (cu_handle, int, const char *const *))                                   \
  X(nvrtcGetLoweredName, (cu_handle, const char *, const char **))                                \
  X(nvrtcGetProgramLogSize, (cu_handle, size_t *))                                                \
  X(nvrtcGetProgramLog, (cu_handle, char *))                                                      \
  X(nvrtcGetCUBINSize, (cu_handle, size_t *))                                                     \
  X(nvrtcGetCUBIN, (cu_handle, char *))                                                           \
  X(nvrtcDestroyProgram, (cu_handle *))

enum { RT_NAMES = 32, RT_NAME = 1024 };

typedef struct {
  RT_NVRTC(RT_DECLARE)
  rt_host *host;
  char architecture[48]; /* the option that names it */
} rt_nvrtc;

/* What a compilation came to: the functions' names in the cubin. */
typedef struct {
  size_t bytes;
  int count;
  char names[RT_NAMES][RT_NAME];
} rt_cubin;

/* Opens NVRTC for an architecture such as sm_90a. */
int rt_nvrtc_open(rt_host *h, const char *architecture, rt_nvrtc *n);
/* Compiles a file into another; the file `with`, if there is one, holds lines `option FLAG` and
 * `name EXPRESSION` (a function as C++ names it). */
int rt_compile(rt_nvrtc *n, const char *from, const char *to, const char *with, rt_cubin *made);

typedef struct {
  double gflops, memory_gbs, l2_gbs;
} rt_roof;
/* Measures by the kernels of roof.cu, which lies in the working folder. */
int rt_gpu_roof(rt_gpu *g, rt_nvrtc *n, rt_roof *roof);

#endif
