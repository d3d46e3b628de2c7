/* A network on a GPU: constants and prepared weights lie in device memory, and beside them one
 * arena for everything that a run writes. All launches of an inference are one CUDA graph, which
 * is replayed. Inputs and outputs lie in pinned memory of the host. */
#ifndef SQUALL_GPU_NETWORK_H
#define SQUALL_GPU_NETWORK_H
#include "branches.h"
#include "model.h"
#include "module.h"

typedef struct {
  rt_host *host;
  rt_gpu *gpu;
  rt_model model;
  rt_device_buffer *regions;  /* of constants and prepared weights */
  uint32_t region_count;
  rt_module *modules;         /* one a kernel */
  uint32_t kernel_count;
  rt_device_buffer arena;
  rt_device_buffer statuses;  /* one a step: whether its call succeeded */
  uint32_t *status;           /* the same, pinned */
  unsigned char **given, **results; /* pinned: what goes in and comes out, by port */
  unsigned char **first;      /* outputs that were remembered */
  cu_handle inference;        /* the graph of all steps */
  rt_branch *branches;        /* which steps may run at the same time */
  cu_handle streams[RT_STREAMS]; /* that share them; the first is the GPU's own */
  cu_handle *events;          /* one a step, behind it, and one ahead of all */
  /* Whether the graph has branches, or launches that overlap: both only where that was measured to
   * pay. */
  int is_parted, is_overlapped;
} rt_gpu_network;

/* Takes a plan over: device memory, constants from their files, kernels, prepared weights, and the
 * graph. Weights that only preparations read are let go. */
int rt_gpu_network_open(rt_gpu_network *n, rt_gpu *g, rt_plan *plan);
void rt_gpu_network_close(rt_gpu_network *n);
/* One inference from pinned memory to pinned memory. A call that did not succeed fails it, by the
 * name of its step. */
int rt_gpu_network_run(rt_gpu_network *n);
/* Keeps the outputs of the last run, and says later whether another run gave the same. */
int rt_gpu_network_remember(rt_gpu_network *n);
int rt_gpu_network_is_same(const rt_gpu_network *n);
/* Writes constants and prepared weights into a file that belongs to the plan of `plan_path`. */
int rt_gpu_network_weights(rt_gpu_network *n, const char *path, const char *plan_path);
/* Replays the graph; returns the device time of one replay in ns, negative at a fault. */
double rt_gpu_network_replay(rt_gpu_network *n, long replays);
/* Runs all steps in order, each several times in a graph of its own, and holds the least device
 * time in ns of each in `best`. */
int rt_gpu_network_steps(rt_gpu_network *n, uint64_t *best);
/* Replays all steps in one graph with a clock between them, and holds the median device time in ns
 * of each in `place`: beside its neighbours, with their data in the caches. Where the driver cannot
 * record that, `*is_known` is 0. */
int rt_gpu_network_places(rt_gpu_network *n, uint64_t *place, int *is_known);

#endif
