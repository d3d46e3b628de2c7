/* A kernel in C that is loaded: from a shared library, or linked into the program. */
#ifndef SQUALL_KERNEL_H
#define SQUALL_KERNEL_H
#include "call.h"
#include "host.h"

/* The functions of a GPU kernel whose launcher is linked in; the last argument is a stream. */
typedef int rt_stream_run_function(const void *const *data, void *const *outputs,
                                   const void *prepared, void *workspace, void *stream);
typedef int rt_stream_prepare_function(const void *const *weights, void *prepared, void *stream);

typedef struct {
  void *library; /* NULL where it is linked in */
  rt_run_function *run;
  rt_prepare_function *prepare; /* where there are prepared weights */
} rt_loaded;

/* Loads a kernel in C; `k` must outlive it. */
int rt_load(rt_host *h, const rt_kernel *k, rt_loaded *to);
void rt_unload(rt_host *h, rt_loaded *loaded);
/* Packs the weights of a kernel that has some. */
int rt_prepare(rt_host *h, const rt_kernel *k, const rt_loaded *loaded, const void *const *weights,
               void *prepared);
/* What is linked in under a name, or NULL. */
const rt_symbol *rt_linked(rt_host *h, const rt_kernel *k);

#endif
