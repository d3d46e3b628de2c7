/* A kernel's cubin (compiled GPU code) that is loaded, and the launches of its functions. */
#ifndef SQUALL_MODULE_H
#define SQUALL_MODULE_H
#include "gpu.h"

typedef struct {
  cu_handle module;
  cu_handle *functions; /* one a launch */
  /* The arguments of a launch, with room for the largest. */
  const void **values;
  void **arguments;
  rt_encoded_map *maps;
} rt_module;

/* Loads the cubin of a kernel and finds its functions. rt_module_close frees everything, also
 * after a failure. */
int rt_module_open(rt_gpu *g, const rt_kernel *k, rt_module *m);
void rt_module_close(rt_gpu *g, rt_module *m);
/* Launches one phase of a kernel in order: its preparation, or a call. */
int rt_module_launch(rt_gpu *g, rt_module *m, const rt_kernel *k, int prepare, const rt_memory *on,
                     cu_handle stream);

#endif
